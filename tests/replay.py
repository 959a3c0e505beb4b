"""Does again, from what a run says of graphs, what their launches did to memory."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

import ttanalyze as tt
from ttanalyze.format import graphs, layout
from ttanalyze.format.process import Process

KINDS = layout.EVENT_KINDS
Bytes = np.ndarray[Any, np.dtype[np.uint8]]


class Memory:
    """The allocations of a process, by address; all zeros at first."""

    def __init__(self, process: Process) -> None:
        births = process.regions.birth
        self._parts = {
            int(birth["id"]): (int(birth["base"]), np.zeros(int(birth["size"]), np.uint8))
            for birth in births
        }

    def at(self, address: int, size: int) -> Bytes:
        for base, part in self._parts.values():
            if base <= address and address + size <= base + len(part):
                return part[address - base : address - base + size]
        raise AssertionError(f"no memory of {size} bytes at {address:#x}")

    def region(self, number: int) -> Bytes:
        return self._parts[number][1]


def _fill(memory: Memory, params: bytes) -> None:
    to, count, value = struct.unpack_from("<QII", params)
    memory.at(to, 4 * count).view("<u4")[:] = value + np.arange(count, dtype="u4")


def _add(memory: Memory, params: bytes) -> None:
    to, count, value = struct.unpack_from("<QII", params)
    memory.at(to, 4 * count).view("<u4")[:] += np.uint32(value)


def _copy(memory: Memory, params: bytes) -> None:
    to, source, count = struct.unpack_from("<QQI", params)
    memory.at(to, 4 * count)[:] = memory.at(source, 4 * count)


KERNELS = {"fill": _fill, "add": _add, "copy": _copy}  # of tests/programs/kernels.h


def _node(process: Process, memory: Memory, node: Any, grid_limits: bool) -> None:
    kind = graphs.KINDS[node["kind"]]
    if kind == "kernel":
        params = process.graphs.data(node)
        if grid_limits:  # a thread for each item, as far as there are threads
            threads = int(node["grid"][0]) * int(node["block"][0])
            place = 16 if process.kernel(int(node["function"])) == "copy" else 8
            (count,) = struct.unpack_from("<I", params, place)
            least = struct.pack("<I", min(count, threads))
            params = params[:place] + least + params[place + 4 :]
        KERNELS[process.kernel(int(node["function"])) or ""](memory, params)
    elif kind == "set":
        value = int(node["src"]).to_bytes(4, "little")[: int(node["shared"])]
        items = int(node["bytes"]) // len(value)
        memory.at(int(node["dst"]), int(node["bytes"]))[:] = np.frombuffer(value * items, np.uint8)
    elif kind == "copy":
        size = int(node["bytes"])
        memory.at(int(node["dst"]), size)[:] = memory.at(int(node["src"]), size)


def launch(process: Process, memory: Memory, number: int, seq: int) -> None:
    """What a launch of a graph did."""
    nodes = process.graphs.nodes(number, seq)
    for node in nodes[process.graphs.order(number, seq)]:
        if not node["flags"] & graphs.DISABLED:
            _node(process, memory, node, True)


def _own(process: Process) -> list[int]:
    """The regions that are not variables of modules."""
    births = process.regions.birth
    ids: list[int] = births["id"][births["module"] == layout.NO_ID].tolist()
    return ids


def check(run: tt.Run) -> int:
    """Every epoch that was cut at a graph's launch holds what its nodes did. Memory must begin as
    zeros, and only graphs may write to it. Gives how many epochs there were.
    """
    (process,) = run.processes
    memory = Memory(process)
    cuts = process.epochs[process.epochs["trigger"] == layout.TRIGGERS.index("graph")]
    events = process.events
    launches = events[events["kind"] == KINDS.index("graph-launch")]
    assert len(cuts) == len(launches) > 0
    for event, epoch in zip(launches, cuts, strict=True):
        assert event["seq"] == epoch["seq"]
        launch(process, memory, int(event["id"]), int(event["seq"]))
        for region in _own(process):
            found = run.read(int(epoch["number"]), region)
            np.testing.assert_array_equal(found, memory.region(region), str(event["seq"]))
    return len(cuts)
