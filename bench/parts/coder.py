"""The kernel of `record --compress device` by itself, on data of several kinds.

Its speed is that of the kind that it codes slowest, because an epoch may be all of that kind.
nvCOMP's coders code the same where it is installed.
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
OURS = "ours"
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
    speeds, ratios = (
        {
            coder: {kind: median([s[coder][kind][key] for s in samples]) for kind in kinds}
            for coder, kinds in samples[0].items()
        }
        for key in ("GBps", "ratio")
    )
    peers = [name for name in speeds if name != OURS]
    slowest = {coder: min(kinds, key=kinds.__getitem__) for coder, kinds in speeds.items()}
    missing = [] if peers else ["no nvCOMP here"]
    notes = [f"slowest: {', '.join(dict.fromkeys(slowest.values()))}", *missing]
    return [
        Figure(
            "coder-speed",
            speeds[OURS][slowest[OURS]],
            [Quantity(kind, speeds[OURS][kind], "GB/s") for kind in SHOWN],
            [Quantity(name, speeds[name][slowest[name]], "GB/s") for name in peers],
            "; ".join(notes),
        ),
        Figure(
            "coder-ratio",
            ratios[OURS][WEIGHTS],
            [Quantity(kind, ratios[OURS][kind], RATIO) for kind in SHOWN if kind != WEIGHTS],
            [Quantity(name, ratios[name][WEIGHTS], RATIO) for name in peers],
        ),
    ]
