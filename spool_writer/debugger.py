"""`PrecisionDebugger`: what a training script sees of spool-check."""

from __future__ import annotations

import atexit
import logging
import os
import socket
import threading
import time
from types import TracebackType
from typing import Any

from spool import ConfigError, SessionInfo, __version__, open_spool

from .capture import CaptureMode
from .config import read_settings, settings_of
from .counting import Counts
from .filters import Filters
from .identity import current_rank, new_session, producer
from .numbering import Numbering
from .pool import Pool
from .publisher import Publisher
from .recorder import Recorder

log = logging.getLogger("spool_check")


class PrecisionDebugger:
    """Records every API call of a training into a spool while the training runs.

    Either with the ecosystem's configuration file, `PrecisionDebugger("config.json")`, or by keywords,
    `PrecisionDebugger(spool="/nfs/x", rank=[0], step=[0, 1])`. Recording is on between `start` and `stop`; as a context manager
    the debugger starts on entry, and stops and closes on exit. `step` ends a step: numbers of calls count from zero again.

    Keywords besides `spool`: rank, step (lists of integers, empty or None for all), scope, list, white_list, black_list, the
    options of the `spool` object of a configuration file (when_full, max_pending_bundles, queue_bytes, …) and `strict`: raise the
    tool's own errors instead of counting them.

    Raises ConfigError for a wrong configuration and SpoolUnavailable for a spool that cannot be used, both at construction;
    after that the training is never interrupted, unless `strict`.
    """

    def __init__(
        self,
        config_path: str | os.PathLike[str] | None = None,
        task: str | None = None,
        dump_path: str | None = None,
        level: str | None = None,
        model: Any = None,
        *,
        spool: str | os.PathLike[str] | None = None,
        **keywords: Any,
    ) -> None:
        if (config_path is None) == (spool is None):
            raise ConfigError(
                "PrecisionDebugger(…): give either the path of a configuration file or spool=…, the directory to write to"
            )
        if config_path is not None and keywords:
            raise ConfigError(
                f"PrecisionDebugger(…): {', '.join(keywords)} cannot be given beside a configuration file; set them there"
            )
        if task not in (None, "tensor") or level not in (None, "L1"):
            raise ConfigError(
                f'PrecisionDebugger(…): task {task!r}, level {level!r}; only "tensor" and "L1" are checked'
            )
        settings = read_settings(config_path) if config_path is not None else settings_of(spool or "", keywords)
        self._settings = settings
        self._numbering = Numbering()
        self._counts = Counts()
        self._filters = Filters(settings.scope, settings.list, settings.white_list, settings.black_list)
        self._rank = current_rank()
        self._pid = os.getpid()
        self._here = threading.local()
        self._publisher: Publisher | None = None
        self._closed = False
        self._entered = False
        self._wanted = self._is_wanted()
        if self._wanted:
            self._open()

    def _is_wanted(self) -> bool:
        if self._settings.url is None:
            log.warning("online checking is off (tensor.online_run_ut is not true): nothing is recorded")
            return False
        if self._settings.rank and self._rank not in self._settings.rank:
            log.info("rank %d is not selected: nothing is recorded", self._rank)
            return False
        return True

    def _open(self) -> None:
        settings = self._settings
        assert settings.url is not None
        spool = open_spool(settings.url, create=True, options=settings.options, tls_path=settings.tls_path)
        session = new_session()
        info = SessionInfo(session, self._rank, socket.gethostname(), self._pid, __version__, time.time())
        self._spool = spool
        self._publisher = Publisher(
            spool,
            spool.open_session(info),
            self._counts,
            queue_bytes=settings.queue_bytes,
            threads=settings.threads,
            patience=settings.options.block_timeout if settings.options.when_full == "block" else 0.0,
        )
        self._recorder = Recorder(
            session=session,
            rank=self._rank,
            producer=producer(),
            filters=self._filters,
            numbering=self._numbering,
            counts=self._counts,
            hand_on=self._publisher.put,
            pool=Pool(settings.queue_bytes // 2),
            strict=settings.strict,
        )
        os.register_at_fork(after_in_child=self._forked)
        atexit.register(self._at_exit)

    def start(self, model: Any = None) -> None:
        """Begin to record in this thread. `model` is accepted for compatibility; a second start changes nothing."""
        if self._publisher is None or self._closed:
            return
        if self._mode is not None:
            log.warning("start: recording is on already")
            return
        if self._settings.step and self._numbering.step not in self._settings.step:
            return
        self._here.mode = CaptureMode(self._recorder, backward=self._settings.backward)
        self._here.mode.__enter__()

    def stop(self) -> None:
        """Pause recording in this thread; without a start before it nothing happens."""
        if self._mode is not None:
            mode, self._here.mode = self._mode, None
            mode.__exit__(None, None, None)  # type: ignore[no-untyped-call]

    @property
    def _mode(self) -> CaptureMode | None:
        """The mode that is on in this thread: a function mode is seen by one thread only."""
        mode: CaptureMode | None = getattr(self._here, "mode", None)
        return mode

    def step(self) -> None:
        """End a step. Recording that is on goes on if the next step is selected; once all are past, the session is closed."""
        running = self._mode is not None
        self.stop()
        self._numbering.new_step()
        self._filters.new_step()
        if self._publisher is not None:
            self._recorder.new_step()
        selected = self._settings.step
        if selected and self._numbering.step > max(selected):
            self.close()
        elif running or self._entered:
            self.start()

    def close(self, state: str = "closed") -> None:
        """Publish what is queued and close the session; afterwards the debugger does nothing. A second close changes nothing."""
        self.stop()
        if self._closed or self._publisher is None:
            return
        self._closed = self._recorder.silent = True
        self._publisher.close(state, self._settings.close_timeout)
        self._spool.close()
        atexit.unregister(self._at_exit)
        counts = self._counts.now()
        log.info("rank %d: %s; time: %s", self._rank, counts, self.stats())
        if counts["dropped"]:
            log.warning(
                "rank %d: %d of %d calls were dropped (%d errors); their rows will be missing",
                self._rank,
                counts["dropped"],
                counts["seen"],
                counts["errors"],
            )
        elif counts["errors"]:
            log.warning("rank %d: %d errors; the calls that met one have skip rows", self._rank, counts["errors"])

    def counts(self) -> dict[str, int]:
        """Calls so far: seen, captured, filtered, unreplayable, dropped, published, and errors of the tool."""
        return self._counts.now()

    def stats(self) -> dict[str, float]:
        """Where the time went: seconds of recording on the training's threads, of them waiting for room, and of publishing in the
        background; bytes published and still queued."""
        if self._publisher is None:
            return {}
        return {"recording_s": round(self._recorder.seconds, 6), **self._publisher.stats()}

    def __enter__(self) -> PrecisionDebugger:
        self._entered = True
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._entered = False
        self.close("closed" if kind is None else "failed")

    def _at_exit(self) -> None:
        self.close()

    def _forked(self) -> None:
        """A forked child (a data loader's worker, say) must neither publish nor close what is the parent's."""
        if os.getpid() != self._pid and not self._closed:
            self._closed = self._recorder.silent = True
            if self._publisher is not None:
                self._publisher.abandon()
