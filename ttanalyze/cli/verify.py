"""The options of `ttanalyze verify`."""

from __future__ import annotations

from pathlib import Path

from typer import Option, Typer

from ttanalyze.cli import common
from ttanalyze.output import text

verbs = Typer()


@verbs.command(
    epilog="\b\nExamples:\n"
    "  ttanalyze verify run1\n"
    "  ttanalyze verify run2 --manifest run1/manifest.json --continue\n"
    "  ttanalyze verify run2 --against run1 --epochs 3-8 --regions 0,2\n"
    "  ttanalyze verify run1 --tamper 3,0,4096"
)
def verify(
    run: common.RunArgument,
    manifest: Path | None = Option(
        None,
        metavar="FILE",
        help="The manifest to compare with (default: manifest.json of --against, or of RUN).",
    ),
    against: Path | None = Option(
        None, metavar="RUN", help="The run of the manifest: shows the bytes that differ."
    ),
    epochs: str | None = Option(None, metavar="A-B", help="Only these epochs: 3, 2-5, 2- or -5."),
    regions: str | None = Option(None, metavar="LIST", help="Only these regions: 0,4-6 ..."),
    keep_going: bool = Option(False, "--continue", help="Continue after the first difference."),
    tamper: str | None = Option(
        None,
        metavar="EPOCH,REGION,OFFSET",
        help="Invert this byte in memory, not in the run, to prove that the verb detects it.",
    ),
    out: common.ReportOption = None,
    json: common.JsonOption = False,
    quiet: common.QuietOption = False,
) -> int:
    """Recompute the region digests of a run and compare them with a manifest.

    Exit status 0: the same; 1: different; 2: nothing was compared, or a failed recording lacks a
    part.
    """
    from ttanalyze import options
    from ttanalyze.format import open_run
    from ttanalyze.verbs.verify import verify as compare
    from ttanalyze.verbs.verify.show import verify_text

    wanted = None if epochs is None else options.parse_range(epochs, "--epochs", 0xFFFFFFFE)
    some = None if regions is None else options.parse_numbers(regions, "--regions")
    byte = None if tamper is None else options.parse_tamper(tamper)
    common.check_output(out)
    opened = open_run(run)
    other = None if against is None else open_run(against)
    with common.progress_bar("verifying", quiet) as progress:
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
        common.write_file(out, report.to_json() + "\n")
    common.print_text(report.to_json() if json else verify_text(report, text.colours_wanted(1)))
    if report.unknown is not None:
        return common.ERROR
    return common.SAME if report.same else common.DIFFERS
