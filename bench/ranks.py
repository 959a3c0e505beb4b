"""How long info, replicas and diff take for a job of very many ranks, digests only.

    python bench/ranks.py [--ranks N] [--steps N] [--tensors N] [--runs DIR]

The run of `info` has all its steps: holes stand for digests, which `info` does not read. Those of
`replicas` and `diff` have few steps, in two sizes, because 10,000 steps of 1,024 ranks take half a
terabyte. The time that a step adds gives that of all steps. In both, one tensor in a hundred is of
each rank alone, and one rank has a wrong tensor. docs/design/scale.md has the results.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.bed import ROOT
from bench.generated_job import Job, write

MEASURE = """
import json, resource, sys, time
import ttanalyze as tt
from ttanalyze.verbs.diff.show import diff_text
from ttanalyze.verbs.info import info_text
what, *runs = sys.argv[1:]
verb = getattr(tt, what)
verb.__doc__
began = time.perf_counter()
found = verb(*(tt.open(run) for run in runs))
text = info_text(found) if what == "info" else ""
taken = time.perf_counter() - began
used = [resource.getrusage(of) for of in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
if what == "replicas":
    assert len(found.found) == 1 and len(found.found[0].odd) == 1, found
if what == "diff":
    assert not found.same
print(json.dumps({
    "seconds": taken,
    "processor": sum(one.ru_utime + one.ru_stime for one in used),
    "memory": max(one.ru_maxrss for one in used) * 1024,
}))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--ranks", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=10_000, help="of the whole job")
    parser.add_argument("--few", type=int, default=200, help="steps that are written")
    parser.add_argument("--tensors", type=int, default=1000)
    parser.add_argument("--runs", type=Path, default=None, help="a folder for the runs")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="ranks-", dir=options.runs))
    try:
        measure(folder, options.ranks, options.steps, options.few, options.tensors)
    finally:
        shutil.rmtree(folder)


def measure(folder: Path, ranks: int, steps: int, few: int, tensors: int) -> None:
    """Prints a line for each figure."""
    cores = len(os.sched_getaffinity(0))
    size = ranks * steps * tensors
    print(
        f"{ranks:,} ranks, {steps:,} steps, {tensors:,} tensors: {size:.3g} digests, {cores} cores"
    )
    wrong = min(5, ranks - 1)
    write(folder / "hollow", Job(ranks, steps, tensors, hollow=True))
    on_disk = sum(file.stat().st_size for file in (folder / "hollow").rglob("*.bin"))
    print(f"size on disk: {on_disk / 1e9:.1f} GB")
    for _ in range(2):  # the first may find files that are not in memory
        tell("info, all steps", timed("info", folder / "hollow"))
    shutil.rmtree(folder / "hollow")
    found: dict[str, list[dict[str, float]]] = {"replicas": [], "diff": []}
    for number in (few // 4, few):
        one, other = (folder / f"{name}{number}" for name in ("a", "b"))
        for run, fault in ((one, (wrong, number // 2, tensors - 1)), (other, None)):
            write(run, Job(ranks, number, tensors, own=tensors // 100, fault=fault))
        for verb, runs in (("replicas", [one]), ("diff", [one, other])):
            taken = timed(verb, *runs)
            tell(f"{verb}, {number:,} steps", taken)
            found[verb].append(taken)
        shutil.rmtree(one)
        shutil.rmtree(other)
    for verb, (less, more) in found.items():
        step, work = (
            (more[name] - less[name]) / (few - few // 4) for name in ("seconds", "processor")
        )
        print(
            f"{verb}, {steps:,} steps, derived: {more['seconds'] + step * (steps - few):.1f} s; "
            f"{1e9 * work / (ranks * tensors):.0f} ns of processor time for each digest more"
        )


def timed(verb: str, *runs: Path) -> dict[str, float]:
    """Returns what a verb takes in a process that has imported it, with the runs in memory."""
    command = [sys.executable, "-c", MEASURE, verb, *map(str, runs)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{verb}: {done.stderr.splitlines()[-1]}")
    taken: dict[str, float] = json.loads(done.stdout)
    return taken


def tell(what: str, taken: dict[str, float]) -> None:
    seconds, processor = taken["seconds"], taken["processor"]
    memory = taken["memory"] / (1 << 20)
    print(
        f"{what}: {seconds:.2f} s (processors {processor:.1f} s, memory {memory:.0f} MiB)",
        flush=True,
    )


if __name__ == "__main__":
    main()
