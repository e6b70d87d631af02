"""Bad input: an error that names operator, argument, value and rule."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from fused_examples import BY_NAME
from fused_make import Make

import fused_ops
from fused_ops import InvalidArgument, UnsupportedArgument

torch.set_num_threads(1)


def t(*shape: int) -> torch.Tensor:
    return torch.zeros(shape)


MASK = torch.zeros(3, 5, dtype=torch.bool)
ATTENTION = "npu_fusion_attention"
# operator, changes to its example, argument in the message, rule in the message
CASES: tuple[tuple[str, dict[str, Any], str, str], ...] = (
    (ATTENTION, {"keep_prob": 0.0}, "keep_prob", r"\(0, 1\]"),
    (ATTENTION, {"keep_prob": 1.5}, "keep_prob", r"\(0, 1\]"),
    (ATTENTION, {"input_layout": "BDNS"}, "input_layout", "BSH, SBH"),
    (ATTENTION, {"input_layout": "BSH"}, "query", "3 dimensions"),
    (ATTENTION, {"head_num": 0}, "head_num", "positive"),
    (ATTENTION, {"head_num": 3, "sink": None}, "head_num", "number of heads, 4"),
    (ATTENTION, {"sparse_mode": 7}, "sparse_mode", "0, 1, 2, 3, 4, 5, 6"),
    (ATTENTION, {"sparse_mode": 9}, "sparse_mode", "must be one of"),
    (ATTENTION, {"sparse_mode": 6}, "prefix", "required"),
    (ATTENTION, {"sparse_mode": 6, "prefix": [1]}, "prefix", "one entry per batch"),
    (ATTENTION, {"sparse_mode": 4, "pre_tockens": -3, "next_tockens": 1}, "pre_tockens", "band is empty"),
    (ATTENTION, {"key": t(2, 3, 5, 8), "value": t(2, 3, 5, 6)}, "key", "3 heads must divide"),
    (ATTENTION, {"key": t(1, 2, 5, 8)}, "key", "batch size 2"),
    (ATTENTION, {"key": t(2, 2, 5, 7)}, "key", "head size 8"),
    (ATTENTION, {"value": t(2, 2, 4, 6)}, "value", "key's batch size"),
    (ATTENTION, {"atten_mask": t(3, 5), "sparse_mode": 1}, "atten_mask", "bool or uint8"),
    (ATTENTION, {"atten_mask": MASK[:2], "sparse_mode": 1}, "atten_mask", "broadcast"),
    (ATTENTION, {"atten_mask": MASK.expand(4, 3, 5), "sparse_mode": 1}, "atten_mask", "shape"),
    (ATTENTION, {"pse": t(2, 4, 2, 5)}, "pse", "or 1, 5"),
    (ATTENTION, {"sink": t(3)}, "sink", r"\[4\]"),
    (ATTENTION, {"softmax_layout": "TND"}, "softmax_layout", "input_layout"),
    (ATTENTION, {"softmax_layout": "NTD"}, "softmax_layout", "''"),
    (ATTENTION, {"keep_prob": 0.5, "dropout_mask": t(16)}, "dropout_mask", "uint8"),
    (ATTENTION, {"keep_prob": 0.5, "dropout_mask": t(14).to(torch.uint8)}, "dropout_mask", "120 bits"),
    ("npu_fusion_attention_v2", {"pse_type": 4}, "pse_type", "0, 1, 2 or 3"),
    ("npu_fusion_attention_v2", {"pse_type": 2, "pse": t(3)}, "pse", "slopes"),
    ("npu_fusion_attention_v2", {"query_rope": t(2, 4, 3, 2)}, "key_rope", "together"),
    ("npu_fusion_attention_v3", {"actual_seq_qlen": None}, "actual_seq_qlen", "required"),
    ("npu_fusion_attention_v3", {"actual_seq_kvlen": torch.tensor([5])}, "actual_seq_kvlen", "as many entries"),
    ("npu_fusion_attention_v3", {"actual_seq_qlen": torch.tensor([4, 3])}, "actual_seq_qlen", "not decrease"),
    ("npu_fusion_attention_v3", {"actual_seq_qlen": torch.tensor([2, 9])}, "actual_seq_qlen", "T = 5"),
    ("npu_fusion_attention_v3", {"sparse_mode": 5}, "sparse_mode", "TND"),
    ("npu_fusion_attention_v3", {"sparse_mode": 7, "pse": t(4)}, "pse", "not allowed"),
    ("npu_fusion_attention_grad", {"dy": t(2, 4, 3, 8)}, "dy", "2, 4, 3, 6"),
    ("npu_fusion_attention_grad", {"softmax_max": t(2, 4, 3, 8)}, "softmax_sum", "together"),
    ("npu_fusion_attention_grad", {"softmax_max": t(9), "softmax_sum": t(9)}, "softmax_max", "2, 4, 3, 8"),
    ("npu_swiglu", {"self": t(3, 4)}, "self", "even, it is 3"),
    ("npu_swiglu", {"dim": 2}, "dim", "2 dimensions"),
    ("npu_swiglu_backward", {"grad_output": t(2, 5)}, "grad_output", "shape"),
    ("npu_gelu_mul", {"input": t(2, 3)}, "input", "even"),
    ("npu_gelu", {"approximate": "erf"}, "approximate", "'none' or 'tanh'"),
    ("npu_geglu", {"approximate": 2}, "approximate", "0 .erf."),
    ("npu_clipped_swiglu", {"x": t(4)}, "x", "more than one dimension"),
    ("npu_layer_norm_eval", {"normalized_shape": [3]}, "normalized_shape", "last dimensions"),
    ("npu_layer_norm_eval", {"weight": t(4)}, "weight", "12 elements"),
    ("npu_rms_norm", {"gamma": t(2, 4)}, "gamma", "last dimensions"),
    ("npu_rms_norm", {"gamma": torch.tensor(1.0)}, "gamma", "last dimensions"),
    ("npu_rms_norm_backward", {"dy": t(2, 3, 5)}, "dy", "shape"),
    ("npu_rms_norm_backward", {"rstd": t(2)}, "rstd", "6 values"),
    ("npu_add_rms_norm", {"x2": t(2, 3, 5)}, "x2", "shape"),
    ("npu_group_norm_silu", {"group": 3}, "group", "divide the 4"),
    ("npu_group_norm_silu", {"group": 0}, "group", "divide"),
    ("npu_group_norm_silu", {"input": t(4)}, "input", "N and C"),
    ("npu_group_norm_silu", {"weight": t(3)}, "weight", "4 elements"),
    ("npu_rotary_mul", {"rotary_mode": "full"}, "rotary_mode", "half, interleave"),
    ("npu_rotary_mul", {"self": t(2, 3, 4, 7), "r1": t(7), "r2": t(7)}, "self", "divisible by 2"),
    ("npu_rotary_mul", {"r1": t(1, 2, 1, 8)}, "r1", "broadcast"),
    ("npu_rotary_mul", {"rotate": t(4, 4)}, "rotate", r"\[8, 8\]"),
    ("npu_apply_rotary_pos_emb", {"layout": "NBSD"}, "layout", "BSND"),
    ("npu_apply_rotary_pos_emb", {"rotary_mode": "interleave-half"}, "rotary_mode", "quarter"),
    ("npu_apply_rotary_pos_emb", {"cos": t(2, 3, 1, 10), "sin": t(2, 3, 1, 10)}, "cos", "not larger"),
    ("npu_mrope", {"rotary_mode": "interleaved"}, "rotary_mode", "'interleave'"),
    ("npu_mrope", {"positions": torch.full((3, 5), 7)}, "positions", r"\[0, 7\)"),
    ("npu_mrope", {"mrope_section": [1, 1]}, "mrope_section", "3 lengths that sum to 3"),
    ("npu_scaled_masked_softmax", {"mask": t(2, 1, 4, 5)}, "mask", "bool"),
    ("npu_scaled_masked_softmax", {"mask": torch.ones(3, 1, 4, 5).bool()}, "mask", "broadcast"),
    ("npu_dropout_with_add_softmax", {"prob": 1.0}, "prob", r"\[0, 1\)"),
    ("npu_cross_entropy_loss", {"reduction": "average"}, "reduction", "mean, sum, none"),
    ("npu_cross_entropy_loss", {"target": torch.tensor([0, 1, 2, 5])}, "target", r"\[0, 5\)"),
    ("npu_cross_entropy_loss", {"label_smoothing": 1.0}, "label_smoothing", r"\[0, 1\)"),
    ("npu_softmax_cross_entropy_with_logits", {"labels": t(4, 4)}, "labels", "shape"),
    ("npu_linear", {"input": t(2, 3, 4)}, "input", "2 dimensions"),
    ("npu_linear", {"weight": t(4, 5)}, "weight", r"\[N, 4\]"),
    ("npu_bmmV2", {"mat2": t(2, 5, 5)}, "mat2", "4 columns"),
    ("npu_bmmV2", {"output_sizes": [3, 3, 5]}, "output_sizes", "sums"),
    ("npu_transpose_batchmatmul", {"perm_x1": [0, 1, 1]}, "perm_x1", "permutation"),
    ("npu_transpose_batchmatmul", {"batch_split_factor": 5}, "batch_split_factor", "divide"),
    ("npu_grouped_matmul", {"group_list": torch.tensor([2, 1])}, "group_list", "not decrease"),
    ("npu_grouped_matmul", {"group_list": torch.tensor([2, 9])}, "group_list", "5 rows"),
    ("npu_grouped_matmul", {"split_item": 4}, "split_item", "0, 1, 2 or 3"),
    ("npu_grouped_matmul", {"group_type": 1}, "group_type", "-1, 0 or 2"),
    ("npu_conv2d", {"groups": 3}, "groups", "divide the 4"),
    ("npu_conv2d", {"stride": [0]}, "stride", "not below 1"),
    ("npu_confusion_transpose", {"perm": [0, 1, 1]}, "perm", "permutation"),
    ("npu_confusion_transpose", {"perm": [0, 1]}, "perm", "permutation"),
    ("npu_confusion_transpose", {"shape": [5, 5]}, "shape", "24 elements"),
    ("npu_transpose", {"perm": [0, 1, 3]}, "perm", "permutation"),
    ("npu_pad", {"paddings": [1, 1, 1]}, "paddings", "2 pairs"),
    ("npu_pad", {"paddings": [-1, 1]}, "paddings", "not below 0"),
    ("npu_one_hot", {"depth": 0}, "depth", "positive"),
    ("npu_dtype_cast", {"dtype": 99}, "dtype", "dtype numbers"),
    ("npu_sort_v2", {"dim": 2}, "dim", "2 dimensions"),
    ("npu_max", {"dim": -3}, "dim", "2 dimensions"),
    ("npu_moe_gating_top_k_softmax", {"x": t(4)}, "x", "2 or 3"),
    ("npu_moe_gating_top_k_softmax", {"k": 6}, "k", "number of experts, 5"),
    ("npu_moe_gating_top_k_softmax", {"finished": torch.ones(3).bool()}, "finished", "shape"),
    ("npu_moe_gating_top_k", {"group_count": 5}, "group_count", "divide 12"),
    ("npu_moe_gating_top_k", {"k_group": 5}, "k_group", r"\[1, 4\]"),
    ("npu_moe_gating_top_k", {"k": 7}, "k", r"\[1, 6\]"),
    ("npu_moe_gating_top_k", {"norm_type": 2}, "norm_type", "softmax"),
    ("npu_moe_token_permute", {"indices": torch.zeros(3, 2).long()}, "indices", "4 rows"),
    ("npu_moe_token_unpermute", {"probs": t(3, 2)}, "probs", "8 entries"),
    ("npu_moe_token_unpermute", {"padded_mode": True}, "restore_shape", "required"),
    ("npu_moe_init_routing", {"active_num": -1}, "active_num", "negative"),
    ("npu_moe_finalize_routing", {"drop_pad_mode": 4}, "drop_pad_mode", "0, 1, 2 or 3"),
    ("npu_moe_finalize_routing", {"skip1": t(3, 3)}, "skip1", "shape"),
    ("npu_apply_adam", {"m": t(2)}, "m", "var's shape"),
    ("npu_apply_adam_w", {"max_grad_norm": None}, "max_grad_norm", "amsgrad"),
)


@pytest.mark.parametrize(("name", "changes", "argument", "rule"), CASES, ids=lambda item: str(item)[:40])
def test_bad_input(name: str, changes: dict[str, Any], argument: str, rule: str) -> None:
    op = fused_ops.reference(name)
    arguments = {**BY_NAME[name].arguments(), **changes}
    for call in (op, op.golden):
        with pytest.raises(InvalidArgument, match=rf"^{name}: {argument} = .*{rule}"):
            call(**arguments)


UNSUPPORTED: tuple[tuple[str, dict[str, Any], str], ...] = (
    (ATTENTION, {"padding_mask": t(1)}, "padding_mask"),
    ("npu_cross_entropy_loss", {"return_zloss": True}, "return_zloss"),
    ("npu_cross_entropy_loss", {"lse_square_scale_for_zloss": 0.1}, "lse_square_scale_for_zloss"),
    ("npu_scaled_masked_softmax", {"fixed_triu_mask": True}, "fixed_triu_mask"),
    ("npu_moe_gating_top_k", {"renorm": 1}, "renorm"),
    ("npu_moe_gating_top_k", {"input_ids": torch.zeros(3).long()}, "input_ids"),
    ("npu_transpose_batchmatmul", {"scale": t(4)}, "scale"),
    ("npu_grouped_matmul", {"act_type": 1}, "act_type"),
    ("npu_grouped_matmul", {"scale": [t(3)]}, "scale"),
    ("npu_grouped_matmul", {"group_list_type": 2}, "group_list_type"),
    ("npu_grouped_matmul", {"x": [torch.zeros(5, 4, dtype=torch.int8)]}, "x"),
    ("npu_one_hot", {"num_classes": 0}, "num_classes"),
    ("npu_dtype_cast", {"input_dtype": 5}, "input_dtype"),
)


@pytest.mark.parametrize(("name", "changes", "argument"), UNSUPPORTED, ids=lambda item: str(item)[:40])
def test_not_implemented_is_never_ignored(name: str, changes: dict[str, Any], argument: str) -> None:
    with pytest.raises(UnsupportedArgument, match=f"^{name}: {argument} = "):
        fused_ops.reference(name)(**{**BY_NAME[name].arguments(), **changes})


def test_a_mask_that_contradicts_its_band_is_reported() -> None:
    op = fused_ops.reference(ATTENTION)
    m = Make()
    tensors = m.normal(1, 1, 3, 4), m.normal(1, 1, 3, 4), m.normal(1, 1, 3, 4)
    causal = torch.ones(3, 3, dtype=torch.bool).triu(1)
    fits = {"atten_mask": causal, "pre_tockens": 3, "next_tockens": 0}
    wrong = {**fits, "atten_mask": torch.zeros(3, 3, dtype=torch.bool)}
    assert 0 not in op.uncompared(*tensors, 1, "BNSD", **fits)
    assert 0 not in op.uncompared(*tensors, 1, "BNSD", atten_mask=causal)
    reasons = op.uncompared(*tensors, 1, "BNSD", **wrong)
    assert reasons[0] == reasons[1] == reasons[2]
    assert "contract violation" in reasons[0]


def test_unknown_dropout_leaves_the_statistics() -> None:
    op = fused_ops.reference(ATTENTION)
    m = Make(torch.float64)
    tensors = m.normal(1, 1, 3, 4), m.normal(1, 1, 3, 4), m.normal(1, 1, 3, 4)
    dropped, kept = op(*tensors, 1, "BNSD", keep_prob=0.9), op(*tensors, 1, "BNSD")
    assert torch.isnan(dropped[0]).all()
    assert torch.equal(dropped[1], kept[1])
    assert torch.equal(dropped[2], kept[2])
    assert set(op.uncompared(*tensors, 1, "BNSD", keep_prob=0.9)) == {0, 3, 4, 5, 6}
    assert set(op.uncompared(*tensors, 1, "BNSD")) == {3, 4, 5, 6}


def test_gradients_of_angles_that_nobody_asked_for() -> None:
    op = fused_ops.reference("npu_rotary_mul_backward")
    x, angle = t(1, 1, 1, 4), t(1, 1, 1, 4)
    assert set(op.uncompared(x, x, angle, angle)) == {1, 2}
    assert set(op.uncompared(x, x, angle, angle.clone().requires_grad_())) == set()


def test_v_under_amsgrad_is_not_compared() -> None:
    op = fused_ops.reference("npu_apply_adam_w")
    arguments = BY_NAME["npu_apply_adam_w"].arguments()
    assert set(op.uncompared(**arguments)) == {2}
    assert set(op.uncompared(**{**arguments, "amsgrad": None})) == set()
