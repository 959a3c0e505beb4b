"""Searches for races: records a program with random delays and compares its memory."""

from ttanalyze.verbs.race.report import Finding, Instruction, Late, OneCall, Pair, RaceReport
from ttanalyze.verbs.race.search import race
from ttanalyze.verbs.race.settings import Settings

__all__ = [
    "Finding",
    "Instruction",
    "Late",
    "OneCall",
    "Pair",
    "RaceReport",
    "Settings",
    "race",
]
