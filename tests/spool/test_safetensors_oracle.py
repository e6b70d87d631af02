"""The safetensors library as the oracle: it reads our files, and we read files that it wrote."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import safetensors
import safetensors.torch
import torch
import xxhash
from spool_bundles import call

from spool import dump_bundle, load_bundle
from spool.storage import NAME_OF

DTYPES = pytest.mark.parametrize("dtype", NAME_OF, ids=NAME_OF.values())


def sample(dtype: torch.dtype) -> torch.Tensor:
    """Twelve elements of any bits."""
    bits = torch.arange(12 * dtype.itemsize, dtype=torch.uint8) * 7
    return (bits & 1 if dtype is torch.bool else bits).view(dtype).view(3, 4)


def bits(tensor: torch.Tensor) -> list[int]:
    return tensor.contiguous().view(-1).view(torch.uint8).tolist()


@DTYPES
def test_the_library_reads_our_files(dtype: torch.dtype, tmp_path: Path) -> None:
    value, odd = sample(dtype), torch.arange(3, dtype=torch.uint8)
    path = tmp_path / "x.safetensors"
    path.write_bytes(dump_bundle(call(0, odd, value, value[:0])))
    found = safetensors.torch.load_file(path)
    assert [found[name].shape for name in "012"] == [odd.shape, value.shape, value[:0].shape]
    assert found["1"].dtype is dtype
    assert bits(found["1"]) == bits(value)
    with safetensors.safe_open(path, framework="pt") as opened:
        header = json.loads(opened.metadata()["spool_check"])
    assert header["api"] == "Torch.add.0"


@DTYPES
def test_we_read_the_librarys_files(dtype: torch.dtype, tmp_path: Path) -> None:
    """Another implementer may write bundles with the library alone: names, order and padding are the library's then."""
    tensors = {"b": sample(dtype), "a": torch.arange(5, dtype=torch.uint8), "c": sample(dtype)[:0].clone()}
    path = tmp_path / "x.safetensors"
    safetensors.torch.save_file(tensors, path)
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = {
        "format": 1, "session": "s1", "rank": 0, "step": 0, "seq": 0, "api": "Torch.add.0", "phase": "forward",
        "args": {"$tuple": [{"$tensor": "b"}, {"$tensor": "a"}, {"$tensor": "c"}]}, "kwargs": {"$dict": []},
        "result": None, "mutated": {"$dict": []}, "context": {}, "producer": {}, "time": 0,
        "digest": f"xxh3_64:{xxhash.xxh3_64_hexdigest(data[8 + size:])}",
    }  # fmt: skip
    safetensors.torch.save_file(tensors, path, metadata={"spool_check": json.dumps(header)})
    bundle = load_bundle(path.read_bytes())
    for back, tensor in zip(bundle.args, (tensors["b"], tensors["a"], tensors["c"]), strict=True):
        assert back.dtype is tensor.dtype
        assert back.shape == tensor.shape
        assert bits(back) == bits(tensor)


def test_data_are_aligned_for_every_reader() -> None:
    """Falling element sizes from an 8-byte boundary on: no tensor starts off its own alignment."""
    data = dump_bundle(call(0, torch.ones(3, dtype=torch.uint8), torch.ones(3), torch.ones(3, dtype=torch.float64)))
    size = int.from_bytes(data[:8], "little")
    assert size % 8 == 0
    table = json.loads(data[8 : 8 + size])
    for name, width in (("0", 1), ("1", 4), ("2", 8)):
        assert table[name]["data_offsets"][0] % width == 0
