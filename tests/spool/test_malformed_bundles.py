"""Files that are no good bundle: each is refused with the error that names what is wrong, and none by another exception."""

from __future__ import annotations

import contextlib
import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from spool_bundles import call

from spool import (
    Bundle,
    BundleCorrupt,
    BundleError,
    BundleMalformed,
    BundleVersion,
    SpoolError,
    dump_bundle,
    load_bundle,
    read_bundle,
    read_header,
)

GOOD = dump_bundle(call(0, torch.arange(4.0), torch.arange(3)))


def parts(data: bytes = GOOD) -> tuple[dict[str, Any], bytes]:
    size = int.from_bytes(data[:8], "little")
    return json.loads(data[8 : 8 + size]), data[8 + size :]


def joined(table: Any, data: bytes) -> bytes:
    raw = table if isinstance(table, bytes) else json.dumps(table).encode()
    return struct.pack("<Q", len(raw)) + raw + data


def with_table(change: Callable[[dict[str, Any]], Any]) -> bytes:
    table, data = parts()
    change(table)
    return joined(table, data)


def with_header(**fields: Any) -> bytes:
    table, data = parts()
    header = {**json.loads(table["__metadata__"]["spool_check"]), **fields}
    table["__metadata__"]["spool_check"] = json.dumps({k: v for k, v in header.items() if v != "delete"})
    return joined(table, data)


def entry(name: str, **fields: Any) -> Callable[[dict[str, Any]], None]:
    return lambda table: table[name].update(fields)


def zeroed() -> bytes:
    return GOOD[:-20] + bytes(20)


def duplicate_keys() -> bytes:
    table, data = parts()
    raw = json.dumps(table).encode()
    return joined(raw[:-1] + b', "0": {"dtype": "F32", "shape": [4], "data_offsets": [24, 40]}}', data)


MALFORMED = {
    "empty": (b"", "0 bytes are too short"),
    "seven bytes": (b"1234567", "7 bytes are too short"),
    "1 MiB of zeros": (bytes(2**20), "no JSON"),
    "text": (b"hello, this is no bundle at all", "the header claims"),
    "huge header length": (struct.pack("<Q", 2**63) + b"{}", "the header claims"),
    "header length beyond the format": (struct.pack("<Q", 100_000_001) + b"{}", "the header claims"),
    "header cut": (GOOD[:100], "the header claims"),
    "trailing byte": (GOOD + b"\0", "1 bytes after the last tensor"),
    "bad utf-8": (joined(b'{"a\xff": 1}', b""), "no JSON"),
    "header is a list": (joined([], b""), "no JSON object"),
    "header with NaN": (joined(b'{"a": NaN}', b""), "NaN"),
    "deep header": (joined(b'{"a":' * 100_000 + b"1" + b"}" * 100_000, b""), "no JSON"),
    "endless number": (joined(b'{"a":' + b"9" * 5000 + b"}", b""), "no JSON"),
    "duplicate keys": (duplicate_keys(), "a key twice"),
    "no metadata": (joined({}, b""), "no bundle of spool-check"),
    "metadata is a list": (joined({"__metadata__": []}, b""), "no bundle of spool-check"),
    "metadata of others": (joined({"__metadata__": {"format": "pt"}}, b""), "no bundle of spool-check"),
    "inner header no text": (joined({"__metadata__": {"spool_check": 5}}, b""), "no bundle of spool-check"),
    "inner header no json": (joined({"__metadata__": {"spool_check": "{"}}, b""), "no JSON"),
    "inner header a list": (joined({"__metadata__": {"spool_check": "[]"}}, b""), "no JSON object"),
    "inner surrogate": (joined(b'{"__metadata__": {"spool_check": "\\ud800"}}', b""), "no JSON"),
    "hole": (with_table(entry("0", data_offsets=[32, 48])), "do not fit"),
    "overlap": (with_table(entry("0", data_offsets=[20, 36])), "do not fit"),
    "reversed": (with_table(entry("0", data_offsets=[40, 24])), "do not fit"),
    "negative": (with_table(entry("0", data_offsets=[-1, 15])), "no offsets"),
    "offsets of three": (with_table(entry("0", data_offsets=[0, 1, 2])), "no offsets"),
    "offsets of bool": (with_table(entry("0", data_offsets=[False, True])), "no offsets"),
    "offsets missing": (with_table(lambda table: table["0"].pop("data_offsets")), "no offsets"),
    "entry a number": (with_table(lambda table: table.update({"0": 5})), "no offsets"),
    "shape of floats": (with_table(entry("0", shape=[4.0])), "no shape"),
    "shape negative": (with_table(entry("0", shape=[-4, -1])), "no shape"),
    "shape too long": (with_table(entry("0", shape=[1] * 65)), "no shape"),
    "shape that overflows": (with_table(entry("0", shape=[2**62, 2**62])), "do not fit"),
    "shape of nothing, large": (with_table(entry("0", shape=[0, 2**62, 2**62], data_offsets=[24, 24])), ""),
    "shape too small": (with_table(entry("0", shape=[3])), "do not fit"),
    "unknown dtype": (with_table(entry("0", dtype="F99")), "'F99' is unknown"),
    "dtype a list": (with_table(entry("0", dtype=[1])), "unknown"),
    "odd F4": (with_table(entry("0", dtype="F4", shape=[31])), "F4"),
    "field missing": (with_header(args="delete", rank="delete"), "lacks args, rank"),
    "rank text": (with_header(rank="0"), "rank is '0'"),
    "rank true": (with_header(rank=True), "rank is True"),
    "step negative": (with_header(step=-1), "step is -1"),
    "seq float": (with_header(seq=1.5), "seq is 1.5"),
    "api path": (with_header(api="../../x"), "api is '../../x'"),
    "api dunder only": (with_header(api="__import__"), "api is"),
    "api long": (with_header(api="Torch." + "a" * 200 + ".0"), "api is"),
    "phase": (with_header(phase="sideways"), "phase is 'sideways'"),
    "session path": (with_header(session="../x"), "session is '../x'"),
    "session empty": (with_header(session=""), "session is ''"),
    "time text": (with_header(time="now"), "time is 'now'"),
    "origin number": (with_header(origin=5), "origin is 5"),
    "skip number": (with_header(skip=5), "skip is 5"),
    "context list": (with_header(context=[]), "context is []"),
    "producer null": (with_header(producer=None), "producer is None"),
}  # fmt: skip


@pytest.mark.parametrize(("data", "message"), MALFORMED.values(), ids=MALFORMED.keys())
def test_malformed(data: bytes, message: str) -> None:
    with pytest.raises(BundleMalformed) as caught:
        load_bundle(data)
    assert message in str(caught.value)


VERSIONS = {
    "newer": (with_header(format=2, producer={"version": "9.9"}), "bundle format 2, written by spool-check 9.9"),
    "newer with other fields": (with_header(format=2, args="delete", producer=[]), "written by spool-check unknown"),
    "text": (with_header(format="1"), "bundle format '1'"),
    "true": (with_header(format=True), "bundle format True"),
    "missing": (with_header(format="delete"), "bundle format None"),
}


@pytest.mark.parametrize(("data", "message"), VERSIONS.values(), ids=VERSIONS.keys())
def test_other_formats_are_refused_by_number_and_writer(data: bytes, message: str) -> None:
    with pytest.raises(BundleVersion) as caught:
        load_bundle(data)
    assert message in str(caught.value)


CORRUPT = {
    "zeroed tail": zeroed(),
    "one bit": GOOD[:-1] + bytes([GOOD[-1] ^ 1]),
    "wrong digest": with_header(digest="xxh3_64:0000000000000000"),
    "digest of another kind": with_header(digest="md5:00"),
    "digest missing": with_header(digest="delete"),
    "digest null": with_header(digest=None),
}


@pytest.mark.parametrize("data", CORRUPT.values(), ids=CORRUPT.keys())
def test_damaged_data_are_seen_by_the_digest(data: bytes) -> None:
    with pytest.raises(BundleCorrupt, match="digest"):
        load_bundle(data)
    assert load_bundle(data, verify=False).header.seq == 0


CUT = {"one byte": GOOD[:-1], "all data": joined(*parts())[: -len(parts()[1])]}


@pytest.mark.parametrize("verify", [True, False])
@pytest.mark.parametrize("data", CUT.values(), ids=CUT.keys())
def test_a_file_that_was_cut_off_is_corrupt(data: bytes, verify: bool) -> None:
    with pytest.raises(BundleCorrupt, match="after the file: it was cut off"):
        load_bundle(data, verify=verify)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_good_bytes_of_any_kind(kind: Any) -> None:
    assert load_bundle(kind(GOOD)).args[0].tolist() == [0.0, 1.0, 2.0, 3.0]


def test_unknown_fields_pass() -> None:
    assert load_bundle(with_header(colour="red")).header.seq == 0


@settings(max_examples=400, deadline=None)
@given(st.integers(0, len(GOOD) - 1), st.integers(0, 255), st.integers(0, len(GOOD)))
def test_a_changed_byte_or_a_cut_never_escapes_the_error_tree(place: int, byte: int, cut: int) -> None:
    changed = bytearray(GOOD)
    changed[place] = byte
    for data in (bytes(changed), GOOD[:cut], bytes(changed[:cut])):
        try:
            bundle = load_bundle(data)
            _ = bundle.args, bundle.kwargs, bundle.result, bundle.mutated
        except BundleError:
            pass


@settings(max_examples=200, deadline=None)
@given(st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text(max_size=8)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(
            ["$tensor", "$tuple", "$dict", "$size", "$slice", "$numpy", "$set", "$namedtuple", "fields", "items", "shape",
             "stride", "dtype", "$return_type", "hex", "$complex", "$bytes", "$int", "$range", "$device", "$dtype"]
        ), inner, max_size=3),
    ),
    max_leaves=12,
))  # fmt: skip
def test_any_json_as_arguments_never_escapes_the_error_tree(tree: Any) -> None:
    bundle = load_bundle(with_header(args={"$tuple": [tree]}))
    with contextlib.suppress(BundleError):
        _ = bundle.args


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    for data, _ in MALFORMED.values():
        path.write_bytes(data)
        with pytest.raises(BundleMalformed):
            read_bundle(path)
    path.write_bytes(GOOD)
    assert read_bundle(path).args[0].tolist() == [0.0, 1.0, 2.0, 3.0]
    path.write_bytes(zeroed())
    assert read_header(path).api == "Torch.add.0"


@pytest.mark.parametrize(
    "name", ["empty", "seven bytes", "1 MiB of zeros", "huge header length", "header cut", "bad utf-8"]
)
def test_headers_alone_are_bounded_too(name: str, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(MALFORMED[name][0])
    with pytest.raises(BundleMalformed):
        read_header(tmp_path / "x")


@pytest.mark.parametrize("part", ["args", "kwargs", "result", "mutated"])
def test_a_tree_of_the_wrong_kind(part: str) -> None:
    bundle: Bundle = load_bundle(with_header(**{part: {"$tuple": [{"$nope": 1}]}}))
    with pytest.raises(BundleMalformed):
        getattr(bundle, part)


def test_the_bundle_errors_are_spool_errors() -> None:
    assert issubclass(BundleError, SpoolError)
    assert BundleError.exit_code == 3
