"""Which calls are recorded: scope, list, white list and black list, as the ecosystem's tools read them."""

from __future__ import annotations

import re
from collections.abc import Sequence

import torch

from spool import ConfigError
from spool.config_schema import nearest

from .names import known_bases

_FULL_NAME = re.compile(r"([A-Z][A-Za-z]*\.[\w.]+?\.\d+)(?:\.(?:forward|backward))?", re.ASCII)


class Filters:
    """Decides call by call; the order of calls matters, since a scope begins and ends at named ones.

    scope: two names are the first and the last call that are recorded; one name stands for itself. list: a full name means that
    call, anything else every call whose name contains it, whatever the case. white_list and black_list hold base names; a white
    list decides alone, except that names on both lists are left out.
    """

    def __init__(
        self,
        scope: Sequence[str] = (),
        names: Sequence[str] = (),
        white_list: Sequence[str] = (),
        black_list: Sequence[str] = (),
    ) -> None:
        self._scope = [_full(name, "scope") for name in scope]
        if len(self._scope) > 2:
            raise ConfigError(f"scope names {len(self._scope)} calls; give the first and the last, or one")
        full = [_FULL_NAME.fullmatch(name) for name in names]
        self._exact = {match[1] for match in full if match}
        self._parts = [name.lower() for name, match in zip(names, full, strict=True) if not match]
        self._white = {_base(name, "white_list") for name in white_list}
        self._black = {_base(name, "black_list") for name in black_list}
        self._inside = False
        self.everything = not (self._scope or names or white_list or black_list)

    def new_step(self) -> None:
        """A scope begins anew in each step, as the numbers of calls do."""
        self._inside = False

    def wants(self, api: str) -> bool:
        """Whether the call named `api` is recorded."""
        if self.everything:
            return True
        inside = self._in_scope(api)
        return inside and self._listed(api) and self._by_base(api.partition(".")[2].rpartition(".")[0])

    def _in_scope(self, api: str) -> bool:
        if not self._scope:
            return True
        first, last = self._scope[0], self._scope[-1]
        if api == first:
            self._inside = True
        inside = self._inside
        if api == last:
            self._inside = False
        return inside

    def _listed(self, api: str) -> bool:
        if not (self._exact or self._parts):
            return True
        low = api.lower()
        return api in self._exact or any(part in low for part in self._parts)

    def _by_base(self, base: str) -> bool:
        if self._white:
            # Where both lists are given, the ecosystem's rule: what the black list shares with the white one is left out.
            return base in self._white and base not in self._black
        return base not in self._black


def _full(name: str, key: str) -> str:
    match = _FULL_NAME.fullmatch(name)
    if match is None:
        raise ConfigError(f"{key}: {name!r} is no full name of a call; it must look like Torch.matmul.0")
    return match[1]


def _base(name: str, key: str) -> str:
    if name.startswith("Custom."):
        return name.removeprefix("Custom.")
    base = name.partition(".")[2] if name.split(".")[0] in ("Functional", "Tensor", "Torch", "NPU", "Aten") else name
    if base not in known_bases() and not base.startswith(("npu_", "fast_gelu", "_")):
        raise ConfigError(f"{key}: {name!r} is no API of torch {torch.__version__}; {_suggest(base)}")
    return base


def _suggest(base: str) -> str:
    return f"{nearest(base, known_bases())}; give base names such as matmul, linear or npu_rms_norm"
