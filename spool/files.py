"""The one module of the directory spool that does file calls.

Each function is one system call or one small, fixed sequence; errors come out as OSError. Tests replace functions here to
make any call fail, or the process die in it.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import secrets
import stat
from collections.abc import Sequence
from pathlib import Path

from .codec import Buffer, write_buffers

# The file system has no room: nothing was written that may become visible.
FULL = (errno.ENOSPC, errno.EDQUOT)
# The name or the folder has gone; on NFS a stale handle means the same.
GONE = (errno.ENOENT, errno.ESTALE, errno.ENOTDIR)
# Not for this user: waiting does not help.
REFUSED = (errno.EACCES, errno.EPERM, errno.EROFS)
NETWORK_TYPES = frozenset({"nfs", "nfs4", "cifs", "smb3", "lustre", "beegfs", "gpfs", "ceph", "glusterfs", "9p", "afs"})
# A process number is not unique over hosts, nor over time: a file that is being written also carries chance and a count.
_TOKEN = secrets.token_hex(4)
_COUNT = itertools.count()
TEMPORARY = ".tmp"


def names(folder: str | os.PathLike[str]) -> list[str]:
    """The names in a folder, nothing looked up."""
    return os.listdir(folder)


def names_if_any(folder: str | os.PathLike[str]) -> list[str]:
    """The names in a folder; none when it has gone."""
    try:
        return names(folder)
    except OSError as error:
        if error.errno in GONE:
            return []
        raise


def make_folder(path: str | os.PathLike[str], mode: int) -> bool:
    """Make a folder whose parent exists, with at least the bits of `mode` (whatever the umask); False if it was there."""
    try:
        os.mkdir(path)
    except FileExistsError:
        return False
    # The set-group bit, which the parent may have handed down, stays.
    has = stat.S_IMODE(os.stat(path).st_mode)
    if mode & ~has:
        os.chmod(path, has | mode)
    return True


def hand_down_group(path: str | os.PathLike[str], group: int) -> None:
    """Give a folder to a group, with the bit that gives it all that is made in it."""
    found = os.stat(path)
    if found.st_gid != group:
        os.chown(path, -1, group)
    mode = stat.S_IMODE(found.st_mode)
    if mode & 0o2070 != 0o2070:
        os.chmod(path, mode | 0o2070)


def folder_mode(mode: int) -> int:
    """The mode of a folder whose files have `mode`: who may read may list, who may write may rename; the owner may all."""
    found = 0o700
    for shift in (0, 3, 6):
        found |= (0o5 if mode >> shift & 0o4 else 0) << shift | (0o7 if mode >> shift & 0o2 else 0) << shift
    return found


def temporary(folder: str | os.PathLike[str]) -> str:
    """A hidden name in `folder` that no other thread, process or host uses."""
    return os.path.join(folder, f".{_TOKEN}-{os.getpid()}-{next(_COUNT)}{TEMPORARY}")


def is_temporary(name: str) -> bool:
    """Whether a name is one of a file that is being written."""
    return name.startswith(".") and name.endswith(TEMPORARY)


def touch(path: str | os.PathLike[str]) -> None:
    """Set a folder's time from here, which makes an NFS client forget what it remembers of it."""
    os.utime(path)


def changed(path: str | os.PathLike[str]) -> int:
    """When something in a folder, or a file, last changed, in nanoseconds of the file system's clock."""
    return os.stat(path).st_mtime_ns


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


def size(path: str | os.PathLike[str]) -> int:
    """Bytes of a file."""
    return os.stat(path).st_size


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
    new = temporary(os.path.dirname(path))
    write_new(new, [data], mode=mode, sync=sync)
    try:
        rename(new, path)
    except BaseException:
        with contextlib.suppress(OSError):
            unlink(new)
        raise


def overwrite(path: str | os.PathLike[str], data: bytes) -> None:
    """Write over a file of the same length in place: it needs no space, so it works on a full disk too."""
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.pwrite(fd, data, 0)
    finally:
        os.close(fd)


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


def is_nfs3(path: str | os.PathLike[str]) -> bool:
    """Whether `path` is on an NFS mount of version 3 or older."""
    kind, options = file_system(path)
    return kind == "nfs" and not any(f"vers={version}" in options for version in ("4", "4.0", "4.1", "4.2"))
