"""What must be known before a call runs: the values that it may overwrite, and the state that it runs in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from .identity import surroundings
from .mutation import Argument, written_arguments
from .pool import Pool
from .snapshot import Snapshots, storages, unseen, versions


class Before:
    """What must be known before a call runs: the values that it may overwrite, and the state that it runs in."""

    def __init__(
        self,
        pool: Pool,
        phase: str,
        func: Callable[..., Any],
        base: str,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
    ) -> None:
        self.context = surroundings()
        self.written = written_arguments(func, base, args, kwargs)
        self.values: dict[Argument, Any] = {}
        self._versions: list[tuple[torch.Tensor, int]] = []
        self.nbytes = 0
        self.events: tuple[Any, ...] = ()
        # An operator's schema says what it writes; versions are counted above the dispatcher.
        counted = phase == "forward"
        if not (self.written or counted):
            return
        with unseen():
            if self.written:
                given: dict[Argument, Any] = dict(enumerate(args))
                given.update(kwargs)
                snapshots = Snapshots(pool, grad=counted)
                memory = {storage for place in self.written for storage in storages(given[place])}
                for place, value in given.items():
                    # What shares memory with a written argument changes with it.
                    if place in self.written or not memory.isdisjoint(storages(value)):
                        self.values[place] = snapshots.of(value)
                self.nbytes, self.events = snapshots.nbytes, snapshots.events()
                if counted:
                    versions([value for place, value in given.items() if place not in self.values], self._versions)
            else:
                versions(args, self._versions)
                if kwargs:
                    versions(kwargs.values(), self._versions)

    def surprise(self) -> str | None:
        """Why the call cannot be replayed after all: it wrote to an argument that nothing announced."""
        for tensor, version in self._versions:
            if tensor._version != version:
                return f"the call wrote to an argument of shape {tuple(tensor.shape)} that its signature does not name"
        return None
