"""Training steps of a Llama that waits for the processor: bare, recorded in several ways, and under
torch.profiler.

Contents of every step are more than a drain takes away in that time. So a step counts as long as
the drain needs for one, where that is longer: what a long training would have.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial

from bench.bed import PROGRAMS, Bed, Command, Result, median, say, torch_python
from bench.figures import RATIO, Figure, Quantity
from bench.forks import Forks, of_ways
from bench.parts.training import PEERS, Sample, drain_note, sample
from ttanalyze.output import text

WAYS = {
    "events": {"epoch": "none"},
    "stacks": {"epoch": "none", "cpu_callstack": "auto", "params": "1"},
    "cupti": {"epoch": "none", "timeline": "cupti"},
    "changed": {"epoch": "sync"},
    "coded": {"epoch": "sync", "compress": "device"},
}
BESIDE = {
    "events": ("gpu_us", "stacks_us"),
    "stacks": ("stacks_us",),
    "cupti": ("gpu_us",),
    "coded": (),
}

RESERVE = 25  # seconds: of ways that store contents, and of digests
DIGESTS = {"epoch": "api", "contents": "none"}
Samples = dict[str, dict[int, Sample]]  # by way and turn


def measure(bed: Bed) -> Result:
    result = Result()
    program: Command = [torch_python(bed), PROGRAMS / "train_step.py"]
    with ExitStack() as stack:
        forks = of_ways(stack, bed, program, {**WAYS, "digests": DIGESTS})
        digests = forks.pop("digests")
        result.attempt(partial(_ways, bed, forks, result))
        result.attempt(partial(_digests, bed, digests, result))
    return result


def _digests(bed: Bed, forks: Forks, result: Result) -> None:
    """An epoch of digests alone, beside none in the same process: two processes differ by more than
    an epoch costs.
    """
    arguments = ["--llama", "--steps", str(bed.pick(320, 160, 16)), "--turns", "8"]
    said, count = forks.with_run(arguments, lambda said, run: (said["turns_us"], len(run.epochs)))
    ratio, ours = between_turns(said)
    note = f"{text.count(count, 'epoch')}, both steps in one recorded process"
    result.figures.append(Figure("llama-digests", ratio, ours, [], note))
    result.data["turns_us"] = said


def _ways(bed: Bed, forks: dict[str, Forks], result: Result) -> None:
    """By turns. A way that fails takes none along. Those that store contents take longest and come
    last.
    """
    arguments = ["--llama", "--steps", str(bed.pick(40, 30, 5)), "--warm", "10"]
    few = ["--llama", "--steps", str(bed.pick(20, 10, 5)), "--warm", "4"]
    storing = [name for name, options in WAYS.items() if options["epoch"] != "none"]
    makers: dict[str, Callable[[], Sample]] = {
        name: partial(sample, of, few if name in storing else arguments)
        for name, of in forks.items()
    }
    makers["profilers"] = partial(_profiled, forks["bare"], arguments)
    samples: Samples = {name: {} for name in makers}
    took = 0.0
    for turn in range(bed.pick(7, 1, 1)):
        began = time.monotonic()
        if turn and bed.left < took * 1.2 + RESERVE:
            break
        for name in [name for name in makers if name not in (*storing, "profilers")]:
            result.attempt(partial(_sample, samples[name], name, turn, makers[name]))
        took = time.monotonic() - began
        if not turn:
            name = "profilers"
            result.attempt(partial(_sample, samples[name], name, turn, makers[name]))
    for name in storing:
        result.attempt(partial(_sample, samples[name], name, 0, makers[name]))
    result.data |= samples
    of_peers = samples["profilers"].values()
    peers = {key: median([s[key] / s["bare_us"] for s in of_peers]) for key in PEERS if of_peers}
    for name, keys in BESIDE.items():
        if not samples[name] or not samples["bare"]:
            continue
        ratio, ours = _against_bare(samples, name)
        beside = [Quantity(PEERS[key], peers[key], RATIO) for key in keys if key in peers]
        note = None
        if name == "coded":
            if samples["changed"]:
                beside += [Quantity("not coded", _against_bare(samples, "changed")[0], RATIO)]
            note = drain_note([*samples[name].values()], 0.0)
        result.figures.append(Figure(f"llama-{name}", ratio, ours, beside, note))
        if name == "cupti" and peers:
            result.figures.append(Figure("llama-profiler", ratio / peers["gpu_us"]))


def _sample(into: dict[int, Sample], name: str, turn: int, make: Callable[[], Sample]) -> None:
    into[turn] = make()
    steps = {key: us for key, us in into[turn].items() if key.endswith("_us")}
    say(f"llama, {name}: " + ", ".join(f"{key} {us:,.0f}" for key, us in steps.items()))


def _profiled(forks: Forks, arguments: list[str]) -> Sample:
    said = forks.answer([*arguments, "--profile"])
    return {name: median(steps) for name, steps in said.items()}


def _sustained(sample: Sample) -> float:
    """Microseconds of a step, or of its drain where that is longer."""
    return max(sample["step_us"], sample.get("drain_ms_per_step", 0.0) * 1000)


def _against_bare(samples: Samples, name: str) -> tuple[float, list[Quantity]]:
    """The ratio of a step to a bare one of the same turn, and both."""
    pairs = [
        (_sustained(ours), samples["bare"][turn]["step_us"])
        for turn, ours in samples[name].items()
        if turn in samples["bare"]
    ]
    both = (median([pair[i] for pair in pairs]) for i in (0, 1))
    ours = [Quantity(word, step, "µs") for word, step in zip(("step", "bare"), both, strict=True)]
    return median([step / bare for step, bare in pairs]), ours


def between_turns(turns: list[list[float]]) -> tuple[float, list[Quantity]]:
    """The ratio of a step with an epoch to one without, of neighbouring turns, and both."""
    steps = [median(turn) for turn in turns]
    pairs = list(zip(steps[1::2], steps[::2], strict=False))
    both = (median([pair[i] for pair in pairs]) for i in (0, 1))
    ours = [
        Quantity(name, step, "µs") for name, step in zip(("step", "without"), both, strict=True)
    ]
    return median([cut / plain for cut, plain in pairs]), ours
