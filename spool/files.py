"""The one module of the directory spool that does file calls.

Each function is one system call or one small, fixed sequence; errors come out as OSError. Tests replace functions here to
make any call fail, or the process die in it.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Sequence
from pathlib import Path

from .codec import Buffer, write_buffers

# The file system has no room: nothing was written that may become visible.
FULL = (errno.ENOSPC, errno.EDQUOT)
# The name or the folder has gone; on NFS a stale handle means the same.
GONE = (errno.ENOENT, errno.ESTALE, errno.ENOTDIR)
NETWORK_TYPES = frozenset({"nfs", "nfs4", "cifs", "smb3", "lustre", "beegfs", "gpfs", "ceph", "glusterfs", "9p", "afs"})


def names(folder: str | os.PathLike[str]) -> list[str]:
    """The names in a folder, nothing looked up."""
    return os.listdir(folder)


def make_folder(path: str | os.PathLike[str]) -> None:
    """Make a folder whose parent exists; one that is there already is fine."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(path)


def rename(source: str | os.PathLike[str], target: str | os.PathLike[str]) -> None:
    """Move a file; atomic on every file system that a spool may be on."""
    os.rename(source, target)


def unlink(path: str | os.PathLike[str]) -> None:
    """Delete a name."""
    os.unlink(path)


def remove_folder(path: str | os.PathLike[str]) -> None:
    """Delete an empty folder."""
    os.rmdir(path)


def inode(path: str | os.PathLike[str]) -> tuple[int, int]:
    """What a name stands for: device and inode number."""
    found = os.stat(path, follow_symlinks=False)
    return found.st_dev, found.st_ino


def read(path: str | os.PathLike[str]) -> bytes:
    """The whole of a small file; open and read, since a stat may be stale on NFS."""
    return Path(path).read_bytes()


def free(path: str | os.PathLike[str]) -> tuple[int, int | None]:
    """Free bytes and free inodes for this user; None where the file system does not count inodes."""
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize, found.f_favail if found.f_files else None


def write_new(path: str | os.PathLike[str], buffers: Sequence[Buffer], *, mode: int, sync: bool) -> tuple[int, int]:
    """Write a new file, sync it if asked, close it and look at every error; returns its device and inode number.

    On NFS a full disk shows only at the sync or the close, so both are checked. What is left of a file that failed is removed.
    """
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        try:
            write_buffers(fd, buffers)
            os.fchmod(fd, mode)
            if sync:
                os.fsync(fd)
            found = os.fstat(fd)
        finally:
            os.close(fd)
    except BaseException:
        with contextlib.suppress(OSError):
            unlink(path)
        raise
    return found.st_dev, found.st_ino


def replace_small(path: str | os.PathLike[str], data: bytes, *, mode: int, sync: bool = False) -> None:
    """Replace a small file atomically."""
    folder, name = os.path.split(os.fspath(path))
    temporary = os.path.join(folder, f".{name}.{os.getpid()}.tmp")
    with contextlib.suppress(FileNotFoundError):
        unlink(temporary)
    write_new(temporary, [data], mode=mode, sync=sync)
    try:
        rename(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            unlink(temporary)
        raise


def file_system(path: str | os.PathLike[str]) -> tuple[str, str]:
    """Type and options of the mount that `path` is on, such as `("nfs4", "rw,vers=4.2,…")`."""
    target = os.path.realpath(path)
    best, kind, options = "", "unknown", ""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            left, _, right = line.partition(" - ")
            point = left.split(" ")[4].replace("\\040", " ")
            inside = target == point or target.startswith(point.rstrip("/") + "/")
            if inside and len(point) >= len(best):
                best, (kind, _, options) = point, right.split(" ")[:3]
    return kind, options


def is_network(path: str | os.PathLike[str]) -> bool:
    """Whether `path` is on a network file system, or on one that may hide one (FUSE)."""
    kind, _ = file_system(path)
    return kind in NETWORK_TYPES or kind.startswith("fuse")
