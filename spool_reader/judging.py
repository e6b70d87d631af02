"""From a bundle to its result row: reference run, golden run where the standard asks for one, verdict."""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import comparators
from spool import Bundle, ConfigError, NotReplayable

from .allowlist import Target, resolve
from .device import Device
from .replay import FAILURES, Outcome, Replay
from .rows import ROW_VERSION, SEVERITY, skip_row
from .trees import tensors

INTERNAL = "internal error of spool-check"


@dataclass(frozen=True)
class JudgeOptions:
    """How calls are judged; crosses into worker processes.

    Attributes:
        profile: name or path of the limits.
        tf32: let the reference device use TF32.
        threads: CPU threads of one worker.
        white_list: judge only these APIs; empty means all. Names as `mul`, `Tensor.mul` or `Tensor.mul.3`.
        black_list: never judge these.
        save_errors: folder that keeps failing bundles.
        imports: modules that a worker imports first, such as one that registers references with `fused_ops.register`.
    """

    profile: str = "default"
    tf32: bool = False
    threads: int = 1
    white_list: tuple[str, ...] = ()
    black_list: tuple[str, ...] = ()
    save_errors: Path | None = None
    imports: tuple[str, ...] = ()


def load_profile(name: str) -> comparators.Profile:
    """The limits that a profile's name or file stands for; ConfigError when there is none or it breaks a rule."""
    try:
        return comparators.load_profile(name)
    except comparators.ProfileError as error:
        raise ConfigError(str(error)) from error


class Judge:
    """Judges bundles on one device."""

    def __init__(self, device: Device, options: JudgeOptions) -> None:
        self._device = device
        self._profile = load_profile(options.profile)
        self._white = frozenset(options.white_list)
        self._black = frozenset(options.black_list)
        device.prepare(tf32=options.tf32)

    def row(self, bundle: Bundle) -> dict[str, Any]:
        """The result row of a bundle's call; a call that cannot be judged gets a skip row with the reason."""
        header = bundle.header
        timings: dict[str, float] = {}
        try:
            if header.skip is not None:
                raise NotReplayable(
                    f"not replayable: {header.skip}" if "replayable" not in header.skip else header.skip
                )
            self._check_filters(header.api)
            target = resolve(header.api)
            return self._judged(bundle, target, timings)
        except NotReplayable as error:
            reason = str(error)
        except Exception as error:
            # A fault of this tool on one call must not cost the others theirs; the row names it.
            reason = f"{INTERNAL}: {type(error).__name__}: {error}"[:500]
        return skip_row(
            header.key,
            header.api,
            header.phase,
            reason,
            origin=header.origin,
            standard=self._standard(header.api),
            recorded_on=header.producer.get("device"),
            timings=timings,
        )

    def _standard(self, api: str) -> str | None:
        try:
            return comparators.standard_of(api, self._profile)
        except (LookupError, ValueError):
            return None

    def _check_filters(self, api: str) -> None:
        operator = api.rpartition(".")[0]
        names = {api, operator, operator.partition(".")[2]}
        if self._white and not names & self._white:
            raise NotReplayable("not in the white list")
        if names & self._black:
            raise NotReplayable("in the black list")

    def _judged(self, bundle: Bundle, target: Target, timings: dict[str, float]) -> dict[str, Any]:
        header = bundle.header
        replay = Replay(bundle, target)
        random = comparators.is_random(header.api, replay.args, replay.kwargs)
        if random is not None:
            raise NotReplayable(random)
        clock = time.perf_counter
        start = clock()
        reference = replay.reference(self._device)
        timings["reference"] = round(clock() - start, 6)
        golden, notes = self._golden(replay, header.api, timings)
        start = clock()
        verdict = _Verdict(header.api, replay, reference, golden, self._profile)
        uncompared = _uncompared(target, replay)
        verdict.judge_result(uncompared)
        verdict.judge_mutated()
        timings["judge"] = round(clock() - start, 6)
        return {
            "v": ROW_VERSION,
            "session": header.session,
            "rank": header.rank,
            "step": header.step,
            "seq": header.seq,
            "api": header.api,
            "phase": header.phase,
            "origin": header.origin,
            **verdict.fields(),
            "device": reference.device,
            "recorded_on": header.producer.get("device"),
            "notes": [*reference.notes, *notes],
            "timings": timings,
        }

    def _golden(self, replay: Replay, api: str, timings: dict[str, float]) -> tuple[Outcome | None, tuple[str, ...]]:
        recorded = replay.recorded
        outputs = (recorded.result, tuple(recorded.mutated.values()))
        if not comparators.needs_golden(api, outputs, self._profile):
            return None, ()
        start = time.perf_counter()
        try:
            golden = replay.golden()
        except NotReplayable as reason:
            return None, (str(reason),)
        except (*FAILURES, MemoryError) as error:
            return None, (f"no golden: {type(error).__name__}: {error}"[:300],)
        timings["golden"] = round(time.perf_counter() - start, 6)
        return golden, golden.notes


class _Verdict:
    """The judgements of what a call returned and of what it wrote, as one."""

    def __init__(
        self, api: str, replay: Replay, reference: Outcome, golden: Outcome | None, profile: comparators.Profile
    ) -> None:
        self._api = api
        self._replay = replay
        self._reference = reference
        self._golden = golden
        self._profile = profile
        self._parts: list[dict[str, Any]] = []

    def judge_result(self, uncompared: dict[int, str]) -> None:
        """Judge what the call returned; `uncompared` are outputs without a defined value."""
        recorded, reference = self._replay.recorded, self._reference
        if recorded.result is None and recorded.mutated and self._returns_only_what_it_wrote():
            return
        golden = None if self._golden is None else self._golden.result
        ours, theirs = recorded.result, reference.result
        if uncompared:
            ours, theirs, golden = (_without(tree, uncompared) for tree in (ours, theirs, golden))
        part = self._judge(ours, theirs, golden)
        for output in part["outputs"]:
            reason = uncompared.get(output.get("index"))
            if reason is not None:
                output["message"] = reason
        self._parts.append(part)

    def judge_mutated(self) -> None:
        """Judge the arguments that the call wrote to, unless the result is that very tensor on both sides."""
        recorded, reference = self._replay.recorded, self._reference
        for path, ours in recorded.mutated.items():
            theirs = reference.mutated.get(path)
            if self._parts and _same(ours, recorded.result) and _same(theirs, reference.result):
                continue
            golden = None if self._golden is None else self._golden.mutated.get(path)
            part = self._judge(ours, theirs, golden)
            for output in part["outputs"]:
                inner = str(output.get("path", ""))
                output["path"] = path if inner in ("", "0") else f"{path}.{inner}"
            self._parts.append(part)

    def fields(self) -> dict[str, Any]:
        """The verdict's part of the row."""
        outputs: list[dict[str, Any]] = []
        for part in self._parts:
            for output in part["outputs"]:
                outputs.append({**output, "index": len(outputs)})
        worst = max(self._parts, key=lambda part: SEVERITY.get(part["verdict"], 0))
        statuses = ("verdict", "status", "standard_status")
        merged = {name: max((part[name] for part in self._parts), key=_severity) for name in statuses}
        return {
            "verdict": merged["verdict"],
            "status": merged["status"],
            "standard": worst["standard"],
            "standard_status": merged["standard_status"],
            "message": worst["message"],
            "mode": worst["mode"],
            "outputs": outputs,
        }

    def _returns_only_what_it_wrote(self) -> bool:
        """Releases of torch differ in whether such a call also returns what it wrote; that is judged anyway."""
        written = list(self._reference.mutated.values())
        return all(any(_same(item, other) for other in written) for item in tensors(self._reference.result))

    def _judge(self, ours: Any, theirs: Any, golden: Any) -> dict[str, Any]:
        judgement = comparators.judge(
            self._api, ours, theirs, golden, args=self._replay.args, kwargs=self._replay.kwargs, profile=self._profile
        )
        return judgement.to_json()


def _same(one: Any, other: Any) -> bool:
    """Whether two tensors show the very same elements of memory."""
    if one is other:
        return True
    if not isinstance(one, torch.Tensor) or not isinstance(other, torch.Tensor) or one.dtype is not other.dtype:
        return False
    return one.numel() > 0 and (one.data_ptr(), one.shape, one.stride()) == (
        other.data_ptr(),
        other.shape,
        other.stride(),
    )


def _severity(status: str | None) -> int:
    return SEVERITY.get(status or "skip", 0)


def _without(tree: Any, indices: Collection[int]) -> Any:
    if not isinstance(tree, (tuple, list)):
        return tree
    return tuple(None if index in indices else item for index, item in enumerate(tree))


def _uncompared(target: Target, replay: Replay) -> dict[int, str]:
    """Outputs of a fused operator that its contract leaves undefined, each with the reason."""
    return {} if target.fused is None else dict(target.fused.uncompared(*replay.args, **replay.kwargs))
