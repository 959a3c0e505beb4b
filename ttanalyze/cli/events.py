"""The options of `ttanalyze events`."""

from __future__ import annotations

from typer import Option, Typer

from ttanalyze.cli import common

verbs = Typer()

EVENTS_EXAMPLES = """\b
Examples:
  Write every launch, and the call stacks it refers to:
    ttanalyze events run1 -o events.ndjson
  Write the launches of one kernel, each with its call stack:
    ttanalyze events run1 --kernel softmax --kernel-events full
  Write a CSV file, or print a table:
    ttanalyze events run1 --format csv -o events.csv
    ttanalyze events run1 --format table
"""


@verbs.command(epilog=EVENTS_EXAMPLES)
def events(
    run: common.RunArgument,
    form: str = Option(
        "ndjson", "--format", metavar="FORMAT", help="ndjson (default), json, csv or table."
    ),
    kernel: str | None = Option(
        None, metavar="REGEX", help="Only launches of kernels whose name matches."
    ),
    kernel_events: str | None = Option(
        None,
        metavar="HOW",
        help="Call stacks: each one once, with an id (dedup); in each launch (full); none "
        "(nostack). Default: the option of `record`.",
    ),
    out: common.OutOption = None,
    rank: common.RanksOption = None,
    json: common.JsonOption = False,
    quiet: common.QuietOption = False,
) -> None:
    """Write one record per kernel launch: its code, its sizes and its call stack.

    The types of records are kernel_launch, kernel_node (a kernel added to a graph), graph_launch
    (followed by the launches of its kernels) and callstack_def. They have all fields of
    CUTracer's kernel-event files and more. REGEX matches any part of a mangled or demangled name.
    """
    from ttanalyze.format import open_run
    from ttanalyze.verbs.events import written

    form = "json" if json else form
    common.check_output(out)
    opened = open_run(run, common.parse_ranks(rank))
    with common.progress_bar(
        "reading launches", quiet or (out is None and form != "table")
    ) as progress:
        width = common.screen_width() if out is None else 0
        parts = written(opened, form, kernel, kernel_events, width, progress)
        if out is not None:
            with common.output_file(out) as file:
                file.writelines(parts)
    if out is None:
        for part in parts:
            common.print_text(part.decode(), end="", exact=form == "csv")
    common.say_what_is_missing()
