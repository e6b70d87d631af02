"""Known differences: a reviewed list of errors that are expected, each within its limit and until a version.

::

    {"known": [{"api": "npu_rms_norm", "dtype": "bfloat16", "limit": {"atol": 0.02}, "until": "torch 2.9",
                "reason": "adds epsilon after the root; reported to the vendor"}]}

An error that an entry covers becomes `known`: counted and shown as such, the ladder's and the standard's own words kept.
What no number bounds (a wrong shape, NaN, a missing output) is never covered, nor is an error past the limit.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from spool import ConfigError
from spool.config_schema import Key, nearest, optional, read_json, text, validate

from .rows import SEVERITY, number
from .selection import names_of

ANY = "any"
# These bound every element; with one of them in a limit the statistics over elements need no limits of their own.
ELEMENTWISE = ("atol", "rtol", "error_rate")
METRICS = (
    *ELEMENTWISE,
    *("small_value_ratio", "rmse_ratio", "max_rel_ratio", "mean_rel_ratio", "eb", "inf_nan_share", "rel_err_share"),
    *("abs_err_share", "mean_ulp", "ulp_share", "ulp_share_ratio", "thousandth", "max_abs_err"),
)
# Shares that are good when they are high.
_AT_LEAST = frozenset({"thousandth"})
# What `until` may speak of, by the name under which bundles record it.
_RECORDED = {"torch": "torch", "spool-check": "version"}
_UNTIL = re.compile(rf"({'|'.join(_RECORDED)}) (\d+(?:\.\d+)*)")
_API = re.compile(r"[A-Za-z_][\w.]*", re.ASCII)


@dataclass(frozen=True)
class KnownDifference:
    """One entry of the list; `until` is the first version, of what it names, that must be without the difference."""

    api: str
    dtype: str
    limit: Mapping[str, float]
    reason: str
    until: str | None

    @property
    def label(self) -> str:
        """How rows and reports name it."""
        return f"{self.api} {self.dtype}: {self.reason}"

    def names(self, api: str, output: Mapping[str, Any]) -> bool:
        """Whether it speaks of this output of this call."""
        return self.api in names_of(api) and self.dtype in (ANY, output.get("dtype"))

    def expired(self, producer: Mapping[str, Any]) -> bool:
        """Whether the call was recorded with the version in `until` or a later one."""
        if self.until is None:
            return False
        name, _, version = self.until.partition(" ")
        return _release(producer.get(_RECORDED[name])) >= _release(version)

    def bounds(self, output: Mapping[str, Any]) -> bool:
        """Whether the limit holds for everything that failed in this output."""
        needed = output.get("would_pass") or {}
        bounds_elements = any(name in self.limit for name in ELEMENTWISE)
        for name, written in needed.items():
            value = number(written)
            if name in self.limit:
                if value is None or math.isnan(value) or not self._within(name, value):
                    return False
            elif not bounds_elements and name not in ELEMENTWISE:
                return False
        return not self.limit.keys().isdisjoint(needed)

    def _within(self, name: str, value: float) -> bool:
        return value >= self.limit[name] if name in _AT_LEAST else value <= self.limit[name]


def read_known(path: str | Path) -> tuple[KnownDifference, ...]:
    """The list in a file; ConfigError names the file, the entry, the value, the rule and the remedy."""
    top = validate(read_json(path), _TOP_KEYS, str(path))
    found: dict[tuple[str, str], int] = {}
    entries = []
    for index, item in enumerate(top["known"]):
        entry = KnownDifference(**validate(item, _KEYS, str(path), f"known[{index}]."))
        first = found.setdefault((entry.api, entry.dtype), index)
        if first != index:
            raise ConfigError(
                f"{path}: known[{index}] is about {entry.api} {entry.dtype}, as known[{first}] is; "
                "make one entry of both"
            )
        entries.append(entry)
    return tuple(entries)


def with_known(row: dict[str, Any], known: tuple[KnownDifference, ...], producer: Mapping[str, Any]) -> dict[str, Any]:
    """The row, with verdict `known` if every error in it is covered; entries past their version are named in it."""
    failed = [output for output in row["outputs"] if output["verdict"] == "error"]
    if row["verdict"] != "error" or not failed:
        return row
    covered: list[KnownDifference] = []
    expired: list[str] = []
    for output in failed:
        fitting = [entry for entry in known if entry.names(row["api"], output) and entry.bounds(output)]
        valid = [entry for entry in fitting if not entry.expired(producer)]
        covered += valid[:1]
        expired += [entry.label for entry in fitting if entry not in valid and not valid]
    if len(covered) < len(failed):
        notes = [f"known difference, expired: {label}" for label in dict.fromkeys(expired)]
        return (
            {**row, "known_expired": list(dict.fromkeys(expired)), "notes": [*row["notes"], *notes]} if expired else row
        )
    labels = list(dict.fromkeys(entry.label for entry in covered))
    outputs = [{**output, "verdict": "known"} if output["verdict"] == "error" else output for output in row["outputs"]]
    message = f"known: {'; '.join(labels)}: {row['message']}"
    verdict = max((output["verdict"] for output in outputs), key=SEVERITY.__getitem__)
    return {**row, "verdict": verdict, "known": labels, "message": message, "outputs": outputs}


def _entries(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError
    return value


def _api(value: Any) -> str:
    if not _API.fullmatch(text(value)):
        raise ValueError
    return str(value)


def _dtype(value: Any) -> str:
    name = text(value).removeprefix("torch.")
    known = [ANY, *(str(item).removeprefix("torch.") for item in vars(torch).values() if isinstance(item, torch.dtype))]
    if name not in known:
        raise ValueError(nearest(name, known))
    return name


def _limit(value: Any) -> dict[str, float]:
    if not isinstance(value, dict) or not value:
        raise ValueError
    for name, bound in value.items():
        if name not in METRICS:
            raise ValueError(f"{name!r} is no metric; {nearest(str(name), METRICS)}")
        if isinstance(bound, bool) or not isinstance(bound, (int, float)) or not 0 <= bound < math.inf:
            raise ValueError(f"{name} is {bound!r}")
    return {name: float(bound) for name, bound in value.items()}


def _reason(value: Any) -> str:
    if not text(value).strip() or len(value) > 300:
        raise ValueError
    return " ".join(str(value).split())


def _until(value: Any) -> str:
    if not _UNTIL.fullmatch(text(value)):
        raise ValueError
    return str(value)


def _release(version: Any) -> tuple[int, ...]:
    """The leading numbers of a version, such as (2, 9, 1) of `2.9.1+cpu`; nothing recorded counts as before all."""
    match = re.match(r"\d+(?:\.\d+)*", str(version or ""))
    return tuple(map(int, re.sub(r"(\.0+)+$", "", match[0]).split("."))) if match else ()


_TOP_KEYS: dict[str, Key] = {"known": Key("the list", _entries, "a list of objects", required=True)}
_KEYS: dict[str, Key] = {
    "api": Key(
        "whose calls: all of a name, of a type and name, or one call",
        _api,
        "an API's name, such as npu_rms_norm, Tensor.mul or Tensor.mul.3",
        required=True,
    ),
    "dtype": Key("which of their outputs", _dtype, 'the type of the output, such as bfloat16, or "any"', required=True),
    "limit": Key(
        "how large the error may be and still be the known one",
        _limit,
        "an object of finite numbers from 0 on, by the names after `would have passed with` in `spool-check replay`, "
        'such as {"atol": 0.02}',
        required=True,
    ),
    "reason": Key(
        "why it is expected", _reason, "one sentence, at most 300 letters, for whoever reads the report", required=True
    ),
    "until": Key(
        "the version that ends it",
        optional(_until),
        'a version of torch or spool-check that must be without it, such as "torch 2.9", or null for no end',
        required=True,
    ),
}
