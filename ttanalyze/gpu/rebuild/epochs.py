"""The epochs from which recorded work can be repeated."""

from __future__ import annotations

import numpy as np

from ttanalyze.errors import Error
from ttanalyze.format import contents, layout
from ttanalyze.format.layout import Array
from ttanalyze.format.process import Process
from ttanalyze.output import text

UNUSABLE = layout.REFUSED | layout.DROPPED | layout.LOOSE


def good_epochs(process: Process, context: int) -> Array:
    """Returns the numbers of a context's epochs that have contents and cannot be torn."""
    epochs = process.epochs
    good = (epochs["flags"] & UNUSABLE == 0) & (epochs["context"] == context)
    good &= ~process.digests_alone
    good &= epochs["trigger"] != layout.TRIGGERS.index("graph-node")
    return np.flatnonzero(good)


def is_partial(process: Process, epoch: int | None) -> bool:
    """Returns whether an epoch read only some memory."""
    return epoch is not None and bool(process.coverage.partial[epoch])


def known_of(process: Process, after: int, epoch: int) -> frozenset[int] | None:
    """Returns the ids of regions that were read in an epoch or since another one, None for all.

    If epochs read only what calls name, these are the regions that changed.
    """
    if not is_partial(process, epoch):
        return None
    return frozenset(process.digests(after + 1, epoch + 1)["region"].tolist())


def check_recorded(process: Process) -> None:
    if process.without_events:
        raise Error(f"{process.path.parent}: recorded with --no-events: its work is unknown")
    if process.info.get("options", {}).get("TT_PARAMS") != "1":
        raise Error(
            f"{process.path.parent}: recorded without --params, which is part of --replayable: "
            "the parameters of its kernels are unknown"
        )
    counters = process.info.get("counters", {})
    lost = int(counters.get("events_lost", 0))
    if lost:
        raise Error(f"{process.path.parent}: {text.count(lost, 'call')} were lost")
    process.check_events()


def check_epochs(process: Process, first: int, last: int) -> None:
    if first >= last:
        raise Error(f"epochs {first} to {last}: the first must come before the second")
    check_first(process, first)
    _check_epoch(process, last)
    one, other = (int(process.epochs[epoch]["context"]) for epoch in (first, last))
    if one != other:
        raise Error(f"epoch {first} is of context {one}, epoch {last} of context {other}")


def check_first(process: Process, epoch: int) -> None:
    _check_epoch(process, epoch)
    if process.epochs[epoch]["flags"] & layout.LOOSE:
        raise Error(f"epoch {epoch} was cut while work was running: its contents may be torn")


def _check_epoch(process: Process, epoch: int) -> None:
    contents.check_epoch(process, epoch)
    record, regions = process.epochs[epoch], process.regions
    if layout.TRIGGERS[int(record["trigger"])] == "graph-node":
        raise Error(f"epoch {epoch} lies inside a graph: take one before or after its launch")
    there = (regions.born <= epoch) & (epoch < regions.died)
    there &= (regions.flags & layout.CAPTURED != 0) & (
        regions.birth["context"] == record["context"]
    )
    if there.sum() < record["regions"]:
        have = f"{int(there.sum())} of {int(record['regions'])} regions"
        raise process.cut_short("regions.bin", f"{have} of epoch {epoch} are there")
