"""The options of `ttanalyze race`."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typer import Argument, Context, Option, Typer

from ttanalyze.cli import common
from ttanalyze.cli.help import Verb
from ttanalyze.cli.record_options import recorder_options
from ttanalyze.errors import Error
from ttanalyze.output import text
from ttanalyze.output.files import private

if TYPE_CHECKING:
    from ttanalyze.verbs.race import Finding, RaceReport

verbs = Typer()

EXAMPLES = """\b
Examples:
  Search for missing synchronisation in a program:
    ttanalyze race -- ./app
  Search without a GPU, in the order of streams and events only:
    ttanalyze race --sim -- examples/build/handoff
  Delay only inside some kernels, by longer times, until three seeds differ:
    ttanalyze race --launch-delay 0 --delay 100000 --delay-kernel pipeline --stop 3 -- ./app
  Allow the differences of floating-point sums in another order:
    ttanalyze race --dtype f32 --tolerance 1e-5,1e-4 -- python train.py
  Find the two instructions of each race within the launches of a kernel:
    ttanalyze instrument --kind opcode,registers,values,tma --category memory,sync,tma \\
      --kernel sum -o run1 -- ./app
    ttanalyze race run1 --exact
  The same for one replayable launch of a run without traces:
    ttanalyze race run2 --exact --launch 7
"""
WITH_EXACT = {"command", "exact", "launch", "process", "rank", "sim", "json", "quiet"}
SEARCHED = ("runs", "stop", "sim", "keep", "reduce", "confidence", "tests", "jobs")


class RaceCommand(Verb):
    """Options may follow a run. What follows a program belongs to the program."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        runs = (os.path.isfile(os.path.join(word, "run.json")) for word in args)
        ctx.allow_interspersed_args = "--exact" in args and any(runs)
        return super().parse_args(ctx, args)


@verbs.command(
    cls=RaceCommand, context_settings={"allow_interspersed_args": False}, epilog=EXAMPLES
)
@recorder_options(
    *("launch_delay_mode", "delay_min", "delay_mode", "delay_cluster_block", "delay_patterns"),
    *("delay_kernel", "kernel_filters", "kernel_names", "epoch"),
)
def race(
    context: Context,
    command: list[str] = Argument(
        ...,
        metavar="PROGRAM",
        help="The program to run, and its arguments; with --exact, a run directory.",
    ),
    exact: bool = Option(
        False, "--exact", help="Find races within traced launches of a run; runs no program."
    ),
    launch: int | None = Option(
        None,
        metavar="N",
        help="With --exact: the launch, by its seq number (see `query`; default: all traced "
        "ones). If it has no trace, it is replayed and traced.",
    ),
    process: common.ProcessOption = 0,
    rank: common.RankOption = None,
    out: Path | None = Option(
        None, "--out", "-o", metavar="DIR", help="Folder of the runs (default PROGRAM.race)."
    ),
    runs: int = Option(20, metavar="N", help="Number of recordings."),
    seed: int = Option(1, metavar="N", help="Random seed of the first recording."),
    stop: int = Option(1, metavar="N", help="Stop when N recordings differ (0: do all runs)."),
    delay: str | None = Option(
        None,
        metavar="TIME",
        help="Longest delay inside kernels, 10 times longer for every second seed (default "
        "10us, 0: none).",
    ),
    launch_delay: str | None = Option(
        None, metavar="TIME", help="Longest delay between calls (default 500us, 0: none)."
    ),
    *,
    recorded: dict[str, object],
    timeout: str | None = Option(
        None,
        metavar="TIME",
        help="Stop a run that takes longer, such as 2m; it is different.",
    ),
    deterministic: bool = Option(
        True, help="Give memory the same addresses in each run, and zero it (default: yes)."
    ),
    dtype: str | None = Option(None, metavar="TYPES", help="Types of the memory; see `diff`."),
    tolerance: str | None = Option(
        None, metavar="ABS,REL,ULP", help="Largest difference that counts as equal; needs --dtype."
    ),
    reduce: bool = Option(True, help="Find the fewest delays that cause the difference."),
    confidence: int = Option(1, metavar="N", help="Try each set of delays N times when reducing."),
    tests: int = Option(200, metavar="N", help="Reduce with at most N recordings."),
    reduce_time: str = Option(
        "40s", metavar="TIME", help="Begin no test of a reduction after this time (0: no limit)."
    ),
    jobs: int = Option(
        1,
        "--jobs",
        "-j",
        metavar="N",
        help="Start up to N runs of the program at once, and hold all but one where recording "
        "begins. The program must not share files or ports with itself.",
    ),
    sim: bool = Option(False, "--sim", help="Use the simulator; --delay is 0 by default."),
    keep: bool = Option(False, "--keep", help="Also keep runs that do not differ."),
    force: bool = Option(
        False, "--force", "-f", help="Start again instead of resuming the search in the folder."
    ),
    json: common.JsonOption = False,
    quiet: common.QuietOption = False,
) -> int:
    """Search for races: record a program many times with random delays, and compare its memory.

    The verb records the program twice without delays. Then it delays the work of one stream after
    the other, then random calls and instructions in kernels, until the memory, the output or the
    exit status of a run differs. It says where memory diverges, and which unordered calls access
    it, as soon as it knows (on standard error); then it looks for the fewest delays that cause it.
    An interrupted search resumes. Exit status 0: no difference found; 1: found; 2: the search
    failed.

    With --exact, the verb reads the traces of a run that `ttanalyze instrument` made, or replays
    and traces one launch that `ttanalyze record --replayable` recorded. It reports
    accesses to the same byte by two threads of a launch, one of them a store, that no barrier,
    fence or atomic operation orders. A race is found even if it changed nothing. Exit status 0: no
    race, or only stores of the same value; 1: a race, certain or possible; 2: no race in an
    incomplete trace, or an error.
    """
    if exact:
        return _exact(context, command, launch, process, rank, sim, json, quiet)
    if launch is not None or process or rank is not None:
        given = "--launch" if launch is not None else "--rank" if rank is not None else "--process"
        raise Error(f"{given} needs --exact")
    from ttanalyze.verbs.race.show import race_text

    folder = out or Path(f"{os.path.basename(command[0])}.race")
    report = _search({**context.params, **recorded}, folder, quiet)
    common.write_file(folder / "report.json", report.to_json() + "\n", private)
    common.print_text(report.to_json() if json else race_text(report, text.colours_wanted(1)))
    return common.DIFFERS if report.found else common.SAME


def _exact(
    context: Context,
    command: list[str],
    launch: int | None,
    process: int,
    rank: int | None,
    sim: bool,
    json: bool,
    quiet: bool,
) -> int:
    from ttanalyze.format import open_run
    from ttanalyze.verbs.race.exact.load import TRACED
    from ttanalyze.verbs.race.exact.report import search
    from ttanalyze.verbs.race.exact.show import inner_text
    from ttanalyze.verbs.retrace import traced_launch

    for option in context.command.params:
        name = option.name or ""
        source = context.get_parameter_source(name)
        if name not in WITH_EXACT and source is not None and source.name == "COMMANDLINE":
            raise Error(f"{option.opts[0]} cannot be combined with --exact")
    if len(command) != 1:
        raise Error("--exact takes one run directory: ttanalyze race RUN --exact")
    run = open_run(Path(command[0]))
    of = run.process(process, rank)
    with (
        common.progress_bar("searching", quiet) as progress,
        common.interruptible(),
        tempfile.TemporaryDirectory(prefix="ttanalyze-race-") as folder,
    ):
        replayed = None
        if launch is not None and launch not in of.traced["seq"]:
            replayed = traced_launch(of, launch, Path(folder), TRACED, sim)
        report = search(of, launch, progress, replayed)
    common.print_text(report.to_json() if json else inner_text(report, text.colours_wanted(1)))
    common.say_other_traces(run, process, rank)
    if report.found:
        return common.DIFFERS
    return common.ERROR if report.unclear else common.SAME


def _search(given: dict[str, Any], folder: Path, quiet: bool) -> RaceReport:
    """Searches as options ask, in the folder of runs."""
    from ttanalyze import options
    from ttanalyze.core.values import Tolerance
    from ttanalyze.verbs.diff import parse_types
    from ttanalyze.verbs.race import Settings
    from ttanalyze.verbs.race import race as search
    from ttanalyze.verbs.race.search import remove
    from ttanalyze.verbs.record.run import say

    recorded = {n: v for n, v in given.items() if n in options.TABLE and n != "out"}
    recorded["delay"] = given["delay"] or ("0" if given["sim"] else "10us")
    recorded["launch_delay"] = given["launch_delay"] or "500us"
    variables = options.variables({**recorded, "params": True}, os.environ)
    for line in options.unknown(os.environ):  # the recorder's own output is not shown
        say(line)
    settings = Settings(
        tuple(given["command"]),
        first=given["seed"],
        delay=_nanoseconds(variables.pop("TT_DELAY")),
        launch_delay=_nanoseconds(variables.pop("TT_LAUNCH_DELAY")),
        record=variables,
        reduce_time=options.parse_limit("--reduce-time", given["reduce_time"]),
        **{n: given[n] for n in SEARCHED},
    )
    types = None if given["dtype"] is None else parse_types(given["dtype"])
    allowed = None if given["tolerance"] is None else Tolerance.parse(given["tolerance"])
    if given["force"]:
        remove(folder)
    with (
        common.progress_bar("recording", quiet) as progress,
        common.interruptible(signal.SIGTERM),  # ends programs that were started ahead
    ):
        return search(
            settings,
            folder,
            types=types,
            tolerance=allowed,
            progress=progress,
            on_finding=None if quiet or not settings.reduce else _print_finding,
        )


def _print_finding(report: RaceReport, found: Finding) -> None:
    """Prints a finding before its delays are reduced, which takes many recordings."""
    from ttanalyze.verbs.race.show import finding_text

    colour = text.colours_wanted(2)
    head = text.coloured("found", "red", colour)
    lines = f"{head}: delays change the result; looking for the fewest of {found.before:,} delays"
    print(f"{lines}\n{finding_text(report, found, colour)}", file=sys.stderr, flush=True)


def _nanoseconds(value: str) -> int:
    from ttanalyze import options

    return round(options.parse_time(value, "ns") * 1e9)
