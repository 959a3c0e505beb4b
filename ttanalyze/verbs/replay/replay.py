"""Replay: repeats one recorded launch on a device."""

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
from ttanalyze.util.arguments import checked
from ttanalyze.verbs.replay.copied import Copied
from ttanalyze.verbs.replay.plan import Plan, plan
from ttanalyze.verbs.replay.timing import Times, measure
from ttanalyze.verbs.replay.uninitialized import settled


@checked
class Replay:
    """A recorded launch that can be repeated any number of times.

        replay = Replay(tt.open("run1").process(0), 1234)
        replay.restore()
        replay.submit()
        replay.compare()

    Args:
        process: The process.
        seq: The sequence number of the launch.
        device: The device. Default: the first one.
        replay_context: Memory and code that several replays share. One replay at a time uses it.
        known: The plan of the launch, if it is known.

    Attributes:
        work: The launch. A changed one, such as `work.changed(grid=8)`, may be passed to `submit`
            and `time`.

    Raises:
        Error: The launch cannot be repeated. The message says why.

    Example:
        >>> device = tt.graph.Device(0, tt.graph.simulator())
        >>> replay = tt.replay.Replay(tt.open("work").process(0), 7, device)
        >>> replay.restore()
        >>> replay.submit()
        >>> all(found.same for found in replay.compare())
        True
    """

    def __init__(
        self,
        process: Process,
        seq: int,
        device: Device | None = None,
        replay_context: ReplayContext | None = None,
        known: Plan | None = None,
    ) -> None:
        self.process = process
        self.plan: Plan = known or plan(process, seq)
        self.replay_context = replay_context or ReplayContext(
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
        """The sequence number of the launch."""
        return self.plan.seq

    @property
    def kernel(self) -> str:
        """The mangled name of the kernel."""
        return self.plan.kernel

    @property
    def launch(self) -> Launch:
        """The launch: grid, block, cluster, shared (bytes), cooperative, params (bytes as
        recorded).
        """
        return self.plan.launch

    @property
    def function(self) -> Function:
        """The loaded kernel."""
        return self.work.function

    @property
    def before(self) -> int:
        """The epoch that memory is restored to."""
        return self.plan.before

    @property
    def after(self) -> int | None:
        """The epoch with the result of the launch, None if there is none."""
        return self.plan.after

    @property
    def notes(self) -> list[str]:
        """Assumptions of the replay, one line each."""
        addresses = self.replay_context.addresses
        moved = self._mine(set(addresses.moved) - set(addresses.moved_variables))
        unknown = (f"region {n}: no epoch up to {self.before} has it" for n in self._before.unknown)
        return [*moved_notes(addresses, moved), *unknown, *self.plan.notes]

    @property
    def doubts(self) -> list[str]:
        """Possible reasons for a failure or another result, one line each."""
        return moved_notes(
            self.replay_context.addresses, self._mine(self.replay_context.addresses.moved_variables)
        )

    @property
    def moved(self) -> dict[int, int]:
        """The regions that the launch can reach and that are not at their recorded addresses, with
        the present ones.
        """
        regions = self.process.regions.id[self.plan.rows].tolist()
        rows = dict(zip(regions, self.plan.rows, strict=True))
        return {n: self.where(rows[n]) for n in self._mine(self.replay_context.addresses.moved)}

    def _mine(self, numbers: Iterable[int]) -> list[int]:
        """Returns which of these regions the launch can reach."""
        mine = {int(self.process.regions.id[row]) for row in self.plan.rows}
        return sorted(mine.intersection(numbers))

    @property
    def rows(self) -> list[int]:
        """The regions that the launch can reach, as rows of process.regions."""
        return [row for row in self.plan.rows if self.replay_context.addresses.has(row)]

    def where(self, row: int) -> int:
        """Returns the present address of a region.

        Args:
            row: The row of process.regions.
        """
        return self.replay_context.addresses.now(row)

    @property
    def bytes(self) -> int:
        """The size of the memory that the launch can reach."""
        return sum(int(self.process.regions.size[row]) for row in self.rows)

    def restore(self, rows: Iterable[int] | None = None) -> None:
        """Sets memory to its contents right before the launch, and waits.

        The contents come from the copy of `keep`, if there is one, else from files.

        Args:
            rows: The regions to restore, if all others are unchanged. Default: all.

        Raises:
            FormatError: The stored contents do not have their digest.
        """
        if self._kept is not None:
            self._kept.put_back(rows)
        else:
            self.replay_context.addresses.restore(self._before)
            self.submit_works(self._prepare)
        self.device.stream.synchronize()

    def keep(self) -> None:
        """Copies the restored memory on the device, if there is room, for later calls of
        `restore`.
        """
        if not self._asked_to_keep:
            self._asked_to_keep = True
            self._kept = Copied.if_room(self.replay_context, self.rows)

    @property
    def kept(self) -> Copied | None:
        """The copy that `keep` made."""
        return self._kept

    def submit_works(self, works: Iterable[Work]) -> None:
        for work in works:
            work.submit(self.device, stream_handle(self.device.stream))

    def submit(self, stream: Any = None, work: Kernel | None = None) -> None:
        """Launches the kernel and returns at once.

        Args:
            stream: A Stream, a CUstream as an int, or a stream of PyTorch, CuPy or Numba. Default:
                a stream of the device.
            work: A changed launch.

        Raises:
            DriverError: The driver refuses the launch.
        """
        to = self.device.stream if stream is None else stream
        (work or self.work).submit(self.device, stream_handle(to))

    def compare(self) -> list[Finding]:
        """Waits, and compares each region with the recorded result.

        Returns:
            One finding per region.

        Raises:
            Error: No epoch has the result.
            DriverError: The launch failed.
        """
        return self.replay_context.addresses.compare(self.expected, self._before)

    def settled(self, work: Kernel | None = None) -> tuple[Sequence[Finding], list[str]]:
        """Compares like `compare`, but ignores uninitialised bytes of new allocations. May launch
        again.

        Args:
            work: The changed launch that was made.

        Returns:
            The findings, and remarks on ignored bytes.

        Raises:
            Error: No epoch has the result.
            FormatError: The stored contents do not have their digest.
        """

        def again() -> None:
            self.submit_works(self._prepare)
            self.submit(work=work)

        return settled(self.replay_context, self._before, self.expected, self.compare(), again)

    @functools.cached_property
    def expected(self) -> State:
        """Returns the recorded result. Raises Error if no epoch has it."""
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
        """Measures the launch with events. Memory is restored before each run, and the first run is
        not counted.

        Args:
            times: The number of measured runs.
            flush_l2: Whether to flush the L2 cache before each run.
            work: A changed launch.
            tell: Called with the number of finished runs.

        Raises:
            DriverError: The driver refuses the launch, or the launch failed.
            FormatError: The stored contents do not have their digest.
        """
        return measure(self, times, flush_l2, work, tell)
