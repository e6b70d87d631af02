"""Following a spool while it is written, and judging once what is left in one."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from spool import ConfigError, Spool

from .device import worker_devices
from .events import Listener
from .judging import JudgeOptions, load_profile
from .known import read_known
from .options import ReaderOptions
from .places import open_place
from .pool import InProcess, Pool
from .results import ResultsFolder
from .run import Run
from .summary import Summary
from .workers import WorkerPool


def watch(
    spool: str | Path | Spool,
    /,
    *,
    on_event: Listener | None = None,
    stop: threading.Event | None = None,
    abort: threading.Event | None = None,
    **options: Any,
) -> Summary:
    """Judge bundles as they land, until every session is over and the spool is empty.

    Options are those of `ReaderOptions` and `JudgeOptions`; `known` may be the path of a list. `stop` finishes the
    bundles in hand first, `abort` gives them back at once. A session whose writer has gone silent counts as over and is
    reported as incomplete.
    """
    for name in ("steps", "apis", "dtypes"):
        if options.get(name) is not None:
            raise ConfigError(
                f"{name} = {options[name]!r}: a reader that follows a spool has to empty it; use `white_list` or "
                "`black_list`, which give what is left out its skip rows, or `reprocess`"
            )
    with _run(spool, on_event, stop, abort, options) as run:
        run.follow()
        return run.finish()


def reprocess(
    spool: str | Path | Spool,
    /,
    *,
    on_event: Listener | None = None,
    stop: threading.Event | None = None,
    abort: threading.Event | None = None,
    **options: Any,
) -> Summary:
    """Judge once what is ready in a spool, or saved in a folder of failures; the options are those of `watch`."""
    with _run(spool, on_event, stop, abort, options) as run:
        run.drain()
        return run.finish()


def reader_options(options: dict[str, Any]) -> ReaderOptions:
    """`ReaderOptions` from keywords, those of `JudgeOptions` among them."""
    judging = {name: options.pop(name) for name in list(options) if name in JudgeOptions.__dataclass_fields__}
    for name in ("white_list", "black_list", "imports"):
        if name in judging:
            judging[name] = tuple(judging[name])
    if judging.get("save_errors") is not None:
        judging["save_errors"] = Path(judging["save_errors"])
    if isinstance(judging.get("known"), (str, Path)):
        judging["known"] = read_known(judging["known"])
    options["out"] = Path(options["out"])
    load_profile(str(judging.get("profile", "default")))
    return ReaderOptions(judge=JudgeOptions(**judging), **options)


@contextmanager
def _run(
    spool: str | Path | Spool,
    on_event: Listener | None,
    stop: threading.Event | None,
    abort: threading.Event | None,
    keywords: dict[str, Any],
) -> Iterator[Run]:
    options = reader_options(dict(keywords))
    emit = on_event or (lambda event: None)
    own = not isinstance(spool, Spool)
    settings = replace(options.spool, stale_after=options.stale_after)
    opened = open_place(spool, settings) if not isinstance(spool, Spool) else spool
    summary = Summary()
    stop, abort = stop or threading.Event(), abort or threading.Event()
    try:
        with ResultsFolder(options.out, summary.add) as results, _pool(opened, options) as pool:
            run = Run(opened, results, summary, pool, options, emit, stop, abort)
            try:
                yield run
            except BaseException:
                run.give_back()
                raise
    finally:
        if own:
            opened.close()


@contextmanager
def _pool(spool: Spool, options: ReaderOptions) -> Iterator[Pool]:
    pool: Pool
    if options.engine == "ray":
        if not (spool.durable and spool.shareable):
            raise ConfigError(
                f"engine = 'ray': {spool.url} is in this process's memory; Ray's workers need a directory they share"
            )
        # Loaded here: Ray is an extra that few readers have.
        from .ray_pool import RayPool

        pool = RayPool(
            options.address, options.device, options.workers, options.judge, call_timeout=options.call_timeout
        )
    elif options.workers == 0:
        devices = worker_devices(options.device, options.workers)
        pool = InProcess(devices[0], options.judge)
    else:
        devices = worker_devices(options.device, options.workers)
        # A spool that no other process can open sends whole bundles through the pipe: one batch at a time fits.
        depth = 2 if spool.shareable else 1
        pool = WorkerPool(devices, options.judge, call_timeout=options.call_timeout, depth=depth)
    try:
        yield pool
    finally:
        pool.close()
