"""The clocks of ranks on several hosts, related by the ends of their collectives.

Times of a run are CLOCK_MONOTONIC, which is one clock on a host and another one on each other host.
The kernels of an all-reduce end at almost the same time on all ranks: none can end before all have
begun, and each needs the data of all others.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ttanalyze.format.collectives import OPERATIONS
from ttanalyze.format.layout import Array
from ttanalyze.format.process import Process

TOGETHER = [OPERATIONS.index(name) for name in ("AllReduce", "AllGather", "ReduceScatter")]


@dataclass(frozen=True)
class Clock:
    """How the clock of a process relates to that of the first process.

    offset_ns: what to add to its times. error_ns: the error of that, by the middle half of all
    collectives; 0 on the same host, None if it is unknown: then the offset is that of the hosts'
    wall clocks.
    """

    offset_ns: int
    error_ns: int | None


def clocks(processes: list[Process]) -> dict[int, Clock]:
    """Returns the clock of each process by its number."""
    out: dict[int, Clock] = {}
    hosts: dict[str, Clock] = {}
    for process in processes:
        host = _host(process)
        if host not in hosts:
            first = processes[0]
            hosts[host] = Clock(0, 0) if process is first else _between(first, process)
        out[process.index] = hosts[host]
    return out


def _host(process: Process) -> str:
    """Returns what identifies the clock: the boot of the host, or else its name."""
    boot = process.info.get("clock", {}).get("boot", "")
    return boot or (process.rank.node if process.rank is not None else "")


def _between(first: Process, other: Process) -> Clock:
    wall = _wall(other) - _wall(first)
    ends_a, ends_b = _common_ends(first, other)
    if not len(ends_a):
        return Clock(wall, None)
    offsets = ends_a - ends_b
    low, middle, high = np.percentile(offsets, [25, 50, 75])
    return Clock(round(middle), round(high - low) + 1)


def _wall(process: Process) -> int:
    """Returns how much the wall clock was ahead of the monotonic one."""
    clock = process.info.get("clock", {})
    return int(clock.get("real_ns", 0)) - int(clock.get("monotonic_ns", 0))


def _common_ends(first: Process, other: Process) -> tuple[Array, Array]:
    """Returns when the collectives ended that both processes took part in."""
    ends: list[dict[tuple[int, int], int]] = []
    for process in (first, other):
        of = process.collectives
        of = of[np.isin(of["operation"], TOGETHER) & (of["launch"] != 0)]
        _, last, known = process.activities.spans(of["launch"])
        keys = zip(of["communicator"].tolist(), of["number"].tolist(), strict=True)
        times = zip(keys, last.tolist(), known.tolist(), strict=True)
        ends.append({key: time for key, time, there in times if there})
    both = [key for key in ends[0] if key in ends[1]]
    made = np.array([(ends[0][key], ends[1][key]) for key in both], "i8").reshape(-1, 2)
    return made[:, 0], made[:, 1]
