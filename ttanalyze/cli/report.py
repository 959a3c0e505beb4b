"""The options of `ttanalyze report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option, Typer

from ttanalyze.cli import common
from ttanalyze.errors import Error

verbs = Typer()

SourceArgument = Annotated[
    Path,
    Argument(
        metavar="RUN",
        help="A run directory, or what check, race, prove or tune found: the folder of check or "
        "race, or a file with their JSON.",
    ),
]


@verbs.command(
    epilog="\b\nExamples:\n"
    "  ttanalyze report run1\n"
    "  ttanalyze report run1 --values weights=f32 --values 3=bf16\n"
    "  ttanalyze check -o checked -- ./app; ttanalyze report checked -o findings.html\n"
    "  ttanalyze prove run1 --json > proven.json; ttanalyze report proven.json\n"
    "  ttanalyze report run1 --against run2 -o where-they-part.html"
)
def report(
    run: SourceArgument,
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
    rank: common.RanksOption = None,
    json: bool = Option(False, "--json", help="Print the path of the page as JSON."),
    quiet: common.QuietOption = False,
) -> None:
    """Write a web page about a run: calls, memory, changes over time, kernels, allocations.

    The page needs only a browser: no server, no network. This verb needs the extra [report].
    It also shows what check, race, prove and tune found.
    """
    from ttanalyze.format import open_run
    from ttanalyze.output import text
    from ttanalyze.verbs.report import report as page
    from ttanalyze.verbs.report import results_page

    common.check_output(out)
    written = run / "report.json"  # by check and race
    results = written if written.is_file() and not (run / "run.json").exists() else run
    if results.is_file():
        if against is not None or values:
            raise Error(f"{run}: is no run directory: leave out --against and --values")
        made = results_page(results)
    else:
        ranks = common.parse_ranks(rank)
        opened = open_run(run, ranks)
        other = None if against is None else open_run(against, ranks)
        with common.progress_bar("reading", quiet) as progress:
            made = page(opened, other, progress, values or ())
    common.write_file(out, made)
    size = len(made.encode())
    common.print_text(
        common.as_json({"page": str(out), "bytes": size}) if json else f"{out}: {text.size(size)}"
    )
