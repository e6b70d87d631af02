"""A file system in memory that lies as NFS does, in the place of the spool's one module of file calls.

One server, any number of hosts. A host believes for ever that a name is absent which it once looked up in vain, until it lists
the folder. A host of version 3 believes its last listing as long as the folder's time is the same, and the server's clock ticks
slowly. A rename or unlink may happen and be reported as failed, or fail without having happened.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spool import files


def refused(number: int, path: object) -> OSError:
    """The error of a system call."""
    return OSError(number, os.strerror(number), str(path))


@dataclass
class Folder:
    """A folder on the server: names of files with their contents and inode numbers, and its time."""

    time: int
    files: dict[str, tuple[bytes, int]] = field(default_factory=dict)


@dataclass
class Host:
    """What one host believes."""

    version3: bool
    absent: set[str] = field(default_factory=set)
    listed: dict[str, tuple[int, list[str]]] = field(default_factory=dict)


class Server:
    """The export, and the functions that take the place of those of `spool.files`; `host` is who calls."""

    def __init__(self, root: Path) -> None:
        self.folders: dict[str, Folder] = {str(root): Folder(0)}
        self.clock = 0
        self.host = Host(version3=False)
        self._inodes = 0
        # Errors of the next renames and unlinks: (has it happened all the same, number).
        self.faults: list[tuple[bool, int]] = []

    def install(self, patch: Callable[[Any, str, Any], None]) -> None:
        """Replace the functions of `spool.files`."""
        for name in (
            "names", "make_folder", "touch", "changed", "rename", "unlink", "remove_folder", "inode", "read", "free", "size",
            "write_new", "overwrite", "file_system", "is_network", "is_nfs3",
        ):  # fmt: skip
            patch(files, name, getattr(self, name))

    def _folder(self, path: str) -> Folder:
        folder = self.folders.get(path)
        if folder is None:
            raise refused(errno.ENOENT, path)
        return folder

    def _split(self, path: object) -> tuple[Folder, str, str]:
        text = os.fspath(path)  # type: ignore[call-overload]
        return self._folder(os.path.dirname(text)), os.path.basename(text), text

    def _changes(self, path: str) -> None:
        """The folder gets the time of the tick; the host that made the change does not believe its own listing any more."""
        self.folders[path].time = self.clock
        self.host.listed.pop(path, None)

    def _look_up(self, path: object) -> tuple[Folder, str, str]:
        folder, name, text = self._split(path)
        if text in self.host.absent:
            raise refused(errno.ENOENT, text)
        if name not in folder.files:
            self.host.absent.add(text)
            raise refused(errno.ENOENT, text)
        return folder, name, text

    def _fault(self) -> tuple[bool, int] | None:
        return self.faults.pop() if self.faults else None

    # The functions of spool.files.

    def names(self, path: Any) -> list[str]:
        text = os.fspath(path)
        folder = self._folder(text)
        believed = self.host.listed.get(text)
        if self.host.version3 and believed is not None and believed[0] == folder.time:
            return list(believed[1])
        inner = [os.path.basename(other) for other in self.folders if other != text and os.path.dirname(other) == text]
        found = [*folder.files, *inner]
        self.host.listed[text] = folder.time, found
        self.host.absent -= {os.path.join(text, name) for name in found}
        return list(found)

    def make_folder(self, path: Any, mode: int) -> bool:
        text = os.fspath(path)
        self._folder(os.path.dirname(text))
        if text in self.folders:
            return False
        self.folders[text] = Folder(self.clock)
        self._changes(os.path.dirname(text))
        return True

    def touch(self, path: Any) -> None:
        self.clock += 1
        self._folder(os.fspath(path)).time = self.clock

    def changed(self, path: Any) -> int:
        text = os.fspath(path)
        return self.folders[text].time if text in self.folders else self._split(path)[0].time

    def rename(self, source: Any, target: Any) -> None:
        folder, name, text = self._look_up(source)
        into, new, where = self._split(target)
        fault = self._fault()
        if fault is None or fault[0]:
            into.files[new] = folder.files.pop(name)
            self.host.absent.discard(where)
            self._changes(os.path.dirname(text))
            self._changes(os.path.dirname(where))
        if fault is not None:
            raise refused(fault[1], text)

    def unlink(self, path: Any) -> None:
        folder, name, text = self._look_up(path)
        fault = self._fault()
        if fault is None or fault[0]:
            del folder.files[name]
            self._changes(os.path.dirname(text))
        if fault is not None:
            raise refused(fault[1], text)

    def remove_folder(self, path: Any) -> None:
        text = os.fspath(path)
        folder = self._folder(text)
        if folder.files or any(os.path.dirname(other) == text for other in self.folders):
            raise refused(errno.ENOTEMPTY, text)
        del self.folders[text]
        self._changes(os.path.dirname(text))

    def inode(self, path: Any) -> tuple[int, int]:
        folder, name, _ = self._look_up(path)
        return 1, folder.files[name][1]

    def read(self, path: Any) -> bytes:
        folder, name, _ = self._look_up(path)
        return folder.files[name][0]

    def size(self, path: Any) -> int:
        return len(self.read(path))

    def free(self, path: Any) -> tuple[int, int | None]:
        return 2**40, None

    def write_new(self, path: Any, buffers: Any, *, mode: int, sync: bool) -> tuple[int, int]:
        folder, name, text = self._split(path)
        if name in folder.files:
            raise refused(errno.EEXIST, text)
        self._inodes += 1
        folder.files[name] = b"".join(bytes(buffer) for buffer in buffers), self._inodes
        self.host.absent.discard(text)
        self._changes(os.path.dirname(text))
        return 1, self._inodes

    def overwrite(self, path: Any, data: bytes) -> None:
        folder, name, _ = self._look_up(path)
        folder.files[name] = data, folder.files[name][1]

    def file_system(self, path: Any) -> tuple[str, str]:
        return ("nfs", "vers=3") if self.host.version3 else ("nfs4", "vers=4.2")

    def is_network(self, path: Any) -> bool:
        return True

    def is_nfs3(self, path: Any) -> bool:
        return self.host.version3
