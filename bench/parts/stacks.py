"""What call stacks add to a launch that Python makes 40 functions deep, and parameters."""

from __future__ import annotations

import sys
from collections.abc import Callable
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
    torch_python,
)
from bench.figures import Figure, Quantity

WAYS: dict[str, dict[str, str]] = {
    "events": {},
    "Python stacks": {"cpu_callstack": "python"},
    "native stacks": {"cpu_callstack": "backtrace"},
    "mixed stacks": {"cpu_callstack": "mixed"},
    "parameters": {"params": "1"},
}
PEERS = {"gpu_ns": "torch.profiler, GPU only", "stacks_ns": "torch.profiler with stacks"}
Sample = dict[str, Any]


def measure(bed: Bed) -> Result:
    program = PROGRAMS / "deep_stack.py"
    ways: dict[str, Callable[[], Sample]] = {
        name: partial(_recorded, bed, [sys.executable, program], options)
        for name, options in WAYS.items()
    }
    samples = by_turns(bed, bed.pick(7, 3, 2), ways)
    time = {name: median([s["launch_ns"] for s in them]) for name, them in samples.items()}
    added = {
        name: median(
            [
                ours["launch_ns"] - events["launch_ns"]
                for ours, events in zip(samples[name], samples["events"], strict=True)
            ]
        )
        for name in WAYS
        if name != "events"
    }
    peers, missing = [], None
    try:
        command: Command = [torch_python(bed), program, "--profile"]
        said = bed.answer(command, bed.bare())
        peers = [Quantity(word, said[key] - said["bare_ns"], "ns") for key, word in PEERS.items()]
    except (ProgramError, SkipError) as e:
        missing = str(e)
    others = ("native stacks", "mixed stacks", "parameters")
    ours = [Quantity("a launch with events", time["events"], "ns")]
    ours += [Quantity(name, added[name], "ns") for name in others]
    figure = Figure("launch-stacks", added["Python stacks"], ours, peers, missing)
    return Result([figure], {"launch_ns": time, "added_ns": added, "samples": samples})


def _recorded(bed: Bed, command: Command, options: dict[str, str]) -> Sample:
    with bed.run_folder() as run:
        environment = bed.recorded(run, {"epoch": "none", **options})
        sample: Sample = bed.answer(command, environment)
        return sample
