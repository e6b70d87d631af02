"""The mount that a spool is on: which kind, and options that make locks, names or errors lie."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from spool.files import file_system, is_network, is_nfs3

from .findings import Finding, ok, warn

# The longest that an NFS client may go on believing that a name is absent, unless told otherwise (nfs(5), acdirmin).
_NEGATIVE_S = 30


def mount_checks(spool: Path) -> Iterator[Finding]:
    """Kind and options of the mount."""
    kind, options = file_system(spool)
    words = options.split(",")
    yield ok("file system", f"{kind}, {'shared over a network' if is_network(spool) else 'local to this host'}")
    if kind in ("nfs", "nfs4"):
        yield from _nfs_checks(spool, words)
    elif kind in ("overlay", "tmpfs"):
        yield warn(
            "file system",
            f"{kind}: what lies here goes with the container or the next boot, and no other host sees it",
            "fine for trials; for a training on another host give a directory of shared storage",
        )


def _nfs_checks(spool: Path, words: list[str]) -> Iterator[Finding]:
    found = []
    if is_nfs3(spool):
        found.append(
            warn(
                "nfs version",
                "version 3: a file that comes in the same tick of the server's clock as the last listing may stay unseen",
                "mount with vers=4.1 or newer; spool-check touches the folders meanwhile, which makes it look again",
            )
        )
    if "soft" in words or "softerr" in words:
        found.append(
            warn(
                "nfs errors",
                "soft mount: when the server is slow, a rename may be reported as failed and have happened",
                "mount with `hard`; spool-check looks by inode whether it happened, and tries again",
            )
        )
    locks = [
        word for word in words if word == "nolock" or (word.startswith("local_lock=") and word != "local_lock=none")
    ]
    if locks:
        found.append(
            warn(
                "nfs locks",
                f"{', '.join(locks)}: locks hold on this host only",
                "fine for spool-check, whose claims are renames; keep other tools that lock files off this mount",
            )
        )
    cache = next((word for word in words if word.startswith("lookupcache=")), "lookupcache=all")
    short = [word for word in words if re.fullmatch(r"(actimeo|acdirmin|acdirmax)=[0-3]", word)]
    if cache == "lookupcache=all" and "noac" not in words and not short:
        found.append(
            warn(
                "nfs caching",
                f"names that were absent are believed to be for up to {_NEGATIVE_S} s",
                "mount with lookupcache=positive; spool-check takes names from fresh listings only, so it costs time at most",
            )
        )
    yield from found or [ok("nfs options", "nothing that makes locks, names or errors lie")]


def watch_mode(spool: Path) -> str:
    """How a reader finds new bundles here, and why, in one line."""
    kind, _ = file_system(spool)
    if is_network(spool):
        return f"new bundles are found by listing the folders: events of other hosts do not arrive on {kind}"
    return f"new bundles are found by file system events, and by listing the folders now and then: {kind} is local"
