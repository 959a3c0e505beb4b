"""The examples as whole processes, bare and recorded, and how fast their runs verify."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from functools import partial

from bench.bed import (
    ROOT,
    Bed,
    Command,
    ProgramError,
    Result,
    by_turns,
    last_line,
    median,
    process_of,
)
from ttanalyze.format import open_run
from ttanalyze.output import text
from ttanalyze.util import libraries
from ttanalyze.verbs.verify import verify

NAMES = ("vecadd", "pipeline", "training", "async", "graph")
EPOCHS = ("none", "sync", "launch")


def measure(bed: Bed) -> Result:
    """data: rows, a table with its head first; times are medians, in seconds."""
    build = bed.build.parent / "examples"
    library = libraries.simulator() / "libcuda.so.1"
    make = ["make", "-s", "-C", str(ROOT / "examples"), f"BUILD={build}", f"LIBCUDA={library}"]
    done = subprocess.run(make, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ProgramError(f"make: {last_line(done.stderr)}")
    head = ["example", "bare", *(f"epoch={e}" for e in EPOCHS)]
    rows = [[*head, "epochs", "read", "stored", "verified"]]
    size = bed.pick(1 << 18, 1 << 18, 1 << 12)
    for name in NAMES[:2] if bed.quick else NAMES:
        command: Command = [build / name, "--size", str(size), "--steps", "20"]
        rows.append([name, *_row(bed, command, bed.pick(3, 1, 1))])
    return Result([], {"rows": rows})


def _row(bed: Bed, command: Command, repeat: int) -> list[str]:
    ways: dict[str, Callable[[], float]] = {"bare": partial(_seconds, bed, command, bed.bare())}
    for epoch in EPOCHS:
        ways[epoch] = partial(_recorded, bed, command, epoch)
    row = [f"{median(times):.3f}" for times in by_turns(bed, repeat, ways).values()]
    with bed.run_folder() as run:
        bed.run(command, bed.recorded(run, {"epoch": "launch"}))
        epochs = process_of(run).epochs
        report = verify(open_run(run))
        rate = report.bytes_read / max(report.seconds, 1e-6)
    row += [str(len(epochs)), text.size(int(epochs["bytes_read"].sum()))]
    return [*row, text.size(int(epochs["bytes_stored"].sum())), f"{text.size(int(rate))}/s"]


def _recorded(bed: Bed, command: Command, epoch: str) -> float:
    with bed.run_folder() as run:
        return _seconds(bed, command, bed.recorded(run, {"epoch": epoch}))


def _seconds(bed: Bed, command: Command, environment: dict[str, str]) -> float:
    began = time.perf_counter()
    bed.run(command, environment)
    return time.perf_counter() - began
