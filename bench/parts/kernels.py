"""The capture kernels by themselves, beside kernels that only read or copy: bench/kernels.cu."""

from __future__ import annotations

import os
import shutil
import subprocess
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
    torch_python,
)
from bench.figures import Figure, Quantity

SOURCE = ROOT / "bench" / "kernels.cu"
CAPTURE = ROOT / "interpose" / "capture"
# What cuda-time-travel's capture was measured at on an H200: GB/s.
PREDECESSOR = {"snapshot": 0.05, "delta": 0.03}


def measure(bed: Bed) -> Result:
    if bed.sim:
        raise SkipError("bandwidths need a GPU")
    checks = ["--no-check"] if bed.quick else []
    runs = str(bed.pick(21, 7, 1))
    command: Command = [build(bed), "--runs", runs, *checks, CAPTURE / "capture.ptx"]
    said: dict[str, Any] = bed.answer(command, bed.bare(), 180)
    if not said["ok"]:
        raise ProgramError("the capture kernels gave wrong results")
    hashed, missing = _hash_tensor(bed, said["GiB"])
    return Result(figures(said, hashed, missing), {"kernels": said, "hash_tensor": hashed})


def figures(said: dict[str, Any], hashed: dict[str, float], missing: str | None) -> list[Figure]:
    """From what kernels.cu printed and torch.hash_tensor's TB/s by element."""
    (ours,) = said["variants"].values()
    size = said["GiB"] * GIB
    digest = Quantity("digest", ours["digest_TBps"], "TB/s")
    read = Quantity("read", said["read_TBps"], "TB/s")
    copy = Quantity("copy", said["copy_TBps_payload"], "TB/s")
    snapshot = Quantity("snapshot", ours["full_snapshot_TBps_payload"], "TB/s")
    restore = Quantity("rewind", ours["restore_TBps_payload"], "TB/s")
    delta_us = ours["delta_us"]["2%"]
    many = ours["regions_1000_of_4KiB_to_2MiB"]
    one = ours["region_of_64KiB"]
    out = []
    if hashed:
        best = max(hashed, key=lambda name: hashed[name])
        peer = Quantity(f"torch.hash_tensor of {best}", hashed[best], "TB/s")
        out.append(Figure("digest-hash", digest.value / peer.value, [digest], [peer], missing))
    out += [
        Figure("digest-read", digest.value / read.value, [digest], [read]),
        Figure(
            "digest-many",
            many["digest_us"],
            [Quantity("of", many["MiB"], "MiB")],
            [Quantity("a launch each", 1000 * one["digest_us"], "µs")],
        ),
        Figure("snapshot", snapshot.value / copy.value, [snapshot], [copy]),
        Figure(
            "delta",
            delta_us / ours["digest_us"],
            [Quantity("delta", delta_us / 1000, "ms")],
            [Quantity("digest", ours["digest_us"] / 1000, "ms")],
        ),
        Figure("restore", restore.value / copy.value, [restore], [copy]),
    ]
    rates = {"snapshot": snapshot.value * 1000, "delta": size / delta_us / 1000}
    for name, theirs in PREDECESSOR.items():
        quantity = Quantity(name, rates[name], "GB/s")
        peer = Quantity("cuda-time-travel", theirs, "GB/s")
        note = "its figure is quoted, not measured in this run"
        figure = Figure(f"predecessor-{name}", rates[name] / theirs, [quantity], [peer], note)
        out.append(figure)
    return out


def build(bed: Bed) -> Path:
    """kernels.cu, compiled for the GPU that is here. Raises SkipError without nvcc."""
    nvcc = next(filter(None, map(shutil.which, ("nvcc", "/usr/local/cuda/bin/nvcc"))), None)
    if not nvcc:
        raise SkipError("no nvcc here to build bench/kernels.cu with")
    target = bed.build / "kernels"
    sources = [SOURCE, *CAPTURE.glob("*.h"), *CAPTURE.glob("../format.h")]
    if target.exists() and all(s.stat().st_mtime < target.stat().st_mtime for s in sources):
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    command = [nvcc, "-O2", "-std=c++17", f"-arch={architecture()}", f"-I{CAPTURE}"]
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


def _hash_tensor(bed: Bed, gib: float) -> tuple[dict[str, float], str | None]:
    try:
        python = torch_python(bed)
        command: Command = [python, PROGRAMS / "hash_tensor.py", "--gib", str(gib)]
        said: dict[str, float] = bed.answer(command, bed.bare())
    except (SkipError, ProgramError) as e:
        return {}, f"torch.hash_tensor: {e}"
    return said, None
