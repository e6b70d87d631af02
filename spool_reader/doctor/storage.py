"""Whether a directory keeps what is written to it, for whom, and for how much there is room."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import SoftReadWriteLock

from spool import SpoolOptions
from spool.files import free

from .findings import Finding, fail, ok, warn

_MiB = 2**20
_FEW_INODES = 100_000


@contextmanager
def scratch_folder(spool: Path) -> Iterator[Path]:
    """A hidden folder in the spool that goes away at the end; readers and writers ignore it."""
    folder = spool / f".doctor-{secrets.token_hex(4)}"
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def permission_checks(spool: Path) -> Iterator[Finding]:
    """Who may write here."""
    found = spool.stat()
    mode = stat.S_IMODE(found.st_mode)
    shown = f"owner {found.st_uid}, group {found.st_gid}, mode {mode:04o}; this process is user {os.geteuid()}"
    if mode & stat.S_ISVTX and found.st_uid != os.geteuid():
        yield warn(
            "permissions",
            f"sticky directory ({shown}): files of other users cannot be moved, so not claimed",
            "give a directory without the sticky bit, such as a folder of the project's group, not /tmp itself",
        )
    elif not os.access(spool, os.R_OK | os.W_OK | os.X_OK):
        yield fail(
            "permissions", f"{shown}: not readable and writable for it", "change the mode, the group or the user"
        )
    elif not mode & 0o020 and found.st_uid != os.geteuid():
        yield warn("permissions", shown, "let the group write, so that training and reader may be different users")
    else:
        yield ok("permissions", shown)


def room_checks(spool: Path) -> Iterator[Finding]:
    """Free space and inodes."""
    space, inodes = free(spool)
    reserve = SpoolOptions().reserve_bytes
    text = f"{space / _MiB:,.0f} MiB free"
    if space < reserve:
        yield fail(
            "space",
            f"{text}, less than the {reserve // _MiB} MiB that writers leave free: they would block at once",
            "free some, give another directory, or set spool.reserve_bytes",
        )
    elif space < 4 * reserve:
        yield warn("space", text, "a large training fills this within seconds when no reader runs")
    else:
        yield ok("space", text)
    if inodes is not None:
        enough = inodes >= _FEW_INODES
        text = f"{inodes:,} files more fit"
        yield ok("inodes", text) if enough else warn("inodes", text, "each waiting call is a file: free some inodes")


def write_checks(scratch: Path) -> Iterator[Finding]:
    """Write, sync, rename, read back, delete; and the lock of the one janitor."""
    data = os.urandom(_MiB)
    first, second = scratch / "first", scratch / "second"
    fd = os.open(first, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    try:
        os.write(fd, data)
        os.fsync(fd)
    finally:
        os.close(fd)
    os.rename(first, second)
    if first.exists() or second.read_bytes() != data:
        yield fail("rename", "a renamed file is not what was written", "use another file system: this one loses data")
        return
    with contextlib.suppress(FileNotFoundError):
        os.unlink(first)
    os.unlink(second)
    yield ok("rename", "1 MiB written, synced, renamed and read back")
    try:
        lock = SoftReadWriteLock(str(scratch / "janitor"), is_singleton=False)
        with lock.write_lock(timeout=10):
            pass
    except Exception as error:
        yield warn(
            "janitor lock",
            f"{type(error).__name__}: {error}",
            "claims of dead readers are taken back without the lock then, as on a full disk",
        )
    else:
        yield ok("janitor lock", "taken and released")
