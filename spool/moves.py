"""Where a claimed bundle goes when it is not done with: back to its place, or into quarantine. Each move is one rename."""

from __future__ import annotations

import contextlib
import json
import logging
import time
from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path

from . import files
from .listing import bundles_in, ranks_of, steps_of
from .names import BundleName, Place, parse_claim_name
from .options import SpoolOptions

log = logging.getLogger("spool_check.spool")

QUARANTINE = "quarantine"


class Mover:
    """Moves bundles between the folders of one spool. All of it raises OSError; a bundle is always in one place."""

    def __init__(self, root: Path, options: SpoolOptions) -> None:
        self._root, self._options = root, options
        self._folder_mode = files.folder_mode(options.mode)

    def give_back(self, folder: Path, name: str, *, failed_attempt: bool = True) -> tuple[Place, BundleName] | None:
        """A claimed file back to where it came from, or into quarantine after its last attempt.

        Answers where it waits now; None when it does not (it is in quarantine, or somebody else has moved it).
        """
        found = parse_claim_name(name)
        if found is None:
            return None
        place, parsed = found
        older = replace(parsed, attempt=parsed.attempt + failed_attempt)
        back = Place(place.rank, place.step, str(older))
        if older.attempt >= self._options.attempts:
            self.quarantine(folder / name, back, f"{older.attempt} attempts failed: each time the reader died on it")
            return None
        return (back, older) if self._rename(folder / name, self._root / back.ready) else None

    def give_back_others(self, folder: Path, known: Collection[str]) -> list[tuple[Place, BundleName]]:
        """Every claimed file of a folder that has no `known` name back to its place, as it was; where each waits now."""
        found = []
        for name in files.names_if_any(folder):
            if name not in known:
                try:
                    back = self.give_back(folder, name, failed_attempt=False)
                except OSError as error:
                    # RACE: a janitor that takes us for dead has it, and NFS 3 lists it all the same.
                    if error.errno not in files.GONE:
                        raise
                    continue
                if back is not None:
                    found.append(back)
        return found

    def quarantine(self, path: Path, place: Place, reason: str) -> bool:
        """A claimed file into quarantine, with a JSON beside it that says why; False when somebody else has moved it."""
        target = self._root / QUARANTINE / place.ready
        if not self._rename(path, target):
            return False
        record = {"reason": reason, "rank": place.rank, "step": place.step, "file": place.file, "time": time.time()}
        # On a full disk the bundle is set aside all the same; the log has the reason.
        with contextlib.suppress(OSError):
            files.replace_small(target.with_suffix(".json"), json.dumps(record).encode(), mode=self._options.mode)
        log.warning("%s: quarantined: %s", place.ready, reason)
        return True

    def retry_quarantined(self) -> int:
        """Every bundle in quarantine back to its place, as if never tried."""
        again = 0
        for place, parsed in list(self.quarantined()):
            kept = self._root / QUARANTINE / place.ready
            fresh = Place(place.rank, place.step, str(replace(parsed, attempt=0)))
            if self._rename(kept, self._root / fresh.ready):
                again += 1
                with contextlib.suppress(OSError):
                    files.unlink(kept.with_suffix(".json"))
        return again

    def quarantined(self) -> Iterator[tuple[Place, BundleName]]:
        """What is in quarantine."""
        try:
            for rank, folder in ranks_of(self._root / QUARANTINE):
                for step, inside in steps_of(folder):
                    yield from bundles_in(inside, rank, step)
        except OSError as error:
            if error.errno not in files.GONE:
                raise

    def _rename(self, source: Path, target: Path) -> bool:
        """Rename, making the target's folders where they are missing; False when the source has gone."""
        for left in (2, 1, 0):
            try:
                files.rename(source, target)
                return True
            except OSError as error:
                # RACE: the source has gone, or the target's folder has: a listing tells which, a lookup might not on NFS.
                if source.name not in files.names_if_any(source.parent):
                    # Where a reply was lost on NFS, it has gone to the target, whatever the error says.
                    return target.name in files.names_if_any(target.parent)
                if error.errno not in files.GONE or not left:
                    raise
                missing = [target.parent, *target.parent.parents]
                for folder in reversed(missing[: missing.index(self._root)]):
                    files.make_folder(folder, self._folder_mode)
        return False
