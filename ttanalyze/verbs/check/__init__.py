"""Runs a program under several checks, and names the culprit of each fault."""

from ttanalyze.verbs.check.check import CHECKS, check, choose
from ttanalyze.verbs.check.findings import Call, CheckReport, Finding, Memory, Outcome
from ttanalyze.verbs.check.session import Plan, Session, Settings

__all__ = [
    "CHECKS",
    "Call",
    "CheckReport",
    "Finding",
    "Memory",
    "Outcome",
    "Plan",
    "Session",
    "Settings",
    "check",
    "choose",
]
