"""What a launch costs the host: bare, recorded, and under NVIDIA's profiling interface."""

from __future__ import annotations

import glob
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from bench.bed import Bed, Command, ProgramError, Result, by_turns, median
from bench.figures import Figure, Quantity

Sample = dict[str, Any]
ENTRIES = {"stubs": "through the stubs", "cupti": "through CUPTI"}
PEERS = (
    ("launch-callback", ("recorded",), "CUPTI callback"),
    ("launch-timed", ("timed by CUPTI", "timed by events"), "CUPTI activity"),
)
KEYS = ("median_ns", "p99_ns", "p999_ns", "loop_ns")


def measure(bed: Bed) -> Result:
    program = bed.program("latency")
    command: Command = [program, "--launches", str(bed.pick(25_600, 12_800, 5_000))]
    ways: dict[str, Callable[[], Sample]] = {
        "bare": partial(bed.answer, command, bed.bare()),
        "recorded": partial(_recorded, bed, command),
        "timed by CUPTI": partial(_recorded, bed, command, timeline="cupti"),
        "timed by events": partial(_recorded, bed, command, timeline="events"),
    }
    if not bed.sim:  # it has no stubs and reports no calls
        ways |= {name: partial(_let_in, bed, command, entry) for entry, name in ENTRIES.items()}
    missing = None
    try:
        library, home = build_cupti(bed)
        for mode in ("callback", "activity"):
            way = partial(_cupti, bed, command, library, home, mode)
            way()
            ways[f"CUPTI {mode}"] = way
    except ProgramError as e:
        missing = str(e)
    samples = by_turns(bed, bed.pick(21, 3, 3), ways)
    bare = samples["bare"]
    # Through the recorder and past it, or with the callback and without, in one process.
    added: dict[str, dict[str, float]] = {
        name: _less([s["program"] for s in samples[name]], [s["driver"] for s in samples[name]])
        for name in ("recorded", "CUPTI callback")
        if name in samples
    }
    for name in ways.keys() - {"bare"} - added.keys():
        added[name] = _less([s["program"] for s in samples[name]], [s["program"] for s in bare])
    driver = {key: median([s["driver"][key] for s in samples["recorded"]]) for key in KEYS}
    figures = []
    for target, key in (("launch-median", "median_ns"), ("launch-p999", "p999_ns")):
        ours = [Quantity("bare", driver[key], "ns")]
        if key == "median_ns":
            ours.append(Quantity("over the whole loop", added["recorded"]["loop_ns"], "ns"))
            ours += [Quantity(n, added[n][key], "ns") for n in ENTRIES.values() if n in added]
        peers = [Quantity(n, of[key], "ns") for n, of in added.items() if n.startswith("CUPTI")]
        figures.append(Figure(target, added["recorded"][key], ours, peers, missing))
    cost = {name: of["median_ns"] for name, of in added.items()}
    for target, names, peer in PEERS:
        if peer in cost:
            ours = [Quantity(n, cost[n], "ns") for n in names]
            peers = [Quantity(peer, cost[peer], "ns")]
            figures.append(Figure(target, cost[names[0]] / cost[peer], ours, peers))
    return Result(figures, {"bare": driver, "added": added, "samples": samples, "cupti": missing})


def _less(them: list[Sample], others: list[Sample]) -> dict[str, float]:
    """Medians of what the one took longer than the other."""
    pairs = list(zip(them, others, strict=True))
    return {key: median([a[key] - b[key] for a, b in pairs]) for key in KEYS}


def _recorded(bed: Bed, command: Command, **options: str) -> Sample:
    with bed.run_folder() as run:
        sample: Sample = bed.answer(command, bed.recorded(run, {"epoch": "none", **options}))
        return sample


def _let_in(bed: Bed, command: Command, entry: str) -> Sample:
    with bed.run_folder() as run:
        sample: Sample = bed.answer(command, bed.let_in(run, entry, {"epoch": "none"}))
        return sample


def _cupti(bed: Bed, command: Command, library: Path, home: str, mode: str) -> Sample:
    environment = bed.bare(CUDA_INJECTION64_PATH=str(library), LD_PRELOAD=str(library))
    environment["BENCH_CUPTI"] = mode
    others = environment.get("LD_LIBRARY_PATH")
    environment["LD_LIBRARY_PATH"] = ":".join(filter(None, [home, others]))
    sample: Sample = bed.answer(command, environment)
    return sample


def build_cupti(bed: Bed) -> tuple[Path, str]:
    """The library for the driver to load, and the folder of CUPTI. Raises ProgramError."""
    if bed.sim:
        raise ProgramError("no CUPTI on the simulator")
    headers = _first(["cupti.h"], "include")
    home = _first(["libcupti.so"], "lib64") or _first(["libcupti.so"], "lib")
    if not headers or not home:
        raise ProgramError("no CUPTI here to compare with")
    driver = _first(["cuda.h"], "include") or headers
    link = [f"-L{home}", "-lcupti"]
    return bed.library("cupti", [Path(headers), Path(driver)], link), home


def _first(names: list[str], kind: str) -> str | None:
    """A toolkit's folder of this kind that has the files."""
    homes = [os.environ.get("CUDA_HOME", ""), "/usr/local/cuda", *glob.glob("/usr/local/cuda-*")]
    homes += [f"{home}/extras/CUPTI" for home in homes if home]
    homes += [os.path.join(p, "nvidia", package) for p in sys.path for package in PACKAGES if p]
    for home in filter(None, homes):
        if all(os.path.exists(os.path.join(home, kind, name)) for name in names):
            return os.path.join(home, kind)
    return None


PACKAGES = ("cu13", "cuda_cupti", "cuda_runtime")
