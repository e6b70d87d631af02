"""The names that torch's own lists do not settle: which of them compute, and which are not about values at all."""

from __future__ import annotations


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Arithmetic, comparison, indexing and conversion to a Python number; every other dunder is about the object.
DUNDERS = frozenset(
    f"__{name}__"
    for name in _words(
        """
        abs add and bool complex contains div eq float floordiv ge getitem gt iadd iand idiv ifloordiv ilshift imod
        imul index int invert ior ipow irshift isub itruediv ixor le len long lshift lt matmul mod mul ne neg nonzero
        or pos pow radd rand rdiv reversed rfloordiv rlshift rmatmul rmod rmul ror rpow rrshift rshift rsub rtruediv
        rxor setitem sub truediv xor
        """
    )
)

# torch's list of ignored functions holds those that take no tensor; these of them compute something.
CREATORS = _words(
    """
    arange as_tensor asarray bartlett_window blackman_window can_cast empty empty_permuted empty_strided eye
    fftfreq fill full hamming_window hann_window hardsigmoid hardswish kaiser_window linspace logspace new_empty
    new_empty_strided new_full new_ones new_tensor new_zeros normal ones promote_types rand rand_like randint
    randint_like randn randn_like randperm range result_type rfftfreq scalar_tensor sigmoid tanh tensor
    tril_indices triu_indices unflatten upsample upsample_bilinear upsample_nearest vander zeros
    """
)

# Native functions that compute and that torch's list does not name.
NATIVE = _words(
    """
    _addmm_activation _amp_foreach_non_finite_check_and_unscale_ _amp_update_scale_ _batch_norm_impl_index
    _convolution _grouped_mm _int_mm _log_softmax _log_softmax_backward_data _native_batch_norm_legit
    _safe_softmax _scaled_dot_product_attention_math _scaled_dot_product_cudnn_attention
    _scaled_dot_product_efficient_attention _scaled_dot_product_flash_attention
    _scaled_dot_product_flash_attention_for_cpu _scaled_grouped_mm _scaled_mm _softmax _softmax_backward_data
    _trilinear _weight_norm _weight_norm_interface embedding_renorm_ grouped_mm scaled_grouped_mm scaled_mm
    segment_reduce zero_
    """
)

_REFUSED = {
    "reaches storage that the bundle does not hold": _words(
        """
        as_strided as_strided_ as_strided_copy as_strided_scatter
        """
    ),
    "is about memory": _words(
        """
        _efficientzerotensor _pin_memory _resize_output _resize_output_ const_data_ptr data data_ptr from_file is_pinned
        is_set_to is_shared pin_memory record_stream resize resize_ resize_as resize_as_ resize_as_sparse_ set set_ set_data
        share_memory_ sparse_resize_ sparse_resize_and_clear_ storage storage_offset storage_type untyped_storage
        """
    ),
    "is about the autograd graph": _words(
        """
        _backward _fw_primal _is_view _make_dual _unpack_dual _version backward is_leaf output_nr register_hook
        register_post_accumulate_grad_hook requires_grad_ retain_grad
        """
    ),
    "runs a Python function for each element": _words(
        """
        apply_ map2_ map_
        """
    ),
    "is about the object, not about values": _words(
        """
        _autocast_to_full_precision _autocast_to_reduced_precision _clear_non_serializable_cached_data align_as
        align_to autocast cuda_ dim_order get_device has_names ipu is_contiguous is_distributed is_inference item_
        module_load mtia numpy qscheme refine_names rename rename_ stride to_mkldnn
        """
    ),
    "computes nothing": _words(
        """
        _assert_async _assert_scalar _assert_tensor_metadata _functional_assert_async _functional_assert_scalar
        _functional_sym_constrain_range _make_dep_token _print sym_constrain_range sym_constrain_range_for_size
        """
    ),
}
# Why a name that may stand in torch's lists is refused all the same.
WHY_REFUSED = {name: why for why, names in _REFUSED.items() for name in names}

# Types of calls that nothing here can run.
NO_REFERENCE = {
    "Distributed": "a collective needs the other ranks",
    "Custom": "a custom operator has no reference here; fused_ops.register adds one under an NPU name",
}
