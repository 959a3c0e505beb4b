"""replay: how fast memory is restored, beside copies from pinned memory, and how long it takes from
the start of a process until a launch on 1 GiB was done again and compared; and what restoring was
made of, of which mapping comes before it.

Each sample is a Python process of its own. The run's files were read before, so that they are in
memory. The time that the driver takes to make a context is not counted.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from bench.bed import ROOT, Bed, ProgramError, Result, last_line, median
from bench.figures import Figure, Quantity

SIZE = 1 << 30  # bytes: two vectors
ITEM = 4
REPLAY = """
import sys, time
began = time.perf_counter()
from ttanalyze.graph import Device, driver, simulator
from ttanalyze.model import open_run
from ttanalyze.replay.plan import chosen
from ttanalyze.replay.replay import Replay
from ttanalyze.graph import loading, places
from ttanalyze.model import data
sim = sys.argv[2] == "sim"
times = {"import": time.perf_counter() - began}
parts = dict.fromkeys(("map", "clear", "read in", "check", "pin", "read", "wait", "submit"), 0.0)
def timed(of, name, part):
    done = getattr(of, name)
    def call(*arguments):
        at = time.perf_counter()
        try:
            return done(*arguments)
        finally:
            parts[part] += time.perf_counter() - at
    setattr(of, name, call)
timed(places.Mapped, "__init__", "map")
timed(places.Places, "_clear", "clear")
timed(loading.Loader, "load", "read in")
timed(places.Places, "_check", "check")
timed(loading._Slot, "__init__", "pin")  # from here on of all threads together
timed(data.DataReader, "fill", "read")
timed(loading._Slot, "wait", "wait")
timed(loading._Slot, "copy", "submit")
def lap(name, begin):
    times[name] = time.perf_counter() - begin
    return time.perf_counter()
at = time.perf_counter()
process = open_run(sys.argv[1]).process(0)
(number,) = chosen(process)
at = lap("plan", at)
device = Device(0, simulator() if sim else driver())
at = lap("context", at)
replay = Replay(process, number, device)
at = lap("load", at)
replay.restore()
at = lap("restore", at)
times |= {f"restore: {name}": spent for name, spent in parts.items()}
replay.submit()
device.synchronize()
at = lap("launch", at)
assert all(finding.same for finding in replay.compare())
at = lap("compare", at)
times["all"] = time.perf_counter() - began
times["bytes"] = replay.bytes
from ttanalyze.graph.memory import DeviceBuffer, Pinned
from ttanalyze.graph.work import Copy
size = replay.bytes // 4
pinned, buffer = Pinned(size, device), DeviceBuffer(size, device)
copy = Copy(buffer.address, pinned.address, size, False, True)
copy.submit(device, device.stream.handle)
device.synchronize()
at = time.perf_counter()
for _ in range(4):
    copy.submit(device, device.stream.handle)
device.synchronize()
lap("copy", at)
import json
print(json.dumps(times))
"""


def measure(bed: Bed) -> Result:
    """data: seconds by phase, of each sample."""
    size = bed.pick(SIZE, SIZE // 4, SIZE // 1024)
    with bed.run_folder() as run:
        _record(bed, run, size)
        _sample(bed, run)  # reads the files, and has our kernels compiled
        samples = [_sample(bed, run) for _ in range(bed.pick(5, 2, 1))]
    of = {name: median([sample[name] for sample in samples]) for name in samples[0]}
    rates = {name: of["bytes"] / of[name] / 1e9 for name in ("restore", "copy")}
    cold = of["all"] - of["context"]
    figures = [
        Figure(
            "replay-restore",
            rates["restore"] / rates["copy"],
            [Quantity("restored", rates["restore"], "GB/s"), *_split(of)],
            [Quantity("pinned copy", rates["copy"], "GB/s")],
        ),
        Figure("replay-cold", 1e3 * cold, [Quantity("memory", of["bytes"] / (1 << 20), "MiB")]),
    ]
    return Result(figures, {"bytes": size, "seconds": samples})


def _split(seconds: dict[str, float]) -> list[Quantity]:
    """What restoring took, part by part: pin, read, wait and submit are sums over all threads."""
    names = (name for name in seconds if name.startswith("restore: "))
    return [Quantity(name.removeprefix("restore: "), 1e3 * seconds[name], "ms") for name in names]


def _record(bed: Bed, run: Path, size: int) -> None:
    """vecadd on two vectors that take so many bytes."""
    built = bed.build / "examples"
    make = ["make", "-s", "-C", str(ROOT / "examples"), f"BUILD={built}", str(built / "vecadd")]
    library = ROOT / "ttanalyze" / "lib" / "sim" / "libcuda.so.1"
    _run([*make, f"LIBCUDA={library}"], bed)
    command = [str(built / "vecadd"), "--size", str(size // 2 // ITEM), "--steps", "1"]
    done = subprocess.run(
        command,
        env=bed.recorded(run, {"replayable": "1"}),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    if done.returncode:
        raise ProgramError(f"vecadd: {last_line(done.stderr)}")


def _sample(bed: Bed, run: Path) -> dict[str, float]:
    began = time.perf_counter()
    where = "sim" if bed.sim else "gpu"
    times: dict[str, Any] = json.loads(_run([sys.executable, "-c", REPLAY, str(run), where], bed))
    return times | {"process": time.perf_counter() - began}


def _run(command: list[str], bed: Bed) -> str:
    done = subprocess.run(
        command, cwd=ROOT, env=bed.bare(), capture_output=True, text=True, check=False, timeout=60
    )
    if done.returncode:
        raise ProgramError(f"{Path(command[0]).name}: {last_line(done.stderr)}")
    return done.stdout
