"""What a user may name for judging: a spool, or a folder of saved failures."""

from __future__ import annotations

from pathlib import Path

from spool import Spool, SpoolOptions, open_spool

from .saved import SavedFailures, is_saved_folder


def open_place(place: str | Path, options: SpoolOptions | None = None) -> Spool:
    """The spool that `place` names; raises as `open_spool` does."""
    options = options or SpoolOptions()
    if is_saved_folder(Path(place)):
        return SavedFailures(Path(place), attempts=options.attempts)
    return open_spool(place, options=options)
