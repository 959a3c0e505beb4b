"""The instructions of a traced kernel, and what they mean for races."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ttanalyze.code.ptx_statements import Statement
from ttanalyze.disassembly import tables
from ttanalyze.disassembly.find import find_tables
from ttanalyze.errors import Error
from ttanalyze.format import modules, open_run
from ttanalyze.format.kernel_checksums import image_of
from ttanalyze.format.process import Process
from ttanalyze.traces.instructions import on_simulator, statements_of
from ttanalyze.verbs.race.exact import elided, machine, statements
from ttanalyze.verbs.race.exact.model import Operation


@dataclass(frozen=True)
class Code:
    """The instructions of a kernel by number: places in machine code, or lines of PTX.

    anchors: accesses that tell when a warp met at a NOP.
    """

    operations: Mapping[int, Operation]
    machine: bool
    anchors: elided.Anchors = field(default_factory=dict)


def code(process: Process, function: int, kernel: str) -> Code:
    """Returns the instructions of a kernel of a process. Raises Error without its code."""
    if on_simulator(process):
        return Code(of_ptx(statements_of(process, function, kernel)), machine=False)
    ran = tables.of_traced(process, function, kernel)
    if ran is not None:
        return _machine(ran)
    module = modules.of_kernel(process, function)
    if module is None or image_of(process, int(module["image"])) is None:
        raise Error(f"{process.path}: the code of {kernel} was not saved")
    run = open_run(process.path.parent)
    for table in find_tables(run, f"^{re.escape(kernel)}$"):
        return _machine(table)
    raise Error(f"{process.path}: no instruction table of {kernel}")


def _machine(table: tables.Table) -> Code:
    made = of_machine(table.instructions)
    return Code(made, machine=True, anchors=elided.anchors(table.instructions, made))


def of_machine(rows: Sequence[Mapping[str, Any]]) -> dict[int, Operation]:
    """Returns the rows of an instruction table by number. What fills the end means nothing."""
    last = max((i for i, row in enumerate(rows) if row["opcode"] != "NOP"), default=-1)
    return {
        row["opcode_id"]: machine.of_row(row) if i <= last else Operation(row["sass"])
        for i, row in enumerate(rows)
    }


def of_ptx(found: Sequence[Statement]) -> dict[int, Operation]:
    """Returns what lines of PTX do, by their numbers."""
    lines: dict[int, list[Statement]] = {}
    for one in found:
        lines.setdefault(one.line, []).append(one)
    return {number: statements.operation(line) for number, line in lines.items()}
