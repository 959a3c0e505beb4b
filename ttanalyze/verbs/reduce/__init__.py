"""The fewest delays with which something still fails.

`reduce` asks a function, `reduce_test` runs a program; `places` names what is left by instruction
and source line.
"""

from ttanalyze.verbs.reduce.delayed_instructions import DelayedInstruction, places
from ttanalyze.verbs.reduce.program import Settings, reduce_test
from ttanalyze.verbs.reduce.report import ReduceReport, reduce_text
from ttanalyze.verbs.reduce.search import STRATEGIES, Point, Reduction, reduce

__all__ = [
    "STRATEGIES",
    "DelayedInstruction",
    "Point",
    "ReduceReport",
    "Reduction",
    "Settings",
    "places",
    "reduce",
    "reduce_test",
    "reduce_text",
]
