"""The options of `ttanalyze report`."""

from __future__ import annotations

from pathlib import Path

from typer import Option, Typer

from ttanalyze.cli import common

verbs = Typer()


@verbs.command(
    epilog="\b\nExamples:\n"
    "  ttanalyze report run1\n"
    "  ttanalyze report run1 --values weights=f32 --values 3=bf16\n"
    "  ttanalyze report run1 --against run2 -o where-they-part.html"
)
def report(
    run: common.RunArgument,
    against: Path | None = Option(
        None, metavar="RUN2", help="Also show where this run diverges from the first."
    ),
    values: list[str] | None = Option(
        None,
        metavar="NAME[=TYPE]",
        help="Show statistics of a tensor over time: the name of a tensor, or the label or id of a "
        "region; repeatable.",
    ),
    out: Path = Option(
        Path("report.html"), "--out", "-o", metavar="FILE", help="The page to write."
    ),
    json: bool = Option(False, "--json", help="Print the path of the page as JSON."),
    quiet: common.QuietOption = False,
) -> None:
    """Write a web page about a run: calls, memory, changes over time, kernels, allocations.

    The page needs only a browser: no server, no network. This verb needs the extra [report].
    """
    from ttanalyze.format import open_run
    from ttanalyze.output import text
    from ttanalyze.verbs.report import report as page

    common.check_output(out)
    opened = open_run(run)
    other = None if against is None else open_run(against)
    with common.progress_bar("reading", quiet) as progress:
        made = page(opened, other, progress, values or ())
    common.write_file(out, made)
    size = len(made.encode())
    common.print_text(
        common.as_json({"page": str(out), "bytes": size}) if json else f"{out}: {text.size(size)}"
    )
