"""The kernel of `record --compress device` by itself, on data of several kinds.

Its speed is that of the kind that it codes slowest, because an epoch may be all of that kind.
"""

from __future__ import annotations

from typing import Any

from bench.bed import (
    PROGRAMS,
    ROOT,
    Bed,
    Command,
    Result,
    SkipError,
    by_turns,
    median,
    torch_python,
)
from bench.figures import RATIO, Figure, Quantity

KERNEL = ROOT / "interpose" / "capture" / "pack.ptx"
WEIGHTS = "weights bfloat16"
SHOWN = ("zeros", "noise", WEIGHTS, "gradients bfloat16", "weights float32", "activations bfloat16")

Sample = dict[str, Any]


def measure(bed: Bed) -> Result:
    if bed.sim:
        raise SkipError("bandwidths need a GPU")
    size = ("--steps", str(bed.pick(40, 20, 4)), "--mib", str(bed.pick(256, 256, 32)))
    command: Command = [torch_python(bed), PROGRAMS / "coder.py", KERNEL, *size]
    ways = {"coder": lambda: bed.answer(command, bed.bare())}
    samples = by_turns(bed, bed.pick(3, 1, 1), ways)["coder"]
    return Result(figures(samples), {"samples": samples})


def figures(samples: list[Sample]) -> list[Figure]:
    """The slowest kind, and the ratio of weights, with those of some kinds beside it."""
    kinds = list(samples[0])
    speed = {kind: median([s[kind]["GBps"] for s in samples]) for kind in kinds}
    ratio = {kind: median([s[kind]["ratio"] for s in samples]) for kind in kinds}
    slowest = min(kinds, key=speed.__getitem__)
    speeds = [Quantity(kind, speed[kind], "GB/s") for kind in SHOWN]
    ratios = [Quantity(kind, ratio[kind], RATIO) for kind in SHOWN if kind != WEIGHTS]
    return [
        Figure("coder-speed", speed[slowest], speeds, note=f"slowest: {slowest}"),
        Figure("coder-ratio", ratio[WEIGHTS], ratios),
    ]
