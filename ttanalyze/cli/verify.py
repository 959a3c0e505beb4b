"""The options of `ttanalyze verify`."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from typer import Option, Typer

from ttanalyze.cli import common
from ttanalyze.output import text

if TYPE_CHECKING:
    from ttanalyze.format import Run
    from ttanalyze.verbs.verify.report import VerifyReport

verbs = Typer()
TRACE = Path("verify-trace.json")


@verbs.command(
    epilog="\b\nExamples:\n"
    "  ttanalyze verify run1\n"
    "  ttanalyze verify run2 --manifest run1/manifest.json --continue\n"
    "  ttanalyze verify run2 --against run1 --epochs 3-8 --regions 0,2\n"
    "  ttanalyze verify run1 --tamper 3,0,4096\n"
    "  ttanalyze verify run2 --manifest run1/manifest.json --localize --trace-out trace.json"
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
    epochs: str | None = Option(
        None,
        *("--epochs", "--checkpoints"),
        metavar="A-B",
        help="Only these epochs: 3, 2-5, 2- or -5.",
    ),
    regions: str | None = Option(
        None, metavar="LIST", help="Only these regions, by id, label or tensor: 0,4-6,weights ..."
    ),
    localize: bool = Option(
        False, "--localize", help="Use the run that contains FILE as --against."
    ),
    keep_going: bool = Option(False, "--continue", help="Continue after the first difference."),
    tamper: str | None = Option(
        None,
        metavar="EPOCH,REGION,OFFSET",
        help="Invert this byte in memory, not in the run, to prove that the verb detects it.",
    ),
    annotate: bool = Option(
        False,
        "--trace-annotate",
        help=f"Write the run as a trace in which the differences are marked ({TRACE}).",
    ),
    trace_out: Path | None = Option(
        None, metavar="FILE", help="Write this trace to FILE (implies --trace-annotate)."
    ),
    out: common.ReportOption = None,
    rank: common.RanksOption = None,
    cluster: common.ClusterOption = None,
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
    some = None if regions is None else options.parse_regions(regions, "--regions")
    byte = None if tamper is None else options.parse_tamper(tamper)
    traced = trace_out or (TRACE if annotate else None)
    common.check_output(out)
    common.check_output(traced)
    ranks = common.parse_ranks(rank)
    opened = open_run(run, ranks)
    if localize and manifest is not None and against is None:
        against = _run_of(manifest)
    other = None if against is None else open_run(against, ranks)
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
            cluster=cluster,
        )
    if out is not None:
        common.write_file(out, report.to_json() + "\n")
    if traced is not None:
        _write_trace(opened, report, traced, quiet)
    common.print_text(report.to_json() if json else verify_text(report, text.colours_wanted(1)))
    if report.unknown is not None:
        return common.ERROR
    return common.SAME if report.same else common.DIFFERS


def _run_of(manifest: Path) -> Path:
    """Returns the run that contains a manifest. Raises Error if it is in none."""
    from ttanalyze.errors import Error

    for folder in manifest.resolve().parents[:2]:
        if (folder / "run.json").is_file():
            return folder
    raise Error(f"--localize: {manifest} is in no run directory; name the run with --against RUN")


def _write_trace(run: Run, report: VerifyReport, path: Path, quiet: bool) -> None:
    from ttanalyze.verbs.trace import trace

    with (
        tempfile.NamedTemporaryFile(suffix=".json") as file,
        common.progress_bar("writing", quiet) as progress,
        common.output_file(path) as target,
    ):
        file.write(report.to_json().encode())
        file.flush()
        trace(run, target, "chrome", annotate=Path(file.name), progress=progress)
