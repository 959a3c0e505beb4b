"""What unclear kernels do through their parameters, from one traced launch of each."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from ttanalyze.core.reach import ATOMIC, MAY_WRITE, READS, WRITES, Uses
from ttanalyze.errors import Error
from ttanalyze.format import graphs
from ttanalyze.format.event_kinds import KIND
from ttanalyze.format.layout import Array
from ttanalyze.format.process import Process
from ttanalyze.format.run import Run
from ttanalyze.traces.accesses import SPACES, untold
from ttanalyze.traces.coverage import missing, refused
from ttanalyze.traces.instructions import instructions_of
from ttanalyze.verbs.check.instructions import ALONE, CAPTURING, node_of, place_of, traced_run
from ttanalyze.verbs.check.session import PLAIN, Session

MOST = 3  # kernels
RECORDS = 1_000_000
WORD = 8


@dataclass(frozen=True)
class _Launch:
    """The first launch of a kernel: alone, or of a node of a graph."""

    seq: int
    node: int
    function: int
    grid: list[int]
    params: bytes


def traced_uses(session: Session, process: Process, uses: Uses) -> tuple[Uses, int]:
    """Returns the uses with those of unclear kernels, and how many kernels these are.

    Args:
        session: The session, which runs the program once more for each kernel.
        process: A process of the plain recording.
        uses: What is known without a trace.
    """
    known: dict[int, dict[int, int]] = {}
    first = _first_launches(process)
    unclear = [
        launch
        for function, launch in sorted(first.items())
        if (told := uses(function)) is None or MAY_WRITE in told.values()
    ]
    for launch in unclear[:MOST]:
        function = launch.function
        name = f"uses-{process.index}-{function}"
        kernel = process.kernel(function) or ""  # perhaps that of other functions, too
        options = {"instrument": "addresses", "instrument_records": str(RECORDS)}
        options["instrument_kernel"] = f"^{re.escape(kernel)}$"
        options["instrument_launch"] = str(place_of(process, [kernel], launch.seq))
        try:
            run = traced_run(session, name, {}, PLAIN | options)
            found = _uses(run, process, launch, uses(function))
        except Error as e:
            session.say(f"what {process.kernel(function)} accesses is unknown: {e}")
            continue
        if found is not None:
            known[function] = found
    return lambda function: known.get(function) or uses(function), len(known)


def _first_launches(process: Process) -> dict[int, _Launch]:
    """By function, if its parameters are known."""
    out: dict[int, _Launch] = {}
    columns = process.event_columns("seq", "kind", "id", "params", "result", "flags")
    done = columns["result"] == 0
    direct = done & (columns["kind"] == KIND["launch"]) & (columns["params"] != 0)
    direct &= columns["flags"] & CAPTURING == 0
    for function, seq in _firsts(columns["id"][direct], columns["seq"][direct]):
        event = process.events_between(seq - 1, seq)[0]
        grid, params = event["grid"].tolist(), process.params(event)
        out[function] = _Launch(seq, ALONE, function, grid, params)
    launched = done & (columns["kind"] == KIND["graph-launch"])
    for graph, seq in _firsts(columns["id"][launched], columns["seq"][launched]):
        for number, node in enumerate(process.graphs.nodes(graph, seq)):
            function = int(node["function"])
            runs = node["kind"] == graphs.KERNEL and not node["flags"] & graphs.DISABLED
            if runs and (function not in out or seq < out[function].seq):
                params = process.graphs.data(node)
                out[function] = _Launch(seq, number, function, node["grid"].tolist(), params)
    return out


def _firsts(ids: Array, seqs: Array) -> list[tuple[int, int]]:
    """Each id with its first seq."""
    found, first = np.unique(ids, return_index=True)
    return list(zip(found.tolist(), seqs[first].tolist(), strict=True))


def _uses(
    run: Run, process: Process, launch: _Launch, known: dict[int, int] | None
) -> dict[int, int] | None:
    """By word of the parameters; None if the trace is incomplete. Raises Error without a trace."""
    again = run.process(process.index)
    heads = again.traced
    seen = [i for i, one in enumerate(heads) if one["refused"] or node_of(one) == launch.node]
    if not seen:
        raise Error("it was not launched again")
    index, head = seen[0], heads[seen[0]]
    if (why := refused(again, head)) is not None:
        raise Error(why)
    same = again.kernel(int(head["function"])) == process.kernel(launch.function)
    if not same or head["grid"].tolist() != launch.grid:
        raise Error("the program made other launches")
    code = instructions_of(run, again, int(head["function"]))
    if missing(again, index) or untold(code):
        return None
    regions, seq = process.regions, launch.seq
    lives = (regions.birth["seq"] < seq) & ((regions.death_seq == 0) | (regions.death_seq > seq))
    rows = np.flatnonzero(lives)[np.argsort(regions.birth["base"][lives], kind="stable")]
    base, size = regions.birth["base"][rows], regions.size[rows].astype("u8")
    loaded, stored, updated = (np.zeros(len(rows), bool) for _ in range(3))
    into = {"load": loaded, "store": stored, "atomic": updated}
    for records in again.trace_records(index, ("addresses", "values")):
        for number in np.unique(records.heads["instruction"]).tolist():
            one = code.by_number.get(number)
            if one is None or one.access == "copy" or one.statements > 1:
                return None  # what it does is not known
            if one.access is None or one.space not in SPACES:
                continue
            some = records.take(np.flatnonzero(records.heads["instruction"] == number))
            at = _row(base, size, some.addresses()[some.lanes])
            into[one.access][at[at >= 0]] = True
    out: dict[int, int] = {}
    for word, pointer in _pointers(launch.params, known):
        row = int(_row(base, size, np.array([pointer], "u8"))[0])
        if row >= 0 and (stored[row] or loaded[row] or updated[row]):
            mixed = loaded[row] and updated[row]
            out[word] = WRITES if stored[row] or mixed else ATOMIC if updated[row] else READS
    return out


def _row(base: Array, size: Array, at: Array) -> Array:
    """The region of each address, -1 for none."""
    if not len(base):
        return np.full(len(at), -1)
    row = np.searchsorted(base, at, "right") - 1
    return np.where((row >= 0) & (at - base[row] < size[row]), row, -1)


def _pointers(params: bytes, known: dict[int, int] | None) -> list[tuple[int, int]]:
    """The words of the parameters that may be pointers, with their offsets."""
    return [
        (word, int.from_bytes(params[word : word + WORD], "little"))
        for word in range(0, len(params) // WORD * WORD, WORD)
        if known is None or word in known
    ]
