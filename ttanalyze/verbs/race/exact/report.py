"""The report of `race --exact`."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import orjson
import pandas as pd

from ttanalyze.core.allocations import alive_at
from ttanalyze.errors import Error
from ttanalyze.format import open_run
from ttanalyze.format.process import Process
from ttanalyze.traces.coverage import refused
from ttanalyze.traces.origin import Origin, origin
from ttanalyze.util.progress import Progress, tell
from ttanalyze.verbs.race.exact import load
from ttanalyze.verbs.race.exact.analysis import Conflict, conflicts
from ttanalyze.verbs.race.exact.model import BLOCK_SHIFT, SHARED, WARP, Access
from ttanalyze.verbs.retrace import Retraced

DOES = {Access.LOAD: "loads", Access.STORE: "stores", Access.ATOMIC: "updates"}
OFFSET = (1 << BLOCK_SHIFT) - 1


@dataclass(frozen=True)
class Side:
    """One of the two accesses of a race.

    Attributes:
        number: Of the instruction: its place in machine code divided by 16, or its line of PTX.
        text: The instruction.
        line: FILE:LINE of the source, None if it is unknown.
        does: "loads", "stores" or "updates" (atomically); "copies" if an engine does it later.
        size: Bytes that the thread accesses.
        block, thread: Who does it, as x, y, z.
    """

    number: int
    text: str
    line: str | None
    does: str
    size: int
    block: tuple[int, ...]
    thread: tuple[int, ...]


@dataclass(frozen=True)
class InnerRace:
    """The races between two instructions of a launch.

    Attributes:
        first, second: One of them, in the order of the trace.
        certain: Nothing orders the two. Else `reasons` say why it is unclear.
        same_value: Both store, always the same value.
        count: Pairs of accesses by two threads that are not ordered.
        space: "shared" or "global".
        address: Of the first byte; in shared memory the offset in that of `owner`.
        owner: The block whose shared memory it is, as x, y, z.
        region, label, offset: The allocation, its label, and the offset in it.
    """

    first: Side
    second: Side
    certain: bool
    reasons: list[str]
    same_value: bool
    count: int
    space: str
    address: int
    owner: tuple[int, ...] | None = None
    region: int | None = None
    label: str | None = None
    offset: int | None = None


@dataclass
class LaunchRaces:
    """What was found in a launch.

    Attributes:
        launch: The sequence number of the call.
        kernel: The mangled name.
        grid, block: Sizes.
        machine: Numbers of instructions are of machine code, not lines of PTX.
        records: Records of the trace that count here.
        races: What was found.
        missing: What the trace lacks. Without races, the launch is then unclear.
        seconds: Duration of the search.
    """

    launch: int
    kernel: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    machine: bool = False
    records: int = 0
    races: list[InnerRace] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def found(self) -> bool:
        """Whether there is a race that is not of stores of the same value."""
        return not all(race.same_value for race in self.races)


@dataclass
class InnerReport:
    """The races within traced launches of a run."""

    run: str
    launches: list[LaunchRaces] = field(default_factory=list)

    @property
    def found(self) -> bool:
        return any(launch.found for launch in self.launches)

    @property
    def unclear(self) -> bool:
        """Whether a launch without races was not traced completely."""
        return any(launch.missing and not launch.found for launch in self.launches)

    def to_json(self) -> str:
        """Returns the report as a JSON object."""
        document: dict[str, Any] = {"format": "ttanalyze-race-exact", "version": 1, **asdict(self)}
        document |= {"found": self.found, "unclear": self.unclear}
        return orjson.dumps(document, option=orjson.OPT_INDENT_2).decode()


def search(
    process: Process,
    seq: int | None = None,
    progress: Progress = None,
    replayed: Retraced | None = None,
) -> InnerReport:
    """Searches traced launches for races.

    Args:
        process: The process.
        seq: The sequence number of the launch. Default: all traced launches.
        progress: Called with the finished and the total number of launches.
        replayed: What `traced_launch` returned of the launch. Default: the process has its trace.

    Raises:
        Error: There is no such trace, or it lacks what is needed.
    """
    of, doubt = (replayed.process, replayed.doubt) if replayed else (process, "")
    if replayed and seq is not None:
        recorded: Origin | None = Origin(process, seq, replayed.moved)
    else:
        recorded = origin(open_run(process.path.parent))
    chosen = load.launches(of, None if replayed else seq)
    if not chosen:
        raise Error(f"{process.path}: no launch was traced; record with `{load.ADVICE}`")
    report = InnerReport(str(process.path.parent))
    seen = load.survey(of)
    for done, index in enumerate(chosen, 1):
        launch = int(of.traced["seq"][index]) if seq is None else seq
        if seq is None and (why := refused(of, of.traced[index])) is not None:
            found = _about(of, index, launch)
            found.missing = [f"the launch was not traced: {why}"]
        else:
            found = _searched(of, index, launch, seen[index], recorded)
        found.missing += [doubt] if doubt else []
        report.launches.append(found)
        tell(progress, done, len(chosen))
    return report


def _about(of: Process, index: int, seq: int) -> LaunchRaces:
    head = of.traced[index]
    grid, block = (tuple(int(n) for n in head[name]) for name in ("grid", "block"))
    return LaunchRaces(seq, of.kernel(int(head["function"])) or "", grid, block)


def _searched(
    of: Process, index: int, seq: int, seen: Mapping[int, int], recorded: Origin | None
) -> LaunchRaces:
    """Searches one launch. recorded: the launch that it is a replay of, None if it is none."""
    began = time.monotonic()
    out = _about(of, index, seq)
    traced = load.traced(of, index, seen)
    out.machine, out.records = traced.machine, len(traced.launch.instruction)
    out.missing = list(traced.launch.missing)
    found = conflicts(traced.launch)
    if recorded is None:
        regions = alive_at(of, seq)
    else:
        regions = recorded.placed(alive_at(recorded.process, recorded.launch))
    starts, sizes = (regions[name].to_numpy().astype("u8") for name in ("base", "bytes"))
    if traced.machine and load.elsewhere(traced.launch, starts, starts + sizes):
        out.missing.append("generic addresses outside of allocations, such as of shared memory")
    out.races = [_race(traced, conflict, regions) for conflict in found]
    out.seconds = time.monotonic() - began
    return out


def _race(traced: load.Traced, conflict: Conflict, regions: pd.DataFrame) -> InnerRace:
    first, second = (
        _side(traced, record, lane)
        for record, lane in zip(conflict.records, conflict.lanes, strict=True)
    )
    address = conflict.address
    place: dict[str, Any] = {"space": "global", "address": address}
    if address & SHARED:
        owner = _place((address ^ SHARED) >> BLOCK_SHIFT, traced.grid)
        place = {"space": "shared", "address": address & OFFSET, "owner": owner}
    else:
        inside = (regions["base"] <= address) & (address - regions["base"] < regions["bytes"])
        for region in regions[inside].itertuples():
            place |= {"region": int(region.region), "offset": address - int(region.base)}
            place["label"] = region.label if isinstance(region.label, str) else None
    return InnerRace(
        first,
        second,
        certain=conflict.certain,
        reasons=conflict.reasons(),
        same_value=conflict.same_value,
        count=conflict.count,
        **place,
    )


def _side(traced: load.Traced, record: int, lane: int) -> Side:
    launch = traced.launch
    number = int(launch.instruction[record])
    operation = launch.operations[number]
    thread = int(launch.warp[record]) * WARP + lane
    does = "copies" if operation.copy else DOES[operation.access]
    block = _place(int(launch.block[record]), traced.grid)
    who = block, _place(thread, traced.block)
    return Side(number, operation.text, operation.source, does, operation.size, *who)


def _place(number: int, size: tuple[int, ...]) -> tuple[int, ...]:
    """Returns x, y, z of a linear number."""
    return tuple(int(i) for i in np.unravel_index(number, size[::-1]))[::-1]
