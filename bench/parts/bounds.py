"""What it costs to find writes out of bounds: steps of programs with zones, and under memcheck.

The programs are recorded as the first run of `ttanalyze check --only bounds` does it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from bench.bed import (
    PROGRAMS,
    Bed,
    Command,
    ProgramError,
    Result,
    SkipError,
    by_turns,
    median,
    process_of,
    torch_python,
)
from bench.figures import RATIO, Figure, Quantity
from ttanalyze import options
from ttanalyze.verbs.check import bounds
from ttanalyze.verbs.check.session import BUDGET

MEMCHECK_SECONDS = 40
# What epochs may take in any case, once for each program, is no cost of a step.
OPTIONS = options.variables({**bounds.FIRST, **BUDGET, "overhead_allowance": "20ms"}, {})

Steps = list[float]


def measure(bed: Bed) -> Result:
    result = Result(data={"steps": {}})
    sizes = bed.pick(((2048, 1), (8192, 20)), ((1024, 1), (4096, 20)), ((32, 1), (64, 2)))
    for kind, (name, (rows, launches)) in enumerate(zip(("multiply", "relax"), sizes, strict=True)):
        command: Command = [bed.program("dense"), "--kernel", str(kind), "--size", str(rows)]
        command = [*command, "--launches", str(launches)]
        result.attempt(partial(_measure, bed, result, name, command, {}))
    try:
        step: Command = [torch_python(bed), PROGRAMS / "train_step.py"]
        result.attempt(partial(_measure, bed, result, "train", step, bounds.EACH_TENSOR))
    except SkipError as e:
        result.data["train"] = str(e)
    return result


def _measure(
    bed: Bed, result: Result, name: str, command: Command, given: Mapping[str, str]
) -> None:
    """given: variables of the recorded program."""
    command = [*command, "--steps"]
    many = [*command, str(bed.pick(100, 30, 3))]
    ways: dict[str, Callable[[], Steps]] = {
        "bare": partial(_steps, bed, many, bed.bare()),
        "zones": partial(_recorded, bed, many, given),
    }
    samples = by_turns(bed, bed.pick(5, 3, 1), ways)
    pairs = zip(samples["zones"], samples["bare"], strict=True)
    ratio = median([median(ours) / median(bare) for ours, bare in pairs])
    peers, missing = [], None
    try:
        few = [*command, "5", "--warm", "3"]
        bare = median(_steps(bed, few, bed.bare()))
        slow = bed.sanitized("memcheck", few, MEMCHECK_SECONDS)
        peers.append(Quantity("compute-sanitizer memcheck", median(_times(slow)) / bare, RATIO))
    except ProgramError as e:
        missing = str(e)
    ours = [
        Quantity(words, median([median(steps) for steps in samples[way]]), "µs")
        for way, words in (("zones", "step"), ("bare", "bare"))
    ]
    result.figures.append(Figure(f"zones-{name}", ratio, ours, peers, missing))
    result.data["steps"][name] = samples


def _recorded(bed: Bed, command: Command, given: Mapping[str, str]) -> Steps:
    with bed.run_folder() as run:
        steps = _steps(bed, command, {**bed.recorded(run, {}), **OPTIONS, **given})
        process_of(run)
    return steps


def _steps(bed: Bed, command: Command, environment: Mapping[str, str]) -> Steps:
    return _times(bed.answer(command, environment))


def _times(said: dict[str, Any]) -> Steps:
    """Microseconds of each step."""
    if "step_us" in said:
        return list(said["step_us"])
    return [time / 1000 for time in said["step_ns"]]
