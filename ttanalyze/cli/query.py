"""The options of `ttanalyze query`."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO

from typer import Argument, Context, Option, Typer

from ttanalyze.cli import common, saved_options
from ttanalyze.errors import Error

if TYPE_CHECKING:
    import pandas as pd

    from ttanalyze.core.run_tables import Table
    from ttanalyze.format import Run
    from ttanalyze.traces.native import AnyTrace
    from ttanalyze.util.progress import Progress
    from ttanalyze.verbs.query import Query
    from ttanalyze.verbs.query.files import RecordsFile

verbs = Typer()
CUTRACER = ("cutracer", "cutracer-text")
ALL = ("all", "*")
# Options that say nothing of the question.
ASIDE = (
    *("runs", "save", "use", "rank", "form", "no_header", "out", "compress"),
    *("max_memory", "json", "quiet"),
)

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
  Ask in SQL:
    ttanalyze query run1 --sql 'SELECT kind, sum(size) FROM regions GROUP BY kind'
  Save the options of a query, and ask it of another run:
    ttanalyze query run1 --filter 'kind == "launch"' --group-by short --count --save kernels
    ttanalyze query run2 --use kernels --top 5
  Write the launches of a kernel as CSV:
    ttanalyze query run1 --filter 'demangled.str.contains("softmax")' --format csv -o launches.csv
  List copies to the device between epochs 3 and 5:
    ttanalyze query run1 --filter '(flags & 16) != 0 and epoch.between(4, 5)'
  Count launches by caller, in a run or in a file of kernel events:
    ttanalyze query run1 --filter 'kind == "launch"' --group-by caller,short
    ttanalyze query kernel_events.ndjson --group-by caller,short
  Count the launches of each kernel in several files of kernel events:
    ttanalyze query 'kernel_events*.ndjson' --group-by file,kernel_checksum --count
  Show the first records of a warp:
    ttanalyze query kernel_trace.ndjson --filter 'pc>=0x100;warp=24' --head 10
  Count the warps of a trace that exited, hang, or never ran:
    ttanalyze query kernel_trace.ndjson --table warps --group-by state --sum warps
  Show the first traced instructions of a launch, and its most executed instructions:
    ttanalyze query traced1 --table trace --launch 2 --head 20
    ttanalyze query traced1 --table trace-counts --sort -warps --top 20
  Show the products of matrices and the tensor copies of a trace:
    ttanalyze query traced1 --table mma --group-by instruction,a_type,k --sum flops
    ttanalyze query traced1 --table tma --fields source,box_dim,swizzle,encoded_by
  Divide instructions of traced regions by cycles that Proton measured without a trace:
    ttanalyze query traced1 --table ipc --launch 2 --times add.chrome_trace -o ipc.csv
  Write the instruction trace of a run as CUTracer does, compressed:
    ttanalyze query traced1 --table trace --format cutracer -o trace.ndjson.zst --compress
  Count the executed instructions in an instruction trace of CUTracer:
    ttanalyze query kernel_trace.ndjson --group-by opcode_id,sass --count --sort -count
"""


SourcesArgument = Annotated[
    list[Path],
    Argument(
        metavar="RUN",
        help="A run directory, a file of kernel events, an instruction trace, or a pattern such as "
        "'traces/*.ndjson'. Of several, the column `file` tells which.",
    ),
]
TableOption = Annotated[
    str,
    Option(
        "--table",
        metavar="TABLE",
        help="events (default), activities, collectives, epochs, regions, labels, allocs, "
        "functions, modules, graphs, nodes, stacks or digests; traced, and of the traced "
        "instructions: trace, trace-counts, instructions, warps, histogram, ipc, mma, tma or "
        "hangs. Of a trace in a file: events, kernels, instructions, warps, histogram, ipc, mma or "
        "tma.",
    ),
]


WhereOption = Annotated[
    list[str] | None,
    Option(
        "--filter",
        "-f",
        metavar="CONDITION",
        help="Keep only the rows that match. Several times: that match all.",
    ),
]
SortOption = Annotated[
    str | None, Option(metavar="COLUMNS", help="Sort by these columns; -COLUMN: the largest first.")
]
FormOption = Annotated[
    str,
    Option(
        "--format",
        metavar="FORMAT",
        help="table (default), csv, json, ndjson or parquet. For --table trace of a run also the "
        "formats of CUTracer: cutracer (lines of JSON) or cutracer-text.",
    ),
]
LaunchOption = Annotated[
    int | None,
    Option(
        metavar="N",
        help="For the traced instructions of a run: only the launch with this seq number (see "
        "--table traced).",
    ),
]
SqlOption = Annotated[
    str | None,
    Option(
        "--sql",
        metavar="SELECT",
        help="Answer a SELECT statement over the tables, in place of --table, --filter and so on.",
    ),
]
SaveOption = Annotated[
    str | None, Option(metavar="NAME", help="Save the options of this query under a name.")
]
UseOption = Annotated[
    str | None,
    Option(
        metavar="NAME",
        autocompletion=saved_options.complete,
        help="Ask with the saved options, and those given beside.",
    ),
]


def _names(value: str | None) -> list[str]:
    """The names in a list, for example kind,thread."""
    return [name.strip() for name in (value or "").split(",") if name.strip()]


@verbs.command(epilog=QUERY_EXAMPLES)
def query(
    context: Context,
    runs: SourcesArgument,
    table: TableOption = "events",
    where: WhereOption = None,
    group_by: str | None = Option(
        None, "--group-by", "-g", metavar="COLUMNS", help="One row per combination of their values."
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
    top: int | None = Option(
        None, "--top", "--head", "-n", metavar="N", help="Keep only the first N rows of the result."
    ),
    tail: int | None = Option(
        None, "--tail", "-t", metavar="N", help="Keep only the last N rows of the result."
    ),
    every: bool = Option(
        False, "--all-lines", "-a", help="Keep all rows, whatever --head and --tail say."
    ),
    fields: str | None = Option(
        None, metavar="COLUMNS", help="Columns of the result; all: all recorded ones."
    ),
    sql: SqlOption = None,
    save: SaveOption = None,
    use: UseOption = None,
    launch: LaunchOption = None,
    rank: common.RanksOption = None,
    regions: str | None = Option(
        None,
        metavar="BEGIN:END,...",
        help="For the tables histogram and ipc: offsets of the clock reads of each region "
        "(default: each second read ends a region).",
    ),
    times: Path | None = Option(
        None,
        metavar="FILE",
        help="For the table ipc: cycles of the same program, not traced: a Chrome trace of Proton, "
        "for regions; or a run recorded with --timeline, for NVTX ranges.",
    ),
    form: FormOption = "table",
    no_header: bool = Option(False, "--no-header", help="Leave out the names of the columns."),
    out: Path | None = Option(
        None, "--out", "-o", "--output", metavar="FILE", help="Write to a file."
    ),
    compress: bool = Option(False, "--compress", help="Compress FILE with zstd."),
    max_memory: common.MaxMemoryOption = None,
    cluster: common.ClusterOption = None,
    json: common.JsonOption = False,
    quiet: common.QuietOption = False,
) -> None:
    """Query the tables of a run: filter, group, count, sum, sort.

    CONDITION is a pandas query. It may have comparisons of columns, and, or, not, in, + - * / // %
    and the methods isna, notna, isin and between. Text columns also have str.contains, str.match,
    str.fullmatch, str.startswith and str.endswith. COLUMN=VALUE;COLUMN>=VALUE is a condition too.
    COLUMNS are names separated by commas. An unknown name gives an error that lists the columns.
    docs/reference/tables.md describes them.
    """
    if use is not None:
        saved_options.ask_again(context, use)
        return
    common.limit_memory(max_memory)
    from ttanalyze.traces.histogram import parse_regions
    from ttanalyze.verbs.query import Query, open_sources
    from ttanalyze.verbs.query.native import TRACE_TABLES
    from ttanalyze.verbs.query.traces import Regions

    form = "json" if json else form
    _check_format(form, out, no_header, compress)
    if launch is not None and table not in TRACE_TABLES:
        raise Error(f"--launch: needs --table {', '.join(TRACE_TABLES)}")
    common.check_output(out)
    more = saved_options.given(context, (*ASIDE, "sql"))
    if sql is not None and more:
        raise Error(f"{more[0]}: cannot be combined with --sql")
    if regions is not None and table not in ("histogram", "ipc"):
        raise Error("--regions: needs --table histogram or ipc")
    if times is not None and table != "ipc":
        raise Error("--times: needs --table ipc")
    of_kernels = Regions(() if regions is None else parse_regions(regions), times)
    ranks = common.parse_ranks(rank)
    opened = open_sources(runs, of_kernels, table in TRACE_TABLES, launch, ranks)
    to = _Output(form, not no_header, out, compress)
    grouped = any((group_by, count, total, share, mean, least, most))
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
        top=None if every else top,
        tail=None if every else tail,
        fields=() if grouped and fields in ALL else _fields(fields, opened, table),
    )
    if sql is not None:
        _answer_sql(opened, sql, to, quiet)
    elif form in CUTRACER:
        _export(opened, wanted, to, quiet)
    else:
        _answer(opened, wanted, to, quiet, cluster)
    if save is not None:
        saved_options.save(save, saved_options.given(context, ASIDE))
        common.say(f"saved: ttanalyze query RUN --use {save} asks it again")
    for note in getattr(opened, "notes", ()):
        common.say(note)
    common.say_what_is_missing()


def _fields(given: str | None, opened: Run | RecordsFile, table: str) -> Sequence[str]:
    if given not in ALL:
        return _names(given)
    found = _tables(opened).get(table)
    return found.recorded if found else ()


def _tables(opened: Run | RecordsFile) -> Mapping[str, Table]:
    from ttanalyze.verbs.query import TABLES
    from ttanalyze.verbs.query.files import RecordsFile

    return opened.tables if isinstance(opened, RecordsFile) else TABLES


@dataclass(frozen=True)
class _Output:
    """Where the answer goes, and how. out: standard output if None."""

    form: str
    header: bool
    out: Path | None
    compress: bool


def _check_format(form: str, out: Path | None, no_header: bool, compress: bool) -> None:
    from ttanalyze.output import tables as show

    if form not in (*show.FORMATS, *CUTRACER):
        raise Error(f"--format {form}: must be one of {', '.join((*show.FORMATS, *CUTRACER))}")
    if form == "parquet":
        show.load_parquet()
        if out is None:
            raise Error("--format parquet: needs -o FILE")
    if no_header and form not in ("table", "csv"):
        raise Error(f"--no-header: {form} has no header")
    if compress and (out is None or form == "parquet"):
        raise Error("--compress: needs -o FILE and a format other than parquet")


def _answer(
    opened: Run | RecordsFile, wanted: Query, to: _Output, quiet: bool, cluster: str | None
) -> None:
    """Writes or prints the answer, in pieces as they come."""
    from ttanalyze.verbs.query.execute import result_pieces

    tables, form = _tables(opened), to.form
    shown = tables[wanted.table].shown if form == "table" and wanted.table in tables else ()
    if shown and any(p.rank for p in getattr(opened, "processes", ())):
        shown = ("rank", *shown)
    limited = wanted.top is not None or wanted.tail is not None
    # A progress bar and a result that comes in pieces would mix on one terminal.
    silent = quiet or (to.out is None and form != "table")
    with common.progress_bar("querying", silent) as progress:
        pieces = result_pieces(opened, wanted, progress, shown, cluster)
        answer = _put(pieces, to, limited, lambda told: _hidden(tables, wanted, shown, told))
    _print(answer, to)


def _answer_sql(opened: Run | RecordsFile, statement: str, to: _Output, quiet: bool) -> None:
    from ttanalyze.verbs.query import sql

    if to.form in CUTRACER:
        raise Error(f"--format {to.form}: cannot be combined with --sql")
    with common.progress_bar("querying", quiet) as progress:
        answer = _put(iter([sql(opened, statement, progress)]), to, limited=False)
    _print(answer, to)


def _put(
    pieces: Iterator[pd.DataFrame],
    to: _Output,
    limited: bool,
    below: Callable[[bool], str] = lambda told: "",
) -> Iterator[str]:
    """Writes the file, or returns what to print. below: the text after a table that has rows."""
    from ttanalyze.output import tables as show

    answer: Iterator[str] = iter(())
    if to.form == "table":
        text = show.table_text(
            pieces, None if limited else show.SHOWN, common.screen_width(), to.header
        )
        answer = iter([text + "\n" + below(to.header and text != "no rows")])
    elif to.form != "parquet":
        answer = show.written(pieces, to.form, to.header)
    if to.out is None:
        return answer
    with common.output_file(to.out) as file:
        if to.form == "parquet":
            show.write_parquet(pieces, file)
        else:
            _write(file, (part.encode() for part in answer), to.compress)
    return iter(())


def _print(answer: Iterator[str], to: _Output) -> None:
    for part in answer:
        common.print_text(part, end="", exact=to.form == "csv")


def _hidden(tables: Mapping[str, Table], wanted: Query, shown: Collection[str], told: bool) -> str:
    """Says which columns a text table leaves out. Other formats have all recorded columns."""
    if wanted.fields or wanted.grouped or not told or not shown:
        return ""
    names = ", ".join(name for name in tables[wanted.table].columns if name not in shown)
    found = textwrap.fill(f"not shown (--fields NAME,…): {names}", common.screen_width() or 100)
    return found + "\n" if names else ""


def _write(file: BinaryIO, parts: Iterable[bytes], compress: bool) -> None:
    if not compress:
        file.writelines(parts)
        return
    import zstandard

    made = zstandard.ZstdCompressor().compressobj()
    file.writelines(made.compress(part) for part in parts)
    file.write(made.flush())


def _export(opened: Run | RecordsFile, wanted: Query, to: _Output, quiet: bool) -> None:
    """Writes the trace of a run in a format of CUTracer."""
    from ttanalyze.traces.export import log, ndjson
    from ttanalyze.verbs.query.native import TracedRun

    more = (wanted.filter, wanted.sort, wanted.fields, wanted.grouped, wanted.tail is not None)
    if not isinstance(opened, TracedRun) or wanted.table != "trace" or any(more):
        raise Error(f"--format {to.form}: needs one run and --table trace, and takes only --head")
    trace, left_out = opened.open(), set[str]()
    parts = (
        ndjson(trace, wanted.top) if to.form == CUTRACER[0] else log(trace, wanted.top, left_out)
    )
    if to.out is None:
        for part in parts:
            common.print_text(part.decode(), end="")
    else:
        with common.progress_bar("writing", quiet) as progress, common.output_file(to.out) as file:
            _write(file, _told(parts, trace, progress), to.compress)
    opened.notes += [trace.lines.note] if trace.lines.note else []
    if left_out:
        opened.notes.append(f"text traces have no {', '.join(sorted(left_out))}: left out")


def _told(parts: Iterator[bytes], trace: AnyTrace, progress: Progress) -> Iterator[bytes]:
    from ttanalyze.util.progress import tell

    for part in parts:
        yield part
        tell(progress, trace.lines.at, trace.lines.size)
