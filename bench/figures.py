"""The figures to reach: what each is, its limit, and how it and its verdict are put.

A part of the benchmark measures figures by name; what they have to be stands here and nowhere
else. Times that the simulator took are not judged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

REACHED, MISSED, MISSING, UNJUDGED = "reached", "missed", "not measured", "not judged"


@dataclass(frozen=True)
class Quantity:
    """A measured value. unit: such as GB/s, ns, MiB, or × for a ratio."""

    name: str
    value: float
    unit: str


@dataclass(frozen=True)
class Figure:
    """A target's value, what it was made of, and remarks; all but `value` is for people.

    ours, peers: the measured quantities that the value compares.
    """

    target: str
    value: float
    ours: list[Quantity] = field(default_factory=list)
    peers: list[Quantity] = field(default_factory=list)
    note: str | None = None


@dataclass(frozen=True)
class Target:
    """What a figure has to be. sense: ≥ or ≤. timed: the simulator's says nothing."""

    name: str
    part: str
    what: str
    sense: str
    limit: float
    unit: str
    of: str
    timed: bool = True

    def holds(self, value: float) -> bool:
        return value >= self.limit if self.sense == "≥" else value <= self.limit

    def text(self) -> str:
        """Such as "≥ 0.92× plain read"."""
        return f"{self.sense} {amount(self.limit, self.unit)} {self.of}".strip()


TARGETS = (
    Target(
        "digest-hash", "kernels", "digest of 8 GiB", "≥", 1.05, "×", "torch.hash_tensor", timed=True
    ),
    Target("digest-read", "kernels", "digest of 8 GiB", "≥", 0.92, "×", "a plain read kernel"),
    Target("digest-many", "kernels", "digest of 1,000 regions, one launch", "≤", 30, "µs", ""),
    Target("snapshot", "kernels", "full snapshot of 8 GiB", "≥", 0.90, "×", "a copy on the device"),
    Target("delta", "kernels", "delta of 8 GiB, 2 % changed", "≤", 1.15, "×", "the digest alone"),
    Target("predecessor-snapshot", "kernels", "snapshot", "≥", 10_000, "×", "cuda-time-travel"),
    Target("predecessor-delta", "kernels", "delta", "≥", 10_000, "×", "cuda-time-travel"),
    Target(
        "restore", "kernels", "rewind of 8 GiB on the device", "≥", 0.80, "×", "a copy on the device"
    ),
    Target("drain-host", "drain", "drain, ring to pinned host", "≥", 0.90, "×", "one large copy"),
    Target("drain-file", "drain", "drain, ring to file", "≥", 0.90, "×", "the best of dd and fio"),
    Target("launch-median", "launches", "host time added to a launch, median", "≤", 60, "ns", ""),
    Target(
        "launch-p999", "launches", "host time added to a launch, 99.9 %", "≤", 1000, "ns", ""
    ),
    Target("step-events", "training", "MLP training step, events on", "≤", 1.02, "×", "bare"),
    Target("step-touched", "training", "an epoch every step, touched", "≤", 1.10, "×", "bare"),
    Target("step-all", "training", "an epoch every step, all", "≤", 1.25, "×", "bare"),
    Target(
        "host-memory", "memory", "host memory, 1 M launches, 10,000 allocations", "≤", 64, "MiB",
        "plus pinned buffers", timed=False,
    ),
    Target(
        "host-growth", "memory", "of that, grown over the last nine tenths", "≤", 4, "MiB", "",
        timed=False,
    ),
    Target(
        "device-memory", "memory", "device memory besides the ring", "≤", 0.1, "%",
        "of what is tracked", timed=False,
    ),
    Target("growth-bytes", "growth", "epoch of 64 GiB over one of 8 GiB", "≤", 8.8, "×", "(linear: 8)"),
    Target("growth-dirty", "growth", "capture per changed byte, all over half of it changed", "≤", 1.1, "×", "(linear: 1)"),
    Target("growth-regions", "growth", "epoch of 100,000 regions over one of 10,000", "≤", 11, "×", "(linear: 10)"),
    Target("growth-launches", "growth", "a launch at the end of 10⁷ over one of the first 10⁵", "≤", 1.1, "×", "(flat: 1)"),
    Target("growth-epochs", "growth", "an epoch at the end of 10,000 over one of the first 1,000", "≤", 1.1, "×", "(flat: 1)"),
)  # fmt: skip
BY_NAME = {target.name: target for target in TARGETS}


def verdict(target: Target, figure: Figure | None, on_gpu: bool) -> str:
    """reached, missed, not measured, or not judged (a time of the simulator's)."""
    if figure is None:
        return MISSING
    if target.timed and not on_gpu:
        return UNJUDGED
    return REACHED if target.holds(figure.value) else MISSED


def amount(value: float, unit: str) -> str:
    """Three significant digits and a unit: 4.68 TB/s, 1.05×, 12,000×."""
    if value != value:
        return "?"
    if abs(value) >= 1000:
        shown = f"{value:,.0f}"
    elif abs(value) >= 100:
        shown = f"{value:.0f}"
    elif abs(value) >= 10 and unit != "×":
        shown = f"{value:.1f}"
    elif unit == "×":
        shown = f"{value:.3g}" if abs(value) < 0.1 else f"{value:.2f}"
    else:
        shown = f"{value:.3g}"
    return f"{shown}×" if unit == "×" else f"{shown} {unit}"


def quantities(them: Iterable[Quantity]) -> str:
    return ", ".join(f"{q.name} {amount(q.value, q.unit)}" for q in them)


def to_json(figures: Iterable[Figure]) -> list[dict[str, Any]]:
    return [asdict(figure) for figure in figures]


def from_json(values: Iterable[Mapping[str, Any]]) -> dict[str, Figure]:
    """Figures by target. Raises KeyError and TypeError for what to_json can't have written."""
    out = {}
    for value in values:
        fields = dict(value)
        for side in ("ours", "peers"):
            fields[side] = [Quantity(**q) for q in fields[side]]
        out[fields["target"]] = Figure(**fields)
    return out


def table(rows: list[list[str]], right: tuple[int, ...] = ()) -> str:
    """Columns as wide as they must be; the first row is the head. right: columns to push right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [
            cell.rjust(width) if i in right else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def figure_rows(figures: Mapping[str, Figure], on_gpu: bool) -> list[list[str]]:
    """The table of all targets, head first: what, measured, against, to reach, verdict."""
    rows = [["what", "measured", "beside", "to reach", "verdict"]]
    for target in TARGETS:
        figure = figures.get(target.name)
        measured = beside = ""
        if figure:
            measured = amount(figure.value, target.unit)
            ours = quantities(figure.ours)
            measured += f" ({ours})" if ours else ""
            beside = quantities(figure.peers)
        result = verdict(target, figure, on_gpu)
        rows.append([target.what, measured, beside, target.text(), result])
    return rows
