"""The options of `ttanalyze tui`."""

from __future__ import annotations

from typer import Option, Typer

from ttanalyze.cli.common import (
    ProcessOption,
    RunArgument,
)

verbs = Typer()


@verbs.command(
    epilog="\b\nExamples:\n"
    "  ttanalyze tui run1\n"
    "  ttanalyze tui run1 --epoch 12 --region weights --offset 0x1000 --dtype f32"
)
def tui(
    run: RunArgument,
    process: ProcessOption = 0,
    epoch: int | None = Option(None, metavar="E", help="Where to begin (default: the last epoch)."),
    region: str | None = Option(
        None, "--region", "-r", metavar="R", help="Id or label (default: one that changed)."
    ),
    offset: str = Option("0", metavar="BYTES", help="Where in the region, such as 4096 or 0x1000."),
    dtype: str = Option(
        "hex", metavar="TYPE", help="hex (default), or a type such as f32, bf16, i32."
    ),
) -> None:
    """Look into a run in the terminal: epochs, regions and memory, step by step in time.

    Press ? there for all keys. Needs a terminal and the extra [tui].
    """
    from ttanalyze.errors import Error
    from ttanalyze.format import open_run
    from ttanalyze.tui import tui as browse

    try:
        start = int(offset, 0)
    except ValueError:
        raise Error(f"--offset {offset}: a number such as 4096 or 0x1000 is expected") from None
    browse(open_run(run), process, epoch, region, start, dtype)
