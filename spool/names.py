"""Names of bundles and folders: `rank{R}/step{S}/{seq:08d}.{API}.safetensors`.

Two parts may follow the API: `.s{16 hex digits}`, a digest of the session, where a rank has had another session before (names
are never reused), and `.try{k}` after k failed attempts. A claim is the same name behind `r{rank}.t{step}.`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import xxhash

SUFFIX = ".safetensors"
API = re.compile(r"[A-Z][A-Za-z]*\.[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*\.\d{1,12}", re.ASCII)
_BUNDLE = re.compile(
    rf"(\d{{8,12}})\.({API.pattern})(?:\.s([0-9a-f]{{16}}))?(?:\.try(\d{{1,4}}))?\.safetensors", re.ASCII
)
_CLAIM = re.compile(r"r(\d{1,9})\.t(\d{1,12})\.(.+)", re.ASCII)
_RANK = re.compile(r"rank(0|[1-9]\d{0,8})", re.ASCII)
_STEP = re.compile(r"step(0|[1-9]\d{0,11})", re.ASCII)
_SESSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", re.ASCII)
# File systems end names at 255 bytes; the rest is room for the claim's rank, step and attempt.
MAX_API = 180


@dataclass(frozen=True)
class BundleName:
    """What a bundle's file name says; `attempt` counts failed attempts so far."""

    seq: int
    api: str
    attempt: int = 0
    tag: str = ""

    def __str__(self) -> str:
        tag = f".s{self.tag}" if self.tag else ""
        tries = f".try{self.attempt}" if self.attempt else ""
        return f"{self.seq:08d}.{self.api}{tag}{tries}{SUFFIX}"


@dataclass(frozen=True, order=True)
class Place:
    """Where a bundle belongs: its rank, its step and its name there."""

    rank: int
    step: int
    file: str

    @property
    def ready(self) -> str:
        """The path under the spool while it waits."""
        return f"rank{self.rank}/step{self.step}/{self.file}"

    @property
    def claimed(self) -> str:
        """The name inside a consumer's claim folder."""
        return f"r{self.rank}.t{self.step}.{self.file}"


def parse_claim_name(name: str) -> tuple[Place, BundleName] | None:
    """Where a claimed file came from; None for every other directory entry."""
    match = _CLAIM.fullmatch(name)
    parsed = parse_bundle_name(match[3]) if match else None
    if match is None or parsed is None:
        return None
    return Place(int(match[1]), int(match[2]), match[3]), parsed


def bundle_name(seq: int, api: str) -> str:
    """The file name of a new bundle of a rank's first session."""
    return str(BundleName(seq, api))


def parse_bundle_name(name: str) -> BundleName | None:
    """The parts of a bundle's file name; None for every other directory entry."""
    match = _BUNDLE.fullmatch(name)
    if match is None:
        return None
    return BundleName(int(match[1]), match[2], int(match[4] or 0), match[3] or "")


def is_api(name: object) -> bool:
    """Whether `name` has the form `Type.base.number` and fits into a file name."""
    return isinstance(name, str) and len(name) <= MAX_API and API.fullmatch(name) is not None


def is_session(name: object) -> bool:
    """Whether `name` can stand in a file name: letters, digits, `.`, `_` and `-`, at most 100 of them."""
    return isinstance(name, str) and _SESSION.fullmatch(name) is not None


def session_tag(session: str) -> str:
    """What tells the bundles of one session from those of another session of the same rank."""
    return xxhash.xxh3_64_hexdigest(session.encode())


def rank_of(folder: str) -> int | None:
    """The rank that a folder name stands for."""
    match = _RANK.fullmatch(folder)
    return int(match[1]) if match else None


def step_of(folder: str) -> int | None:
    """The step that a folder name stands for."""
    match = _STEP.fullmatch(folder)
    return int(match[1]) if match else None
