"""From a result row to the records of the CSV files: plain dictionaries by column key."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from comparators.overview import overview

from .csv_columns import ALGORITHMS
from .rows import number

BLANK = " "
_WORDS = {"skip": "SKIP"}
_LADDER = ("cosine", "max_abs_err", "hundredth", "thousandth", "ten_thousandth")
# Metric of a check, the column of its status; ratios of the benchmark standard carry the same name as their check.
CHECKED: Mapping[str, str] = {
    "small_value_ratio": "small_value_status",
    "rmse_ratio": "rmse_status",
    "max_rel_ratio": "max_rel_status",
    "mean_rel_ratio": "mean_rel_status",
    "inf_nan_share": "inf_nan_status",
    "rel_err_share": "rel_err_status",
    "abs_err_share": "abs_err_status",
    "error_rate": "error_rate_status",
    "thousandth": "thousandth_status",
    "eb": "eb_status",
}
_ULP = ("mean_ulp", "ulp_share", "ulp_share_ratio")


def result_record(row: Mapping[str, Any], status_key: str) -> dict[str, Any]:
    """The row of a result file; `status_key` says whose word it is: `status` (ladder) or `standard_status`."""
    status = word(row.get(status_key) or row["verdict"])
    backward = row.get("phase") == "backward"
    return {
        **_call(row),
        "api": row["api"],
        "forward": BLANK if backward else status,
        "backward": status if backward else BLANK,
        "message": row.get("message") or BLANK,
    }


def detail_records(row: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The rows of a details file: one for every output, one for a call that was not judged."""
    for output in _outputs(row):
        metrics = {name: _plain(value) for name, value in (output.get("metrics") or {}).items()}
        record = {**_call(row), **_output(row, output)}
        record.update({name: value for name, value in metrics.items() if name not in _LADDER})
        looked = output.get("looked") or ()
        shown = {*looked, "thousandth"} if output.get("standard") == "thousandth" else set(looked)
        record.update({name: metrics.get(name) for name in _LADDER if name in shown})
        record["status"] = word(output["status"])
        record["message"] = output.get("message") or BLANK
        record.update(overview(metrics) or {"Accuracy Reached or Not": _no_accuracy(output)})
        yield record


def compare_records(row: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The rows of a compare details file."""
    for output in _outputs(row):
        record = {**_call(row), **_output(row, output)}
        for name, value, _, passed in output.get("checks") or ():
            if name in CHECKED or name in _ULP:
                record["eb_ratio" if name == "eb" else name] = _plain(value)
            if name in CHECKED:
                record[CHECKED[name]] = "pass" if passed else "error"
        if output.get("standard") == "ULP" and output.get("checks"):
            record["ulp_status"] = word(output["standard_status"])
            record["mean_ulp"] = _plain((output.get("metrics") or {}).get("mean_ulp"))
        record.update(_balance(output))
        record["result"] = word(output.get("standard_status") or output["verdict"])
        record["algorithm"] = ALGORITHMS.get(output.get("standard") or "", BLANK)
        record["message"] = output.get("message") or BLANK
        yield record


def cell(value: Any) -> Any:
    """A value as the files show it: floats with 14 decimals, a space for nothing."""
    if value is None or value == "":
        return BLANK
    if isinstance(value, float):
        return f"{value:.14f}"
    if isinstance(value, (list, tuple)):
        return str(tuple(value))
    return value


def word(status: str) -> str:
    """A status in the files' words."""
    return _WORDS.get(status, status)


def output_name(api: str, phase: str, index: int) -> str:
    """`Torch.matmul.7.forward.output.0`."""
    return f"{api}.{phase}.output.{index}"


def _outputs(row: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The outputs of a call; one that stands for all where the call was not judged."""
    found = list(row.get("outputs") or ())
    if found:
        return found
    keys = ("verdict", "standard", "message")
    return [{"index": 0, "status": row["verdict"], **{key: row.get(key) for key in keys}}]


def _call(row: Mapping[str, Any]) -> dict[str, Any]:
    names = ("step", "rank", "seq", "phase", "origin", "standard", "standard_status", "verdict", "mode", "session")
    return {name: row.get(name) for name in names}


def _output(row: Mapping[str, Any], output: Mapping[str, Any]) -> dict[str, Any]:
    worst = output.get("worst") or {}
    return {
        "name": output_name(row["api"], row.get("phase") or "forward", int(output.get("index", 0))),
        "bench_dtype": _dtype(output.get("bench_dtype")),
        "dtype": _dtype(output.get("dtype")),
        "shape": tuple(output["shape"]) if output.get("dtype") and output.get("shape") is not None else BLANK,
        "path": output.get("path"),
        "standard": output.get("standard"),
        "standard_status": output.get("standard_status") or output["verdict"],
        "verdict": output["verdict"],
        "ratio": number(output.get("ratio")),
        "worst_index": worst.get("index"),
        "worst_device": _plain(worst.get("device")),
        "worst_reference": _plain(worst.get("reference")),
    }


_PYTHON_TYPES = frozenset({"bool", "int", "float", "str"})


def _dtype(name: str | None) -> str:
    """`torch.float16`; a Python value's type as Python prints it."""
    if not name:
        return BLANK
    return f"<class '{name}'>" if name in _PYTHON_TYPES else f"torch.{name}"


def _balance(output: Mapping[str, Any]) -> dict[str, Any]:
    """The error balance of the benchmark standard: shown with its status, not judged."""
    if output.get("standard") != "benchmark" or not output.get("checks"):
        return {}
    limits = output.get("limits") or {}
    device = number((output.get("metrics") or {}).get("eb"))
    reference = number((output.get("reference_metrics") or {}).get("eb")) or 0.0
    if device is None or "min_err" not in limits:
        return {}
    ratio = abs(device) / max(abs(reference), limits["min_err"])
    return {"eb_ratio": ratio, "eb_status": "pass" if ratio <= limits.get("eb_ratio", 2.0) else "error"}


def _plain(value: Any) -> Any:
    """A number of a row as a number: nan and inf are strings there."""
    if isinstance(value, str):
        return float(value) if value in ("nan", "inf", "-inf") else value
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return value
    return float(value) if math.isfinite(value) and not isinstance(value, int) else value


def _no_accuracy(output: Mapping[str, Any]) -> str:
    message = output.get("message") or ""
    return "Unmatched" if message.startswith("shape") else "None"
