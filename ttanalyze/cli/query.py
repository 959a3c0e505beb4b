"""The options of `ttanalyze query`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option, Typer

from ttanalyze.cli import common
from ttanalyze.errors import Error

if TYPE_CHECKING:
    from ttanalyze.format import Run
    from ttanalyze.verbs.query import Query, RecordsFile

verbs = Typer()

QUERY_EXAMPLES = """\b
Examples:
  Count the launches of each kernel:
    ttanalyze query run1 --filter 'kind == "launch"' --group-by short --count
  Sum the GPU time of each kernel, also in graphs (needs record --timeline):
    ttanalyze query run1 --table activities --group-by short --sum gpu_time --share gpu_time
  Find the callers that waited longest for the GPU, and the work that queued longest:
    ttanalyze query run1 --group-by caller,call --sum wait_time --top 10
    ttanalyze query run1 --sort -queue_time --fields seq,short,queue_time,gpu_time --top 10
  Sum the allocated bytes of each call site:
    ttanalyze query run1 --table allocs --group-by site --sum bytes --max bytes
  List allocations that are never freed, the largest first:
    ttanalyze query run1 --table allocs --filter 'not freed' --sort -bytes --top 20
  List regions that never change:
    ttanalyze query run1 --table regions --filter 'captured and changes == 0'
  List epochs with many changed bytes:
    ttanalyze query run1 --table epochs --filter 'bytes_changed > 1e9 and not full'
  Write the launches of a kernel as CSV:
    ttanalyze query run1 --filter 'demangled.str.contains("softmax")' --format csv -o launches.csv
  List copies to the device between epochs 3 and 5:
    ttanalyze query run1 --filter '(flags & 16) != 0 and epoch.between(4, 5)'
  Count launches by caller, in a run or in a file of kernel events:
    ttanalyze query run1 --filter 'kind == "launch"' --group-by caller,short
    ttanalyze query kernel_events.ndjson --group-by caller,short
  Count the executed instructions in an instruction trace of CUTracer:
    ttanalyze query kernel_trace.ndjson --group-by opcode_id,sass --count --sort -count
"""


RunOrFileArgument = Annotated[
    Path,
    Argument(
        metavar="RUN", help="A run directory, a file of kernel events, or an instruction trace."
    ),
]
TableOption = Annotated[
    str,
    Option(
        "--table",
        metavar="TABLE",
        help="events (default), activities, epochs, regions, labels, allocs, functions, "
        "modules, graphs, nodes or digests.",
    ),
]


WhereOption = Annotated[
    str | None, Option("--filter", metavar="CONDITION", help="Keep only the rows that match.")
]
SortOption = Annotated[
    str | None, Option(metavar="COLUMNS", help="Sort by these columns; -COLUMN: the largest first.")
]
FormOption = Annotated[
    str, Option("--format", metavar="FORMAT", help="table (default), csv, json, ndjson or parquet.")
]


def _names(value: str | None) -> list[str]:
    """The names in a list, for example kind,thread."""
    return [name.strip() for name in (value or "").split(",") if name.strip()]


@verbs.command(epilog=QUERY_EXAMPLES)
def query(
    run: RunOrFileArgument,
    table: TableOption = "events",
    where: WhereOption = None,
    group_by: str | None = Option(
        None, metavar="COLUMNS", help="One row per combination of their values."
    ),
    count: bool = Option(False, "--count", help="Count the rows."),
    total: str | None = Option(None, "--sum", metavar="COLUMNS", help="Sum of each column."),
    share: str | None = Option(
        None, metavar="COLUMNS", help="Sum of each column, in percent of the total."
    ),
    mean: str | None = Option(None, metavar="COLUMNS", help="Mean of each column."),
    least: str | None = Option(
        None, "--min", metavar="COLUMNS", help="Smallest value of each column."
    ),
    most: str | None = Option(
        None, "--max", metavar="COLUMNS", help="Largest value of each column."
    ),
    sort: SortOption = None,
    top: int | None = Option(None, metavar="N", help="Keep only the first N rows of the result."),
    fields: str | None = Option(None, metavar="COLUMNS", help="Columns of the result."),
    form: FormOption = "table",
    out: common.OutOption = None,
    json: common.JsonOption = False,
    quiet: common.QuietOption = False,
) -> None:
    """Query the tables of a run: filter, group, count, sum, sort.

    CONDITION is a pandas query. It may have comparisons of columns, and, or, not, in, + - * / // %
    and the methods isna, notna, isin and between. Text columns also have str.contains, str.match,
    str.fullmatch, str.startswith and str.endswith. COLUMNS are names separated by commas. An
    unknown name gives an error that lists the columns. docs/reference/tables.md describes them.
    """
    from ttanalyze.format import open_run
    from ttanalyze.verbs.query import Query, open_file

    form = "json" if json else form
    _check_format(form, out)
    common.check_output(out)
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
    _answer(opened, wanted, form, out, quiet)
    for note in getattr(opened, "notes", ()):
        common.say(note)
    common.say_what_is_missing()


def _check_format(form: str, out: Path | None) -> None:
    from ttanalyze.output import tables as show

    if form not in show.FORMATS:
        raise Error(f"--format {form}: must be one of {', '.join(show.FORMATS)}")
    if form == "parquet":
        show.load_parquet()
        if out is None:
            raise Error("--format parquet: needs -o FILE")


def _answer(
    opened: Run | RecordsFile, wanted: Query, form: str, out: Path | None, quiet: bool
) -> None:
    """Writes or prints the answer, in pieces as they come."""
    from ttanalyze.output import tables as show
    from ttanalyze.verbs.query import TABLES, RecordsFile, stream

    tables = opened.tables if isinstance(opened, RecordsFile) else TABLES
    shown = tables[wanted.table].shown if form == "table" and wanted.table in tables else ()
    # A progress bar and a result that comes in pieces would mix on one terminal.
    with common.progress_bar("querying", quiet or (out is None and form != "table")) as progress:
        pieces = stream(opened, wanted, progress, shown)
        if form == "table":
            rows = show.SHOWN if wanted.top is None else None
            answer = iter([show.table_text(pieces, rows, common.screen_width()) + "\n"])
        elif form != "parquet":
            answer = show.written(pieces, form)
        if out is not None:
            with common.output_file(out) as file:
                if form == "parquet":
                    show.write_parquet(pieces, file)
                else:
                    file.writelines(part.encode() for part in answer)
    if out is None:
        for part in answer:
            common.print_text(part, end="", exact=form == "csv")
