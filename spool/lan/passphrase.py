"""Where the passphrase of a private key comes from: an environment variable, a file descriptor, or a prompt.

It is asked for only when the key is encrypted, and never stands in a configuration file.
"""

from __future__ import annotations

import getpass
import os
import sys
from collections.abc import Callable
from pathlib import Path

from ..errors import ConfigError

VARIABLE = "SPOOL_CHECK_TLS_PASSPHRASE"
FD_VARIABLE = "SPOOL_CHECK_TLS_PASSPHRASE_FD"
_MOST = 1024


class Passphrase:
    """One passphrase, found when it is needed; `asked` says where, for messages."""

    def __init__(self, value: str | None = None) -> None:
        self._value = value
        self.asked = ""

    def ask(self, key: Path) -> Callable[[], str]:
        """What the ssl module calls when `key` turns out to be encrypted."""

        def answer() -> str:
            if self._value is None:
                self._value = self._find(key)
            else:
                self.asked = self.asked or "the caller"
            return self._value

        return answer

    def _find(self, key: Path) -> str:
        if VARIABLE in os.environ:
            self.asked = VARIABLE
            return os.environ[VARIABLE]
        if FD_VARIABLE in os.environ:
            self.asked = FD_VARIABLE
            return _read(os.environ[FD_VARIABLE])
        if sys.stdin is not None and sys.stdin.isatty():
            self.asked = "the prompt"
            return getpass.getpass(f"Passphrase of {key}: ")
        raise ConfigError(
            f"{key}: it is encrypted and nobody is there to ask; set {VARIABLE}, or {FD_VARIABLE} to a file descriptor"
        )


def _read(number: str) -> str:
    try:
        fd = int(number)
        data = b""
        # The descriptor stays open: it is the caller's, and a second reader of a pipe gets the end.
        while b"\n" not in data and len(data) < _MOST and (more := os.read(fd, _MOST)):
            data += more
    except (ValueError, OSError) as error:
        raise ConfigError(f"{FD_VARIABLE} is {number!r}: {error}; give the number of an open descriptor") from error
    return data.split(b"\n")[0].decode("utf-8", "surrogateescape")
