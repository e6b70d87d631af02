"""Which functions are API calls, and what they are called: `Type` and `base` of `Type.base.number`.

The table is made once from torch's own list of overridable functions. Property reads, questions about metadata and conversions
to Python values are no numerical calls and are left out.
"""

from __future__ import annotations

import functools
import re
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch._ops import OpOverload, OpOverloadPacket
from torch.overrides import get_overridable_functions, resolve_name

_PREFIXES = (
    ("torch.nn.functional.", "Functional", ""),
    ("torch.Tensor.", "Tensor", ""),
    ("torch.linalg.", "Torch", "linalg."),
    ("torch.fft.", "Torch", "fft."),
    ("torch.special.", "Torch", "special."),
    ("torch.nested.", "", ""),
    ("torch.nn.init.", "", ""),
    ("torch.", "Torch", ""),
)
# Questions about an object, its memory or its place in the graph; conversions to Python; nothing is computed.
_NOT_NUMERICAL = frozenset(
    """
    __array__ __array_wrap__ __contains__ __deepcopy__ __delitem__ __dir__ __dlpack__ __dlpack_device__ __format__ __hash__
    __len__ __reduce__ __reduce_ex__ __repr__ __setstate__ __torch_dispatch__ __torch_function__ __bool__ __float__ __int__
    __index__ __complex__ __nonzero__ __iter__ __cuda_array_interface__ _backward_hooks _is_view apply_ map_ map2_ align_as
    align_to backward const_data_ptr data_ptr dense_dim dim dim_order element_size get_device has_names hash_tensor item
    is_coalesced is_complex is_conj is_contiguous is_distributed is_floating_point is_inference is_neg is_nonzero
    is_pinned is_same_size is_set_to is_shared is_signed is_storage is_tensor module_load names ndimension nelement numel
    numpy pin_memory qscheme record_stream refine_names register_hook register_post_accumulate_grad_hook rename
    rename_ requires_grad_ resize resize_ resize_as resize_as_ retain_grad set_ share_memory_ size sparse_dim storage
    storage_offset storage_type stride tolist type untyped_storage _typed_storage _update_names
    get_default_dtype set_default_dtype typename compile cond
    """.split()
)
# Makers of tensors that take none: torch's list leaves them out.
_CREATORS = (
    "arange bartlett_window blackman_window empty empty_permuted empty_strided eye full hamming_window hann_window "
    "kaiser_window linspace logspace normal ones rand randint randn randperm range tril_indices triu_indices zeros"
)
# Calls into many kernels, whose own calls are what can be wrong: they are not recorded, but opened one level.
OPENED = frozenset({"multi_head_attention_forward"})
_INTERNAL = re.compile(r"_(foreach|fused|scaled|grouped|native|weight_norm|softmax|log_softmax|convolution|addmm)\w*")
Name = tuple[str, str]


@functools.cache
def table() -> dict[Any, Name]:
    """Function object → (type, base) for every function of torch that is an API call."""
    found: dict[Any, Name] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for functions in get_overridable_functions().values():
            for function in functions:
                name = _name_of(function)
                if name is not None:
                    found[function] = name
    for base in _CREATORS.split():
        if hasattr(torch, base):
            found[getattr(torch, base)] = ("Torch", base)
    for base in dir(torch):
        if _INTERNAL.fullmatch(base):
            found.setdefault(getattr(torch, base), ("Torch", base))
    return found


def _name_of(function: Any) -> Name | None:
    if getattr(function, "__name__", "") in ("__get__", "__set__", "__delete__"):
        return None
    full = resolve_name(function)
    if not full:
        return None
    for prefix, kind, inner in _PREFIXES:
        if full.startswith(prefix):
            base = full.removeprefix(prefix)
            usable = kind and "." not in base and base not in _NOT_NUMERICAL and base.isidentifier()
            return (kind, inner + base) if usable else None
    return None


@functools.lru_cache(maxsize=4096)
def operator_name(function: Any) -> Name | None:
    """(type, base) of an operator of the dispatcher or of its overloads together; None for those that compute nothing."""
    full = str(function._qualified_op_name if isinstance(function, OpOverloadPacket) else function._schema.name)
    space, _, base = full.partition("::")
    if space in ("prim", "profiler", "debugprims", "c10d", "_c10d_functional"):
        return None
    kind = {"aten": "Aten", "npu": "NPU"}.get(space)
    return (kind, base) if kind else ("Custom", f"{space}.{base}")


@functools.lru_cache(maxsize=4096)
def _vendor_name(function: Any) -> Name | None:
    """A Python function of torch_npu, such as torch_npu.npu_rms_norm."""
    module = getattr(function, "__module__", None) or ""
    base = getattr(function, "__name__", "")
    if module.partition(".")[0] == "torch_npu" and base.startswith(("npu_", "fast_gelu")):
        return "NPU", base
    return None


def name_of(function: Callable[..., Any]) -> Name | None:
    """(type, base) of a function that is an API call; None for all others."""
    try:
        found = table().get(function)
    except TypeError:
        return None
    if found is not None:
        return found
    if isinstance(function, OpOverload | OpOverloadPacket):
        return operator_name(function)
    return _vendor_name(function)


@functools.cache
def known_bases() -> frozenset[str]:
    """Every base name that a filter may name."""
    return frozenset(base for _, base in table().values())
