"""What the tests of recordings share, on the simulator and on a GPU."""

from __future__ import annotations

import json
import re
import sys
import time
from pathlib import Path

import numpy as np
import numpy.typing as npt

import ttanalyze as tt
from tests import support
from tests.support import Outcome
from ttanalyze.errors import Error
from ttanalyze.format import layout

# Programs that end so suddenly that nothing can be written at the end.
KILLED = ("exit_sigkill", "exit_stack")
# Programs that allow themselves no file of the size that the description of a run has.
UNWRITABLE = ("file_size_limit",)
LARGE, LARGE_BLOCK = 50 << 20, 65536  # of recorder_large_epochs


def compare(name: str, bare: Outcome, recorded: Outcome) -> None:
    """A recorded program does what the bare one did. The recorder may add lines of its own to
    standard error, and those begin with its name.
    """
    assert recorded.stdout == bare.stdout
    assert recorded.status == bare.status
    own = re.compile("^ttanalyze: .*\n", re.M)
    assert own.sub("", recorded.stderr) == own.sub("", bare.stderr)


def check_run(name: str, run: Path) -> None:
    """The run that a program of support.all_names() leaves opens and verifies."""
    if not support.uses_context(name):
        assert not run.exists()
        return
    if name in UNWRITABLE:
        assert not (run / "run.json").exists()
        return
    opened = tt.open(run)
    assert len(opened.processes) == (2 if name == "exec_self" else 1)
    assert (run / "run.json").exists()
    if name not in KILLED:
        ends = {"complete", "signal"} | ({"failed"} if name.startswith("fault_") else set())
        assert {p.info["status"] for p in opened.processes} <= ends
        check_stored(opened)
        assert json.loads((run / "manifest.json").read_text()) == opened.manifest()


def check_stored(run: tt.Run) -> None:
    """What is stored is what was recorded, though maybe not all that was to be."""
    try:
        report = tt.verify(run)
    except Error as e:
        if "nothing to compare" not in str(e):
            raise
    else:
        assert not report.differences, report.to_json()


def wait_for_epochs(run: Path, count: int) -> None:
    """Waits until so many are on disk: the program does not wait for that."""
    epochs, until = run / "p0" / "epochs.bin", time.monotonic() + 60
    size = layout.HEADER_SIZE + count * layout.EPOCH.itemsize
    while not epochs.exists() or epochs.stat().st_size < size:
        assert time.monotonic() < until
        time.sleep(0.005)


def noise(size: int, seed: int) -> npt.NDArray[np.uint64]:
    """As tests/programs/recorder_large_epochs.c makes it."""
    words = np.uint64(seed << 32) | np.arange(size // 8, dtype=np.uint64)
    words = words * np.uint64(0x9E3779B97F4A7C15)
    out: npt.NDArray[np.uint64] = words ^ (words >> np.uint64(29))
    return out


def large_contents() -> list[npt.NDArray[np.uint64]]:
    """What tests/programs/recorder_large_epochs.c has in its three epochs."""
    odd = [9 if n % 270 == 31 else 7 for n in range(LARGE // LARGE_BLOCK)]
    blocks = [
        noise(LARGE_BLOCK, odd[n] if n % 2 else 1000 + n) for n in range(LARGE // LARGE_BLOCK)
    ]
    return [noise(LARGE, 1), noise(LARGE, 2), np.concatenate(blocks)]


def record(command: list[str], environment: dict[str, str], run: Path, *options: str) -> Outcome:
    """``ttanalyze record`` with options."""
    return support.ttanalyze("record", "-o", run, *options, "--", *command, environment=environment)


def random_floats(count: int, seed: int) -> npt.NDArray[np.float32]:
    """The test data of the examples: their next_random, from a seed."""
    out = np.empty(count, np.float32)
    state = seed
    for i in range(count):
        state = (state * 1664525 + 1013904223) & 0xFFFFFFFF
        out[i] = np.float32(state >> 8) * np.float32(1 / 16777216)
    return out


def epoch_after_copy(run: tt.Run, copy: int) -> int:
    """The first epoch that was cut after the program's Nth copy (from 0)."""
    copies = run.events[run.events["kind"] == "copy"].sort_values("seq")
    seq = int(copies["seq"].iloc[copy])
    return int(run.epochs.loc[run.epochs["seq"] > seq, "epoch"].min())


FILLS = """
import ctypes, os, sys, time
driver = ctypes.CDLL("libcuda.so.1")
shim = ctypes.CDLL(None)
context = ctypes.c_void_p()
assert driver.cuInit(0) == 0
assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert driver.cuCtxSetCurrent(context) == 0
live = []
for step in sys.argv[1:]:
    if step == "drain":
        assert shim.tt_dump() == 0
        continue
    if step == "go":
        open(os.environ["FAILING_UNTIL"], "w").close()
        continue
    if step == "committed":
        epochs = os.environ["TT_OUT"] + "/p0/epochs.bin"
        until = time.monotonic() + 60
        while not os.path.exists(epochs) or os.path.getsize(epochs) <= 64:
            assert time.monotonic() < until
            time.sleep(0.005)
        continue
    if step == "end":
        assert driver.cuDevicePrimaryCtxRelease_v2(0) == 0
        break
    count, size, value = map(int, step.split(","))
    for _ in range(count):
        if size:
            p = ctypes.c_uint64()
            assert driver.cuMemAlloc_v2(ctypes.byref(p), ctypes.c_size_t(size)) == 0
            live.append((p, ctypes.c_size_t(size)))
        for p, bytes in live:
            assert driver.cuMemsetD8_v2(p, ctypes.c_ubyte(value), bytes) == 0
        assert driver.cuCtxSynchronize() == 0
"""


def fills(*steps: str) -> list[str]:
    """A program that COUNT times allocates SIZE bytes, sets all its memory to VALUE, and waits.

    A step is COUNT,SIZE,VALUE; or "drain": the program goes on when all epochs are on disk;
    or "committed": when the first one is; or "end": the context ends before the program; or
    "go": calls that wait for the file FAILING_UNTIL (see failing.c) go on.
    """
    return [sys.executable, "-c", FILLS, *steps]


def record_example(name: str, built: Path, path: Path, *options: str) -> Path:
    """Records a program of examples/ on the simulator and returns the run directory."""
    command = support.command(f"example-{name}", built)
    done = record(command, support.simulator_environment(), path, "--sim", "-q", *options)
    assert done.status == 0, done.stderr
    return path
