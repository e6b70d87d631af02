"""The training side's configuration: the ecosystem's JSON, or the same keys as keywords of the debugger.

`nfs_path` wins over `host` and `port`; an empty `tls_path` means plain TCP. What is ours stands in one object, `spool`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from spool import ConfigError, SpoolOptions
from spool.config_schema import Key, boolean, choice, integer, number, numbers, read_json, text, texts, validate
from spool.option_keys import OPTION_KEYS

_MiB = 2**20
_OWN_KEYS: dict[str, Key] = {
    "queue_bytes": Key(
        "memory for calls that are recorded and not written yet",
        integer(_MiB),
        "a number of bytes from 1048576 (1 MiB) on",
        1024 * _MiB,
    ),
    "threads": Key("threads that write", integer(1, 64), "an integer from 1 to 64", 2),
    "close_timeout": Key(
        "seconds at the end for what is not written yet; after that it is given up and counted",
        number(0),
        "a number of seconds above 0",
        600.0,
    ),
    "backward": Key("record the operators of every backward too", boolean, "true or false", True),
    "strict": Key("raise the tool's own errors instead of counting them", boolean, "true or false", False),
}
_SPOOL_KEYS = {**OPTION_KEYS, **_OWN_KEYS}
_LIST = 'a list of names, such as ["conv1d", "conv2d"]'
_FILTER_KEYS: dict[str, Key] = {
    "scope": Key(
        "first and last call to record, by full name, or one call",
        texts,
        'a list of full API names, such as ["Torch.matmul.0", "Tensor.add.3"]',
        (),
    ),
    "list": Key(
        "full names, or parts of names such as `relu`",
        texts,
        'a list of API names or parts of them, such as ["Torch.matmul.0", "relu"]',
        (),
    ),
    "white_list": Key("base names to record; a white list decides alone", texts, _LIST, ()),
    "black_list": Key("base names to leave out; what stands on both lists is left out", texts, _LIST, ()),
}
_NUMBERS_RULE = 'a list of integers from 0 on, or ranges such as "4-7"'
_TENSOR_KEYS: dict[str, Key] = {
    **_FILTER_KEYS,
    "data_mode": Key("accepted for compatibility", texts, 'a list such as ["all"]', ()),
    "online_run_ut": Key("the switch: without it nothing is recorded", boolean, "true or false", False),
    "nfs_path": Key("the shared directory; wins over `host` and `port`", text, "a path as a string", ""),
    "host": Key("where the judging side listens", text, "a host name or address as a string", ""),
    "port": Key("where the judging side listens", integer(-1, 65535), "an integer from 0 to 65535, or -1 for none", -1),
    "tls_path": Key(
        "folder with `client.key`, `client.crt`, `ca.crt`; an empty string means plain TCP; without the key, the current folder",
        text,
        "a folder with certificates as a string, or an empty string for plain TCP",
        None,
    ),
    "online_run_ut_recompute": Key("accepted; recomputation needs no switch here", boolean, "true or false", False),
}
_TOP_KEYS: dict[str, Key] = {
    "task": Key(
        "which side the file is for",
        choice("tensor"),
        '"tensor" (the file of the judging side has "run_ut")',
        required=True,
    ),
    "dump_path": Key("accepted for compatibility", text, "a path as a string", ""),
    "rank": Key("ranks to record; empty means all", numbers, _NUMBERS_RULE, ()),
    "step": Key("steps to record; empty means all", numbers, _NUMBERS_RULE, ()),
    "level": Key("calls are recorded one by one", choice("L1"), '"L1": calls are checked one by one', "L1"),
    "enable_dataloader": Key("accepted for compatibility", boolean, "true or false", False),
    "async_dump": Key("accepted for compatibility", boolean, "true or false", False),
    "tensor": Key("what to record, and where to", lambda value: value, "an object", {}),
    "spool": Key("what is only ours", lambda value: value, "an object", {}),
}


@dataclass(frozen=True)
class WriterSettings:
    """What the debugger does. Empty `rank` and `step` mean all; `url` is None when online checking is switched off."""

    url: str | None
    rank: tuple[int, ...] = ()
    step: tuple[int, ...] = ()
    scope: tuple[str, ...] = ()
    list: tuple[str, ...] = ()
    white_list: tuple[str, ...] = ()
    black_list: tuple[str, ...] = ()
    tls_path: str | None = None
    queue_bytes: int = 1024 * _MiB
    threads: int = 2
    close_timeout: float = 600.0
    backward: bool = True
    strict: bool = False
    options: SpoolOptions = field(default_factory=SpoolOptions)


def read_settings(path: str | os.PathLike[str]) -> WriterSettings:
    """Settings from a configuration file of the training side; ConfigError names the file and the key."""
    place = os.fspath(path)
    top = validate(read_json(path), _TOP_KEYS, place)
    tensor = validate(top["tensor"], _TENSOR_KEYS, place, "tensor.")
    own = validate(top["spool"], _SPOOL_KEYS, place, "spool.")
    return WriterSettings(
        url=_url(tensor, place) if tensor["online_run_ut"] else None,
        rank=top["rank"],
        step=top["step"],
        tls_path=tensor["tls_path"],
        **{name: tensor[name] for name in _FILTER_KEYS},
        **_own(own),
    )


def settings_of(spool: str | os.PathLike[str], keywords: Mapping[str, Any]) -> WriterSettings:
    """Settings from keywords, checked by the same rules as those of a file."""
    own_keys = {"rank": _TOP_KEYS["rank"], "step": _TOP_KEYS["step"], "tls_path": _TENSOR_KEYS["tls_path"]}
    keys = {**own_keys, **_FILTER_KEYS, **_SPOOL_KEYS}
    given = {name: list(v) if isinstance(v, range | tuple) else v for name, v in keywords.items() if v is not None}
    checked = validate(given, keys, "PrecisionDebugger(…)")
    own = {name: checked.pop(name) for name in _SPOOL_KEYS}
    return WriterSettings(url=os.fspath(spool), **checked, **_own(own))


def _own(values: Mapping[str, Any]) -> dict[str, Any]:
    options = SpoolOptions(**{option.name: values[option.name] for option in fields(SpoolOptions)})
    return {**{name: values[name] for name in _OWN_KEYS}, "options": options}


def _url(tensor: Mapping[str, Any], place: str) -> str:
    if tensor["nfs_path"]:
        return str(tensor["nfs_path"])
    if tensor["host"] and tensor["port"] >= 0:
        return f"tcp://{tensor['host']}:{tensor['port']}"
    raise ConfigError(
        f"{place}: tensor.online_run_ut is true, but neither tensor.nfs_path nor tensor.host and tensor.port are set; "
        'set nfs_path to a directory that both hosts see, such as "/nfs/xxx/data"'
    )
