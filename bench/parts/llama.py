"""Training steps of a Llama that waits for the processor: bare, recorded in several ways, and under
torch.profiler.

Contents of every step are more than a drain takes away in that time. So a step counts as long as
the drain needs for one, where that is longer: what a long training would have.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import quantiles

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

RESERVE = 36  # seconds: of ways that store contents, and of digests
DIGESTS = {"epoch": "api", "contents": "none"}
STORING = [name for name, options in WAYS.items() if options["epoch"] != "none"]
Samples = dict[str, dict[int, Sample]]  # by way and round


def measure(bed: Bed) -> Result:
    result = Result()
    program: Command = [torch_python(bed), PROGRAMS / "train_step.py"]
    with ExitStack() as stack:
        others = {"digests": DIGESTS, **dict.fromkeys(PEERS)}
        forks = of_ways(stack, bed, program, {**WAYS, **others})
        samples: Samples = {name: {} for name in forks}
        result.attempt(partial(_live, bed, forks, samples, result))
        few = ["--llama", "--steps", str(bed.pick(20, 10, 5)), "--warm", "4"]
        for name in STORING:
            result.attempt(partial(_sample, samples[name], name, partial(sample, forks[name], few)))
        result.attempt(partial(_digests, bed, forks["digests"], result))
    result.data |= samples
    result.figures += _figures(samples)
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


def _live(bed: Bed, forks: dict[str, Forks], samples: Samples, result: Result) -> None:
    """Ways without epochs and torch.profiler, by slices of time of processes that live together."""
    names = [name for name in forks if name not in (*STORING, "digests")]
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(len(names)) as pool:
        meeting = Path(folder)
        asked = {
            name: pool.submit(_slices, forks[name], name, f"{i}/{len(names)}", meeting)
            for i, name in enumerate(names)
        }
        until = time.monotonic() + bed.left / 2
        while time.monotonic() < until and len([*meeting.iterdir()]) < len(names):
            time.sleep(0.05)
        begin = time.time() + 0.5
        end = begin + max(min(bed.left - RESERVE, bed.pick(60, 30, 1)), 5)
        (meeting / "new").write_text(json.dumps([begin, end]))
        (meeting / "new").rename(meeting / "go")
        for name, future in asked.items():
            result.attempt(partial(_add, samples[name], name, future))


def _slices(forks: Forks, name: str, share: str, meeting: Path) -> dict[str, list[float]]:
    arguments = ["--llama", "--warm", "10", "--slice", share, "--meeting", str(meeting)]
    if name in PEERS:
        arguments += ["--under", name]
    if forks.options is None:
        said: dict[str, list[float]] = forks.answer(arguments)["slices_us"]
    else:
        said = forks.with_run(arguments, lambda said, _: said["slices_us"])
    return said


def _add(into: dict[int, Sample], name: str, future: Future[dict[str, list[float]]]) -> None:
    for number, steps in future.result().items():
        into[int(number)] = {"step_us": median(steps)}
    steps = [of["step_us"] for of in into.values()]
    say(f"llama, {name}: {text.count(len(steps), 'slice')}, median {median(steps):,.0f} µs")


def _figures(samples: Samples) -> list[Figure]:
    out: list[Figure] = []
    if not samples["bare"]:
        return out
    peers = {key: median(_ratios(samples, key)) for key in PEERS if _ratios(samples, key)}
    for name, keys in BESIDE.items():
        ratios = _ratios(samples, name)
        if not ratios:
            continue
        beside = [Quantity(PEERS[key], peers[key], RATIO) for key in keys if key in peers]
        note = _spread(ratios)
        if name == "coded":
            if samples["changed"]:
                changed = median(_ratios(samples, "changed"))
                beside += [Quantity("not coded", changed, RATIO)]
            note = drain_note([*samples[name].values()], 0.0)
        ours = [Quantity("step", median(_steps(samples, name)), "µs")]
        ours += [Quantity("bare", median(_steps(samples, "bare")), "µs")]
        out.append(Figure(f"llama-{name}", median(ratios), ours, beside, note))
        against = _ratios(samples, name, "gpu_us")
        if name == "cupti" and against:
            out.append(Figure("llama-profiler", median(against), note=_spread(against)))
    return out


def _spread(ratios: list[float]) -> str | None:
    if len(ratios) < 4:
        return None
    low, _, high = quantiles(ratios, n=4)
    return f"{len(ratios)} rounds, half of them from {low:.2f} to {high:.2f}"


def _sample(into: dict[int, Sample], name: str, make: Callable[[], Sample]) -> None:
    into[0] = make()
    say(f"llama, {name}: step {into[0]['step_us']:,.0f} µs")


def _sustained(sample: Sample) -> float:
    """Microseconds of a step, or of its drain where that is longer."""
    return max(sample["step_us"], sample.get("drain_ms_per_step", 0.0) * 1000)


def _steps(samples: Samples, name: str) -> list[float]:
    return [_sustained(sample) for sample in samples[name].values()]


def _ratios(samples: Samples, name: str, other: str = "bare") -> list[float]:
    """The ratio of a step to one of the other way, for each round that has both."""
    common = samples[name].keys() & samples[other].keys()
    return [_sustained(samples[name][n]) / _sustained(samples[other][n]) for n in sorted(common)]


def between_turns(turns: list[list[float]]) -> tuple[float, list[Quantity]]:
    """The ratio of a step with an epoch to one without, of neighbouring turns, and both."""
    steps = [median(turn) for turn in turns]
    pairs = list(zip(steps[1::2], steps[::2], strict=False))
    both = (median([pair[i] for pair in pairs]) for i in (0, 1))
    ours = [
        Quantity(name, step, "µs") for name, step in zip(("step", "without"), both, strict=True)
    ]
    return median([cut / plain for cut, plain in pairs]), ours
