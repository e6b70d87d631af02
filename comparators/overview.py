"""The comparison columns of the peer's dump comparison: differences of statistics, accuracy reached, flags.

They inform; the verdict decides. Replay gives both sides the same inputs, so the flags' conditions on inputs hold with
a One Thousandth Err Ratio and a cosine of 1 and an absolute error of 0.
"""

from __future__ import annotations

import math

from .metrics import Metrics, Value, number

_SIDES = (("max", "Max"), ("min", "Min"), ("mean", "Mean"), ("norm", "L2 Norm"))


def overview(metrics: Metrics) -> dict[str, Value]:
    """The columns of one float output by their names; empty where there are no metrics of values."""
    if "device_max" not in metrics:
        return {}
    found: dict[str, Value] = {
        "Cosine": _cosine(metrics),
        "EucDist": metrics["euclidean_distance"],
        "MaxAbsErr": metrics["max_abs_err"],
        "MaxRelativeErr": metrics["max_relative_err"],
        "One Thousandth Err Ratio": metrics["one_thousandth_ratio"],
        "Five Thousandth Err Ratio": metrics["five_thousandth_ratio"],
    }
    relative: list[float] = []
    for key, name in _SIDES:
        device, bench = number(metrics, f"device_{key}"), number(metrics, f"bench_{key}")
        found[f"NPU {name}"], found[f"Bench {name}"] = device, bench
        found[f"{name} diff"] = device - bench
        relative.append(_relative(device - bench, bench))
    for (_, name), share in zip(_SIDES, relative, strict=True):
        found[f"{name.removeprefix('L2 ')} RelativeErr"] = share * 100
    found["Result"] = "Warning" if any(share > 0.5 for share in relative) else ""
    found["NPU CRC-32"], found["Bench CRC-32"] = metrics.get("device_crc32"), metrics.get("bench_crc32")
    found["CRC-32 Result"] = _checksums(metrics)
    found["Accuracy Reached or Not"] = _accuracy(metrics)
    found["Flag"] = flag(metrics)
    return found


def flag(metrics: Metrics) -> str:
    """`red`, `yellow` or nothing, by the rules for an output whose inputs agree."""
    share, cosine = number(metrics, "one_thousandth_ratio"), _cosine(metrics)
    device, bench = number(metrics, "device_max"), number(metrics, "bench_max")
    of_maximum = abs(device - bench) / max(0.01, bench)
    if metrics.get("device_special") or number(metrics, "max_abs_err") > 1e10 or share < 0.6 or of_maximum > 0.5:
        return "red"
    return "yellow" if share < 0.9 or of_maximum > 0.1 or cosine < 0.9 else ""


def _cosine(metrics: Metrics) -> float:
    """N·B / (|N| |B|) as it stands, for one element too; two sides without length agree, one disagrees."""
    known = metrics.get("cosine")
    if known is not None:
        return number(metrics, "cosine")
    device, bench = number(metrics, "device_norm"), number(metrics, "bench_norm")
    if device == 0 or bench == 0:
        return 1.0 if device == bench else 0.0
    if metrics.get("elements") == 1:
        return math.copysign(1.0, number(metrics, "device_max") * number(metrics, "bench_max"))
    return 1.0 if metrics.get("cosine_computable") else 0.0


def _accuracy(metrics: Metrics) -> str:
    if metrics.get("set_aside"):
        return "No"
    cosine, error = _cosine(metrics), number(metrics, "max_abs_err")
    bad = math.isnan(cosine) or math.isnan(error) or (cosine < 0.99 and error > 0.001) or cosine < 0.9 or error > 1
    return "No" if bad else "Yes"


def _checksums(metrics: Metrics) -> str:
    ours, theirs = metrics.get("device_crc32"), metrics.get("bench_crc32")
    if ours is None or theirs is None:
        return ""
    return "Pass" if ours == theirs else "Different"


def _relative(difference: float, bench: float) -> float:
    if bench == 0:
        return 0.0 if difference == 0 else math.inf
    return abs(difference / bench)
