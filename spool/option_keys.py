"""The keys of the `spool` object of a configuration file that both sides share: SpoolOptions, key for key."""

from __future__ import annotations

from .config_schema import Key, choice, integer, number, optional
from .options import SpoolOptions

_DEFAULTS = SpoolOptions()

OPTION_KEYS: dict[str, Key] = {
    "fsync": Key(choice("auto", "bundle", "none"), "auto, bundle or none", _DEFAULTS.fsync),
    "mode": Key(integer(0o400, 0o777), "a file mode as a number, such as 420 (0o644) or 432 (0o660)", _DEFAULTS.mode),
    "max_pending_bundles": Key(integer(1), "an integer from 1 on", _DEFAULTS.max_pending_bundles),
    "max_pending_bytes": Key(optional(integer(1)), "a number of bytes from 1 on, or null", _DEFAULTS.max_pending_bytes),
    "reserve_bytes": Key(integer(0), "a number of bytes from 0 on", _DEFAULTS.reserve_bytes),
    "when_full": Key(choice("block", "drop", "sample"), "block, drop or sample", _DEFAULTS.when_full),
    "block_timeout": Key(number(0), "a number of seconds above 0", _DEFAULTS.block_timeout),
    "stale_after": Key(number(0), "a number of seconds above 0", _DEFAULTS.stale_after),
    "attempts": Key(integer(1, 100), "an integer from 1 to 100", _DEFAULTS.attempts),
}
