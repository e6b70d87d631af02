"""Property: whatever tensors and trees a call has, its bundle gives back the same bits, shapes, layouts and flags."""

from __future__ import annotations

import math
from typing import Any

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings
from spool_bundles import call

from spool import Bundle, dump_bundle, load_bundle, read_bundle, read_header
from spool.storage import NAME_OF, PAIRS

DTYPES = [*NAME_OF, *PAIRS]
pytestmark = pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")


def raw(count: int, dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    """`count` elements of any bits that the type may have."""
    generator = torch.Generator().manual_seed(seed)
    bits = torch.randint(0, 256, (max(count, 1) * dtype.itemsize,), dtype=torch.uint8, generator=generator)
    if dtype is torch.bool:
        bits &= 1
    return bits.view(dtype)[:count]


def bits(tensor: torch.Tensor) -> list[int]:
    """The bytes of a tensor's logical elements."""
    plain = tensor.detach().resolve_conj().resolve_neg().contiguous()
    return plain.as_strided((plain.numel(),), (1,)).view(torch.uint8).tolist() if plain.numel() else []


def through(*values: Any) -> tuple[Any, ...]:
    return load_bundle(dump_bundle(call(0, *values))).args


@st.composite
def tensors(draw: st.DrawFn) -> torch.Tensor:
    """Tensors of every type in every layout that views can give them."""
    dtype = draw(st.sampled_from(DTYPES))
    shape = draw(st.lists(st.integers(0, 4), max_size=4))
    tensor = raw(math.prod(shape), dtype, draw(st.integers(0, 99))).view(shape)
    for _ in range(draw(st.integers(0, 3))):
        tensor = draw(st.sampled_from(VIEWS))(tensor, draw)
    if dtype.is_complex and dtype is not torch.complex32 and draw(st.booleans()):
        tensor = draw(st.sampled_from([torch.conj, lambda t: t.conj().imag]))(tensor)
    if (tensor.is_floating_point() or tensor.is_complex()) and draw(st.booleans()):
        tensor = tensor.detach().requires_grad_()
    return tensor


def _dim(tensor: torch.Tensor, draw: st.DrawFn) -> int:
    return draw(st.integers(0, tensor.dim() - 1))


def _permuted(tensor: torch.Tensor, draw: st.DrawFn) -> torch.Tensor:
    return tensor.permute(draw(st.permutations(range(tensor.dim()))))


def _sliced(tensor: torch.Tensor, draw: st.DrawFn) -> torch.Tensor:
    if not tensor.dim():
        return tensor
    dim, start, step = _dim(tensor, draw), draw(st.integers(0, 2)), draw(st.integers(1, 2))
    return tensor[(slice(None),) * dim + (slice(start, None, step),)]


def _expanded(tensor: torch.Tensor, draw: st.DrawFn) -> torch.Tensor:
    return tensor.unsqueeze(draw(st.integers(0, tensor.dim()))).expand(
        *(3 if size == 1 else size for size in tensor.unsqueeze(0).shape)
    ) if tensor.dim() == 0 else tensor.unsqueeze(0).expand(3, *tensor.shape)  # fmt: skip


def _selected(tensor: torch.Tensor, draw: st.DrawFn) -> torch.Tensor:
    if not tensor.dim():
        return tensor
    dim = _dim(tensor, draw)
    return tensor.select(dim, 0) if tensor.shape[dim] else tensor


def _overlapping(tensor: torch.Tensor, draw: st.DrawFn) -> torch.Tensor:
    if tensor.dim() != 1 or tensor.numel() < 3 or not tensor.is_contiguous():
        return tensor
    return tensor.as_strided((2, 2), (1, 1))


VIEWS = [_permuted, _sliced, _expanded, _selected, _overlapping]


def the_same(back: torch.Tensor, tensor: torch.Tensor) -> None:
    assert back.dtype is tensor.dtype
    assert back.shape == tensor.shape
    assert bits(back) == bits(tensor)
    assert back.requires_grad == tensor.requires_grad
    assert back.device.type == "cpu"


@settings(max_examples=300, deadline=None)
@given(tensors())
def test_any_tensor_comes_back_bit_for_bit(tensor: torch.Tensor) -> None:
    (back,) = through(tensor)
    the_same(back, tensor)
    # The strides that can matter to a kernel: those of dimensions that have more than one element, of a dense tensor.
    dense = tensor.numel() and not tensor.is_conj() and not tensor.is_neg() and not tensor.dtype.is_complex
    if dense and torch.ops.aten.is_non_overlapping_and_dense(tensor.detach()):
        kept = [s for s, n in zip(tensor.stride(), tensor.shape, strict=True) if n > 1]
        assert [s for s, n in zip(back.stride(), back.shape, strict=True) if n > 1] == kept


LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=5), st.binary(max_size=5),
    st.complex_numbers(allow_nan=False), st.sampled_from([torch.float32, torch.strided, ..., torch.device("cpu")]),
)  # fmt: skip
KEYS = st.one_of(st.text(max_size=4), st.integers(), st.tuples(st.integers(), st.text(max_size=2)))
TREES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(KEYS, inner, max_size=4),
    ),
    max_leaves=20,
)


@settings(max_examples=300, deadline=None)
@given(st.lists(TREES, max_size=3).map(tuple), st.dictionaries(st.text(max_size=5), TREES, max_size=3), TREES)
def test_any_tree_comes_back(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
    bundle = Bundle.build(
        session="s1", rank=0, step=0, seq=0, api="Torch.add.0", phase="forward", args=args, kwargs=kwargs, result=result,
        mutated={"args[0]": result}, context={}, producer={}, time=0.0,
    )  # fmt: skip
    back = load_bundle(dump_bundle(bundle))
    assert repr((back.args, back.kwargs, back.result)) == repr((args, kwargs, result))
    assert back.mutated == {"args[0]": result}
    assert back.header.key == ("s1", 0, 0, 0)


@settings(max_examples=50, deadline=None)
@given(st.lists(tensors(), max_size=5))
def test_many_tensors_of_many_types_share_a_file(values: list[torch.Tensor]) -> None:
    for back, tensor in zip(through(*values, 1), [*values], strict=False):
        the_same(back, tensor)


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: str(dtype).removeprefix("torch."))
def test_every_type_in_the_common_shapes(dtype: torch.dtype) -> None:
    values = [raw(6, dtype).view(2, 3), raw(6, dtype).view(2, 3).t(), raw(0, dtype).view(0, 3), raw(1, dtype).view(())]
    for back, tensor in zip(through(*values), values, strict=True):
        the_same(back, tensor)


LAYOUTS = {
    "channels last": lambda: torch.arange(48.0).view(2, 3, 2, 4).contiguous(memory_format=torch.channels_last),
    "channels last 3d": lambda: torch.arange(48.0).view(1, 3, 2, 2, 4).contiguous(memory_format=torch.channels_last_3d),
    "transposed": lambda: torch.arange(6.0).view(2, 3).t(),
    "expanded": lambda: torch.arange(3.0).expand(4, 3),
    "expanded inside": lambda: torch.arange(3.0).view(3, 1).expand(3, 5),
    "scalar expanded": lambda: torch.tensor(2.0).expand(3, 3),
    "contiguous": lambda: torch.arange(6.0).view(2, 3),
}


@pytest.mark.parametrize("make", LAYOUTS.values(), ids=LAYOUTS.keys())
def test_strides_are_kept(make: Any) -> None:
    tensor = make()
    (back,) = through(tensor)
    assert back.stride() == tensor.stride()
    assert torch.equal(back, tensor)


def test_gaps_are_closed() -> None:
    tensor = torch.arange(100.0).view(10, 10)[::2, ::3]
    (back,) = through(tensor)
    assert torch.equal(back, tensor)
    assert len(dump_bundle(call(0, tensor))) < 1000


SMALL = {
    "one element of 4 MB": lambda: torch.zeros(2**20)[77:78],
    "one row expanded to 4 MB": lambda: torch.zeros(1, 16).expand(2**16, 16),
    "one element expanded to 4 GB": lambda: torch.zeros(1).expand(2**30),
    "column of a large matrix": lambda: torch.zeros(1000, 1000)[:, 5],
    "conj of one element": lambda: torch.zeros(2**19, dtype=torch.complex64)[3:4].conj(),
}


@pytest.mark.parametrize("make", SMALL.values(), ids=SMALL.keys())
def test_a_small_view_makes_a_small_file(make: Any) -> None:
    assert len(dump_bundle(call(0, make()))) < 10_000


def test_a_tensor_that_occurs_twice_is_stored_once() -> None:
    tensor = torch.zeros(1000)
    bundle = call(0, tensor, [tensor, tensor.detach()], result=tensor)
    assert bundle.nbytes == 4000
    assert len(load_bundle(dump_bundle(bundle)).tensors) == 1


def test_views_of_one_storage_keep_to_their_own_elements() -> None:
    base = torch.arange(1000.0)
    values = (base[:10], base[5:15], base[::2][:3], base.view(torch.int32)[:10])
    bundle = call(0, *values)
    assert bundle.nbytes == 4 * (10 + 10 + 3 + 10)
    for back, tensor in zip(load_bundle(dump_bundle(bundle)).args, values, strict=True):
        the_same(back, tensor)


def test_contiguous_tensors_are_not_copied() -> None:
    tensor = torch.ones(100)
    (stored,) = call(0, tensor).tensors.values()
    assert stored.data_ptr() == tensor.data_ptr()


def test_parameters_and_flags() -> None:
    parameter = torch.nn.Parameter(torch.ones(2))
    computed = parameter * 2
    back = through(parameter, computed, torch.ones(2), parameter.detach())
    assert [value.requires_grad for value in back] == [True, True, False, False]
    assert all(type(value) is torch.Tensor for value in back)


def test_loaded_tensors_may_be_written_to() -> None:
    (back,) = through(torch.zeros(4))
    back.add_(1)
    assert back.tolist() == [1.0] * 4


def test_a_call_that_cannot_be_replayed_has_its_reason_and_no_data(tmp_path: Any) -> None:
    bundle = Bundle.unreplayable(
        session="s1", rank=1, step=2, seq=3, api="Torch.bernoulli.0", phase="forward", context={}, producer={}, time=1.0,
        reason="not replayable (torch.Generator at kwargs.generator)",
    )  # fmt: skip
    (tmp_path / "x").write_bytes(dump_bundle(bundle))
    back = read_bundle(tmp_path / "x")
    assert back.header.skip == "not replayable (torch.Generator at kwargs.generator)"
    assert (back.args, back.kwargs, back.result, back.mutated, back.nbytes) == ((), {}, None, {}, 0)
    header = read_header(tmp_path / "x")
    assert header == back.header
    assert header.key == ("s1", 1, 2, 3)
