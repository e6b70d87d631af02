"""What the comparators raise on purpose."""

from __future__ import annotations


class ProfileError(ValueError):
    """A profile that cannot be used; the message names key, value, rule and the nearest valid key."""

    exit_code = 2
