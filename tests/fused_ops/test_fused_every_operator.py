"""What holds for every fused operator: signature, outputs, two precisions, determinism, no side effects."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from fused_examples import BY_NAME, EXAMPLES
from fused_make import FLOAT, Example
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import fused_ops
from fused_ops.schema import parse_schema

torch.set_num_threads(1)
OPS = [pytest.param(example, id=example.op) for example in EXAMPLES]
DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)


def listed(result: Any) -> list[Any]:
    return list(result) if isinstance(result, (tuple, list)) else [result]


def same(left: Any, right: Any) -> bool:
    if isinstance(left, Tensor) and isinstance(right, Tensor):
        return left.dtype == right.dtype and torch.equal(left.nan_to_num(9e9), right.nan_to_num(9e9))
    return bool(left == right)


def tensors_of(arguments: dict[str, Any]) -> list[Tensor]:
    return [item for value in arguments.values() for item in listed(value) if isinstance(item, Tensor)]


def test_every_operator_has_an_example() -> None:
    assert set(BY_NAME) == set(fused_ops.names())


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("example", OPS)
def test_outputs(example: Example, dtype: torch.dtype) -> None:
    results = listed(fused_ops.reference(example.op)(**example.arguments(dtype)))
    assert len(results) == len(example.outputs)
    for result, expected in zip(results, example.outputs, strict=True):
        if expected is None:
            assert result is None
        elif expected is int:
            assert isinstance(result, int)
        else:
            shape, kind = expected
            assert tuple(result.shape) == shape
            assert result.dtype == (dtype if kind == FLOAT else kind)


@pytest.mark.parametrize("example", OPS)
def test_number_of_outputs_is_the_schema_s(example: Example) -> None:
    op = fused_ops.reference(example.op)
    declared = parse_schema(op.schema).returns
    if declared[0].type != "Tensor[]":
        assert len(declared) == len(example.outputs)


@pytest.mark.parametrize("example", OPS)
def test_golden_is_float64_and_near_the_own_dtype_run(example: Example) -> None:
    op = fused_ops.reference(example.op)
    arguments = example.arguments(torch.float32)
    for own, golden in zip(listed(op(**arguments)), listed(op.golden(**arguments)), strict=True):
        if isinstance(own, Tensor) and own.is_floating_point() and own.numel():
            assert golden.dtype == torch.float64
            torch.testing.assert_close(
                own.double(), golden, rtol=2e-5, atol=2e-5 if own.dtype == torch.float32 else 8e-3
            )
        else:
            assert same(own, golden) or isinstance(own, Tensor)


@pytest.mark.parametrize("example", OPS)
def test_float64_inputs_are_not_computed_in_float32(example: Example) -> None:
    op = fused_ops.reference(example.op)
    arguments = example.arguments(torch.float64)
    for own, golden in zip(listed(op(**arguments)), listed(op.golden(**arguments)), strict=True):
        if isinstance(own, Tensor) and own.dtype == torch.float64:
            torch.testing.assert_close(own, golden, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("example", OPS)
def test_positional_keyword_and_explicit_defaults_agree(example: Example) -> None:
    op = fused_ops.reference(example.op)
    arguments = example.arguments()
    schema = next(item for item in op.schemas if set(arguments) <= {argument.name for argument in item.arguments})
    expected = listed(op(**arguments))
    positional = []
    for argument in schema.positional:
        if argument.name not in arguments and argument.required:
            break
        positional.append(arguments.get(argument.name, argument.default))
    taken = {argument.name for argument in schema.positional[: len(positional)]}
    rest = {name: value for name, value in arguments.items() if name not in taken}
    assert all(map(same, listed(op(*positional, **rest)), expected))
    full = {item.name: arguments.get(item.name, item.default) for item in schema.arguments if not item.required}
    assert all(map(same, listed(op(**{**arguments, **full})), expected))


@pytest.mark.parametrize("example", OPS)
def test_defaults_can_be_left_out_one_by_one(example: Example) -> None:
    op = fused_ops.reference(example.op)
    arguments = example.arguments()
    for argument in parse_schema(op.schema).arguments:
        if argument.required or argument.name not in arguments:
            continue
        without = {name: value for name, value in arguments.items() if name != argument.name}
        explicit = {**without, argument.name: argument.default}
        try:
            expected = op(**explicit)
        except fused_ops.InvalidArgument as exc:
            # Some examples are only legal with the value that they give.
            with pytest.raises(type(exc)):
                op(**without)
        else:
            assert all(map(same, listed(op(**without)), listed(expected)))


@pytest.mark.parametrize("example", OPS)
def test_twice_the_same_bits_and_nothing_touched(example: Example) -> None:
    op = fused_ops.reference(example.op)
    arguments = example.arguments()
    before = [(item.clone(), item.requires_grad, item._version) for item in tensors_of(arguments)]
    state = torch.random.get_rng_state()
    first, second = listed(op(**arguments)), listed(op(**arguments))
    listed(op.golden(**arguments))
    assert all(map(same, first, second))
    assert torch.equal(torch.random.get_rng_state(), state)
    for item, (value, requires_grad, version) in zip(tensors_of(arguments), before, strict=True):
        assert torch.equal(item, value)
        assert item.requires_grad == requires_grad
        assert item._version == version
    given = {item.data_ptr() for item in tensors_of(arguments) if item.numel()}
    for result in first:
        if isinstance(result, Tensor) and result.numel():
            assert result.data_ptr() not in given
            assert result.is_contiguous()


@pytest.mark.parametrize("example", OPS)
def test_non_contiguous_inputs(example: Example) -> None:
    op = fused_ops.reference(example.op)
    arguments = example.arguments()

    def scattered(value: Any) -> Any:
        if isinstance(value, list):
            return [scattered(item) for item in value]
        if not isinstance(value, Tensor) or value.dim() == 0:
            return value
        wide = torch.stack([value.detach(), value.detach()], -1).clone()[..., 0]
        return wide.requires_grad_(value.requires_grad)

    again = op(**{name: scattered(value) for name, value in arguments.items()})
    for left, right in zip(listed(op(**arguments)), listed(again), strict=True):
        if isinstance(left, Tensor):
            torch.testing.assert_close(left, right, rtol=1e-6, atol=1e-6)


class _OneDevice(TorchDispatchMode):
    """Fails when a tensor is made on another device than the arguments'."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for item in listed(result):
            if isinstance(item, Tensor) and item.device.type != "meta" and item.dim():
                raise AssertionError(f"{func} made a tensor on {item.device}")
        return result


# Their definitions look at values, which tensors without data do not have.
_VALUE_DEPENDENT = {
    "npu_clipped_swiglu",
    "npu_cross_entropy_loss",
    "npu_cross_entropy_loss_backward",
    "npu_fusion_attention_grad_v3",
    "npu_fusion_attention_v3",
    "npu_grouped_matmul",
    "npu_moe_finalize_routing",
    "npu_moe_token_permute_with_routing_map",
    "npu_moe_token_permute_with_routing_map_grad",
    "npu_moe_token_unpermute_grad",
    "npu_moe_token_unpermute_grad_v2",
    "npu_moe_token_unpermute_with_routing_map",
    "npu_moe_token_unpermute_with_routing_map_grad",
    "npu_mrope",
}


@pytest.mark.parametrize("example", [pytest.param(e, id=e.op) for e in EXAMPLES if e.op not in _VALUE_DEPENDENT])
def test_no_constant_on_a_fixed_device(example: Example) -> None:
    def moved(value: Any) -> Any:
        if isinstance(value, list):
            return [moved(item) for item in value]
        return value.to("meta").requires_grad_(value.requires_grad) if isinstance(value, Tensor) else value

    arguments = {name: moved(value) for name, value in example.arguments().items()}
    with _OneDevice():
        results = listed(fused_ops.reference(example.op)(**arguments))
    assert all(item.device.type == "meta" for item in results if isinstance(item, Tensor))


@pytest.mark.parametrize("example", OPS)
def test_unknown_arguments_are_never_ignored(example: Example) -> None:
    op = fused_ops.reference(example.op)
    with pytest.raises(fused_ops.UnsupportedArgument, match="no_such_argument"):
        op(**example.arguments(), no_such_argument=1)
    with pytest.raises(fused_ops.UnsupportedArgument, match="by position"):
        op(*([None] * 60))


@pytest.mark.parametrize("example", OPS)
def test_missing_arguments_are_named(example: Example) -> None:
    op = fused_ops.reference(example.op)
    for argument in parse_schema(op.schema).arguments:
        if argument.required:
            given = {name: value for name, value in example.arguments().items() if name != argument.name}
            with pytest.raises(fused_ops.InvalidArgument, match=f"{op.name}: "):
                op(**given)


@pytest.mark.parametrize("example", OPS)
def test_uncompared_outputs_exist_and_have_reasons(example: Example) -> None:
    reasons = fused_ops.reference(example.op).uncompared(**example.arguments())
    assert all(0 <= index < len(example.outputs) for index in reasons)
    assert all(reasons.values())
