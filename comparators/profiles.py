"""Profiles: which limits judge an output, and which line says so.

A user's profile is a JSON file. Everything in it is optional; the most specific line wins::

    {"base": "default",                                   a shipped profile to start from
     "limits": {"cosine": 0.999},                         for everything
     "dtypes": {"float16": {"rtol": 0.002}},              for outputs of a dtype
     "apis":   {"matmul": {"standard": "benchmark",       for an API, by base name
                           "rmse_ratio": 1.5,
                           "dtypes": {"float16": {"max_rel_ratio": 5}}}}}

Order, first found wins: API and dtype, API, dtype, everything; in the user's file, then in the shipped profile.
"""

from __future__ import annotations

import difflib
import functools
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from .errors import ProfileError
from .limits import CANN_APIS, CANN_LEVEL_0, CANN_ROWS, COMMON, DEFAULT_API_DTYPES, DTYPE_ROWS, MEANING, PEER_ROWS
from .names import STANDARDS, base_name, functional_name, listed_standard

_SHARES = frozenset({"ulp_share", "thousandth_share", "cosine"})
_TOP_KEYS = ("base", "name", "limits", "dtypes", "apis")


@dataclass(frozen=True)
class Layer:
    """One source of limits; each level maps limit names to values."""

    source: str
    everything: Mapping[str, float] = field(default_factory=dict)
    dtypes: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    apis: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    api_dtypes: Mapping[tuple[str, str], Mapping[str, float]] = field(default_factory=dict)
    standards: Mapping[str, str] = field(default_factory=dict)

    def levels(self, names: Iterable[str], dtype: str) -> Iterable[tuple[str, Mapping[str, float]]]:
        """The levels that apply, most specific first, each with the words that name it."""
        for name in names:
            yield f"{self.source}: {name}, {dtype}", self.api_dtypes.get((name, dtype), {})
        for name in names:
            yield f"{self.source}: {name}", self.apis.get(name, {})
        yield f"{self.source}: {dtype}", self.dtypes.get(dtype, {})
        yield f"{self.source}: everything", self.everything


@dataclass(frozen=True, eq=False)
class Limits:
    """The limits of one API and dtype, and the line that each comes from; one object for each, so it is its own key."""

    values: Mapping[str, float]
    lines: Mapping[str, str]

    def __getitem__(self, name: str) -> float:
        return self.values[name]


@dataclass(frozen=True)
class Profile:
    """What judges: layers of limits and the rules that differ between profiles.

    Attributes:
        name: as given.
        layers: most specific first.
        peer_arithmetic: compute and decide number for number as mindstudio-probe 8.3.0, its holes included.
    """

    name: str
    layers: tuple[Layer, ...]
    peer_arithmetic: bool = False

    def standard(self, api: str) -> tuple[str, str]:
        """The standard of an API and the line that says so."""
        base = base_name(api)
        for layer in self.layers:
            for name in _spellings(base):
                if name in layer.standards:
                    return layer.standards[name], f"{layer.source}: {name}"
        return listed_standard(base, peer_lists_only=self.peer_arithmetic)

    def limits(self, api: str, dtype: str) -> Limits:
        """The limits for an API's output of a dtype, by its short name: `float16`."""
        return _limits(self, base_name(api), dtype)

    def __hash__(self) -> int:
        return hash((self.name, self.peer_arithmetic, id(self.layers)))


@functools.lru_cache(maxsize=4096)
def _limits(profile: Profile, base: str, dtype: str) -> Limits:
    values: dict[str, float] = {}
    lines: dict[str, str] = {}
    row = dtype if dtype in DTYPE_ROWS else "float32"
    for layer in profile.layers:
        for line, level in layer.levels(_spellings(base), row):
            for name, value in level.items():
                if name not in values:
                    values[name] = value
                    lines[name] = line
    return Limits(values, lines)


def _spellings(base: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys((base, functional_name(base))))


_DEFAULT = Layer("default", COMMON, DTYPE_ROWS, api_dtypes=DEFAULT_API_DTYPES)
_PEER = Layer("msprobe-8.3", dtypes=PEER_ROWS)
_CANN = Layer("cann", CANN_LEVEL_0, CANN_ROWS, CANN_APIS)
SHIPPED: Mapping[str, Profile] = {
    "default": Profile("default", (_DEFAULT,)),
    "msprobe-8.3": Profile("msprobe-8.3", (_PEER, _DEFAULT), peer_arithmetic=True),
    "cann": Profile("cann", (_CANN, _DEFAULT)),
}


def load_profile(name_or_path: str | Path | Profile = "default") -> Profile:
    """A shipped profile by name, or a user's JSON file by path."""
    if isinstance(name_or_path, Profile):
        return name_or_path
    shipped = SHIPPED.get(str(name_or_path))
    if shipped is not None:
        return shipped
    path = Path(name_or_path)
    if not path.exists():
        raise ProfileError(
            f"profile {str(name_or_path)!r} is neither shipped ({', '.join(SHIPPED)}) nor a file"
            + _nearest(str(name_or_path), SHIPPED)
        )
    return _read(path)


def _read(path: Path) -> Profile:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as exc:
        raise ProfileError(f"profile {path} cannot be read as JSON: {exc}") from exc
    if not isinstance(data, dict):
        raise ProfileError(f"profile {path}: the file must hold one JSON object")
    return profile_from(data, str(path))


def profile_from(data: Mapping[str, Any], source: str) -> Profile:
    """A profile from the object of a user's file; `source` names it in messages and lines."""
    for key in data:
        if key not in _TOP_KEYS:
            raise ProfileError(
                f"{source}: unknown key {key!r}; valid: {', '.join(_TOP_KEYS)}{_nearest(key, _TOP_KEYS)}"
            )
    base = data.get("base", "default")
    if base not in SHIPPED:
        raise ProfileError(f"{source}: base {base!r} is no shipped profile ({', '.join(SHIPPED)})")
    apis: dict[str, Mapping[str, float]] = {}
    api_dtypes: dict[tuple[str, str], Mapping[str, float]] = {}
    standards: dict[str, str] = {}
    for name, row in _object(data, "apis", source).items():
        where = f"{source}: apis.{name}"
        row = dict(_as_object(row, where))
        if "standard" in row:
            standards[name] = _standard(row.pop("standard"), where)
        for dtype, inner in _as_object(row.pop("dtypes", {}), f"{where}.dtypes").items():
            api_dtypes[name, _dtype(dtype, where)] = _level(inner, f"{where}.dtypes.{dtype}")
        apis[name] = _level(row, where)
    dtypes = {
        _dtype(dtype, f"{source}: dtypes"): _level(row, f"{source}: dtypes.{dtype}")
        for dtype, row in _object(data, "dtypes", source).items()
    }
    everything = _level(data.get("limits", {}), f"{source}: limits")
    layer = Layer(source, everything, dtypes, apis, api_dtypes, standards)
    shipped = SHIPPED[base]
    return replace(shipped, name=str(data.get("name", source)), layers=(layer, *shipped.layers))


def _level(row: Any, where: str) -> dict[str, float]:
    return {name: _limit(name, value, where) for name, value in _as_object(row, where).items()}


def _limit(name: str, value: Any, where: str) -> float:
    if name not in MEANING:
        raise ProfileError(f"{where}: unknown limit {name!r} (value {value!r}){_nearest(name, MEANING)}")
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ProfileError(f"{where}.{name}: {value!r} is not a number; {MEANING[name]}")
    if math.isnan(value) or value < 0:
        raise ProfileError(f"{where}.{name}: {value!r} must be zero or positive, and not NaN; {MEANING[name]}")
    if name in _SHARES and value > 1:
        raise ProfileError(f"{where}.{name}: {value!r} is a share and must not exceed 1; {MEANING[name]}")
    return float(value)


def _standard(value: Any, where: str) -> str:
    if value not in STANDARDS:
        raise ProfileError(
            f"{where}.standard: {value!r} is none of {', '.join(STANDARDS)}{_nearest(str(value), STANDARDS)}"
        )
    return str(value)


def _dtype(name: str, where: str) -> str:
    if name not in DTYPE_ROWS:
        raise ProfileError(
            f"{where}: unknown dtype {name!r}; valid: {', '.join(DTYPE_ROWS)}{_nearest(name, DTYPE_ROWS)}"
        )
    return name


def _object(data: Mapping[str, Any], key: str, source: str) -> Mapping[str, Any]:
    return _as_object(data.get(key, {}), f"{source}: {key}")


def _as_object(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ProfileError(f"{where}: {value!r} must be a JSON object of names and values")
    return value


def _nearest(word: str, words: Iterable[str]) -> str:
    close = difflib.get_close_matches(word, list(words), n=1, cutoff=0.5)
    return f"; did you mean {close[0]!r}?" if close else ""
