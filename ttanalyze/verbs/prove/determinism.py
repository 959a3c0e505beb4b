"""Repeats launches and compares what they leave."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ttanalyze.core import stacks
from ttanalyze.errors import Error
from ttanalyze.format.layout import Array
from ttanalyze.format.process import Process
from ttanalyze.gpu.device import Device
from ttanalyze.gpu.driver import DriverError
from ttanalyze.gpu.rebuild.replay_context import ReplayContext
from ttanalyze.util.progress import Progress
from ttanalyze.verbs.prove.perturb import Perturber
from ttanalyze.verbs.replay.compare import (
    Memory,
    RegionDifference,
    Tolerances,
    Types,
    differences,
    look,
    unknown,
)
from ttanalyze.verbs.replay.copied import Copied
from ttanalyze.verbs.replay.plan import Plan
from ttanalyze.verbs.replay.replay import Replay
from ttanalyze.verbs.replay.run import FAILED, Outcome, is_lost, plans, status_of

VARIES, STEADY = "varies", "not seen to vary"
LOOKED_INTO = 8  # runs of a launch whose differences are looked into


@dataclass
class Variation:
    """How a region varied between runs of a launch.

    Attributes:
        region: The id of the region.
        runs: The number of runs that differ from the first.
        contents: The number of different contents.
        widest: The difference with the most bytes, beyond the tolerance if there is one.
    """

    region: int
    runs: int
    contents: int
    widest: RegionDifference

    def as_dict(self) -> dict[str, Any]:
        return vars(self) | {"widest": self.widest.as_dict()}


@dataclass
class Verdict:
    """The result for one launch.

    Attributes:
        seq: The sequence number of the launch.
        kernel: The mangled name of the kernel.
        status: "varies", "not seen to vary", "refused" or "failed".
        reason: Why it was refused or failed, else "".
        runs: The number of runs.
        variations: The regions that varied.
        recorded: Whether the first run left the recorded result, None if no epoch has it.
        differences: How the first run differs from the recorded result.
        site: The source line of the launch, None if it was not recorded.
        range: The NVTX range of the launch, None if there is none.
        notes: Remarks, one line each.
    """

    seq: int
    kernel: str
    status: str = STEADY
    reason: str = ""
    runs: int = 0
    variations: list[Variation] = field(default_factory=list)
    recorded: bool | None = None
    differences: list[RegionDifference] = field(default_factory=list)
    site: str | None = None
    range: str | None = None
    notes: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        return vars(self) | {
            "variations": [one.as_dict() for one in self.variations],
            "differences": [one.as_dict() for one in self.differences],
        }


def prove(
    process: Process,
    seqs: Iterable[int],
    times: int = 20,
    types: Types | None = None,
    tolerances: Tolerances | None = None,
    seed: int = 0,
    device: Callable[[], Device] = Device.default,
    progress: Progress = None,
) -> list[Verdict]:
    """Repeats each launch with other work on the device, and compares the results of the runs.

    Args:
        process: The process.
        seqs: The sequence numbers of the launches.
        times: The number of runs of each launch.
        types: The type of the items of a region by id or label; None: of all other regions.
        tolerances: Tolerances, likewise.
        seed: The seed of the other work.
        device: Returns the device.
        progress: Called with the finished and the total number of runs.

    Returns:
        One verdict per launch.

    Raises:
        MissingDriverError: No driver can be loaded.
        DriverError: The device has not enough memory.

    Example:
        >>> process = tt.open("work").process(0)
        >>> def simulator():
        ...     return tt.graph.Device(0, tt.graph.simulator())
        >>> (verdict,) = tt.prove(process, [7], times=3, device=simulator)
        >>> verdict.kernel, verdict.status, verdict.recorded
        ('add', 'not seen to vary', True)
    """
    if times < 2:
        raise Error(f"--times {times}: expected at least 2")
    found = plans(process, seqs)
    rows = sorted({row for one in found if isinstance(one, Plan) for row in one.rows})
    if not any(isinstance(one, Plan) for one in found):
        return [_verdict(process, one) for one in found]
    replay_context = ReplayContext(process, device(), rows)
    perturber = Perturber(
        replay_context.addresses.kernels, seed, replay_context.addresses.simulated
    )
    work = _Work(replay_context, perturber, times, types or {}, tolerances or {})
    out: list[Verdict] = []
    lost = ""

    def tell(run: int) -> None:
        if progress is not None:
            progress((len(out) - 1) * times + run, len(found) * times)

    for one in found:
        verdict = _verdict(process, one)
        out.append(verdict)
        tell(0)
        if not isinstance(one, Plan):
            continue
        if lost:
            verdict.status, verdict.reason = FAILED, lost
            continue
        try:
            work.prove(verdict, one, tell)
        except Error as e:
            verdict.status, verdict.reason = status_of(e), str(e)
            failed = isinstance(e, DriverError) and is_lost(replay_context.device)
            lost = f"after launch {one.seq} failed" if failed else ""
    return out


def _verdict(process: Process, of: Plan | Outcome) -> Verdict:
    out = Verdict(of.seq, of.kernel)
    if isinstance(of, Outcome):
        out.status, out.reason = of.status, of.reason
    found = process.events_between(of.seq - 1, of.seq)
    if len(found):
        stack = process.stack(int(found[0]["stack"]))
        out.site = stacks.site(stack) if stack else None
        out.range = process.annotations.range_of(found[0])
    return out


@dataclass(frozen=True)
class _Work:
    """Proves launches that share memory."""

    replay_context: ReplayContext
    perturber: Perturber
    times: int
    types: Types
    tolerances: Tolerances

    def prove(self, out: Verdict, of: Plan, tell: Callable[[int], None]) -> None:
        """Repeats one launch and fills in its verdict. tell: called with the number of
        finished runs.
        """
        replay = Replay(of.process, of.seq, replay_context=self.replay_context, known=of)
        out.notes = replay.notes
        addresses, rows = self.replay_context.addresses, replay.rows
        replay.restore()
        replay.keep()
        found = addresses.digests(rows)  # what it finds
        written: set[int] = set()
        first: dict[int, Array] = {}
        kept: Copied | None = None  # what the first run left
        seen: dict[int, set[bytes]] = {row: set() for row in rows}
        runs = dict.fromkeys(rows, 0)
        widest: dict[int, RegionDifference] = {}
        for run in range(self.times):
            tell(run)
            if run:
                replay.restore(written)
            self.perturber.before(run)
            replay.submit()
            self.perturber.after()
            now = addresses.digests(rows)
            out.runs += 1
            written |= {row for row in rows if (now[row] != found[row]).any()}
            if not run:
                first = now
                self._as_recorded(out, replay)
                kept = Copied.if_room(self.replay_context, [row for row in rows if row in written])
            for row in rows:
                seen[row].add(now[row].tobytes())
                blocks = np.flatnonzero(now[row] != first[row]).tolist()
                if not blocks:
                    continue
                runs[row] += 1
                if runs[row] <= LOOKED_INTO or widest[row].tolerated:
                    self._look(replay, row, kept, blocks, widest)
        out.variations = [
            Variation(int(of.process.regions.id[row]), runs[row], len(seen[row]), widest[row])
            for row in rows
            if row in widest
        ]
        if any(not one.widest.tolerated for one in out.variations):
            out.status = VARIES

    def _look(
        self,
        replay: Replay,
        row: int,
        kept: Copied | None,
        blocks: list[int],
        widest: dict[int, RegionDifference],
    ) -> None:
        """Compares the contents of a run with those of the first one."""
        process, size = replay.process, int(replay.process.regions.size[row])
        # What the first run did not write to holds what it found.
        copies = (copied.where(row) for copied in (kept, replay.kept) if copied is not None)
        where = next((at for at in copies if at is not None), None)
        if where is None:
            widest.setdefault(row, unknown(process, row, blocks))
            return
        here = Memory(process, size, replay.device, replay.where(row))
        there = Memory(process, size, replay.device, where)
        found = look(row, replay.before, there, here, blocks, self.types, self.tolerances)
        before = widest.get(row)
        if before is None or _weight(before) < _weight(found):
            widest[row] = found

    def _as_recorded(self, out: Verdict, replay: Replay) -> None:
        if replay.after is None:
            return
        findings = [one for one in replay.compare() if not one.new]
        arguments = (self.replay_context, replay.expected, findings, self.types, self.tolerances)
        out.differences = differences(*arguments)
        out.recorded = all(one.tolerated for one in out.differences)
        if not out.recorded:
            out.notes += replay.doubts


def _weight(found: RegionDifference) -> tuple[bool, int]:
    return not found.tolerated, found.bytes.count if found.bytes is not None else 0
