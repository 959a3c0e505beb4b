"""diff: two runs of a million launches and a hundred thousand epochs.

The runs are made by bench/generated.py; of the second a launch or a thousand are missing, and one
epoch is another. What counts is the time inside a Python process of its own that has imported the
package, and the most memory that process had. The runs were read before, so that they are in
memory.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from bench import generated
from bench.bed import ROOT, Bed, ProgramError, Result, by_turns, last_line, median
from bench.figures import Figure, Quantity

EPOCHS, LAUNCHES = 100_000, 10  # of each epoch
REGIONS, CHANGED, CONTENTS = 100, 2, 64
DIFF = """
import resource, sys, time
import ttanalyze as tt
from ttanalyze.verbs.diff import diff
from ttanalyze.verbs.diff.show import diff_text
a, b, missing, epoch = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
began = time.perf_counter()
report = diff(tt.open(a), tt.open(b))
diff_text(report)
taken = time.perf_counter() - began
assert report.first[1].epoch_a == epoch
assert report.processes[0].launches.alone_a == missing
print(taken, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""
Sample = tuple[float, float]  # seconds, KiB


def measure(bed: Bed) -> Result:
    """data: all samples: seconds, and KiB of memory at most."""
    epochs = EPOCHS // 100 if bed.quick else EPOCHS
    write = partial(
        generated.write,
        regions=REGIONS,
        epochs=epochs,
        changed=CHANGED,
        size=CONTENTS,
        launches=LAUNCHES,
    )
    launches = epochs * LAUNCHES
    many = np.random.default_rng(0).choice(launches, launches // 1000, replace=False)
    altered = epochs * 3 // 5
    with bed.run_folder() as first, bed.run_folder() as second, bed.run_folder() as third:
        write(first)
        write(second, altered=altered, missing=[launches // 2])
        write(third, altered=altered, missing=many.tolist())
        ways: dict[str, Callable[[], Sample]] = {
            "one": partial(_diff, first, second, 1, altered),
            "many": partial(_diff, first, third, len(many), altered),
        }
        samples = by_turns(bed, 1 if bed.quick else 5, ways)
    seconds = {name: median([taken for taken, _ in them]) for name, them in samples.items()}
    memory = {name: max(peak for _, peak in them) / 1024 for name, them in samples.items()}
    others = f"with {len(many):,} launches missing"
    figures = [
        Figure("diff", seconds["one"], [Quantity(others, seconds["many"], "s")]),
        Figure("diff-memory", memory["one"], [Quantity(others, memory["many"], "MiB")]),
    ]
    return Result(figures, {"launches": launches, "epochs": epochs, "samples": samples})


def _diff(a: Path, b: Path, missing: int, epoch: int) -> Sample:
    done = subprocess.run(
        [sys.executable, "-c", DIFF, str(a), str(b), str(missing), str(epoch)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise ProgramError(f"python: {last_line(done.stderr)}")
    taken, peak = map(float, done.stdout.split())
    return taken, peak
