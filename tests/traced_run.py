"""A run with the instruction traces of two launches of a small kernel on the simulator."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tests.rundir import Writer, digest, record, seal
from tests.trace_writer import TraceWriter
from ttanalyze.format import layout
from ttanalyze.traces.instructions import SIMULATOR

PTX = b""".version 8.0
.target sm_80
.address_size 64
.visible .entry copy(.param .u64 p) {
.reg .b64 %rd<3>;
.reg .b32 %r<3>;
ld.param.u64 %rd1, [p];
mov.u32 %r1, %clock;
ld.global.u32 %r1, [%rd1];
st.global.u32 [%rd1+4], %r1;
mov.u32 %r2, %clock;
ret;
}
"""
PARAM, BEGIN, LOAD, STORE, END, RET = 7, 8, 9, 10, 11, 12
LANES = np.arange(32)


def begun(path: Path, ptx: bytes = PTX, kernel: str = "copy") -> TraceWriter:
    run = Writer(path)
    members = {"id": 0, "image": digest(ptx), "size": len(ptx)}
    run.append("modules.bin", seal(record(layout.MODULE, **members)))
    (run.path / "modules").mkdir()
    (run.path / "modules" / f"{digest(ptx):016x}").write_bytes(ptx)
    run.function(0, kernel)
    return TraceWriter(run)


def warp(trace: TraceWriter, launch: int, **where: Any) -> None:
    """The records of a warp that executes all of the kernel."""
    given: dict[str, Any] = {"launch": launch, **where}
    for clock, instruction in enumerate((PARAM, BEGIN, LOAD, STORE, END)):
        trace.opcode(instruction, clock=1000 + 7 * clock, **given)
    trace.registers(STORE, [LANES, 0 * LANES, LANES + 1], **given)
    trace.addresses(LOAD, 0x7000, stride=4, mask=0xFF, **given)
    trace.values(LOAD, 0x7000, [LANES * 3], stride=4, **given)
    trace.values(STORE, 0x7004 + 8 * LANES, [LANES * 3], **given)
    trace.opcode(RET, **given)


def written(path: Path) -> Path:
    """Two launches of two blocks of two warps, of which the first warps are traced."""
    trace = begun(path)
    for launch in range(2):
        trace.launch(kinds=("opcode", "values"), grid=(2, 1, 1), block=(64, 1, 1))
        warp(trace, launch)
        warp(trace, launch, block=(1, 0, 0), warp=1)
        trace.count(LOAD, 2, 64, launch)
        trace.end(launch)
        trace.chunk()
    trace.run.close(devices=[{"ordinal": 0, "name": SIMULATOR, "memory": 1 << 30}])
    return path
