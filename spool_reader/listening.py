"""`tcp://HOST:PORT` as a place to watch: a receiver lands what arrives in a directory spool, and the reader watches that."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from spool import SpoolOptions


@contextmanager
def place_to_watch(
    url: str,
    *,
    spool_dir: Path | None,
    tls_path: str | None,
    options: SpoolOptions,
    say: Callable[[str], None],
) -> Iterator[str]:
    """The directory that bundles come to: `url` itself, or the one that a receiver at `tcp://HOST:PORT` lands them in.

    Without `spool_dir` the receiver uses a temporary folder, which is removed at the end unless bundles are left in it.
    """
    if not url.startswith("tcp://"):
        yield url
        return
    from spool.lan import Receiver
    from spool.lan.address import parse_url

    host, port = parse_url(url)
    folder = spool_dir or Path(tempfile.mkdtemp(prefix="spool-check-spool-"))
    try:
        with Receiver(host, port, folder, tls_path=tls_path, options=options) as receiver:
            guarded = "plain TCP" if tls_path == "" else "TLS"
            say(f"listening on {receiver.url} ({guarded}); bundles land in {folder}")
            yield str(folder)
    finally:
        if spool_dir is None:
            if next(folder.rglob("*.safetensors"), None) is None:
                shutil.rmtree(folder, ignore_errors=True)
            else:
                say(f"bundles are left in {folder}; judge them with: spool-check reprocess {folder}")
