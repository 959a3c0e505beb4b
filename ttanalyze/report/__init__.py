"""A run as one web page that needs nothing else: what ran when, on what memory, what changed."""

from __future__ import annotations

from ttanalyze.report.data import Limits, document
from ttanalyze.report.html import page as report

__all__ = ["Limits", "document", "report"]
