"""Landing: bundles of one session become files of a directory spool, exactly once over every kill of the receiver.

::

    {spool}/lan/rank{R}.{session}.state         two numbers, whether the session is closed, the peer's certificate
    {spool}/lan/rank{R}.{session}.{number}.part a bundle that is coming in

Order for one bundle: write the part, check its digest, sync it by policy, close it, write `previous number` over the state
in place, rename the part to its place in the spool, acknowledge. If the receiver is killed, the state and the part's
presence tell whether the rename happened: with the part of `number` still there, `previous` is the last that landed.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

from .. import files
from ..bundle import CallHeader
from ..codec import read_header
from ..errors import SpoolUnavailable
from ..interface import SessionInfo
from ..names import BundleName, Place
from ..options import SpoolOptions
from ..room import full
from .frames import BundleHead

FOLDER = "lan"
_STATE = re.compile(rb"(\d{20}) (\d{20}) (open|shut) (-|[0-9a-f]{64})\n")
_STATE_NAME = re.compile(r"rank(\d+)\..+\.state")
_TRIES = 5


@contextlib.contextmanager
def _translated(place: str | Path) -> Iterator[None]:
    """The border where errors of the disk become ours; those of the network stay what they are."""
    try:
        yield
    except OSError as error:
        if error.errno in files.FULL:
            raise full(error, place) from error
        raise SpoolUnavailable(f"{place}: the receiver cannot write there: {error.strerror}; is it mounted?") from error


def shut_states(root: Path) -> Iterator[tuple[int, Path]]:
    """Rank and state file of each session that is closed."""
    for name in files.names_if_any(root / FOLDER):
        match = _STATE_NAME.fullmatch(name)
        if match:
            with contextlib.suppress(FileNotFoundError):
                content = _STATE.fullmatch(files.read(root / FOLDER / name))
                if content and content[3] == b"shut":
                    yield int(match[1]), root / FOLDER / name


class Landing:
    """Where one session's bundles land. Not for several threads at once. Raises SpoolError.

    `tag` goes into the names of the session's bundles, as its record says.
    """

    def __init__(self, root: Path, info: SessionInfo, options: SpoolOptions, peer: str | None) -> None:
        self.tag = ""
        self._root, self._rank, self._mode = root, info.rank, options.mode
        self._folder_mode = files.folder_mode(options.mode)
        self._sync = options.fsync == "bundle" or (options.fsync == "auto" and files.is_network(root))
        self._base = f"rank{info.rank}.{info.session}"
        self._state = root / FOLDER / f"{self._base}.state"
        self.closed = False
        self.peer = peer or "-"
        self._fd = -1
        try:
            with _translated(self._state):
                files.make_folder(root / FOLDER, 0o700)
                self.landed = self._recover()
                self._fd = os.open(self._state, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
                self._record(self.landed, self.landed)
        except BaseException:
            self.close()
            raise

    def _recover(self) -> int:
        parts = [name for name in files.names(self._root / FOLDER) if self._number_of(name) is not None]
        landed = 0
        with contextlib.suppress(FileNotFoundError):
            match = _STATE.fullmatch(files.read(self._state))
            if match:
                previous, number = int(match[1]), int(match[2])
                waits = any(self._number_of(name) == number for name in parts)
                landed = previous if waits else number
                self.closed, self.peer = match[3] == b"shut", match[4].decode()
        for name in parts:
            files.unlink(self._root / FOLDER / name)
        return landed

    def _number_of(self, name: str) -> int | None:
        start = f"{self._base}."
        digits = name.removeprefix(start).removesuffix(".part")
        return int(digits) if name.startswith(start) and name.endswith(".part") and digits.isdigit() else None

    def _record(self, previous: int, number: int) -> None:
        word = "shut" if self.closed else "open"
        os.pwrite(self._fd, f"{previous:020d} {number:020d} {word} {self.peer}\n".encode(), 0)

    def part(self, number: int) -> Part:
        """A file for a bundle that is coming in."""
        return Part(f"{self._root}/{FOLDER}/{self._base}.{number}.part", self._mode, self._sync)

    def reveal(self, part: Part, head: BundleHead, api: str) -> None:
        """Make a finished part a bundle of the spool, and count it as landed."""
        name = str(BundleName(head.seq, api, tag=self.tag))
        place = Place(self._rank, head.step, name)
        folder = f"{self._root}/rank{self._rank}/step{head.step}"
        with _translated(self._root):
            self._record(self.landed, head.number)
            part.keep = True
            try:
                self._move(part.path, folder, f"{self._root}/{place.ready}")
            except BaseException:
                # Before the part may go: without it the state would say that the bundle has landed.
                self._record(self.landed, self.landed)
                part.keep = False
                raise
        self.landed = head.number

    def _move(self, part: str, folder: str, target: str) -> None:
        for left in reversed(range(_TRIES)):
            try:
                files.rename(part, target)
                return
            except FileNotFoundError:
                # The first bundle of a step, or a reader has removed the empty folder.
                if not left or not os.path.exists(part):
                    raise
                files.make_folder(os.path.dirname(folder), self._folder_mode)
                files.make_folder(folder, self._folder_mode)

    def shut(self) -> None:
        """Record that the session is closed: a sender that comes back only to hear so must not open it again."""
        self.closed = True
        with _translated(self._state):
            self._record(self.landed, self.landed)

    def close(self) -> None:
        """Let go of the state file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class Part:
    """One incoming file; it is removed at the end unless `keep` is set."""

    def __init__(self, path: str, mode: int, sync: bool) -> None:
        self.path, self._sync = path, sync
        self.keep = False
        with _translated(path):
            self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            # Whatever the umask; a number that was just opened takes it.
            os.fchmod(self._fd, mode)

    def write(self, data: memoryview) -> None:
        """Append bytes."""
        with _translated(self.path):
            while data:
                data = data[os.write(self._fd, data) :]

    def finish(self) -> None:
        """Sync by policy and close; on a network file system a full disk shows only here."""
        with _translated(self.path):
            try:
                if self._sync:
                    os.fsync(self._fd)
            finally:
                fd, self._fd = self._fd, -1
                os.close(fd)

    def header(self, most: int) -> CallHeader:
        """The header of the finished bundle, of at most so many bytes. Raises BundleError."""
        with _translated(self.path):
            return read_header(self.path, most=most)

    def __enter__(self) -> Part:
        return self

    def __exit__(self, *_: object) -> None:
        if self._fd >= 0:
            with contextlib.suppress(OSError):
                os.close(self._fd)
            self._fd = -1
        if not self.keep:
            with contextlib.suppress(OSError):
                files.unlink(self.path)
