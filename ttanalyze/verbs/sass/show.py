"""Instruction tables as text beside the source, JSON, CSV, lines of JSON or a DataFrame."""

from __future__ import annotations

import csv
import functools
import io
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pandas as pd

from ttanalyze.code import demangle
from ttanalyze.disassembly.categories import can_delay
from ttanalyze.disassembly.tables import Table
from ttanalyze.errors import Error
from ttanalyze.output import text as texts
from ttanalyze.util.regular_files import read_regular

FORMATS = ("text", "json", "csv", "ndjson")
OF_KERNEL = ("kernel_name", "kernel_checksum", "architecture")
LISTS = ("operands", "reads", "writes", "uniform_reads", "uniform_writes", "inlined_at", "wait")
NUMBERS = ("target", "line", "write_barrier", "read_barrier")
SASS_WIDTH = 60  # letters, before the remark on an instruction
SOURCE_WIDTH = 72
LARGEST_SOURCE = 1 << 24  # bytes


def written(tables: Iterable[Table], form: str, delay_points: str | None = None) -> Iterator[bytes]:
    """Yields tables in one of FORMATS, in pieces. delay_points: as in rows()."""
    if form not in FORMATS:
        raise Error(f"--format {form}: must be one of {', '.join(FORMATS)}")
    if form == "json":
        return _json(tables, delay_points)
    if form == "csv":
        return _csv(tables, delay_points)
    if form == "ndjson":
        return _ndjson(tables, delay_points)
    return (f"{table_text(table, delay_points)}\n".encode() for table in tables)


def rows(table: Table, delay_points: str | None = None) -> list[dict[str, Any]]:
    """Returns the rows of a table. delay_points: only instructions that these patterns select; "":
    the default patterns.
    """
    if delay_points is None:
        return table.instructions
    return [row for row in table.instructions if can_delay(row["opcode"], delay_points)]


def frame(tables: Iterable[Table]) -> pd.DataFrame:
    """Returns one row per instruction, with its kernel. Lists become tuples, numbers that may be
    missing Int64.
    """
    made = []
    for table in tables:
        part = pd.DataFrame.from_records(table.instructions)
        for i, name in enumerate(OF_KERNEL):
            part.insert(i, name, getattr(table, name))
        made.append(part)
    if not made:
        return pd.DataFrame(columns=list(OF_KERNEL))
    whole: pd.DataFrame = pd.concat(made, ignore_index=True)
    for name in NUMBERS:
        whole[name] = whole[name].astype("Int64")
    for name in LISTS:
        whole[name] = whole[name].map(tuple)
    return whole


def _json(tables: Iterable[Table], delay_points: str | None) -> Iterator[bytes]:
    start = b"[\n"
    for table in tables:
        made = table.to_object() | {"instructions": rows(table, delay_points)}
        yield start + orjson.dumps(made)
        start = b",\n"
    yield b"\n]\n" if start == b",\n" else b"[]\n"


def _ndjson(tables: Iterable[Table], delay_points: str | None) -> Iterator[bytes]:
    for table in tables:
        head = {"type": "instruction"} | {name: getattr(table, name) for name in OF_KERNEL}
        yield b"".join(
            orjson.dumps(head | row, option=orjson.OPT_APPEND_NEWLINE)
            for row in rows(table, delay_points)
        )


def _csv(tables: Iterable[Table], delay_points: str | None) -> Iterator[bytes]:
    headed = False
    for table in tables:
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        for row in rows(table, delay_points):
            if not headed:
                writer.writerow([*OF_KERNEL, *row])
                headed = True
            cells = [
                (" " if k != "operands" else ", ").join(map(str, v)) if k in LISTS else v
                for k, v in row.items()
            ]
            writer.writerow([*(getattr(table, name) for name in OF_KERNEL), *cells])
        yield out.getvalue().encode()


def table_text(table: Table, delay_points: str | None = None) -> str:
    """Returns a table for a screen: address, schedule, instruction, and source."""
    name = demangle.demangle([table.kernel_name])[0]
    count = texts.count(len(table.instructions), "instruction")
    delayed = sum(row["delay_point"] for row in table.instructions)
    head = (
        f"{texts.printable(name)}\n  {table.kernel_checksum}, sm_{table.architecture}, {count}, "
        f"{texts.count(delayed, 'delay point')} (*), by {texts.printable(table.disassembler)}"
    )
    shown = rows(table, delay_points)
    width = min(SASS_WIDTH, max((len(row["sass"]) for row in shown), default=0))
    lines, last = [head], None
    for row in shown:
        location = (row["file"], row["line"], *row["inlined_at"][-1:])
        source = _source(*location) if location != last and row["line"] else ""
        last = location
        line = (
            f"{row['opcode_id']:6} {row['pc']:#07x} {'*' if row['delay_point'] else ' '} "
            f"{_control(row)}  {texts.printable(row['sass']).ljust(width)}  {source}"
        )
        lines.append(line.rstrip())
    return "\n".join(lines)


def _control(row: dict[str, Any]) -> str:
    """Returns barriers that are waited for, set after reads and set after writes, and cycles."""
    waits = "".join(map(str, row["wait"])) or "-"
    barriers = ("-" if row[b] is None else row[b] for b in ("read_barrier", "write_barrier"))
    read, write = barriers
    return f"{waits:>6}:{read}:{write}:{'y' if row['yield'] else '-'}:{row['stall']:02}"


def _source(file: str, line: int, inlined_at: str = "") -> str:
    """Returns file name, line number, inlining call, and the source line if the file is here."""
    name = f"{Path(file).name}:{line}" + (f" in {Path(inlined_at).name}" if inlined_at else "")
    return f"{texts.printable(name)}  {_source_line(file, line)}"[:SOURCE_WIDTH].rstrip()


def _source_line(file: str, line: int) -> str:
    lines = _source_lines(file)
    return texts.printable(lines[line - 1].strip()) if 0 < line <= len(lines) else ""


@functools.lru_cache(64)
def _source_lines(file: str) -> list[str]:
    try:
        return read_regular(file, LARGEST_SOURCE).decode(errors="replace").split("\n")
    except Error:
        return []
