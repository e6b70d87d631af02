"""The entry point: one call's outputs judged by the standard of its API.

Order of every verdict: structure (count, type, shape), dtype, special values, values. What fails early is an error
whatever the later steps would say. int and bool outputs are always judged by binary consistency.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from .names import THREE_WAY, base_name
from .outputs import Call, judge_output
from .profiles import Profile, load_profile
from .random_ops import is_random, is_undefined
from .result import Judgement, OutputJudgement, worst_of
from .spread import error_spread
from .structure import leaves, paired

THREE, TWO = "three-way", "two-way"


def judge(
    api: str,
    device: Any,
    reference: Any,
    golden: Any = None,
    *,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    profile: str | Path | Profile = "default",
) -> Judgement:
    """Judge what a call gave on the device under test.

    Args:
        api: such as `Torch.matmul.7`.
        device, reference: outputs as tensors or nested containers, of the device under test and of the trusted one.
        golden: the same in raised precision, where the API's standard is three-way (`needs_golden`).
        args, kwargs: the call's inputs; index outputs with ties and dropout are judged with them.
        profile: a shipped profile's name, a JSON file, or a loaded one.
    """
    limits = load_profile(profile)
    standard, _ = limits.standard(api)
    reason = is_undefined(api) or is_random(api, args, kwargs)
    if reason is not None:
        return _skipped(api, standard, reason, device)
    call = Call(api, standard, tuple(args), dict(kwargs or {}), limits, base_name(api))
    outputs: list[OutputJudgement] = []
    for index, (path, ours, theirs, best) in enumerate(paired(device, reference, golden)):
        output = judge_output(call, index, path, ours, theirs, best)
        if output.verdict in ("error", "warning"):
            output = replace(output, spread=error_spread(ours, theirs if best is None else best))
        outputs.append(output)
    if limits.peer_arithmetic:
        outputs = _without_surplus(outputs)
    verdict = worst_of([output.verdict for output in outputs])
    deciding = next((output for output in outputs if output.verdict == verdict), None)
    message = ""
    if deciding is None:
        message = "nothing to compare: the call returned no outputs"
    elif verdict in ("error", "warning") or (verdict == "skip" and deciding.message):
        message = deciding.message if len(outputs) == 1 else f"output {deciding.path}: {deciding.message}"
    three = any(output.reference_metrics is not None for output in outputs)
    return Judgement(
        api,
        verdict,
        deciding.standard if deciding is not None and len(outputs) == 1 else standard,
        THREE if three else TWO,
        worst_of([output.status for output in outputs]),
        worst_of([output.standard_status for output in outputs]),
        message,
        tuple(outputs),
    )


def standard_of(api: str, profile: str | Path | Profile = "default") -> str:
    """The standard that judges an API's float outputs."""
    return load_profile(profile).standard(api)[0]


def needs_golden(api: str, outputs: Any, profile: str | Path | Profile = "default") -> bool:
    """Whether judging these outputs of an API takes a run in raised precision."""
    if standard_of(api, profile) not in THREE_WAY or is_undefined(api) is not None:
        return False
    return any(
        isinstance(leaf, torch.Tensor) and (leaf.is_floating_point() or leaf.is_complex()) and leaf.numel() > 0
        for leaf in leaves(outputs).values()
    )


def _skipped(api: str, standard: str, reason: str, device: Any) -> Judgement:
    outputs = tuple(
        OutputJudgement(index, path, "skip", standard, message=reason) for index, path in enumerate(leaves(device))
    )
    return Judgement(api, "skip", standard, TWO, "skip", "skip", reason, outputs)


def _without_surplus(outputs: list[OutputJudgement]) -> list[OutputJudgement]:
    """The peer cuts the device's outputs to the number of the reference's."""
    return [output for output in outputs if not output.message.startswith("surplus output")]
