"""The libraries that only the HTML report needs."""

from __future__ import annotations

from importlib.util import find_spec

from spool import ConfigError

_MODULES = ("jinja2", "bokeh")


def has_extra() -> bool:
    """Whether an HTML report can be made here."""
    return not _missing()


def need_extra() -> None:
    """ConfigError, with the remedy, where an HTML report cannot be made."""
    missing = _missing()
    if missing:
        raise ConfigError(
            f"the HTML report needs {' and '.join(missing)}, which is not installed: pip install 'spool-check[report]'"
        )


def _missing() -> list[str]:
    return [name for name in _MODULES if find_spec(name) is None]
