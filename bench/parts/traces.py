"""What traces of instructions cost the kernels: times on the GPU, traced and bare.

Each program runs bare, and traced in each way. Times are those between two events, without the
processor's work for launches. The ring is large enough for the records of a launch, so no kernel
waits for the disk.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import ttanalyze as tt
from bench.bed import PROGRAMS, Bed, Command, ProgramError, Result, SkipError, median, torch_python
from bench.figures import RATIO, Figure, Quantity
from bench.parts.kernels import architecture
from ttanalyze.format import layout
from ttanalyze.verbs.record.run import sanitizer_library

RING = "8G"
SECONDS = 60  # for each run
WAYS = {  # --way, --kind; those with a figure come first, if there is no time for all
    "count": ("patcher", "count"),
    "heartbeat": ("patcher", "heartbeat"),
    "addresses": ("patcher", "addresses"),
    "sanitizer": ("sanitizer", "addresses"),
    "registers": ("patcher", "registers"),
    "opcode": ("patcher", "opcode"),
    "values": ("patcher", "values"),
    "tma": ("patcher", "tma"),
}
PAUSE = 300  # ms behind a launch, until its records are stored
SHORT = 50  # without records
PAUSES = {"registers": 1500, "count": SHORT, "heartbeat": SHORT}
KERNELS = "^(copy|gemm|reduction)$"
QUICK = ("count", "heartbeat")
MANY, SOME = (12, 4, 1), (4, 2, 1)  # launches of each kernel: full, quick, simulator

Times = dict[str, list[float]]  # microseconds, by what is timed


def measure(bed: Bed) -> Result:
    """data: slowdowns by way and workload, how far these vary, µs bare, launches not traced."""
    if bed.sim:
        raise SkipError("traces are timed on a GPU")
    data = ("slowdown", "varies", "bare_us", "refused")
    result = Result(data={**{name: {} for name in data}, "record_bytes": None})
    result.attempt(lambda: _compare(bed, result, [_built(bed)], ["--kernel", KERNELS]))
    try:
        script: Command = [torch_python(bed), PROGRAMS / "traced.py"]
        result.attempt(lambda: _compare(bed, result, script, []))
    except SkipError as e:
        result.data["torch"] = str(e)
    _add_figures(result)
    return result


def _built(bed: Bed) -> Path:
    nvcc = next(filter(None, map(shutil.which, ("nvcc", "/usr/local/cuda/bin/nvcc"))), None)
    if not nvcc:
        raise SkipError("no nvcc here to build bench/programs/traced.cu with")
    target = bed.build / "traced"
    target.parent.mkdir(parents=True, exist_ok=True)
    command = [nvcc, "-O3", f"-arch={architecture()}", "-o", target, PROGRAMS / "traced.cu"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    if done.returncode:
        raise ProgramError(f"nvcc: {done.stderr.strip()[-300:]}")
    return target


def _compare(bed: Bed, result: Result, command: Command, options: list[str]) -> None:
    bare: Times = bed.answer([*command, str(bed.pick(*MANY)), str(SHORT)], bed.bare(), SECONDS)
    result.data["bare_us"] |= {name: median(times) for name, times in bare.items()}
    _add_varies(result, "bare", bare)
    for way, (inserted, kind) in WAYS.items():
        if inserted == "sanitizer" and not sanitizer_library():
            continue
        given = ["--way", inserted, "--kind", kind, "--ring-bytes", RING, *options]
        counts = bed.pick(*(MANY if way in QUICK else SOME)), PAUSES.get(way, PAUSE)
        line = [*command, *map(str, counts)]
        result.attempt(partial(_traced, bed, result, way, given, line, bare))


def _traced(
    bed: Bed, result: Result, way: str, given: list[str], command: Command, bare: Times
) -> None:
    with bed.run_folder() as run:
        line: Command = [sys.executable, "-m", "ttanalyze", "instrument", "-q", *given, "-o", run]
        times: Times = bed.answer([*line, "--", *command], bed.bare(), SECONDS)
        launches = tt.open(run).processes[0].traced
        refused = launches["refused"] != layout.REFUSED_TRACES.index("none")
        result.data["refused"][f"{way} {', '.join(times)}"] = [int(refused.sum()), len(launches)]
        if refused.all():
            raise ProgramError(f"{way}: no launch is traced")
        if way == "addresses" and "copy" in times:
            result.data["record_bytes"] = _record_bytes(run)
    slow = {name: median(those) / median(bare[name]) for name, those in times.items()}
    result.data["slowdown"].setdefault(way, {}).update(slow)
    _add_varies(result, way, times)


def _add_varies(result: Result, way: str, times: Times) -> None:
    """Half of the distance from the shortest to the longest time, as a share of the median."""
    of = {name: (max(those) - min(those)) / 2 / median(those) for name, those in times.items()}
    result.data["varies"].setdefault(way, {}).update(of)


def _record_bytes(run: Path) -> float:
    """Bytes of an address record of the first launch, which is the copy."""
    records = total = 0
    for part in tt.open(run).trace_records(launch=0, kinds=["addresses"]):
        records += len(part)
        total += int((part.heads["tag"].astype("u8") >> 16).sum()) * 8
    return total / records


def _add_figures(result: Result) -> None:
    slow = result.data["slowdown"]
    for way in ("count", "heartbeat"):
        if found := slow.get(way):
            each = [Quantity(name, value, RATIO) for name, value in found.items()]
            result.figures.append(Figure(f"traces-{way}", max(found.values()), each))
    if each := result.data["record_bytes"]:
        result.figures.append(Figure("traces-bytes", each))
    ours, theirs = slow.get("addresses", {}), slow.get("sanitizer", {})
    shared = [name for name in ours if name in theirs]
    if shared:
        result.figures.append(
            Figure(
                "traces-addresses",
                max(ours[name] / theirs[name] for name in shared),
                [Quantity(name, ours[name], RATIO) for name in shared],
                [Quantity(name, theirs[name], RATIO) for name in shared],
            )
        )
