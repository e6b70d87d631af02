"""Registry, schema grammar, binding, and how a user's own reference gets in."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import fused_ops
from fused_ops import registry
from fused_ops.precision import Precision
from fused_ops.schema import REQUIRED, Schema, parse_schema


def _all_schemas() -> list[Schema]:
    return [schema for name in fused_ops.names() for schema in fused_ops.reference(name).schemas]


@pytest.mark.parametrize("schema", [pytest.param(s, id=s.text[:60]) for s in _all_schemas()])
def test_schema_grammar_is_torch_s(schema: Schema) -> None:
    """PyTorch's own parser reads the same names, defaults, keyword marks and alias marks out of the text."""
    theirs = torch._C.parse_schema(f"npu::{schema.text}")
    assert [a.name for a in theirs.arguments] == [a.name for a in schema.arguments]
    assert [a.kwarg_only for a in theirs.arguments] == [a.keyword_only for a in schema.arguments]
    assert len(theirs.returns) == len(schema.returns)
    for a, b in zip(theirs.arguments, schema.arguments, strict=True):
        assert a.has_default_value() == (b.default is not REQUIRED)
        if a.has_default_value():
            default = tuple(a.default_value) if isinstance(a.default_value, list) else a.default_value
            assert default == b.default
        assert (a.alias_info is not None and a.alias_info.is_write) == b.written


@pytest.mark.parametrize("text", ["no parentheses -> Tensor", "f(Tensor) -> Tensor", "f(Tensor x)", "f(=3) -> Tensor"])
def test_broken_schemas_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        parse_schema(text)


SEED = [
    "npu_apply_adam",
    "npu_apply_adam_w",
    "npu_confusion_transpose",
    "fast_gelu",
    "npu_fast_gelu",
    "npu_layer_norm_eval",
    "npu_linear",
    "npu_fusion_attention",
    "npu_rms_norm",
    "npu_rotary_mul",
    "npu_scaled_masked_softmax",
    "npu_swiglu",
    "npu_group_norm_silu",
    "npu_mish",
    "npu_moe_gating_top_k_softmax",
    "npu_sort_v2",
]
BACKWARD = [
    "npu_fusion_attention_grad",
    "npu_rms_norm_backward",
    "npu_rotary_mul_backward",
    "npu_swiglu_backward",
    "npu_fast_gelu_backward",
    "npu_linear_backward",
    "npu_scaled_masked_softmax_backward",
    "npu_confusion_transpose_backward",
    "npu_mish_backward",
    "matmul_backward",
]
BEYOND = [
    "npu_fusion_attention_v2",
    "npu_fusion_attention_v3",
    "npu_add_rms_norm",
    "npu_gemma_rms_norm",
    "npu_gelu",
    "npu_geglu",
    "npu_gelu_mul",
    "npu_silu",
    "npu_clipped_swiglu",
    "npu_apply_rotary_pos_emb",
    "npu_mrope",
    "npu_group_norm_swish",
    "npu_cross_entropy_loss",
    "npu_softmax_cross_entropy_with_logits",
    "npu_moe_token_permute",
    "npu_moe_token_unpermute",
    "npu_moe_token_permute_with_routing_map",
    "npu_moe_token_unpermute_with_routing_map",
    "npu_moe_init_routing",
    "npu_moe_finalize_routing",
    "npu_moe_gating_top_k",
    "npu_grouped_matmul",
    "npu_transpose_batchmatmul",
    "npu_bmmV2",
    "npu_dtype_cast",
    "npu_format_cast",
    "npu_transpose",
    "npu_one_hot",
    "npu_pad",
    "npu_max",
    "npu_min",
    "npu_conv2d",
    "npu_dropout_with_add_softmax",
]


@pytest.mark.parametrize("name", SEED + BACKWARD + BEYOND)
def test_promised_operators_are_there(name: str) -> None:
    op = fused_ops.reference(name)
    assert op.name == name
    assert op.source.startswith("op-plugin")
    assert op.standard in {"benchmark", "binary consistency", "thousandth"}
    assert isinstance(op.deterministic, bool)


@pytest.mark.parametrize("name", ["npu_apply_adam_out", "npu_apply_adam.out", "npu_max.dim", "npu_grouped_matmul.List"])
def test_out_and_overload_spellings(name: str) -> None:
    assert fused_ops.reference(name).name in {name, name.partition(".")[0]}


def test_unknown_operator_names_the_nearest() -> None:
    with pytest.raises(fused_ops.UnknownFusedOp, match="npu_rms_norm") as caught:
        fused_ops.reference("npu_rms_normm")
    assert isinstance(caught.value, LookupError)
    assert pickle.loads(pickle.dumps(caught.value)).name == "npu_rms_normm"


@pytest.fixture
def own_operator() -> Iterator[str]:
    @fused_ops.register("npu_twice(Tensor self, float factor=2.0, bool later=False) -> Tensor", source="mine")
    def twice(run: Precision, self: Tensor, factor: float) -> Tensor:
        fused_ops.check(factor != 0, "factor", factor, "must not be 0")
        return run.down(run.up(self) * factor, self.dtype)

    yield "npu_twice"
    registry._TABLE.pop("npu_twice")


def test_own_reference(own_operator: str) -> None:
    op = fused_ops.reference(own_operator)
    x = torch.tensor([1.5], dtype=torch.float16)
    assert torch.equal(op(x), torch.tensor([3.0], dtype=torch.float16))
    assert torch.equal(op.golden(self=x, factor=4), torch.tensor([6.0], dtype=torch.float64))
    with pytest.raises(fused_ops.InvalidArgument, match=r"npu_twice: factor = 0.0: must not be 0"):
        op(x, factor=0)
    assert torch.equal(op(x, later=False), op(x))
    with pytest.raises(fused_ops.UnsupportedArgument, match="later = True"):
        op(x, later=True)


def test_registration_refuses_what_cannot_work(own_operator: str) -> None:
    with pytest.raises(ValueError, match="registered already"):
        fused_ops.register("npu_twice(Tensor self) -> Tensor", source="mine")(lambda run, self: self)
    with pytest.raises(ValueError, match="sefl is no argument"):
        fused_ops.register("npu_thrice(Tensor self) -> Tensor", source="mine")(lambda run, sefl: sefl)
    with pytest.raises(ValueError, match="does not take the required self"):
        fused_ops.register("npu_thrice(Tensor self) -> Tensor", source="mine")(lambda run: None)
    assert "npu_thrice" not in fused_ops.names()
    fused_ops.register("npu_twice(Tensor self) -> Tensor", source="mine", replace=True)(lambda run, self: self + 1)
    assert fused_ops.reference("npu_twice")(torch.zeros(1)) == 1


def test_documented_arguments_of_other_releases() -> None:
    from fused_ops.binding import bind

    schema = parse_schema("f(Tensor x) -> Tensor")
    x = torch.ones(1)
    assert bind([schema], (x,), {"later": 3}, {"later": 3}).values == {"x": x}
    with pytest.raises(fused_ops.UnsupportedArgument, match="later = 4"):
        bind([schema], (x,), {"later": 4}, {"later": 3})


# name of the schema type: value → what the definition receives, or the error's rule
CONVERSIONS: dict[str, tuple[str, Any, Any]] = {
    "numpy scalar": ("Scalar", np.float32(0.5), 0.5),
    "numpy array of one": ("Scalar", np.array([2]), 2),
    "tensor of one": ("Scalar", torch.tensor([0.25]), 0.25),
    "zero-dimensional tensor": ("float", torch.tensor(3), 3.0),
    "boolean as number": ("Scalar", True, True),
    "whole float": ("int", 3.0, 3),
    "half": ("int", 2.5, "whole number"),
    "tensor of two": ("float", torch.ones(2), "one-element tensor"),
    "text as number": ("float", "1", "one-element tensor"),
    "number as flag": ("bool", 1, True),
    "two as flag": ("bool", 2, "True or False"),
    "number as text": ("str", 1, "must be a string"),
    "list as tensor": ("Tensor", [1.0], "must be a tensor"),
    "size as list": ("int[]", torch.Size([2, 3]), (2, 3)),
    "one for two": ("int[2]", 3, (3, 3)),
    "three for two": ("int[2]", [1, 2, 3], "hold 2 values"),
    "number as list": ("int[]", 3, "must be a list"),
    "none where allowed": ("Tensor?", None, None),
    "none where not": ("Tensor", None, "must be a Tensor"),
    "text as dtype": ("ScalarType", "float32", "torch.dtype"),
}


@pytest.mark.parametrize("name", CONVERSIONS)
def test_conversion(name: str) -> None:
    from fused_ops.binding import convert

    kind, value, expected = CONVERSIONS[name]
    argument = parse_schema(f"f({kind} x) -> Tensor").arguments[0]
    if isinstance(expected, str):
        with pytest.raises(fused_ops.InvalidArgument, match=expected):
            convert(argument, value)
    else:
        found = convert(argument, value)
        assert found == expected
        assert type(found) is type(expected)


def test_errors_survive_a_process_border() -> None:
    error = fused_ops.InvalidArgument("dim", torch.ones(2, 3), "must be even", "npu_swiglu")
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == "npu_swiglu: dim = tensor of shape (2, 3), float32: must be even"
    assert isinstance(again, ValueError)


STATE = (torch.ones(2), torch.zeros(2), torch.ones(2))
RATES = (0.9, 0.999, 0.01, 0.9, 0.999, 1e-8)
# name: (operator, positional, keywords, where the three new values go)
SPELLINGS: dict[str, tuple[str, tuple[Any, ...], dict[str, Any], list[str]]] = {
    "out": (
        "npu_apply_adam",
        (*RATES, torch.ones(2), None, None),
        {"out": STATE},
        ["kwargs.out"],
    ),
    "schema names": (
        "npu_apply_adam",
        (*RATES, torch.ones(2), None, None),
        {"var": STATE[0], "m": STATE[1], "v": STATE[2]},
        ["kwargs.var", "kwargs.m", "kwargs.v"],
    ),
    "positional": (
        "npu_apply_adam_out",
        (*RATES, torch.ones(2), None, None, *STATE),
        {},
        ["args[9]", "args[10]", "args[11]"],
    ),
    "rotary in place": (
        "npu_apply_rotary_pos_emb",
        (torch.ones(1, 1, 1, 2), torch.ones(1, 1, 1, 2)),
        {"cos": torch.ones(1, 1, 1, 2), "sin": torch.ones(1, 1, 1, 2)},
        ["args[0]", "args[1]"],
    ),
    "silu in place": ("npu_silu_", (torch.ones(2),), {}, ["args[0]"]),
    "sort into out": ("npu_sort_v2", (torch.ones(2),), {"out": torch.zeros(2)}, ["kwargs.out"]),
    "sort": ("npu_sort_v2", (torch.ones(2),), {}, []),
}


@pytest.mark.parametrize("name", SPELLINGS)
def test_written_arguments(name: str) -> None:
    operator, args, kwargs, paths = SPELLINGS[name]
    op = fused_ops.reference(operator)
    result = op(*args, **kwargs)
    written = op.written(args, kwargs, result)
    assert list(written) == paths
    outputs = result if isinstance(result, tuple) else (result,)
    values = written.get("kwargs.out", tuple(written.values()))
    values = values if isinstance(values, tuple) else (values,)
    assert all(value is output for value, output in zip(values, outputs, strict=bool(paths)))


def test_mutates_covers_every_spelling() -> None:
    assert fused_ops.reference("npu_apply_adam").mutates == ("out", "var", "m", "v")
    assert fused_ops.reference("npu_apply_rotary_pos_emb").mutates == ("query", "key")
    assert fused_ops.reference("npu_rms_norm").mutates == ()


@pytest.mark.parametrize(
    ("kwargs", "rule"),
    [({}, "var = not given"), ({"out": STATE[:2]}, "tuple of 3"), ({"out": STATE, "var": STATE[0]}, "given twice")],
)
def test_optimiser_state_is_required_once(kwargs: dict[str, Any], rule: str) -> None:
    with pytest.raises(fused_ops.InvalidArgument, match=rule):
        fused_ops.reference("npu_apply_adam")(*RATES, torch.ones(2), None, None, **kwargs)


def test_autocast_of_the_caller_has_no_effect() -> None:
    op = fused_ops.reference("npu_linear")
    x, w = torch.randn(4, 8), torch.randn(3, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = op(x, w)
    assert torch.equal(inside, op(x, w))
