"""What on this machine, and on a spool's file system, would make spool-check fail or err: checked before it does."""

from .diagnosis import at_start, diagnose
from .findings import Finding, finding_lines

__all__ = ["Finding", "at_start", "diagnose", "finding_lines"]
