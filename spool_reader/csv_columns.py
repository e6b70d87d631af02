"""Columns of the four CSV files: the ecosystem's names and order, ours after them, and English names for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

# Key in our rows, name in the ecosystem's files, name for people.
Columns = Sequence[tuple[str, str, str]]

RESULT: Columns = (
    ("api", "API name", "API name"),
    ("forward", "Forward Test Success", "Forward Test Success"),
    ("backward", "Backward Test Success", "Backward Test Success"),
    ("message", "Message", "Message"),
)

DETAILS: Columns = (
    ("name", "API Name", "API Name"),
    ("bench_dtype", "Bench Dtype", "Bench Dtype"),
    ("dtype", "DEVICE Dtype", "DEVICE Dtype"),
    ("shape", "Shape", "Shape"),
    ("cosine", "余弦相似度", "Cosine similarity"),
    ("max_abs_err", "最大绝对误差", "Max abs error"),
    ("hundredth", "双百指标", "Hundredth ratio"),
    ("thousandth", "双千指标", "Thousandth ratio"),
    ("ten_thousandth", "双万指标", "Ten-thousandth ratio"),
    ("error_rate", "二进制一致错误率", "Binary error rate"),
    ("eb", "误差均衡性", "Error balance"),
    ("rmse", "均方根误差", "RMSE"),
    ("small_value_share", "小值域错误占比", "Small-value error share"),
    ("max_rel_err", "相对误差最大值", "Max relative error"),
    ("mean_rel_err", "相对误差平均值", "Mean relative error"),
    ("inf_nan_share", "inf/nan错误率", "Inf/nan error share"),
    ("rel_err_share", "相对误差错误率", "Relative error share"),
    ("abs_err_share", "绝对误差错误率", "Absolute error share"),
    ("max_ulp", "ULP误差最大值", "Max ULP error"),
    ("mean_ulp", "ULP误差平均值", "Mean ULP error"),
    ("ulp_share", "ULP误差大于阈值占比", "Share of ULP errors above threshold"),
    ("status", "Status", "Status"),
    ("message", "Message", "Message"),
)

COMPARE_DETAILS: Columns = (
    ("name", "API Name", "API Name"),
    ("small_value_ratio", "小值域错误比值", "Small-value error ratio"),
    ("small_value_status", "小值域判定结果", "Small-value status"),
    ("rmse_ratio", "均方根误差比值", "RMSE ratio"),
    ("rmse_status", "均方根误差判定结果", "RMSE status"),
    ("max_rel_ratio", "相对误差最大值比值", "Max relative error ratio"),
    ("max_rel_status", "相对误差最大值判定结果", "Max relative error status"),
    ("mean_rel_ratio", "相对误差平均值比值", "Mean relative error ratio"),
    ("mean_rel_status", "相对误差平均值判定结果", "Mean relative error status"),
    ("eb_ratio", "误差均衡性比值", "Error balance ratio"),
    ("eb_status", "误差均衡性判定结果", "Error balance status"),
    ("inf_nan_share", "inf/nan错误率", "Inf/nan error share"),
    ("inf_nan_status", "inf/nan判定结果", "Inf/nan status"),
    ("rel_err_share", "相对误差错误率", "Relative error share"),
    ("rel_err_status", "相对误差判定结果", "Relative error status"),
    ("abs_err_share", "绝对误差错误率", "Absolute error share"),
    ("abs_err_status", "绝对误差判定结果", "Absolute error status"),
    ("error_rate", "二进制一致错误率", "Binary error rate"),
    ("error_rate_status", "二进制一致错误率判定结果", "Binary error rate status"),
    ("mean_ulp", "ULP误差平均值", "Mean ULP error"),
    ("ulp_share", "ULP误差大于阈值占比", "Share of ULP errors above threshold"),
    ("ulp_share_ratio", "ULP误差大于阈值占比比值", "Ratio of shares of ULP errors above threshold"),
    ("ulp_status", "ULP误差判定结果", "ULP status"),
    ("thousandth", "双千指标", "Thousandth ratio"),
    ("thousandth_status", "双千指标判定结果", "Thousandth status"),
    ("result", "比对结果", "Result"),
    ("algorithm", "比对算法", "Algorithm"),
    ("message", "Message", "Message"),
)

_STANDARD = (
    ("standard", "Standard", "Standard"),
    ("standard_status", "Standard Status", "Standard Status"),
    ("verdict", "Verdict", "Verdict"),
)
CALL: Columns = (
    ("step", "Step", "Step"),
    ("rank", "Rank", "Rank"),
    ("seq", "Seq", "Seq"),
    ("phase", "Phase", "Phase"),
    ("origin", "Origin", "Origin"),
    *_STANDARD,
    ("mode", "Mode", "Mode"),
    ("session", "Session", "Session"),
)
OUTPUT: Columns = (
    *CALL,
    ("path", "Output", "Output"),
    ("ratio", "Worst Ratio", "Worst Ratio"),
    ("worst_index", "Worst Index", "Worst Index"),
    ("worst_device", "Worst Device Value", "Worst Device Value"),
    ("worst_reference", "Worst Bench Value", "Worst Bench Value"),
)
OVERVIEW = (
    *("Cosine", "EucDist", "MaxAbsErr", "MaxRelativeErr", "One Thousandth Err Ratio", "Five Thousandth Err Ratio"),
    *("NPU Max", "NPU Min", "NPU Mean", "NPU L2 Norm", "Bench Max", "Bench Min", "Bench Mean", "Bench L2 Norm"),
    *("Max diff", "Min diff", "Mean diff", "L2 Norm diff"),
    *("Max RelativeErr", "Min RelativeErr", "Mean RelativeErr", "Norm RelativeErr", "Result"),
    *("NPU CRC-32", "Bench CRC-32", "CRC-32 Result", "Accuracy Reached or Not", "Flag"),
)

ALGORITHMS: Mapping[str, str] = {
    "benchmark": "标杆比对法",
    "ULP": "ULP误差比对法",
    "binary consistency": "二进制一致法",
    "absolute threshold": "绝对阈值法",
    "thousandth": "双千指标法",
    "accumulative error": "累积误差比对法",
}


def titles(columns: Columns, language: str) -> list[str]:
    """The header of these columns in `zh` (the ecosystem's names) or `en`."""
    return [english if language == "en" else chinese for _, chinese, english in columns]


def keys(columns: Columns) -> list[str]:
    """The keys of these columns in their order."""
    return [key for key, _, _ in columns]


def keys_by_title(columns: Columns) -> dict[str, str]:
    """Key of a column by its name in either language."""
    return {title: key for key, *both in columns for title in both}
