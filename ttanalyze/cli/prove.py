"""The options of `ttanalyze prove`."""

from __future__ import annotations

import os

from typer import Option, Typer

from ttanalyze.cli import common, replay_options
from ttanalyze.errors import Error
from ttanalyze.output import text

verbs = Typer()

PROVE_EXAMPLES = """\b
Examples:
  Find the kernels of a training step that give different results each time:
    ttanalyze record --replayable --cpu-callstack auto -o run1 -- python step.py
    ttanalyze prove run1 --times 50
  Test one kernel, with its memory shown as numbers:
    ttanalyze prove run1 --kernel index_add --times 200 --dtype f32
  Print JSON:
    ttanalyze prove run1 --json
"""


@verbs.command(epilog=PROVE_EXAMPLES)
def prove(
    run: common.RunArgument,
    launch: replay_options.LaunchOption = None,
    kernel: replay_options.KernelOption = None,
    times: int = Option(
        20, metavar="K", help="Run each launch K times, each time from the same memory."
    ),
    dtype: replay_options.DtypeOption = None,
    tolerance: replay_options.ToleranceOption = None,
    seed: int = Option(0, metavar="N", help="Random seed of the perturbations."),
    process: common.ProcessOption = 0,
    rank: common.RankOption = None,
    device: common.DeviceOption = 0,
    sim: replay_options.SimOption = False,
    json: common.JsonOption = False,
    quiet: common.QuietOption = False,
) -> int:
    """Find nondeterministic kernels: run each launch many times from the same memory.

    The verb perturbs each run so that the order of blocks changes: other work occupies the GPU,
    caches start in another state, launches are delayed. A result that varies proves that the
    kernel is nondeterministic. A constant result does not prove the opposite. Exit status 0: no
    launch varies or differs from the recording; 1: a launch varies or differs; 2: no launch could
    be replayed, a launch failed, or the recording failed too early.
    """
    if launch is not None and kernel is not None:
        raise Error("--launch and --kernel cannot be combined")
    from ttanalyze.format import open_run
    from ttanalyze.verbs.prove import determinism, show

    of = open_run(run).process(process, rank)
    types, allowed = replay_options.parse_types_of(of, dtype, tolerance)
    seqs, others = replay_options.find_launches(of, launch, kernel)
    if sim:  # before it is loaded
        os.environ.setdefault("TT_SIM_SCHEDULE", "random")
    opener = replay_options.device_opener(device, sim)
    with common.progress_bar("proving", quiet) as progress:
        found = determinism.prove(of, seqs, times, types, allowed, seed, opener, progress)
    shown = show.verdicts_text(found, text.colours_wanted(1), common.screen_width())
    failed = replay_options.tell_launches(run, of, found, others, shown, json)
    statuses = {one.status for one in found}
    if determinism.VARIES in statuses or any(one.recorded is False for one in found):
        return common.DIFFERS
    done = (
        determinism.STEADY in statuses
        and "failed" not in statuses
        and not (failed and launch is None)
    )
    return common.SAME if done else common.ERROR
