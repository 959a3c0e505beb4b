"""Records a program for as long as is asked, and looks whether memory and descriptors grow.

`make soak`, or `python -m tests.soak --seconds 600 --gpu`. The program makes and ends allocations,
streams, events, modules and graphs all the time; the recording keeps a bounded part of what it did.
Memory is what is private to the process, without files that it maps. It may grow by GROWTH from
the end of the first tenth to the end. Files are opened for a moment now and then, so of descriptors
and threads the fewest at a time count, and may not grow at all.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import ttanalyze as tt
from tests import support

GROWTH = 4 << 20  # bytes
SAMPLES = 200
OPTIONS = {"epoch": "sync,launch:5", "params": "1", "cpu_callstack": "auto", "retain": "16"}
MEASURED = re.compile(r"^(RssAnon|Threads):\s+(\d+)", re.M)


@dataclass(frozen=True)
class Sample:
    """Bytes of private memory, descriptors and threads of a process; seconds since its start."""

    seconds: float
    memory: int
    descriptors: int
    threads: int


def sample(pid: int, began: float) -> Sample:
    status = dict(MEASURED.findall(Path(f"/proc/{pid}/status").read_text()))
    descriptors = len(os.listdir(f"/proc/{pid}/fd"))
    memory = int(status["RssAnon"]) << 10
    return Sample(time.monotonic() - began, memory, descriptors, int(status["Threads"]))


def watch(process: subprocess.Popen[str], seconds: float) -> list[Sample]:
    samples: list[Sample] = []
    began = shown = time.monotonic()
    while process.poll() is None:
        time.sleep(max(seconds / SAMPLES, 0.05))
        try:
            samples.append(sample(process.pid, began))
        except (OSError, KeyError):  # it has just ended
            break
        if time.monotonic() - shown > 30:
            shown, last = time.monotonic(), samples[-1]
            print(f"{last.seconds:6.0f} s: {last.memory >> 10} KiB, {last.descriptors} descriptors")
            sys.stdout.flush()
    return samples


def grown(samples: list[Sample], seconds: float) -> list[str]:
    """What grew. The program's last moments, in which it ends, do not count."""
    steady = [s for s in samples if 0.1 * seconds < s.seconds < 0.97 * seconds]
    third = max(len(steady) // 3, 1)
    first, last = steady[:third], steady[-third:]
    wrong = []
    for name, room, of in (("memory", GROWTH, max), ("descriptors", 0, min), ("threads", 0, min)):
        before, after = (of(getattr(s, name) for s in part) for part in (first, last))
        print(f"{name:12} {before:>12,} {after:>12,}")
        if after > before + room:
            wrong.append(name)
    return wrong


def soak(seconds: float, environment: dict[str, str], folder: Path) -> bool:
    """Whether memory and descriptors stayed within bounds, and the recording is complete."""
    program = support.build_program("recorder_soak", folder)
    run = folder / "run"
    recorded = support.recording(environment, run, **OPTIONS)
    process = subprocess.Popen(
        [program, str(seconds)], env=recorded, stdout=subprocess.PIPE, stderr=None, text=True
    )
    samples = watch(process, seconds)
    out, _ = process.communicate()
    opened = tt.open(run)
    size = sum(p.stat().st_size for p in run.rglob("*") if p.is_file())
    print(out.strip())
    print(f"{len(opened.epochs):,} epochs, {size / 1e6:.0f} MB, {opened.processes[0].status}")
    wrong = grown(samples, seconds)
    if process.returncode:
        wrong.append(f"exit status {process.returncode}")
    if opened.processes[0].status != "complete":
        wrong.append("the run is not complete")
    if not tt.verify(opened).same:
        wrong.append("verify")
    print("soak: " + (f"FAILED: {', '.join(wrong)}" if wrong else "nothing grew"))
    return not wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--gpu", action="store_true", help="on the GPU, not the simulator")
    given = parser.parse_args()
    environment = support.bare_environment() if given.gpu else support.simulator_environment()
    with tempfile.TemporaryDirectory() as folder:
        return 0 if soak(given.seconds, environment, Path(folder)) else 1


if __name__ == "__main__":
    sys.exit(main())
