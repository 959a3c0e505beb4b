"""Delay configurations as CUTracer writes them, and its checksum of a kernel."""

from __future__ import annotations

import json
import re
from typing import Any

from ttanalyze.code.cubin import Cubin
from ttanalyze.disassembly import tools


def cutracers(config: dict[str, Any], operands: str = ".E R2, desc[UR4][R2.64] ;") -> str:
    """The configuration as CUTracer writes it: other checksums, whole instructions, no mode."""
    kernels = {}
    for number, kernel in enumerate(config["kernels"].values()):
        points = {
            pc: {k: point[k] for k in ("pc", "delay", "on")} | {"sass": point["sass"] + operands}
            for pc, point in kernel["instrumentation_points"].items()
        }
        of = {"kernel_name": kernel["kernel_name"], "kernel_checksum": f"{number:015x}"}
        of["timestamp"] = "2026-02-03T21:15:21.567"
        key = f"{of['kernel_name']}_{of['kernel_checksum']}"
        kernels[key] = of | {"instrumentation_points": points}
    return json.dumps({"version": "1.0", "delay_ns": config["delay_ns"], "kernels": kernels})


def cutracers_checksum(cubin: Cubin, name: str, padded: bool) -> str:
    """FNV-1a of the mangled name, and of each instruction's text and offset."""
    said, _ = tools.disassembled(bytes(cubin.code(name)[1]), cubin.architecture)
    found = re.findall(r"/\*([0-9a-f]+)\*/ +(.*;)", said)
    while not padded and found[-1][1] == "NOP;":
        found.pop()
    checksum = 0xCBF29CE484222325
    values = [value for at, text in found for value in (*text.encode(), int(at, 16))]
    for value in [*name.encode(), *values]:
        checksum = (checksum ^ value) * 0x100000001B3 % 2**64
    return f"{checksum:x}"
