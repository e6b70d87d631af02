"""A little room set aside in the spool: a reader that starts on a full disk frees it for its claim folder and its heartbeat.

Claiming and deleting need no room, but becoming known does; without this, a full disk could never be drained by a new reader.
"""

from __future__ import annotations

import contextlib
import secrets
from pathlib import Path

from . import files

NAME = "spare"
# A few blocks of the usual sizes, for two folders, the reader's own one and its record.
_BYTES = 64 * 2**10


def keep(root: Path, mode: int) -> None:
    """Set the room aside unless it is; where there is no room for it there is none."""
    # Not zeros, which some file systems store as nothing.
    with contextlib.suppress(OSError):
        files.write_new(root / NAME, [secrets.token_bytes(_BYTES)], mode=mode, sync=False)


def spend(root: Path) -> bool:
    """Free the room; False when there was none."""
    try:
        files.unlink(root / NAME)
    except OSError:
        return False
    return True
