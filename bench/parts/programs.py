"""Whole programs of different kinds: bare, recorded in four modes, and under other tools.

Each step ends with a wait, so modes with epochs have one for each step. Each program has its share
of the time, in which every way comes once before any comes again. Its row is printed as soon as it
is there. With small sizes, all programs of PyTorch run in one process for each way.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import time
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
    say,
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
Steps = dict[str, float]  # microseconds of a step by program
Samples = dict[tuple[str, str], list[float]]  # the same by program and way


def measure(bed: Bed) -> Result:
    """data: microseconds of a step by program and way, and the table of ratios, its head first."""
    script: Command = [torch_python(bed), PROGRAMS / "whole.py"]
    names = [*TORCH, *(["jax"] if importlib.util.find_spec("jax") else [])]
    groups = [",".join(TORCH), *names[len(TORCH) :]] if bed.quick else names
    result = Result(data={"machine": machine.describe(bed), "step_us": {}})
    if "jax" not in names:
        result.failed.append("no JAX here")
    steps = result.data["step_us"]
    for i, group in enumerate(groups):
        share = bed.left / (len(groups) - i)
        own = dataclasses.replace(bed, deadline=time.monotonic() + share)
        samples = _measured(own, result, [*script, group])
        for (name, way), of in samples.items():
            steps.setdefault(name, {})[way] = median(of)
        head, *found = rows({name: steps[name] for name in group.split(",") if name in steps})
        for row in found:
            say(", ".join(" ".join(pair) for pair in zip(head, row, strict=True)))
    if not steps:
        raise SkipError("; ".join(result.failed) or "no program ran")
    result.data["rows"] = rows(steps)
    return result


def _measured(bed: Bed, result: Result, command: Command) -> Samples:
    """Of the programs of one process: all ways, and again while there is time for that."""
    samples: Samples = {}
    began = time.monotonic()
    _turn(bed, result, command, samples, 0)
    took = time.monotonic() - began
    result.attempt(partial(_sanitized, bed, command, samples))
    for turn in range(1, bed.pick(3, 1, 1)):
        if bed.left > took * 1.2:
            _turn(bed, result, command, samples, turn)
    return samples


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
