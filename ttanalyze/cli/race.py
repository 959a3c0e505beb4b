"""The options of `ttanalyze race`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typer import Argument, Context, Option, Typer

from ttanalyze.cli import common
from ttanalyze.output import text
from ttanalyze.output.files import private

if TYPE_CHECKING:
    from ttanalyze.verbs.race import Race

verbs = Typer()

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
    context: Context,
    command: list[str] = Argument(..., metavar="PROGRAM", help="What to run, and its arguments."),
    out: Path | None = Option(
        None, "--out", "-o", metavar="DIR", help="Folder of runs (default PROGRAM.race)."
    ),
    runs: int = Option(20, metavar="N", help="How many times to record it."),
    seed: int = Option(1, metavar="N", help="Of the first recording."),
    stop: int = Option(1, metavar="N", help="Stop when so many differ; 0: do all runs."),
    delay: str | None = Option(
        None,
        metavar="NS",
        help="Delays in kernels, ten times as long for every other seed (default 10000, 0: none).",
    ),
    launch_delay: str | None = Option(
        None, metavar="NS", help="Delays between calls (default 500000, 0: none)."
    ),
    launch_delay_mode: str | None = Option(
        None, metavar="both|stream|host", help="As of `record`."
    ),
    delay_min: str | None = Option(None, metavar="NS", help="As of `record`."),
    delay_mode: str | None = Option(None, metavar="random|fixed|cluster", help="As of `record`."),
    delay_patterns: str | None = Option(None, metavar="NAMES", help="As of `record`."),
    delay_kernel: str | None = Option(None, metavar="REGEX", help="As of `record`."),
    epoch: list[str] | None = Option(None, metavar="WHEN", help="When to capture, as of `record`."),
    timeout: str | None = Option(
        None, metavar="SECONDS", help="End a run that takes longer: that differs, too."
    ),
    deterministic: bool = Option(
        True, help="Same addresses, memory that is zero at first (default: yes)."
    ),
    dtype: str | None = Option(None, metavar="TYPES", help="What memory holds, as of `diff`."),
    tolerance: str | None = Option(
        None, metavar="ABS,REL,ULP", help="What does not count as different; --dtype."
    ),
    reduce: bool = Option(True, help="Look for the fewest delays that do it."),
    confidence: int = Option(1, metavar="N", help="Try each set of delays so often when reducing."),
    tests: int = Option(200, metavar="N", help="Reduce with so many recordings at most."),
    sim: bool = Option(False, "--sim", help="Run on the simulator: no delays within kernels."),
    keep: bool = Option(False, "--keep", help="Keep runs that did the same, too."),
    force: bool = Option(False, "--force", "-f", help="Begin anew in a folder that has a search."),
    json: common.JsonOption = False,
    quiet: common.QuietOption = False,
) -> int:
    """Look for races: run a program again and again with other delays, and compare its memory.

    Records it twice without delays, then with delays in kernels and between calls, at random,
    until a run leaves other memory, prints something else or ends otherwise; says where memory
    parts, and which calls reach it that nothing orders. A search that was interrupted goes on.
    Exit status 0: nothing found; 1: found; 2: could not be run.
    """
    from ttanalyze.verbs.race.show import race_text

    folder = out or Path(f"{os.path.basename(command[0])}.race")
    search = _search(context.params, folder)
    with common.progress_bar("recording", quiet) as progress, common.interruptible():
        report = search.run(progress)
    common.write_file(folder / "report.json", report.to_json() + "\n", private)
    common.print_text(report.to_json() if json else race_text(report, text.colours_wanted(1)))
    return common.DIFFERS if report.found else common.SAME


def _search(given: dict[str, Any], folder: Path) -> Race:
    """The search that options ask for, in the folder of runs."""
    from ttanalyze import options
    from ttanalyze.core.values import Tolerance
    from ttanalyze.verbs.diff import parse_types
    from ttanalyze.verbs.race import Race, Settings
    from ttanalyze.verbs.race.search import remove
    from ttanalyze.verbs.record.run import say

    recorded = {n: v for n, v in given.items() if f"TT_{n.upper()}" in options.CHECKS}
    recorded["epoch"] = ";".join(given["epoch"] or ()) or None
    recorded["delay"] = given["delay"] or ("0" if given["sim"] else "10000")
    recorded["launch_delay"] = given["launch_delay"] or "500000"
    variables = options.variables({**recorded, "params": True}, os.environ)
    for line in options.unknown(os.environ):  # what the recorder says is not shown
        say(line)
    settings = Settings(
        tuple(given["command"]),
        first=given["seed"],
        delay=int(variables.pop("TT_DELAY")),
        launch_delay=int(variables.pop("TT_LAUNCH_DELAY")),
        record=variables,
        **{n: given[n] for n in ("runs", "stop", "sim", "keep", "reduce", "confidence", "tests")},
    )
    types = None if given["dtype"] is None else parse_types(given["dtype"])
    allowed = None if given["tolerance"] is None else Tolerance.parse(given["tolerance"])
    if given["force"]:
        remove(folder)
    return Race(settings, folder, types=types, tolerance=allowed)
