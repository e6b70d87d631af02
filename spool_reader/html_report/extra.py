"""The libraries that only the HTML report needs."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

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


def plotting_script() -> str:
    """The plotting library for the page, which unpacks it when it draws the first chart."""
    # Not asked of the package itself: importing it takes longer than making the report of a small run.
    spec = find_spec("bokeh")
    folder = Path(spec.origin if spec is not None and spec.origin else "").parent / "server" / "static" / "js"
    try:
        parts = [(folder / name).read_text(encoding="utf-8") for name in ("bokeh.min.js", "bokeh-api.min.js")]
    except OSError as error:
        raise ConfigError(
            f"{error.filename}: {error.strerror}; the HTML report is made with it: pip install --force-reinstall bokeh"
        ) from error
    return "\n".join([*parts, 'Bokeh.set_log_level("error");'])


def _missing() -> list[str]:
    return [name for name in _MODULES if find_spec(name) is None]
