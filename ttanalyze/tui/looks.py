"""A recording that still runs, looked at again and again.

Each look opens the run anew. It shows committed epochs and whole events only, and reads no event a
second time once the slots around it are used. It writes nothing, takes no lock, and asks the
program for nothing.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ttanalyze.code.demangle import demangle, short
from ttanalyze.core.allocations import ELSEWHERE
from ttanalyze.errors import Error
from ttanalyze.format import captures, event_kinds, layout, open_run
from ttanalyze.format.event_kinds import KIND
from ttanalyze.format.events import SLOTS
from ttanalyze.format.layout import Array
from ttanalyze.format.process import Process
from ttanalyze.format.run import Run
from ttanalyze.output import text
from ttanalyze.tui.timeline import Timeline

PIECE = 16 * SLOTS
QUIET = 10.0  # seconds without anything new, until a program that has no process counts as ended
RECENT = 200  # epochs


@dataclass(frozen=True)
class RecentEpoch:
    """A committed epoch.

    cut: its time. read, stored: nanoseconds from the cut until the device had read it, and until
    it was committed. 0 if unknown.
    """

    process: int
    number: int
    what: str
    changed: int
    cut: int
    read: int
    stored: int
    lost: bool


@dataclass(frozen=True)
class Look:
    """A recording at one moment. Numbers are sums over its processes.

    at: seconds of a clock without steps. running: the processes that still run. ended: how the
    program ended, None while it runs. held: launches that waited for a capture. memory: device
    bytes in use. kernels: names and launches, the most frequent first.
    """

    at: float
    processes: int
    running: int
    ended: str | None
    epochs: int
    refused: int
    dropped: int
    stored: int
    launches: int
    waits: int
    held: int
    memory: int
    peak: int
    allocations: int
    kernels: list[tuple[str, int]]
    recent: list[RecentEpoch]
    calls_recorded: bool


@dataclass
class Tally:
    """Counts of some events."""

    launches: int = 0
    waits: int = 0
    held: int = 0
    kernels: Counter[int] = field(default_factory=Counter)

    def add(self, records: Array) -> None:
        kinds, kernels = records["kind"], records["id"][records["kind"] == KIND["launch"]]
        launches = np.isin(kinds, event_kinds.LAUNCH)
        self.launches += int(np.count_nonzero(launches))
        self.waits += int(np.count_nonzero(kinds == KIND["sync"]))
        self.held += int(np.count_nonzero(records["flags"][launches] & captures.WAITED))
        ids, counts = np.unique(kernels, return_counts=True)
        self.kernels.update(dict(zip(ids.tolist(), counts.tolist(), strict=True)))


class EventCounter:
    """Counts the events of one growing events.bin.

    Threads claim runs of slots. A run is read at each look until all its slots are used.
    """

    def __init__(self) -> None:
        self._whole = Tally()
        self._open: list[int] = []  # runs with unused slots
        self._next = 0  # the first run behind all that have events

    def count(self, process: Process) -> Tally:
        """Returns the counts of all events so far."""
        tally = Tally()
        before, self._open = self._open, []
        for run in before:
            self._take(run, process.slots_from(run * SLOTS, SLOTS), tally)
        while len(records := process.slots_from(self._next * SLOTS, PIECE)):
            used = np.flatnonzero(records["kind"])
            if not len(used):
                break
            runs = int(used[-1]) // SLOTS + 1
            for i in range(runs):
                self._take(self._next + i, records[i * SLOTS : (i + 1) * SLOTS], tally)
            self._next += runs
        tally.launches += self._whole.launches
        tally.waits += self._whole.waits
        tally.held += self._whole.held
        tally.kernels.update(self._whole.kernels)
        return tally

    def _take(self, run: int, records: Array, tally: Tally) -> None:
        used = records["kind"] != 0
        if len(records) == SLOTS and used.all():
            self._whole.add(records)
        else:
            self._open.append(run)
            tally.add(records[used])


class Follower:
    """Looks at a run directory while the program runs."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._counters: dict[int, EventCounter] = {}
        self._last: tuple[int, ...] = ()
        self._new_at = time.monotonic()

    def look(self) -> Look:
        """Looks at the run. Raises Error if it cannot be read; a later look counts anew."""
        with contextlib.suppress(Error):
            return self._look(open_run(self.path))
        self._counters.clear()  # a process that ends shortens its files, maybe under our eyes
        try:
            return self._look(open_run(self.path))
        except Error:
            self._counters.clear()
            raise

    def _look(self, run: Run) -> Look:
        tallies = {p.index: self._counter(p.index).count(p) for p in run.processes}
        kernels: Counter[str] = Counter()
        for process in run.processes:
            for function, count in tallies[process.index].kernels.items():
                kernels[process.kernel(function) or "?"] += count
        names = demangle(name for name, _ in kernels.most_common())
        flags = [p.epochs["flags"] for p in run.processes]
        memory = [_memory(p) for p in run.processes]
        running = [p for p in run.processes if p.runs]
        counts = [sum(getattr(t, n) for t in tallies.values()) for n in ("launches", "waits")]
        epochs = sum(len(p.epochs) for p in run.processes)
        return Look(
            at=time.monotonic(),
            processes=len(run.processes),
            running=len(running),
            ended=self._ending(run, bool(running), (len(run.processes), epochs, *counts)),
            epochs=epochs,
            refused=sum(int(np.count_nonzero(f & layout.REFUSED)) for f in flags),
            dropped=sum(int(np.count_nonzero(f & layout.DROPPED)) for f in flags),
            stored=sum(int(p.epochs["bytes_stored"].sum()) for p in run.processes),
            launches=counts[0],
            waits=counts[1],
            held=sum(tally.held for tally in tallies.values()),
            memory=sum(now for now, _, _ in memory),
            peak=sum(peak for _, peak, _ in memory),
            allocations=sum(number for _, _, number in memory),
            kernels=[
                (text.printable(short(name)), count)
                for name, (_, count) in zip(names, kernels.most_common(), strict=True)
            ],
            recent=sorted(
                (epoch for p in run.processes for epoch in _recent(p)),
                key=lambda epoch: -epoch.cut,
            )[:RECENT],
            calls_recorded=any(Timeline(p).calls.recorded for p in run.processes),
        )

    def _counter(self, index: int) -> EventCounter:
        return self._counters.setdefault(index, EventCounter())

    def _ending(self, run: Run, running: bool, seen: tuple[int, ...]) -> str | None:
        """Returns how the program ended, None while it runs, or may begin another process."""
        ending = run.info.get("exit")
        if ending:
            number = ending.get("signal")
            how = f"signal {number}" if number is not None else f"status {ending.get('status')}"
            return f"the program ended with {how}"
        if running or not run.processes or seen != self._last:
            self._last, self._new_at = seen, time.monotonic()
            return None
        if time.monotonic() - self._new_at < QUIET:
            return None
        return f"no process of the program runs, and nothing is new for {QUIET:.0f} s"


def _memory(process: Process) -> tuple[int, int, int]:
    """Returns the device bytes in use, the most at any time, and the number of allocations."""
    regions = process.regions
    elsewhere = [layout.REGION_KINDS.index(kind) for kind in ELSEWHERE]
    on_device = ~np.isin(regions.birth["kind"], elsewhere)
    changes = regions.changes[on_device[regions.changes["row"]]]
    sizes = regions.size[changes["row"]].astype("f8")
    used = np.cumsum(np.where(changes["birth"], sizes, -sizes))
    number = int(np.count_nonzero(on_device & (regions.death_seq == 0)))
    return (int(used[-1]), int(used.max()), number) if len(used) else (0, 0, 0)


def _recent(process: Process) -> list[RecentEpoch]:
    """Returns the last epochs of a process, the latest first."""
    timeline, count = Timeline(process), len(process.epochs)
    first = max(0, count - RECENT)
    out = []
    for number in range(count - 1, first - 1, -1):
        record = process.epochs[number]
        cut, read, stored = (int(record[n]) for n in ("time_ns", "captured_ns", "done_ns"))
        out.append(
            RecentEpoch(
                process.index,
                number,
                timeline.epoch_label(number),
                int(record["bytes_changed"]),
                cut,
                max(0, read - cut) if cut else 0,
                max(0, stored - cut) if cut else 0,
                bool(timeline.flags(number) & (layout.REFUSED | layout.DROPPED)),
            )
        )
    return out
