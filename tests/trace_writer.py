"""Writes traces of instructions into run directories, as the recorder does. See tests/rundir.py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import xxhash

from tests.rundir import Writer, record, seal
from ttanalyze.format import layout
from ttanalyze.format.instruction_traces import KIND, LANES, STRIDED, UNIT
from ttanalyze.format.layout import NO_ID

EVERY_LANE = 0xFFFFFFFF
HEAD = layout.TRACE_RECORD.itemsize


class TraceWriter:
    """The trace of a process. Records are collected until `chunk` writes them."""

    def __init__(self, run: Writer) -> None:
        self.run = run
        self.records: list[bytes] = []
        self.counts: list[int] = []  # of records, by launch

    def launch(
        self,
        function: int = 0,
        kinds: Sequence[str] = ("opcode",),
        grid: Sequence[int] = (1, 1, 1),
        block: Sequence[int] = (32, 1, 1),
        refused: str = "none",
        text: str | None = None,
        image: int = 0,
        cluster: Sequence[int] = (0, 0, 0),
    ) -> int:
        """A launch that is to be traced, with its event. Gives its number."""
        sizes = {"grid": grid, "block": block, "cluster": cluster}
        seq = self.run.event("launch", "cuLaunchKernel", id=function, **sizes)
        bits = sum(1 << KIND[kind] for kind in kinds)
        which = layout.REFUSED_TRACES.index(refused)
        members = {"seq": seq, "function": function, "kinds": bits, "refused": which}
        members["image"] = image
        members |= {"text": NO_ID if text is None else self.run.string(text)}
        out = record(layout.TRACED, **members, grid=grid, block=block)
        self.run.append("traced.bin", seal(out))
        self.counts.append(0)
        return len(self.counts) - 1

    def add(
        self,
        kind: str,
        instruction: int,
        payload: bytes = b"",
        launch: int = 0,
        block: Sequence[int] = (0, 0, 0),
        flags: int = 0,
        **members: int,
    ) -> None:
        """A record. members: mask, warp, stride, clock."""
        payload += bytes(-len(payload) % UNIT)
        tag = KIND[kind] | flags << 8 | (HEAD + len(payload)) // UNIT << 16
        given: dict[str, Any] = {"mask": EVERY_LANE, **members, "launch": launch, "tag": tag}
        given |= dict(zip(("block_x", "block_y", "block_z"), block, strict=True))
        head = record(layout.TRACE_RECORD, instruction=instruction, **given)
        self.records.append(head.tobytes() + payload)
        if launch < len(self.counts):
            self.counts[launch] += kind != "end"

    def opcode(self, instruction: int, **members: Any) -> None:
        self.add("opcode", instruction, **members)

    def registers(
        self, instruction: int, general: Any, uniform: Sequence[int] = (), **members: Any
    ) -> None:
        """general: 32 values for each register."""
        payload = np.array(general, "<u4").reshape(-1, LANES).tobytes()
        self.add("registers", instruction, payload + np.array(uniform, "<u4").tobytes(), **members)

    def addresses(self, instruction: int, at: Any, **members: Any) -> None:
        """at: 32 addresses, or with a stride that of lane 0."""
        self.add("addresses", instruction, *_place(at, members), **members)

    def values(self, instruction: int, at: Any, words: Any, **members: Any) -> None:
        """words: of each word, the values of 32 lanes."""
        payload = _place(at, members)[0] + np.array(words, "<u4").reshape(-1, LANES).tobytes()
        self.add("values", instruction, payload, **members)

    def tma(
        self,
        instruction: int,
        descriptor: int,
        barrier: int = 0,
        coordinates: Sequence[int] = (),
        blocks: int = 0,
        tensor_map: Sequence[int] = (),
        **members: Any,
    ) -> None:
        """tensor_map: nothing, or 16 numbers."""
        five = [*coordinates, 0, 0, 0, 0, 0][:5]
        payload = np.array([descriptor, barrier], "<u8").tobytes()
        payload += np.array(five, "<i4").tobytes() + np.array([blocks], "<u4").tobytes()
        payload += np.array(tensor_map, "<u8").tobytes()
        self.add("tma", instruction, payload, **members)

    def count(self, instruction: int, warps: int, threads: int, launch: int = 0) -> None:
        payload = np.array([warps, threads], "<u8").tobytes()
        self.add("count", instruction, payload, launch, mask=0)

    def end(self, launch: int = 0, lost: int = 0, records: int | None = None) -> None:
        told = self.counts[launch] if records is None else records
        self.add("end", 0, np.array([told, lost], "<u8").tobytes(), launch, mask=0)

    def chunk(self) -> int:
        """Writes what was added as a chunk. Gives the offset of the chunk in trace.bin."""
        raw = b"".join(self.records)
        at = self.run.append("trace.bin", chunk(raw, len(self.records)))
        self.records = []
        return at


def _place(at: Any, members: dict[str, Any]) -> tuple[bytes]:
    if "stride" in members:
        members["flags"] = STRIDED
        return (np.array([at], "<u8").tobytes(),)
    return (np.array(at, "<u8").reshape(LANES).tobytes(),)


def chunk(raw: bytes, records: int) -> bytes:
    """The bytes of a chunk with these records."""
    magic = layout.constant("TT_TRACE_MAGIC")
    check = xxhash.xxh3_64_intdigest(raw)
    head = record(layout.TRACE_CHUNK, magic=magic, bytes=len(raw), records=records, check=check)
    head["head_check"] = xxhash.xxh3_64_intdigest(head.tobytes()[:-8])
    return head.tobytes() + raw
