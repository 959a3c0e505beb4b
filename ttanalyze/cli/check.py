"""The options of `ttanalyze check`."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from typer import Argument, Option, Typer

from ttanalyze.cli import common
from ttanalyze.cli.record_options import recorder_options
from ttanalyze.errors import Error
from ttanalyze.output import text
from ttanalyze.output.files import private

verbs = Typer()

EXAMPLES = """\b
Examples:
  Run all checks of a program:
    ttanalyze check -- python train.py
  Run one check, on the simulator:
    ttanalyze check --sim --only determinism -- examples/build/training
  Restore what the program needs before each run, and stop runs that hang:
    ttanalyze check --before 'git checkout state.bin' --timeout 300 -- ./app
  Look for rare differences for ten minutes; a buffer with the time may differ:
    ttanalyze check --only determinism --for 10m --ignore clock -- ./app
"""


@verbs.command(context_settings={"allow_interspersed_args": False}, epilog=EXAMPLES)
@recorder_options("epoch", "timeout")
def check(
    command: list[str] = Argument(
        ..., metavar="PROGRAM", help="The program to run, and its arguments."
    ),
    only: str | None = Option(
        None,
        metavar="CHECKS",
        help="Run only these checks, such as bounds,order (default: all but guard).",
    ),
    guard: bool = Option(
        False,
        "--guard",
        help="Also run the check guard: end allocations at unmapped memory, so that reads past the "
        "end fail.",
    ),
    quick: bool = Option(
        False, "--quick", help="Make no recordings that only explain what was found."
    ),
    every: bool = Option(
        False, "--all", help="Also list pairs of calls that may not reach the same bytes."
    ),
    strict: bool = Option(
        False, "--strict", help="End with status 2 if a check did not cover the program."
    ),
    out: Path | None = Option(
        None,
        "--out",
        "-o",
        metavar="DIR",
        help="Folder of the recordings (default PROGRAM.check); an interrupted check resumes.",
    ),
    *,
    recorded: dict[str, object],
    before: str | None = Option(
        None, metavar="CMD", help="Run this shell command before each run of the program."
    ),
    jobs: int = Option(
        1,
        "--jobs",
        "-j",
        metavar="N",
        help="Run the program up to N times at once. It must not share files or ports with itself.",
    ),
    ignore: list[str] = Option(
        [],
        metavar="REGEX",
        help="Leave out findings whose kernel, memory or source line matches; may be repeated.",
    ),
    runs: int = Option(2, metavar="N", help="Compare N recordings in the determinism check."),
    duration: str = Option(
        "0",
        "--for",
        metavar="TIME",
        help="Compare recordings until one differs, or for this time, such as 90s, 10m or 2h.",
    ),
    sarif: Path | None = Option(
        None, metavar="FILE", help="Also write the findings to a file, as SARIF 2.1.0."
    ),
    sim: bool = Option(False, "--sim", help="Use the simulator instead of a GPU."),
    force: bool = Option(
        False, "--force", "-f", help="Start again instead of resuming the check in the folder."
    ),
    json: common.JsonOption = False,
    quiet: common.QuietOption = False,
) -> int:
    """Run a program under several checks, and name the culprit of each fault.

    The verb says first how often it will run the program, and after each run how long the rest
    takes. Without --epoch, it cuts an epoch at each synchronisation and after each 8192 launches.
    Without --timeout, a run ends after 50 times the slowest other one, at least after 5 minutes.
    Exit status 0: all checks are clean; 1: something was found; 2: an error, or no check covered
    the program.
    """
    from ttanalyze import options
    from ttanalyze.verbs.check import check as run
    from ttanalyze.verbs.check.check import choose
    from ttanalyze.verbs.check.sarif import sarif_text
    from ttanalyze.verbs.check.session import Settings, remove
    from ttanalyze.verbs.check.show import check_text
    from ttanalyze.verbs.record.run import default_out

    if jobs < 1:
        raise Error(f"--jobs {jobs}: expected at least 1")
    if runs < 2:
        raise Error(f"--runs {runs}: expected at least 2")
    checks, seconds = choose(only, guard), options.parse_limit("--for", duration)
    if (seconds or runs > 2) and "determinism" not in checks:
        option = "--for" if seconds else "--runs"
        raise Error(f"{option} is for the determinism check; add determinism to --only")
    common.check_output(sarif)
    settings = Settings(
        tuple(command),
        record={name: value for name, value in recorded.items() if value is not None},
        before=before,
        ignore=tuple(ignore),
        runs=runs,
        seconds=seconds,
        quick=quick,
        every=every,
        sim=sim,
        jobs=jobs,
    )
    for line in options.unknown(os.environ):  # the output of the recorder is not shown
        common.say(line)
    folder = out or default_out(command[0], ".check")
    if force:
        remove(folder)
    say = None if quiet else common.say
    with (
        common.progress_bar("recording", quiet) as progress,
        common.interruptible(signal.SIGTERM),  # the report is printed then, too
    ):
        report = run(settings, folder, checks, say=say, progress=progress)
    common.write_file(folder / "report.json", report.to_json() + "\n", private)
    if sarif is not None:
        common.write_file(sarif, sarif_text(report) + "\n")
    shown = (
        report.to_json()
        if json
        else check_text(report, text.colours_wanted(1), common.screen_width())
    )
    common.print_text(shown)
    return report.exit_status(strict)
