"""A recorded launch on a device again, alone: its memory, its code, and what it leaves."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ttanalyze.errors import Error
from ttanalyze.format.process import Process
from ttanalyze.gpu.device import Device, stream_handle
from ttanalyze.gpu.module import Function
from ttanalyze.gpu.rebuild.address_map import Finding, State
from ttanalyze.gpu.rebuild.replay_context import ReplayContext, WorkBuilder, moved_notes
from ttanalyze.gpu.rebuild.steps import Launch
from ttanalyze.gpu.work import Kernel, Work
from ttanalyze.verbs.replay.copied import Copied
from ttanalyze.verbs.replay.plan import Plan, plan
from ttanalyze.verbs.replay.timing import Times, measure
from ttanalyze.verbs.replay.uninitialized import settled


class Replay:
    """One recorded launch, which can be done any number of times.

        replay = Replay(tt.open("run1").process(0), 1234)
        replay.restore()
        replay.submit()
        replay.compare()

    seq: the launch's number in the order of calls. scene: memory and code that several replays
    share, one of which is used at a time. known: its plan, where there is one already. Raises Error
    where the launch can't be done again, and why. work: the launch as it is submitted; a changed
    one (`work.changed(grid=…)`) may be given to submit() and time() in its place.
    """

    def __init__(
        self,
        process: Process,
        seq: int,
        device: Device | None = None,
        scene: ReplayContext | None = None,
        known: Plan | None = None,
    ) -> None:
        self.process = process
        self.plan: Plan = known or plan(process, seq)
        self.replay_context = scene or ReplayContext(
            process, device or Device.default(), self.plan.rows
        )
        self.device = self.replay_context.device
        self._before = State.of_epoch(process, self.plan.before, self.plan.rows)
        self._builder = WorkBuilder(self.replay_context, self.plan.span)
        prepare = [self._builder.work(step) for step in self.plan.prepare]
        self._prepare = [work for work in prepare if work is not None]
        work = self._builder.work(self.plan.step)
        assert isinstance(work, Kernel)
        self.work: Kernel = work
        self._kept: Copied | None = None  # the input
        self._asked_to_keep = False

    def __repr__(self) -> str:
        return f"<Replay of launch {self.seq}: {self.kernel}>"

    @property
    def seq(self) -> int:
        """Its number in the order of calls."""
        return self.plan.seq

    @property
    def kernel(self) -> str:
        """The mangled name."""
        return self.plan.kernel

    @property
    def launch(self) -> Launch:
        """Grid, block, cluster, shared (bytes), cooperative, params (bytes, as recorded)."""
        return self.plan.launch

    @property
    def function(self) -> Function:
        """The kernel, loaded."""
        return self.work.function

    @property
    def before(self) -> int:
        """The epoch that memory is restored to."""
        return self.plan.before

    @property
    def after(self) -> int | None:
        """The epoch that has what the launch left; None where none has."""
        return self.plan.after

    @property
    def notes(self) -> list[str]:
        """What to know of how it is done again, a line each."""
        addresses = self.replay_context.addresses
        moved = self._mine(set(addresses.moved) - set(addresses.moved_variables))
        unknown = (f"region {n}: no epoch up to {self.before} has it" for n in self._before.unknown)
        return [*moved_notes(addresses, moved), *unknown, *self.plan.notes]

    @property
    def doubts(self) -> list[str]:
        """What else to know where it fails, or leaves something other than recorded."""
        return moved_notes(
            self.replay_context.addresses, self._mine(self.replay_context.addresses.moved_variables)
        )

    def _mine(self, numbers: Iterable[int]) -> list[int]:
        """Those of some regions, by id, that it may reach."""
        mine = {int(self.process.regions.id[row]) for row in self.plan.rows}
        return sorted(mine.intersection(numbers))

    @property
    def rows(self) -> list[int]:
        """The regions that it may reach, by row of process.regions."""
        return [row for row in self.plan.rows if self.replay_context.addresses.has(row)]

    def where(self, row: int) -> int:
        """The address at which a region is now."""
        return self.replay_context.addresses.now(row)

    @property
    def bytes(self) -> int:
        """How much memory it may reach."""
        return sum(int(self.process.regions.size[row]) for row in self.rows)

    def restore(self, rows: Iterable[int] | None = None) -> None:
        """Puts memory as it was right before the launch, and waits for that. rows: of some regions,
        where all others hold it still. Where keep() had room, it comes from there, else from files.
        Raises FormatError for damaged contents.
        """
        if self._kept is not None:
            self._kept.put_back(rows)
        else:
            self.replay_context.addresses.restore(self._before)
            self.submit_works(self._prepare)
        self.device.stream.synchronize()

    def keep(self) -> None:
        """Copies memory as it is now, right after restore(), on the device, where there is room."""
        if not self._asked_to_keep:
            self._asked_to_keep = True
            self._kept = Copied.if_room(self.replay_context, self.rows)

    @property
    def kept(self) -> Copied | None:
        """The copy that keep() made."""
        return self._kept

    def submit_works(self, works: Iterable[Work]) -> None:
        for work in works:
            work.submit(self.device, stream_handle(self.device.stream))

    def submit(self, stream: Any = None, work: Kernel | None = None) -> None:
        """Launches it, in a stream, by default one of the device's own; returns at once. work: a
        changed launch in its place. Raises DriverError where the driver refuses it.
        """
        to = self.device.stream if stream is None else stream
        (work or self.work).submit(self.device, stream_handle(to))

    def compare(self) -> list[Finding]:
        """Waits, and compares each region with what the launch left when it was recorded. Raises
        Error where no epoch has that, DriverError where the launch failed.
        """
        return self.replay_context.addresses.compare(self.expected, self._before)

    def settled(self) -> tuple[Sequence[Finding], list[str]]:
        """The same, but for what nobody wrote in memory that was allocated since the epoch before;
        and what to know of that. It may launch again. Raises FormatError for damaged contents.
        """

        def again() -> None:
            self.submit_works(self._prepare)
            self.submit()

        return settled(self.replay_context, self._before, self.expected, self.compare(), again)

    @functools.cached_property
    def expected(self) -> State:
        """What the launch left when it was recorded. Raises Error where no epoch has that."""
        if self.after is None:
            raise Error(f"launch {self.seq}: {self.plan.unchecked}")
        return State.of_epoch(self.process, self.after, self.plan.rows)

    def time(
        self,
        times: int,
        flush_l2: bool = False,
        work: Kernel | None = None,
        tell: Callable[[int], None] | None = None,
    ) -> Times:
        """Restores, launches, and measures that by events, so many times; the first run is not
        counted. flush_l2: other memory is written in between, so that the L2 cache has nothing of
        the input. tell: is called with runs done. Raises as restore() and submit() do.
        """
        return measure(self, times, flush_l2, work, tell)
