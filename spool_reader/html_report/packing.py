"""Text of any kind as letters that need no escaping in HTML, and that a browser unpacks itself."""

from __future__ import annotations

import base64
import gzip
import hashlib


def pack(data: bytes) -> str:
    """The data, compressed, in letters; the same data always gives the same letters."""
    return base64.b64encode(gzip.compress(data, compresslevel=6, mtime=0)).decode("ascii")


def script_hash(source: str) -> str:
    """The source of a script as a Content-Security-Policy names it."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(source.encode('utf-8')).digest()).decode('ascii')}'"
