"""Writes traces as CUTracer does: lines of JSON, or text."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import orjson

from ttanalyze.traces.native import AnyTrace
from ttanalyze.traces.reader import IN_TEXT, Kernel, Record

OUTPUT = 1 << 12  # records that are given on at once
ADDRESSES_A_LINE = 4


def ndjson(trace: AnyTrace, most: int | None = None) -> Iterator[bytes]:
    """Yields a line per record, the records of kernels included. most: of other records."""

    def made(record: Record | Kernel) -> bytes:
        value = record.record if isinstance(record, Kernel) else record.members
        return orjson.dumps(value) + b"\n"

    yield from _joined(trace, most, made)


def log(trace: AnyTrace, most: int | None, left_out: set[str]) -> Iterator[bytes]:
    """Yields the records that the text format has. left_out: gets the types that it lacks."""

    def made(record: Record | Kernel) -> bytes:
        if isinstance(record, Kernel):
            return b""
        if record.members["type"] not in IN_TEXT:
            left_out.add(record.members["type"])
            return b""
        return "".join(f"{line}\n" for line in (*_text(_with_sass(record)), "")).encode()

    yield from _joined(trace, most, made)


def _joined(
    trace: AnyTrace, most: int | None, make: Callable[[Record | Kernel], bytes]
) -> Iterator[bytes]:
    parts: list[bytes] = []
    count = 0
    for record in trace.records():
        if isinstance(record, Record):
            if count == most:
                break
            count += 1
        parts.append(make(record))
        if len(parts) >= OUTPUT:
            yield b"".join(parts)
            parts = []
    yield b"".join(parts)


def _with_sass(record: Record) -> dict[str, Any]:
    sass = record.sass() or f"instruction {record.members['opcode_id']} ;"
    return {**record.members, "sass": sass}


def _text(record: dict[str, Any]) -> Iterator[str]:
    x, y, z = record["cta"]
    place = f"CTA {x},{y},{z} - warp {record['warp']} - "
    if record["type"] == "reg_trace":
        yield f"CTX {record['ctx']} - {place}{record['sass']}:"
        for number, values in enumerate(record["regs"]):
            yield "  * " + "".join(f"Reg{number}_T{i:02}: {v:#010x} " for i, v in enumerate(values))
        uniform = enumerate(record.get("uregs", ()))
        words = "".join(f"UR{number}: {value:#010x} " for number, value in uniform)
        if words:
            yield f"  * UR: {words}"
        return
    launch, pc = record["grid_launch_id"], int(record["pc"], 16)
    head = f"CTX {record['ctx']} - kernel_launch_id {launch} - {place}PC {pc} - {record['sass']}"
    if record["type"] == "opcode_only":
        yield head
        return
    yield f"{head}:"
    yield "  Memory Addresses:"
    told = [f"T{lane:02}: {at:#018x}" for lane, at in enumerate(record["addrs"]) if at]
    for i in range(0, len(told), ADDRESSES_A_LINE):
        yield f"  {' ' if i else '*'} {' '.join(told[i : i + ADDRESSES_A_LINE])}"
