"""From a bundle to its result row: reference run, golden run where the standard asks for one, verdict."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import comparators
from spool import Bundle, ConfigError, NotReplayable

from .allowlist import Target, resolve
from .call_arguments import argument_list
from .call_verdict import CallVerdict
from .device import Device
from .known import KnownDifference, with_known
from .replay import FAILURES, Outcome, Replay
from .rows import INTERNAL, ROW_VERSION, skip_row
from .selection import names_of
from .trees import equal_bits

UNSTABLE = "reference: two runs on the same inputs gave different bits"


@dataclass(frozen=True)
class JudgeOptions:
    """How calls are judged; crosses into worker processes.

    Attributes:
        profile: name or path of the limits.
        tf32: let the reference device use TF32.
        threads: CPU threads of one worker; None shares what torch would use among the workers.
        repeat: run the reference twice and say in the row whether it gave the same bits.
        white_list: judge only these APIs; empty means all. Names as `mul`, `Tensor.mul` or `Tensor.mul.3`.
        black_list: never judge these.
        save_errors: folder that keeps failing bundles.
        known: errors that are expected.
        imports: modules that a worker imports first, such as one that registers references with `fused_ops.register`.
    """

    profile: str = "default"
    tf32: bool = False
    threads: int | None = None
    repeat: bool = False
    white_list: tuple[str, ...] = ()
    black_list: tuple[str, ...] = ()
    save_errors: Path | None = None
    known: tuple[KnownDifference, ...] = ()
    imports: tuple[str, ...] = ()


def load_profile(name: str) -> comparators.Profile:
    """The limits that a profile's name or file stands for; ConfigError when there is none or it breaks a rule."""
    try:
        return comparators.load_profile(name)
    except comparators.ProfileError as error:
        raise ConfigError(str(error)) from error


# Every rank has the whole tensor.
_REPLICATED = re.compile(r"\((Replicate\(\),? ?)*\)")


class Judge:
    """Judges bundles on one device."""

    def __init__(self, device: Device, options: JudgeOptions) -> None:
        self._device = device
        self._profile = load_profile(options.profile)
        self._repeat = options.repeat
        self._white = frozenset(options.white_list)
        self._black = frozenset(options.black_list)
        self._known = options.known
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
            row = self._judged(bundle, target, timings)
            split = [places for places in header.placements if not _REPLICATED.fullmatch(places)]
            if split and row["verdict"] in ("error", "warning"):
                raise NotReplayable(
                    f"not replayable: the parts of distributed tensors on this rank, {', '.join(split)}, do not tell the result"
                )
            return row
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
        names = names_of(api)
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
        stable = self._stable(replay, reference)
        golden, notes = self._golden(replay, header.api, timings)
        start = clock()
        verdict = CallVerdict(header.api, replay, reference, golden, self._profile)
        uncompared = _uncompared(target, replay)
        verdict.judge_result(uncompared)
        verdict.judge_mutated()
        timings["judge"] = round(clock() - start, 6)
        fields = verdict.fields()
        row = {
            "v": ROW_VERSION,
            "session": header.session,
            "rank": header.rank,
            "step": header.step,
            "seq": header.seq,
            "api": header.api,
            "phase": header.phase,
            "origin": header.origin,
            **fields,
            "device": reference.device,
            "recorded_on": header.producer.get("device"),
            "stable": stable,
            "notes": [*reference.notes, *notes, *(() if stable is not False else (UNSTABLE,))],
            "timings": timings,
        }
        if fields["verdict"] in ("error", "warning"):
            row["arguments"] = argument_list(replay.args, replay.kwargs)
        return with_known(row, self._known, header.producer)

    def _stable(self, replay: Replay, reference: Outcome) -> bool | None:
        """Whether a second run gives the same bits; None when it was not asked for."""
        if not self._repeat:
            return None
        again = replay.reference(self._device)
        return equal_bits((again.result, again.mutated), (reference.result, reference.mutated))

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


def _uncompared(target: Target, replay: Replay) -> dict[int, str]:
    """Outputs of a fused operator that its contract leaves undefined, each with the reason."""
    return {} if target.fused is None else dict(target.fused.uncompared(*replay.args, **replay.kwargs))
