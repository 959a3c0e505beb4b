"""Whole programs of different kinds: bare, recorded in four modes, and under other tools.

Each step ends with a wait, so modes with epochs have one for each step. Each program has its share
of the time, in which every way comes once before any comes again. Its row is printed as soon as it
is there, and again with compute-sanitizer, which comes last. Under it the first steps take most of
the time, so all programs make theirs side by side, and then their timed steps one after the other.
With small sizes or little time, all programs of PyTorch are in one process.
"""

from __future__ import annotations

import importlib.util
import os
import time
from contextlib import ExitStack
from functools import partial

from bench.bed import (
    PROGRAMS,
    Bed,
    Command,
    ProgramError,
    Result,
    SkipError,
    median,
    say,
    torch_python,
)
from bench.forks import GRACE, Forks, of_ways
from bench.forks import TORCH as TORCH_MODULES

TORCH = ("gemm", "stencil", "sort", "traversal", "diffusion", "llama")
WAYS = {
    "events": {"epoch": "none"},
    "digests": {"epoch": "sync", "contents": "none"},
    "touched": {"epoch": "sync", "regions": "touched"},
    "contents": {"epoch": "sync"},
}
PROFILER, SANITIZER = "torch.profiler", "compute-sanitizer"
TURNS = 3
SANITIZED_STEPS = ["--steps", "2", "--warm", "1", "--wait"]
SANITIZED = 0.4  # of the time, and of that:
FIRST_STEPS = 0.75
SHORT = 400  # seconds: with less, all programs of PyTorch are in one process
OF_JAX = 0.35  # of the time then
# Each process of JAX would compile the same.
CACHE = {"MIN_COMPILE_TIME_SECS": "0", "MIN_ENTRY_SIZE_BYTES": "-1"}
Steps = dict[str, float]  # microseconds of a step by program, or by way
Samples = dict[tuple[str, str], list[float]]  # the same by program and way


def measure(bed: Bed) -> Result:
    """data: microseconds of a step by program and way, the table of ratios, its head first, and of
    how many steps and turns these are medians.
    """
    script: Command = [torch_python(bed), PROGRAMS / "whole.py"]
    names = [*TORCH, *(["jax"] if importlib.util.find_spec("jax") else [])]
    groups = [",".join(TORCH), *names[len(TORCH) :]]
    result = Result(data={"step_us": {}})
    if "jax" not in names:
        result.failed.append("no JAX here")
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(bed.out / "jax"))
    for name, value in CACHE.items():
        os.environ.setdefault(f"JAX_PERSISTENT_CACHE_{name}", value)
    steps = result.data["step_us"]
    few = bed.quick or bed.left < SHORT
    result.data |= {"steps": 40 if few else 200, "turns": {}}
    with ExitStack() as stack:
        of_torch = of_ways(stack, bed, script, WAYS)
        of_jax = of_ways(stack, bed, script, WAYS, ("jax",)) if "jax" in names else {}
        reserve = bed.left * SANITIZED
        turns = groups if few else names
        for i, group in enumerate(turns):
            share = 1 / (len(turns) - i)
            if few and i < len(turns) - 1:
                share = 1 - OF_JAX
            until = time.monotonic() + (bed.left - reserve) * share
            forks = of_jax if group == "jax" else of_torch
            samples = _measured(result, forks, group, until)
            for (name, way), of in samples.items():
                steps.setdefault(name, {})[way] = median(of)
            _say_rows({name: steps[name] for name in group.split(",") if name in steps})
    with ExitStack() as stack:
        result.attempt(lambda: _sanitized(stack, bed, script, names, result))
    _say_rows(steps)
    if not steps:
        raise SkipError("; ".join(result.failed) or "no program ran")
    result.data["rows"] = rows(steps)
    return result


def _say_rows(steps: dict[str, Steps]) -> None:
    head, *found = rows(steps)
    for row in found:
        say(", ".join(" ".join(pair) for pair in zip(head, row, strict=True)))


def _measured(result: Result, forks: dict[str, Forks], group: str, until: float) -> Samples:
    """All ways, and again while there is time for that. Who comes first moves on every time; a way
    that fails takes none along.
    """
    samples: Samples = {}
    count = result.data["steps"]
    line = [group, "--steps", str(count), "--warm", str(max(count // 10, 8))]
    ways = {name: partial(_steps, of, line, until) for name, of in forks.items()}
    if group != "jax":
        ways[PROFILER] = partial(_steps, forks["bare"], [*line, "--profile"], until)
    order, took = list(ways), 0.0
    for turn in range(TURNS):
        began = time.monotonic()
        if turn and until - began < took * 1.2:
            break
        for way in order[turn % len(order) :] + order[: turn % len(order)]:
            result.attempt(lambda way=way: _add(samples, way, ways[way]()))  # type: ignore[misc]
        took = time.monotonic() - began
        result.data["turns"] |= dict.fromkeys(group.split(","), turn + 1)
    return samples


def _add(samples: Samples, way: str, steps: Steps) -> None:
    for name, taken in steps.items():
        samples.setdefault((name, way), []).append(taken)


def _steps(forks: Forks, arguments: list[str], until: float) -> Steps:
    seconds = until - time.monotonic()
    if forks.options is None:
        said = forks.answer(arguments, seconds)
    else:
        said = forks.with_run(arguments, lambda said, _: said, seconds)
    return {name: median(of["step_us"]) for name, of in said.items()}


def _sanitized(
    stack: ExitStack, bed: Bed, script: Command, names: list[str], result: Result
) -> None:
    """Adds steps under compute-sanitizer's memcheck."""
    command = [*bed.sanitizer("memcheck"), *script]
    processes = {}
    for name in names:
        modules = ("jax",) if name == "jax" else TORCH_MODULES
        processes[name] = Forks(bed, command, modules, None, once=True)
        stack.callback(processes[name].close)
        processes[name].ask([name, *SANITIZED_STEPS], bed.left)
    until = time.monotonic() + bed.left * FIRST_STEPS
    for name, one in processes.items():
        result.attempt(partial(_sanitized_steps, name, one, until, result.data["step_us"]))


def _sanitized_steps(name: str, one: Forks, until: float, steps: dict[str, Steps]) -> None:
    try:
        one.let_go_on("warm", until)
        said = one.answered(max(one.bed.left - GRACE, 1))
    except ProgramError as e:
        raise ProgramError(f"{name} under compute-sanitizer: {e}") from None
    steps.setdefault(name, {})[SANITIZER] = median(said[name]["step_us"])


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
