"""Runs a program under several checks, and names the culprit of each fault."""

from ttanalyze.verbs.check.check import CHECKS, check
from ttanalyze.verbs.check.findings import Call, CheckReport, Finding, Memory, Outcome
from ttanalyze.verbs.check.session import Settings

__all__ = [
    "CHECKS",
    "Call",
    "CheckReport",
    "Finding",
    "Memory",
    "Outcome",
    "Settings",
    "check",
]
