"""Which spool a user means: `/dir`, `memory:` or `tcp://HOST:PORT`."""

from __future__ import annotations

import grp
import os
from pathlib import Path

from . import files
from .directory import DirectorySpool
from .errors import ConfigError, SpoolUnavailable
from .interface import Spool
from .memory import MemorySpool
from .options import SpoolOptions


def open_spool(
    url: str | os.PathLike[str],
    *,
    create: bool = False,
    consumer: str | None = None,
    options: SpoolOptions | None = None,
    tls_path: str | None = None,
) -> Spool:
    """Open the spool that `url` names; `create` makes the last folder of a path if its parent exists.

    `tls_path` is for `tcp://`: the folder of the certificates, None the current folder, an empty string plain TCP.
    Raises SpoolUnavailable for a folder that is missing or cannot be used, ConfigError for a url of another kind.
    """
    text = os.fspath(url)
    if text == "memory:":
        return MemorySpool(options)
    if text.startswith("tcp://"):
        from .lan.sender import SocketSpool

        return SocketSpool(text, tls_path=tls_path, options=options)
    if "://" in text:
        raise ConfigError(
            f"{text!r}: no spool can be opened there; give a directory such as /nfs/xxx/data, or tcp://HOST:PORT"
        )
    if not text:
        raise ConfigError("the spool is an empty name; give a directory such as /nfs/xxx/data")
    root = Path(text)
    if create and not os.path.exists(root):
        if not os.path.isdir(root.parent):
            raise SpoolUnavailable(f"{root}: its parent {root.parent} is missing; is the shared storage mounted?")
        try:
            files.make_folder(root, 0)
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise SpoolUnavailable(f"{root}: {reason}; create it or choose another directory") from error
    if not os.path.exists(root):
        raise SpoolUnavailable(f"{root}: no such directory; create it, or check that the shared storage is mounted")
    if not os.path.isdir(root):
        raise SpoolUnavailable(f"{root}: not a directory; a spool is a directory")
    if not os.access(root, os.R_OK | os.W_OK | os.X_OK):
        raise SpoolUnavailable(f"{root}: not readable and writable for this user; change its mode or owner")
    if create and options is not None and options.group is not None:
        _give_to_group(root, options.group)
    return DirectorySpool(root.absolute(), options=options, consumer=consumer)


def _give_to_group(root: Path, group: str) -> None:
    """The folder to the group, and with it all that is made in it from now on."""
    try:
        number = int(group) if group.isdecimal() else grp.getgrnam(group).gr_gid
    except KeyError:
        raise ConfigError(
            f"group is {group!r}: no group of this host has that name; `getent group` lists them"
        ) from None
    try:
        files.hand_down_group(root, number)
    except OSError as error:
        raise SpoolUnavailable(
            f"{root}: cannot be given to group {group}: {error.strerror}; its owner, who must be in that group, can: "
            f"chgrp {group} {root} && chmod g+s {root}"
        ) from error
