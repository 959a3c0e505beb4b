"""Tries launch configurations of a recorded kernel: which are fast and leave the recorded
memory.
"""

from ttanalyze.verbs.tune.space import Configuration
from ttanalyze.verbs.tune.table import Row
from ttanalyze.verbs.tune.tune import Tuned, Wish, tune

__all__ = [
    "Configuration",
    "Row",
    "Tuned",
    "Wish",
    "tune",
]
