"""The options of `ttanalyze report`."""

from __future__ import annotations

from pathlib import Path

from typer import Option, Typer

from ttanalyze.cli import common

verbs = Typer()


@verbs.command(
    epilog="\b\nExamples:\n"
    "  ttanalyze report run1\n"
    "  ttanalyze report run1 --against run2 -o where-they-part.html"
)
def report(
    run: common.RunArgument,
    against: Path | None = Option(
        None, metavar="RUN2", help="Show as well where this run parts from the first."
    ),
    out: Path = Option(Path("report.html"), "--out", "-o", metavar="FILE", help="The page."),
    json: bool = Option(False, "--json", help="Say where it is as JSON."),
    quiet: common.QuietOption = False,
) -> None:
    """Make one web page of a run: calls, memory and its changes over time, kernels, allocations.

    The page needs nothing but a browser: no server, no network. Making it needs the extra
    [report].
    """
    from ttanalyze.format import open_run
    from ttanalyze.output import text
    from ttanalyze.verbs.report import report as page

    common.check_output(out)
    opened = open_run(run)
    other = None if against is None else open_run(against)
    with common.progress_bar("looking", quiet) as progress:
        made = page(opened, other, progress)
    common.write_file(out, made)
    size = len(made.encode())
    common.print_text(
        common.as_json({"page": str(out), "bytes": size}) if json else f"{out}: {text.size(size)}"
    )
