"""Where memory comes from: the history of a byte or an item, and when a condition first held."""

from ttanalyze.blame.changes import Blame, Change, blame
from ttanalyze.blame.condition import Condition
from ttanalyze.blame.search import Sighting, Watched, watch
from ttanalyze.blame.target import Target, find_target

__all__ = [
    "Blame",
    "Change",
    "Condition",
    "Sighting",
    "Target",
    "Watched",
    "blame",
    "find_target",
    "watch",
]
