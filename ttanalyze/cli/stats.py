"""The options of `ttanalyze stats`."""

from __future__ import annotations

from typing import Annotated

from typer import Argument, Option, Typer

from ttanalyze.cli import common
from ttanalyze.errors import Error
from ttanalyze.output import text

verbs = Typer()
FORMATS = ("table", "csv", "json")


@verbs.command(
    epilog="\b\nExamples:\n"
    "  ttanalyze stats run1\n"
    "  ttanalyze stats run1 kernels copies --top 20\n"
    "  ttanalyze stats run1 kernels --format csv -o kernels.csv"
)
def stats(
    run: common.RunArgument,
    names: Annotated[
        list[str] | None,
        Argument(
            metavar="SUMMARY",
            help="kernels, copies, calls, memory or ranges. Default: all.",
        ),
    ] = None,
    top: int | None = Option(
        None,
        metavar="N",
        help="Number of rows of each summary (default: 10 in tables, else all).",
        min=1,
    ),
    form: str = Option(
        "table", "--format", metavar="FORMAT", help="table (default), csv (of one summary) or json."
    ),
    out: common.OutOption = None,
    process: int | None = Option(None, metavar="N", help="Only this process (default: all)."),
    rank: common.RanksOption = None,
    json: common.JsonOption = False,
    quiet: common.QuietOption = False,
) -> None:
    """Summarise kernels, copies, driver calls, memory by allocation site, and NVTX ranges.

    Rows with the most GPU time come first. Without GPU times (record --timeline), a note says so
    and rows are ranked by count or bytes. In CSV and JSON, the name of a column says its unit.
    """
    from ttanalyze.format import open_run
    from ttanalyze.output.tables import written
    from ttanalyze.verbs.stats import stats as summarise
    from ttanalyze.verbs.stats.show import stats_text, to_object, with_units

    form = "json" if json else form
    if form not in FORMATS:
        raise Error(f"--format {form}: must be one of {', '.join(FORMATS)}")
    if form == "csv" and len(names or ()) != 1:
        raise Error("--format csv: needs one summary, as in `ttanalyze stats RUN kernels`")
    common.check_output(out)
    opened = open_run(run, common.parse_ranks(rank))
    with common.progress_bar("reading", quiet) as progress:
        found = summarise(opened, names or (), process, progress)
    if form == "json":
        answer = common.as_json(to_object(found, top))
    elif form == "csv":
        table = found[0].table if top is None else found[0].table.head(top)
        answer = "".join(written(iter([with_units(table)]), "csv")).removesuffix("\n")
        for note in found[0].notes:
            common.say(note)
    else:
        screen = out is None
        width, colour = (common.screen_width(), text.colours_wanted(1)) if screen else (0, False)
        answer = stats_text(found, top or 10, width, colour)
    if out is None:
        common.print_text(answer, exact=form == "csv")
    else:
        common.write_file(out, answer + "\n")
    common.say_what_is_missing()
