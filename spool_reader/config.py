"""The judging side's configuration: the ecosystem's JSON file with task `run_ut`.

`nfs_path` wins over `host` and `port`; an empty `tls_path` means plain TCP. What is ours stands in one object, `spool`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from spool import ConfigError, SpoolOptions
from spool.config_schema import (
    Key,
    boolean,
    choice,
    integer,
    number,
    numbers,
    optional,
    read_json,
    text,
    texts,
    validate,
)
from spool.option_keys import OPTION_KEYS

_NAMES = 'a list of API names, such as ["conv1d", "conv2d"]'
_RUN_UT_KEYS: dict[str, Key] = {
    "white_list": Key("base names to judge; all others get skip rows", texts, _NAMES, ()),
    "black_list": Key("base names that get skip rows", texts, _NAMES, ()),
    "error_data_path": Key(
        "failing bundles are kept below it, in `ut_error_data{time}`", text, "a path as a string", ""
    ),
    "is_online": Key("must be true", boolean, "true or false", False),
    "nfs_path": Key("the shared directory; wins over `host` and `port`", text, "a path as a string", ""),
    "host": Key("the address to listen on", text, "a host name or address as a string", ""),
    "port": Key("the port to listen on", integer(-1, 65535), "an integer from 0 to 65535, or -1 for none", -1),
    "rank_list": Key("ranks to judge", numbers, 'a list of ranks, such as [0, 1] or ["0-7"]', (0,)),
    "tls_path": Key(
        "folder with `server.key`, `server.crt`, `ca.crt`; an empty string means plain TCP; without the key, the current folder",
        text,
        "a folder with certificates as a string, or an empty string for plain TCP",
        None,
    ),
}
_TOP_KEYS: dict[str, Key] = {
    "task": Key(
        "which side the file is for",
        choice("run_ut"),
        '"run_ut" (the file of the training side has "tensor")',
        required=True,
    ),
    "dump_path": Key("accepted for compatibility", text, "a path as a string", ""),
    "run_ut": Key("what to judge, and where it comes from", lambda value: value, "an object", required=True),
    "spool": Key("what is only ours", lambda value: value, "an object", {}),
}
# Keys of the `spool` object that are options of `watch`; a command-line option of the same name wins.
_READER_KEYS: dict[str, Key] = {
    "out": Key("results folder", optional(text), "a path as a string"),
    "device": Key("where calls are replayed", optional(text), 'a device, such as "auto", "cpu" or "cuda:1"'),
    "workers": Key("worker processes; 0 judges in the reader itself", optional(integer(0)), "an integer from 0 on"),
    "profile": Key(
        "limits: a name, or a file of your own",
        optional(text),
        "default, msprobe-8.3, cann, or the path of a file of limits",
    ),
    "columns": Key("column names of the CSV files", optional(choice("zh", "en")), "zh or en"),
    "known": Key("list of known differences", optional(text), "the path of a list of known differences"),
    "call_timeout": Key("seconds that one call may take", optional(number(0)), "a number of seconds above 0"),
}


@dataclass(frozen=True)
class ReaderSettings:
    """What a configuration file of the judging side says; `url` is the spool to watch or the address to listen on."""

    url: str
    ranks: tuple[int, ...]
    white_list: tuple[str, ...] = ()
    black_list: tuple[str, ...] = ()
    error_data_path: str = ""
    tls_path: str | None = None
    options: SpoolOptions = field(default_factory=SpoolOptions)
    given: Mapping[str, Any] = field(default_factory=dict)

    def keywords(self) -> dict[str, Any]:
        """The options of `watch` that the file sets."""
        found: dict[str, Any] = {
            "ranks": self.ranks,
            "white_list": self.white_list,
            "black_list": self.black_list,
            "tls_path": self.tls_path,
            "spool": self.options,
            "stale_after": self.options.stale_after,
            **self.given,
        }
        if self.error_data_path:
            # The ecosystem's name for this folder; it is made only when there is an error to keep.
            found["save_errors"] = Path(self.error_data_path) / f"ut_error_data{time.strftime('%Y%m%d%H%M%S')}"
        return found


def read_config(path: str | os.PathLike[str]) -> ReaderSettings:
    """Settings from a configuration file of the judging side; ConfigError names the file and the key."""
    place = os.fspath(path)
    top = validate(read_json(path), _TOP_KEYS, place)
    run_ut = validate(top["run_ut"], _RUN_UT_KEYS, place, "run_ut.")
    own = validate(top["spool"], {**OPTION_KEYS, **_READER_KEYS}, place, "spool.")
    if not run_ut["is_online"]:
        raise ConfigError(f"{place}: run_ut.is_online is false: nothing to watch; set it to true, or use `reprocess`")
    if not run_ut["rank_list"]:
        raise ConfigError(f"{place}: run_ut.rank_list is []; it must name at least one rank, such as [0]")
    return ReaderSettings(
        url=_url(run_ut, place),
        ranks=run_ut["rank_list"],
        white_list=run_ut["white_list"],
        black_list=run_ut["black_list"],
        error_data_path=run_ut["error_data_path"],
        tls_path=run_ut["tls_path"],
        options=SpoolOptions(**{option.name: own[option.name] for option in fields(SpoolOptions)}),
        given={name: own[name] for name in _READER_KEYS if own[name] is not None},
    )


def _url(run_ut: Mapping[str, Any], place: str) -> str:
    if run_ut["nfs_path"]:
        return str(run_ut["nfs_path"])
    if run_ut["host"] and run_ut["port"] >= 0:
        return f"tcp://{run_ut['host']}:{run_ut['port']}"
    raise ConfigError(
        f"{place}: run_ut.is_online is true, but neither run_ut.nfs_path nor run_ut.host and run_ut.port are set; "
        'set nfs_path to the directory that the training writes to, such as "/nfs/xxx/data"'
    )
