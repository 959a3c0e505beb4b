"""The options of `ttanalyze race`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from ttanalyze.cli.common import (
    DIFFERS,
    SAME,
    JsonOption,
    QuietOption,
    interruptible,
    print_text,
    progress_bar,
    write_file,
)
from ttanalyze.output import text
from ttanalyze.output.files import private

verbs = typer.Typer()

EXAMPLES = """\b
Examples:
  Is anything missing that orders what this program does?
    ttanalyze race -- ./app
  The same without a GPU, for streams and events only:
    ttanalyze race --sim -- examples/build/handoff
  Only within some kernels, in another order of magnitude, until three seeds differ:
    ttanalyze race --launch-delay 0 --delay 100000 --delay-kernel pipeline --stop 3 -- ./app
  Sums of floats in any order are no race:
    ttanalyze race --dtype f32 --tolerance 1e-5,1e-4 -- python train.py
"""


@verbs.command(context_settings={"allow_interspersed_args": False}, epilog=EXAMPLES)
def race(
    command: Annotated[
        list[str], typer.Argument(metavar="PROGRAM", help="What to run, and its arguments.")
    ],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="DIR", help="Folder of runs (default PROGRAM.race)."),
    ] = None,
    runs: Annotated[int, typer.Option(metavar="N", help="How many times to record it.")] = 20,
    seed: Annotated[int, typer.Option(metavar="N", help="Of the first recording.")] = 1,
    stop: Annotated[
        int, typer.Option(metavar="N", help="Stop when so many differ; 0: do all runs.")
    ] = 1,
    delay: Annotated[
        str | None,
        typer.Option(
            metavar="NS",
            help="Delays in kernels, ten times as long for every other seed "
            "(default 10000, 0: none).",
        ),
    ] = None,
    launch_delay: Annotated[
        str | None,
        typer.Option(metavar="NS", help="Delays between calls (default 500000, 0: none)."),
    ] = None,
    launch_delay_mode: Annotated[
        str | None, typer.Option(metavar="both|stream|host", help="As of `record`.")
    ] = None,
    delay_min: Annotated[str | None, typer.Option(metavar="NS", help="As of `record`.")] = None,
    delay_mode: Annotated[
        str | None, typer.Option(metavar="random|fixed|cluster", help="As of `record`.")
    ] = None,
    delay_patterns: Annotated[
        str | None, typer.Option(metavar="NAMES", help="As of `record`.")
    ] = None,
    delay_kernel: Annotated[
        str | None, typer.Option(metavar="REGEX", help="As of `record`.")
    ] = None,
    epoch: Annotated[
        list[str] | None, typer.Option(metavar="WHEN", help="When to capture, as of `record`.")
    ] = None,
    timeout: Annotated[
        str | None,
        typer.Option(metavar="SECONDS", help="End a run that takes longer: that differs, too."),
    ] = None,
    deterministic: Annotated[
        bool,
        typer.Option(
            "--deterministic/--no-deterministic",
            help="Same addresses, memory that is zero at first (default: yes).",
        ),
    ] = True,
    dtype: Annotated[
        str | None, typer.Option(metavar="TYPES", help="What memory holds, as of `diff`.")
    ] = None,
    tolerance: Annotated[
        str | None,
        typer.Option(metavar="ABS,REL,ULP", help="What does not count as different; --dtype."),
    ] = None,
    reduce: Annotated[
        bool,
        typer.Option("--reduce/--no-reduce", help="Look for the fewest delays that do it."),
    ] = True,
    confidence: Annotated[
        int, typer.Option(metavar="N", help="Try each set of delays so often when reducing.")
    ] = 1,
    tests: Annotated[
        int, typer.Option(metavar="N", help="Reduce with so many recordings at most.")
    ] = 200,
    sim: Annotated[
        bool, typer.Option("--sim", help="Run on the simulator: no delays within kernels.")
    ] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Keep runs that did the same, too.")] = False,
    force: Annotated[
        bool, typer.Option("--force", "-f", help="Begin anew in a folder that has a search.")
    ] = False,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> int:
    """Look for races: run a program again and again with other delays, and compare its memory.

    Records it twice without delays, then with delays in kernels and between calls, at random,
    until a run leaves other memory, prints something else or ends otherwise; says where memory
    parts, and which calls reach it that nothing orders. A search that was interrupted goes on.
    Exit status 0: nothing found; 1: found; 2: could not be run.
    """
    from ttanalyze import options
    from ttanalyze.core.values import Tolerance
    from ttanalyze.verbs.diff import parse_types
    from ttanalyze.verbs.race import Race, Settings
    from ttanalyze.verbs.race.search import remove
    from ttanalyze.verbs.race.show import race_text
    from ttanalyze.verbs.record.run import say

    given: dict[str, object] = {
        "epoch": ";".join(epoch) if epoch else None,
        "timeout": timeout,
        "delay": delay or ("0" if sim else "10000"),
        "delay_min": delay_min,
        "delay_mode": delay_mode,
        "delay_patterns": delay_patterns,
        "delay_kernel": delay_kernel,
        "launch_delay": launch_delay or "500000",
        "launch_delay_mode": launch_delay_mode,
        "deterministic": deterministic,
        "params": True,
    }
    variables = options.variables(given, os.environ)
    for line in options.unknown(os.environ):  # what the recorder says is not shown
        say(line)
    settings = Settings(
        command=tuple(command),
        runs=runs,
        first=seed,
        stop=stop,
        delay=int(variables.pop("TT_DELAY")),
        launch_delay=int(variables.pop("TT_LAUNCH_DELAY")),
        record=variables,
        sim=sim,
        keep=keep,
        reduce=reduce,
        confidence=confidence,
        tests=tests,
    )
    types = None if dtype is None else parse_types(dtype)
    allowed = None if tolerance is None else Tolerance.parse(tolerance)
    folder = out or Path(f"{os.path.basename(command[0])}.race")
    if force:
        remove(folder)
    search = Race(settings, folder, types=types, tolerance=allowed)
    with progress_bar("recording", quiet) as progress, interruptible():
        report = search.run(progress)
    write_file(folder / "report.json", report.to_json() + "\n", private)
    print_text(report.to_json() if json else race_text(report, text.colours_wanted(1)))
    return DIFFERS if report.found else SAME
