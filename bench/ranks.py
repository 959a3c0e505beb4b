"""How long info, replicas and diff take for a job of very many ranks, digests only.

    python bench/ranks.py [--ranks N] [--steps N] [--tensors N] [--kinds N] [--runs DIR]

Most ranks share their files with others, as hard links, because 10,000 steps of 1,024 ranks take
half a terabyte. Verbs read each rank's files all the same. One tensor in a hundred differs between
ranks with files of their own. One rank has a wrong tensor. docs/design/scale.md has the results.
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
from ttanalyze.verbs.info.show import info_text
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
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--tensors", type=int, default=1000)
    parser.add_argument("--kinds", type=int, default=16, help="ranks with files of their own")
    parser.add_argument("--runs", type=Path, default=None, help="a folder for the runs")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="ranks-", dir=options.runs))
    try:
        measure(folder, options.ranks, options.steps, options.tensors, options.kinds)
    finally:
        shutil.rmtree(folder)


def measure(folder: Path, ranks: int, steps: int, tensors: int, kinds: int) -> None:
    """Prints a line for each figure."""
    cores, digests = len(os.sched_getaffinity(0)), ranks * steps * tensors
    job = f"{ranks:,} ranks, {steps:,} steps, {tensors:,} tensors"
    print(f"{job}: {digests:.3g} digests, {cores} cores", flush=True)
    fault = (ranks - 1, steps // 2, tensors - 1)
    run, other = folder / "a", folder / "b"
    write(run, Job(ranks, steps, tensors, own=tensors // 100, fault=fault, kinds=kinds))
    files = [file.stat() for file in run.rglob("*") if file.is_file()]
    single = sum({file.st_ino: file.st_size for file in files}.values())
    size = sum(file.st_size for file in files)
    print(f"size: {size / 1e9:.1f} GB, {single / 1e9:.1f} GB without the links", flush=True)
    for _ in range(2):  # the first may find files that are not in memory
        tell("info", timed("info", run))
    tell("replicas", timed("replicas", run))
    write(other, Job(ranks, steps, tensors, own=tensors // 100, kinds=kinds))
    tell("diff", timed("diff", run, other))
    for summary in run.glob("p*/summary.json"):
        summary.unlink()
    tell("info without summaries", timed("info", run))


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
