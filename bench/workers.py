"""How long replicas and diff take on a dask cluster with 1, 2, 4, 8 and 16 workers.

    python bench/workers.py [--ranks N] [--steps N] [--tensors N] [--workers LIST] [--runs DIR]

Each number of workers has a scheduler of its own on this machine, with one thread a worker. The job
has digests alone, as bench/ranks.py writes them. docs/design/scale.md has the results.
"""

from __future__ import annotations

import argparse
import importlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import ttanalyze as tt
from bench.bed import ROOT
from bench.generated_job import Job, write

TIMES = 2  # the best counts


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--steps", type=int, default=1200)
    parser.add_argument("--tensors", type=int, default=1000)
    parser.add_argument("--workers", default="1,2,4,8,16")
    parser.add_argument("--runs", type=Path, default=None, help="a folder for the run")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="workers-", dir=options.runs))
    counts = [int(count) for count in options.workers.split(",")]
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for count in counts:
            processes += started(folder / f"scheduler{count}.json", count)
        fault = (1, options.steps // 2, options.tensors - 1)
        tensors = options.tensors
        job = Job(options.ranks, options.steps, tensors, own=tensors // 100, fault=fault)
        write(folder / "run", job)
        digests = options.ranks * options.steps * tensors
        cores = len(os.sched_getaffinity(0))
        print(f"{options.ranks} ranks, {digests:.3g} digests, {cores} cores", flush=True)
        for count in counts:
            measure(folder / "run", folder / f"scheduler{count}.json", count)
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.wait()
        shutil.rmtree(folder)


def started(file: Path, workers: int) -> list[subprocess.Popen[bytes]]:
    """Starts a scheduler, which writes its address to a file, and its workers."""
    dask, quiet = [sys.executable, "-m", "dask"], {"cwd": ROOT, "stderr": subprocess.DEVNULL}
    scheduler = [*dask, "scheduler", "--port", "0", "--scheduler-file", str(file)]
    worker = [*dask, "worker", "--scheduler-file", str(file), "--nthreads", "1", "--no-nanny"]
    commands = [scheduler, *[worker] * workers]
    return [subprocess.Popen([*words, "--no-dashboard"], **quiet) for words in commands]  # type: ignore[call-overload]


def measure(run: Path, file: Path, workers: int) -> None:
    """Prints a line for each verb."""
    connect: Any = importlib.import_module("distributed").Client
    with connect(scheduler_file=str(file), set_as_default=False) as client:
        client.wait_for_workers(workers, timeout=60)
        address = client.scheduler_info()["address"]
    for verb in ("replicas", "diff"):
        taken = []
        for _ in range(TIMES):
            sides = [tt.open(run) for _ in range(1 if verb == "replicas" else 2)]
            began = time.perf_counter()
            found = getattr(tt, verb)(*sides, cluster=address)
            taken.append(time.perf_counter() - began)
            assert found.same == (verb == "diff"), "one tensor of a rank is wrong"
        print(f"{verb}, {workers} workers: {min(taken):.2f} s", flush=True)


if __name__ == "__main__":
    main()
