"""The instruction, the source line and the thread behind a finding.

The program runs once more, and accesses of the culprit to the memory of the finding are traced.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ttanalyze.errors import Error
from ttanalyze.format import layout, open_run
from ttanalyze.format.event_kinds import KIND
from ttanalyze.format.process import Process
from ttanalyze.format.run import Run
from ttanalyze.output import text
from ttanalyze.traces.accesses import STORES, Access, accesses, untold
from ttanalyze.traces.coverage import missing, refused
from ttanalyze.traces.instructions import described, instructions_of
from ttanalyze.verbs.check.findings import Finding
from ttanalyze.verbs.check.session import Session
from ttanalyze.verbs.record.run import sanitizer_library

MOST = 256  # launches that are traced to see two
RECORDS = 50_000  # of accesses to the memory of a finding
PATIENCE = 20  # times the duration of other recordings: a traced program may not end
LEAST = 60  # seconds
LAUNCH = KIND["launch"]
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
    """A launch that a finding names. seq: None if it is none. kinds: of its accesses."""

    seq: int | None
    kinds: Sequence[str] = STORES


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
        launch = None if culprit.seq is None else _launch(process, culprit.seq)
        if launch is not None:
            launches[name] = launch
    if session.settings.quick or not launches:
        return found
    kernels = sorted({launch.kernel for launch in launches.values()})
    options = {**where.options, "instrument": "values", "instrument_records": str(RECORDS)}
    options["instrument_kernel"] = f"^({'|'.join(map(re.escape, kernels))})$"
    options["instrument_addresses"] = f"{where.at.start:#x}:{where.at.stop - 1:#x}"
    places = {name: _place(process, kernels, one.seq) for name, one in launches.items()}
    if len(launches) == 1:
        options["instrument_launch"] = str(*places.values())
        places = dict.fromkeys(places, 1)
    elif _place(process, kernels, None) > MOST:
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
    tool = os.environ.get("TT_INSTRUMENT_LIBRARY") or sanitizer_library()
    if not session.settings.sim and not tool:
        raise Error("traces need pip install 'ttanalyze[instrument]'")
    given = {**options, "epoch": "none", "contents": None, "instrument_category": "memory"}
    slowest = max((one.seconds for one in session.used.values()), default=0.0)
    limit = str(max(LEAST, round(PATIENCE * slowest)))
    given["timeout"] = session.settings.record.get("timeout") or limit
    recording = session.record(name, environment, **given)
    session.used.pop(name)  # that it fails says nothing
    return open_run(recording.run)


@dataclass(frozen=True)
class _Launch:
    """What a launch is known by in another run."""

    seq: int
    kernel: str
    grid: tuple[int, ...]


def _launch(process: Process, seq: int) -> _Launch | None:
    """None of another call, or of one in a graph."""
    event = process.events_between(seq - 1, seq)[0]
    captured = event["flags"] & layout.constant("TT_EVENTF_CAPTURING")
    kernel = process.kernel(int(event["id"])) if event["kind"] == LAUNCH else None
    return (
        None if kernel is None or captured else _Launch(seq, kernel, tuple(event["grid"].tolist()))
    )


def _place(process: Process, kernels: Sequence[str], seq: int | None) -> int:
    """The number of a launch among those of some kernels, from 1; of the last one without seq."""
    columns = process.event_columns("seq", "kind", "id")
    functions = np.unique(columns["id"][columns["kind"] == LAUNCH]).tolist()
    wanted = [function for function in functions if process.kernel(function) in kernels]
    rows = (columns["kind"] == LAUNCH) & np.isin(columns["id"], wanted)
    return int(np.count_nonzero(rows if seq is None else rows & (columns["seq"] <= seq)))


class _Accesses:
    """The accesses of a traced launch that count. Raises Error without a trace."""

    def __init__(
        self, again: Process, index: int, of: _Launch, where: Traced, kinds: Sequence[str]
    ) -> None:
        if index >= len(again.traced):
            raise Error(f"{again.path}: the launch was not repeated")
        head = again.traced[index]
        if (why := refused(again, head)) is not None:
            raise Error(f"{again.path}: the launch was not traced: {why}")
        function = int(head["function"])
        if (again.kernel(function), tuple(head["grid"].tolist())) != (of.kernel, of.grid):
            raise Error(f"{again.path}: the program made other launches")
        code = instructions_of(open_run(again.path.parent), again, function)
        around, self.missing = (where.at.start, where.at.stop), list[str]()
        found = accesses(again, index, code, around, self.missing, kinds)
        self.missing += [one for one in missing(again, index) if "addresses" not in one]
        self.missing += untold(code)
        self._found = [one for one in found if where.wanted(one)]
        self._machine = not code.ptx
        self.bytes = np.zeros(len(where.at), bool)
        for one in self._found:
            self.bytes[max(one.begin, 0) : one.begin + one.size] = True

    def first(self, byte: int | None) -> dict[str, Any] | None:
        """The first access; of a byte, if that is given. None if there is none."""
        found = [one for one in self._found if byte is None or 0 <= byte - one.begin < one.size]
        if not found:
            return None
        instruction = found[0].instruction
        return {
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
    return f"{out}, block {block}, thread {thread}{more}"
