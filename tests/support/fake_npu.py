"""A simulated `npu` operator namespace with its `torch_npu` module, for capturing real vendor calls on the CPU.

    with fake_npu() as npu:
        import torch_npu
        y, rstd = torch_npu.npu_rms_norm(x, gamma)             # the same operator as torch.ops.npu.npu_rms_norm
        with npu.fault("npu_rms_norm", lambda y, rstd: (y * 1.01, rstd)):
            ...                                                # the device computes it wrongly here

The schemas are the official ones, backward operators run inside autograd, and the optimiser operators write their
`out` tensors. A fault changes what the kernel returns, before anything else sees it.
"""

from __future__ import annotations

import functools
import importlib.machinery
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import fake_npu_kernels as kernels
import torch
from torch import Tensor
from torch.overrides import handle_torch_function, has_torch_function

_OUT = "*, Tensor(a!) var, Tensor(b!) m, Tensor(c!) v) -> (Tensor(a!), Tensor(b!), Tensor(c!))"
_ADAM = (
    "(Scalar beta1_power, Scalar beta2_power, Scalar lr, Scalar beta1, Scalar beta2, Scalar epsilon, Tensor grad, "
    "bool? use_locking, bool? use_nesterov"
)
_ADAM_W = (
    "(Scalar beta1_power, Scalar beta2_power, Scalar lr, Scalar weight_decay, Scalar beta1, Scalar beta2, "
    "Scalar epsilon, Tensor grad, Tensor? max_grad_norm, bool? amsgrad, bool? maximize"
)
_ATTENTION = (
    "(Tensor query, Tensor key, Tensor value, int head_num, str input_layout, Tensor? pse=None, "
    "Tensor? padding_mask=None, Tensor? atten_mask=None, float scale=1., float keep_prob=1., "
    "int pre_tockens=2147483647, int next_tockens=2147483647, int inner_precise=0, int[]? prefix=None, "
    "int[]? actual_seq_qlen=None, int[]? actual_seq_kvlen=None, int sparse_mode=0, bool gen_mask_parallel=True, "
    'bool sync=False, str softmax_layout="", Tensor? sink=None, Tensor? dropout_mask=None, int seed=0, int offset=0) '
    "-> (Tensor, Tensor, Tensor, Tensor, int, int, int)"
)
_ATTENTION_GRAD = (
    "(Tensor query, Tensor key, Tensor value, Tensor dy, int head_num, str input_layout, *, Tensor? pse=None, "
    "Tensor? padding_mask=None, Tensor? atten_mask=None, Tensor? softmax_max=None, Tensor? softmax_sum=None, "
    "Tensor? softmax_in=None, Tensor? attention_in=None, float scale_value=1., float keep_prob=1., "
    "int pre_tockens=2147483647, int next_tockens=2147483647, int inner_precise=0, int seed=0, int offset=0, "
    "int numels=0, int[]? prefix=None, int[]? actual_seq_qlen=None, int[]? actual_seq_kvlen=None, int sparse_mode=0, "
    'bool gen_mask_parallel=True, bool sync=False, str softmax_layout="", Tensor? sink=None) '
    "-> (Tensor, Tensor, Tensor, Tensor?, Tensor)"
)

Kernel = Callable[..., Any]


def _attention(*args: Any, **kwargs: Any) -> tuple[Any, ...]:
    names = ("query", "key", "value", "head_num", "input_layout", "pse", "padding_mask", "atten_mask", "scale")
    later = ("keep_prob", "pre_tockens", "next_tockens", "inner_precise", "prefix", "actual_seq_qlen")
    more = ("actual_seq_kvlen", "sparse_mode", "gen_mask_parallel", "sync", "softmax_layout", "sink", "dropout_mask")
    bound = {**dict(zip((*names, *later, *more, "seed", "offset"), args, strict=False)), **kwargs}
    q, k, v, heads, layout = (bound.pop(name) for name in names[:5])
    out, maximum, total = kernels.attention(q, k, v, heads, layout, bound)
    return out, maximum, total, q.new_empty(0), 0, 0, 0


def _attention_grad(q: Tensor, k: Tensor, v: Tensor, dy: Tensor, heads: int, layout: str, **options: Any) -> Any:
    dq, dk, dv = kernels.gradients(lambda a, b, c: kernels.attention(a, b, c, heads, layout, options)[0], dy, q, k, v)
    return dq, dk, dv, None, torch.empty(0)


# schema → kernel; the optimiser operators are below, their functional forms raise as on the device
OPERATORS: dict[str, Kernel] = {
    "fast_gelu(Tensor self) -> Tensor": kernels.fast_gelu,
    "npu_fast_gelu(Tensor self) -> Tensor": kernels.fast_gelu,
    "npu_fast_gelu_backward(Tensor grad, Tensor self) -> Tensor": kernels.fast_gelu_backward,
    "npu_mish(Tensor self) -> Tensor": kernels.mish,
    "npu_mish_backward(Tensor grad, Tensor input) -> Tensor": kernels.mish_backward,
    "npu_swiglu(Tensor self, int dim=-1) -> Tensor": kernels.swiglu,
    "npu_swiglu_backward(Tensor grad_output, Tensor self, int dim=-1) -> Tensor": kernels.swiglu_backward,
    "npu_rms_norm(Tensor self, Tensor gamma, float epsilon=1e-06) -> (Tensor, Tensor)": kernels.rms_norm,
    "npu_rms_norm_backward(Tensor dy, Tensor self, Tensor gamma, Tensor rstd) -> (Tensor, Tensor)": (
        kernels.rms_norm_backward
    ),
    "npu_layer_norm_eval(Tensor input, int[] normalized_shape, Tensor? weight=None, Tensor? bias=None, "
    "float eps=1e-05) -> Tensor": kernels.layer_norm_eval,
    "npu_group_norm_silu(Tensor input, Tensor? weight, Tensor? bias, int group, float eps=0.00001) "
    "-> (Tensor, Tensor, Tensor)": kernels.group_norm_silu,
    "npu_linear(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor": kernels.linear,
    "npu_linear_backward(Tensor grad, Tensor input, Tensor weight) -> (Tensor, Tensor)": kernels.linear_backward,
    "npu_rotary_mul(Tensor self, Tensor r1, Tensor r2, str rotary_mode='half', Tensor? rotate=None) -> Tensor": (
        kernels.rotary_mul
    ),
    "npu_rotary_mul_backward(Tensor grad, Tensor self, Tensor r1, Tensor r2, str rotary_mode='half') "
    "-> (Tensor, Tensor, Tensor)": kernels.rotary_mul_backward,
    "npu_scaled_masked_softmax(Tensor x, Tensor mask, Scalar scale=1, bool fixed_triu_mask=False) -> Tensor": (
        kernels.scaled_masked_softmax
    ),
    "npu_scaled_masked_softmax_backward(Tensor y_grad, Tensor y, Tensor mask, Scalar scale, bool fixed_triu_mask) "
    "-> Tensor": kernels.scaled_masked_softmax_backward,
    "npu_confusion_transpose(Tensor self, int[] perm, int[] shape, bool transpose_first) -> Tensor": (
        kernels.confusion_transpose
    ),
    "npu_confusion_transpose_backward(Tensor grad, int[] perm, SymInt[] shape, bool transpose_first) -> Tensor": (
        kernels.confusion_transpose_backward
    ),
    "npu_sort_v2(Tensor self, int dim=-1, bool descending=False) -> Tensor": kernels.sort_v2,
    "npu_moe_gating_top_k_softmax(Tensor x, Tensor? finished=None, int k=1) -> (Tensor, Tensor, Tensor)": (
        kernels.moe_gating_top_k_softmax
    ),
    f"npu_fusion_attention{_ATTENTION}": _attention,
    f"npu_fusion_attention_grad{_ATTENTION_GRAD}": _attention_grad,
}


def _rms_norm_grad(npu: Any, a: Any, r: Any, g: Any) -> tuple[Any, ...]:
    return npu.npu_rms_norm_backward(g[0], a[0], a[1], r[1])


def _linear_grad(npu: Any, a: Any, r: Any, g: Any) -> tuple[Any, ...]:
    return (*npu.npu_linear_backward(g[0], a[0], a[1]), None if a[2] is None else g[0].sum(0))


def _attention_backward(npu: Any, a: Any, r: Any, g: Any) -> tuple[Any, ...]:
    given = {"atten_mask": a[7], "scale_value": a[8], "sparse_mode": a[16]}
    statistics = {"softmax_max": r[1], "softmax_sum": r[2], "softmax_in": r[3], "attention_in": r[0]}
    return npu.npu_fusion_attention_grad(a[0], a[1], a[2], g[0], a[3], a[4], **given, **statistics)[:3]


def _confusion_grad(npu: Any, a: Any, r: Any, g: Any) -> tuple[Any, ...]:
    return (npu.npu_confusion_transpose_backward(g[0], a[1], list(a[0].shape), not a[3]),)


# operator → gradients of its first inputs from torch.ops.npu, inputs, outputs and output gradients
GRADIENTS: dict[str, Callable[[Any, Any, Any, Any], tuple[Any, ...]]] = {
    "fast_gelu": lambda npu, a, r, g: (npu.npu_fast_gelu_backward(g[0], a[0]),),
    "npu_fast_gelu": lambda npu, a, r, g: (npu.npu_fast_gelu_backward(g[0], a[0]),),
    "npu_mish": lambda npu, a, r, g: (npu.npu_mish_backward(g[0], a[0]),),
    "npu_swiglu": lambda npu, a, r, g: (npu.npu_swiglu_backward(g[0], a[0], a[1]),),
    "npu_rms_norm": _rms_norm_grad,
    "npu_linear": _linear_grad,
    "npu_rotary_mul": lambda npu, a, r, g: npu.npu_rotary_mul_backward(g[0], a[0], a[1], a[2], a[3]),
    "npu_scaled_masked_softmax": lambda npu, a, r, g: (
        npu.npu_scaled_masked_softmax_backward(g[0], r[0], a[1], a[2], a[3]),
    ),
    "npu_confusion_transpose": _confusion_grad,
    "npu_fusion_attention": _attention_backward,
}

_FAULTS: dict[str, Kernel] = {}


def _run(name: str, kernel: Kernel, *args: Any, **kwargs: Any) -> Any:
    result = kernel(*args, **kwargs)
    fault = _FAULTS.get(name)
    if fault is None:
        return result
    return fault(*result) if isinstance(result, tuple) else fault(result)


def _adam(*args: Any, var: Tensor, m: Tensor, v: Tensor) -> tuple[Tensor, ...]:
    new = _run("npu_apply_adam", kernels.apply_adam, args[:6], args[6], bool(args[8]), (var, m, v))
    return tuple(old.copy_(value) for old, value in zip((var, m, v), new, strict=True))


def _adam_w(*args: Any, var: Tensor, m: Tensor, v: Tensor) -> tuple[Tensor, ...]:
    state = (var, m, v)
    new = _run(
        "npu_apply_adam_w", kernels.apply_adam_w, args[:7], args[7], args[8], bool(args[9]), bool(args[10]), state
    )
    return tuple(old.copy_(value) for old, value in zip(state, new, strict=True))


def _only_out(*args: Any, **kwargs: Any) -> Any:
    raise RuntimeError("only the out overload of this operator works")


@functools.cache
def _library() -> torch.library.Library:
    """The namespace, defined once in a process: PyTorch keeps operators for ever."""
    library = torch.library.Library("npu", "DEF")
    for schema, kernel in OPERATORS.items():
        name = library.define(schema)
        library.impl(name, functools.partial(_run, name, kernel), "CompositeExplicitAutograd")
    for name, schema, kernel in (("npu_apply_adam", _ADAM, _adam), ("npu_apply_adam_w", _ADAM_W, _adam_w)):
        library.define(f"{name}{schema}) -> (Tensor, Tensor, Tensor)")
        library.define(f"{name}.out{schema}, {_OUT}")
        library.impl(name, _only_out, "CompositeExplicitAutograd")
        library.impl(f"{name}.out", kernel, "CompositeExplicitAutograd")
    for name, gradient in GRADIENTS.items():
        _differentiable(library, name, gradient)
    return library


def _differentiable(library: torch.library.Library, name: str, gradient: Callable[..., Any]) -> None:
    def setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        results = output if isinstance(output, tuple) else (output,)
        tensors = [item for item in (*inputs, *results) if isinstance(item, Tensor)]
        ctx.save_for_backward(*tensors)
        ctx.inputs = [None if isinstance(item, Tensor) else item for item in inputs]
        ctx.tensor_places = [index for index, item in enumerate((*inputs, *results)) if isinstance(item, Tensor)]
        ctx.count = len(inputs), len(results)
        ctx.set_materialize_grads(True)

    def backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:
        given, returned = ctx.count
        everything = [*ctx.inputs, *[None] * returned]
        for place, tensor in zip(ctx.tensor_places, ctx.saved_tensors, strict=True):
            everything[place] = tensor
        found = gradient(torch.ops.npu, everything[:given], everything[given:], grads)
        return (*found, *[None] * (given - len(found)))

    torch.library.register_autograd(f"npu::{name}", backward, setup_context=setup, lib=library)


def _with_out(name: str) -> Callable[..., Any]:
    """The Python function of an optimiser operator: takes `out=(var, m, v)` and is seen by a TorchFunctionMode."""

    def function(*args: Any, **kwargs: Any) -> Any:
        out = kwargs.get("out", ())
        relevant = tuple(item for item in (*args, *out, *kwargs.values()) if isinstance(item, Tensor))
        if has_torch_function(relevant):
            return handle_torch_function(function, relevant, *args, **kwargs)
        var, m, v = kwargs.pop("out")
        return getattr(torch.ops.npu, name).out(*args, **kwargs, var=var, m=m, v=v)

    function.__name__ = function.__qualname__ = name
    function.__module__ = "torch_npu"
    return function


def _module() -> types.ModuleType:
    module = types.ModuleType("torch_npu", "A simulated torch_npu: the operators alone.")
    module.__spec__ = importlib.machinery.ModuleSpec("torch_npu", None)
    for schema in OPERATORS:
        name = schema.partition("(")[0]
        setattr(module, name, getattr(torch.ops.npu, name))
    for name in ("npu_apply_adam", "npu_apply_adam_w"):
        setattr(module, name, _with_out(name))
    return module


class FakeNpu:
    """The simulated device."""

    @contextmanager
    def fault(self, name: str, change: Kernel) -> Iterator[None]:
        """While open, operator `name` returns what `change` makes of its results (given one by one)."""
        _FAULTS[name] = change
        try:
            yield
        finally:
            del _FAULTS[name]


@contextmanager
def fake_npu() -> Iterator[FakeNpu]:
    """The namespace, with `torch_npu` importable while the context is open."""
    _library()
    before = sys.modules.get("torch_npu")
    sys.modules["torch_npu"] = _module()
    try:
        yield FakeNpu()
    finally:
        if before is None:
            del sys.modules["torch_npu"]
        else:
            sys.modules["torch_npu"] = before
