"""The instruction, the source line and the thread behind a finding.

The program runs once more, and accesses of the culprit to the memory of the finding are traced.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ttanalyze.code.demangle import readable
from ttanalyze.errors import Error
from ttanalyze.format import graphs, layout, open_run
from ttanalyze.format.event_kinds import KIND
from ttanalyze.format.process import Process
from ttanalyze.format.run import Run
from ttanalyze.output import text
from ttanalyze.traces.accesses import STORES, Access, accesses, untold
from ttanalyze.traces.coverage import missing, refused
from ttanalyze.traces.instructions import described, instructions_of
from ttanalyze.verbs.check.findings import Finding
from ttanalyze.verbs.check.session import Session

MOST = 256  # launches that are traced to see two; kernels of a graph
RECORDS = 50_000  # of accesses to the memory of a finding
PATIENCE = 20  # times the duration of other recordings: a traced program may not end
LEAST = 60  # seconds
LAUNCH, GRAPH_LAUNCH = KIND["launch"], KIND["graph-launch"]
CAPTURING = layout.constant("TT_EVENTF_CAPTURING")
ALONE = -1  # in place of a node: a launch of no graph
APART = "In a traced run they access different bytes of it."
Wanted = Callable[[Access], bool]


@dataclass(frozen=True)
class Traced:
    """Where a finding was seen, and how to see it again.

    Attributes:
        name: The name of the further recording.
        process: The process.
        at: The addresses of the memory.
        options: Options of the recording, in which memory has the same addresses.
        environment: Further variables of the program.
        wanted: Which accesses count. Default: all.
    """

    name: str
    process: Process
    at: range
    options: Mapping[str, Any]
    environment: Mapping[str, str] = field(default_factory=dict)
    wanted: Wanted = lambda access: True


@dataclass(frozen=True)
class Culprit:
    """A launch of a kernel or of a graph that a finding names.

    Attributes:
        seq: The call, None if it is no launch.
        kinds: The kinds of its accesses.
        node: The node of the graph, None if it is unknown.
        kernel: The kernel in the graph, mangled, None if it is unknown.
    """

    seq: int | None
    kinds: Sequence[str] = STORES
    node: int | None = None
    kernel: str | None = None


def addresses(process: Process, region: int, first: int | None, count: int | None) -> range:
    """Returns the addresses of bytes of a region, or of all of it.

    Args:
        process: The process.
        region: The id of the region.
        first: The offset of the first byte, None if it is not known.
        count: The number of bytes, None if it is not known.
    """
    row = int(process.regions.rows(np.array([region]))[0])
    base, size = int(process.regions.birth["base"][row]), int(process.regions.size[row])
    if first is None or count is None:
        return range(base, base + size)
    return range(base + first, base + first + count)


def with_instructions(
    session: Session, found: Finding, where: Traced, culprits: Mapping[str, Culprit]
) -> Finding:
    """Returns a finding with the instructions of its launches, if a trace shows them.

    Of two launches, the instructions are those that access a byte that both access.

    Args:
        session: The session, which runs the program once more.
        found: The finding.
        where: What to trace.
        culprits: Launches, by the name that details of the finding get.
    """
    process, launches = where.process, dict[str, _Launch]()
    for name, culprit in culprits.items():
        launch = None if culprit.seq is None else _launch(process, culprit.seq, culprit)
        if launch is not None:
            launches[name] = launch
    if session.settings.quick or not launches:
        return found
    kernels = sorted({name for one in launches.values() for name, _ in one.kernels.values()})
    options = {**where.options, "instrument": "values", "instrument_records": str(RECORDS)}
    options["instrument_kernel"] = f"^({'|'.join(map(re.escape, kernels))})$"
    options["instrument_addresses"] = f"{where.at.start:#x}:{where.at.stop - 1:#x}"
    places = {name: place_of(process, kernels, one.seq) for name, one in launches.items()}
    if len(set(places.values())) == 1:
        options["instrument_launch"] = str(min(places.values()))
        places = dict.fromkeys(places, 1)
    elif place_of(process, kernels, None) > MOST:
        return found
    try:
        again = traced_run(session, where.name, where.environment, options).process(process.index)
        seen = {
            name: _Accesses(again, places[name] - 1, launch, where, culprits[name].kinds)
            for name, launch in launches.items()
        }
    except Error as e:
        session.say(f"the instruction is unknown: {e}")
        return found
    common = _common(list(seen.values())) if len(seen) > 1 else None
    if common == -1:
        return replace(found, summary=f"{found.summary} {APART}", details=found.details)
    known = {name: told for name, one in seen.items() if (told := one.first(common)) is not None}
    return replace(found, details=found.details | known)


def traced_run(
    session: Session, name: str, environment: Mapping[str, str], options: Mapping[str, Any]
) -> Run:
    """Runs the program once more, and traces instructions that access memory.

    Args:
        session: The session.
        name: The name of the recording.
        environment: Further variables of the program.
        options: Options of the recording, with those of the trace.

    Raises:
        Error: The program cannot be traced.
    """
    given = {**options, "epoch": "none", "contents": None, "instrument_category": "memory"}
    slowest = max((one.seconds for one in session.used.values()), default=0.0)
    limit = str(max(LEAST, round(PATIENCE * slowest)))
    given["timeout"] = session.settings.record.get("timeout") or limit
    recording = session.record(name, environment, **given)
    session.used.pop(name)  # that it fails says nothing
    return open_run(recording.run)


@dataclass(frozen=True)
class _Launch:
    """What a launch is known by in another run: kernels and grids, by node or ALONE."""

    seq: int
    kernels: Mapping[int, tuple[str, tuple[int, ...]]]


def _launch(process: Process, seq: int, culprit: Culprit) -> _Launch | None:
    """None of another call, of a captured one, or of a graph whose kernels are unknown."""
    event = process.events_between(seq - 1, seq)[0]
    launched = {ALONE: (int(event["id"]), event)}
    if event["kind"] == GRAPH_LAUNCH:
        nodes = process.graphs.nodes(int(event["id"]), seq)
        runs = (nodes["kind"] == graphs.KERNEL) & (nodes["flags"] & graphs.DISABLED == 0)
        launched = {
            number: (int(nodes["function"][number]), nodes[number])
            for number in np.flatnonzero(runs).tolist()
            if culprit.node in (None, number)
        }
    elif event["kind"] != LAUNCH or event["flags"] & CAPTURING:
        return None
    kernels = {
        number: (name, tuple(shape["grid"].tolist()))
        for number, (function, shape) in launched.items()
        if (name := process.kernel(function)) is not None
        and (number == ALONE or culprit.kernel in (None, name))
    }
    return _Launch(seq, kernels) if 0 < len(kernels) <= MOST else None


def place_of(process: Process, kernels: Sequence[str], seq: int | None) -> int:
    """Returns the number of a launch among those of some kernels, from 1; of the last one without
    seq. The launch of a graph with such kernels is one.

    Args:
        process: The process.
        kernels: The names of the kernels, mangled.
        seq: The call.
    """
    columns = process.event_columns("seq", "kind", "id", "flags")
    direct = (columns["kind"] == LAUNCH) & (columns["flags"] & CAPTURING == 0)
    functions = np.unique(columns["id"][direct]).tolist()
    wanted = [function for function in functions if process.kernel(function) in kernels]
    rows = direct & np.isin(columns["id"], wanted)
    of_graphs = columns["kind"] == GRAPH_LAUNCH
    holding = [
        graph
        for graph in np.unique(columns["id"][of_graphs]).tolist()
        if any(process.kernel(one) in kernels for one in _functions(process, graph))
    ]
    rows |= of_graphs & np.isin(columns["id"], holding)
    return int(np.count_nonzero(rows if seq is None else rows & (columns["seq"] <= seq)))


def _functions(process: Process, graph: int) -> list[int]:
    """The kernels of a graph, in its last state."""
    nodes = process.graphs.nodes(graph)
    found: list[int] = np.unique(nodes["function"][nodes["kind"] == graphs.KERNEL]).tolist()
    return found


def node_of(head: Any) -> int:
    """Returns the node of a graph whose kernel was traced, ALONE if it was none.

    Args:
        head: A record of `process.traced`.
    """
    return ALONE if head["text"] == layout.NO_ID else int(head["text"])


class _Accesses:
    """The accesses of a traced launch that count. Raises Error without a trace."""

    def __init__(
        self, again: Process, place: int, of: _Launch, where: Traced, kinds: Sequence[str]
    ) -> None:
        """place: its number among those that were traced, from 0."""
        self.missing, self.bytes = list[str](), np.zeros(len(where.at), bool)
        self._found = dict[int, list[Access]]()
        self._names = {node: name for node, (name, _) in of.kernels.items()}
        self._machine = False
        calls = list(dict.fromkeys(again.traced["seq"].tolist()))
        if place >= len(calls):
            raise Error(f"{again.path}: the launch was not repeated")
        for index in np.flatnonzero(again.traced["seq"] == calls[place]).tolist():
            head = again.traced[index]
            if (why := refused(again, head)) is not None:
                raise Error(f"{again.path}: the launch was not traced: {why}")
            if node_of(head) in of.kernels or ALONE in of.kernels:
                self._read(again, index, of.kernels.get(node_of(head)), where, kinds)
        if not self._found:
            raise Error(f"{again.path}: the launch was not repeated")

    def _read(
        self,
        again: Process,
        index: int,
        of: tuple[str, tuple[int, ...]] | None,
        where: Traced,
        kinds: Sequence[str],
    ) -> None:
        head = again.traced[index]
        function = int(head["function"])
        if (again.kernel(function), tuple(head["grid"].tolist())) != of:
            raise Error(f"{again.path}: the program made other launches")
        code = instructions_of(open_run(again.path.parent), again, function)
        found = accesses(again, index, code, (where.at.start, where.at.stop), self.missing, kinds)
        self.missing += [one for one in missing(again, index) if "addresses" not in one]
        self.missing += untold(code)
        self._machine = not code.ptx
        node = node_of(head)
        self._found[node] = [one for one in found if where.wanted(one)]
        for one in self._found[node]:
            self.bytes[max(one.begin, 0) : one.begin + one.size] = True

    def first(self, byte: int | None) -> dict[str, Any] | None:
        """The first access; of a byte, if that is given. None if there is none, or if several
        kernels of a graph have some.
        """
        of_nodes = {
            node: near
            for node, found in self._found.items()
            if (near := [o for o in found if byte is None or 0 <= byte - o.begin < o.size])
        }
        if len(of_nodes) != 1:
            return None
        ((node, found),) = of_nodes.items()
        instruction = found[0].instruction
        inside = {} if node == ALONE else {"node": node, "kernel": self._names[node]}
        return inside | {
            "number": instruction.number,
            "machine": self._machine,
            "text": instruction.text,
            "line": instruction.source,
            "access": instruction.access,
            "block": list(found[0].warp[0]),
            "thread": list(found[0].thread),
            "count": len(found),
        }


def _common(seen: Sequence[_Accesses]) -> int | None:
    """The first byte that all access. -1 if there is none; None if a trace may lack it."""
    shared = np.flatnonzero(np.all([one.bytes for one in seen], axis=0))
    if len(shared):
        return int(shared[0])
    return None if any(one.missing for one in seen) else -1


def instruction_text(known: Mapping[str, Any]) -> str:
    """Returns an instruction of a finding's details, with the thread.

    Args:
        known: The instruction.
    """
    out = described(known["text"], known["number"], known["line"], known["machine"])
    block, thread = (text.coordinates(tuple(known[name])) for name in ("block", "thread"))
    rest = known["count"] - 1
    more = f", and {text.count(rest, 'more access', 'more accesses')}" if rest else ""
    inside = f" in node {known['node']} ({readable(known['kernel'])})" if "node" in known else ""
    return f"{out}{inside}, block {block}, thread {thread}{more}"
