"""The options of `ttanalyze tui`."""

from __future__ import annotations

from typer import Option, Typer

from ttanalyze.cli.common import ProcessOption, RankOption, RunArgument

verbs = Typer()


@verbs.command(
    epilog="\b\nExamples:\n"
    "  ttanalyze tui run1\n"
    "  ttanalyze tui run1 --follow\n"
    "  ttanalyze tui run1 --epoch 12 --region weights --offset 0x1000 --dtype f32"
)
def tui(
    run: RunArgument,
    process: ProcessOption = 0,
    rank: RankOption = None,
    epoch: int | None = Option(
        None, metavar="E", help="The first epoch to show (default: the last)."
    ),
    region: str | None = Option(
        None,
        "--region",
        "-r",
        metavar="R",
        help="A region (id or label; default: a region that changed).",
    ),
    offset: str = Option("0", metavar="BYTES", help="Offset in the region: 4096, 4K or 0x1000."),
    dtype: str = Option("hex", metavar="TYPE", help="hex (default), or a type: f32, bf16, i32 ..."),
    follow: bool = Option(
        False, "--follow", "-f", help="First show what a recording that still runs does."
    ),
) -> None:
    """Browse a run in the terminal: step through epochs, regions and memory.

    --follow shows launches, epochs, stored bytes, waits and memory of a recording that still runs,
    once a second. When the program ends, the browser opens. Enter opens it earlier.

    Press ? for a list of the keys. This verb needs a terminal and the extra [tui].
    """
    from ttanalyze import options
    from ttanalyze.format import open_run
    from ttanalyze.tui import tui as browse

    start = options.parse_place(offset, "--offset")
    opened = open_run(run)
    browse(opened, opened.process(process, rank).index, epoch, region, start, dtype, follow)
