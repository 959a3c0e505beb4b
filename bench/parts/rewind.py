"""rewind: how fast a region comes back, beside dd, which reads the same file and checks nothing.

What counts of rewind is the time inside a Python process of its own that has imported the package,
of dd what it says itself. The file was read before, so that it is in memory for both.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from bench import generated
from bench.bed import ROOT, Bed, ProgramError, Result, by_turns, last_line, median
from bench.figures import Figure, Quantity

SIZE = 1 << 30  # bytes
REWIND = """
import sys, time
import ttanalyze as tt
from ttanalyze.verbs.rewind import rewind, save
run, out = sys.argv[1:]
began = time.perf_counter()
save(rewind(tt.open(run), 0), out, "bin")
print(time.perf_counter() - began)
"""


def measure(bed: Bed) -> Result:
    """data: GB/s by way, and all samples in seconds."""
    size = SIZE // 16 if bed.quick else SIZE
    with bed.run_folder() as run:
        generated.write_region(run, size)
        source, out = run / "p0" / "data-00000.bin", run / "out"
        ways: dict[str, Callable[[], float]] = {
            "dd": partial(_dd, source, Path(os.devnull)),
            "rewind": partial(_rewind, run, Path(os.devnull)),
            "dd, to a file": partial(_dd, source, out),
            "rewind, to a file": partial(_rewind, run, out),
        }
        _dd(source, Path(os.devnull))
        samples = by_turns(bed, 1 if bed.quick else 7, ways)
    rates = {name: size / median(them) / 1e9 for name, them in samples.items()}
    ours, peers = (
        [
            Quantity("to /dev/null", rates[name], "GB/s"),
            Quantity("to a file", rates[f"{name}, to a file"], "GB/s"),
        ]
        for name in ("rewind", "dd")
    )
    figure = Figure("rewind", rates["rewind"] / rates["dd"], ours, peers)
    return Result([figure], {"bytes": size, "GB/s": rates, "samples": samples})


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "LC_ALL": "C"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise ProgramError(f"{command[0]}: {last_line(done.stderr)}")
    return done


def _dd(source: Path, out: Path) -> float:
    """Seconds, of a new file where it is not a device."""
    if out.is_file():
        out.unlink()
    said = _run(["dd", f"if={source}", f"of={out}", "bs=1M"]).stderr
    found = re.search(r"copied, ([0-9.e-]+) s", said)
    if found is None:
        raise ProgramError(f"dd: {last_line(said)}")
    return float(found[1])


def _rewind(run: Path, out: Path) -> float:
    if out.is_file():
        out.unlink()
    return float(_run([sys.executable, "-c", REWIND, str(run), str(out)]).stdout)
