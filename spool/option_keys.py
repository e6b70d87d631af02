"""The keys of the `spool` object of a configuration file that both sides share: SpoolOptions, key for key."""

from __future__ import annotations

from .config_schema import Key, choice, integer, number, optional, text
from .options import SpoolOptions

_DEFAULTS = SpoolOptions()

OPTION_KEYS: dict[str, Key] = {
    "fsync": Key(
        "`bundle`: each file is synced before it becomes visible; `none`; `auto`: `bundle` on network file systems",
        choice("auto", "bundle", "none"),
        "auto, bundle or none",
        _DEFAULTS.fsync,
    ),
    "mode": Key(
        "mode of bundle files; 420 is 0644, 432 is 0660",
        integer(0o400, 0o777),
        "a file mode as a number, such as 420 (0o644) or 432 (0o660)",
        _DEFAULTS.mode,
    ),
    "group": Key(
        "group of everything in the spool, given to its folder by the training side; with it set `mode` to 432",
        optional(text),
        "the name or number of a group, or null",
        _DEFAULTS.group,
    ),
    "max_pending_bundles": Key(
        "how many bundles of a rank may wait in the spool",
        integer(1),
        "an integer from 1 on",
        _DEFAULTS.max_pending_bundles,
    ),
    "max_pending_bytes": Key(
        "how many bytes of a rank may wait in the spool; null is no limit",
        optional(integer(1)),
        "a number of bytes from 1 on, or null",
        _DEFAULTS.max_pending_bytes,
    ),
    "reserve_bytes": Key(
        "how much of the disk stays free", integer(0), "a number of bytes from 0 on", _DEFAULTS.reserve_bytes
    ),
    "when_full": Key(
        "what a full spool means for a call: `block` waits, then drops; `drop`; `sample`",
        choice("block", "drop", "sample"),
        "block, drop or sample",
        _DEFAULTS.when_full,
    ),
    "block_timeout": Key(
        "seconds that one call waits at most", number(0), "a number of seconds above 0", _DEFAULTS.block_timeout
    ),
    "stale_after": Key(
        "seconds without a sign of life after which a process counts as dead",
        number(0),
        "a number of seconds above 0",
        _DEFAULTS.stale_after,
    ),
    "attempts": Key(
        "attempts at a bundle before it goes into quarantine",
        integer(1, 100),
        "an integer from 1 to 100",
        _DEFAULTS.attempts,
    ),
}
