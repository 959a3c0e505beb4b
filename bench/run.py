"""What recording costs: the examples bare and recorded, and how fast the runs verify.

    python bench/run.py [--size N] [--steps N] [--repeat N] [NAME]...

Uses a GPU where one works, else the simulator, whose times say little about a GPU's. Prints a
table; every time is the best of the repetitions, in seconds of the whole process.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import ttanalyze as tt
from ttanalyze import doctor, paths, record, text
from ttanalyze.verify import verify

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "examples" / "build"
NAMES = ["vecadd", "pipeline", "training", "async", "graph"]
EPOCHS = ["none", "sync", "launch"]


def seconds(command: list[str], environment: dict[str, str]) -> float:
    """How long a command takes. Ends the benchmark where it fails."""
    began = time.perf_counter()
    subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began


def measure(command: list[str], repeat: int, gpu: bool, folder: Path) -> list[str]:
    """A row of the table: bare, recorded with each kind of epoch, what came of it."""
    plain = {k: v for k, v in os.environ.items() if not k.startswith("TT_")}
    simulator = None if gpu else str(paths.simulator())
    if simulator:
        plain["LD_LIBRARY_PATH"] = simulator
    row = [f"{min(seconds(command, plain) for _ in range(repeat)):.3f}"]
    recorded = record.launch_environment(os.environ, str(paths.shim()), simulator)
    run = folder / "run"
    for epoch in EPOCHS:
        times = []
        for _ in range(repeat):
            shutil.rmtree(run, ignore_errors=True)
            times.append(seconds(command, recorded | {"TT_OUT": str(run), "TT_EPOCH": epoch}))
        row.append(f"{min(times):.3f}")
    opened = tt.open(run)
    report = verify(opened)
    epochs = opened.epochs
    rate = report.bytes_read / max(report.seconds, 1e-6)
    row += [str(len(epochs)), text.size(int(epochs["bytes_read"].sum()))]
    return [*row, text.size(int(epochs["bytes_stored"].sum())), f"{text.size(int(rate))}/s"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--size", type=int, default=1 << 18)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("names", nargs="*", default=NAMES, metavar="NAME")
    options = parser.parse_args()
    gpu = doctor.check_driver()[2]
    print(f"on {'the GPU' if gpu else 'the simulator'}, best of {options.repeat}, seconds")
    head = ["example", "bare", *EPOCHS, "epochs", "read", "stored", "verified"]
    rows = [head]
    with tempfile.TemporaryDirectory() as folder:
        for name in options.names:
            command = [str(EXAMPLES / name)]
            command += ["--size", str(options.size), "--steps", str(options.steps)]
            rows.append([name, *measure(command, options.repeat, gpu, Path(folder))])
    widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
    for row in rows:
        print("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)))


if __name__ == "__main__":
    main()
