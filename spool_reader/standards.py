"""`spool-check standards [API]`: which standard judges an API, with which limits, and which line says so."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import torch

import comparators
import fused_ops
from spool import ConfigError
from spool.config_schema import nearest

from .allowlist import known_bases


def standards(api: str | None, profile: str) -> list[dict[str, Any]]:
    """Every standard, or the one of `api`, with the fused operator's signature and source where it is one."""
    try:
        found = comparators.describe_standard(api, profile)
    except comparators.ProfileError as error:
        raise ConfigError(str(error)) from error
    if api is not None and _base(api) not in known_bases():
        raise ConfigError(f"API: {api!r} is no call of torch {torch.__version__}; {nearest(_base(api), known_bases())}")
    described = []
    for standard in found:
        entry = {**asdict(standard), "text": str(standard)}
        if api is not None:
            entry["fused_operator"] = _fused(api)
        described.append(entry)
    return described


def standards_lines(described: list[dict[str, Any]]) -> Iterator[str]:
    """The same for people."""
    for entry in described:
        yield entry["text"]
        fused = entry.get("fused_operator")
        if fused:
            yield f"  fused operator: {fused['schema']}"
            yield f"  source: {fused['source']}"
            yield f"  deterministic: {'yes' if fused['deterministic'] else 'no'}"
            for index, reason in fused["uncompared"].items():
                yield f"  output {index} is not compared: {reason}"
            if fused["uncompared_note"]:
                yield f"  not compared: {fused['uncompared_note']}"


def _base(api: str) -> str:
    """`mul` of `mul`, `Tensor.mul` and `Tensor.mul.3`."""
    kind, _, rest = api.partition(".")
    base, _, number = rest.rpartition(".")
    name = base if number.isdigit() and base else rest
    return name if name and kind[:1].isupper() else api


def _fused(api: str) -> dict[str, Any] | None:
    try:
        operator = fused_ops.reference(_base(api))
    except fused_ops.UnknownFusedOp:
        return None
    undefined = operator.undefined
    return {
        "name": operator.name,
        "schema": operator.schema,
        "source": operator.source,
        "standard": operator.standard,
        "deterministic": operator.deterministic,
        "uncompared": {} if callable(undefined) else {str(index): why for index, why in undefined.items()},
        "uncompared_note": operator.uncompared_note,
    }
