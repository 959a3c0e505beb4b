"""The options of `ttanalyze events`."""

from __future__ import annotations

from typer import Option, Typer

from ttanalyze.cli import common

verbs = Typer()

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
    run: common.RunArgument,
    form: str = Option(
        "ndjson", "--format", metavar="FORMAT", help="ndjson (default), json, csv or table."
    ),
    kernel: str | None = Option(
        None, metavar="REGEX", help="Only launches of kernels with such a name."
    ),
    kernel_events: str | None = Option(
        None,
        metavar="HOW",
        help="Call stacks once each, and by id (dedup), with each launch (full), or not at all "
        "(nostack); by default what `record` was told.",
    ),
    out: common.OutOption = None,
    json: common.JsonOption = False,
    quiet: common.QuietOption = False,
) -> None:
    """Write a record of every kernel launch: which code, how large, by whom.

    Records are of the types kernel_launch, kernel_node (recorded into a graph), graph_launch,
    behind which come the launches of its kernels, and callstack_def, with the members of
    CUTracer's kernel-event files, and more. REGEX is searched in mangled and demangled names.
    """
    from ttanalyze.format import open_run
    from ttanalyze.verbs.events import written

    form = "json" if json else form
    common.check_output(out)
    opened = open_run(run)
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
