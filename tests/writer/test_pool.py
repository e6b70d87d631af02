"""Memory of copies is used again as soon as nobody holds it, and not a moment earlier."""

from __future__ import annotations

import pytest
import torch

from spool_writer.pool import Pool

KINDS = {
    "contiguous": torch.randn(40, 50),
    "transposed": torch.randn(40, 50).t(),
    "channels last": torch.randn(2, 3, 8, 9).to(memory_format=torch.channels_last),
    "with gaps": torch.randn(40, 50)[::2, 3:],
    "bfloat16": torch.randn(64).bfloat16(),
    "bool": torch.randn(64) > 0,
    "complex": torch.randn(64, dtype=torch.complex64),
    "one element": torch.randn(()),
}


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_copy_is_equal_and_keeps_its_layout(kind: str) -> None:
    source = KINDS[kind]
    copy = Pool(2**20).empty_like(source).copy_(source)
    assert torch.equal(copy, source)
    assert copy.dtype is source.dtype
    assert copy.data_ptr() % 64 == 0
    if kind != "with gaps":
        assert copy.stride() == source.stride()


def test_memory_comes_back_when_the_last_holder_lets_go() -> None:
    pool = Pool(2**20)
    first = pool.empty_like(torch.empty(1000))
    address = first.data_ptr()
    part = memoryview(first[10:].numpy())
    del first
    # A view of a view still shows it: a bundle that is being written, say.
    assert pool.empty_like(torch.empty(1000)).data_ptr() != address
    del part
    taken = {pool.empty_like(torch.empty(1000)).data_ptr() for _ in range(3)}
    assert address in taken


def test_idle_memory_is_bounded() -> None:
    pool = Pool(limit=10_000)
    held = [pool.empty_like(torch.empty(1000)) for _ in range(5)]
    held.clear()
    assert pool._idle == 8000
    assert sum(map(len, pool._free.values())) == 2
