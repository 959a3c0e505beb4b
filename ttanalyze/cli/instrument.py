"""The options of `ttanalyze instrument`."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from ttanalyze import options
from ttanalyze.cli import record_options
from ttanalyze.errors import Error

verbs = typer.Typer()
NAMES = {  # options of the recorder, by the option here
    "kind": "instrument",
    "kernel": "instrument_kernel",
    "launch": "instrument_launch",
    "every": "instrument_every",
    "instructions": "instrument_instructions",
    "category": "instrument_category",
    "blocks": "instrument_blocks",
    "addresses": "instrument_addresses",
    "max_records": "instrument_records",
    "ring_bytes": "instrument_ring",
}
ALSO = ("epoch", "params", "deterministic", "cpu_callstack", "max_disk", "timeout")


def _option(name: str) -> typer.models.OptionInfo:
    of = options.TABLE[NAMES[name]]
    found: typer.models.OptionInfo = typer.Option(metavar=of.metavar, help=of.help)
    return found


@verbs.command(
    context_settings={"allow_interspersed_args": False},
    epilog="\b\nExamples:\n"
    "  ttanalyze instrument --kind count -o run -- ./vecadd\n"
    "  ttanalyze instrument --kind addresses --kernel softmax --launch 3 -- python train.py\n"
    "  ttanalyze instrument --kind opcode,values --category memory --blocks 0:3 -- ./vecadd\n"
    "  ttanalyze instrument --sim --kind registers --instructions 20:40 -- ./vecadd\n"
    "  ttanalyze query run --table trace --head 20",
)
@record_options.recorder_options(*ALSO)
def instrument(
    command: record_options.ProgramArgument,
    out: record_options.OutOption = None,
    *,
    kind: Annotated[str, _option("kind")] = "opcode",
    kernel: Annotated[str | None, _option("kernel")] = None,
    launch: Annotated[str | None, _option("launch")] = None,
    every: Annotated[str | None, _option("every")] = None,
    instructions: Annotated[str | None, _option("instructions")] = None,
    category: Annotated[str | None, _option("category")] = None,
    blocks: Annotated[str | None, _option("blocks")] = None,
    addresses: Annotated[str | None, _option("addresses")] = None,
    max_records: Annotated[str | None, _option("max_records")] = None,
    ring_bytes: Annotated[str | None, _option("ring_bytes")] = None,
    recorded: dict[str, object],
    sim: record_options.SimOption = False,
    force: record_options.ForceOption = False,
    json: record_options.SummaryOption = False,
    quiet: record_options.QuietOption = False,
) -> int:
    """Run a program and trace what the instructions of its kernels do.

    A record says which warp executed which instruction, with which lanes, and what --kind asks
    for. Records go to a ring in device memory, which is emptied while kernels run. On a GPU only
    the kinds addresses, values (of stores) and opcode (of barriers) are traced. The exit status is
    that of `record`. Look at the trace with `query RUN --table trace`.
    """
    from ttanalyze.verbs.record.run import record, say

    given = dict(zip(NAMES, (kind, kernel, launch, every, instructions), strict=False))
    given |= {"category": category, "blocks": blocks, "addresses": addresses}
    given |= {"max_records": max_records, "ring_bytes": ring_bytes}
    for name, value in given.items():
        if value is not None:
            options.check("--" + name.replace("_", "-"), NAMES[name], value)
    chosen = {NAMES[name]: value for name, value in given.items()}
    done = record(
        command,
        out,
        options.variables(recorded | chosen, os.environ),
        sim=sim,
        force=force,
        warn=say,
    )
    if json:
        print(done.to_json(), file=sys.stderr)
    elif not quiet:
        say(done.line(command[0]))
        with contextlib.suppress(
            Error
        ):  # the program's status counts, and the run says what failed
            if done.processes:
                say(_line(done.out))
    return done.status


def _line(run: Path) -> str:
    """What was traced, as one line."""
    from ttanalyze.format import layout, open_run
    from ttanalyze.output import text

    processes = open_run(run).processes
    refused = [int(why) for process in processes for why in process.traced["refused"]]
    traced, size = refused.count(0), sum(p.instruction_trace.size for p in processes)
    out = f"traced {text.count(traced, 'launch', 'launches')}, {text.size(size)}"
    if traced < len(refused):
        names = sorted({layout.REFUSED_TRACES[why] for why in refused if why})
        out += f"; {len(refused) - traced:,} refused ({', '.join(names)})"
    return f"{out}: ttanalyze query {run} --table traced"
