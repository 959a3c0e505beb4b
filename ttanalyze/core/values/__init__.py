"""Memory as numbers: types of items, comparison of two buffers, summaries.

Buffers are 1-D uint8 arrays of any alignment. Integers are never rounded. Distances in units of the
last place count the representable values between two items. Large arrays are processed in pieces,
so memory stays bounded.
"""

from ttanalyze.core.values.compare import Tolerance, ValueDifference, compare_values
from ttanalyze.core.values.summary import Summary, summarise
from ttanalyze.core.values.types import TYPES, Number, Type, parse

__all__ = [
    "TYPES",
    "Number",
    "Summary",
    "Tolerance",
    "Type",
    "ValueDifference",
    "compare_values",
    "parse",
    "summarise",
]
