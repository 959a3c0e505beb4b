"""The capture kernels by themselves, beside kernels that only read or copy: bench/kernels.cu."""

from __future__ import annotations

import functools
import operator
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from bench.bed import (
    GIB,
    PROGRAMS,
    ROOT,
    Bed,
    Command,
    ProgramError,
    Result,
    SkipError,
    by_turns,
    median,
    torch_python,
)
from bench.figures import Figure, Quantity

SOURCE = ROOT / "bench" / "kernels.cu"
CAPTURE = ROOT / "interpose" / "capture"
FOLDERS = (CAPTURE, *(ROOT / "interpose" / name for name in ("include", "util")))
# What cuda-time-travel's capture was measured at on an H200: GB/s.
PREDECESSOR = {"snapshot": 0.05, "delta": 0.03}


def measure(bed: Bed) -> Result:
    if bed.sim:
        raise SkipError("bandwidths need a GPU")
    program = build(bed)
    capture = CAPTURE / "capture.ptx"
    command: Command = [program, "--runs", str(bed.pick(11, 5, 1)), "--no-check", capture]
    checked = bed.quick or bed.answer([program, "--runs", "1", capture], bed.bare())["ok"]
    if not checked:
        raise ProgramError("the capture kernels gave wrong results")
    ways: dict[str, Callable[[], dict[str, Any]]] = {
        "kernels": partial(bed.answer, command, bed.bare())
    }
    missing = None
    try:
        ask: Command = [torch_python(bed), PROGRAMS / "hash_tensor.py", "--runs", "11"]
        bed.answer([*ask, "--gib", "1"], bed.bare())  # whether there is such a thing
        ways["torch"] = partial(bed.answer, [*ask, "--gib", "8"], bed.bare())
    except (SkipError, ProgramError) as e:
        missing = f"torch.hash_tensor: {e}"
    samples = by_turns(bed, bed.pick(3, 1, 1), ways)
    hashed = samples.get("torch", [])
    return Result(figures(samples["kernels"], hashed, missing), {"samples": samples})


def figures(
    said: Sequence[Mapping[str, Any]], hashed: Sequence[Mapping[str, float]], missing: str | None
) -> list[Figure]:
    """From what kernels.cu printed in each turn, and torch.hash_tensor's TB/s by element."""
    variants = [next(iter(turn["variants"].values())) for turn in said]
    size = said[0]["GiB"] * GIB

    def shared(key: str) -> float:
        return median([turn[key] for turn in said])

    def own(*keys: str) -> float:
        return median([functools.reduce(operator.getitem, keys, turn) for turn in variants])

    digest = Quantity("digest", own("digest_TBps"), "TB/s")
    read = Quantity("read", shared("read_TBps"), "TB/s")
    copy = Quantity("copy", shared("copy_TBps_payload"), "TB/s")
    snapshot = Quantity("snapshot", own("full_snapshot_TBps_payload"), "TB/s")
    delta_us, digest_us = own("delta_us", "2%"), own("digest_us")
    many = "regions_1000_of_4KiB_to_2MiB"
    out = []
    if hashed:
        rates = {name: median([turn[name] for turn in hashed]) for name in hashed[0]}
        best = max(rates, key=lambda name: rates[name])
        peer = Quantity(f"torch.hash_tensor of {best}", rates[best], "TB/s")
        out.append(Figure("digest-hash", digest.value / peer.value, [digest], [peer], missing))
    out += [
        Figure("digest-read", digest.value / read.value, [digest], [read]),
        Figure(
            "digest-many",
            own(many, "digest_us") / own(many, "read_us"),
            [
                Quantity("digest", own(many, "digest_us"), "µs"),
                Quantity("of", own(many, "MiB"), "MiB"),
            ],
            [
                Quantity("a plain read", own(many, "read_us"), "µs"),
                Quantity("a launch for each", own(many, "one_by_one_us"), "µs"),
            ],
        ),
        Figure("snapshot", snapshot.value / copy.value, [snapshot], [copy]),
        Figure(
            "delta",
            delta_us / digest_us,
            [Quantity("delta", delta_us / 1000, "ms")],
            [Quantity("digest", digest_us / 1000, "ms")],
        ),
    ]
    captured = {"snapshot": snapshot.value * 1000, "delta": size / delta_us / 1000}
    for name, theirs in PREDECESSOR.items():
        quantity = Quantity(name, captured[name], "GB/s")
        peer = Quantity("cuda-time-travel", theirs, "GB/s")
        note = "its figure is quoted, not measured in this run"
        figure = Figure(f"predecessor-{name}", captured[name] / theirs, [quantity], [peer], note)
        out.append(figure)
    return out


def build(bed: Bed) -> Path:
    """kernels.cu, compiled for the GPU that is here. Raises SkipError without nvcc."""
    nvcc = next(filter(None, map(shutil.which, ("nvcc", "/usr/local/cuda/bin/nvcc"))), None)
    if not nvcc:
        raise SkipError("no nvcc here to build bench/kernels.cu with")
    target = bed.build / "kernels"
    sources = [SOURCE, *(header for folder in FOLDERS for header in folder.glob("*.h"))]
    if target.exists() and all(s.stat().st_mtime < target.stat().st_mtime for s in sources):
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    # Not -I, which would find our cuda.h in place of the toolkit's.
    quoted = [f"-Xcompiler=-iquote,{folder}" for folder in FOLDERS]
    command = [nvcc, "-O2", "-std=c++17", f"-arch={architecture()}", *quoted]
    done = subprocess.run(
        [*command, str(SOURCE), "-o", str(target)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise ProgramError(f"nvcc: {done.stderr.strip()[-300:]}")
    return target


def architecture() -> str:
    """Such as sm_90, of the first GPU; compute_75, which any runs, where it can't be told."""
    tool = shutil.which("nvidia-smi")
    if not tool:
        return "compute_75"
    done = subprocess.run(
        [tool, "--query-gpu=compute_cap", "--format=csv,noheader"],
        capture_output=True,
        text=True,
        env=os.environ,
        check=False,
    )
    version = done.stdout.partition("\n")[0].strip().replace(".", "")
    return f"sm_{version}" if done.returncode == 0 and version.isdigit() else "compute_75"
