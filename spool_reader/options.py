"""How a reader reads: every option of `watch` and `reprocess`, with its default."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

from spool import ConfigError, SpoolOptions

from .judging import JudgeOptions
from .selection import Selection


@dataclass(frozen=True)
class ReaderOptions:
    """Options of a reader.

    Attributes:
        out: the results folder.
        device: `auto`, `cpu`, `cuda`, `cuda:N`, `npu` or `npu:N`.
        engine: `local` judges on this host, `ray` on an existing Ray cluster.
        address: of that cluster: `auto`, `HOST:PORT` or `ray://HOST:PORT`.
        workers: worker processes; None is one a device, 0 judges in this process.
        ranks: judge only these; None is all.
        steps, apis, dtypes: take only bundles of these, as `Selection` says; the rest stays in the spool.
        judge: how calls are judged.
        call_timeout: seconds after which a call that does not end costs its bundle one attempt.
        await_session: a spool that is empty at the start, and whose sessions are all over, waits for the next training.
        follow: go on when every session is over and the spool is empty.
        stale_after: seconds of silence after which a writer, or another reader, counts as dead.
        retry_failed: take bundles out of quarantine first.
        columns: `zh`, the compatible CSV column names, or `en`.
        spool: options of the spool itself.
    """

    out: Path
    device: str = "auto"
    engine: str = "local"
    address: str = "auto"
    workers: int | None = None
    ranks: Collection[int] | None = None
    steps: Collection[int] | None = None
    apis: Collection[str] | None = None
    dtypes: Collection[str] | None = None
    judge: JudgeOptions = field(default_factory=JudgeOptions)
    call_timeout: float = 300.0
    await_session: bool = False
    follow: bool = False
    stale_after: float = 30.0
    retry_failed: bool = False
    columns: str = "zh"
    spool: SpoolOptions = field(default_factory=SpoolOptions)

    @property
    def selection(self) -> Selection:
        """What of the spool this reader is about."""
        return Selection(self.ranks, self.steps, self.apis, self.dtypes)

    def __post_init__(self) -> None:
        _ = self.selection
        if self.engine not in ("local", "ray"):
            raise ConfigError(f"engine = {self.engine!r}: must be local or ray")
        if self.engine == "local" and self.address != "auto":
            raise ConfigError(
                f"address = {self.address!r}: is that of a Ray cluster; add --engine ray, or leave it out"
            )
        if self.workers is not None and self.workers < 0:
            raise ConfigError(f"workers = {self.workers}: must be 0 (judge in this process) or more")
        if not self.call_timeout > 0:
            raise ConfigError(f"call_timeout = {self.call_timeout}: must be above 0 seconds")
        if not self.stale_after > 0:
            raise ConfigError(f"stale_after = {self.stale_after}: must be above 0 seconds")
        if self.columns not in ("zh", "en"):
            raise ConfigError(f"columns = {self.columns!r}: must be zh or en")
