"""Has the PTX interpreter trace a launch, and reads its records as the recorder would."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.ptx_machine import Array, Machine
from ttanalyze.format import layout

OPCODE, REGISTERS, ADDRESSES, VALUES, TMA, COUNT = (1 << i for i in range(1, 7))
STRIDED = layout.constant("TT_TRACEF_STRIDED")
HEAD, TAIL, LOST, DISCARD = range(4)
HEADER = layout.TRACE_RECORD.itemsize


@dataclass(frozen=True)
class Record:
    """One execution of an instruction; a warp is (block, warp)."""

    kind: str
    line: int
    mask: int = 0xFFFFFFFF
    warp: tuple[int, int] = (0, 0)
    strided: bool = False
    addresses: Sequence[int] = ()
    words: Sequence[Sequence[int]] = ()
    tma: Sequence[int] = ()  # descriptor, barrier, coordinates, mask of blocks, map


def lanes(mask: int) -> list[int]:
    return [i for i in range(32) if mask >> i & 1]


def parse(header: Any, payload: bytes) -> Record:
    """The record as it is; addresses and words are those of the lanes that execute it."""
    tag, mask = int(header["tag"]), int(header["mask"])
    kind = layout.TRACE_KINDS[tag & 0xFF]
    strided = bool(tag >> 8 & STRIDED)
    at: list[int] = []
    if kind in ("addresses", "values"):
        size = 8 if strided else 256
        listed = np.frombuffer(payload[:size], np.uint64).tolist()
        steps = [int(header["stride"]) * i for i in range(32)]
        at = [(listed[0] + s) % 2**64 for s in steps] if strided else listed
        payload = payload[size:]
    tma = struct.unpack(f"<2Q6I{len(payload) // 8 - 5}Q", payload) if kind == "tma" else ()
    words = np.frombuffer(b"" if tma else payload, np.uint32).reshape(-1, 32)
    assert header["clock"] == 0
    assert header["block_y"] == header["block_z"] == 0
    return Record(
        kind,
        int(header["instruction"]),
        mask,
        (int(header["block_x"]), int(header["warp"])),
        strided,
        tuple(at[i] for i in lanes(mask) if at),
        tuple(tuple(int(word[i]) for i in lanes(mask)) for word in words),
        tma,
    )


# struct tt_heartbeat
HEARTBEAT = np.dtype(
    [
        *[(name, "<u4") for name in ("instruction", "state")],
        *[(name, "<u8") for name in ("object", "count", "repeated", "changed", "seen", "before")],
        *[(name, "<u4") for name in ("access", "first", "last", "exited")],
        ("reserved", "<u8"),
    ]
)


@dataclass
class Trace:
    """A ring, counters and heartbeats in the memory of a machine, and what was read of them."""

    machine: Machine
    kinds: dict[int, int] = field(default_factory=dict)  # by line
    size: int = 1 << 16
    warps: int = 0  # of the launch: it has heartbeats
    blocks: tuple[int, int] = (0, 2**64 - 1)
    records: list[Record] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.line_count = max(self.kinds, default=0) + 1
        self.ring_at = self.machine.alloc(128)
        self.base_at = self.machine.alloc(self.size)
        self.counts_at = self.machine.alloc(16 * self.line_count)
        self.beats_at = self.machine.alloc(HEARTBEAT.itemsize * self.warps) if self.warps else 0
        self.ring = self.machine.view(self.ring_at, 128, np.uint64)
        self.base = self.machine.view(self.base_at, self.size)
        self.lines = bytes(self.kinds.get(i, 0) for i in range(self.line_count))

    def request(self) -> bytes:
        """The struct tt_sim_trace."""
        ffi = self.machine.ffi
        self.held = ffi.from_buffer(self.lines)
        addresses = (self.ring_at, self.base_at, self.size, self.counts_at, self.beats_at)
        at = int(ffi.cast("uintptr_t", self.held))
        param = (*addresses, 7, 0, *self.blocks, 0, 0, 0xFFFFFFFF, 0, 0, 1, 0)
        return struct.pack("<5QII2QQ6IQI4x", *param, at, self.line_count)

    def drain(self) -> None:
        """Takes the complete records and makes room."""
        while self.ring[TAIL] < self.ring[HEAD]:
            at = (int(self.ring[TAIL]) + np.arange(HEADER)) % self.size
            header = np.frombuffer(self.base[at].tobytes(), layout.TRACE_RECORD)[0]
            if not header["tag"]:
                return
            size = (int(header["tag"]) >> 16) * 8
            at = (int(self.ring[TAIL]) + np.arange(size)) % self.size
            assert header["launch"] == 7
            self.records.append(parse(header, self.base[at][HEADER:].tobytes()))
            self.base[at] = 0
            self.ring[TAIL] += size

    def counts(self) -> dict[int, tuple[int, int]]:
        """Executions by warps and by threads, of the lines that were executed."""
        table = self.machine.view(self.counts_at, 16 * self.line_count, np.uint64).reshape(-1, 2)
        return {i: (int(w), int(t)) for i, (w, t) in enumerate(table.tolist()) if w}

    def beats(self) -> list[tuple[int, int, int]]:
        """Instruction, state and count of each warp."""
        return [(int(r["instruction"]), int(r["state"]), int(r["count"])) for r in self.table()]

    def table(self) -> Array:
        """The heartbeats themselves."""
        size = HEARTBEAT.itemsize * self.warps
        return self.machine.view(self.beats_at, size, HEARTBEAT)
