"""The collectives of a process: calls of NCCL, as its NVTX ranges and its kernels tell them.

NCCL opens a range in the domain NCCL in each call. Its payload has the communicator and the size of
the message. One kernel may do the work of all calls of a group. Kernels without a range are
collectives too, of which only the kernel's name is known.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from ttanalyze.format import layout
from ttanalyze.format.annotations import extended_payloads
from ttanalyze.format.event_kinds import KIND
from ttanalyze.format.layout import NO_ID, Array

if TYPE_CHECKING:
    from ttanalyze.format.process import Process

DOMAIN = "NCCL"
OPERATIONS = (
    *("AllReduce", "AllGather", "ReduceScatter", "Broadcast", "Reduce", "AlltoAll", "Gather"),
    *("Scatter", "Send", "Recv", "SendRecv", "Bcast", "other"),
)
SIZE_ALONE = ("AllGather", "AlltoAll")  # their payload has no further member
POINT_TO_POINT = ("Send", "Recv", "SendRecv")
WITH_REDUCTION = ("AllReduce", "ReduceScatter")
WITH_PEER = ("Send", "Recv")
WITH_ROOT = ("Broadcast", "Reduce", "Bcast", "Gather", "Scatter")
REDUCTIONS = ("sum", "prod", "max", "min", "avg")
KERNEL = re.compile(r"^nccl\w*?(?:Kernel|Func)_(?:\d+_)?([A-Za-z]+)")
TYPE = re.compile(r"_([iu](?:8|32|64)|b?f16|f32|f64|f8e4m3|f8e5m2)(?=_|$)")
MANGLED = re.compile(r"^_Z(\d+)(?=nccl)")
NCCL = re.compile(r"^(_Z\d+)?nccl")

# A collective. begin: row of its range among the annotations, -1 if it has none; seq, end_seq: of
# its call, 0 if it has none or did not end; launch: seq of its kernel, 0 if it has none; number:
# its position among those of its communicator; value: root, peer or reduction, -1 if unknown.
COLLECTIVE = np.dtype(
    [(name, "u8") for name in ("seq", "end_seq", "launch", "communicator", "bytes")]
    + [("time_ns", "u8"), ("end_ns", "u8"), ("stream", "u8"), ("begin", "i8")]
    + [(name, "u4") for name in ("operation", "number", "function", "context", "thread")]
    + [("value", "i4")]
)


def is_nccl(kernel: str | None) -> bool:
    """Returns whether a kernel, by its mangled name, is one of NCCL."""
    return kernel is not None and NCCL.match(kernel) is not None


def plain_name(kernel: str | None) -> str:
    """Returns the name of a kernel of NCCL without what mangling adds."""
    found = MANGLED.match(kernel or "")
    return (kernel or "")[found.end() :][: int(found[1])] if found else kernel or ""


def read(process: Process) -> Array:
    """Returns COLLECTIVE records by call."""
    calls, launches = _calls(process), _launches(process)
    _join(process, calls, launches)
    alone = launches[launches["begin"] == -1]
    found = np.concatenate([calls, alone])
    found = found[np.argsort(np.where(found["seq"], found["seq"], found["launch"]), kind="stable")]
    found["number"] = _numbers(found)
    return found


def _ranges(process: Process, prefix: str) -> Iterator[tuple[int, str]]:
    """Yields the rows of NCCL's ranges whose message begins so, with the message."""
    said = process.annotations
    begins = said.records[said.ranges["begin"]]
    domains = [d for d in layout.distinct(begins["dst"]).tolist() if d != NO_ID]
    mine = np.isin(begins["dst"], [d for d in domains if process.strings.get(d) == DOMAIN])
    names = {n: process.strings.get(n) or "" for n in layout.distinct(begins["id"][mine]).tolist()}
    wanted = [n for n, name in names.items() if name.startswith(prefix)]
    for row in np.flatnonzero(mine & np.isin(begins["id"], wanted)).tolist():
        yield row, names[int(begins["id"][row])]


def _calls(process: Process) -> Array:
    said = process.annotations
    named = {f"nccl{name}": i for i, name in enumerate(OPERATIONS)}
    found = [(row, named[name]) for row, name in _ranges(process, "nccl") if name in named]
    rows = np.array([row for row, _ in found], "i8")
    out = np.zeros(len(found), COLLECTIVE)
    begins, ends = said.records[said.ranges["begin"][rows]], said.ranges["end"][rows]
    out["operation"] = [operation for _, operation in found]
    out["begin"], out["seq"], out["time_ns"] = rows, begins["seq"], begins["time_ns"]
    out["thread"], out["context"], out["function"] = begins["thread"], begins["context"], NO_ID
    last = said.records[ends]
    out["end_seq"] = np.where(ends < 0, 0, last["seq"])
    out["end_ns"] = np.where(ends < 0, 0, last["time_ns"])
    members, sizes = extended_payloads(begins)
    alone = np.isin(out["operation"], [OPERATIONS.index(name) for name in SIZE_ALONE])
    named_ = sizes >= np.where(alone, 16, 24)  # older versions do not name the communicator
    words = np.ascontiguousarray(members[:, :16]).view("<u8").reshape(-1, 2)
    values = np.ascontiguousarray(members).view("<i4").reshape(-1, 8)
    out["communicator"] = np.where(named_, words[:, 0], 0)
    out["bytes"] = np.where(named_, words[:, 1], np.where(sizes > 0, words[:, 0], 0))
    out["value"] = np.where(alone | (sizes < 16), -1, np.where(named_, values[:, 4], values[:, 2]))
    return out


def _launches(process: Process) -> Array:
    """Returns the launches of NCCL's kernels as collectives without a call."""
    known: dict[int, int] = {}
    for function in process.functions:
        name = process.strings.get(int(function["name"]))
        if is_nccl(name):
            found = KERNEL.match(plain_name(name))
            operation = found[1] if found else "other"
            known[int(function["id"])] = OPERATIONS.index(
                operation if operation in OPERATIONS else "other"
            )
    parts = [np.empty(0, COLLECTIVE)]
    for events in process.event_pieces() if known else ():
        mine = (events["kind"] == KIND["launch"]) & np.isin(events["id"], [*known])
        some = events[mine]
        part = np.zeros(len(some), COLLECTIVE)
        part["launch"], part["function"], part["begin"] = some["seq"], some["id"], -1
        part["operation"] = [known[i] for i in some["id"].tolist()]
        part["value"] = -1
        for name in ("time_ns", "stream", "context", "thread"):
            part[name] = some[name]
        parts.append(part)
    out = np.concatenate(parts)
    return out[np.argsort(out["launch"], kind="stable")]


def _join(process: Process, calls: Array, launches: Array) -> None:
    """Gives each call the kernel that did its work, and marks these launches by begin = -2.

    A launch does the work of the calls of its thread, with one communicator, that began before it
    and have no kernel yet.
    """
    for thread in layout.distinct(launches["thread"]).tolist():
        mine = np.flatnonzero(calls["thread"] == thread)
        rows, seqs = mine.tolist(), calls["seq"][mine].tolist()
        waiting: list[int] = []
        at = 0
        for launch in np.flatnonzero(launches["thread"] == thread).tolist():
            while at < len(rows) and seqs[at] < launches["launch"][launch]:
                waiting.append(rows[at])
                at += 1
            if not waiting:
                continue
            of = calls["communicator"][waiting[0]]
            done = [row for row in waiting if calls["communicator"][row] == of]
            waiting = [row for row in waiting if calls["communicator"][row] != of]
            for name in ("launch", "function", "context", "stream"):
                calls[name][done] = launches[name][launch]
            launches["begin"][launch] = -2


def _numbers(found: Array) -> Array:
    """Returns the position of each collective among those of its communicator, from 0; of sends and
    receives, among those with its peer.
    """
    pairs = np.isin(found["operation"], [OPERATIONS.index(name) for name in POINT_TO_POINT])
    peer = np.where(pairs, found["value"].astype("i8") + 2, 0)
    kind = np.where(pairs, found["operation"], 0)
    stream = np.where(found["communicator"] == 0, found["stream"], 0)
    keys = np.stack(
        [found["communicator"].view("i8"), stream.view("i8"), peer, kind.astype("i8")], 1
    )
    _, group = np.unique(keys, axis=0, return_inverse=True)
    order = np.argsort(group.ravel(), kind="stable")
    ordered = group.ravel()[order]
    first = np.searchsorted(ordered, ordered)
    out = np.empty(len(found), "u4")
    out[order] = np.arange(len(found)) - first
    return out
