"""Compares two runs: where their memory first differs, and which calls may be the cause."""

from ttanalyze.verbs.diff.compare import diff, parse_types
from ttanalyze.verbs.diff.report import DiffReport, Divergence, ProcessDiff, Suspect

__all__ = ["DiffReport", "Divergence", "ProcessDiff", "Suspect", "diff", "parse_types"]
