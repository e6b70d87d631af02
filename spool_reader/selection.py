"""Which calls a run or a report is about: by rank, step, API and dtype. All else is left alone."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from spool import BundleError, ConfigError, SpoolUnavailable, Waiting
from spool.config_schema import nearest

_DTYPES = {str(value).removeprefix("torch."): value for value in vars(torch).values() if isinstance(value, torch.dtype)}


@dataclass(frozen=True)
class Selection:
    """What each field names; None takes all.

    Attributes:
        apis: as `mul`, `Tensor.mul` or `Tensor.mul.3`.
        dtypes: as `bfloat16`; a call is meant when one of its tensors has it (in a report: one of its outputs).
    """

    ranks: Collection[int] | None = None
    steps: Collection[int] | None = None
    apis: Collection[str] | None = None
    dtypes: Collection[str] | None = None

    def __post_init__(self) -> None:
        for name in self.dtypes or ():
            if name not in _DTYPES:
                raise ConfigError(f"dtype = {name!r}: no type of torch; {nearest(name, _DTYPES)}")

    def __bool__(self) -> bool:
        """Whether anything is left out."""
        return (self.ranks, self.steps, self.apis, self.dtypes) != (None,) * 4

    def wants(self, waiting: Waiting) -> bool:
        """Whether a bundle in a spool is meant; one that cannot be read is not, where its dtype is asked for."""
        if not self._place(waiting.rank, waiting.step, waiting.api):
            return False
        if self.dtypes is None:
            return True
        try:
            return not waiting.dtypes().isdisjoint(self.dtypes)
        except (BundleError, SpoolUnavailable):
            return False

    def holds(self, row: Mapping[str, Any]) -> bool:
        """Whether a result row is meant."""
        if not self._place(row["rank"], row["step"], row["api"]):
            return False
        return self.dtypes is None or any(output.get("dtype") in self.dtypes for output in row.get("outputs") or ())

    def _place(self, rank: int, step: int, api: str) -> bool:
        if self.ranks is not None and rank not in self.ranks:
            return False
        if self.steps is not None and step not in self.steps:
            return False
        return self.apis is None or not names_of(api).isdisjoint(self.apis)


def names_of(api: str) -> frozenset[str]:
    """The names by which a user may mean a call: `Tensor.mul.3`, `Tensor.mul`, `mul`."""
    operator = api.rpartition(".")[0]
    return frozenset((api, operator, operator.partition(".")[2]))
