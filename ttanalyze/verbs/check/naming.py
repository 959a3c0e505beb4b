"""Calls and memory of a run, named for findings."""

from __future__ import annotations

from typing import Any

import numpy as np

from ttanalyze.core import stacks
from ttanalyze.core.tensors import tensor_at
from ttanalyze.format import layout
from ttanalyze.format.event_kinds import KIND
from ttanalyze.format.process import Process
from ttanalyze.output import text
from ttanalyze.verbs.check.findings import Call, Memory


def call_of(process: Process, seq: int) -> Call:
    """Returns the call with this sequence number."""
    event = process.events_between(seq - 1, seq)[0]
    frames = process.stack(int(event["stack"])) if event["stack"] else []
    return Call(
        process=process.index,
        seq=seq,
        kind=layout.EVENT_KINDS[int(event["kind"])],
        call=process.call(int(event["call"])),
        kernel=process.kernel(int(event["id"])) if event["kind"] == KIND["launch"] else None,
        stream=int(event["stream"]),
        line=stacks.site(frames) if frames else None,
        stack=stacks.lines(frames),
        range=process.annotations.range_of(event),
    )


def memory_of(
    process: Process,
    region: int,
    first: int | None = None,
    count: int | None = None,
    seq: int | None = None,
) -> Memory:
    """Describes bytes of a region.

    Args:
        process: The process.
        region: The id of the region.
        first: The offset of the first byte.
        count: The number of bytes.
        seq: The call after which a tensor at the first byte gives the name.
    """
    row = int(process.regions.rows(np.array([region]))[0])
    birth = process.regions.birth[row]
    return Memory(
        region=region,
        name=_name(process, row, first, seq),
        size=int(birth["size"]),
        first=first,
        count=count,
        line=_line(process, birth),
    )


def _name(process: Process, row: int, first: int | None, seq: int | None) -> str:
    region = int(process.regions.id[row])
    part = None if seq is None else tensor_at(process, region, first or 0, seq=seq)
    label = process.strings.get(int(process.regions.label[row]))
    return part.name if part is not None else label or f"region {region}"


def _line(process: Process, birth: Any) -> str | None:
    """The program's line that made an allocation."""
    seq = int(birth["seq"])
    events = process.events_between(seq - 1, seq)
    frames = process.stack(int(events[0]["stack"])) if len(events) and events[0]["stack"] else []
    return stacks.site(frames) if frames else None


def memory_text(memory: Memory) -> str:
    """Returns a text such as "weights (4.0 KiB, allocated at train.py:12 in main)"."""
    where = f", allocated at {memory.line}" if memory.line else ""
    return f"{memory.name} ({text.size(memory.size)}{where})"
