"""Shows when memory changed, which calls may have written it, and when a condition first held."""

from ttanalyze.verbs.blame.changes import Blame, Change, blame
from ttanalyze.verbs.blame.condition import Condition
from ttanalyze.verbs.blame.search import watch
from ttanalyze.verbs.blame.sighting import Sighting, Watched
from ttanalyze.verbs.blame.target import Target, find_target

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
