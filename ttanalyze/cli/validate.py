"""The options of `ttanalyze validate`."""

from __future__ import annotations

from pathlib import Path

from typer import Argument, Option, Typer

from ttanalyze.cli import common

verbs = Typer()


@verbs.command(
    epilog="\b\nExamples:\n"
    "  ttanalyze validate delays.json\n"
    "  ttanalyze validate run1/run.json run1/manifest.json\n"
    "  ttanalyze events run1 -o events.ndjson && ttanalyze validate events.ndjson\n"
    "  ttanalyze validate kernel_trace.ndjson --kind trace --json\n"
    "  ttanalyze validate run1"
)
def validate(
    files: list[Path] = Argument(
        ..., metavar="FILE", help="Files, or runs with instruction traces."
    ),
    kind: str | None = Option(
        None,
        "--kind",
        metavar="KIND",
        help="kernel-events, trace, instruction-records, delay-config, instructions, "
        "reduce-report, manifest or run (default: from the contents).",
    ),
    json: common.JsonOption = False,
    quiet: common.QuietOption = False,
) -> int:
    """Check files against their JSON schemas, ours and those of CUTracer, and traces of runs.

    Of a run directory, it checks the records of traced instructions (traced.bin, trace.bin).

    Exit status 0: all files are valid; 1: a file has faults (one line each); 2: a file could not
    be checked.
    """
    from ttanalyze.verbs.validate import report_text, to_object
    from ttanalyze.verbs.validate import validate as check

    reports = []
    for file in files:
        with common.progress_bar(f"checking {file}", quiet) as progress:
            reports.append(check(file, kind, progress))
        if not json:
            common.print_text(report_text(reports[-1]))
    if json:
        common.print_text(common.as_json([to_object(report) for report in reports]))
    return common.SAME if all(report.good for report in reports) else common.DIFFERS
