"""The toolkit on runs of a thousand regions and a thousand epochs, and how fast it starts.

The runs are made by bench/generated.py. What counts is the time inside a Python process of its
own, after it has imported the package and read the run once, so that its files are in memory.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from bench import generated
from bench.bed import ROOT, Bed, ProgramError, Result, by_turns, last_line, median
from bench.figures import Figure, Quantity

REGIONS = EPOCHS = 1000
CONTENTS = 64  # bytes of each region
CALLS, KERNELS = 10_000_000, 200
TRACED = 1_000_000  # calls
LARGE = 50_000_000_000  # bytes
IMPORT = """
import time
began = time.perf_counter(), time.process_time()
import ttanalyze.cli
print(time.perf_counter() - began[0], time.process_time() - began[1])
"""
ASK = """
import sys, time
import ttanalyze as tt
from ttanalyze.verbs.info import info
from ttanalyze.verbs.info.show import info_text
from ttanalyze.verbs.query import Query, query
from ttanalyze.verbs.trace import FORMATS, trace
from ttanalyze.verbs.verify import verify
what, run = sys.argv[1:]
began = time.perf_counter(), time.process_time()
found = tt.open(run)
if what == "info":
    info_text(info(found))
elif what == "verify":
    report = verify(found)
    assert report.same and report.region_epochs >= 1_000_000
elif what == "launches":
    launches = Query(filter='kind == "launch"', group_by=["short"], count=True, sum=["bytes"])
    assert len(query(found, launches)) > 1
elif what == "largest":
    assert len(query(found, Query(filter="bytes > 4096", sort=["-bytes"], top=20))) == 20
elif what == "pandas":
    events = found.events
    groups = events[events["kind"] == "launch"].groupby("kernel", observed=True)
    assert len(groups["bytes"].agg(["size", "sum"])) > 1
elif what in FORMATS:
    with open("/dev/null", "wb") as file:
        assert trace(found, file, what).calls >= 10_000
print(time.perf_counter() - began[0], time.process_time() - began[1])
"""
Sample = tuple[float, float]  # seconds: by the clock, and of the processor


def measure(bed: Bed) -> Result:
    """data: seconds by what was asked, by the clock and of the processor, and all samples."""
    repeat = 1 if bed.quick else 5
    calls = CALLS // 100 if bed.quick else CALLS
    traced = TRACED // 100 if bed.quick else TRACED
    with (
        bed.run_folder() as few,
        bed.run_folder() as all_of_them,
        bed.run_folder() as large,
        bed.run_folder() as many,
        bed.run_folder() as timed,
    ):
        generated.write(few, REGIONS, EPOCHS, REGIONS // 100, CONTENTS)
        generated.write(all_of_them, REGIONS, EPOCHS, REGIONS, CONTENTS)
        generated.write(large, REGIONS, EPOCHS, REGIONS // 100, CONTENTS)
        generated.enlarge(large, LARGE)
        generated.add_events(few, calls, KERNELS)
        generated.write(many, 1, 1, 1, CONTENTS)
        generated.add_events(many, traced, KERNELS)
        generated.write(timed, 1, 1, 1, CONTENTS)
        generated.add_events(timed, traced, KERNELS)
        generated.add_activities(timed)
        ways: dict[str, Callable[[], Sample]] = {
            "import": partial(_python, IMPORT),
            "info": _asked("info", all_of_them),
            "verify": _asked("verify", all_of_them),
            "verify, few changes": _asked("verify", few),
            "query": _asked("launches", few),
            "query, largest": _asked("largest", few),
            "query, pandas": _asked("pandas", few),
            "trace": _asked("chrome", many),
            "trace, perfetto": _asked("perfetto", many),
            "trace, timeline": _asked("chrome", timed),
            "open": _asked("open", few),
            "open 50 GB": _asked("open", large),
        }
        samples = by_turns(bed, repeat, ways)
        sizes = {name: _size(run) for name, run in (("few", few), ("all", all_of_them))}
    seconds = {name: median([wall for wall, _ in them]) for name, them in samples.items()}
    busy = {name: median([cpu for _, cpu in them]) for name, them in samples.items()}
    opened = [Quantity(name, seconds[name] * 1e3, "ms") for name in ("open 50 GB", "open")]
    figures = [
        Figure("import", seconds["import"], [_busy(busy["import"])]),
        Figure("info", seconds["info"], [_busy(busy["info"])]),
        Figure(
            "verify",
            seconds["verify"],
            [
                _busy(busy["verify"]),
                Quantity("with one change in a hundred", seconds["verify, few changes"], "s"),
            ],
            note="every region changes in every epoch",
        ),
        Figure(
            "query",
            seconds["query"],
            [
                _busy(busy["query"]),
                Quantity("the 20 largest of most", seconds["query, largest"], "s"),
            ],
            [Quantity("run.events, grouped with pandas", seconds["query, pandas"], "s")],
            note=f"{calls:,} calls, launches counted by kernel, bytes added",
        ),
        Figure(
            "trace",
            traced / seconds["trace"],
            [
                _busy(busy["trace"]),
                Quantity("as Perfetto's", traced / seconds["trace, perfetto"], "calls/s"),
                Quantity("with a GPU timeline", traced / seconds["trace, timeline"], "calls/s"),
            ],
            note=f"{traced:,} calls, four in five submit something, written to /dev/null",
        ),
        Figure("open-large", opened[0].value / opened[1].value, opened[:1], opened[1:]),
    ]
    data: dict[str, Any] = {
        "seconds": seconds,
        "busy": busy,
        "samples": samples,
        "run_bytes": sizes,
    }
    return Result(figures, data)


def _busy(seconds: float) -> Quantity:
    return Quantity("of the processor", seconds, "s")


def _size(run: Path) -> int:
    return sum(file.stat().st_size for file in run.rglob("*") if file.is_file())


def _asked(what: str, run: Path) -> Callable[[], Sample]:
    return partial(_python, ASK, what, str(run))


def _python(text: str, *arguments: str) -> Sample:
    """The two numbers that a Python program prints."""
    done = subprocess.run(
        [sys.executable, "-c", text, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise ProgramError(f"python: {last_line(done.stderr)}")
    wall, cpu = map(float, done.stdout.split())
    return wall, cpu
