"""The options of `ttanalyze memory`."""

from __future__ import annotations

from typer import Option, Typer

from ttanalyze.cli import common
from ttanalyze.output import text

verbs = Typer()


@verbs.command(
    epilog="\b\nExamples:\n"
    "  ttanalyze memory run1\n"
    "  ttanalyze memory run1 --at epoch:12 --top 50\n"
    "  ttanalyze memory run1 --json > memory.json"
)
def memory(
    run: common.RunArgument,
    at: str = Option(
        "peak",
        metavar="MOMENT",
        help="The moment to show in detail: peak (default), end, epoch:N, or seq:N (a call).",
    ),
    process: int | None = Option(None, metavar="N", help="Only this process (default: all)."),
    top: int = Option(10, metavar="N", help="Number of rows in each table.", min=1),
    rank: common.RanksOption = None,
    json: common.JsonOption = False,
    quiet: common.QuietOption = False,
) -> None:
    """Show the allocated memory over time, the calls that allocate it, and leaks."""
    from ttanalyze.format import open_run
    from ttanalyze.verbs.memory import memory as analyse
    from ttanalyze.verbs.memory.show import memory_text, to_object

    opened = open_run(run, common.parse_ranks(rank))
    with common.progress_bar("reading calls", quiet) as progress:
        found = analyse(opened, at, process, progress)
    if json:
        common.print_text(common.as_json(to_object(found, top)))
    else:
        common.print_text(
            memory_text(opened, found, top, common.screen_width(), text.colours_wanted(1))
        )
