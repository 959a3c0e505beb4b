"""Finds the kernel, the instruction and the source line of delays."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ttanalyze.code import demangle
from ttanalyze.core import delays
from ttanalyze.disassembly.find import find_tables
from ttanalyze.disassembly.tables import Table
from ttanalyze.errors import Error
from ttanalyze.format.run import Run
from ttanalyze.util.arguments import checked
from ttanalyze.verbs.reduce.search import Point


@dataclass(frozen=True)
class DelayedInstruction:
    """The place of a delay.

    Attributes:
        point: The delay.
        member: Its entry in the configuration.
        kernel_name: The mangled name of the kernel.
        kernel: The demangled name.
        checksum: The checksum of the kernel.
        instruction: The row of the instruction table, None if there is no table.
    """

    point: Point
    member: dict[str, Any]
    kernel_name: str | None
    kernel: str | None
    checksum: str | None
    instruction: dict[str, Any] | None

    def to_object(self) -> dict[str, Any]:
        """Returns the place as in schemas/reduce_report.json."""
        kind = "launch" if self.point.kernel is None else "instruction"
        made = {"kind": kind, "key": self.point.kernel or self.point.key, **self.member}
        made |= {"kernel_name": self.kernel_name, "kernel": self.kernel}
        if kind == "instruction":
            made["kernel_checksum"] = self.checksum
            row = self.instruction or {}
            made |= {name: row.get(name) for name in ("opcode_id", "file", "line", "inlined_at")}
            made["sass"] = row.get("sass") or self.member["sass"]
        return made


@checked
def name_delays(
    config: delays.Config, points: Iterable[Point], run: Run | None = None
) -> list[DelayedInstruction]:
    """Returns the instruction or call of each delay.

    Args:
        config: The configuration.
        points: The delays.
        run: A run whose kernels can be disassembled, for instructions and source lines.

    Example:
        >>> config = tt.delays.of_run("delayed")
        >>> kernel, found = next(iter(config.kernels.items()))
        >>> point = tt.reduce.Point(kernel, next(iter(found["instrumentation_points"])))
        >>> (place,) = tt.reduce.name_delays(config, [point])
        >>> place.kernel, place.member["sass"]
        ('add', 'ld')
    """
    points = list(points)
    kernels = [config.kernels[p.kernel] for p in points if p.kernel is not None]
    tables = _tables(run, kernels) if run is not None and kernels else {}
    calls = _calls(run) if run is not None and len(kernels) < len(points) else {}
    return [_delayed_instruction(config, point, tables, calls) for point in points]


def _delayed_instruction(
    config: delays.Config, point: Point, tables: dict[str, Table], calls: dict[str, Any]
) -> DelayedInstruction:
    member = point.member(config)
    if point.kernel is None:
        member = {**calls.get(point.key, {}), **member}
    if point.kernel is None:
        name, checksum = member.get("kernel_name"), None
    else:
        kernel = config.kernels[point.kernel]
        name, checksum = kernel["kernel_name"], kernel["kernel_checksum"]
    shown = demangle.demangle([name])[0] if name else None
    row = None
    if checksum in tables:
        pc = member["pc"]
        row = next((r for r in tables[checksum].instructions if r["pc"] == pc), None)
    return DelayedInstruction(point, member, name, shown, checksum, row)


def _tables(run: Run, kernels: Iterable[dict[str, Any]]) -> dict[str, Table]:
    """Returns instruction tables by the checksum in the configuration, {} if none can be made."""
    found: dict[str, Table] = {}
    wanted = {kernel["kernel_checksum"] for kernel in kernels}
    names = "|".join(sorted({re.escape(kernel["kernel_name"]) for kernel in kernels}))
    try:
        for table in find_tables(run, f"^(?:{names})$"):
            for checksum in {table.code_checksum, table.kernel_checksum} & wanted:
                found[checksum] = table
            if wanted <= found.keys():
                break
    except Error:
        pass  # the report has what the configuration says then
    return found


def _calls(run: Run) -> dict[str, Any]:
    """Returns the delayed calls of a run with their names, by key."""
    try:
        return delays.of_run(run).launches
    except Error:
        return {}
