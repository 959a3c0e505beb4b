"""patching: what the load of a module costs where its kernels are to have delays.

The kernels are those that the patcher is tested with, for an H100 or H200: loops, calls, atomics,
matrix products, bulk copies, clusters. Every instruction that can be late gets an empty detour,
which is more than delays before the built-in points are.
"""

from __future__ import annotations

from bench.bed import ROOT, Bed, ProgramError, Result, median
from bench.figures import Figure, Quantity

CUBIN = ROOT / "tests" / "data" / "sass" / "patch_90a.cubin"
INSTRUCTIONS = 10_000


def measure(bed: Bed) -> Result:
    """data: instructions, moved, and ms of each run over the cubin."""
    parts = [f"sass/{name}.c" for name in ("cubin", "code", "blocks", "rebuild", "patch")]
    program = bed.program("patching", *parts)
    said = bed.answer([program, CUBIN, str(bed.pick(201, 11, 3))], bed.bare())
    if said["moved"] < said["instructions"] / 2:
        raise ProgramError(f"only {said['moved']} of {said['instructions']} can be late")
    ms = median(said["ms"]) * INSTRUCTIONS / said["instructions"]
    ours = [Quantity("moved", 100 * said["moved"] / said["instructions"], "%")]
    return Result([Figure("patch-load", ms, ours)], said)
