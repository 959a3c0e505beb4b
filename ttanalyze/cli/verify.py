"""The options of `ttanalyze verify`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ttanalyze.cli.common import (
    DIFFERS,
    ERROR,
    SAME,
    JsonOption,
    QuietOption,
    RunArgument,
    check_output,
    print_text,
    progress_bar,
    write_file,
)
from ttanalyze.output import text

verbs = typer.Typer()


@verbs.command(
    epilog="\b\nExamples:\n"
    "  ttanalyze verify run1\n"
    "  ttanalyze verify run2 --manifest run1/manifest.json --continue\n"
    "  ttanalyze verify run2 --against run1 --epochs 3-8 --regions 0,2\n"
    "  ttanalyze verify run1 --tamper 3,0,4096"
)
def verify(
    run: RunArgument,
    manifest: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="What to compare with (default: manifest.json of --against, or of RUN).",
        ),
    ] = None,
    against: Annotated[
        Path | None,
        typer.Option(
            metavar="RUN", help="The run that the manifest is of: shows the bytes that differ."
        ),
    ] = None,
    epochs: Annotated[
        str | None, typer.Option(metavar="A-B", help="Only these epochs: 3, 2-5, 2- or -5.")
    ] = None,
    regions: Annotated[
        str | None, typer.Option(metavar="LIST", help="Only these regions, such as 0,4-6.")
    ] = None,
    keep_going: Annotated[
        bool, typer.Option("--continue", help="Go on after the first difference.")
    ] = False,
    tamper: Annotated[
        str | None,
        typer.Option(
            metavar="EPOCH,REGION,OFFSET",
            help="See this byte inverted (nothing is written), to prove that it would be noticed.",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write the report as JSON.")
    ] = None,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> int:
    """Recompute a run's region digests and compare them with a manifest.

    Exit status 0: the same; 1: different, and where; 2: nothing was compared, or the recording
    failed, so that a part of it is missing.
    """
    from ttanalyze import options
    from ttanalyze.format import open_run
    from ttanalyze.verbs.verify import verify as compare
    from ttanalyze.verbs.verify.show import verify_text

    wanted = None if epochs is None else options.parse_range(epochs, "--epochs", 0xFFFFFFFE)
    some = None if regions is None else options.parse_regions(regions)
    byte = None if tamper is None else options.parse_tamper(tamper)
    check_output(out)
    opened = open_run(run)
    other = None if against is None else open_run(against)
    with progress_bar("verifying", quiet) as progress:
        report = compare(
            opened,
            manifest,
            epochs=wanted,
            regions=some,
            keep_going=keep_going,
            against=other,
            tamper=byte,
            progress=progress,
        )
    if out is not None:
        write_file(out, report.to_json() + "\n")
    print_text(report.to_json() if json else verify_text(report, text.colours_wanted(1)))
    if report.unknown is not None:
        return ERROR
    return SAME if report.same else DIFFERS
