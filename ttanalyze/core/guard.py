"""Guards: unmapped memory behind allocations, and the allocations that a launch may have run over.

A launch that reads or writes past the end of an allocation with a guard ends with
CUDA_ERROR_ILLEGAL_ADDRESS. The driver does not say which address that was. So the launch's pointers
tell which allocations it can have been.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ttanalyze.core import zones
from ttanalyze.core.reach import MAY_WRITE, WORD, Uses
from ttanalyze.format import event_kinds, graphs, layout
from ttanalyze.format.event_kinds import KIND
from ttanalyze.format.process import Process

ILLEGAL_ADDRESS = "CUDA_ERROR_ILLEGAL_ADDRESS"
BEHIND = 2 << 20  # bytes past the end in which a pointer still counts as one of the allocation


@dataclass(frozen=True)
class Reached:
    """An allocation that a launch has a pointer to.

    Attributes:
        region: The id of its region.
        left: The bytes from the pointer to the end of the allocation; of several pointers, the one
            nearest to the end.
        freed: Whether it was freed before the launch.
        mode: What the launch does there, as core.reach has it.
    """

    region: int
    left: int
    freed: bool
    mode: int


def exist(process: Process) -> bool:
    """Returns whether an allocation has a guard."""
    return bool((process.regions.flags & layout.GUARDED).any())


def coverage(process: Process) -> tuple[int, int, int, int]:
    """Returns the number of allocations with guards, of all allocations, and the bytes of both."""
    return zones.shares(process, process.regions.flags & layout.GUARDED != 0)


def reached(
    process: Process,
    seq: int,
    uses: Uses = lambda function: None,
    every: bool = False,
    node: int | None = None,
) -> list[Reached]:
    """Returns the allocations with guards that a launch, of a kernel or a graph, has pointers to.

    Freed ones come first, then those with the nearest end. Memory that kernels find by pointers in
    memory is not among them.

    Args:
        process: The process.
        seq: The sequence number of the launch.
        uses: What kernels do with their parameters.
        every: Whether to return also captured allocations without guards.
        node: A node of the graph, None for all.
    """
    found: dict[int, Reached] = {}
    flags = layout.GUARDED | (layout.CAPTURED if every else 0)
    for function, data in _parameters(process, seq, node):
        modes = uses(function)
        for at, address in enumerate(np.frombuffer(data[: len(data) // WORD * WORD], "<u8")):
            mode = MAY_WRITE if modes is None else modes.get(at * WORD)
            one = None if mode is None else _below(process, int(address), seq, mode, flags)
            if one is None:
                continue
            known = found.get(one.region, one)
            mode = one.mode if one.mode == known.mode else MAY_WRITE
            found[one.region] = replace(one, left=min(one.left, known.left), mode=mode)
    return sorted(found.values(), key=lambda one: (not one.freed, one.left))


def _parameters(process: Process, seq: int, chosen: int | None) -> Iterator[tuple[int, bytes]]:
    """The kernels of a launch, or of a node of its graph, and their parameters."""
    event = process.events_between(seq - 1, seq)[0]
    if event["kind"] == KIND["launch"]:
        yield int(event["id"]), process.params(event)
    elif event["kind"] in event_kinds.LAUNCH and process.graphs.known(int(event["id"]), seq):
        for number, node in enumerate(process.graphs.nodes(int(event["id"]), seq)):
            wanted = chosen in (None, number)
            if wanted and node["kind"] == graphs.KERNEL and node["data_size"]:
                yield int(node["function"]), process.graphs.data(node)


def _below(process: Process, address: int, seq: int, mode: int, flags: int) -> Reached | None:
    """The allocation with one of the flags that holds an address, or that ends shortly before
    it.
    """
    regions = process.regions
    rows = np.flatnonzero((regions.flags & flags != 0) & (regions.birth["seq"] < seq))
    rows = rows[regions.birth["base"][rows] <= np.uint64(address)]
    if not len(rows):
        return None
    bases = regions.birth["base"][rows]
    row = int(rows[np.flatnonzero(bases == bases.max())[-1]])
    left = int(regions.birth["base"][row]) + int(regions.size[row]) - address
    freed = 0 < int(regions.death_seq[row]) < seq
    if left <= (0 if freed else -BEHIND):
        return None
    return Reached(int(regions.id[row]), left, freed, mode)


def ended_by(process: Process, error: str = "CUDA_ERROR_") -> list[dict[str, Any]]:
    """Returns the crash reports of contexts that an error, or any error, ended."""
    reports = process.info.get("incidents", [])
    return [one for one in reports if one["reason"].startswith(error)]
