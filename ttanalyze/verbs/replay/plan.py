"""Plans the replay of a launch: the epoch to restore, the work before the launch, the epoch to
compare with.

It reads only the run and needs no driver.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ttanalyze.code import demangle
from ttanalyze.code.uses import uses
from ttanalyze.core.writers import waits
from ttanalyze.errors import Error
from ttanalyze.format import event_kinds, layout, modules
from ttanalyze.format.event_kinds import KIND
from ttanalyze.format.layout import Array
from ttanalyze.format.process import Process
from ttanalyze.gpu.rebuild.dependency_graph import FLAGS, span_to
from ttanalyze.gpu.rebuild.epochs import good_epochs, is_partial
from ttanalyze.gpu.rebuild.live_regions import LiveRegions
from ttanalyze.gpu.rebuild.steps import Launch, Move, Span, Step, Upload, cut
from ttanalyze.output import text
from ttanalyze.util.arguments import checked

OTHERS = {"managed": "the host", "ipc": "another process"}  # who else writes to such memory
POINTER = 8  # bytes
USED = ("textures", "surfaces")
PARTIAL = "epochs read only memory that calls name: the contents of other memory are uncertain"
WHY_BAD = {  # by flag, of epochs
    layout.REFUSED: "was refused, because work of the program blocked it",
    layout.DROPPED: "was dropped: it has no contents",
    layout.LOOSE: "was cut while work was running: it may be torn",
}


@dataclass(frozen=True)
class Plan:
    """A launch that can be repeated.

    Attributes:
        process: The process.
        seq: The sequence number of the launch.
        kernel: The mangled name of the kernel.
        before: The epoch that memory is restored to.
        after: The epoch with the result of the launch and nothing else, None if there is none.
        span: The work from that epoch to the launch. The launch is its last step.
        unchecked: Why there is no epoch with the result, else "".
    """

    process: Process
    seq: int
    kernel: str
    before: int
    after: int | None
    span: Span
    unchecked: str

    @property
    def step(self) -> Step:
        """The step of the launch."""
        return self.span.steps[-1]

    @property
    def launch(self) -> Launch:
        """The launch: grid, block, cluster, shared memory (bytes), parameters (bytes as
        recorded).
        """
        assert isinstance(self.step.what, Launch)
        return self.step.what

    @property
    def prepare(self) -> list[Step]:
        """The steps between the epoch and the launch."""
        return self.span.steps[:-1]

    @property
    def rows(self) -> list[int]:
        """The regions that existed, as rows of process.regions."""
        return self.span.regions.tolist()

    @property
    def notes(self) -> list[str]:
        """Assumptions of the replay, one line each."""
        out = []
        launches = sum(isinstance(step.what, Launch) for step in self.prepare)
        if launches:
            before = text.count(launches, "launch", "launches")
            out.append(f"its input comes from epoch {self.before} and {before} after it")
        out += lacking(self.process, [self.launch])
        if any(is_partial(self.process, epoch) for epoch in (self.before, self.after)):
            out.append(PARTIAL)
        whats = (step.what for step in self.prepare)
        out += [
            f"region {what.region}: a copy from the host is taken from epoch {what.epoch}, "
            f"though {what.doubt}"
            for what in whats
            if isinstance(what, Upload) and what.doubt
        ]
        return out + [f"{what}: left out" for what in self.span.left_out]


def lacking(process: Process, given: Iterable[Launch]) -> list[str]:
    """Returns one line per kernel whose parameters are not all known."""
    out = []
    for function, has in dict.fromkeys((launch.function, len(launch.params)) for launch in given):
        wanted = int(modules.function(process, function)["param_bytes"])
        if has < wanted:
            out.append(
                f"the program gave {has} of {wanted} bytes of parameters: the values of "
                "the others are unknown"
            )
    return out


@checked
def launches(process: Process, pattern: str | None = None) -> Array:
    """Returns the launches that were executed, without those that were captured into a graph.

    Args:
        process: The process.
        pattern: A regular expression for the kernel name, mangled or demangled. Default: all
            launches.

    Returns:
        tt_event records by sequence number.

    Raises:
        Error: The regular expression is malformed.

    Example:
        >>> tt.replay.launches(tt.open("run1").processes[0], "scale")["seq"].tolist()
        [2, 4]
    """
    found = [np.empty(0, layout.EVENT)]
    for events in process.events_by_seq():
        some = (events["kind"] == KIND["launch"]) & (events["result"] == 0)
        some &= events["flags"] & FLAGS["capturing"] == 0
        found.append(layout.take(events, some))
    out = layout.joined(found)
    if pattern is None:
        return out
    return layout.take(out, np.isin(out["id"], _matching(process, out, pattern)))


def choice(process: Process, pattern: str | None = None) -> tuple[list[int], int]:
    """Returns the sequence numbers of launches to repeat, and the number of launches left out.

    These are the replayable launches, or all launches if none was recorded as replayable. Raises
    Error if the regular expression is malformed.
    """
    found: Array = launches(process, pattern)["seq"]
    kept = process.launches["seq"]
    numbers: list[int] = (found[np.isin(found, kept)] if len(kept) else found).tolist()
    return numbers, len(found) - len(numbers)


def none_of(process: Process, pattern: str | None = None) -> str:
    """Returns why there is no launch to repeat, if launches() is empty."""
    if process.without_events:
        return "recorded with --no-events: its launches are unknown"
    if pattern is not None and len(launches(process)):
        return f"no launch of a kernel whose name has {pattern!r}"
    of_graphs = sum(
        int(((events["kind"] == KIND["graph-launch"]) & (events["result"] == 0)).sum())
        for events in process.events_by_seq()
    )
    if not of_graphs:
        return "no launch was recorded"
    many = text.count(of_graphs, "launch of a graph", "launches of graphs")
    return (
        f"{many}, but no launch of a single kernel; `ttanalyze replay --from A --to B` replays "
        "graphs of runs recorded with --params --epoch graph"
    )


def _matching(process: Process, events: Array, pattern: str) -> list[int]:
    """Returns the functions whose names match a regular expression."""
    try:
        wanted = re.compile(pattern)
    except re.error as e:
        raise Error(f"{pattern!r} is not a regular expression: {e}") from None
    numbers = layout.distinct(events["id"]).tolist()
    names = [process.kernel(number) or "" for number in numbers]
    full = demangle.demangle(names)
    pairs = zip(numbers, zip(names, full, strict=True), strict=True)
    return [number for number, both in pairs if any(wanted.search(name) for name in both)]


@checked
def plan(process: Process, seq: int) -> Plan:
    """Plans the replay of a launch.

    Args:
        process: The process.
        seq: The sequence number of the launch.

    Raises:
        Error: The process has no such launch, or it cannot be repeated. The message says why.

    Example:
        >>> plan = tt.replay.plan(tt.open("work").process(0), 7)
        >>> plan.before, plan.after  # epochs with its input and its result
        (0, 1)
    """
    found = process.events_between(seq - 1, seq)
    if not len(found):
        raise Error(f"no call {seq} in process {process.index}: `ttanalyze query` lists them")
    event = found[0]
    call = process.call(int(event["call"])) or "a call"
    if event["kind"] == KIND["graph-launch"]:
        raise Error(f"call {seq} ({call}) launches a graph: --from and --to replay it")
    if event["kind"] != KIND["launch"]:
        raise Error(f"call {seq} ({call}) is not a launch of a kernel")
    if event["result"]:
        raise Error(f"launch {seq} was refused by the driver (error {int(event['result'])})")
    if event["flags"] & FLAGS["capturing"]:
        raise Error(f"launch {seq} was recorded into a graph, not executed")
    context = int(event["context"])
    kept = _kept(process, seq)
    if kept is not None:
        _check_views(process, kept)
    before, after = _around(process, context, seq) if kept is None else _recorded(process, kept)
    if before is None:
        left_out = process.info.get("options", {}).get("TT_REPLAYABLE") == "1"
        advice = "without the --kernel or --max-per-kernel that left it out" if left_out else ""
        advice = f"record with --replayable {advice}".rstrip()
        raise Error(f"launch {seq}: no epoch has its input; {advice}")
    kernel = process.kernel(int(event["id"])) or "?"
    made = span_to(process, before, seq)
    if not made.steps or made.steps[-1].seq != seq:
        raise Error(f"launch {seq}: its context {context} lacks an epoch before or after it")
    if kept is None and process.epochs["seq"][before] != seq:  # else it is cut right before
        _check_memory(made, seq)
    unchecked = ""
    if after is None:
        unchecked = "no epoch has its result"
    else:
        more = _work(process, context, seq, cut(process, after))
        if more:
            unchecked = f"{text.count(more, 'other call')} came between it and epoch {after}"
    return Plan(process, seq, kernel, before, None if unchecked else after, made, unchecked)


def _kept(process: Process, seq: int) -> Any:
    """Returns the tt_launch of a replayable launch, else None."""
    launches = process.launches
    at = int(np.searchsorted(launches["seq"], seq))
    return launches[at] if at < len(launches) and launches["seq"][at] == seq else None


def _recorded(process: Process, kept: Any) -> tuple[int | None, int | None]:
    """Returns the epochs right before and after a replayable launch. Raises Error if the first is
    unusable.
    """
    seq = int(kept["seq"])
    numbers: list[int | None] = []
    for name in ("before", "after"):
        number = int(kept[name])
        if number >= len(process.epochs):
            numbers.append(None)
            continue
        context = int(process.epochs["context"][number])
        numbers.append(number if number in good_epochs(process, context) else None)
    if numbers[0] is None and int(kept["before"]) >= len(process.epochs):
        raise Error(
            f"launch {seq}: its input did not reach the disk in time; record with "
            "--replayable --crash-safe"
        )
    if numbers[0] is None:
        number = int(kept["before"])
        flags = int(process.epochs["flags"][number])
        why = next((why for flag, why in WHY_BAD.items() if flags & flag), "has no contents")
        raise Error(f"launch {seq}: epoch {number} before it {why}")
    return numbers[0], numbers[1]


def _check_views(process: Process, kept: Any) -> None:
    """Raises Error if a launch may use textures and surfaces."""
    views = process.kept.views(kept)
    known = _uses(process, int(kept["function"])) if len(views) else None
    for view in views:
        what = layout.VIEW_KINDS[int(view["kind"])]
        if known is not None and not known & {f"{what}s", *(USED if what == "reference" else ())}:
            continue
        kind, seq = layout.VIEW_KINDS[int(view["kind"])], int(kept["seq"])
        if kind == "reference":
            raise Error(f"launch {seq} may use texture or surface references of its module")
        name = f"{kind} object {int(view['object'])}"
        raise Error(f"launch {seq} may use {name}, which can't be recreated")


def _uses(process: Process, function: int) -> set[str] | None:
    """Returns the features of a kernel as kernels.uses does, None if unknown."""
    module = modules.of_kernel(process, function)
    if module is None or not module["image"]:
        return None
    image = modules.read(process, int(module["image"]))
    return uses(image, process.kernel(function) or "")


def _around(process: Process, context: int, seq: int) -> tuple[int | None, int | None]:
    """Returns the last good epoch of a context before a call, and the first after it."""
    numbers = good_epochs(process, context)
    cuts = process.coverage.whole[numbers]
    earlier, later = numbers[cuts < seq], numbers[cuts >= seq]
    return (int(earlier[-1]) if len(earlier) else None, int(later[0]) if len(later) else None)


def _check_memory(made: Span, seq: int) -> None:
    """Raises Error if others may have written to memory of a launch, or of a step before it, since
    the epoch.
    """
    process = made.process
    birth = process.regions.birth
    alive = LiveRegions(process, cut(process, made.first) + 1)
    for step in made.steps:
        alive.advance(step.seq)
        what, words = step.what, [0]
        if isinstance(what, Launch):
            words = np.frombuffer(
                what.params[: len(what.params) // POINTER * POINTER], "<u8"
            ).tolist()
        elif isinstance(what, Move):
            words = [what.src]
        for row in map(alive.find, words):
            who = None if row is None else OTHERS.get(layout.REGION_KINDS[int(birth["kind"][row])])
            if who is not None:
                number = int(birth["id"][row])
                given = (
                    f"launch {seq} is given"
                    if step.seq == seq
                    else f"call {step.seq} before launch {seq} reads"
                )
                raise Error(
                    f"{given} region {number}, to which {who} may have written since epoch "
                    f"{made.first}; record with --replayable"
                )


def _work(process: Process, context: int, after: int, until: int) -> int:
    """Returns the number of calls of a context, after one up to another, that may have written
    memory.
    """
    events = process.events_between(after, until)
    some = np.isin(events["kind"], event_kinds.WRITES) & (events["context"] == context)
    some &= (events["result"] == 0) & (events["flags"] & FLAGS["capturing"] == 0)
    some &= events["flags"] & FLAGS["host_dst"] == 0
    return sum(not waits(process, call) for call in events["call"][some].tolist())
