"""Publishing: a hidden temporary name in the step's own folder, a checked write, one rename.

Nothing is visible before the rename. Publishing again after a doubtful failure is allowed: a call that comes twice has one
row all the same, a call that is lost has none.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

from . import files
from .codec import Buffer
from .names import Place
from .options import SpoolOptions

# How often the folder may vanish under one bundle before that counts as an outage.
_TRIES = 5


class Publisher:
    """The writer's side of a directory spool."""

    def __init__(self, root: Path, options: SpoolOptions) -> None:
        self._root = os.fspath(root)
        self._mode, self._folder_mode = options.mode, files.folder_mode(options.mode)
        policy = options.fsync
        self._sync = policy == "bundle" or (policy == "auto" and files.is_network(root))
        self._last: dict[int, str] = {}

    def publish(self, place: Place, buffers: Sequence[Buffer]) -> None:
        """Make a file visible under its place, whole or not at all. Raises OSError."""
        folder = f"{self._root}/rank{place.rank}/step{place.step}"
        target = f"{folder}/{place.file}"
        for left in reversed(range(_TRIES)):
            temporary = files.temporary(folder)
            try:
                self._make(place.rank, folder)
                written = files.write_new(temporary, buffers, mode=self._mode, sync=self._sync)
                self._reveal(temporary, target, written)
                return
            except OSError as error:
                # RACE: a reader may remove an empty step folder at any moment before our file is in it, and a purge our file.
                self._last.pop(place.rank, None)
                if error.errno not in files.GONE or not left:
                    raise

    def _make(self, rank: int, folder: str) -> None:
        if self._last.get(rank) != folder:
            files.make_folder(os.path.dirname(folder), self._folder_mode)
            files.make_folder(folder, self._folder_mode)
            self._last[rank] = folder

    @staticmethod
    def _reveal(temporary: str, target: str, written: tuple[int, int]) -> None:
        try:
            files.rename(temporary, target)
        except OSError:
            # A lost reply on NFS reports failure for a rename that happened: the inode tells.
            with contextlib.suppress(OSError):
                if files.inode(target) == written:
                    return
            try:
                files.unlink(temporary)
            except FileNotFoundError:
                # Neither name is there: renamed and already claimed, or swept. Only a second file makes sure.
                raise
            except OSError:
                pass
            raise
