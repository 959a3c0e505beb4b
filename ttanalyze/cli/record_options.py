"""The options of `ttanalyze record`, and their help."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

OutOption = Annotated[
    Path | None,
    typer.Option("--out", "-o", metavar="DIR", help="Run directory (default PROGRAM.tt)."),
]
EpochOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="WHEN",
        help="When to capture: sync (default), launch[:N], graph, memcpy, api, none, "
        "kernel:REGEX, graph-node:REGEX and nvtx:REGEX, separated by commas; an expression "
        "is the last of its list. Can be given several times.",
    ),
]
RegionsOption = Annotated[
    str | None, typer.Option(metavar="all|touched", help="Which allocations to look at.")
]
SnapshotEveryOption = Annotated[
    str | None, typer.Option(metavar="K", help="Full snapshot every K epochs (default 64).")
]
RetainOption = Annotated[
    str | None, typer.Option(metavar="N", help="Keep the contents of the last N epochs only.")
]
OverwriteOption = Annotated[
    str | None,
    typer.Option(
        metavar="POLICY",
        help="When the ring is full: backpressure (default), drop-oldest or fail.",
    ),
]
RingBytesOption = Annotated[
    str | None, typer.Option(metavar="SIZE", help="Size of the ring, such as 256M.")
]
CompressOption = Annotated[
    str | None,
    typer.Option(metavar="LEVEL", help="Compress contents with zstd: 1 to 19 (default 0: no)."),
]
MaxDiskOption = Annotated[
    str | None,
    typer.Option(
        metavar="auto|off|SIZE",
        help="When there is no more room, record digests only: auto (default) keeps 5 GiB or a "
        "tenth of the disk free, whichever is more; SIZE bounds the run directory; off: until "
        "the disk is full.",
    ),
]
DeterministicOption = Annotated[
    bool | None, typer.Option("--deterministic", help="Same addresses, same manifest.")
]
DepsOption = Annotated[
    str | None,
    typer.Option(
        metavar="region|device|off",
        help="What waits for a capture: launches that name memory it reads, all that comes "
        "after it, or nothing.",
    ),
]
EventsOption = Annotated[
    bool | None, typer.Option("--events/--no-events", help="Record driver calls.")
]
CpuCallstackOption = Annotated[
    str | None,
    typer.Option(
        metavar="WHOSE",
        help="Record who made each call: python, backtrace (native), mixed (both, in one "
        "stack), auto (python where there is any, else backtrace) or off (default).",
    ),
]
KernelEventsOption = Annotated[
    str | None,
    typer.Option(
        metavar="dedup|full|nostack|off",
        help="Record launches of kernels with call stacks, which `events` then writes once "
        "each (dedup) or with each launch (full), without stacks (nostack), or not at all "
        "(off). Given one of the first two, stacks are recorded as if they were asked for.",
    ),
]
ParamsOption = Annotated[
    bool | None, typer.Option("--params", help="Record the parameters of launches.")
]
ReplayableOption = Annotated[
    bool | None,
    typer.Option(
        "--replayable",
        help="Record launches so that they can be run again, alone: memory before and after "
        "each, its code, what was in force. With it come --deterministic and --params, and no "
        "other epochs unless --epoch asks for them.",
    ),
]
KernelOption = Annotated[
    str | None,
    typer.Option(metavar="REGEX", help="With --replayable: of these kernels (default: all)."),
]
MaxPerKernelOption = Annotated[
    str | None,
    typer.Option(
        metavar="N",
        help="With --replayable: at most so many launches of each kernel (default 3, 0: all).",
    ),
]
CrashSafeOption = Annotated[
    bool | None,
    typer.Option(
        "--crash-safe",
        help="With --replayable: each launch waits until what it finds is on disk, so that one "
        "that crashes can be run again.",
    ),
]
NvtxOption = Annotated[
    bool | None,
    typer.Option("--nvtx/--no-nvtx", help="Record NVTX ranges and marks (default: yes)."),
]
TimelineOption = Annotated[
    str | None,
    typer.Option(
        metavar="cupti|events|off",
        help="Record when the GPU did what calls asked for: with CUPTI, or with events around "
        "calls (default off).",
    ),
]
GraphStampsOption = Annotated[
    str | None,
    typer.Option(
        metavar="REGEX",
        help="Record when kernels of such a name ran inside graphs, by the device's clock; "
        "with events around calls (--timeline events).",
    ),
]
ControlOption = Annotated[
    str | None,
    typer.Option(
        metavar="SETTINGS",
        help="What the program can change with tt_control, as it begins: points=on|off, "
        "stamps=on|off, regions=…, snapshot=N, separated by semicolons.",
    ),
]
LaunchDelayOption = Annotated[
    str | None,
    typer.Option(
        metavar="NS",
        help="Make every other launch, copy or set late by so many nanoseconds, at random, "
        "so that a missing dependency between streams shows.",
    ),
]
LaunchDelayModeOption = Annotated[
    str | None,
    typer.Option(
        metavar="both|stream|host",
        help="What --launch-delay holds up: the stream before the work, the calling thread "
        "before the call, or either (default).",
    ),
]
DelaySeedOption = Annotated[
    str | None,
    typer.Option(metavar="N", help="Which delays there are is drawn from this (default 0)."),
]
DelayOption = Annotated[
    str | None,
    typer.Option(
        metavar="NS",
        help="Delay warps inside kernels, by up to so many nanoseconds, before every other "
        "instruction that moves memory or synchronises, at random.",
    ),
]
DelayMinOption = Annotated[
    str | None, typer.Option(metavar="NS", help="The shortest of random delays (default 0).")
]
DelayModeOption = Annotated[
    str | None,
    typer.Option(
        metavar="random|fixed|cluster",
        help="How long --delay is: for each warp another (default), the same for all, or "
        "that for one block of each cluster and nothing for the others.",
    ),
]
DelayPatternsOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAMES", help="Which instructions instead, such as UTMALDG,SYNCS, or * for all."
    ),
]
DelayKernelOption = Annotated[
    str | None,
    typer.Option(metavar="REGEX", help="Only in kernels whose mangled name matches."),
]
DelayLoadOption = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="Exactly the delays of a file, as --delay-dump writes."),
]
DelayDumpOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Write what was late to a file, as JSON."),
]
StallMsOption = Annotated[
    str | None,
    typer.Option(metavar="MS", help="Give an epoch up after waiting so long (default 10000)."),
]
TimeoutOption = Annotated[
    str | None,
    typer.Option(
        metavar="SECONDS",
        help="End a program that runs for longer, and say what it was waiting for.",
    ),
]
VerboseOption = Annotated[
    bool | None, typer.Option("--verbose", help="Let the recorder say what it does.")
]
SimOption = Annotated[bool, typer.Option("--sim", help="Run on the simulator instead of a GPU.")]
RequireCompleteOption = Annotated[
    bool,
    typer.Option(
        "--require-complete",
        help="End with status 2, and say why, where something is missing from the recording.",
    ),
]
ForceOption = Annotated[
    bool, typer.Option("--force", "-f", help="Replace a run directory that is there.")
]
JsonOption = Annotated[
    bool, typer.Option("--json", help="Say what was recorded as JSON, on standard error.")
]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Do not say what was recorded.")]
