"""Where two runs first part, and why there."""

from ttanalyze.diff.check import diff
from ttanalyze.diff.report import DiffReport, Divergence, ProcessDiff, Suspect

__all__ = ["DiffReport", "Divergence", "ProcessDiff", "Suspect", "diff"]
