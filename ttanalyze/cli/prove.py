"""The options of `ttanalyze prove`."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, Annotated

import typer

from ttanalyze.cli.common import (
    DIFFERS,
    ERROR,
    SAME,
    DeviceOption,
    JsonOption,
    ProcessOption,
    QuietOption,
    RunArgument,
    as_json,
    print_text,
    progress_bar,
)
from ttanalyze.errors import Error
from ttanalyze.output import text

if TYPE_CHECKING:
    pass
from ttanalyze.cli.replay_options import (
    DtypeOption,
    KernelOption,
    LaunchOption,
    SimOption,
    ToleranceOption,
    none_of,
    open_device,
    parse_types_of,
    say_failure,
    say_others,
)

verbs = typer.Typer()

PROVE_EXAMPLES = """\b
Examples:
  Which kernels of a training step do not give the same every time:
    ttanalyze record --replayable --cpu-callstack auto -o run1 -- python step.py
    ttanalyze prove run1 --times 50
  One kernel, its memory seen as numbers:
    ttanalyze prove run1 --kernel index_add --times 200 --dtype f32
  For a program to read:
    ttanalyze prove run1 --json
"""


@verbs.command(epilog=PROVE_EXAMPLES)
def prove(
    run: RunArgument,
    launch: LaunchOption = None,
    kernel: KernelOption = None,
    times: Annotated[
        int, typer.Option(metavar="K", help="Run each launch K times from the same memory.")
    ] = 20,
    dtype: DtypeOption = None,
    tolerance: ToleranceOption = None,
    seed: Annotated[
        int, typer.Option(metavar="N", help="Of what else goes on during the runs.")
    ] = 0,
    process: ProcessOption = 0,
    device: DeviceOption = 0,
    sim: SimOption = False,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> int:
    """Prove which kernels are not deterministic: run each many times from the same memory.

    Meanwhile other work keeps processors busy, caches are in another state and launches come late,
    so that the order of blocks changes. What varied is proven to; what did not was not seen to
    vary. Exit status 0: nothing varied, and all is as recorded; 1: something did, or is not; 2: no
    launch could be replayed, one failed, or the recording did before all that was asked for.
    """
    if launch is not None and kernel is not None:
        raise Error("say which launches: --launch N, or --kernel REGEX")
    from ttanalyze.format import open_run
    from ttanalyze.verbs.replay import determinism as module
    from ttanalyze.verbs.replay import show
    from ttanalyze.verbs.replay.plan import choice

    of = open_run(run).process(process)
    types, allowed = parse_types_of(of, dtype, tolerance)
    seqs, others = (launch, 0) if launch else choice(of, kernel)
    if not seqs:
        raise Error(none_of(of, kernel, others))
    if sim:  # before it is loaded
        os.environ.setdefault("TT_SIM_SCHEDULE", "random")
    with progress_bar("proving", quiet) as progress:
        found = module.prove(
            of, seqs, times, types, allowed, seed, lambda: open_device(device, sim), progress
        )
    if json:
        said = {"run": str(run), "process": process, "launches": [one.as_dict() for one in found]}
        print_text(as_json(said | {"not_kept": others, "failure": of.failure}))
    else:
        width = shutil.get_terminal_size().columns if os.isatty(1) else 0
        print_text(show.verdicts_text(found, text.colours_wanted(1), width))
    say_others(others, json)
    lacks = launch is None and say_failure(of, json)
    statuses = {one.status for one in found}
    if module.VARIES in statuses or any(one.recorded is False for one in found):
        return DIFFERS
    done = module.STEADY in statuses and "failed" not in statuses and not lacks
    return SAME if done else ERROR
