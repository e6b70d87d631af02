"""spool-check: find the PyTorch call that an untrusted accelerator computes wrongly, while the training runs."""

from __future__ import annotations

from spool import __version__
from spool_writer import PrecisionDebugger

__all__ = ["PrecisionDebugger", "__version__"]
