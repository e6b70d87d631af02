"""Faults at the spool's one seam for file calls: any call fails, or the process dies in it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from spool import files

CALLS = (
    "names", "make_folder", "rename", "unlink", "remove_folder", "inode", "read", "free", "write_new", "write_buffers",
    "replace_small", "overwrite", "changed", "size",
)  # fmt: skip


class Died(BaseException):
    """The process ended here: nothing that it would have done next happens."""


@dataclass
class Faults:
    """Counts the file calls of the main thread, and has one of them go wrong."""

    at: int = -1
    error: OSError | None = None
    after: bool = False
    seen: list[str] = field(default_factory=list)
    dead: bool = False

    @property
    def hit(self) -> str | None:
        """The call that went wrong; None when there were fewer calls than that."""
        return self.seen[self.at] if 0 <= self.at < len(self.seen) else None

    @property
    def in_sequence(self) -> bool:
        """Whether a lost reply was asked of a sequence of ours, not of a system call: one of the calls in it stands for that."""
        return self.after and self.error is not None and self.hit in ("write_new", "replace_small")

    def wrap(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def faulty(*args: Any, **kwargs: Any) -> Any:
            if threading.current_thread() is not threading.main_thread():
                if self.dead:
                    raise OSError(5, "the process is dead")
                return call(*args, **kwargs)
            if self.dead:
                raise Died
            self.seen.append(name)
            if len(self.seen) - 1 != self.at:
                return call(*args, **kwargs)
            if self.after:
                call(*args, **kwargs)
            if self.error is None:
                self.dead = True
                raise Died
            raise self.error

        return faulty


@contextmanager
def faults(monkeypatch: pytest.MonkeyPatch, **settings: Any) -> Iterator[Faults]:
    """The seam replaced inside the block."""
    found = Faults(**settings)
    with monkeypatch.context() as patch:
        for name in CALLS:
            patch.setattr(files, name, found.wrap(name, getattr(files, name)))
        yield found
