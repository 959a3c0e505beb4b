"""The options of `ttanalyze query`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ttanalyze.cli.common import (
    JsonOption,
    QuietOption,
    check_output,
    output_file,
    print_text,
    progress_bar,
    say_what_is_missing,
    screen_width,
)
from ttanalyze.errors import Error

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
    lists those that there are, and docs/reference/tables.md says what they mean.
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
            answer = iter([show.table_text(pieces, rows, screen_width()) + "\n"])
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
    say_what_is_missing()
