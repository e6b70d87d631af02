"""Bundles as bytes: a safetensors file whose data are written straight from tensor memory.

Layout: header length (8 bytes, little-endian), JSON header padded with spaces to a multiple of 8, data. Tensors stand in
order of falling alignment, so that each is aligned when the data are. The digest in the header covers all data.

The library's own writer is not used: it copies, publishes before it closes, ignores errors of close, and makes files that only
their owner can read; its reader either copies twice or maps a file that another host may truncate.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xxhash
from torch import Tensor

from .bundle import FORMAT, Bundle, CallHeader, check_header
from .errors import BundleCorrupt, BundleMalformed, BundleVersion
from .storage import DTYPE_OF, MAX_DIM, NAME_OF, PACKED, PAIRS

METADATA_KEY = "spool_check"
# A cache line.
_ALIGNMENT = 64
# The limit of the safetensors format.
MAX_HEADER = 100_000_000
_FIELDS = {field.name for field in dataclasses.fields(CallHeader)}
_REQUIRED = _FIELDS - {"origin", "skip", "format", "digest"}
_IOV_MAX = min(os.sysconf("SC_IOV_MAX"), 1024)
Buffer = bytes | memoryview
# Made once: json.dumps with settings makes one a call.
_to_json = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
# Types that numpy has too: their memory is reached in fewer steps.
_NUMPY_HAS = frozenset(
    {torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64}
    | {torch.float16, torch.float32, torch.float64, torch.complex64}
)


def encode_bundle(bundle: Bundle) -> list[Buffer]:
    """The file as a list of buffers: the header, then views of the tensors' own memory."""
    order = sorted(bundle.tensors.items(), key=lambda item: -_alignment(item[1]))
    buffers = [_bytes_of(tensor) for _, tensor in order]
    digest = xxhash.xxh3_64()
    table: dict[str, Any] = {}
    end = 0
    for (name, tensor), buffer in zip(order, buffers, strict=True):
        digest.update(buffer)
        table[name] = {
            "dtype": NAME_OF[tensor.dtype],
            "shape": _stored_shape(tensor),
            "data_offsets": [end, end + len(buffer)],
        }
        end += len(buffer)
    header = {**vars(bundle.header), "digest": f"xxh3_64:{digest.hexdigest()}"}
    try:
        raw = _to_json({"__metadata__": {METADATA_KEY: _to_json(header)}, **table}).encode("utf-8")
    except (TypeError, ValueError) as error:
        raise BundleMalformed(f"context or producer of {bundle.header.api} is no JSON: {error}") from error
    raw += b" " * (-len(raw) % 8)
    if len(raw) > MAX_HEADER:
        raise BundleMalformed(
            f"the header of {bundle.header.api} takes {len(raw)} bytes; safetensors allows {MAX_HEADER}"
        )
    return [len(raw).to_bytes(8, "little") + raw, *(buffer for buffer in buffers if len(buffer))]


def write_buffers(fd: int, buffers: Sequence[Buffer]) -> int:
    """Write all buffers to a file descriptor; returns the number of bytes. Raises OSError as the system does."""
    pending = [
        memoryview(buffer).cast("B") if not isinstance(buffer, bytes) else memoryview(buffer) for buffer in buffers
    ]
    total = 0
    first = 0
    while first < len(pending):
        written = os.writev(fd, pending[first : first + _IOV_MAX])
        total += written
        while first < len(pending) and written >= len(pending[first]):
            written -= len(pending[first])
            first += 1
        if written:
            pending[first] = pending[first][written:]
    return total


def dump_bundle(bundle: Bundle) -> bytes:
    """The file's bytes; for small bundles and tests, since it copies."""
    return b"".join(encode_bundle(bundle))


def load_bundle(data: bytes | bytearray | memoryview, *, verify: bool = True) -> Bundle:
    """Read a bundle from its bytes; tensors share their memory with `data`, which is copied if it is read-only or not aligned.

    Raises BundleMalformed, BundleVersion (a format that this version does not read) and BundleCorrupt (wrong digest, cut off).
    """
    view = memoryview(data).cast("B")
    start = _data_start(view[:8], len(view))
    if view.readonly or np.frombuffer(view, np.uint8).ctypes.data + start & 15:
        copy = _aligned_room(len(view), start)
        copy[:] = view
        view = copy
    header, table, start = _parse(view)
    tensors = dict(_tensors(table, view, start))
    if verify:
        _verify(header, view[start:])
    return Bundle(header, tensors)


def read_bundle(path: str | os.PathLike[str], *, verify: bool = True) -> Bundle:
    """Read a bundle's file with one read into one buffer: a mapping could change, or vanish, under the reader."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        size = os.fstat(fd).st_size
        view, done = _aligned_room(size, _data_start(os.pread(fd, 8, 0), size)), 0
        while done < size:
            count = os.preadv(fd, [view[done:]], done)
            if count == 0:
                raise BundleCorrupt(f"{path}: the file ends after {done} of {size} bytes")
            done += count
    finally:
        os.close(fd)
    return load_bundle(view, verify=verify)


def read_header(path: str | os.PathLike[str], *, most: int = MAX_HEADER) -> CallHeader:
    """Read the header alone, of at most so many bytes: no data, no digest check."""
    return read_front(path, most=most)[0]


def read_front(path: str | os.PathLike[str], *, most: int = MAX_HEADER) -> tuple[CallHeader, Mapping[str, Any]]:
    """Read the header and the table of tensors, of at most so many bytes: no data, no digest check."""
    with Path(path).open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        if size > min(most, os.fstat(file.fileno()).st_size - 8):
            raise BundleMalformed(f"{path}: the header claims {size} bytes, more than the file holds or {most} allow")
        table = _json(file.read(size))
    return _header(table), {name: entry for name, entry in table.items() if name != "__metadata__"}


def _data_start(first: bytes | memoryview, size: int) -> int:
    return min(8 + int.from_bytes(first, "little"), size)


def _aligned_room(size: int, start: int) -> memoryview:
    """Room for a file whose data, from `start` on, must be aligned: kernels crash on complex numbers that are not."""
    room = np.empty(size + _ALIGNMENT, np.uint8)
    first = -(room.ctypes.data + start) % _ALIGNMENT
    return memoryview(room)[first : first + size]  # type: ignore[arg-type]


def _alignment(tensor: Tensor) -> int:
    """Pairs of reals may be complex numbers, which want twice the alignment."""
    return tensor.element_size() * (2 if tensor.shape[-1:] == (2,) and tensor.dtype in PAIRS.values() else 1)


def _stored_shape(tensor: Tensor) -> list[int]:
    shape = list(tensor.shape)
    return [*shape[:-1], 2 * shape[-1]] if tensor.dtype is PACKED else shape


def _bytes_of(tensor: Tensor) -> memoryview:
    if tensor.numel() == 0:
        return memoryview(b"")
    if tensor.dtype in _NUMPY_HAS and not tensor.requires_grad and not tensor.is_conj() and not tensor.is_neg():
        return memoryview(tensor.numpy().reshape(-1).view(np.uint8))  # type: ignore[arg-type]
    # Not reshape: a single element counts as contiguous with stride 0, which no other type can view.
    flat = tensor.detach().as_strided((tensor.numel(),), (1,))
    return memoryview(flat.view(torch.uint8).numpy())  # type: ignore[arg-type]


def _json(raw: bytes) -> Mapping[str, Any]:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise BundleMalformed("the header has a key twice")
        return found

    def refuse(constant: str) -> Any:
        raise BundleMalformed(f"the header holds {constant}, which is no JSON")

    try:
        value = json.loads(raw.decode("utf-8"), object_pairs_hook=unique, parse_constant=refuse)
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError, ValueError) as error:
        raise BundleMalformed(f"the header is no JSON: {error}") from error
    if not isinstance(value, dict):
        raise BundleMalformed("the header is no JSON object")
    return value


def _parse(view: memoryview) -> tuple[CallHeader, Mapping[str, Any], int]:
    if len(view) < 8:
        raise BundleMalformed(f"{len(view)} bytes are too short for a safetensors file")
    size = int.from_bytes(view[:8], "little")
    if size > min(MAX_HEADER, len(view) - 8):
        raise BundleMalformed(f"the header claims {size} bytes, the file has {len(view) - 8} after its length")
    table = _json(bytes(view[8 : 8 + size]))
    return _header(table), {name: entry for name, entry in table.items() if name != "__metadata__"}, 8 + size


def _header(table: Mapping[str, Any]) -> CallHeader:
    metadata = table.get("__metadata__")
    text = metadata.get(METADATA_KEY) if isinstance(metadata, dict) else None
    if not isinstance(text, str):
        raise BundleMalformed(f"no {METADATA_KEY!r} in the metadata: a safetensors file, but no bundle of spool-check")
    fields = _json(text.encode("utf-8", "surrogatepass"))
    version = fields.get("format")
    if version != FORMAT or type(version) is not int:
        producer = fields.get("producer")
        writer = producer.get("version", "unknown") if isinstance(producer, dict) else "unknown"
        raise BundleVersion(
            f"bundle format {version!r}, written by spool-check {writer}; this version reads format {FORMAT}. "
            "Judge it with the version that wrote it or a newer one."
        )
    missing = _REQUIRED - fields.keys()
    if missing:
        raise BundleMalformed(f"the bundle's header lacks {', '.join(sorted(missing))}")
    # Unknown keys pass: a later version may add some without a new format.
    return check_header(CallHeader(**{name: value for name, value in fields.items() if name in _FIELDS}))


def _verify(header: CallHeader, data: memoryview) -> None:
    found = f"xxh3_64:{xxhash.xxh3_64_hexdigest(data)}"
    if header.digest != found:
        raise BundleCorrupt(f"the data have digest {found}, the header says {header.digest!r}: the file was damaged")


def _tensors(table: Mapping[str, Any], view: memoryview, start: int) -> Iterator[tuple[str, Tensor]]:
    end = 0
    entries = sorted(table.items(), key=lambda item: _offsets(*item))
    for name, entry in entries:
        first, last = _offsets(name, entry)
        dtype, shape = DTYPE_OF.get(str(entry.get("dtype"))), entry.get("shape")
        if dtype is None:
            raise BundleMalformed(
                f"tensor {name!r}: dtype {entry.get('dtype')!r} is unknown to torch {torch.__version__}"
            )
        if not isinstance(shape, list) or len(shape) > MAX_DIM or not all(type(n) is int and n >= 0 for n in shape):
            raise BundleMalformed(f"tensor {name!r}: {shape!r} is no shape")
        if entry["dtype"] == NAME_OF.get(PACKED):
            if not shape or shape[-1] % 2:
                raise BundleMalformed(f"tensor {name!r}: {shape!r} is no shape of F4, two of which share a byte")
            shape = [*shape[:-1], shape[-1] // 2]
        count = math.prod(shape)
        if first != end or last - first != count * dtype.itemsize:
            raise BundleMalformed(
                f"tensor {name!r}: bytes {first} to {last} do not fit {dtype} {shape} after byte {end}"
            )
        end = last
        if start + last > len(view):
            raise BundleCorrupt(f"tensor {name!r} ends {start + last - len(view)} bytes after the file: it was cut off")
        yield name, _tensor(view[start + first : start + last], dtype, shape)
    if start + end != len(view):
        raise BundleMalformed(f"{len(view) - start - end} bytes after the last tensor")


def _offsets(name: str, entry: Any) -> tuple[int, int]:
    offsets = entry.get("data_offsets") if isinstance(entry, dict) else None
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(type(n) is int and n >= 0 for n in offsets):
        raise BundleMalformed(f"tensor {name!r}: {offsets!r} are no offsets")
    return offsets[0], offsets[1]


def _tensor(data: memoryview, dtype: torch.dtype, shape: list[int]) -> Tensor:
    try:
        if not len(data):
            return torch.empty(shape, dtype=dtype)
        plain = torch.frombuffer(data, dtype=torch.uint8)
        # Other writers may have ordered the tensors otherwise.
        return (plain.clone() if plain.data_ptr() % dtype.itemsize else plain).view(dtype).view(shape)
    except RuntimeError as error:
        raise BundleMalformed(f"no tensor of shape {shape} can be made: {error}") from error
