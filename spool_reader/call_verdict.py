"""The verdict of one call: what it returned and what it wrote, each judged, put together as the row's fields."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch

import comparators

from .replay import Outcome, Replay
from .rows import SEVERITY
from .trees import tensors


class CallVerdict:
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
            if part["message"]:
                part["message"] = f"{path}: {part['message']}"
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
