"""What epochs cost programs that often wait: all of them, or what --max-overhead 5% leaves."""

from __future__ import annotations

from functools import partial
from typing import Any

from bench.bed import Bed, Command, Result, by_turns, median, process_of
from bench.figures import RATIO, Figure, Quantity

# Name of the figure: steps, rows of the three arrays, other allocations.
PROGRAMS = {"budget-waits": (17_000, 2896, 0), "budget-regions": (1500, 512, 397)}
WAYS: dict[str, dict[str, str]] = {"all epochs": {}, "limit 5 %": {"max_overhead": "5%"}}


def measure(bed: Bed) -> Result:
    """data: milliseconds of each program by way, and the shares that the recorder notes."""
    result = Result(data={})
    for name in PROGRAMS:
        result.attempt(partial(_take, bed, result, name))
    return result


def _take(bed: Bed, result: Result, name: str) -> None:
    steps, rows, others = PROGRAMS[name]
    size = {
        "--kernel": 1,
        "--steps": bed.pick(steps, steps, 30),
        "--size": bed.pick(rows, rows, 32),
    }
    words = [word for pair in size.items() for word in map(str, pair)]
    command: Command = [bed.program("dense"), *words, "--others", str(bed.pick(others, others, 10))]
    notes: list[dict[str, Any]] = []
    ways = {"bare": lambda: _milliseconds(bed, command, bed.bare())}
    ways |= {way: partial(_recorded, bed, command, options, notes) for way, options in WAYS.items()}
    taken = {way: median(of) for way, of in by_turns(bed, bed.pick(5, 3, 1), ways).items()}
    result.data[name] = {"ms": taken, "recorded": notes}
    ratios = {way: taken[way] / taken["bare"] for way in WAYS}
    noted = next(note for note in notes if note["overhead"])
    cost = sum(noted["overhead"][key] for key in ("host_ns", "gpu_ns", "events_ns"))
    share = 100 * cost / (noted["overhead"]["elapsed_ns"] - cost)
    ours = [Quantity("all epochs", ratios["all epochs"], RATIO)]
    ours += [Quantity("share that info shows", share, "%")]
    note = f"{noted['overhead']['skipped']:,} epochs skipped"
    result.figures.append(Figure(name, ratios["limit 5 %"], ours, note=note))


def _milliseconds(bed: Bed, command: Command, environment: dict[str, str]) -> float:
    return float(sum(bed.answer(command, environment)["step_ns"]) / 1e6)


def _recorded(
    bed: Bed, command: Command, options: dict[str, str], notes: list[dict[str, Any]]
) -> float:
    with bed.run_folder() as run:
        taken = _milliseconds(bed, command, bed.recorded(run, options))
        info = process_of(run).info
        notes.append({"overhead": info.get("overhead"), "seconds": taken / 1e3})
    return taken
