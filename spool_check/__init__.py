"""spool-check: find the PyTorch call that an untrusted accelerator computes wrongly, while the training runs.

torch is loaded with the first use of a name, not by the import, so that `python -m spool_check --help` answers at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spool import __version__
    from spool_writer import PrecisionDebugger

__all__ = ["PrecisionDebugger", "__version__"]


def __getattr__(name: str) -> Any:
    if name == "PrecisionDebugger":
        from spool_writer import PrecisionDebugger

        return PrecisionDebugger
    if name == "__version__":
        from spool import __version__

        return __version__
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
