"""Delays that make one stream late as a whole: work that does not wait for it then comes first.

Random delays rarely do that: most of them are in the stream with the most work, which is the one
that should wait.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from ttanalyze.core.delays import Config
from ttanalyze.format.event_kinds import WORK
from ttanalyze.format.run import Run

LONGER = 10  # than a random delay
LONGEST = 1_000_000_000  # nanoseconds: of a delay
WHOLE = 4_000_000_000  # nanoseconds: of the delays of a stream
MOST = 8  # streams, those with the least work


def late_streams(run: Run, delay: int) -> list[Config]:
    """Returns the delays of each stream, those with the least work first.

    Args:
        run: A recording without delays. If its work is in one stream, there is nothing to delay.
        delay: A random delay in nanoseconds.
    """
    works: Counter[int] = Counter()
    for process in run.processes:
        counted: Counter[int] = Counter()
        for records in process.event_pieces():
            of_work = records["stream"][np.isin(records["kind"], WORK)]
            ids, counts = np.unique(of_work, return_counts=True)
            counted.update(dict(zip(ids.tolist(), counts.tolist(), strict=True)))
        if len(counted) > 1:
            works |= counted
    chosen = sorted(works, key=lambda stream: (works[stream], stream))[:MOST]
    return [_late(stream, works[stream], min(delay * LONGER, LONGEST)) for stream in chosen]


def _late(stream: int, count: int, delay: int) -> Config:
    """Returns delays of a stream's calls, or of so many that they last no longer than WHOLE."""
    step = -(-count * delay // WHOLE)
    one = {"stream": stream, "delay": delay, "on": True, "where": "stream"}
    launches = {f"{stream}:{n}": {**one, "number": n} for n in range(0, count, step)}
    return Config({"version": "1.0", "delay_ns": delay, "kernels": {}, "launches": launches})
