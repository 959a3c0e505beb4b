"""The lanes of a process in a trace. A lane is made at its first use, at its place in a fixed
order.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ttanalyze.core.clocks import Clock
from ttanalyze.format.layout import NO_ID
from ttanalyze.format.process import Process
from ttanalyze.output import text
from ttanalyze.verbs.trace.rows import Group, Lane, Writer

LONGEST = 200  # letters of a command line that are shown
STREAMS = {0: "no stream", 1: "default stream", 2: "per-thread default stream"}
# What a lane's rank is made of: these, then contexts, then streams or threads as they come.
MEMORY, MARKS, EPOCHS, DRAIN, RECORDER, STREAM, OTHERS, RANGES, THREAD = range(9)
UNTIMED = 900  # among a stream's lanes, after its layers


class Lanes:
    """The lanes of one process. numbers: yields unique numbers of groups and lanes."""

    def __init__(
        self, process: Process, pid: int, numbers: Iterator[int], writer: Writer, clock: Clock
    ) -> None:
        self._writer = writer
        self._numbers = numbers
        self._lanes: dict[tuple[int, int, int, int], Lane] = {}
        self._lane_numbers: dict[tuple[int, int, int], int] = {}  # in order of first use
        self._devices = _devices(process)
        self._said = process.annotations
        self._domains: dict[int, int] = {}
        self.pid = int(process.info.get("pid", 0))  # the program's, which may not be the trace's
        devices = process.info.get("devices", [])
        self._names = {d.get("ordinal"): d.get("name", "") for d in devices}
        command = text.command(process.info.get("argv", [])) or f"process {process.index}"
        command = command if process.rank is None else f"{process.name}: {command}"
        command = command if len(command) <= LONGEST else command[: LONGEST - 1] + "…"
        devices = [*map(str, self._names.values()), *_clock(process), *_moved(clock)]
        labels = ", ".join([f"p{process.index}", *devices])
        self._group = Group(next(numbers), pid, command, labels, process.index)
        writer.group(self._group)

    def __len__(self) -> int:
        return len(self._lanes)

    def thread(self, thread: int) -> Lane:
        return self._lane(THREAD, thread, 0, self._thread(thread), thread)

    def thread_ranges(self, thread: int, domain: int, name: str | None) -> Lane:
        """Returns the lane of a thread's ranges and marks in a domain."""
        self.thread(thread)
        number = self._domains.setdefault(domain, len(self._domains) + 1)
        named = f"{self._thread(thread)}: ranges{_of_domain(name)}"
        return self._lane(THREAD, thread, 0, named, sub=min(number, 999))

    def ranges(self, domain: int, name: str | None, layer: int) -> Lane:
        """Returns the lane of a process's ranges in a domain."""
        named = f"ranges{_of_domain(name)}{_beside(layer)}"
        return self._lane(RANGES, domain, 0, named, sub=layer)

    def stream(self, context: int, stream: int, layer: int = 0) -> Lane:
        """Returns the lane of a stream. layer: 0, or the number of an additional lane."""
        name = f"{self._context_name(context)}: {self._stream(context, stream)}{_beside(layer)}"
        return self._lane(STREAM, context, stream, name, sub=layer)

    def untimed(self, context: int, stream: int) -> Lane:
        """Returns the lane of work in a stream whose GPU time is unknown."""
        name = f"{self._context_name(context)}: {self._stream(context, stream)}, no GPU time"
        return self._lane(STREAM, context, stream, name, sub=UNTIMED)

    def recorder(self, device: int, layer: int = 0) -> Lane:
        """Returns the lane of the recorder's own work."""
        name = f"{_device(device)}: recorder{_beside(layer)}"
        return self._lane(RECORDER, device, 0, name, sub=layer)

    def unattributed(self, device: int, layer: int = 0) -> Lane:
        """Returns the lane of work whose call is unknown."""
        name = f"{_device(device)}: unattributed work{_beside(layer)}"
        return self._lane(OTHERS, device, 0, name, sub=layer)

    def epochs(self, context: int) -> Lane:
        return self._lane(EPOCHS, context, 0, f"{self._context_name(context)}: epochs")

    def drain(self, context: int) -> Lane:
        return self._lane(DRAIN, context, 0, f"{self._context_name(context)}: drain")

    def marks(self) -> Lane:
        return self._lane(MARKS, 0, 0, "differences")

    def memory(self, device: int) -> Lane:
        return self._lane(MEMORY, device, 0, f"GPU {device}: memory", counter=True)

    def _context_name(self, context: int) -> str:
        device = self._devices.get(context)
        return f"context {context}" if device is None else f"GPU {device}, context {context}"

    def _thread(self, thread: int) -> str:
        name = "main thread" if thread == self.pid else f"thread {thread}"
        given = self._said.threads.get(thread)
        return name if given is None else f"{given} ({name})"

    def _stream(self, context: int, stream: int) -> str:
        name = STREAMS.get(stream, f"stream {stream}")
        given = self._said.streams.get((context, stream))
        return name if given is None else f"{given} ({name})"

    def _lane(
        self,
        kind: int,
        first: int,
        second: int,
        name: str,
        thread: int | None = None,
        counter: bool = False,
        sub: int = 0,
    ) -> Lane:
        key = (kind, first, second, sub)
        if key not in self._lanes:
            number = self._lane_numbers.setdefault(key[:3], len(self._lane_numbers))
            rank = (kind * 10_000 + min(number, 9_999)) * 1000 + sub
            made = Lane(self._group, next(self._numbers), name, rank, thread, counter)
            self._writer.lane(made)
            self._lanes[key] = made
        return self._lanes[key]


def _of_domain(domain: str | None) -> str:
    return "" if domain is None else f" of {domain}"


def _beside(layer: int) -> str:
    return f" ({layer + 1})" if layer else ""


def _device(device: int) -> str:
    return "unknown GPU" if device == NO_ID else f"GPU {device}"


def _clock(process: Process) -> list[str]:
    """Returns the source of GPU times and their error, in words."""
    told = process.info.get("timeline", {})
    source, error = told.get("source", "none"), told.get("clock_error_ns")
    if source == "none":
        return []
    return [f"GPU times by {source}" + ("" if error is None else f", ±{error:,} ns")]


def _moved(clock: Clock) -> list[str]:
    """Returns how the times of another host were moved, in words."""
    if clock.error_ns is None:
        return ["host moved by its wall clock, error unknown"]
    return [f"host moved by collectives, ±{clock.error_ns:,} ns"] if clock.error_ns else []


def _devices(process: Process) -> dict[int, int]:
    """Returns the device of each context, if known."""
    out: dict[int, int] = {}
    for records in (process.regions.birth, process.epochs):
        pairs = np.unique(np.stack([records["context"], records["device"]]), axis=1)
        out.update(pairs.T.tolist())
    return out
