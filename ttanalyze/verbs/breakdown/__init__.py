"""Where the time of each rank and step went: computing, communicating, copying, idle."""

from ttanalyze.verbs.breakdown.breakdown import Breakdown, breakdown

__all__ = ["Breakdown", "breakdown"]
