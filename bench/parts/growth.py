"""How the cost of an epoch and of a launch grows: with regions, bytes, changes, and the run.

An epoch's cost is how long it holds the program up: the time of a request for an epoch and of a
launch that waits for it, less the same without the request. The first two epochs of a run,
which read everything and set things up, are not counted.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from bench.bed import MIB, Bed, Command, ProgramError, Result, median, process_of
from bench.figures import Figure, Quantity

KIB = 1 << 10
Points = list[tuple[float, float]]


def measure(bed: Bed) -> Result:
    result = Result(data={"sweeps": {}})
    result.attempt(partial(_unchanged, bed, result))
    for sweep in (by_bytes, by_regions, by_dirty, by_epochs, by_launches):
        result.attempt(partial(_take, bed, result, sweep))
    return result


Sweep = tuple[str, dict[str, Any], Figure | None]


def _take(bed: Bed, result: Result, sweep: Callable[[Bed], Sweep]) -> None:
    name, plot, figure = sweep(bed)
    result.data["sweeps"][name] = plot
    result.figures += [figure] if figure else []
    if plot.get("stopped") and "OUT_OF_MEMORY" not in plot["stopped"]:
        result.failed.append(plot["stopped"])


def _unchanged(bed: Bed, result: Result) -> None:
    """An epoch of many regions, of which none changed."""
    count = bed.pick(100_000, 100_000, 100)
    way = {"regions": count, "bytes": 4096, "permille": 0}
    held, call = _epoch(bed, way, {"snapshot_every": "0"})
    ours = [Quantity("the call", call / 1e3, "µs"), Quantity("of", count * 4096 / MIB, "MiB")]
    result.figures.append(Figure("regions-unchanged", held / 1e3, ours))


def by_bytes(bed: Bed) -> Sweep:
    sizes = bed.pick(
        [MIB << n for n in range(0, 17, 2)],
        [MIB << n for n in (0, 4, 8, 10)],
        [64 * KIB << n for n in range(0, 7, 2)],
    )
    points: Points = []
    calls: Points = []
    stopped = None
    for size in sizes:
        try:
            held, call = _epoch(bed, {"bytes": size, "permille": 1}, {"snapshot_every": "0"})
        except ProgramError as e:
            if len(points) < 2:
                raise
            stopped = f"at {size // MIB} MiB: {e}"
            break
        points.append((size / MIB, held))
        calls.append((size / MIB, call))
    plot = _plot("MiB captured", "epoch", {"the program is held up": points, "the call": calls})
    return "bytes", plot | {"stopped": stopped}, _times("growth-bytes", points, 4, "MiB")


def by_regions(bed: Bed) -> Sweep:
    counts = bed.pick([10**n for n in range(6)], [1, 100, 1000, 10_000], [1, 10, 100])
    series: dict[str, Points] = {"nothing comes or goes": [], "one comes and goes": []}
    for count in counts:
        for name, add in zip(series, (0, 1), strict=True):
            way = {"regions": count, "bytes": 4096, "permille": 1, "add": add}
            held, _ = _epoch(bed, way, {"snapshot_every": "0"})
            series[name].append((count, held))
    plot = _plot("regions of 4 KiB", "epoch", series)
    return "regions", plot, _times("growth-regions", series["nothing comes or goes"], 10, "regions")


def by_dirty(bed: Bed) -> Sweep:
    size = bed.pick(512 * MIB, 128 * MIB, MIB)
    parts = bed.pick([0, 10, 20, 50, 100, 200, 500, 1000], [0, 500, 1000], [0, 500, 1000])
    ring = {"snapshot_every": "0", "ring_bytes": str(8 * size)}
    points = []
    for permille in parts:
        held, _ = _epoch(bed, {"bytes": size, "permille": permille, "steps": 5}, ring)
        points.append((permille / 10, held))
    plot = _plot(f"% of {size // MIB} MiB changed", "epoch", {"the program is held up": points})
    held_of = dict(points)
    whole, half = held_of[100] - held_of[0], held_of[50] - held_of[0]
    ours = [Quantity("half", half / 1e3, "µs"), Quantity("whole", whole / 1e3, "µs")]
    return "dirty", plot, Figure("growth-dirty", whole / half, ours)


def by_epochs(bed: Bed) -> Sweep:
    steps = bed.pick(10_000, 2_000, 200)
    way = {"bytes": MIB, "permille": 60, "steps": steps}
    said = _churn(bed, way, {})
    held = [a - b for a, b in zip(said["with_ns"], said["without_ns"], strict=True)]
    tenth = steps // 10
    points: Points = [
        ((i + 1) * tenth, median(held[i * tenth : (i + 1) * tenth])) for i in range(10)
    ]
    plot = _plot("epochs so far", "epoch", {"the program is held up": points})
    figure = _last_to_first("growth-epochs", points, "µs", 1e3)
    return "epochs", plot, figure


def by_launches(bed: Bed) -> Sweep:
    count = bed.pick(10_000_000, 1_000_000, 100_000)
    soak = bed.program("soak")
    with bed.run_folder() as run:
        environment = bed.recorded(run, {"epoch": "none"})
        said = bed.answer([soak, "--launches", str(count)], environment, 180)
        process_of(run)
    bare = bed.answer([soak, "--launches", str(count // 10)], bed.bare())
    series: dict[str, Points] = {
        name: [(mark["launches"], mark["ns"]) for mark in marks if mark["launches"] >= 1000]
        for name, marks in (("recorded", said), ("bare", bare))
    }
    plot = _plot("launches so far", "launch", series)
    early = [point for point in series["recorded"] if point[0] >= count // 100]
    return "launches", plot, _last_to_first("growth-launches", early, "ns", 1)


def _epoch(bed: Bed, way: dict[str, int], options: dict[str, str]) -> tuple[float, float]:
    """Median nanoseconds: how long an epoch holds the program up, and how long the call takes."""
    said = _churn(bed, {"steps": bed.pick(15, 7, 5), **way}, options)
    held = [a - b for a, b in zip(said["with_ns"], said["without_ns"], strict=True)]
    return median(held), median(said["call_ns"])


def _churn(bed: Bed, way: dict[str, int], options: dict[str, str]) -> dict[str, Any]:
    words = [word for key, value in way.items() for word in (f"--{key}", str(value))]
    with bed.run_folder() as run:
        environment = bed.recorded(run, {"epoch": "api", **options})
        command: Command = [bed.program("churn"), "--request", "1", *words]
        said: dict[str, Any] = bed.answer(command, environment, 180)
        epochs = process_of(run).epochs
        if len(epochs) != way["steps"] + 2:
            raise ProgramError(f"{len(epochs)} epochs, not {way['steps'] + 2}")
    return said


def _plot(x: str, y: str, series: dict[str, Points]) -> dict[str, Any]:
    """What a plot is made of; times in nanoseconds."""
    return {"x": x, "y": y, "series": series}


def _times(target: str, points: Points, factor: int, of: str) -> Figure | None:
    """The cost at the last point over that at the one with a factor-th of it. of: their unit."""
    cost = dict(points)
    last = points[-1][0]
    before = last / factor
    if before not in cost:
        return None
    ours = [Quantity(f"{x:,g} {of}", cost[x] / 1e3, "µs") for x in (before, last)]
    return Figure(target, cost[last] / cost[before], ours)


def _last_to_first(target: str, points: Points, unit: str, scale: float) -> Figure:
    first, last = points[0], points[-1]
    ours = [Quantity(f"at {x:,.0f}", y / scale, unit) for x, y in (first, last)]
    return Figure(target, last[1] / first[1], ours)
