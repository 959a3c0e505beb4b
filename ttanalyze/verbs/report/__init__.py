"""Shows a run as one HTML page without other files: a timeline, memory use, changes, tables."""

from __future__ import annotations

from ttanalyze.verbs.report.html import page as report
from ttanalyze.verbs.report.html import results_page

__all__ = ["report", "results_page"]
