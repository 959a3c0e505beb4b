"""Sets of delays that most likely cause a finding, from what is known without another recording."""

from __future__ import annotations

from ttanalyze.core import delays
from ttanalyze.verbs.race.report import Finding
from ttanalyze.verbs.reduce.search import points_of

MOST = 4  # each set that does not cause it costs a recording


def likely(config: delays.Config, found: Finding) -> list[list[int]]:
    """Returns sets of delays to try first, the likeliest first.

    They are each delayed call of an unordered pair, and all delays in the kernel after which memory
    differs.

    Args:
        config: The delays of the recording.
        found: What differs there.

    Returns:
        Sets of indices into `points_of`.
    """
    points = points_of(config)
    calls: dict[int, list[int]] = {}
    kernels: dict[str, list[int]] = {}
    for i, point in enumerate(points):
        if point.kernel is not None:
            name = config.kernels[point.kernel]["kernel_name"]
            kernels.setdefault(name, []).append(i)
        elif (seq := point.member(config).get("seq")) is not None:
            calls.setdefault(seq, []).append(i)
    pairs = [call for pair in found.pairs for call in (pair.first, pair.second) if call.delayed]
    sets = [calls.get(seq, []) for seq in dict.fromkeys(call.seq for call in pairs)]
    first = found.diff.first if found.diff is not None else None
    after = first[1].after if first is not None else None
    if after is not None and after["kernel"]:
        sets.insert(min(len(sets), MOST - 1), kernels.get(after["kernel"], []))
    return [some for some in sets if some][:MOST]
