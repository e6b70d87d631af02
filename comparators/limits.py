"""The limits of the three shipped profiles: one table, keyed by dtype, API level and name.

Sources: mindstudio-probe 8.3.0 (`StandardConfig` and its documentation) for `default` and `msprobe-8.3`, its successor
and the vendor's commercial standard for `cann`. float64 and complex use the rows of float32. The float8 rows are ours,
by the same rule as float16's: rtol one unit in the last place, small values the smallest normal number.
"""

from __future__ import annotations

from collections.abc import Mapping

# What each limit means; the keys are every name that a profile may set.
MEANING: Mapping[str, str] = {
    "small_value": "elements with |bench| up to this are small values",
    "small_value_atol": "absolute standard: largest absolute error of a small value",
    "benchmark_atol": "benchmark standard: largest absolute error of a small value",
    "rtol": "absolute standard: largest relative error of an element",
    "accumulative_bound": "accumulative standard: largest relative, and small-value absolute, error",
    "accumulative_small_value": "accumulative standard: its small_value",
    "min_err": "floor of the reference's error in every ratio",
    "eb_limit": "accumulative standard: largest error balance",
    "ulp_threshold": "ULP errors above this are counted",
    "ulp_mean": "ULP standard: mean ULP error below this passes (0: not used)",
    "ulp_share": "ULP standard: share of counted elements below this passes",
    "ulp_share_ratio": "ULP standard: device share / reference share below this passes",
    "thousandth_share": "thousandth standard: least share of elements within 0.001",
    "small_value_ratio": "benchmark standard: device / reference of the small-value error share",
    "rmse_ratio": "benchmark standard: device / reference of the RMSE",
    "max_rel_ratio": "benchmark standard: device / reference of the largest relative error",
    "mean_rel_ratio": "benchmark standard: device / reference of the mean relative error",
    "eb_ratio": "benchmark standard: device / reference of the error balance (shown, not judged)",
    "cosine": "ladder: cosine similarity above this is met",
    "max_abs_err": "ladder: largest absolute error below this passes at once",
    "outlier_factor": "outlier rule: how many times the yardstick one element may err",
    "outlier_ulp": "outlier rule: its yardstick in ULPs of the largest bench value",
    "internal_ulp": "rounding inside the call: errors up to this many ULPs of the largest bench value are noise",
}

COMMON: Mapping[str, float] = {
    "accumulative_small_value": 1.0,
    "ulp_share_ratio": 1.0,
    "thousandth_share": 0.999,
    "small_value_ratio": 2.0,
    "rmse_ratio": 2.0,
    "max_rel_ratio": 10.0,
    "mean_rel_ratio": 2.0,
    "eb_ratio": 2.0,
    "cosine": 0.99,
    "max_abs_err": 0.001,
    "outlier_factor": 10.0,
    "internal_ulp": 0.0,
}

_HALF = {
    "small_value": 2.0**-10,
    "small_value_atol": 2.0**-16,
    "benchmark_atol": 2.0**-16,
    "ulp_threshold": 1.0,
    "ulp_mean": 0.0,
    "ulp_share": 0.001,
    "outlier_ulp": 4.0,
}

DTYPE_ROWS: Mapping[str, Mapping[str, float]] = {
    "float16": {
        **_HALF,
        "rtol": 2.0**-10,
        "accumulative_bound": 2.0**-8,
        "min_err": 2.0**-11,
        "eb_limit": 2.0**-20,
    },
    "bfloat16": {
        **_HALF,
        "rtol": 2.0**-8,
        "accumulative_bound": 2.0**-7,
        "min_err": 2.0**-8,
        "eb_limit": 2.0**-7,
    },
    "float32": {
        "small_value": 2.0**-20,
        "small_value_atol": 2.0**-30,
        "benchmark_atol": 2.0**-30,
        "rtol": 2.0**-20,
        "accumulative_bound": 2.0**-11,
        "min_err": 2.0**-14,
        "eb_limit": 2.0**-14,
        "ulp_threshold": 32.0,
        "ulp_mean": 64.0,
        "ulp_share": 0.05,
        "outlier_ulp": 256.0,
    },
    "float8_e4m3": {
        **_HALF,
        "small_value": 2.0**-6,
        "small_value_atol": 2.0**-9,
        "benchmark_atol": 2.0**-9,
        "rtol": 2.0**-3,
        "accumulative_bound": 2.0**-2,
        "min_err": 2.0**-4,
        "eb_limit": 2.0**-2,
    },
    "float8_e5m2": {
        **_HALF,
        "small_value": 2.0**-14,
        "small_value_atol": 2.0**-16,
        "benchmark_atol": 2.0**-16,
        "rtol": 2.0**-2,
        "accumulative_bound": 2.0**-1,
        "min_err": 2.0**-3,
        "eb_limit": 2.0**-1,
    },
}

# The 1e-16 of the peer's code where its documentation says 2^-16.
PEER_ROWS: Mapping[str, Mapping[str, float]] = {
    "float16": {"benchmark_atol": 1e-16},
    "bfloat16": {"small_value_atol": 1e-16, "benchmark_atol": 1e-16},
}

CANN_ROWS: Mapping[str, Mapping[str, float]] = {
    "float16": {"small_value": 2.0**-11},
    "bfloat16": {"small_value": 2.0**-8},
    "float32": {"small_value": 2.0**-14},
}


def _level(max_rel: float, mean_rel: float, rmse: float) -> dict[str, float]:
    return {"max_rel_ratio": max_rel, "mean_rel_ratio": mean_rel, "rmse_ratio": rmse, "small_value_ratio": 2.0}


CANN_LEVEL_0 = _level(10.0, 2.0, 2.0)
_CANN_LEVEL_1 = (
    "embedding npu_fusion_attention npu_fusion_attention_grad scatter_ scatter_add_",
    _level(5.0, 1.5, 1.5),
)
_CANN_LEVEL_2 = (
    "addmm mm matmul index sum layer_norm gelu one_hot nonzero npu_cross_entropy_loss npu_cross_entropy_loss_backward "
    "npu_rms_norm npu_rms_norm_backward",
    _level(2.0, 1.2, 1.2),
)
CANN_APIS: Mapping[str, Mapping[str, float]] = {
    name: row for names, row in (_CANN_LEVEL_1, _CANN_LEVEL_2) for name in names.split()
}

# Kernels of attention keep probabilities in half precision between their two products.
_ATTENTION = (
    "scaled_dot_product_attention _scaled_dot_product_flash_attention _scaled_dot_product_flash_attention_for_cpu "
    "_scaled_dot_product_efficient_attention multi_head_attention_forward npu_fusion_attention npu_fusion_attention_v2 "
    "npu_fusion_attention_v3 npu_fusion_attention_grad npu_fusion_attention_grad_v2 npu_fusion_attention_grad_v3 "
    "_scaled_dot_product_flash_attention_backward _scaled_dot_product_flash_attention_for_cpu_backward "
    "_scaled_dot_product_efficient_attention_backward"
)
DEFAULT_API_DTYPES: Mapping[tuple[str, str], Mapping[str, float]] = {
    (name, dtype): {"internal_ulp": 1.0} for name in _ATTENTION.split() for dtype in ("float16", "bfloat16")
}
