"""The options of `ttanalyze demo`."""

from __future__ import annotations

from pathlib import Path

from typer import Option, Typer

from ttanalyze.cli import common

verbs = Typer()


@verbs.command(
    epilog="\b\nExamples:\n"
    "  ttanalyze demo\n"
    "  ttanalyze demo --sim -o /tmp/tour\n"
    "  ttanalyze demo --json -q"
)
def demo(
    out: Path = Option(
        Path("ttanalyze-demo"), "--out", "-o", metavar="DIR", help="Folder of the runs."
    ),
    sim: bool = Option(False, "--sim", help="Use the simulator even if there is a GPU."),
    json: common.JsonOption = False,
    quiet: bool = Option(False, "--quiet", "-q", help="Do not show the commands and their output."),
) -> None:
    """Take a tour in a few seconds: record example programs, compare them, find a NaN.

    The tour needs no GPU, no compiler and no other program. Without a GPU it runs on the simulator.
    On a GPU it also records a training in PyTorch if PyTorch is installed. It shows each command
    and its output.
    """
    from ttanalyze.verbs.demo import demo as run

    tour = run(out, sim, (lambda _: None) if quiet or json else common.print_text)
    if json:
        common.print_text(tour.to_json())
    elif not quiet:
        common.print_text(
            f"The tour took {tour.seconds:.1f} s. Its runs are in {out}. Next:\n"
            f"  ttanalyze info {out / 'first'}\n"
            f"  ttanalyze report {out / 'first'} -o report.html\n"
            "  ttanalyze record -- YOUR_PROGRAM"
        )
