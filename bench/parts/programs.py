"""Whole programs of different kinds: bare, recorded in four modes, and under other tools.

Each step ends with a wait, so modes with epochs have one for each step. With small sizes, all
programs of PyTorch run in one process for each way, and compute-sanitizer gets what time is left.
"""

from __future__ import annotations

import importlib.util
from functools import partial
from typing import Any

from bench import machine
from bench.bed import (
    PROGRAMS,
    Bed,
    Command,
    Result,
    SkipError,
    median,
    process_of,
    torch_python,
)

TORCH = ("gemm", "stencil", "sort", "traversal", "llama", "diffusion")
WAYS = {
    "events": {"epoch": "none"},
    "digests": {"epoch": "sync", "contents": "none"},
    "touched": {"epoch": "sync", "regions": "touched"},
    "contents": {"epoch": "sync"},
}
PROFILER, SANITIZER = "torch.profiler", "compute-sanitizer"
SANITIZED_STEPS = ["--steps", "3", "--warm", "1"]
LEAST_SECONDS = 12  # for a program under compute-sanitizer
Steps = dict[str, float]  # microseconds of a step by program
Samples = dict[tuple[str, str], list[float]]  # the same by program and way


def measure(bed: Bed) -> Result:
    """data: microseconds of a step by program and way, and the table of ratios, its head first."""
    script: Command = [torch_python(bed), PROGRAMS / "whole.py"]
    names = [*TORCH, *(["jax"] if importlib.util.find_spec("jax") else [])]
    groups = [",".join(TORCH), *names[len(TORCH) :]] if bed.quick else names
    result = Result(data={"machine": machine.describe(bed), "step_us": {}})
    samples: Samples = {}
    for turn in range(bed.pick(3, 1, 1)):
        for group in groups:
            _turn(bed, result, [*script, group], samples, turn)
    for group in groups:
        if not bed.quick or bed.left > LEAST_SECONDS:
            result.attempt(partial(_sanitized, bed, [*script, group], samples))
    if not samples:
        raise SkipError("; ".join(result.failed) or "no program ran")
    steps = result.data["step_us"]
    for (name, way), of in samples.items():
        steps.setdefault(name, {})[way] = median(of)
    result.data["rows"] = rows(steps)
    return result


def _turn(bed: Bed, result: Result, command: Command, samples: Samples, turn: int) -> None:
    """Each way once. Who comes first moves on every time; a way that fails takes none along."""
    steps = ["--steps", str(bed.pick(200, 40, 5)), "--warm", str(bed.pick(20, 8, 2))]
    line = [*command, *steps]
    ways = {"bare": partial(_steps, bed, line, bed.bare())}
    ways |= {name: partial(_recorded, bed, line, options) for name, options in WAYS.items()}
    if command[-1] != "jax":
        ways[PROFILER] = partial(_steps, bed, [*line, "--profile"], bed.bare())
    order = list(ways)
    for way in order[turn % len(order) :] + order[: turn % len(order)]:
        result.attempt(lambda way=way: _add(samples, way, ways[way]()))  # type: ignore[misc]


def _add(samples: Samples, way: str, steps: Steps) -> None:
    for name, taken in steps.items():
        samples.setdefault((name, way), []).append(taken)


def _steps(bed: Bed, command: Command, environment: dict[str, str]) -> Steps:
    said = bed.answer(command, environment, 180)
    return {name: median(of["step_us"]) for name, of in said.items()}


def _recorded(bed: Bed, command: Command, options: dict[str, str]) -> Steps:
    with bed.run_folder() as run:
        said = _steps(bed, command, bed.recorded(run, options))
        process_of(run)
    return said


def _sanitized(bed: Bed, command: Command, samples: Samples) -> None:
    said: dict[str, Any] = bed.sanitized("memcheck", [*command, *SANITIZED_STEPS], 180)
    _add(samples, SANITIZER, {name: median(of["step_us"]) for name, of in said.items()})


def rows(steps: dict[str, dict[str, float]]) -> list[list[str]]:
    """The bare step of each program, and the ratio of each way to it."""
    ways = [*WAYS, PROFILER, SANITIZER]
    out = [["program", "bare step", *ways]]
    for name, of in steps.items():
        bare = of.get("bare")
        if bare is None:
            continue
        ratios = [
            f"{of[way] / bare:.2f}\N{MULTIPLICATION SIGN}" if way in of else "" for way in ways
        ]
        out.append([name, f"{bare:,.0f} µs", *ratios])
    return out
