"""All checks, one after the other; one that breaks is a finding itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from .findings import Finding, fail
from .host import host_checks
from .mounts import mount_checks, watch_mode
from .race import claim_race
from .storage import permission_checks, room_checks, scratch_folder, write_checks
from .timing import timing_checks

Check = Callable[[Path], Iterator[Finding]]
_IN_PLACE: tuple[Check, ...] = (mount_checks, permission_checks, room_checks)
# These write into a hidden folder of their own, which no reader looks into.
_IN_SCRATCH: tuple[Check, ...] = (write_checks, claim_race, timing_checks)


def diagnose(spool: Path | None) -> Iterator[Finding]:
    """Findings about this host and, with `spool`, about that directory; the directory is left as it was."""
    yield from _guarded("host", lambda path: host_checks(), Path())
    if spool is None:
        return
    if not spool.is_dir():
        yield fail(
            "directory",
            f"{spool} is no directory that can be seen from here",
            "make it, or mount the file system that it is on; name the directory that the training writes to",
        )
        return
    for check in _IN_PLACE:
        yield from _guarded(check.__name__.removesuffix("_checks"), check, spool)
    try:
        with scratch_folder(spool) as scratch:
            for check in _IN_SCRATCH:
                yield from _guarded(check.__name__.removesuffix("_checks"), check, scratch)
    except OSError as error:
        yield fail(
            "write",
            f"no folder can be made in {spool}: {error.strerror}",
            "let this user write there: a reader claims by moving files, which needs the right to write",
        )


def at_start(spool: Path) -> Iterator[str]:
    """What a reader says when it begins to follow a directory: how it finds bundles, and what is amiss at a glance."""
    yield watch_mode(spool)
    for check in _IN_PLACE:
        for finding in _guarded(check.__name__.removesuffix("_checks"), check, spool):
            # Where the directory lies is no news to somebody who has just typed its name.
            if finding.state != "ok" and finding.check != "file system":
                yield f"{finding.check}: {finding.detail}; {finding.remedy}"


def _guarded(name: str, check: Check, path: Path) -> Iterator[Finding]:
    try:
        yield from check(path)
    except OSError as error:
        yield fail(
            name.replace("_", " "),
            f"{error.filename or path}: {error.strerror or error}",
            "the file system refused what a spool needs; try the same by hand there, and see the system's log",
        )
