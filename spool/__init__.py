"""Bundles, and the spool that carries them from the training to the judge."""

from __future__ import annotations

from .bundle import Bundle, CallHeader
from .codec import dump_bundle, load_bundle, read_bundle, read_header
from .errors import (
    BundleCorrupt,
    BundleError,
    BundleMalformed,
    BundleVersion,
    ConfigError,
    NotReplayable,
    NotRepresentable,
    ResultsError,
    SpoolCheckError,
    SpoolError,
    SpoolFull,
    SpoolUnavailable,
)
from .interface import BundleSource, Claim, Session, SessionInfo, SessionRecord, Spool, SpoolStats
from .names import BundleName, bundle_name, parse_bundle_name
from .opening import open_spool
from .options import SpoolOptions
from .purging import PurgeReport, purge
from .storage import LocalShard
from .version import __version__
from .waiting import Waiting, WaitingFile, Wanted

__all__ = [
    "Bundle",
    "BundleCorrupt",
    "BundleError",
    "BundleMalformed",
    "BundleName",
    "BundleSource",
    "BundleVersion",
    "CallHeader",
    "Claim",
    "ConfigError",
    "LocalShard",
    "NotReplayable",
    "NotRepresentable",
    "PurgeReport",
    "ResultsError",
    "Session",
    "SessionInfo",
    "SessionRecord",
    "Spool",
    "SpoolCheckError",
    "SpoolError",
    "SpoolFull",
    "SpoolOptions",
    "SpoolStats",
    "SpoolUnavailable",
    "Waiting",
    "WaitingFile",
    "Wanted",
    "__version__",
    "bundle_name",
    "dump_bundle",
    "load_bundle",
    "open_spool",
    "parse_bundle_name",
    "purge",
    "read_bundle",
    "read_header",
]
