"""Verbs that say what a run holds, and whether it is what it should be."""

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
    as_json,
    check_output,
    print_text,
    progress_bar,
    write_file,
)
from ttanalyze.output import text

verbs = typer.Typer()


@verbs.command(epilog="\b\nExample:\n  ttanalyze info run1")
def info(run: RunArgument, json: JsonOption = False) -> None:
    """Say what was recorded, on one screen."""
    from ttanalyze.format import open_run
    from ttanalyze.verbs.info import info as summarise
    from ttanalyze.verbs.info import info_text

    summary = summarise(open_run(run))
    print_text(as_json(summary) if json else info_text(summary, text.colours_wanted(1)))


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


@verbs.command(
    epilog="\b\nExamples:\n"
    "  ttanalyze manifest run1 -o golden.json\n"
    "  ttanalyze verify run2 --manifest golden.json"
)
def manifest(
    run: RunArgument,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write it to a file.")
    ] = None,
    quiet: QuietOption = False,
) -> None:
    """Print the manifest of a run from its recorded digests."""
    from ttanalyze.format import manifest as manifests
    from ttanalyze.format import open_run

    check_output(out)
    opened = open_run(run)
    with progress_bar("reading digests", quiet) as progress:
        made = manifests.text(opened.manifest(progress))
    if out is None:
        print_text(made, end="")
    else:
        write_file(out, made)


@verbs.command(
    epilog="\b\nExamples:\n"
    "  ttanalyze validate delays.json\n"
    "  ttanalyze validate run1/run.json run1/manifest.json\n"
    "  ttanalyze events run1 -o events.ndjson && ttanalyze validate events.ndjson\n"
    "  ttanalyze validate kernel_trace.ndjson --kind trace --json"
)
def validate(
    files: Annotated[list[Path], typer.Argument(metavar="FILE…", help="Files of records.")],
    kind: Annotated[
        str | None,
        typer.Option(
            "--kind",
            metavar="KIND",
            help="kernel-events, trace, instruction-records, delay-config, instructions, "
            "reduce-report, manifest or run (default: what the contents look like).",
        ),
    ] = None,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> int:
    """Check files against the JSON schemas of their records, ours and those of CUTracer.

    Exit status 0: all are good; 1: faults, a line for each; 2: a file could not be checked.
    """
    from ttanalyze.schemas import report_text, to_object
    from ttanalyze.schemas import validate as check

    reports = []
    for file in files:
        with progress_bar(f"checking {file}", quiet) as progress:
            reports.append(check(file, kind, progress))
        if not json:
            print_text(report_text(reports[-1]))
    if json:
        print_text(as_json([to_object(report) for report in reports]))
    return SAME if all(report.good for report in reports) else DIFFERS
