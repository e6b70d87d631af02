"""Host memory for copies, used again: fresh memory costs more in page faults than the copy that goes into it.

A block comes back by itself when the last tensor over it is gone, whoever held it: the queue, a bundle being written, or a spool
that keeps its bundles in memory.
"""

from __future__ import annotations

import threading
import weakref
from collections import defaultdict
from typing import Any

import numpy as np
import torch
from torch import Tensor

# Below this the allocator keeps memory at hand itself, and quicker than Python could.
SMALLEST = 512 * 2**10
_ALIGNMENT = 64


class _Block(np.ndarray[Any, Any]):
    """A view of pooled memory whose end is noticed."""


class Pool:
    """Blocks of memory by their exact sizes, which a training asks for again and again; safe to use from several threads.

    At most `limit` bytes lie idle; a block for which there is no room goes back to the system.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._idle = 0
        self._free: defaultdict[int, list[np.ndarray[Any, Any]]] = defaultdict(list)
        # Re-entrant: a block may come back while this thread is here, when the collector runs.
        self._lock = threading.RLock()

    def empty_like(self, tensor: Tensor) -> Tensor:
        """Room on the host for a copy of `tensor`: its dtype and shape, and its strides where its memory has no gaps."""
        size = tensor.numel() * tensor.element_size()
        with self._lock:
            blocks = self._free[size]
            memory = blocks.pop() if blocks else None
            if memory is not None:
                self._idle -= size
        if memory is None:
            whole = np.empty(size + _ALIGNMENT, np.uint8)
            start = -whole.ctypes.data % _ALIGNMENT
            memory = whole[start : start + size]
        block = memory.view(_Block)
        weakref.finalize(block, self._give_back, memory).atexit = False
        room = torch.from_numpy(block).view(tensor.dtype)
        return room.as_strided(tensor.shape, tensor.stride()) if _is_dense(tensor) else room.view(tensor.shape)

    def _give_back(self, memory: np.ndarray[Any, Any]) -> None:
        with self._lock:
            if self._idle + memory.nbytes <= self._limit:
                self._idle += memory.nbytes
                self._free[memory.nbytes].append(memory)


def _is_dense(tensor: Tensor) -> bool:
    """Whether the elements lie in one piece of memory, each once, in the order of some permutation of the dimensions."""
    if tensor.is_contiguous():
        return True
    stride = tensor.stride()
    return tensor.permute(sorted(range(tensor.dim()), key=lambda dim: -stride[dim])).is_contiguous()
