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

SIZES = {"1 GiB": 1 << 30, "2 GiB": 2 << 30, "8 GiB": 8 << 30}  # bytes: two vectors
ITEM = 4
REPLAY = """
import sys, time
began = time.perf_counter()
from ttanalyze.gpu import Device, driver, simulator
from ttanalyze.format import open_run
from ttanalyze.verbs.replay.plan import choice
from ttanalyze.verbs.replay.replay import Replay
from ttanalyze.gpu import loading
from ttanalyze.gpu.rebuild import address_map
from ttanalyze.format import contents
sim = sys.argv[2] == "sim"
times = {"import": time.perf_counter() - began}
parts = dict.fromkeys(("map", "clear", "find", "list", "read", "copy again", "check"), 0.0)
def timed(of, name, part):
    done = getattr(of, name)
    def call(*arguments):
        at = time.perf_counter()
        try:
            return done(*arguments)
        finally:
            parts[part] += time.perf_counter() - at
    setattr(of, name, call)
timed(address_map.Mapped, "__init__", "map")
timed(address_map.AddressMap, "_clear", "clear")
timed(contents, "snapshot_all", "find")
timed(loading._Pieces, "__init__", "list")
timed(loading, "_together", "read")
timed(loading.Loader, "_copy", "copy again")
timed(address_map.AddressMap, "_check", "check")
def lap(name, begin):
    times[name] = time.perf_counter() - begin
    return time.perf_counter()
at = time.perf_counter()
process = open_run(sys.argv[1]).process(0)
(number,) = choice(process)[0]
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
from ttanalyze.gpu.memory import DeviceBuffer, Pinned
from ttanalyze.gpu.work import Copy
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
    """data: by size, seconds by phase of each sample, and the bytes of memory."""
    divide, count = bed.pick((1, 5), (4, 2), (1024, 1))
    samples = {name: _samples(bed, size // divide, count) for name, size in SIZES.items()}
    first, *_, last = medians = [_medians(of) for of in samples.values()]
    cold = first["all"] - first["context"]
    figures = [
        Figure(
            "replay-restore",
            _rate(last, "restore") / _rate(last, "copy"),
            [
                Quantity("restored", _rate(last, "restore"), "GB/s"),
                *_split(last),
                *(
                    Quantity(f"of {name}", _rate(of, "restore"), "GB/s")
                    for name, of in zip(SIZES, medians[:-1], strict=False)
                ),
            ],
            [Quantity("pinned copy", _rate(last, "copy"), "GB/s")],
        ),
        Figure("replay-cold", 1e3 * cold, [Quantity("memory", first["bytes"] / (1 << 20), "MiB")]),
    ]
    return Result(figures, samples)


def _samples(bed: Bed, size: int, count: int) -> list[dict[str, float]]:
    with bed.run_folder() as run:
        _record(bed, run, size)
        _sample(bed, run)  # reads the files, and has our kernels compiled
        return [_sample(bed, run) for _ in range(count)]


def _medians(samples: list[dict[str, float]]) -> dict[str, float]:
    return {name: median([sample[name] for sample in samples]) for name in samples[0]}


def _rate(of: dict[str, float], phase: str) -> float:
    """GB/s."""
    return of["bytes"] / of[phase] / 1e9


def _split(seconds: dict[str, float]) -> list[Quantity]:
    """What restoring took, part by part."""
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
        timeout=300,
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
