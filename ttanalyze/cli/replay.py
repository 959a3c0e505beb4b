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
from ttanalyze.errors import Error, system_errors
from ttanalyze.output import text

if TYPE_CHECKING:
    from ttanalyze.format.process import Process
    from ttanalyze.gpu import Device

verbs = Typer()

REPLAY_EXAMPLES = """\b
Examples:
  Record for replay, then replay all kept launches, or those of one kernel:
    ttanalyze record --replayable -o run1 -- python train.py
    ttanalyze replay run1
    ttanalyze replay run1 --kernel softmax
  Measure one launch 100 times, and flush the L2 cache before each time:
    ttanalyze replay run1 --launch 1234 --times 100 --flush-l2
  Replay all GPU work up to epoch 12, and compare memory at every epoch:
    ttanalyze replay run1 --from 0 --to 12
  Allow a difference in the last bits, and a larger one in one region:
    ttanalyze replay run1 --launch 1234 --dtype f32 --tolerance ,,4 --tolerance grad=1e-3
  Run a launch that crashes its program again, in a checker:
    ttanalyze record --replayable --crash-safe --max-per-kernel 0 -o run1 -- ./program
    ttanalyze replay run1 --launch 1234 --under compute-sanitizer
  Run one launch of a large program in a profiler, a checker or a debugger:
    ttanalyze replay run1 --launch 1234 --under "ncu --set full"
    ttanalyze replay run1 --launch 1234 --under "compute-sanitizer --tool racecheck"
    ttanalyze replay run1 --launch 1234 --under "cuda-gdb --args"
"""


FirstOption = Annotated[
    int | None,
    Option(
        "--from",
        metavar="E1",
        help="Replay all work from this epoch to --to, or to the last epoch.",
    ),
]
LastOption = Annotated[
    int | None,
    Option("--to", metavar="E2", help="Replay up to this epoch; compare memory at each epoch."),
]


UnderOption = Annotated[
    str | None,
    Option(metavar="COMMAND", help="Run under a tool: ncu, compute-sanitizer, cuda-gdb --args ..."),
]


@verbs.command(epilog=REPLAY_EXAMPLES)
def replay(
    run: common.RunArgument,
    launch: replay_options.LaunchOption = None,
    kernel: replay_options.KernelOption = None,
    first: FirstOption = None,
    last: LastOption = None,
    times: int = Option(
        0, metavar="K", min=0, help="Measure K runs; restore the input before each run."
    ),
    verify: bool = Option(True, help="Compare the result with the recording."),
    flush_l2: bool = Option(
        False, "--flush-l2/--warm", help="Flush the L2 cache before each measured run."
    ),
    dtype: replay_options.DtypeOption = None,
    tolerance: replay_options.ToleranceOption = None,
    under: UnderOption = None,
    alone: bool = Option(
        False, "--alone", help="Launch no kernel except the recorded one; --under sets this."
    ),
    process: common.ProcessOption = 0,
    device: common.DeviceOption = 0,
    sim: replay_options.SimOption = False,
    json: common.JsonOption = False,
    quiet: common.QuietOption = False,
) -> int:
    """Replay recorded launches one by one, or all work between two epochs.

    The verb restores the memory at its recorded addresses, loads the module and launches the
    kernel with its recorded parameters. Then it compares the result with the recording. Exit
    status 0: the same; 1: different; 2: nothing was compared, a launch failed, or the recording
    failed too early.
    """
    of_span = first is not None or last is not None
    if (launch is not None) + (kernel is not None) + of_span > 1:
        raise Error("--launch, --kernel and --from/--to cannot be combined")
    if of_span and (times or flush_l2 or alone or under or not verify):
        raise Error("--from and --to can be combined only with --dtype and --tolerance")
    if flush_l2 and not times:
        raise Error("--flush-l2 needs --times")
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
    options = module.ReplayOptions(verify, times, flush_l2, types, allowed, alone)
    with common.progress_bar("replaying", quiet) as progress:
        found = module.replay(of, seqs, options, opener, progress)
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
        answer = {
            "run": str(run),
            "process": of.index,
            "stretches": [one.as_dict() for one in found],
        }
        common.print_text(common.as_json(answer | {"failure": of.failure}))
    else:
        width = common.screen_width()
        common.print_text(show.stretches_text(found, text.colours_wanted(1), width))
    lacks = bounds[1] is None and replay_options.say_failure(of, json)
    return status(found, lacks=lacks)


def status(found: list[Any], wanted: bool = True, lacks: bool = False) -> int:
    """The exit status of replays. wanted: a comparison was requested. lacks: the recording failed
    before the requested end. 1: something differs. 2: a replay failed, or nothing was compared.
    """
    words = {one.status for one in found}
    if "differs" in words:
        return common.DIFFERS
    done = any(one.status == ("same" if wanted else "unchecked") for one in found)
    done &= not wanted or any(one.regions for one in found)
    return common.ERROR if "failed" in words or not done or lacks else common.SAME


def _run_under(command: str) -> None:
    """Replaces this process by the tool, which runs this command line without --under."""
    try:
        tool = shlex.split(command)
    except ValueError as e:
        raise Error(f"--under {command}: {e}") from None
    if not tool:
        raise Error("--under: the command is empty")
    rest, arguments = [], iter(sys.argv[1:])
    for word in arguments:
        if word == "--under":
            next(arguments)
        elif not word.startswith("--under="):
            rest.append(word)
    found = shutil.which(tool[0])
    if found is None:
        raise Error(f"--under: command {tool[0]} not found")
    python = [sys.executable, "-m", "ttanalyze"]
    with system_errors(Path(found)):
        os.execv(found, [*tool, *python, *rest, "--alone"])
