"""Repeats launches and returns the outcome of each: same, different, or refused with a reason."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ttanalyze.errors import Error, FormatError
from ttanalyze.format.event_kinds import KIND
from ttanalyze.format.process import Process
from ttanalyze.gpu.device import Device
from ttanalyze.gpu.driver import DriverError
from ttanalyze.gpu.rebuild.address_map import Finding
from ttanalyze.gpu.rebuild.replay_context import ReplayContext
from ttanalyze.util.arguments import checked
from ttanalyze.util.progress import Progress
from ttanalyze.verbs.replay.changes import Change, Changer
from ttanalyze.verbs.replay.compare import RegionDifference, Tolerances, Types, differences
from ttanalyze.verbs.replay.plan import Plan, plan
from ttanalyze.verbs.replay.replay import Replay
from ttanalyze.verbs.replay.timing import Times

SAME, DIFFERS, UNCHECKED, REFUSED, FAILED = "same", "differs", "unchecked", "refused", "failed"
NOT_COMPARED = "not compared"


@dataclass
class Outcome:
    """The outcome of a repeated launch.

    Attributes:
        seq: The sequence number of the launch.
        kernel: The mangled name.
        status: "same", "differs", "unchecked" (nothing to compare with, or not wanted), "refused"
            (it cannot be repeated) or "failed" (the driver or the kernel failed, or the run is
            damaged).
        reason: The reason of the last three.
        grid, block: The blocks, and the threads of each, in x, y and z.
        shared: Its dynamic shared memory in bytes.
        before, after: The epochs whose memory it started from and was compared with.
        regions, bytes: The number of compared regions, and their size.
        differences: The regions that differ.
        times: The measured times, None without.
        notes: Remarks, one line each.
        moved: Regions that were at other addresses than recorded, with these.
        changes: What was changed in the launch, in words.
    """

    seq: int
    kernel: str
    status: str
    reason: str = ""
    grid: tuple[int, ...] = ()
    block: tuple[int, ...] = ()
    shared: int = 0
    before: int | None = None
    after: int | None = None
    regions: int = 0
    bytes: int = 0
    differences: list[RegionDifference] = field(default_factory=list)
    times: Times | None = None
    notes: list[str] = field(default_factory=list)
    changes: list[str] = field(default_factory=list)
    moved: dict[int, int] = field(default_factory=dict)

    @property
    def same(self) -> bool:
        """Whether nothing is known to differ."""
        return self.status in (SAME, UNCHECKED)

    def as_dict(self) -> dict[str, Any]:
        out = dict(vars(self))
        out["differences"] = [difference.as_dict() for difference in self.differences]
        out["times"] = None if self.times is None else self.times.as_dict()
        out["moved"] = {str(region): address for region, address in self.moved.items()}
        return out


@checked
@dataclass(frozen=True)
class ReplayOptions:
    """What to do with each launch.

    Attributes:
        verify: Whether to compare the memory with the recorded memory.
        times: The number of measured runs.
        flush_l2: Whether to flush the L2 cache before each of them.
        types: The type of the items by region; others are compared as bytes.
        tolerances: The allowed difference of items by region.
        alone: Whether to run no kernels of the toolkit.
        change: Changes of the launch.
        code: Other code, with its name, in place of the recorded code: PTX, a cubin or a fatbin.
    """

    verify: bool = True
    times: int = 0
    flush_l2: bool = False
    types: Types = field(default_factory=dict)
    tolerances: Tolerances = field(default_factory=dict)
    alone: bool = False
    change: Change = field(default_factory=Change)
    code: tuple[str, bytes] | None = None


def status_of(error: Error) -> str:
    """Returns the status for an error: damage and refusals of the driver are failures."""
    return FAILED if isinstance(error, (FormatError, DriverError)) else REFUSED


def plans(process: Process, seqs: Iterable[int]) -> list[Plan | Outcome]:
    """Returns a plan for each launch, or an outcome that says why there is none."""
    out: list[Plan | Outcome] = []
    for seq in seqs:
        try:
            out.append(plan(process, seq))
        except Error as e:
            found = process.events_between(seq - 1, seq)
            launch = len(found) and found["kind"][0] == KIND["launch"]
            kernel = process.kernel(int(found["id"][0])) if launch else None
            out.append(Outcome(seq, kernel or "", status_of(e), str(e)))
    return out


def replay(
    process: Process,
    seqs: Iterable[int],
    options: ReplayOptions | None = None,
    device: Callable[[], Device] = Device.default,
    progress: Progress = None,
) -> list[Outcome]:
    """Repeats launches by sequence number, one after the other, in shared memory.

    Args:
        process: The process.
        seqs: The sequence numbers of the launches; `launches` finds them.
        options: What to do with each. Default: compare the memory.
        device: Returns the device. It is called if any launch can be repeated.
        progress: Called with the finished and the total number of runs. Each launch has one more
            than are measured.

    Raises:
        Error: There is no such launch, no usable driver, or not enough memory.

    Example:
        >>> process = tt.open("work").process(0)
        >>> def simulator():
        ...     return tt.graph.Device(0, tt.graph.simulator())
        >>> [one.status for one in tt.replay(process, [7, 10], device=simulator)]
        ['same', 'same']
    """
    options = options or ReplayOptions()
    found = plans(process, seqs)
    rows = sorted({row for one in found if isinstance(one, Plan) for row in one.rows})
    if not any(isinstance(one, Plan) for one in found):
        return [one for one in found if isinstance(one, Outcome)]
    replay_context = ReplayContext(process, device(), rows, options.alone or None)
    out: list[Outcome] = []
    lost = ""  # why nothing works in the context any more
    each = 1 + options.times

    def tell(run: int) -> None:
        if progress is not None:
            progress(len(out) * each + run, len(found) * each)

    for one in found:
        tell(0)
        if isinstance(one, Plan):
            outcome = begun(one)
            if lost:
                outcome.status, outcome.reason = FAILED, f"after {lost}"
            else:
                _replay(outcome, one, options, replay_context, tell)
                lost = f"launch {one.seq} failed" if is_lost(replay_context.device) else ""
            out.append(outcome)
        else:
            out.append(one)
    return out


def begun(of: Plan) -> Outcome:
    """Returns an outcome with the details of the launch."""
    launch = of.launch
    return Outcome(
        of.seq,
        of.kernel,
        UNCHECKED,
        "",
        launch.grid,
        launch.block,
        launch.shared,
        of.before,
        of.after,
    )


def _replay(
    out: Outcome,
    of: Plan,
    options: ReplayOptions,
    replay_context: ReplayContext,
    tell: Callable[[int], None],
) -> None:
    try:
        replay = Replay(of.process, of.seq, replay_context=replay_context, known=of)
    except Error as e:
        out.status, out.reason = status_of(e), str(e)
        return
    out.notes, out.bytes, out.moved = replay.notes, replay.bytes, replay.moved
    try:
        name, image = options.code or ("", None)
        changer = Changer(replay)
        work = changer.apply(options.change, image, name)
        replay = changer.replay
        out.grid, out.block, out.shared = work.grid, work.block, work.shared
        out.changes = [*([f"code {name}"] if name else []), *options.change.texts()]
        replay.restore()
        replay.submit(work=work)
        replay.device.synchronize()
        if not options.verify:
            out.reason = NOT_COMPARED
        elif replay.after is None:
            out.reason = of.unchecked
        else:
            findings, notes = replay.settled(work)
            out.notes += notes
            verify(out, replay, findings, options.types, options.tolerances)
        if options.times:
            out.times = replay.time(options.times, options.flush_l2, work, tell)
    except Error as e:
        out.status, out.reason = status_of(e), str(e)
    if out.status in (DIFFERS, FAILED):
        out.notes += replay.doubts


def is_lost(device: Device) -> bool:
    """Returns whether the context is unusable."""
    try:
        device.synchronize()
    except DriverError:
        return True
    return False


def verify(
    out: Outcome, replay: Replay, findings: Sequence[Finding], types: Types, tolerances: Tolerances
) -> None:
    """Sets the outcome from the findings of a comparison with the recording."""
    out.regions = len(findings)
    out.differences = differences(
        replay.replay_context, replay.expected, findings, types, tolerances
    )
    differs = any(not difference.tolerated for difference in out.differences)
    out.status = DIFFERS if differs else SAME
