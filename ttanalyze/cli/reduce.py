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
  Use a test that records the program with the delays of TT_DELAY_LOAD:
    ttanalyze reduce --config run1/p0/delays.json --test ./fails.sh -o report.json
  Use a script that exits with 0 if it found the race:
    ttanalyze reduce -c delays.json -t ./test_race.sh --race-exit 0 --confidence-runs 3
  Insert the name of the delay file into the command, and try each candidate five times:
    ttanalyze reduce --config delays.json --confidence 5 \\
      --test 'ttanalyze record -q --force -o /tmp/t --delay-load {config} -- ./app'
  Write the remaining delays as a file for `record --delay-load`:
    ttanalyze reduce --config delays.json --test ./fails.sh --minimal fewest.json
"""


ConfigOption = Annotated[
    Path, Option("--config", "-c", metavar="FILE", help="A delay file with which the test fails.")
]
TestOption = Annotated[
    str,
    Option(
        "--test",
        "-t",
        metavar="COMMAND",
        help="The test: it fails if its exit status is not 0 (see --race-exit). {config} and the "
        "variable TT_DELAY_LOAD name the file with the delays to try.",
    ),
]
RaceExitOption = Annotated[
    str,
    Option(
        metavar="0|1",
        help="The exit status of a test that fails: 1 (default): any but 0, as of tests; 0: only "
        "0, as of llvm-reduce and cutracer reduce.",
    ),
]


@verbs.command(epilog=REDUCE_EXAMPLES)
def reduce(
    config: ConfigOption,
    test: TestOption,
    strategy: str = Option(
        "bisect",
        "--strategy",
        "-s",
        metavar="HOW",
        help="bisect (default): try halves first; linear: try one delay at a time.",
    ),
    race_exit: RaceExitOption = "1",
    confidence: int = Option(
        1,
        "--confidence",
        "--confidence-runs",
        metavar="N",
        help="Try each candidate up to N times; it fails if more than half of them fail. Use "
        "this for a test that fails only sometimes.",
    ),
    timeout: str = Option(
        "0", metavar="TIME", help="A test that takes longer has failed, such as 90s (0: no limit)."
    ),
    limit: int = Option(0, metavar="RUNS", help="Stop after this many tests (0: no limit).", min=0),
    run: Path | None = Option(
        None,
        "--run",
        metavar="RUN",
        help="The run with the code of the kernels, for instructions and source lines (default: "
        "the run that holds the delay file).",
    ),
    minimal: Path | None = Option(
        None,
        *("--minimal", "--minimal-config", "-m"),
        metavar="FILE",
        help="Write the remaining delays.",
    ),
    out: Path | None = Option(
        None, "--out", "-o", "--output", metavar="FILE", help="Write the report as JSON."
    ),
    force: bool = Option(
        False, "--force", help="Start again instead of resuming an interrupted search."
    ),
    json: common.JsonOption = False,
    quiet: common.QuietOption = False,
) -> None:
    """Find the fewest delays with which a test still fails, and the delayed instructions.

    The verb keeps the results in REPORT.state beside the report, or in FILE.state beside the delay
    file. An interrupted search resumes from there.
    """
    from ttanalyze import options
    from ttanalyze.errors import Error
    from ttanalyze.verbs.reduce import Settings, reduce_test
    from ttanalyze.verbs.reduce.report import reduce_text

    if race_exit not in ("0", "1"):
        raise Error(f"--race-exit {race_exit}: expected 0 or 1")
    common.check_output(out)
    common.check_output(minimal)
    beside = config if out is None or (out.exists() and not out.is_file()) else out
    state = beside.parent / f"{beside.name}.state"
    longest = options.parse_limit("--timeout", timeout)
    settings = Settings(config, test, strategy, confidence, limit, longest, run, race_exit == "0")
    with common.interruptible(), common.progress_bar("reducing", quiet) as progress:
        report = reduce_test(settings, state, progress, force)
    made = report.to_object()
    if minimal is not None:
        common.write_file(minimal, report.found.minimal.to_json())
    if out is not None:
        common.write_file(out, common.as_json(made) + "\n")
    common.print_text(common.as_json(made) if json else reduce_text(report, text.colours_wanted(1)))
