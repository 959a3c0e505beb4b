"""Finds the fewest delays with which a program still fails.

`reduce` asks a function, and `reduce_test` runs a command. `name_delays` names the instruction and
the source line of each delay.
"""

from ttanalyze.verbs.reduce.delayed_instructions import DelayedInstruction, name_delays
from ttanalyze.verbs.reduce.program import Settings, reduce_test
from ttanalyze.verbs.reduce.report import ReduceReport
from ttanalyze.verbs.reduce.search import STRATEGIES, Answers, Point, Reduction, reduce

__all__ = [
    "STRATEGIES",
    "Answers",
    "DelayedInstruction",
    "Point",
    "ReduceReport",
    "Reduction",
    "Settings",
    "name_delays",
    "reduce",
    "reduce_test",
]
