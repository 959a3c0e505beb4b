"""Training steps of a Llama that waits for the processor: bare, recorded in several ways, and under
torch.profiler.

Contents of every step are more than a drain takes away in that time. So a step counts as long as
the drain needs for one, where that is longer: what a long training would have.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from bench.bed import PROGRAMS, Bed, Command, Result, by_turns, median, process_of, torch_python
from bench.figures import RATIO, Figure, Quantity
from bench.parts.training import PEERS, Sample, bare, drain_note, recorded
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


def measure(bed: Bed) -> Result:
    result = Result()
    program: Command = [torch_python(bed), PROGRAMS / "train_step.py", "--llama"]
    result.attempt(partial(_digests, bed, program, result))
    result.attempt(partial(_ways, bed, program, result))
    return result


def _digests(bed: Bed, program: Command, result: Result) -> None:
    """An epoch of digests alone, beside none in the same process: two processes differ by more than
    an epoch costs.
    """
    turns = [*program, "--steps", str(bed.pick(400, 160, 16)), "--turns", "8"]
    with bed.run_folder() as run:
        options = {"epoch": "api", "contents": "none"}
        said = bed.answer(turns, bed.recorded(run, options))["turns_us"]
        epochs = process_of(run).epochs
    ratio, ours = between_turns(said)
    note = f"{text.count(len(epochs), 'epoch')}, both steps in one recorded process"
    result.figures.append(Figure("llama-digests", ratio, ours, [], note))
    result.data["turns_us"] = said


def _ways(bed: Bed, program: Command, result: Result) -> None:
    command = [*program, "--steps", str(bed.pick(40, 30, 5)), "--warm", "10"]
    makers: dict[str, Callable[[], Sample]] = {
        "bare": partial(bare, bed, command),
        "profilers": partial(_profiled, bed, command),
    }
    makers |= {name: partial(recorded, bed, command, way) for name, way in WAYS.items()}
    samples = by_turns(bed, bed.pick(5, 2, 1), makers)
    result.data |= samples
    step = {name: median([_sustained(s) for s in samples[name]]) for name in ("bare", *WAYS)}
    ratio = {name: _ratio(samples, name) for name in WAYS}
    profilers = {
        key: median([s[key] / s["bare_us"] for s in samples["profilers"]]) for key in PEERS
    }
    for name, keys in BESIDE.items():
        ours = [Quantity("step", step[name], "µs"), Quantity("bare", step["bare"], "µs")]
        peers = [Quantity(PEERS[key], profilers[key], RATIO) for key in keys]
        note = None
        if name == "coded":
            peers.append(Quantity("not coded", ratio["changed"], RATIO))
            note = drain_note(samples[name], 0.0)
        result.figures.append(Figure(f"llama-{name}", ratio[name], ours, peers, note))
    of = ratio["cupti"] / profilers["gpu_us"]
    result.figures.append(Figure("llama-profiler", of, [Quantity("step", step["cupti"], "µs")]))


def _profiled(bed: Bed, command: Command) -> Sample:
    said = bed.answer([*command, "--profile"], bed.bare())
    return {name: median(steps) for name, steps in said.items()}


def _sustained(sample: Sample) -> float:
    """Microseconds of a step, or of its drain where that is longer."""
    return max(sample["step_us"], sample.get("drain_ms_per_step", 0.0) * 1000)


def _ratio(samples: dict[str, list[Sample]], name: str) -> float:
    """To a bare step of the same turn."""
    pairs = zip(samples[name], samples["bare"], strict=True)
    return median([_sustained(ours) / bare["step_us"] for ours, bare in pairs])


def between_turns(turns: list[list[float]]) -> tuple[float, list[Quantity]]:
    """The ratio of a step with an epoch to one without, of neighbouring turns, and both."""
    steps = [median(turn) for turn in turns]
    pairs = list(zip(steps[1::2], steps[::2], strict=False))
    both = (median([pair[i] for pair in pairs]) for i in (0, 1))
    ours = [
        Quantity(name, step, "µs") for name, step in zip(("step", "without"), both, strict=True)
    ]
    return median([cut / plain for cut, plain in pairs]), ours
