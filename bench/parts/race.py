"""race: how long it takes to find a missing wait in a loop of PyTorch, and to find the delay that
shows it, with up to eight runs started ahead. On the simulator, in an example.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

from bench.bed import (
    PROGRAMS,
    ROOT,
    Bed,
    Command,
    ProgramError,
    Result,
    last_line,
    say,
    torch_python,
)
from bench.figures import Figure, Quantity

FOUND = "looking for the fewest"  # delays: what race prints once it has said what it found

LONGEST = 600  # seconds


def measure(bed: Bed) -> Result:
    with bed.run_folder() as folder:
        first, whole = _search(bed, folder)
    ours = [Quantity("the first finding", first, "s")]
    return Result([Figure("race", whole, ours)], {"first_s": first, "whole_s": whole})


def _search(bed: Bed, folder: Path) -> tuple[float, float]:
    """Seconds until the first finding was printed, and until the end."""
    command: Command = [
        sys.executable,
        "-m",
        "ttanalyze",
        "race",
        "-o",
        str(folder),
        "--jobs",
        str(bed.pick(8, 8, 2)),
        *_program(bed),
    ]
    began = time.monotonic()
    first, lines = None, []
    with subprocess.Popen(
        [str(word) for word in command],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=bed.bare(),
    ) as search:
        limit = threading.Timer(min(bed.left, LONGEST), search.kill)
        limit.start()
        assert search.stderr is not None
        for line in search.stderr:
            lines.append(line)
            if FOUND in line and first is None:
                first = time.monotonic() - began
                say(f"race: the first finding after {first:.1f} s")
        limit.cancel()
    whole = time.monotonic() - began
    if search.returncode != 1 or first is None:
        raise ProgramError(f"race: status {search.returncode}: {last_line(''.join(lines))}")
    return first, whole


def _program(bed: Bed) -> Command:
    if not bed.sim:
        return ["--", torch_python(bed), PROGRAMS / "raced.py"]
    built = bed.build / "examples"
    library = ROOT / "ttanalyze" / "lib" / "sim" / "libcuda.so.1"
    make = ["make", "-s", "-C", str(ROOT / "examples"), f"BUILD={built}", f"LIBCUDA={library}"]
    bed.run([*make, str(built / "handoff")], bed.bare())
    options = ["--sim", "--runs", "10", "--launch-delay", "1500us"]
    return [*options, "--", str(built / "handoff"), "--steps", "3"]
