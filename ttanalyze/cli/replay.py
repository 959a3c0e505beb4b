"""The options of `ttanalyze replay`."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option, Typer

from ttanalyze.cli import common, replay_options
from ttanalyze.errors import Error, system_error
from ttanalyze.output import text

if TYPE_CHECKING:
    from ttanalyze.format.process import Process
    from ttanalyze.gpu import Device

verbs = Typer()

REPLAY_EXAMPLES = """\b
Examples:
  Record with what is needed for it, and do again all launches that were kept, or every softmax:
    ttanalyze record --replayable -o run1 -- python train.py
    ttanalyze replay run1
    ttanalyze replay run1 --kernel softmax
  One launch, with its time over 100 runs, the L2 cache flushed before each:
    ttanalyze replay run1 --launch 1234 --times 100 --flush-l2
  The program's work on the device without the program, memory compared at every epoch:
    ttanalyze replay run1 --from 0 --to 12
  What may differ in the last bits, and more in a region:
    ttanalyze replay run1 --launch 1234 --dtype f32 --tolerance ,,4 --tolerance grad=1e-3
  A launch that crashes its program, once more and in a checker:
    ttanalyze record --replayable --crash-safe --max-per-kernel 0 -o run1 -- ./program
    ttanalyze replay run1 --launch 1234 --under compute-sanitizer
  One launch of a large program in a profiler, a checker, a debugger:
    ttanalyze replay run1 --launch 1234 --under "ncu --set full"
    ttanalyze replay run1 --launch 1234 --under "compute-sanitizer --tool racecheck"
    ttanalyze replay run1 --launch 1234 --under "cuda-gdb --args"
"""


FirstOption = Annotated[
    int | None,
    Option("--from", metavar="E1", help="All the work from this epoch on, up to the last or --to."),
]
LastOption = Annotated[
    int | None, Option("--to", metavar="E2", help="Up to this epoch; memory is compared at each.")
]


UnderOption = Annotated[
    str | None,
    Option(metavar="COMMAND", help="Run under a tool: ncu, compute-sanitizer, cuda-gdb --args …"),
]


@verbs.command(epilog=REPLAY_EXAMPLES)
def replay(
    run: common.RunArgument,
    launch: replay_options.LaunchOption = None,
    kernel: replay_options.KernelOption = None,
    first: FirstOption = None,
    last: LastOption = None,
    times: int = Option(
        0, metavar="K", min=0, help="Measure K runs, the input restored before each."
    ),
    verify: bool = Option(True, help="Compare with what was recorded."),
    flush_l2: bool = Option(
        False, "--flush-l2/--warm", help="Flush the L2 cache before each measured run."
    ),
    dtype: replay_options.DtypeOption = None,
    tolerance: replay_options.ToleranceOption = None,
    under: UnderOption = None,
    alone: bool = Option(
        False, "--alone", help="Run no kernels of our own beside it, as --under does."
    ),
    process: common.ProcessOption = 0,
    device: common.DeviceOption = 0,
    sim: replay_options.SimOption = False,
    json: common.JsonOption = False,
    quiet: common.QuietOption = False,
) -> int:
    """Run recorded launches again, alone, from memory as it was; or all work between two epochs.

    In a process of its own: memory is restored at the addresses it had, the module loaded, the
    kernel launched with its recorded parameters, and what it leaves compared. Exit status 0: the
    same; 1: different; 2: nothing was compared, one failed, or the recording did before all that
    was asked for.
    """
    of_span = first is not None or last is not None
    if (launch is not None) + (kernel is not None) + of_span > 1:
        raise Error("say one of --launch N, --kernel REGEX, and --from E1 --to E2")
    if of_span and (times or flush_l2 or alone or under or not verify):
        raise Error("--from and --to go with no other option but --dtype and --tolerance")
    if flush_l2 and not times:
        raise Error("--flush-l2 is of measured runs: it needs --times")
    if under is not None:
        _run_under(under)
    from ttanalyze.format import open_run
    from ttanalyze.verbs.replay import run as module
    from ttanalyze.verbs.replay import show

    of = open_run(run).process(process)
    types, allowed = replay_options.parse_types_of(of, dtype, tolerance)
    opener = replay_options.device_opener(device, sim)
    if of_span:
        return _replay_span(run, of, (first, last), (types, allowed), opener, json, quiet)
    seqs, others = replay_options.find_launches(of, launch, kernel)
    wish = module.Wish(verify, times, flush_l2, types, allowed, alone)
    with common.progress_bar("replaying", quiet) as progress:
        found = module.replay(of, seqs, wish, opener, progress)
    if len(found) == 1:
        shown = show.outcome_text(found[0], text.colours_wanted(1))
    else:
        shown = show.outcomes_text(found, text.colours_wanted(1), common.screen_width())
    failed = replay_options.tell_launches(run, of, found, others, shown, json)
    return status(found, wanted=verify, lacks=failed and launch is None)


def _replay_span(
    run: Path,
    of: Process,
    bounds: tuple[int | None, int | None],
    compared: tuple[Any, Any],
    opener: Callable[[], Device],
    json: bool,
    quiet: bool,
) -> int:
    from ttanalyze.verbs.replay import show
    from ttanalyze.verbs.replay.spans import replay_span

    with common.progress_bar("replaying", quiet) as progress:
        found = replay_span(of, *bounds, *compared, opener, progress)
    if json:
        said = {"run": str(run), "process": of.index, "stretches": [one.as_dict() for one in found]}
        common.print_text(common.as_json(said | {"failure": of.failure}))
    else:
        width = common.screen_width()
        common.print_text(show.stretches_text(found, text.colours_wanted(1), width))
    lacks = bounds[1] is None and replay_options.say_failure(of, json)
    return status(found, lacks=lacks)


def status(found: list[Any], wanted: bool = True, lacks: bool = False) -> int:
    """1 where anything differs; 2 where nothing was compared, or replayed where a comparison was
    not wanted, where something failed, or lacks what the recording did not come to.
    """
    words = {one.status for one in found}
    if "differs" in words:
        return common.DIFFERS
    done = any(one.status == ("same" if wanted else "unchecked") for one in found)
    done &= not wanted or any(one.regions for one in found)
    return common.ERROR if "failed" in words or not done or lacks else common.SAME


def _run_under(command: str) -> None:
    """Becomes the tool, which runs this command line without --under."""
    try:
        tool = shlex.split(command)
    except ValueError as e:
        raise Error(f"--under {command}: {e}") from None
    if not tool:
        raise Error("--under: no command is given")
    rest, arguments = [], iter(sys.argv[1:])
    for word in arguments:
        if word == "--under":
            next(arguments)
        elif not word.startswith("--under="):
            rest.append(word)
    found = shutil.which(tool[0])
    if found is None:
        raise Error(f"--under: {tool[0]} is not found")
    python = [sys.executable, "-m", "ttanalyze"]
    try:
        os.execv(found, [*tool, *python, *rest, "--alone"])
    except OSError as e:
        raise system_error(Path(found), e) from None
