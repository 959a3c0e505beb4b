"""NVTX annotations in a trace.

The ranges and marks of a thread have a lane below it. Ranges that may end in another thread have
lanes of the process, as many as needed for overlaps. Each domain has its own lanes.
"""

from __future__ import annotations

import heapq
from typing import Any

import numpy as np

from ttanalyze.format import annotations as said
from ttanalyze.format import layout
from ttanalyze.format.layout import Array
from ttanalyze.format.process import Process
from ttanalyze.verbs.trace.lanes import Lanes
from ttanalyze.verbs.trace.rows import LATEST, MARK, NUMBERS, SLICE, Part, Rows, Templates, Writer

PIECE = 1 << 14  # ranges
LAYERS = 64  # of ranges that overlap
KEY = np.dtype(
    [(name, "<u4") for name in ("kind", "thread", "id", "domain", "path", "color", "category")]
    + [("payload", "<f8"), ("layer", "<u4")]
)


def write_annotations(
    process: Process, lanes: Lanes, writer: Writer, bounds: tuple[int, int], times: tuple[int, int]
) -> int:
    """Writes annotations that were open at calls with seq in (after, until], cut to these times.
    Returns their number.
    """
    after, until = bounds
    found, records = process.annotations.ranges, process.annotations.records
    if not len(found):
        return 0
    begins, ends = records[found["begin"]], records[found["end"]]
    endless = found["end"] < 0
    inside = (begins["seq"] <= until) & (endless | (ends["seq"] > after))
    found, begins, endless = found[inside], begins[inside], endless[inside]
    first = np.clip(begins["time_ns"].clip(max=LATEST).astype("i8"), *times)
    last = ends["time_ns"][inside].clip(max=LATEST).astype("i8")
    last[endless] = min(_latest(process), times[1]) if endless.any() else 0
    last = np.maximum(np.clip(last, *times), first)
    layers = _layers(begins, first, last)
    templates = Templates(KEY, lambda key: writer.template([_part(process, lanes, key)]))
    for at in range(0, len(found), PIECE):
        some = slice(at, at + PIECE)
        keys = _keys(found[some], begins[some], layers[some])
        span = (first[some], last[some])
        zeros = np.zeros(len(keys), "i8")
        columns = [begins["seq"][some], *[zeros] * (len(NUMBERS) - 1)]
        writer.rows(templates.for_keys(keys), Rows((span, span), zeros, columns))
    return len(found)


def _latest(process: Process) -> int:
    """Returns the time of the last call."""
    latest = [int(records["time_ns"].max()) for records in process.event_pieces() if len(records)]
    return min(max(latest, default=0), int(LATEST))


def _layers(begins: Array, first: Array, last: Array) -> Array:
    """Returns a free lane of the domain for each range that may end in another thread."""
    layers = np.zeros(len(begins), "u4")
    busy: dict[int, list[tuple[int, int]]] = {}  # by domain: until when, which
    free: dict[int, list[int]] = {}
    for row in np.flatnonzero(begins["kind"] == said.START).tolist():
        domain = int(begins["dst"][row])
        taken, left = busy.setdefault(domain, []), free.setdefault(domain, list(range(LAYERS)))
        while taken and taken[0][0] <= first[row]:
            heapq.heappush(left, heapq.heappop(taken)[1])
        layer = heapq.heappop(left) if left else heapq.heappop(taken)[1]
        heapq.heappush(taken, (int(last[row]), layer))
        layers[row] = layer
    return layers


def _keys(found: Array, begins: Array, layers: Array) -> Array:
    keys = np.zeros(len(found), KEY)
    for name in ("kind", "thread", "id"):
        keys[name] = begins[name]
    keys["thread"][begins["kind"] == said.START] = 0
    keys["domain"], keys["color"] = begins["dst"], begins["shared"]
    keys["category"] = begins["grid"][:, 1]
    keys["payload"] = said.payloads(begins)
    keys["path"], keys["layer"] = found["path"], layers
    return keys


def _part(process: Process, lanes: Lanes, key: Any) -> Part:
    domain = process.strings.get(int(key["domain"]))
    path = process.annotations.path(int(key["path"])) or ""
    message = process.strings.get(int(key["id"])) or "?"
    args: dict[str, Any] = {} if domain is None else {"domain": domain}
    args |= {"path": path} if path != message else {}
    args |= {"category": int(key["category"])} if key["category"] else {}
    args |= {"color": f"#{int(key['color']) & 0xFFFFFF:06x}"} if key["color"] else {}
    args |= {} if np.isnan(key["payload"]) else {"payload": f"{key['payload']:.16g}"}
    number = int(key["domain"])
    if key["kind"] == said.START:
        lane = lanes.ranges(number, domain, int(key["layer"]))
    else:
        lane = lanes.thread_ranges(int(key["thread"]), number, domain)
    kind = MARK if key["kind"] == said.MARK else SLICE
    category = layout.EVENT_KINDS[int(key["kind"])].removeprefix("range-")
    named = {"push": "range", "start": "range"}.get(category, category)
    return Part(lane, message, named, args, kind=kind, numbers=("seq",))
