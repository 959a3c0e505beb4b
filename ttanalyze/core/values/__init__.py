"""Memory as numbers: decoding, how far apart two buffers are, and what a buffer holds.

All functions take bytes as 1-D uint8 arrays, of any alignment. Nothing is rounded that need not
be: integers stay integers, and a distance in units of the last place is that of integers which
ascend with the values. Memory is bounded: large arrays are gone through in pieces.
"""

from ttanalyze.core.values.compare import Comparison, Tolerance, ValueDifference, compare_values
from ttanalyze.core.values.summary import Summary, summarise, summarise_pieces
from ttanalyze.core.values.types import TYPES, Number, Type, parse

__all__ = [
    "TYPES",
    "Comparison",
    "Number",
    "Summary",
    "Tolerance",
    "Type",
    "ValueDifference",
    "compare_values",
    "parse",
    "summarise",
    "summarise_pieces",
]
