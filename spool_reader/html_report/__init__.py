"""The HTML report: one file for a browser, without network, made from the rows of results folders."""

from __future__ import annotations

from .extra import has_extra
from .writing import FILE_NAME, write_report

__all__ = ["FILE_NAME", "has_extra", "write_report"]
