"""The options of `ttanalyze record`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from ttanalyze.cli.common import (
    ERROR,
    check_output,
    write_file,
)
from ttanalyze.cli.record_options import (
    CompressOption,
    ControlOption,
    CpuCallstackOption,
    CrashSafeOption,
    DelayDumpOption,
    DelayKernelOption,
    DelayLoadOption,
    DelayMinOption,
    DelayModeOption,
    DelayOption,
    DelayPatternsOption,
    DelaySeedOption,
    DepsOption,
    DeterministicOption,
    EpochOption,
    EventsOption,
    ForceOption,
    GraphStampsOption,
    JsonOption,
    KernelEventsOption,
    KernelOption,
    LaunchDelayModeOption,
    LaunchDelayOption,
    MaxDiskOption,
    MaxPerKernelOption,
    NvtxOption,
    OutOption,
    OverwriteOption,
    ParamsOption,
    QuietOption,
    RegionsOption,
    ReplayableOption,
    RequireCompleteOption,
    RetainOption,
    RingBytesOption,
    SimOption,
    SnapshotEveryOption,
    StallMsOption,
    TimelineOption,
    TimeoutOption,
    VerboseOption,
)

verbs = typer.Typer()


@verbs.command(
    context_settings={"allow_interspersed_args": False},
    epilog="\b\nExamples:\n"
    "  ttanalyze record -- ./vecadd\n"
    "  ttanalyze record -o run1 --epoch launch:10 -- python train.py\n"
    "  ttanalyze record --sim --epoch 'sync,kernel:^add' -- ./vecadd --steps 3\n"
    "  ttanalyze record --epoch 'nvtx:^step' -- python train.py\n"
    "  ttanalyze record --replayable --kernel softmax -- python train.py\n"
    "  ttanalyze record --replayable --crash-safe --max-per-kernel 0 -- ./crashes\n"
    "  LD_PRELOAD=$(ttanalyze shim) TT_OUT=run1 ./vecadd",
)
def record(
    context: typer.Context,
    command: Annotated[
        list[str], typer.Argument(metavar="PROGRAM", help="The program to run, and its arguments.")
    ],
    out: OutOption = None,
    epoch: EpochOption = None,
    regions: RegionsOption = None,
    snapshot_every: SnapshotEveryOption = None,
    retain: RetainOption = None,
    overwrite: OverwriteOption = None,
    ring_bytes: RingBytesOption = None,
    compress: CompressOption = None,
    max_disk: MaxDiskOption = None,
    deterministic: DeterministicOption = None,
    deps: DepsOption = None,
    events: EventsOption = None,
    cpu_callstack: CpuCallstackOption = None,
    kernel_events: KernelEventsOption = None,
    params: ParamsOption = None,
    replayable: ReplayableOption = None,
    kernel: KernelOption = None,
    max_per_kernel: MaxPerKernelOption = None,
    crash_safe: CrashSafeOption = None,
    nvtx: NvtxOption = None,
    timeline: TimelineOption = None,
    graph_stamps: GraphStampsOption = None,
    control: ControlOption = None,
    launch_delay: LaunchDelayOption = None,
    launch_delay_mode: LaunchDelayModeOption = None,
    delay_seed: DelaySeedOption = None,
    delay: DelayOption = None,
    delay_min: DelayMinOption = None,
    delay_mode: DelayModeOption = None,
    delay_patterns: DelayPatternsOption = None,
    delay_kernel: DelayKernelOption = None,
    delay_load: DelayLoadOption = None,
    delay_dump: DelayDumpOption = None,
    stall_ms: StallMsOption = None,
    timeout: TimeoutOption = None,
    verbose: VerboseOption = None,
    sim: SimOption = False,
    require_complete: RequireCompleteOption = False,
    force: ForceOption = False,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> int:
    """Run a program and record its GPU memory over time.

    The exit status is that of the program, 128+N after signal N, or 124 after --timeout. It is 2
    if the program cannot be run, or if --require-complete finds something missing. You can set
    every option as a variable too: --ring-bytes 1G is TT_RING_BYTES=1G.
    """
    from ttanalyze import options
    from ttanalyze.verbs.record.run import record as run
    from ttanalyze.verbs.record.run import say

    given = {n: v for n, v in context.params.items() if f"TT_{n.upper()}" in options.CHECKS}
    given["epoch"] = ";".join(epoch) if epoch else None
    variables = options.variables(given, os.environ)
    if delay_dump is not None:
        options.check_late("--delay-dump", {**os.environ, **variables})
        check_output(delay_dump)
    done = run(command, out, variables, sim=sim, force=force, warn=say)
    if delay_dump is not None and done.processes:
        _write_delays(done.out, delay_dump)
    if json:
        print(done.to_json(), file=sys.stderr)
    elif not quiet:
        say(done.line(command[0]))
    if require_complete and done.incomplete:
        say(f"{done.out}: not complete: {done.incomplete}")
        return ERROR
    return done.status


def _write_delays(run: Path, to: Path) -> None:
    """Writes the delays of a run as a file for --delay-load."""
    from ttanalyze.core.delays import of_run
    from ttanalyze.errors import Error
    from ttanalyze.verbs.record.run import say

    try:
        write_file(to, of_run(run).to_json())
    except Error as e:
        say(f"cannot write {to}: {e}")
