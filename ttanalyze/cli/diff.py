"""The options of `ttanalyze diff`."""

from __future__ import annotations

from pathlib import Path

from typer import Argument, Option, Typer

from ttanalyze.cli import common
from ttanalyze.output import text

verbs = Typer()

DIFF_EXAMPLES = """\b
Examples:
  Find the first divergence of two runs and the calls that may have caused it:
    ttanalyze diff run1 run2
  Show the values that differ, with a tolerance:
    ttanalyze diff run1 run2 --dtype f32 --tolerance 1e-6,1e-5
  Give types by region of RUN_A (id or label), and f32 for all others:
    ttanalyze diff run1 run2 --dtype f32,3=bf16,tokens=i64
  Print every divergence as JSON:
    ttanalyze diff run1 run2 --all --json
  Compare a run with a manifest:
    ttanalyze diff golden.json run2
"""


@verbs.command(epilog=DIFF_EXAMPLES)
def diff(
    a: Path = Argument(..., metavar="RUN_A", help="A run directory, or a manifest file."),
    b: Path = Argument(..., metavar="RUN_B", help="The run or manifest to compare with it."),
    every: bool = Option(False, "--all", help="Describe every divergence, not only the first."),
    dtype: str | None = Option(
        None,
        metavar="TYPES",
        help="Types of the memory, separated by commas: f32, bf16 ...; type for one region: "
        "REGION=TYPE.",
    ),
    tolerance: str | None = Option(
        None,
        metavar="ABS,REL,ULP",
        help="Largest difference that counts as equal, by any of the three; needs --dtype.",
    ),
    out: common.ReportOption = None,
    rank: common.RanksOption = None,
    max_memory: common.MaxMemoryOption = None,
    cluster: common.ClusterOption = None,
    json: common.JsonOption = False,
    quiet: common.QuietOption = False,
) -> int:
    """Find where two runs first diverge, and which calls may have caused it.

    Aligns the launches of both runs first. So the runs may differ slightly in their work or in
    their triggers. Exit status 0: the same; 1: different; 2: nothing was compared, or the only
    difference is what a failed recording lacks.
    """
    common.limit_memory(max_memory)
    from ttanalyze.core.values import Tolerance
    from ttanalyze.format import open_run
    from ttanalyze.verbs.diff import diff as compare
    from ttanalyze.verbs.diff import parse_types
    from ttanalyze.verbs.diff.show import diff_text

    types = None if dtype is None else parse_types(dtype)
    allowed = None if tolerance is None else Tolerance.parse(tolerance)
    common.check_output(out)
    ranks = common.parse_ranks(rank)
    with common.progress_bar("comparing", quiet) as progress:
        sides = [of if ranks is None or of.is_file() else open_run(of, ranks) for of in (a, b)]
        report = compare(
            *sides,
            every=every,
            types=types,
            tolerance=allowed,
            progress=progress,
            cluster=cluster,
        )
    if out is not None:
        common.write_file(out, report.to_json() + "\n")
    width = common.screen_width()
    shown = report.to_json() if json else diff_text(report, text.colours_wanted(1), width)
    common.print_text(shown)
    if report.unknown is not None:
        return common.ERROR
    return common.SAME if report.same else common.DIFFERS
