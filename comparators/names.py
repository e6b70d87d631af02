"""API names, and the lists that say which standard judges an API."""

from __future__ import annotations

import functools

BINARY = "binary consistency"
ABSOLUTE = "absolute threshold"
ULP = "ULP"
THOUSANDTH = "thousandth"
ACCUMULATIVE = "accumulative error"
BENCHMARK = "benchmark"
STANDARDS = (BINARY, ABSOLUTE, ULP, THOUSANDTH, ACCUMULATIVE, BENCHMARK)
THREE_WAY = frozenset({ULP, ACCUMULATIVE, BENCHMARK})


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# The lists of mindstudio-probe 8.3.0 (its api_precision_standard.yaml), spelling for spelling.
_PEER = {
    ABSOLUTE: _words("""
        add add_ __add__ __iadd__ __radd__ sub sub_ rsub __sub__ __isub__ mul mul_ __mul__ __imul__ __rmul__
        div div_ __div__ __idiv__ divide divide_ leaky_relu leaky_relu_ prelu reciprocal reciprocal_ rsqrt rsqrt_
        square square_
        """),
    BINARY: _words("""
        abs abs_ absolute absolute_ argmin bitwise_and bitwise_and_ broadcast_to ceil ceil_ equal fill_ flatten
        floor floor_ gather greater greater_ greater_equal greater_equal_ histc isfinite isnan less less_ less_equal
        less_equal_ logical_and logical_and_ logical_not logical_not_ logical_or logical_or_ masked_fill masked_fill_
        max_pool3d maximum minimum neg neg_ nonzero not_equal not_equal_ one_hot pad relu reshape round round_ select
        sign sign_ sort tile topk transpose transpose_ tril tril_ triu triu_ type_as
        """),
    ULP: _words("""
        __matmul__ matmul mm bmm mv linear bilinear addmm addmm_ addbmm addbmm_ baddbmm baddbmm_ chain_matmul hspmm
        smm sspaddmm
        """),
    THOUSANDTH: _words("conv1d conv2d"),
}

# The same operations in spellings that the peer's lists lack, and exact operations, which have no excuse for an error.
# A trailing underscore (in-place) is not spelled out here: it is dropped before the look-up.
_MORE = {
    ABSOLUTE: _words("""
        __truediv__ __itruediv__ __rtruediv__ __rsub__ __rdiv__ true_divide subtract multiply
        """),
    BINARY: _words("""
        view view_as reshape_as permute contiguous clone detach cat concat concatenate stack hstack vstack dstack
        split split_with_sizes chunk tensor_split unbind index_select index __getitem__ __setitem__ expand expand_as
        squeeze unsqueeze t T mT adjoint movedim moveaxis swapaxes swapdims narrow slice unflatten ravel repeat
        repeat_interleave roll flip fliplr flipud rot90 diag diagonal diag_embed diagflat unfold as_strided
        take take_along_dim scatter masked_select masked_scatter index_put index_copy index_fill where copy
        pixel_shuffle pixel_unshuffle channel_shuffle constant_pad_nd
        zero zeros ones full zeros_like ones_like full_like new_zeros new_ones new_full eye arange
        eq ne lt le gt ge __eq__ __ne__ __lt__ __le__ __gt__ __ge__ logical_xor isinf isnan isposinf isneginf signbit
        bitwise_or bitwise_xor bitwise_not __and__ __or__ __xor__ __invert__ __neg__ __abs__ negative positive
        __iand__ __ior__ __ixor__ argmax argsort max min amax amin aminmax fmax fmin cummax cummin kthvalue median
        nanmedian mode clamp clamp_min clamp_max clip hardtanh relu6 threshold trunc fix sgn msort
        max_pool1d max_pool2d max_pool1d_with_indices max_pool2d_with_indices max_pool3d_with_indices max_unpool1d
        max_unpool2d max_unpool3d adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d
        searchsorted bucketize unique unique_consecutive bincount count_nonzero any all allclose isclose
        to type float half bfloat16 double int long short bool byte char cpu cuda npu _to_copy
        threshold_backward select_backward slice_backward masked_fill_backward
        npu_format_cast npu_dtype_cast npu_transpose npu_broadcast npu_confusion_transpose npu_one_hot npu_slice
        _npu_dtype_cast npu_dtype_cast_backward npu_confusion_transpose_backward npu_max npu_min npu_max_backward
        npu_min_backward npu_moe_init_routing npu_moe_token_permute npu_moe_token_permute_with_routing_map npu_pad
        npu_sort_v2
        """),
    THOUSANDTH: _words("npu_conv2d"),
}


@functools.lru_cache(maxsize=4096)
def base_name(api: str) -> str:
    """`matmul` of `Torch.matmul.7`, `linalg.norm` of `Torch.linalg.norm.0`; a bare name is its own."""
    kind, dot, rest = api.partition(".")
    if not dot or not kind[:1].isupper():
        return api
    name, dot, number = rest.rpartition(".")
    return name if dot and number.isdigit() else rest


@functools.lru_cache(maxsize=4096)
def functional_name(base: str) -> str:
    """The name without its namespace and without the underscore of an in-place form: `add` of `add_`."""
    name = base.rpartition(".")[2]
    return name[:-1] if name.endswith("_") and not name.endswith("__") and len(name) > 1 else name


@functools.lru_cache(maxsize=4096)
def listed_standard(base: str, *, peer_lists_only: bool = False) -> tuple[str, str]:
    """The standard of a base name and the line that says so."""
    for standard, names in _PEER.items():
        if base in names:
            return standard, f"list of the {standard} standard: {base}"
    if not peer_lists_only:
        name = functional_name(base)
        for lists in (_PEER, _MORE):
            for standard, names in lists.items():
                found = base if base in names else name if name in names else None
                if found is not None and ("." not in base or standard == BINARY):
                    return standard, f"list of the {standard} standard: {found}"
    return BENCHMARK, "every API that no list names"
