"""Every error that spool-check raises on purpose.

::

    SpoolCheckError
    ├── ConfigError            a configuration file, keyword or command-line value      exit 2
    └── SpoolError             the spool or the environment                             exit 3
        ├── SpoolUnavailable   missing, unreadable, unwritable, not a spool
        ├── SpoolFull          no space or quota; nothing was published
        ├── ResultsError       the results folder: owned by another reader, unwritable
        ├── BundleError        one file that cannot be used
        │   ├── BundleMalformed    no safetensors file, or not one of ours
        │   ├── BundleVersion      a format this version does not read
        │   └── BundleCorrupt      digest mismatch, truncated data
        ├── NotRepresentable   a Python value that a bundle cannot hold
        └── NotReplayable      a call that must not or cannot be run again

Messages name the place, the value, the rule and the remedy.
"""

from __future__ import annotations


class SpoolCheckError(Exception):
    """Base of all; `exit_code` is what the command line ends with."""

    exit_code = 3


class ConfigError(SpoolCheckError):
    """A configuration value breaks a rule."""

    exit_code = 2


class SpoolError(SpoolCheckError):
    """The spool or its surroundings cannot be used."""


class SpoolUnavailable(SpoolError):
    """The spool is missing, unreadable, unwritable or no spool at all."""


class SpoolFull(SpoolError):
    """The file system has no space or quota left; nothing became visible."""


class ResultsError(SpoolError):
    """The results folder cannot be used."""


class BundleError(SpoolError):
    """One bundle cannot be used; it belongs into quarantine."""


class BundleMalformed(BundleError):
    """The file is no safetensors file, or none of ours."""


class BundleVersion(BundleError):
    """The bundle's format is unknown to this version."""


class BundleCorrupt(BundleError):
    """The bundle's bytes are not the ones that were written."""


class NotRepresentable(SpoolError):
    """A value that a bundle cannot hold.

    Attributes:
        type_name: qualified name of the value's type.
        path: where it stands in the call, such as `kwargs.generator` or `args[1][0]`.
    """

    def __init__(self, type_name: str, path: str) -> None:
        self.type_name = type_name
        self.path = path
        super().__init__(f"{type_name} at {path}")

    def __reduce__(self) -> tuple[type[NotRepresentable], tuple[str, str]]:
        return type(self), (self.type_name, self.path)


class NotReplayable(SpoolError):
    """A call that must not or cannot be run again; the message is the reason in its skip row."""
