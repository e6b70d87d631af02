"""Every kind of Python value that a call may hold: what comes back, and what is refused with its place."""

from __future__ import annotations

import collections
import enum
import math
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from spool_bundles import call

from spool import Bundle, BundleMalformed, NotRepresentable, dump_bundle, load_bundle
from spool.storage import TensorSink
from spool.values import decode_tree, encode_tree


class Point(NamedTuple):
    x: int
    y: Any


class Colour(enum.IntEnum):
    RED = 3


class Word(str, enum.Enum):
    SUM = "sum"


class Plain(enum.Enum):
    A = 1


def through(value: Any) -> Any:
    """`value` after a bundle's bytes."""
    return load_bundle(dump_bundle(call(0, value))).args[0]


SAME = {
    "none": None,
    "true": True,
    "false": False,
    "zero": 0,
    "int64 least": -(2**63),
    "uint64 most": 2**64 - 1,
    "large int": 10**5000,
    "large negative int": -(2**200),
    "float": 0.1,
    "negative zero": -0.0,
    "smallest float": 5e-324,
    "inf": math.inf,
    "minus inf": -math.inf,
    "str": "naïve ☃ \x00 \"quoted\" \\ \n",
    "str like a tag": "$tensor",
    "empty tuple": (),
    "nested": ([1, (2, [3])], {"a": {"b": (None,)}}),
    "dict like a tag": {"$tensor": "0", "$dict": []},
    "dict of odd keys": {1: "a", (2, 3): "b", None: "c", True and "t": "d", 2.5: "e", torch.float32: "f"},
    "complex": complex(1.5, -math.inf),
    "bytes": bytes(range(256)),
    "size": torch.Size([2, 0, 3]),
    "dtype": torch.bfloat16,
    "dtype fp8": torch.float8_e4m3fn,
    "device": torch.device("cuda", 3),
    "layout": torch.strided,
    "memory format": torch.channels_last,
    "ellipsis": ...,
    "range": range(5, -3, -2),
    "slice": slice(None, 3, -1),
    "slices in a tuple": (slice(1, 2), ..., None, 0),
    "set": {1, 2, "a"},
    "frozenset": frozenset({1.5}),
    "numpy float32": np.float32(1.1),
    "numpy int8": np.int8(-3),
    "numpy bool": np.True_,
    "numpy complex": np.complex64(1 + 2j),
    "numpy float64": np.float64(0.1),
    "numpy big endian": np.frombuffer(b"\x01\x02", dtype=">u2")[0],
}  # fmt: skip


@pytest.mark.parametrize("value", SAME.values(), ids=SAME.keys())
def test_comes_back_the_same(value: Any) -> None:
    back = through(value)
    assert type(back) is type(value)
    assert back == value
    assert isinstance(value, (set, int)) or repr(back) == repr(value)


def test_nan_comes_back() -> None:
    assert math.isnan(through(math.nan))
    assert math.isnan(through(complex(math.nan, 1)).real)
    assert np.isnan(through(np.float16("nan")))


def test_numpy_scalars_keep_their_bits() -> None:
    value = np.array([0x7FC12345], dtype=np.uint32).view(np.float32)[0]
    assert through(value).tobytes() == value.tobytes()


def test_named_tuples_keep_names_and_not_classes() -> None:
    back = through(Point(1, [2]))
    assert back == (1, [2])
    assert (type(back).__name__, back._fields) == ("Point", ("x", "y"))
    assert type(back) is not Point


def test_return_types_come_back() -> None:
    value = torch.max(torch.tensor([[1.0, 3.0], [2.0, 0.0]]), dim=1)
    back = through(value)
    assert type(back) is type(value)
    assert back.indices.tolist() == [1, 0]


AS_PLAIN = {
    "int enum": (Colour.RED, 3),
    "str enum": (Word.SUM, "sum"),
    "ordered dict": (collections.OrderedDict(b=1, a=2), {"b": 1, "a": 2}),
    "default dict": (collections.defaultdict(list, a=[1]), {"a": [1]}),
    "numpy str": (np.str_("a"), "a"),
}


@pytest.mark.parametrize(("value", "plain"), AS_PLAIN.values(), ids=AS_PLAIN.keys())
def test_comes_back_as_its_plain_value(value: Any, plain: Any) -> None:
    back = through(value)
    assert back == plain
    assert type(back) is type(plain)
    if isinstance(plain, dict):
        assert list(back) == list(plain)


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


REFUSED = {
    "generator": (lambda: {"rng": [torch.Generator()]}, "torch._C.Generator at args[0].rng[0]"),
    "object": (object, "object at args[0]"),
    "function": (lambda: {"a b": len}, "builtin_function_or_method at args[0]['a b']"),
    "module": (lambda: (1, torch.nn.Linear(1, 1)), "torch.nn.modules.linear.Linear at args[0][1]"),
    "enum": (lambda: Plain.A, f"{__name__}.Plain at args[0]"),
    "numpy array": (lambda: np.ones(2), "numpy.ndarray at args[0]"),
    "numpy date": (lambda: np.datetime64("2026-01-01"), "numpy.datetime64 at args[0]"),
    "lone surrogate": (lambda: "\ud800", "str with lone surrogates at args[0]"),
    "too deep": (lambda: deep(80), "list nested deeper than 64 at args[0]"),
    "sparse": (lambda: torch.eye(2).to_sparse(), "Tensor (torch.sparse_coo) at args[0]"),
    "meta": (lambda: torch.empty(2, device="meta"), "Tensor (meta) at args[0]"),
    "odd field names": (
        lambda: collections.namedtuple("N", ["a", "def"], rename=True)(1, 2),
        f"{__name__}.N at args[0]",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("make", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_is_refused_with_type_and_place(make: Any, message: str) -> None:
    with pytest.raises(NotRepresentable) as caught:
        call(0, make())
    assert str(caught.value).startswith(message)


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
def test_quantised_tensors_are_refused() -> None:
    with pytest.raises(NotRepresentable, match=r"Tensor \(quantized\) at args\[0\]"):
        call(0, torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8))


def test_a_tensor_inside_a_transform_is_refused() -> None:
    def inside(row: torch.Tensor) -> torch.Tensor:
        with pytest.raises(NotRepresentable, match="without storage"):
            call(0, row)
        return row

    torch.func.vmap(inside)(torch.ones(2, 3))


def test_tensor_subclasses_are_refused() -> None:
    class Special(torch.Tensor):
        pass

    with pytest.raises(NotRepresentable, match=r"Special at kwargs\.x"):
        call(0, kwargs={"x": torch.ones(2).as_subclass(Special)})


BAD_TREES = {
    "unknown tag": ({"$pickle": "x"}, "unknown tag $pickle; known are"),
    "no tag": ({"a": 1}, "unknown tag (none)"),
    "two tags": ({"$tuple": [], "$dict": []}, "unknown tag $tuple, $dict"),
    "tensor that is not there": ({"$tensor": "9"}, "tensor '9', which the file does not hold"),
    "tensor by number": ({"$tensor": 0}, "tensor 0, which"),
    "tensor by list": ({"$tensor": ["0"]}, "which the file does not hold"),
    "stride beyond the elements": ({"$tensor": "0", "shape": [2, 3], "stride": [3, 1]}, "leave its 4 elements"),
    "stride of other length": ({"$tensor": "0", "shape": [2], "stride": [1, 1]}, "leave its 4 elements"),
    "stride without shape": ({"$tensor": "0", "stride": [1]}, "None is no list of sizes"),
    "negative stride": ({"$tensor": "0", "shape": [2], "stride": [-1]}, "no list of sizes"),
    "huge shape of stride 0": ({"$tensor": "0", "shape": [2**47, 2**47], "stride": [0, 0]}, "$tensor"),
    "stride with bool": ({"$tensor": "0", "shape": [True], "stride": [1]}, "no list of sizes"),
    "pairs of the wrong type": ({"$tensor": "0", "dtype": "complex128"}, "does not store pairs"),
    "unknown pair type": ({"$tensor": "0", "dtype": "int128"}, "does not store pairs"),
    "tuple of text": ({"$tuple": "ab"}, "$tuple holds str, not a list"),
    "dict of singles": ({"$dict": [["a"]]}, "other than pairs"),
    "dict with a key twice": ({"$dict": [["a", 1], ["a", 2]]}, "a key twice"),
    "dict with a list as key": ({"$dict": [[[], 1]]}, "unhashable"),
    "set of lists": ({"$set": [[1]]}, "unhashable"),
    "float of text": ({"$float": "1e5"}, "not inf, -inf or nan"),
    "int of text": ({"$int": "0x"}, "$int"),
    "int of number": ({"$int": 5}, "no hexadecimal integer"),
    "complex of one": ({"$complex": ["0x1"]}, ""),
    "complex of three": ({"$complex": ["0x1", "0x1", "0x1"]}, ""),
    "complex of numbers": ({"$complex": [1.0, 2.0]}, ""),
    "bytes not base64": ({"$bytes": "?"}, "$bytes"),
    "bytes of number": ({"$bytes": 5}, "$bytes"),
    "size of floats": ({"$size": [1.5]}, "other than integers"),
    "unknown dtype": ({"$dtype": "load"}, "'load' is no dtype"),
    "dtype list": ({"$dtype": []}, "is no dtype"),
    "unknown device": ({"$device": "rm -rf"}, "'rm -rf' is no device"),
    "device by number": ({"$device": 0}, "0 is no device"),
    "device beyond all": ({"$device": "cuda:128"}, "'cuda:128' is no device"),
    "unknown layout": ({"$layout": "jagged_file"}, "is no layout"),
    "unknown memory format": ({"$memory_format": "x"}, "is no memory format"),
    "range of none": ({"$range": []}, "$range"),
    "range of step 0": ({"$range": [0, 1, 0]}, "$range"),
    "slice of four": ({"$slice": [1, 2, 3, 4]}, "$slice"),
    "return type of no name": ({"$return_type": "os", "items": []}, "no return type"),
    "return type dunder": ({"$return_type": "__loader__", "items": []}, "no return type"),
    "return type short": ({"$return_type": "max", "items": [1]}, "$return_type"),
    "named tuple with code": ({"$namedtuple": "a(): pass", "fields": [], "items": []}, "is no name"),
    "named tuple with a keyword": ({"$namedtuple": "A", "fields": ["def"], "items": [1]}, "'def' is no name"),
    "named tuple with a field twice": ({"$namedtuple": "A", "fields": ["a", "a"], "items": [1, 2]}, "$namedtuple"),
    "named tuple short": ({"$namedtuple": "A", "fields": ["a"], "items": []}, "$namedtuple"),
    "named tuple wide": ({"$namedtuple": "A", "fields": [f"a{i}" for i in range(300)], "items": []}, "at most 256"),
    "numpy object": ({"$numpy": "|O", "hex": ""}, "no number"),
    "numpy record": ({"$numpy": "i4,i4", "hex": "00" * 8}, "no number"),
    "numpy short": ({"$numpy": "<f8", "hex": "00"}, "$numpy"),
    "numpy without value": ({"$numpy": "<f8"}, "$numpy"),
    "numpy odd hex": ({"$numpy": "<f8", "hex": "0"}, "$numpy"),
    "too deep": (deep(200), "nested deeper than 128"),
}


VENDOR_DEVICES = {"npu:3": "privateuseone:3", "npu": "privateuseone", "cuda:1": "cuda:1"}


@pytest.mark.parametrize(("name", "here"), VENDOR_DEVICES.items())
def test_a_device_of_another_host_is_read_where_its_package_is_missing(name: str, here: str) -> None:
    assert decode_tree({"$device": name}, {}) == torch.device(here)


@pytest.mark.parametrize(("tree", "message"), BAD_TREES.values(), ids=BAD_TREES.keys())
def test_a_bad_tree_is_refused(tree: Any, message: str) -> None:
    with pytest.raises(BundleMalformed) as caught:
        decode_tree(tree, {"0": torch.arange(4.0)})
    assert message in str(caught.value)


def test_decoded_values_are_fresh_containers_over_shared_tensors() -> None:
    bundle = load_bundle(dump_bundle(call(0, [torch.ones(2)])))
    again = Bundle(bundle.header, bundle.tensors)
    assert bundle.args[0] is not again.args[0]
    assert bundle.args[0][0].data_ptr() == again.args[0][0].data_ptr()


def test_the_tree_is_strict_json_whatever_the_value() -> None:
    sink = TensorSink()
    assert encode_tree({"a": math.inf}, sink) == {"$dict": [["a", {"$float": "inf"}]]}
    assert encode_tree((1, [torch.ones(2)]), sink) == {"$tuple": [1, [{"$tensor": "0"}]]}


@pytest.mark.parametrize(
    "context", [{"a": object()}, {"a": math.nan}, {"a": "\ud800"}], ids=["object", "nan", "surrogate"]
)
def test_a_context_that_is_no_json_is_named(context: dict[str, Any]) -> None:
    bundle = Bundle.build(
        session="s1", rank=0, step=0, seq=0, api="Torch.add.0", phase="forward", args=(), kwargs={}, result=None,
        context=context, producer={}, time=0.0,
    )  # fmt: skip
    with pytest.raises(BundleMalformed, match=r"context or producer of Torch\.add\.0 is no JSON"):
        dump_bundle(bundle)
