"""The options of `ttanalyze diff`."""

from __future__ import annotations

from pathlib import Path

from typer import Argument, Option, Typer

from ttanalyze.cli import common
from ttanalyze.output import text

verbs = Typer()

DIFF_EXAMPLES = """\b
Examples:
  Where do two runs part, and what could have made them:
    ttanalyze diff run1 run2
  The same, with the values that differ, and what does not count as different:
    ttanalyze diff run1 run2 --dtype f32 --tolerance 1e-6,1e-5
  With types by region (of A: its id or its label), f32 for all others:
    ttanalyze diff run1 run2 --dtype f32,3=bf16,tokens=i64
  Everything that differs, for a program to read:
    ttanalyze diff run1 run2 --all --json
  Against what was kept of a run:
    ttanalyze diff golden.json run2
"""


@verbs.command(epilog=DIFF_EXAMPLES)
def diff(
    a: Path = Argument(..., metavar="RUN_A", help="A run directory, or a manifest file."),
    b: Path = Argument(..., metavar="RUN_B", help="What to compare it with."),
    every: bool = Option(False, "--all", help="Describe every divergence, not only the first."),
    dtype: str | None = Option(
        None,
        metavar="TYPES",
        help="What memory holds, such as f32 or bf16; type for one region: REGION=TYPE; "
        "separated by commas.",
    ),
    tolerance: str | None = Option(
        None,
        metavar="ABS,REL,ULP",
        help="What does not count as different, by any of the three; needs --dtype.",
    ),
    out: common.ReportOption = None,
    json: common.JsonOption = False,
    quiet: common.QuietOption = False,
) -> int:
    """Say where two runs first part, and which calls could have made them.

    Launches are aligned, so that runs compare which do not do quite the same, or were recorded
    at other points. Exit status 0: the same; 1: different; 2: nothing was compared, or nothing
    differs but what a recording that failed lacks.
    """
    from ttanalyze.core.values import Tolerance
    from ttanalyze.verbs.diff import diff as compare
    from ttanalyze.verbs.diff import parse_types
    from ttanalyze.verbs.diff.show import diff_text

    types = None if dtype is None else parse_types(dtype)
    allowed = None if tolerance is None else Tolerance.parse(tolerance)
    common.check_output(out)
    with common.progress_bar("comparing", quiet) as progress:
        report = compare(a, b, every=every, types=types, tolerance=allowed, progress=progress)
    if out is not None:
        common.write_file(out, report.to_json() + "\n")
    width = common.screen_width()
    shown = report.to_json() if json else diff_text(report, text.colours_wanted(1), width)
    common.print_text(shown)
    if report.unknown is not None:
        return common.ERROR
    return common.SAME if report.same else common.DIFFERS
