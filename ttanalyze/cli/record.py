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
    command: Annotated[
        list[str], typer.Argument(metavar="PROGRAM", help="What to run, and its arguments.")
    ],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="DIR", help="Run directory (default PROGRAM.tt)."),
    ] = None,
    epoch: Annotated[
        list[str] | None,
        typer.Option(
            metavar="WHEN",
            help="When to capture: sync (default), launch[:N], graph, memcpy, api, none, "
            "kernel:REGEX, graph-node:REGEX and nvtx:REGEX, separated by commas; an expression "
            "is the last of its list. Can be given several times.",
        ),
    ] = None,
    regions: Annotated[
        str | None, typer.Option(metavar="all|touched", help="Which allocations to look at.")
    ] = None,
    snapshot_every: Annotated[
        str | None, typer.Option(metavar="K", help="Full snapshot every K epochs (default 64).")
    ] = None,
    retain: Annotated[
        str | None, typer.Option(metavar="N", help="Keep the contents of the last N epochs only.")
    ] = None,
    overwrite: Annotated[
        str | None,
        typer.Option(
            metavar="POLICY",
            help="When the ring is full: backpressure (default), drop-oldest or fail.",
        ),
    ] = None,
    ring_bytes: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Size of the ring, such as 256M.")
    ] = None,
    compress: Annotated[
        str | None,
        typer.Option(metavar="LEVEL", help="Compress contents with zstd: 1 to 19 (default 0: no)."),
    ] = None,
    max_disk: Annotated[
        str | None,
        typer.Option(
            metavar="auto|off|SIZE",
            help="When there is no more room, record digests only: auto (default) keeps 5 GiB or a "
            "tenth of the disk free, whichever is more; SIZE bounds the run directory; off: until "
            "the disk is full.",
        ),
    ] = None,
    deterministic: Annotated[
        bool | None, typer.Option("--deterministic", help="Same addresses, same manifest.")
    ] = None,
    deps: Annotated[
        str | None,
        typer.Option(
            metavar="region|device|off",
            help="What waits for a capture: launches that name memory it reads, all that comes "
            "after it, or nothing.",
        ),
    ] = None,
    events: Annotated[
        bool | None, typer.Option("--events/--no-events", help="Record driver calls.")
    ] = None,
    cpu_callstack: Annotated[
        str | None,
        typer.Option(
            metavar="WHOSE",
            help="Record who made each call: python, backtrace (native), mixed (both, in one "
            "stack), auto (python where there is any, else backtrace) or off (default).",
        ),
    ] = None,
    kernel_events: Annotated[
        str | None,
        typer.Option(
            metavar="dedup|full|nostack|off",
            help="Record launches of kernels with call stacks, which `events` then writes once "
            "each (dedup) or with each launch (full), without stacks (nostack), or not at all "
            "(off). Given one of the first two, stacks are recorded as if they were asked for.",
        ),
    ] = None,
    params: Annotated[
        bool | None, typer.Option("--params", help="Record the parameters of launches.")
    ] = None,
    replayable: Annotated[
        bool | None,
        typer.Option(
            "--replayable",
            help="Record launches so that they can be run again, alone: memory before and after "
            "each, its code, what was in force. With it come --deterministic and --params, and no "
            "other epochs unless --epoch asks for them.",
        ),
    ] = None,
    kernel: Annotated[
        str | None,
        typer.Option(metavar="REGEX", help="With --replayable: of these kernels (default: all)."),
    ] = None,
    max_per_kernel: Annotated[
        str | None,
        typer.Option(
            metavar="N",
            help="With --replayable: at most so many launches of each kernel (default 3, 0: all).",
        ),
    ] = None,
    crash_safe: Annotated[
        bool | None,
        typer.Option(
            "--crash-safe",
            help="With --replayable: each launch waits until what it finds is on disk, so that one "
            "that crashes can be run again.",
        ),
    ] = None,
    nvtx: Annotated[
        bool | None,
        typer.Option("--nvtx/--no-nvtx", help="Record NVTX ranges and marks (default: yes)."),
    ] = None,
    timeline: Annotated[
        str | None,
        typer.Option(
            metavar="cupti|events|off",
            help="Record when the GPU did what calls asked for: with CUPTI, or with events around "
            "calls (default off).",
        ),
    ] = None,
    graph_stamps: Annotated[
        str | None,
        typer.Option(
            metavar="REGEX",
            help="Record when kernels of such a name ran inside graphs, by the device's clock; "
            "with events around calls (--timeline events).",
        ),
    ] = None,
    control: Annotated[
        str | None,
        typer.Option(
            metavar="SETTINGS",
            help="What the program can change with tt_control, as it begins: points=on|off, "
            "stamps=on|off, regions=…, snapshot=N, separated by semicolons.",
        ),
    ] = None,
    launch_delay: Annotated[
        str | None,
        typer.Option(
            metavar="NS",
            help="Make every other launch, copy or set late by so many nanoseconds, drawn by lot, "
            "so that a missing dependency between streams shows.",
        ),
    ] = None,
    launch_delay_mode: Annotated[
        str | None,
        typer.Option(
            metavar="both|stream|host",
            help="What --launch-delay holds up: the stream before the work, the calling thread "
            "before the call, or either (default).",
        ),
    ] = None,
    delay_seed: Annotated[
        str | None,
        typer.Option(metavar="N", help="Which delays there are is drawn from this (default 0)."),
    ] = None,
    delay: Annotated[
        str | None,
        typer.Option(
            metavar="NS",
            help="Delay warps inside kernels, by up to so many nanoseconds, before every other "
            "instruction that moves memory or synchronises, drawn by lot.",
        ),
    ] = None,
    delay_min: Annotated[
        str | None, typer.Option(metavar="NS", help="The shortest of random delays (default 0).")
    ] = None,
    delay_mode: Annotated[
        str | None,
        typer.Option(
            metavar="random|fixed|cluster",
            help="How long --delay is: for each warp another (default), the same for all, or "
            "that for one block of each cluster and nothing for the others.",
        ),
    ] = None,
    delay_patterns: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES", help="Which instructions instead, such as UTMALDG,SYNCS, or * for all."
        ),
    ] = None,
    delay_kernel: Annotated[
        str | None,
        typer.Option(metavar="REGEX", help="Only in kernels whose mangled name matches."),
    ] = None,
    delay_load: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Exactly the delays of a file, as --delay-dump writes."),
    ] = None,
    delay_dump: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write what was late to a file, as JSON."),
    ] = None,
    stall_ms: Annotated[
        str | None,
        typer.Option(metavar="MS", help="Give an epoch up after waiting so long (default 10000)."),
    ] = None,
    timeout: Annotated[
        str | None,
        typer.Option(
            metavar="SECONDS",
            help="End a program that runs for longer, and say what it was waiting for.",
        ),
    ] = None,
    verbose: Annotated[
        bool | None, typer.Option("--verbose", help="Let the recorder say what it does.")
    ] = None,
    sim: Annotated[
        bool, typer.Option("--sim", help="Run on the simulator instead of a GPU.")
    ] = False,
    require_complete: Annotated[
        bool,
        typer.Option(
            "--require-complete",
            help="End with status 2, and say why, where something is missing from the recording.",
        ),
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", "-f", help="Replace a run directory that is there.")
    ] = False,
    json: Annotated[
        bool, typer.Option("--json", help="Say what was recorded as JSON, on standard error.")
    ] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Do not say what was recorded.")
    ] = False,
) -> int:
    """Run a program and record what it does to GPU memory.

    Exit status: the program's, 128+n where signal n ended it, 124 where --timeout did; 2 where it
    could not be run, or --require-complete finds something missing, which is said in one line.
    Every option can also be set as a variable:
    --ring-bytes 1G is TT_RING_BYTES=1G.
    """
    from ttanalyze import options
    from ttanalyze.verbs.record.run import record as run
    from ttanalyze.verbs.record.run import say

    given: dict[str, object] = {
        "epoch": ";".join(epoch) if epoch else None,
        "regions": regions,
        "snapshot_every": snapshot_every,
        "retain": retain,
        "overwrite": overwrite,
        "ring_bytes": ring_bytes,
        "compress": compress,
        "max_disk": max_disk,
        "deterministic": deterministic,
        "deps": deps,
        "events": events,
        "cpu_callstack": cpu_callstack,
        "kernel_events": kernel_events,
        "params": params,
        "replayable": replayable,
        "kernel": kernel,
        "max_per_kernel": max_per_kernel,
        "crash_safe": crash_safe,
        "nvtx": nvtx,
        "timeline": timeline,
        "graph_stamps": graph_stamps,
        "control": control,
        "launch_delay": launch_delay,
        "launch_delay_mode": launch_delay_mode,
        "delay_seed": delay_seed,
        "delay": delay,
        "delay_min": delay_min,
        "delay_mode": delay_mode,
        "delay_patterns": delay_patterns,
        "delay_kernel": delay_kernel,
        "delay_load": delay_load,
        "stall_ms": stall_ms,
        "timeout": timeout,
        "verbose": verbose,
    }
    variables = options.variables(given, os.environ)
    if delay_dump is not None:
        options.check_late("--delay-dump", {**os.environ, **variables})
        check_output(delay_dump)
    done = run(command, out, variables, sim=sim, force=force, warn=say)
    if delay_dump is not None and done.processes:
        from ttanalyze.core.delays import of_run
        from ttanalyze.errors import Error

        try:
            write_file(delay_dump, of_run(done.out).to_json())
        except Error as e:
            say(f"no {delay_dump}: {e}")
    if json:
        print(done.to_json(), file=sys.stderr)
    elif not quiet:
        say(done.line(command[0]))
    if require_complete and done.incomplete:
        say(f"{done.out} is not complete: {done.incomplete}")
        return ERROR
    return done.status
