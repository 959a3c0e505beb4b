"""The options of `ttanalyze reduce`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Option, Typer

from ttanalyze.cli import common
from ttanalyze.output import text

verbs = Typer()

REDUCE_EXAMPLES = """\b
Examples:
  A test that runs the program under the recorder, which takes delays from TT_DELAY_LOAD:
    ttanalyze reduce --config run1/p0/delays.json --test ./fails.sh -o report.json
  A command with a place for the configuration, each candidate tried up to five times:
    ttanalyze reduce --config delays.json --confidence 5 \\
      --test 'ttanalyze record -q --force -o /tmp/t --delay-load {config} -- ./app'
  What is left, as a configuration for `record --delay-load`:
    ttanalyze reduce --config delays.json --test ./fails.sh --minimal fewest.json
"""


ConfigOption = Annotated[
    Path, Option("--config", "-c", metavar="FILE", help="Delays with which the test fails.")
]
TestOption = Annotated[
    str,
    Option(
        "--test",
        "-t",
        metavar="COMMAND",
        help="Ends with another status than 0 where it fails. {config} in it is the file with "
        "the delays to try, which TT_DELAY_LOAD names too.",
    ),
]


@verbs.command(epilog=REDUCE_EXAMPLES)
def reduce(
    config: ConfigOption,
    test: TestOption,
    strategy: str = Option(
        "bisect",
        metavar="HOW",
        help="bisect (default): halves first, fewer runs; linear: delay by delay.",
    ),
    confidence: int = Option(
        1,
        metavar="N",
        help="Try each candidate up to N times: it fails if more than half do. Tells a test "
        "that fails sometimes only.",
    ),
    timeout: float = Option(
        0, metavar="SECONDS", help="A run that takes longer has failed.", min=0
    ),
    limit: int = Option(0, metavar="RUNS", help="Stop after so many runs.", min=0),
    run: Path | None = Option(
        None,
        "--run",
        metavar="RUN",
        help="Whose kernels these are, for instructions and source lines (default: the run "
        "that the file is in).",
    ),
    minimal: Path | None = Option(
        None, "--minimal", "-m", metavar="FILE", help="Write the delays that are left."
    ),
    out: common.ReportOption = None,
    force: bool = Option(False, "--force", help="Do not go on with a search that was interrupted."),
    json: common.JsonOption = False,
    quiet: common.QuietOption = False,
) -> None:
    """Find the fewest delays with which a test still fails, and the instructions that they are at.

    Answers are kept in REPORT.state (next to the report, or FILE.state of the delays), so that a
    search that was interrupted goes on where it was.
    """
    from ttanalyze.verbs.reduce import Settings, reduce_test, reduce_text

    common.check_output(out)
    common.check_output(minimal)
    beside = config if out is None or (out.exists() and not out.is_file()) else out
    state = beside.parent / f"{beside.name}.state"
    settings = Settings(config, test, strategy, confidence, limit, timeout, run)
    with common.interruptible(), common.progress_bar("reducing", quiet) as progress:
        report = reduce_test(settings, state, progress, force)
    made = report.to_object()
    if minimal is not None:
        common.write_file(minimal, report.found.minimal.to_json())
    if out is not None:
        common.write_file(out, common.as_json(made) + "\n")
    common.print_text(common.as_json(made) if json else reduce_text(report, text.colours_wanted(1)))
