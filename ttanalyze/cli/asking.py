"""Verbs that answer questions about what was recorded."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Annotated

import typer

from ttanalyze.cli.common import (
    JsonOption,
    QuietOption,
    RunArgument,
    as_json,
    check_output,
    output_file,
    print_text,
    progress_bar,
    say,
)
from ttanalyze.errors import Error
from ttanalyze.output import text

verbs = typer.Typer()

QUERY_EXAMPLES = """\b
Examples:
  Which kernels are launched most often:
    ttanalyze query run1 --filter 'kind == "launch"' --group-by short --count
  Kernels by the GPU's time, those of graphs too, of a run with --timeline:
    ttanalyze query run1 --table activities --group-by short --sum gpu_time --share gpu_time
  Who waited for the GPU for how long, and whose work stood in line:
    ttanalyze query run1 --group-by caller,call --sum wait_time --top 10
    ttanalyze query run1 --sort -queue_time --fields seq,short,queue_time,gpu_time --top 10
  Bytes by allocation site:
    ttanalyze query run1 --table allocs --group-by site --sum bytes --max bytes
  Allocations that are never freed, the largest first:
    ttanalyze query run1 --table allocs --filter 'not freed' --sort -bytes --top 20
  Regions that never change:
    ttanalyze query run1 --table regions --filter 'captured and changes == 0'
  Epochs in which much changed:
    ttanalyze query run1 --table epochs --filter 'bytes_changed > 1e9 and not full'
  What a kernel was launched with, as CSV:
    ttanalyze query run1 --filter 'demangled.str.contains("softmax")' --format csv -o launches.csv
  Copies to the device between epochs 3 and 5:
    ttanalyze query run1 --filter '(flags & 16) != 0 and epoch.between(4, 5)'
  Who launches most, of a recorded run or of a file of kernel events:
    ttanalyze query run1 --filter 'kind == "launch"' --group-by caller,short
    ttanalyze query kernel_events.ndjson --group-by caller,short
  Which instructions warps executed most, of an instruction trace of CUTracer:
    ttanalyze query kernel_trace.ndjson --group-by opcode_id,sass --count --sort -count
"""


def _names(value: str | None) -> list[str]:
    """The names in a list such as kind,thread."""
    return [name.strip() for name in (value or "").split(",") if name.strip()]


def _width() -> int:
    """Of the terminal, in letters; 0 where there is none."""
    return shutil.get_terminal_size().columns if os.isatty(1) else 0


def _tell_what_is_missing() -> None:
    """Why names or checksums are not what they could be, on stderr."""
    from ttanalyze import code
    from ttanalyze.code import demangle

    for note in (demangle.missing(), code.missing()):
        if note:
            say(note)


@verbs.command(epilog=QUERY_EXAMPLES)
def query(
    run: Annotated[
        Path,
        typer.Argument(
            metavar="RUN", help="A run directory, a file of kernel events, or an instruction trace."
        ),
    ],
    table: Annotated[
        str,
        typer.Option(
            "--table",
            metavar="TABLE",
            help="events (default), activities, epochs, regions, labels, allocs, functions, "
            "modules, graphs, nodes or digests.",
        ),
    ] = "events",
    where: Annotated[
        str | None,
        typer.Option("--filter", metavar="CONDITION", help="Only rows of which it holds."),
    ] = None,
    group_by: Annotated[
        str | None, typer.Option(metavar="COLUMNS", help="A row for each of their values.")
    ] = None,
    count: Annotated[bool, typer.Option("--count", help="How many rows.")] = False,
    total: Annotated[
        str | None, typer.Option("--sum", metavar="COLUMNS", help="The sum of their values.")
    ] = None,
    share: Annotated[
        str | None,
        typer.Option(metavar="COLUMNS", help="The sum in percent of what all rows have."),
    ] = None,
    mean: Annotated[
        str | None, typer.Option(metavar="COLUMNS", help="The mean of their values.")
    ] = None,
    least: Annotated[
        str | None, typer.Option("--min", metavar="COLUMNS", help="Their smallest value.")
    ] = None,
    most: Annotated[
        str | None, typer.Option("--max", metavar="COLUMNS", help="Their largest value.")
    ] = None,
    sort: Annotated[
        str | None,
        typer.Option(metavar="COLUMNS", help="Order of the rows; -COLUMN: the largest first."),
    ] = None,
    top: Annotated[
        int | None, typer.Option(metavar="N", help="Only the first N rows of the answer.")
    ] = None,
    fields: Annotated[
        str | None, typer.Option(metavar="COLUMNS", help="Columns of the answer.")
    ] = None,
    form: Annotated[
        str,
        typer.Option(
            "--format", metavar="FORMAT", help="table (default), csv, json, ndjson or parquet."
        ),
    ] = "table",
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write it to a file.")
    ] = None,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Ask a run's tables: filter, group, count, sum, sort.

    CONDITION is a pandas query: comparisons of columns, and, or, not, in, + - * / // %, and the
    methods isna notna isin between, and str.contains str.match str.fullmatch str.startswith
    str.endswith of texts. COLUMNS are names with commas between them; a name that there is not
    lists those that there are, and docs/python.md says what they mean.
    """
    from ttanalyze.format import open_run
    from ttanalyze.output import tables as show
    from ttanalyze.verbs.query import TABLES, Query, RecordsFile, open_file, stream

    form = "json" if json else form
    if form not in show.FORMATS:
        raise Error(f"--format {form}: there are {', '.join(show.FORMATS)}")
    if form == "parquet":
        show.load_parquet()
        if out is None:
            raise Error("--format parquet is for a file: -o FILE")
    check_output(out)
    wanted = Query(
        table=table,
        filter=where,
        group_by=_names(group_by),
        count=count,
        sum=_names(total),
        share=_names(share),
        mean=_names(mean),
        min=_names(least),
        max=_names(most),
        sort=_names(sort),
        top=top,
        fields=_names(fields),
    )
    opened = open_file(run) if run.is_file() else open_run(run)
    tables = opened.tables if isinstance(opened, RecordsFile) else TABLES
    shown = tables[table].shown if form == "table" and table in tables else ()
    # A bar and an answer that comes in pieces do not go together on one terminal.
    with progress_bar("asking", quiet or (out is None and form != "table")) as progress:
        pieces = stream(opened, wanted, progress, shown)
        if form == "table":
            rows = show.SHOWN if top is None else None
            answer = iter([show.table_text(pieces, rows, _width()) + "\n"])
        elif form != "parquet":
            answer = show.written(pieces, form)
        if out is not None:
            with output_file(out) as file:
                if form == "parquet":
                    show.write_parquet(pieces, file)
                else:
                    file.writelines(part.encode() for part in answer)
    if out is None:
        for part in answer:
            print_text(part, end="", exact=form == "csv")
    _tell_what_is_missing()


EVENTS_EXAMPLES = """\b
Examples:
  Every launch, with the stacks that they refer to:
    ttanalyze events run1 -o events.ndjson
  One kernel's, each with the stack of who launched it:
    ttanalyze events run1 --kernel softmax --kernel-events full
  For a spreadsheet, and for a look:
    ttanalyze events run1 --format csv -o events.csv
    ttanalyze events run1 --format table
"""


@verbs.command(epilog=EVENTS_EXAMPLES)
def events(
    run: RunArgument,
    form: Annotated[
        str,
        typer.Option("--format", metavar="FORMAT", help="ndjson (default), json, csv or table."),
    ] = "ndjson",
    kernel: Annotated[
        str | None,
        typer.Option(metavar="REGEX", help="Only launches of kernels with such a name."),
    ] = None,
    kernel_events: Annotated[
        str | None,
        typer.Option(
            metavar="HOW",
            help="Call stacks once each, and by id (dedup), with each launch (full), or not at all "
            "(nostack); by default what `record` was told.",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write it to a file.")
    ] = None,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Write a record of every kernel launch: which code, how large, by whom.

    Records are of the types kernel_launch, kernel_node (recorded into a graph), graph_launch,
    behind which come the launches of its kernels, and callstack_def, with the members of
    CUTracer's kernel-event files, and more. REGEX is searched in mangled and demangled names.
    """
    from ttanalyze.format import open_run
    from ttanalyze.verbs.events import written

    form = "json" if json else form
    check_output(out)
    opened = open_run(run)
    with progress_bar("reading launches", quiet or (out is None and form != "table")) as progress:
        width = _width() if out is None else 0
        parts = written(opened, form, kernel, kernel_events, width, progress)
        if out is not None:
            with output_file(out) as file:
                file.writelines(parts)
    if out is None:
        for part in parts:
            print_text(part.decode(), end="", exact=form == "csv")
    _tell_what_is_missing()


@verbs.command(
    epilog="\b\nExamples:\n"
    "  ttanalyze memory run1\n"
    "  ttanalyze memory run1 --at epoch:12 --top 50\n"
    "  ttanalyze memory run1 --json > memory.json"
)
def memory(
    run: RunArgument,
    at: Annotated[
        str,
        typer.Option(
            metavar="MOMENT",
            help="What to look at closely: peak (default), end, epoch:N or seq:N, a call's number.",
        ),
    ] = "peak",
    process: Annotated[
        int | None, typer.Option(metavar="N", help="Only this process (default: all).")
    ] = None,
    top: Annotated[int, typer.Option(metavar="N", help="Rows of each table.", min=1)] = 10,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Say how much was allocated when, by which calls, and what was never freed."""
    from ttanalyze.format import open_run
    from ttanalyze.verbs.memory import memory as analyse
    from ttanalyze.verbs.memory.show import memory_text, to_object

    opened = open_run(run)
    with progress_bar("reading calls", quiet) as progress:
        found = analyse(opened, at, process, progress)
    if json:
        print_text(as_json(to_object(found, top)))
    else:
        print_text(memory_text(opened, found, top, _width(), text.colours_wanted(1)))
