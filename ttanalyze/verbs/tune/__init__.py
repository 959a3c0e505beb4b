"""Tries launch configurations of a recorded kernel: which are fast and leave the recorded
memory.
"""

from ttanalyze.verbs.tune.show import chart_page, tuned_text
from ttanalyze.verbs.tune.space import Configuration, Space, space
from ttanalyze.verbs.tune.table import Row, Table
from ttanalyze.verbs.tune.tune import Tuned, Wish, find, tune

__all__ = [
    "Configuration",
    "Row",
    "Space",
    "Table",
    "Tuned",
    "Wish",
    "chart_page",
    "find",
    "space",
    "tune",
    "tuned_text",
]
