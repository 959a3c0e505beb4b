"""What a whole `ttanalyze check` costs: a training program under all checks, beside the same bare.

The program is an ordinary one of about ten seconds that waits at the end of each step. All times of
steps are from the runs of this one check.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from bench.bed import (
    PROGRAMS,
    ROOT,
    Bed,
    Command,
    ProgramError,
    Result,
    median,
    parse,
    torch_python,
)
from bench.figures import Figure, Quantity
from ttanalyze.format import open_run

SECONDS = 400  # that a check may take
CALLS = 1e6  # of which the target of the order check speaks


def measure(bed: Bed) -> Result:
    """data: what the check says, and of each run its time and that of a step."""
    command = _command(bed)
    began = time.monotonic()
    bed.run(command, bed.bare())  # files are in memory from then on
    bare = [_timed(bed, command) for _ in range(2)]
    result = Result(data={"warming": time.monotonic() - began, "bare": bare})
    folder = bed.out / f"check-{time.monotonic_ns()}"
    try:
        report, seconds = _check(bed, command, folder)
        runs = _runs(folder)
        result.data |= {"seconds": seconds, "runs": runs}
        result.data["outcomes"] = [_said(one) for one in report["outcomes"]]
        result.data["log"] = (folder / "log").read_text().splitlines()
        calls = 0
        if "plain" in runs:
            calls = len(open_run(folder / "plain").process(0).event_columns("seq")["seq"])
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    whole, step = median([one["seconds"] for one in bare]), median([one["step"] for one in bare])
    recorded = sum(one["seconds"] for one in runs.values())
    ours = [Quantity("check", seconds, "s"), Quantity("bare", whole, "s")]
    ours += [Quantity("its recordings", recorded, "s")]
    note = ", ".join(f"{one['check']} {one['status']}" for one in report["outcomes"])
    note = f"{len(runs)} runs; {note}"
    if not report["interrupted"]:
        result.figures.append(Figure("check-all", seconds / whole, ours, note=note))
    for name, target in (("plain", "check-order"), ("zones", "check-bounds")):
        if name not in runs:
            continue
        both = [Quantity("step", runs[name]["step"], "µs"), Quantity("bare", step, "µs")]
        result.figures.append(Figure(target, runs[name]["step"] / step, both))
    order = next(one for one in report["outcomes"] if one["check"] == "order")
    if calls and order["status"] == "clean":
        note = f"{calls:,} calls, while the next recording is made"
        result.figures.append(
            Figure("check-order-search", order["seconds"] / calls * CALLS, note=note)
        )
    return result


def _command(bed: Bed) -> Command:
    if bed.sim:
        options = {"--kernel": 1, "--size": 32, "--launches": 5, "--steps": 20}
        words = [word for pair in options.items() for word in map(str, pair)]
        return [bed.program("dense"), *words]
    steps = str(bed.pick(500, 250, 0))
    return [torch_python(bed), PROGRAMS / "train_step.py", "--llama", "--steps", steps]


def _timed(bed: Bed, command: Command) -> dict[str, float]:
    began = time.monotonic()
    printed = bed.run(command, bed.bare())
    return {"seconds": time.monotonic() - began, "step": _step(printed)}


def _step(printed: str) -> float:
    """Microseconds of a step."""
    said = parse(printed, "the program")
    return median(said["step_us"]) if "step_us" in said else median(said["step_ns"]) / 1e3


def _check(bed: Bed, command: Command, folder: Path) -> tuple[dict[str, Any], float]:
    line = [sys.executable, "-m", "ttanalyze", "check", "--json", "--quiet", "-o", str(folder)]
    line += ["--sim"] if bed.sim else []
    # What a program prints of its times differs from run to run.
    line += ["--", *map(str, command)]
    began = time.monotonic()
    pipe = subprocess.PIPE
    with subprocess.Popen(
        line, env=bed.bare(), text=True, cwd=ROOT, stdout=pipe, stderr=pipe
    ) as process:
        try:
            said, errors = process.communicate(timeout=min(SECONDS, bed.left))
        except subprocess.TimeoutExpired:
            process.terminate()  # it prints what it knows
            said, errors = process.communicate()
    if not said:
        raise ProgramError(f"check: status {process.returncode}: {errors.strip()[-300:]}")
    return json.loads(said), time.monotonic() - began


def _runs(folder: Path) -> dict[str, dict[str, float]]:
    """The seconds of each recording, and the microseconds of a step in it."""
    out = {}
    for status in sorted(folder.glob("*.status")):
        printed = status.with_suffix(".log").read_text(errors="replace")
        seconds = float(status.read_text().split()[1])
        out[status.stem] = {"seconds": seconds, "step": _step(printed)}
    return out


def _said(outcome: dict[str, Any]) -> dict[str, Any]:
    found = [finding["summary"] for finding in outcome["findings"]]
    return {**outcome, "findings": found}
