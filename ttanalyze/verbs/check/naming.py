"""Calls and memory of a run, named for findings."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ttanalyze.core import stacks
from ttanalyze.core.allocating_calls import line_of
from ttanalyze.core.order import CAPTURING, plain
from ttanalyze.core.reach import Reach, uses_of
from ttanalyze.core.tensors import tensor_at
from ttanalyze.format import event_kinds, graphs, layout
from ttanalyze.format.event_kinds import KIND
from ttanalyze.format.process import Process
from ttanalyze.output import text
from ttanalyze.verbs.check.findings import Call, Memory

LAUNCH = KIND["launch"]


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


def reached(process: Process, seq: int) -> list[int]:
    """Returns the ids of the regions that a call reaches, as far as that is known.

    Args:
        process: The process.
        seq: The sequence number of the call.
    """
    (event,) = plain(process.events_between(seq - 1, seq))
    rows = {access.row for access in Reach(process, uses_of(process)).of(event)}
    return [int(process.regions.id[row]) for row in sorted(rows)]


def call_of_node(process: Process, graph: int, seq: int, number: int) -> Call:
    """Names what a node of a graph does: by the captured call, if it is known.

    Args:
        process: The process.
        graph: The id of the executable graph.
        seq: The sequence number of its launch.
        number: The number of the node.
    """
    launch = call_of(process, seq)
    node = process.graphs.nodes(graph, seq)[number]
    captured = _captured(process, graph, seq, node)
    if captured is not None:
        return replace(call_of(process, captured), stream=launch.stream)
    kernel = process.kernel(int(node["function"])) if node["kind"] == graphs.KERNEL else None
    return replace(launch, kernel=kernel, kind=graphs.KINDS[int(node["kind"])])


def _captured(process: Process, graph: int, seq: int, node: Any) -> int | None:
    """The last call before the graph was made that was captured with a node's parameters."""
    made = int(process.graphs.made["seq"][graph])
    columns = process.event_columns("seq", "kind", "flags", "id", "dst", "src", "bytes")
    wanted = (columns["flags"] & CAPTURING != 0) & (columns["seq"] < made)
    if node["kind"] == graphs.KERNEL:
        wanted &= (columns["kind"] == LAUNCH) & (columns["id"] == node["function"])
        data = process.graphs.data(node)
        for number in columns["seq"][wanted][::-1].tolist():
            event = process.events_between(number - 1, number)[0]
            if process.params(event) == data or not event["params"]:
                return int(number)
        return None
    wanted &= (columns["dst"] == node["dst"]) & np.isin(columns["kind"], event_kinds.MOVE)
    found = columns["seq"][wanted]
    return int(found[-1]) if len(found) else None


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
        line=line_of(process, birth),
    )


def _name(process: Process, row: int, first: int | None, seq: int | None) -> str:
    region = int(process.regions.id[row])
    part = None if seq is None else tensor_at(process, region, first or 0, seq=seq)
    label = process.strings.get(int(process.regions.label[row]))
    return part.name if part is not None else label or f"region {region}"


def memory_text(memory: Memory) -> str:
    """Returns a text such as "weights (4.0 KiB, allocated at train.py:12 in main)"."""
    where = f", allocated at {memory.line}" if memory.line else ""
    return f"{memory.name} ({text.size(memory.size)}{where})"
