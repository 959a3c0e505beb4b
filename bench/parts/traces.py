"""What traces of instructions cost the kernels: times on the GPU, traced and bare.

Each program runs bare, and traced in each way. Times are those between two events, without the
processor's work for launches. The ring is large enough for the records of a launch, so no kernel
waits for the disk.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import ttanalyze as tt
from bench.bed import PROGRAMS, Bed, Command, ProgramError, Result, SkipError, median, torch_python
from bench.figures import RATIO, Figure, Quantity
from bench.parts.kernels import architecture
from ttanalyze.format import layout
from ttanalyze.verbs.record.run import sanitizer_library

RING = "8G"
SECONDS = 120  # for each run
WAYS = {  # --way, --kind
    "count": ("patcher", "count"),
    "heartbeat": ("patcher", "heartbeat"),
    "addresses": ("patcher", "addresses"),
    "sanitizer": ("sanitizer", "addresses"),
    "opcode": ("patcher", "opcode"),
    "values": ("patcher", "values"),
    "tma": ("patcher", "tma"),
    "registers": ("patcher", "registers"),
}
BARE = "bare"
CLOSE = (BARE, "heartbeat", "count")  # with a goal near 1: by turns, because processes differ
JUDGED = ("addresses", "sanitizer")
OTHERS = tuple(way for way in WAYS if way not in (*CLOSE, *JUDGED))
TURNS = 3
PAUSE = 300  # ms behind a launch, until its records are stored
SHORT = 50  # without records
PAUSES = {"registers": 1500, **dict.fromkeys(CLOSE, SHORT)}
KERNELS = "^(copy|gemm|reduction)$"
MANY, SOME = (12, 4, 1), (4, 2, 1)  # launches of each kernel: full, quick, simulator

Times = dict[str, list[float]]  # microseconds, by what is timed


@dataclass
class Workload:
    """command: prints the times. options: of `instrument`. kernels: names of those launched.

    failed: ways that are not tried again.
    """

    command: Command
    options: list[str]
    times: dict[str, Times] = field(default_factory=dict)  # by way
    kernels: set[str] = field(default_factory=set)
    failed: set[str] = field(default_factory=set)


def measure(bed: Bed) -> Result:
    """data: slowdowns by way and workload, how far these vary, µs bare, launches not traced."""
    if bed.sim:
        raise SkipError("traces are timed on a GPU")
    data = ("slowdown", "varies", "bare_us", "refused")
    result = Result(data={**{name: {} for name in data}, "record_bytes": None})
    workloads: list[Workload] = []
    try:
        workloads.append(Workload([torch_python(bed), PROGRAMS / "traced.py"], []))
    except SkipError as e:
        result.data["torch"] = str(e)
    result.attempt(lambda: workloads.append(Workload([_built(bed)], ["--kernel", KERNELS])))
    for ways in (CLOSE * bed.pick(TURNS, 1, 1), JUDGED, OTHERS):  # if time is short, the last fail
        for way in ways:
            for workload in workloads:
                failed = len(result.failed)
                if way not in workload.failed:
                    result.attempt(partial(_time, bed, result, workload, way))
                if len(result.failed) > failed:
                    workload.failed.add(way)
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


def _time(bed: Bed, result: Result, workload: Workload, way: str) -> None:
    """Runs the workload in this way, and adds its times to those of earlier runs."""
    counts = bed.pick(*(MANY if way in CLOSE else SOME)), PAUSES.get(way, PAUSE)
    command: Command = [*workload.command, *map(str, counts)]
    times: Times
    if way == BARE:
        times = bed.answer(command, bed.bare(), SECONDS)
    elif WAYS[way][0] == "sanitizer" and not sanitizer_library():
        return
    elif BARE not in workload.times:
        raise ProgramError(f"{way}: there are no times without traces")
    else:
        times = _traced(bed, result, workload, way, command)
    all_times = workload.times.setdefault(way, {})
    for name, more in times.items():
        all_times[name] = all_times.get(name, []) + more
    result.data["varies"].setdefault(way, {}).update(_spread(all_times))
    middle = {name: median(those) for name, those in all_times.items()}
    if way == BARE:
        result.data["bare_us"] |= middle
    for each, of in workload.times.items():
        slow = {name: median(those) / result.data["bare_us"][name] for name, those in of.items()}
        if each != BARE:
            result.data["slowdown"].setdefault(each, {}).update(slow)


def _traced(bed: Bed, result: Result, workload: Workload, way: str, command: Command) -> Times:
    inserted, kind = WAYS[way]
    options = workload.options
    if inserted == "sanitizer" and not options and workload.kernels:
        # else it changes the code of each kernel of PyTorch and cuBLAS, which takes minutes
        options = ["--kernel", f"^({'|'.join(map(re.escape, sorted(workload.kernels)))})$"]
    with bed.run_folder() as run:
        given = ["--way", inserted, "--kind", kind, "--ring-bytes", RING, *options]
        line: Command = [sys.executable, "-m", "ttanalyze", "instrument", "-q", *given, "-o", run]
        times: Times = bed.answer([*line, "--", *command], bed.bare(), SECONDS)
        opened = tt.open(run)
        workload.kernels |= set(opened.traced["kernel"].dropna())
        launches = opened.processes[0].traced
        refused = launches["refused"] != layout.REFUSED_TRACES.index("none")
        result.data["refused"][f"{way} {', '.join(times)}"] = [int(refused.sum()), len(launches)]
        if refused.all():
            raise ProgramError(f"{way}: no launch is traced")
        if way == "addresses" and "copy" in times:
            result.data["record_bytes"] = _record_bytes(run)
    return times


def _spread(all_times: Times) -> dict[str, float]:
    """Half of the distance from the shortest to the longest time, as a share of the median."""
    return {
        name: (max(those) - min(those)) / 2 / median(those) for name, those in all_times.items()
    }


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
