"""Where recordings have epochs: at each synchronisation, or after so many launches if these cost
the program too much.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ttanalyze.format import event_kinds, layout
from ttanalyze.format.layout import Array
from ttanalyze.format.process import Process

SPACING = 8192  # launches between two epochs at most: as many as a closer look can resolve
EPOCHS = f"sync,launch:{SPACING}"  # unless they cost too much
COST = 0.01  # of the program's time, that epochs may take
ALLOWANCE = 0.5  # in seconds: epochs may take that in any case
LEAST = 16  # epochs
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
    if not cut or spent / cut * epochs <= max(COST * own, ALLOWANCE):
        return None
    wanted = max(int(max(COST * own, ALLOWANCE) / (spent / cut)), LEAST)
    return min(max(launches // wanted, 1), SPACING)


def launch_seqs(process: Process) -> Array:
    """Returns the sequence numbers of the calls that the recorder counts as launches."""
    columns = process.event_columns("seq", "kind", "result", "flags")
    launch = np.isin(columns["kind"], event_kinds.LAUNCH) & (columns["result"] == 0)
    return columns["seq"][launch & (columns["flags"] & CAPTURING == 0)]
