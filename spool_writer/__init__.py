"""The training side: records calls and writes them into a spool."""

from __future__ import annotations

from .debugger import PrecisionDebugger

__all__ = ["PrecisionDebugger"]
