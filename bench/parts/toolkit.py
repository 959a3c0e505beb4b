"""The toolkit on a run of a thousand regions and a thousand epochs, and how fast it starts."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from functools import partial

from bench.bed import ROOT, Bed, Command, ProgramError, Result, last_line, median, process_of
from bench.figures import Figure, Quantity

REGIONS = 1000
IMPORT = (
    "import time; t = time.perf_counter(); import ttanalyze.cli; print(time.perf_counter() - t)"
)
VERIFY = """
import sys, time
import ttanalyze as tt
from ttanalyze.info import info, info_text
from ttanalyze.verify import verify
began = time.perf_counter()
if sys.argv[1] == "info":
    info_text(info(tt.open(sys.argv[2])))
    print(time.perf_counter() - began)
else:
    report = verify(tt.open(sys.argv[2]))
    print(time.perf_counter() - began)
    assert report.same
    sys.exit(report.region_epochs < int(sys.argv[3]))
"""


def measure(bed: Bed) -> Result:
    steps = bed.pick(1000, 1000, 1000)
    size = bed.pick(4096, 4096, 64)
    command: Command = [bed.program("churn"), "--regions", str(REGIONS), "--bytes", str(size)]
    command = [*command, "--steps", str(steps), "--permille", "1"]
    repeat = bed.pick(5, 3, 3)
    figures = [Figure("import", _median(repeat, partial(_python, "-c", IMPORT)))]
    with bed.run_folder() as run:
        bed.run(command, bed.recorded(run, {}))
        count = len(process_of(run).epochs) * REGIONS
        for what in ("verify", "info"):
            ask = partial(_python, "-c", VERIFY, what, str(run), str(count))
            seconds = _median(repeat, ask)
            ours = [Quantity("region-epochs", count, "")]
            figures.append(Figure(what, seconds, ours))
    return Result(figures, {"region_epochs": count})


def _median(repeat: int, ask: Callable[[], float]) -> float:
    return median([ask() for _ in range(repeat)])


def _python(*arguments: str) -> float:
    """The seconds that a Python program prints."""
    done = subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise ProgramError(f"python: {last_line(done.stderr)}")
    return float(done.stdout)
