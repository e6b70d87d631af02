"""The `spool` object of a configuration file: how a spool is written and kept."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SpoolOptions:
    """Durability, limits and patience. Sizes are bytes, times seconds.

    fsync: `bundle` syncs each file before its rename, `none` does not, `auto` does so on network file systems, where a full disk
    shows only there. mode, group: of the bundles; a group (name or number) is handed down from the spool's folder, to which
    the writer gives it; None leaves it as it is. when_full: what `publish` does while `max_pending_bundles` or
    `max_pending_bytes` of its rank wait, or less than `reserve_bytes` are free: `block` for at most `block_timeout`, then
    drop; `drop`; `sample` (every tenth call waits like `block`, the rest is dropped).
    """

    fsync: str = "auto"
    mode: int = 0o644
    group: str | None = None
    max_pending_bundles: int = 100_000
    max_pending_bytes: int | None = None
    reserve_bytes: int = 256 * 2**20
    when_full: str = "block"
    block_timeout: float = 600.0
    stale_after: float = 30.0
    attempts: int = 3
