"""The options of `ttanalyze reduce`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ttanalyze.cli.common import (
    JsonOption,
    QuietOption,
    as_json,
    check_output,
    interruptible,
    print_text,
    progress_bar,
    write_file,
)
from ttanalyze.output import text

verbs = typer.Typer()

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


@verbs.command(epilog=REDUCE_EXAMPLES)
def reduce(
    config: Annotated[
        Path,
        typer.Option("--config", "-c", metavar="FILE", help="Delays with which the test fails."),
    ],
    test: Annotated[
        str,
        typer.Option(
            "--test",
            "-t",
            metavar="COMMAND",
            help="Ends with another status than 0 where it fails. {config} in it is the file with "
            "the delays to try, which TT_DELAY_LOAD names too.",
        ),
    ],
    strategy: Annotated[
        str,
        typer.Option(
            "--strategy",
            metavar="HOW",
            help="bisect (default): halves first, fewer runs; linear: delay by delay.",
        ),
    ] = "bisect",
    confidence: Annotated[
        int,
        typer.Option(
            metavar="N",
            help="Try each candidate up to N times: it fails if more than half do. Tells a test "
            "that fails sometimes only.",
        ),
    ] = 1,
    timeout: Annotated[
        float,
        typer.Option(metavar="SECONDS", help="A run that takes longer has failed.", min=0),
    ] = 0,
    limit: Annotated[int, typer.Option(metavar="RUNS", help="Stop after so many runs.", min=0)] = 0,
    run: Annotated[
        Path | None,
        typer.Option(
            "--run",
            metavar="RUN",
            help="Whose kernels these are, for instructions and source lines (default: the run "
            "that the file is in).",
        ),
    ] = None,
    minimal: Annotated[
        Path | None,
        typer.Option("--minimal", "-m", metavar="FILE", help="Write the delays that are left."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write the report as JSON.")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Do not go on with a search that was interrupted.")
    ] = False,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Find the fewest delays with which a test still fails, and the instructions that they are at.

    Answers are kept in REPORT.state (next to the report, or FILE.state of the delays), so that a
    search that was interrupted goes on where it was.
    """
    from ttanalyze.verbs.reduce import Settings, reduce_test, reduce_text

    check_output(out)
    check_output(minimal)
    beside = config if out is None or (out.exists() and not out.is_file()) else out
    state = beside.parent / f"{beside.name}.state"
    settings = Settings(config, test, strategy, confidence, limit, timeout, run)
    with interruptible(), progress_bar("reducing", quiet) as progress:
        report = reduce_test(settings, state, progress, force)
    made = report.to_object()
    if minimal is not None:
        write_file(minimal, report.found.minimal.to_json())
    if out is not None:
        write_file(out, as_json(made) + "\n")
    print_text(as_json(made) if json else reduce_text(report, text.colours_wanted(1)))
