"""Where recordings have epochs: at each synchronisation, or after so many launches if these cost
the program too much.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ttanalyze.core.zones import ZONE
from ttanalyze.format import event_kinds, layout
from ttanalyze.format.layout import Array
from ttanalyze.format.process import Process

SPACING = 8192  # launches between two epochs at most: as many as a closer look can resolve
EPOCHS = f"sync,launch:{SPACING}"  # unless they cost too much
COST = 0.01  # of the program's time, that epochs may take
ALLOWANCE = 0.5  # in seconds: epochs may take that in any case
LEAST = 16  # epochs
# The recording with zones reads these alone. An epoch of all memory also takes, in seconds for each
# region and each byte (on an H200 0.54 µs, and a byte at 4.6 TB/s: other GPUs are slower):
REGION, BYTE = 0.5e-6, 1e-12
CAPTURING = layout.constant("TT_EVENTF_CAPTURING")


def affordable(processes: Sequence[Process]) -> str | None:
    """Returns where epochs cost a program little, None if each synchronisation is not too often.

    Args:
        processes: The processes of a recording that measured what its epochs cost.
    """
    every = [one for process in processes if (one := _spacing(process)) is not None]
    return f"launch:{min(every)}" if every else None


def _spacing(process: Process) -> int | None:
    """The same for a process, as a number of launches."""
    cost = process.info.get("overhead")
    launches = len(launch_seqs(process))
    if cost is None or not launches:
        return None
    epochs = len(process.epochs)
    cut = epochs - int(cost["skipped"])
    spent = (cost["host_ns"] + cost["gpu_ns"]) / 1e9
    own = max(cost["elapsed_ns"] / 1e9 - spent, 0)
    if not cut:
        return None
    each = spent / cut + _unread(process)
    if each * epochs <= max(COST * own, ALLOWANCE):
        return None
    wanted = max(int(max(COST * own, ALLOWANCE) / each), LEAST)
    return min(max(launches // wanted, 1), SPACING)


def _unread(process: Process) -> float:
    """The time in seconds that an epoch would take longer if it read all memory, on average."""
    regions, epochs = process.regions, len(process.epochs)
    unread = (regions.birth["kind"] < ZONE) & (regions.flags & layout.CAPTURED == 0)
    lives = np.minimum(regions.died[unread], epochs) - np.minimum(regions.born[unread], epochs)
    return float((lives * (REGION + BYTE * regions.size[unread])).sum() / epochs)


def launch_seqs(process: Process) -> Array:
    """Returns the sequence numbers of the calls that the recorder counts as launches."""
    columns = process.event_columns("seq", "kind", "result", "flags")
    launch = np.isin(columns["kind"], event_kinds.LAUNCH) & (columns["result"] == 0)
    return columns["seq"][launch & (columns["flags"] & CAPTURING == 0)]
