"""A run as one web page that needs nothing else: what ran when, on what memory, what changed."""

from __future__ import annotations

from ttanalyze.verbs.report.data import Limits, document
from ttanalyze.verbs.report.html import page as report

__all__ = ["Limits", "document", "report"]
