"""Writes instruction traces as CUTracer does: JSON lines, zstd frames, text.

A kernel copies 4 bytes per thread: each warp runs the instructions of SASS once.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import zstandard

SASS = (
    "CS2R.32 R7, SR_CLOCKLO ;",
    "S2R R0, SR_TID.X ;",
    "LDG.E R2, desc[UR4][R2.64] ;",
    "CS2R.32 R8, SR_CLOCKLO ;",
    "STG.E desc[UR4][R4.64], R2 ;",
    "EXIT ;",
)
LOAD, STORE = 2, 4
METADATA = {
    "type": "kernel_metadata",
    "mangled_name": "_Z4copyPf",
    "unmangled_name": "copy(float*)",
    "kernel_checksum": "abcd1234",
    "func_addr": "0x7f0000001000",
    "nregs": 16,
    "shmem_static": 0,
    "shmem_dynamic": 0,
    "grid": [2, 1, 1],
    "block": [64, 1, 1],
    "instructions": {
        str(i): {"sass": sass, "binary": f"{i:032x}", "regs": [2, 4], "uregs": [4]}
        for i, sass in enumerate(SASS)
    },
}
Record = dict[str, Any]


def common(kind: str, warp: int, opcode: int, index: int = 0, **members: Any) -> Record:
    return {
        "type": kind,
        "ctx": "0x55aa",
        "trace_index": index,
        "timestamp": 10**18 + index,
        "grid_launch_id": 3,
        "cta": [warp // 2, 0, 0],
        "warp": warp,
        "opcode_id": opcode,
        "pc": hex(16 * opcode),
        **members,
    }


def addresses(warp: int, base: int = 0x7F0000000000) -> list[int]:
    return [base + 128 * warp + 4 * lane for lane in range(32)]


def opcodes(
    warps: Sequence[int] = range(4), path: Sequence[int] = range(len(SASS))
) -> list[Record]:
    """The instructions of warps, which take turns."""
    pairs = [(w, i) for i in path for w in warps]
    return [common("opcode_only", w, i, n) for n, (w, i) in enumerate(pairs)]


def registers() -> list[Record]:
    lanes = [list(range(32)), [7] * 32]
    more: Record = {"regs": lanes, "regs_indices": [2, 4], "uregs": [9], "uregs_indices": [4]}
    return [
        common("reg_trace", r["warp"], r["opcode_id"], r["trace_index"], **more) for r in opcodes()
    ]


def accesses() -> list[Record]:
    """Addresses of loads and stores, the last lane without one."""
    pairs = [(w, i) for i in (LOAD, STORE) for w in range(4)]
    return [
        common("mem_addr_trace", w, i, n, ipoint="B", addrs=[*addresses(w)[:31], 0])
        for n, (w, i) in enumerate(pairs)
    ]


def values() -> list[Record]:
    pairs = [(w, i) for i in (LOAD, STORE) for w in range(4)]
    return [
        common(
            "mem_value_trace",
            w,
            i,
            n,
            ipoint="A",
            mem_space=1,
            is_load=i == LOAD,
            access_size=4,
            addrs=addresses(w),
            values=[[100 * w + lane] for lane in range(32)],
        )
        for n, (w, i) in enumerate(pairs)
    ]


TILED = {
    "data_type": "FLOAT16",
    "data_type_id": 6,
    "rank": 2,
    "global_address": "0x7f0000010000",
    "global_dim": [64, 64, 0, 0, 0],
    "global_strides": [128, 0, 0, 0],
    "box_dim": [64, 8, 0, 0, 0],
    "element_strides": [1, 1, 1, 1, 1],
    "interleave": "NONE",
    "interleave_id": 0,
    "swizzle": "128B",
    "swizzle_id": 3,
    "l2_promotion": "NONE",
    "oob_fill": "NONE",
}
TMA = common(
    "tma_trace",
    0,
    LOAD,
    tma_param_size=64,
    desc_addr="0x7f0000010000",
    tma_transfer_info={
        "is_bulk": False,
        "is_tensor": True,
        "is_prefetch": False,
        "is_multicast": False,
        "transfer_count": 1,
        "transfer_size": 1024,
        "byte_count": 1024,
        "multicast_cta_mask": 0,
        "src_memspace": "GLOBAL",
        "dst_memspace": "SHARED",
        "tensor": {
            "dim": 2,
            "mode": "TILED",
            "coords": [-1, 8, 0, 0, 0],
            "intended_transfer_count": 512,
            "oob_transfer_count": 64,
            "tiled": TILED,
        },
    },
)


def ndjson(path: Path, *records: Record) -> Path:
    path.write_text("".join(json.dumps(r) + "\n" for r in records))
    return path


def compressed(path: Path, *records: Record, each: int = 5) -> Path:
    """In frames of some records, as a trace that is flushed now and then."""
    lines = [json.dumps(r) + "\n" for r in records]
    made = zstandard.ZstdCompressor()
    parts = ("".join(lines[i : i + each]) for i in range(0, len(lines), each))
    path.write_bytes(b"".join(made.compress(part.encode()) for part in parts))
    return path


def _text(record: Record) -> Iterator[str]:
    x, y, z = record["cta"]
    launch, pc = f"kernel_launch_id {record['grid_launch_id']} - ", f"PC {int(record['pc'], 16)} - "
    if record["type"] == "reg_trace":
        launch = pc = ""
    end = "" if record["type"] == "opcode_only" else ":"
    sass = SASS[record["opcode_id"]]
    yield f"CTX {record['ctx']} - {launch}CTA {x},{y},{z} - warp {record['warp']} - {pc}{sass}{end}"
    for number, lanes in enumerate(record.get("regs", [])):
        words = (f"Reg{number}_T{lane:02}: 0x{word:08x} " for lane, word in enumerate(lanes))
        yield "  * " + "".join(words)
    if record.get("uregs"):
        yield "  * UR: " + "".join(f"UR{i}: 0x{u:08x} " for i, u in enumerate(record["uregs"]))
    if "addrs" in record:
        known = [f"T{lane:02}: 0x{a:016x} " for lane, a in enumerate(record["addrs"]) if a]
        yield "  Memory Addresses:"
        yield "  * " + "\n    ".join("".join(known[i : i + 4]) for i in range(0, len(known), 4))
    yield ""


def log(path: Path, *records: Record) -> Path:
    path.write_text("".join(line + "\n" for record in records for line in _text(record)))
    return path
