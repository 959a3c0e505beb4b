"""Epochs, drains and allocated memory in a trace."""

from __future__ import annotations

from typing import Any

import numpy as np

from ttanalyze.core.allocations import timeline
from ttanalyze.format import layout
from ttanalyze.format.layout import Array
from ttanalyze.format.process import Process
from ttanalyze.verbs.trace.lanes import Lanes
from ttanalyze.verbs.trace.rows import COUNTER, LATEST, NUMBERS, VALUE, Part, Rows, Writer

PIECE = 1 << 12  # epochs
SIZES = ("seq", "regions", "bytes_read", "bytes_changed", "bytes_stored")


def write_epochs(
    process: Process, lanes: Lanes, writer: Writer, first: int, last: int, flows: int
) -> int:
    """Writes epochs first to last - 1. Returns the number of arrows from epochs to their drains.

    An epoch lasts from the cut until the device has read it. If that is unknown, until it is on
    disk, or until the next cut. In the lane of the drain it begins then, or after the drain of the
    epoch before. flows: the number of earlier arrows.
    """
    epochs = process.epochs
    cuts = process.captures.cuts
    captured = np.maximum(process.captures.ends, cuts)  # or not known
    done = np.maximum(np.minimum(epochs["done_ns"], LATEST).astype("i8"), captured)
    spans = [np.empty(len(epochs), "i8") for _ in range(4)]
    for context in np.unique(epochs["context"]).tolist():
        rows = np.flatnonzero(epochs["context"] == context)
        begins = np.maximum.accumulate(cuts[rows])
        follows = np.append(begins[1:], LATEST.astype("i8"))
        through = np.maximum.accumulate(done[rows])
        read = np.where(captured[rows] > begins, captured[rows], through)
        spans[0][rows], spans[1][rows] = begins, np.minimum(read, follows)
        before = np.append(0, through[:-1])
        spans[2][rows] = np.maximum(np.maximum(begins, captured[rows]), before)
        spans[3][rows] = np.maximum(through, spans[2][rows])
    drained = epochs["done_ns"] > epochs["time_ns"]
    numbers = flows + np.cumsum(drained[first:last])
    for at in range(first, last, PIECE):
        rows = np.arange(at, min(at + PIECE, last))
        templates = [writer.template(_epoch(process, lanes, row)) for row in rows.tolist()]
        some = [span[rows] for span in spans]
        zeros = np.zeros(len(rows), "i8")
        two = ((some[0], some[1]), (some[2], some[3]))
        writer.rows(templates, Rows(two, numbers[rows - first], [zeros] * len(NUMBERS)))
    return int(np.count_nonzero(drained[first:last]))


def _epoch(process: Process, lanes: Lanes, row: int) -> list[Part]:
    epoch = process.epochs[row]
    context = int(epoch["context"])
    trigger = layout.TRIGGERS[int(epoch["trigger"])]
    args: dict[str, Any] = {"epoch": row, "trigger": trigger}
    label = process.strings.get(int(epoch["label"]))
    args |= {} if label is None else {"label": label}
    args |= {name: int(epoch[name]) for name in SIZES}
    flags = [name for name, bit in layout.EPOCH_FLAGS.items() if int(epoch["flags"]) & bit]
    args |= {"flags": flags} if flags else {}
    drained = int(epoch["done_ns"]) > int(epoch["time_ns"])
    captured = int(process.captures.ends[row])
    if captured > int(epoch["time_ns"]):
        args["captured_after_ns"] = captured - int(epoch["time_ns"])
    if drained:
        args["done_after_ns"] = int(epoch["done_ns"]) - int(epoch["time_ns"])
    name = f"epoch {row}" if label is None else f"epoch {row}: {label}"
    flow = "out" if drained else ""
    parts = [Part(lanes.epochs(context), name, "epoch", args, flow=flow)]
    if drained:
        sizes = {name: args[name] for name in ("epoch", "bytes_changed", "bytes_stored")}
        lane = lanes.drain(context)
        parts.append(Part(lane, f"drain {row}", "drain", sizes, span=1, flow="in"))
    return parts


def write_memory(
    process: Process, lanes: Lanes, writer: Writer, bounds: tuple[int, int], since: int
) -> None:
    """Writes the allocated bytes of each device after every call that changed them, for calls with
    seq in (after, until]; from `since` on also the earlier value.
    """
    after, until = bounds
    steps = timeline(process)
    regions = process.regions
    devices = regions.birth["device"][regions.rows(steps["region"].to_numpy())]
    seqs, changes = steps["seq"].to_numpy("i8"), steps["change"].to_numpy("i8")
    recorded = steps["time_ns"].to_numpy("i8")
    if len(seqs) and not recorded.all():  # as in deterministic runs
        known = times_of(process, seqs)
        recorded = np.where(recorded > 0, recorded, known)
    times = np.maximum.accumulate(recorded) if len(seqs) else recorded
    for device in np.unique(devices).tolist():
        rows = np.flatnonzero(devices == device)
        sizes = np.cumsum(changes[rows])
        last = np.append(np.diff(seqs[rows]) != 0, True)  # of one call's
        rows, sizes = rows[last], sizes[last]
        inside = (seqs[rows] > after) & (seqs[rows] <= until)
        before = int(np.count_nonzero(seqs[rows] <= after))
        if before and after < until:
            inside[before - 1] = True
        rows, sizes = rows[inside], sizes[inside]
        if not len(rows):
            continue
        part = Part(lanes.memory(device), "memory", "memory", kind=COUNTER)
        template = writer.template([part])
        for at in range(0, len(rows), PIECE):
            some = np.maximum(times[rows[at : at + PIECE]], since)
            columns = [np.zeros(len(some), "i8")] * len(NUMBERS)
            columns[VALUE] = sizes[at : at + PIECE]
            span = (some, some)
            writer.rows([template] * len(some), Rows((span, span), columns[0], columns))


def times_of(process: Process, seqs: Array) -> Array:
    """Returns the times of calls by seq, 0 if unknown."""
    wanted = layout.distinct(np.asarray(seqs, "u8"))
    times = np.zeros(len(wanted), "i8")
    for records in process.event_pieces() if len(wanted) else ():
        at = np.minimum(np.searchsorted(wanted, records["seq"]), len(wanted) - 1)
        mine = wanted[at] == records["seq"]
        times[at[mine]] = np.minimum(records["time_ns"][mine], LATEST).astype("i8")
    return times[np.searchsorted(wanted, np.asarray(seqs, "u8"))]
