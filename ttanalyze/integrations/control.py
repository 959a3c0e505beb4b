"""Changes what is recorded while the program runs, from one launch of a graph to the next.

    from ttanalyze.control import control

    control(points=False)
    graph.replay()                      # without epochs inside
    control(points=True, regions="^layers.3", snapshot=16)
    graph.replay()

In a program that is not recorded nothing happens.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable

__all__ = ["control"]


def control(
    *,
    points: bool | None = None,
    stamps: bool | None = None,
    regions: str | int | Iterable[int] | None = None,
    snapshot: int | None = None,
) -> bool:
    """Sets what is given, for epochs and launches of graphs from here on.

    points: whether there are epochs inside graphs (--epoch graph-node:REGEX). stamps: whether
    nodes of graphs have times (--graph-stamps). regions: which of them epochs read that are no
    full snapshots: "all", "touched", ids as [0, 4] or "0,4-6", or a regular expression for the
    names of allocations and of tensors in them. snapshot: a full snapshot after so many epochs, 0:
    none.

    False: nothing is recorded, or a setting can't be understood, which standard error says.
    """
    try:
        tell = ctypes.CDLL(None).tt_control
    except AttributeError:
        return False
    given = {"points": points, "stamps": stamps, "regions": regions, "snapshot": snapshot}
    settings = (f"{name}={_text(value)}" for name, value in given.items() if value is not None)
    return bool(tell(";".join(settings).encode()) == 0)


def _text(value: bool | int | str | Iterable[int]) -> str:
    if isinstance(value, bool):
        return ("off", "on")[value]
    return str(value) if isinstance(value, (int, str)) else ",".join(map(str, value))
