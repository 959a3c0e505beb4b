"""The instructions of a traced kernel, and what they mean for races."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ttanalyze.disassembly.find import find_tables
from ttanalyze.errors import Error
from ttanalyze.format import modules, open_run
from ttanalyze.format.kernel_checksums import image_of
from ttanalyze.format.process import Process
from ttanalyze.traces.instructions import on_simulator
from ttanalyze.verbs.race.exact import machine, statements
from ttanalyze.verbs.race.exact.model import Operation

FILE = re.compile(r'\s*\.file\s+(\d+)\s+"([^"]*)"')
LOC = re.compile(r"\s*\.loc\s+(\d+)\s+(\d+)")


@dataclass(frozen=True)
class Code:
    """The instructions of a kernel by number: places in machine code, or lines of PTX."""

    operations: Mapping[int, Operation]
    machine: bool


def code(process: Process, function: int, kernel: str) -> Code:
    """Returns the instructions of a kernel of a process. Raises Error without its code."""
    module = modules.of_kernel(process, function)
    image = None if module is None else image_of(process, int(module["image"]))
    if image is None:
        raise Error(f"{process.path}: the code of {kernel} was not saved")
    if on_simulator(process):
        return Code(of_ptx(image.split(b"\0", 1)[0].decode("latin-1")), machine=False)
    run = open_run(process.path.parent)
    for table in find_tables(run, f"^{re.escape(kernel)}$"):
        return Code(of_machine(table.instructions), machine=True)
    raise Error(f"{process.path}: no instruction table of {kernel}")


def of_machine(rows: Sequence[Mapping[str, Any]]) -> dict[int, Operation]:
    """Returns the rows of an instruction table by number. What fills the end means nothing."""
    last = max((i for i, row in enumerate(rows) if row["opcode"] != "NOP"), default=-1)
    return {
        row["opcode_id"]: machine.of_row(row) if i <= last else Operation(row["sass"])
        for i, row in enumerate(rows)
    }


def of_ptx(text: str) -> dict[int, Operation]:
    """Returns the statements of a PTX text by line, from 1."""
    files = {number: Path(name).name for number, name in FILE.findall(text)}
    out: dict[int, Operation] = {}
    source = None
    for number, line in enumerate(text.split("\n"), 1):
        line = line.split("//", 1)[0]
        if (place := LOC.match(line)) is not None:
            source = f"{files.get(place[1], '?')}:{place[2]}"
        elif ";" in line:
            out[number] = statements.operation(line, source)
        elif line.startswith("}"):
            source = None
    return out
