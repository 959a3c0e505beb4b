"""PyTorch training steps, bare and recorded in several ways: one of about a millisecond, also
under what else one could watch it with.

The model is small, so that what changes per step is about as much as a drain can take away in
that time. Where it turns out that it can't, all ways alike pause between steps for as long as
the drain needs; the pause is not part of a step's time, and is reported.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any

import numpy as np

from bench.bed import PROGRAMS, Bed, Command, ProgramError, Result, by_turns, median, torch_python
from bench.figures import RATIO, Figure, Quantity
from bench.forks import Forks, of_ways
from ttanalyze.format.layout import Array
from ttanalyze.format.process import Process

SANITIZER_SECONDS = 45
WAYS = {
    "events": {"epoch": "none"},
    "digests": {"epoch": "sync", "contents": "none"},
    "touched": {"epoch": "sync", "regions": "touched"},
    "all": {"epoch": "sync", "regions": "all"},
}
PEERS = {"gpu_us": "torch.profiler, GPU only", "stacks_us": "torch.profiler with stacks"}

Sample = dict[str, Any]


def measure(bed: Bed) -> Result:
    steps = bed.pick(600, 150, 10)
    program: Command = [torch_python(bed), PROGRAMS / "train_step.py"]
    with ExitStack() as stack:
        forks = of_ways(stack, bed, program, WAYS)
        return _measured(bed, forks, [*program, "--steps", str(steps)])


def _measured(bed: Bed, forks: dict[str, Forks], command: Command) -> Result:
    arguments = [str(word) for word in command[2:]]
    first = sample(forks["all"], arguments)
    pause = 0.0 if first["kept_up"] else first["drain_ms_per_step"] * 1.25
    arguments += ["--pause", f"{pause:.2f}"]
    result = Result(data={"arguments": arguments, "pause_ms": pause, "first": first})

    peers: list[Quantity] = []
    missing: list[str] = []
    result.attempt(partial(_profilers, forks["bare"], arguments, peers))
    _sanitizer(bed, [*command[:2], *arguments], peers, missing)

    makers = {name: partial(sample, of, arguments) for name, of in forks.items()}
    samples = by_turns(bed, bed.pick(5, 1, 1), makers)
    step = {name: _step(them) for name, them in samples.items()}
    for name in WAYS:
        note = [drain_note(samples[name], pause)] if name != "events" else []
        words = "; ".join([*note, *missing]) or None
        ratio, ours = _against_bare(samples, name)
        result.figures.append(Figure(f"step-{name}", ratio, ours, peers, words))
    result.data |= {"step_us": step, "samples": samples, "missing": missing}
    return result


def _step(samples: list[Sample]) -> float:
    return median([s["step_us"] for s in samples])


def _against_bare(samples: dict[str, list[Sample]], name: str) -> tuple[float, list[Quantity]]:
    """The ratio of a step to a bare one of the same turn, and both."""
    pairs = zip(samples[name], samples["bare"], strict=True)
    ratio = median([ours["step_us"] / bare["step_us"] for ours, bare in pairs])
    both = (("step", name), ("bare", "bare"))
    return ratio, [Quantity(word, _step(samples[of]), "µs") for word, of in both]


def _profilers(forks: Forks, arguments: list[str], peers: list[Quantity]) -> None:
    said = forks.answer([*arguments, "--profile"])
    bare = median(said["bare_us"])
    peers += [Quantity(word, median(said[key]) / bare, RATIO) for key, word in PEERS.items()]


def sample(forks: Forks, arguments: list[str]) -> Sample:
    """A step of the program, and how the drain did where there were epochs."""
    if forks.options is None:
        return {"step_us": median(forks.answer(arguments)["step_us"])}
    return forks.with_run(arguments, partial(_recorded, forks.options))


def _recorded(options: Mapping[str, str], said: Any, process: Process) -> Sample:
    out: Sample = {"step_us": median(said["step_us"])}
    if options["epoch"] != "none":
        stores = options.get("contents") != "none"  # else few bytes go through the ring
        ring = int(process.info.get("ring", {}).get("bytes", 0)) if stores else 0
        out |= keeping_up(process.epochs, ring, len(said["step_us"]))
        written = sum(path.stat().st_size for path in process.path.rglob("*") if path.is_file())
        out["disk_per_epoch"] = written // len(process.epochs)
    return out


def keeping_up(epochs: Array, ring: int, steps: int) -> Sample:
    """How the drain did, over the last `steps` epochs, as the run itself says.

    late_ms: how long after its cut the last epoch was committed. backlog: the most bytes that
    were captured and not yet committed. kept_up: whether at the end the drain was no more than
    a tenth of the whole time behind, and the ring never more than half full.
    """
    late = epochs[-steps:]
    cut, done = late["time_ns"].astype("i8"), late["done_ns"].astype("i8")
    size = late["bytes_changed"].astype("i8")
    captured = np.cumsum(size)
    drained = np.searchsorted(done, cut, side="right")  # commits before each cut
    backlog = captured - np.concatenate([[0], captured])[drained]
    span = int(cut[-1] - cut[0])
    behind = int(done[-1] - cut[-1])
    busy = int(done[-1] - cut[0])
    return {
        "epochs": len(late),
        "late_ms": behind / 1e6,
        "backlog": int(backlog.max()),
        "ring": ring,
        "bytes_per_step": int(size.mean()),
        "stored_per_step": int(late["bytes_stored"].mean()),
        "drain_ms_per_step": busy / 1e6 / len(late),
        "kept_up": behind <= span / 10 and (not ring or int(backlog.max()) <= ring // 2),
    }


def drain_note(samples: list[Sample], pause: float) -> str:
    kept = all(s["kept_up"] for s in samples)
    changed = median([s["bytes_per_step"] for s in samples]) / 2**20
    late = median([s["late_ms"] for s in samples])
    disk = median([s["disk_per_epoch"] for s in samples]) / 2**20
    words = f"{changed:.1f} MiB change per step, {disk:.2f} MiB on disk; "
    words += "the drain kept up" if kept else "the drain did not keep up"
    words += f", {late:.1f} ms behind at the end"
    return words + (f", with {pause:.1f} ms between steps" if pause else "")


def _sanitizer(bed: Bed, command: Command, peers: list[Quantity], missing: list[str]) -> None:
    """Adds a step under compute-sanitizer's tool for memory contents to peers, or why not."""
    if bed.quick:
        missing.append("compute-sanitizer left out")
        return
    few = [*command, "--steps", "10", "--warm", "3"]
    try:
        bare = median(bed.answer(few, bed.bare())["step_us"])
        steps = bed.sanitized("initcheck", few, SANITIZER_SECONDS)["step_us"]
        peers.append(Quantity("compute-sanitizer initcheck", median(steps) / bare, RATIO))
    except ProgramError as e:
        missing.append(str(e))
