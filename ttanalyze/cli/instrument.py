"""The options of `ttanalyze instrument`."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Annotated

import typer

from ttanalyze import options
from ttanalyze.cli import record_options
from ttanalyze.errors import Error

verbs = typer.Typer()
LIMITS = ("timeout", "kernel_timeout", "no_progress")
ALSO = (
    *("epoch", "params", "deterministic", "cpu_callstack", "max_disk"),
    *(*LIMITS, "kernel_filters", "kernel_names"),
)
KIND = options.TABLE["instrument"]


@verbs.command(
    context_settings={"allow_interspersed_args": False},
    epilog="\b\nExamples:\n"
    "  ttanalyze instrument --kind count -o run -- ./vecadd\n"
    "  ttanalyze instrument --kind addresses --kernel softmax --launch 3 -- python train.py\n"
    "  ttanalyze instrument --kind opcode,values --category memory --blocks 0:3 -- ./vecadd\n"
    "  ttanalyze instrument --way patcher --kind opcode --kernel gemm -- ./gemm\n"
    "  ttanalyze instrument --kind heartbeat --no-progress 30s -- ./hangs\n"
    "  ttanalyze instrument --sim --kind registers --instructions 20:40 -- ./vecadd\n"
    "  ttanalyze query run --table trace --head 20",
)
@record_options.recorder_options(*ALSO)
@record_options.tracing_options(*record_options.TRACING)
def instrument(
    command: record_options.ProgramArgument,
    out: record_options.OutOption = None,
    *,
    kind: Annotated[str, typer.Option(metavar=KIND.metavar, help=KIND.help)] = "opcode",
    traced: dict[str, object],
    recorded: dict[str, object],
    sim: record_options.SimOption = False,
    force: record_options.ForceOption = False,
    json: record_options.SummaryOption = False,
    quiet: record_options.QuietOption = False,
) -> int:
    """Run a program and trace what the instructions of its kernels do.

    A record says which warp executed which instruction, with which lanes, and what --kind asks
    for. Records go to a ring in device memory, which is emptied while kernels run. On a GPU,
    NVIDIA's Sanitizer API traces the kinds addresses, values (of stores), opcode (of barriers), tma
    (of loads) and heartbeat. --way patcher traces all kinds, of all instructions, on sm_90 without
    it. The exit status is that of `record`. Look at the trace with `query RUN --table trace`.
    """
    from ttanalyze.verbs.record.run import record, say

    options.check("--kind", "instrument", kind)
    done = record(
        command,
        out,
        options.variables(recorded | traced | {"instrument": kind}, os.environ),
        sim=sim,
        force=force,
        warn=say,
    )
    if json:
        print(done.to_json(), file=sys.stderr)
    else:
        record_options.say_hangs(done)
    if not json and not quiet:
        say(done.line(command[0]))
        with contextlib.suppress(
            Error
        ):  # the program's status counts, and the run says what failed
            if done.processes:
                say(record_options.traced_text(done.out))
    return done.status
