"""Suspects: the calls that may have made a change, with details of each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ttanalyze.core import stacks
from ttanalyze.core.writers import HOW, INDIRECT, WRITES, writers
from ttanalyze.format import event_kinds, layout
from ttanalyze.format.event_kinds import KIND
from ttanalyze.format.layout import Array
from ttanalyze.format.process import Process
from ttanalyze.verbs.blame.condition import Condition

LISTED = 8
GRAPH_LAUNCH = KIND["graph-launch"]


@dataclass(frozen=True)
class Suspect:
    """A call that may have made a change.

    kernel: mangled. how: one of writers.HOW. grid, block: of launches. bytes: of copies and fills.
    caller: the calling frame, if it was recorded.
    """

    seq: int
    kind: str
    call: str | None
    kernel: str | None
    stream: int
    thread: int
    grid: list[int] | None
    block: list[int] | None
    bytes: int | None
    how: str
    caller: str | None


@dataclass(frozen=True)
class Suspects:
    """The calls that may have made a change.

    listed: the likeliest. count: their number. indirect: the number of launches that are possible
    only if a kernel finds pointers in memory.
    """

    listed: list[Suspect]
    count: int
    indirect: int


def calls_recorded(process: Process) -> bool:
    """Returns whether the process has calls."""
    return next(process.event_pieces(512), None) is not None


def suspects(
    process: Process,
    region: int,
    part: tuple[int, int],
    since: int | None,
    epoch: int,
    most: int = LISTED,
    made: Condition | None = None,
) -> Suspects:
    """Returns the calls between two epochs that may have written to bytes [start, stop) of a
    region.

    since: None for the birth of the region. made: what items of that part are; fills with another
    value do not count. Launches without a pointer to the region count only if there are no other
    suspects.
    """
    after = 0 if since is None else int(process.coverage.whole[since])
    found = writers(process, region, after, int(process.coverage.some[epoch]))
    base = int(process.regions.birth["base"][process.regions.rows(np.array([region]))[0]])
    reaches = (found.how != WRITES) | _reaches(
        process, found.events, base + part[0], base + part[1]
    )
    if made is not None:
        for i in np.flatnonzero(reaches & (found.events["kind"] == KIND["set"])).tolist():
            reaches[i] = _may_make(made, found.events[i], base + part[0])
    order = [i for i in found.surest().tolist() if reaches[i]]
    sure = [i for i in order if found.how[i] != INDIRECT]
    chosen = sure or order
    listed = [_suspect(process, found.events[i], int(found.how[i])) for i in chosen[:most]]
    return Suspects(listed, len(chosen), len(order) - len(chosen))


def _reaches(process: Process, events: Array, start: int, stop: int) -> Array:
    """Returns which copies and fills write to addresses [start, stop).

    Rows may end anywhere, but none begins before the destination. Writes of graphs are not
    considered.
    """
    dst, length = events["dst"], np.maximum(events["bytes"], np.uint64(1))
    names = [process.call(call) or "" for call in events["call"].tolist()]
    in_rows = np.array(["2D" in name or "3D" in name for name in names], bool)
    begins = dst < np.uint64(stop)
    ends = (dst >= np.uint64(start)) | (np.uint64(start) - dst < length)
    return np.asarray((begins & (in_rows | ends)) | (events["kind"] == GRAPH_LAUNCH))


def _may_make(made: Condition, event: Any, start: int) -> bool:
    """Returns whether a fill may write items that fulfil a condition: its value tells, if it writes
    whole items in one row. start: the address of an item.
    """
    width, size = int(event["shared"]), made.type.itemsize
    rest = (int(event["dst"]) - start) % size or int(event["bytes"]) % size
    if made.operator == "changed" or not width or rest or event["grid"].any():
        return True
    value = np.frombuffer(event["src"].tobytes()[:width] * size, "u1")
    return bool(made.test(value).any())


def _suspect(process: Process, event: Any, how: int) -> Suspect:
    kind = layout.EVENT_KINDS[int(event["kind"])]
    launch = kind == "launch"
    frames = process.stack(int(event["stack"])) if event["stack"] else []
    return Suspect(
        seq=int(event["seq"]),
        kind=kind,
        call=process.call(int(event["call"])),
        kernel=process.kernel(int(event["id"])) if launch else None,
        stream=int(event["stream"]),
        thread=int(event["thread"]),
        grid=event["grid"].tolist() if launch else None,
        block=event["block"].tolist() if launch else None,
        bytes=int(event["bytes"]) if event["kind"] in event_kinds.MOVE else None,
        how=HOW[how],
        caller=stacks.caller(frames) if frames else None,
    )
