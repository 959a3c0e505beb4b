"""Hangs: what the warps of launches did that had not ended when a process was ended.

The recorder puts warps that did the same into groups: see docs/format.md. Here they get names: the
loop that they repeat, the barrier that they wait at, the memory that they look at.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from ttanalyze.code.demangle import demangle, short
from ttanalyze.core import stacks
from ttanalyze.core.reach import Living
from ttanalyze.disassembly.decode import parsed
from ttanalyze.errors import Error
from ttanalyze.format import layout
from ttanalyze.format.process import Process
from ttanalyze.format.run import Run
from ttanalyze.output import text
from ttanalyze.traces.instructions import Instruction, Instructions, described, instructions_of

SHOWN_INSTRUCTIONS = 12
SHOWN_WARPS = 4
DONE = ("exited", "not started")
MBARRIER = ("mbarrier", "SYNCS")  # in opcodes of PTX and machine code
ATOMIC = "atomic"
CLUSTER_BARRIER = 16  # TT_CLUSTER_BARRIER
WAITS = ("spin", "poll", "mbarrier", "barrier", "warp sync")


@dataclass(frozen=True)
class Group:
    """Warps of a launch that did the same.

    Attributes:
        doing: `spin` (repeats a loop with an atomic operation), `poll` (repeats a loop that reads
            memory), `mbarrier`, `barrier`, `warp sync` (waits for threads of its warp), `computes`
            (its loop changes something), `silent` (no heartbeat came, so it may compute),
            `exited`, `not started`.
        count: The number of warps.
        warps: The first of them, each as its block and its number in the block.
        instructions: The instructions of the loop, or the one that they wait at.
        at: What they wait for: the memory or the barrier.
        object: Its address or number, None if the warps have different ones.
    """

    doing: str
    count: int
    warps: list[tuple[int, int]]
    instructions: list[Instruction]
    at: str | None
    object: int | None


@dataclass(frozen=True)
class Launch:
    """A launch that had not ended.

    Attributes:
        process: The process.
        seq: The `seq` of its event.
        kernel: The demangled name of its kernel.
        grid, block: Its shape.
        callers: The frames of the call, the innermost first.
        warps: The number of its warps.
        groups: What they did.
        machine: Whether instructions are machine code.
    """

    process: int
    seq: int
    kernel: str
    grid: list[int]
    block: list[int]
    callers: list[str]
    warps: int
    groups: list[Group]
    machine: bool

    @property
    def name(self) -> str:
        """The kernel with its shape."""
        grid, block = ("x".join(map(str, _trimmed(shape))) for shape in (self.grid, self.block))
        return f"{short(self.kernel)}<<<{grid}, {block}>>>"


@dataclass(frozen=True)
class Hang:
    """A hang.

    Attributes:
        kind: `spin`, `barrier`, `mbarrier`, `warp sync`, `mutual wait` (warps wait for each other)
            or `unfinished` (some warp still did something).
        reason: The same in a sentence.
        launches: The launches that had not ended.
    """

    kind: str
    reason: str
    launches: list[Launch]

    def as_dict(self) -> dict[str, Any]:
        """Returns the attributes and `lines` for JSON."""
        return {
            "kind": self.kind,
            "reason": self.reason,
            "lines": self.lines(),
            "launches": [_launch_dict(launch) for launch in self.launches],
        }

    def lines(self) -> list[str]:
        """Returns the hang in lines for a screen. The first says what it is."""
        out = [f"hang: {self.reason}"]
        for launch in self.launches:
            out += _launch_lines(launch)
        return out


def hangs(run: Run) -> list[Hang]:
    """Returns the hangs of a run: one for each report with states of warps.

    Args:
        run: The run.
    """
    found = []
    for process in run.processes:
        for report in process.info.get("incidents", []):
            if told := report.get("launches"):
                found.append(hang_of(run, process, told))
    return found


def hang_of(run: Run, process: Process, told: list[dict[str, Any]]) -> Hang:
    """Returns the hang of a crash report.

    Args:
        run: The run.
        process: The process.
        told: `launches` of the report.
    """
    launches = [_launch(run, process, one) for one in sorted(told, key=lambda one: one["seq"])]
    return Hang(*_verdict(launches), launches)


# ---- groups ----


def _launch(run: Run, process: Process, told: Mapping[str, Any]) -> Launch:
    heads, seq = process.traced, int(told["seq"])
    index = int(told.get("launch", layout.NO_ID))
    head = heads[index] if index < len(heads) else None
    function = layout.NO_ID if head is None else int(head["function"])
    name = process.kernel(function) or f"function {function}"
    code = _code(run, process, function, name)
    events = process.events_between(seq - 1, seq)
    stack = process.stack(int(events[-1]["stack"])) if len(events) and events[-1]["stack"] else []
    per_block = max(int(told.get("warps_per_block", 1)), 1)
    living = Living(process.regions)
    living.go_to(seq)
    place = functools.partial(_memory, process, living)
    return Launch(
        process.index,
        seq,
        demangle([name])[0],
        [] if head is None else head["grid"].tolist(),
        [] if head is None else head["block"].tolist(),
        [stacks.frame_text(frame) for frame in stack],
        int(told.get("warps", 0)),
        [_group(one, code, per_block, place) for one in told.get("groups", [])],
        not code.ptx,
    )


def _code(run: Run, process: Process, function: int, name: str) -> Instructions:
    try:
        return instructions_of(run, process, function)
    except Error:
        return Instructions(name, False, {})


def _group(
    told: Mapping[str, Any], code: Instructions, per_block: int, place: Callable[[int], str]
) -> Group:
    state, number = told["state"], told.get("object")
    access = code.by_number.get(told.get("access", -1))
    group = Group(
        {"sync": "warp sync", "runs": "computes"}.get(state, state),
        int(told["count"]),
        [divmod(int(warp), per_block) for warp in told.get("warps", [])],
        [],
        None,
        number,
    )
    if state in DONE:
        return group
    if state == "loops":
        group = replace(group, doing=_loop_kind(access))
    if "last" in told:
        instructions = _loop(code, int(told["first"]), int(told["last"]))
    else:
        one = code.by_number.get(told.get("instruction", told.get("access", -1)))
        instructions = [one] if one else []
    return replace(group, instructions=instructions, at=_object(group, access, place))


def _loop_kind(access: Instruction | None) -> str:
    if access is None:
        return "poll"
    if any(word in access.mnemonic for word in MBARRIER):
        return "mbarrier"
    return "spin" if access.access == ATOMIC else "poll"


def _loop(code: Instructions, first: int, last: int) -> list[Instruction]:
    """Returns the instructions of a loop. Machine code has heartbeats at some of them alone: then
    it is the smallest loop around those.
    """
    if not code.ptx:
        around = [
            (target, number)
            for number, one in code.by_number.items()
            if (target := _target(one)) is not None and target <= first and number >= last
        ]
        first, last = min(around, key=lambda pair: pair[1] - pair[0], default=(first, last))
    return [one for number, one in sorted(code.by_number.items()) if first <= number <= last]


def _target(one: Instruction) -> int | None:
    if one.opcode != "BRA":
        return None
    target = parsed(one.text.rstrip("; ")).target
    return None if target is None else target // 16


def _object(group: Group, access: Instruction | None, place: Callable[[int], str]) -> str | None:
    number = group.object
    if number is None:
        return None
    if group.doing == "barrier":
        if number == CLUSTER_BARRIER:
            return "the barrier of its cluster"
        threads = f" of {number >> 32} threads" if number >> 32 else ""
        return f"barrier {number & 0xFFFFFFFF}{threads}"
    if group.doing == "warp sync":
        return f"lanes {number:#010x}"
    if group.doing == "mbarrier" or (access and access.space == "shared"):
        offset = number & 0xFFFFFFFF  # a generic address has the window in front
        what = "the mbarrier at " if group.doing == "mbarrier" else ""
        return f"{what}byte {offset} of shared memory"
    return place(number)


def _memory(process: Process, living: Living, address: int) -> str:
    found = living.at(address)
    if found is None:
        return f"{address:#x}"
    row, base, _ = found
    label = process.strings.get(int(process.regions.label[row]))
    return f"{label or f'region {process.regions.id[row]}'} + {address - base} ({address:#x})"


# ---- the verdict ----


def _verdict(launches: list[Launch]) -> tuple[str, str]:
    alive = [
        (launch, group) for launch in launches for group in launch.groups if group.doing not in DONE
    ]
    waiting = [(launch, group) for launch, group in alive if group.doing in WAITS]
    if not waiting or len(waiting) < len(alive):
        busy = sum(group.count for _, group in alive if group.doing not in WAITS)
        more = (
            f"; {text.count(sum(g.count for _, g in waiting), 'warp')} waiting" if waiting else ""
        )
        return "unfinished", f"{text.count(busy, 'warp')} may still make progress{more}"
    if len({_code_place(launch, group) for launch, group in waiting}) > 1:
        places = list(dict.fromkeys(_wait(group) for _, group in waiting))
        who = "warps wait for each other"
        return "mutual wait", f"{who}: some {', others '.join(places[:SHOWN_WARPS])}"
    launch, group = waiting[0]
    kind = "spin" if group.doing == "poll" else group.doing
    return kind, _alone(launch, [group for _, group in waiting])


def _code_place(launch: Launch, group: Group) -> tuple[Any, ...]:
    """Where warps wait. At one place, with different memory, they need not wait for each other."""
    first: list[Any] = [one.number for one in group.instructions[:1]]
    return (launch.seq, group.doing, *(first or [group.at]))


def _wait(group: Group) -> str:
    what = {
        "spin": "spinning on",
        "poll": "polling",
        "mbarrier": "waiting for",
        "barrier": "waiting at",
        "warp sync": "waiting for",
    }[group.doing]
    return f"{what} {group.at or 'different places'}"


def _alone(launch: Launch, groups: list[Group]) -> str:
    group, *others = groups
    rest = {one.doing: one.count for one in launch.groups if one.doing in DONE}
    ended = "".join(f"; {count:,} {doing}" for doing, count in rest.items())
    of = f"{sum(one.count for one in groups):,} of {text.count(launch.warps, 'warp')}"
    why = {
        "spin": "with an atomic operation on memory that nothing changes",
        "poll": "until memory changes, which nothing does",
        "mbarrier": "whose phase lacks an arrival",
        "barrier": "which not all its threads reach",
        "warp sync": "of their warp, which do not come",
    }[group.doing]
    wait = _wait(replace(group, at=None) if others else group)
    return f"{of} {wait}, {why}{ended}"


# ---- text ----


def _trimmed(shape: list[int]) -> list[int]:
    return shape[:1] if shape[1:] == [1, 1] else shape


def _launch_lines(launch: Launch) -> Iterator[str]:
    caller = "".join(f", from {text.printable(frame)}" for frame in launch.callers[:1])
    yield f"  {text.printable(launch.name)} (call {launch.seq}{caller})"
    for group in launch.groups:
        yield from _group_lines(launch, group)


def _group_lines(launch: Launch, group: Group) -> Iterator[str]:
    doing = {
        "computes": "in a loop that changes something",
        "silent": "without a heartbeat: it may compute",
        "exited": "exited",
        "not started": "never started",
    }.get(group.doing)
    names = ", ".join(f"{block}.{warp}" for block, warp in group.warps[:SHOWN_WARPS])
    more = ", …" if group.count > min(len(group.warps), SHOWN_WARPS) else ""
    many = text.count(group.count, "warp")
    yield f"    {many} {doing or text.printable(_wait(group))} (block.warp {names}{more})"
    for one in group.instructions[:SHOWN_INSTRUCTIONS]:
        yield f"      {described(one.text, one.number, one.source, launch.machine)}"
    if len(group.instructions) > SHOWN_INSTRUCTIONS:
        yield f"      and {len(group.instructions) - SHOWN_INSTRUCTIONS} more instructions"


def _launch_dict(launch: Launch) -> dict[str, Any]:
    groups = [
        {
            **{name: value for name, value in asdict(group).items() if name != "instructions"},
            "instructions": [
                {"number": one.number, "text": one.text, "source": one.source}
                for one in group.instructions
            ],
        }
        for group in launch.groups
    ]
    return {
        **{name: value for name, value in vars(launch).items() if name != "groups"},
        "groups": groups,
    }
