"""Repeats recorded launches alone, from the memory that they found, without the program.

    import ttanalyze as tt

    process = tt.open("run1").process(0)
    tt.replay(process, [1234])[0].same

    replay = tt.replay.Replay(process, 1234)
    replay.restore()
    replay.submit()
    all(finding.same for finding in replay.compare())
    replay.time(100).median  # microseconds

`plan` tells whether a launch can be repeated. It needs no driver.
"""

from ttanalyze.verbs.replay.changes import Change
from ttanalyze.verbs.replay.plan import Plan, launches, plan
from ttanalyze.verbs.replay.replay import Replay
from ttanalyze.verbs.replay.run import Outcome, ReplayOptions, replay
from ttanalyze.verbs.replay.timing import Times

__all__ = [
    "Change",
    "Outcome",
    "Plan",
    "Replay",
    "ReplayOptions",
    "Times",
    "launches",
    "plan",
    "replay",
]
