"""The figures to reach: what each is, its limit, and how it and its verdict are put.

A part of the benchmark measures figures by name; what they have to be stands here and nowhere
else. Times that the simulator took are not judged.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

RATIO = "x"
REACHED, MISSED, MISSING, UNJUDGED = "reached", "missed", "not measured", "not judged"


@dataclass(frozen=True)
class Quantity:
    """A measured value. unit: such as GB/s, ns, MiB, or RATIO."""

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
    """What a figure has to be. sense: ≥ or ≤. gpu: the simulator's says nothing.

    of: what a ratio is to.
    """

    name: str
    part: str
    what: str
    sense: str
    limit: float
    unit: str
    of: str = ""
    gpu: bool = True

    def holds(self, value: float) -> bool:
        return value >= self.limit if self.sense == "≥" else value <= self.limit

    def text(self) -> str:
        """The limit, and what it is of."""
        return f"{self.sense} {amount(self.limit, self.unit)} {self.of}".strip()


TARGETS = (
    Target("digest-hash", "kernels", "digest of 8 GiB", "≥", 1.05, RATIO, "torch.hash_tensor"),
    Target("digest-read", "kernels", "digest of 8 GiB", "≥", 1.00, RATIO, "a plain read"),
    Target("digest-many", "kernels", "digest of 1,000 regions", "≤", 1.15, RATIO, "a plain read"),
    Target("snapshot", "kernels", "full snapshot of 8 GiB", "≥", 0.90, RATIO, "a device copy"),
    Target("delta", "kernels", "delta of 8 GiB, 2 % changed", "≤", 1.15, RATIO, "digest alone"),
    Target("predecessor-snapshot", "kernels", "snapshot", "≥", 10_000, RATIO, "cuda-time-travel"),
    Target("predecessor-delta", "kernels", "delta", "≥", 10_000, RATIO, "cuda-time-travel"),
    Target("coder-speed", "coder", "contents coded on the device, slowest kind", "≥", 200, "GB/s"),
    Target("coder-ratio", "coder", "size of weights in bf16", "≥", 1.3, RATIO, "their code"),
    Target("drain-host", "drain", "drain, ring to pinned host", "≥", 0.95, RATIO, "one copy"),
    Target("drain-file", "drain", "drain, ring to file", "≥", 0.90, RATIO, "best of dd, fio"),
    Target("drain-disk", "drain", "the same, until on disk", "≥", 0.90, RATIO, "best of dd, fio"),
    Target("launch-median", "launches", "added to a launch, median", "≤", 60, "ns"),
    Target("launch-callback", "launches", "the same", "≤", 0.5, RATIO, "CUPTI callback"),
    Target("launch-p999", "launches", "added to a launch, 99.9 %", "≤", 1000, "ns"),
    Target(
        "launch-timed", "launches", "a launch timed by CUPTI, added", "≤", 1, RATIO, "CUPTI alone"
    ),
    Target("launch-stacks", "stacks", "a Python call stack, added", "≤", 3000, "ns"),
    Target("step-events", "training", "MLP step, events on", "≤", 1.02, RATIO, "bare"),
    Target("step-digests", "training", "MLP step with epoch, digests", "≤", 1.10, RATIO, "bare"),
    Target("step-touched", "training", "MLP step with epoch, touched", "≤", 1.10, RATIO, "bare"),
    Target("step-all", "training", "MLP step with epoch, all", "≤", 1.25, RATIO, "bare"),
    Target(
        "llama-digests", "llama", "Llama step with epoch, digests", "≤", 1.02, RATIO, "one without"
    ),
    Target("llama-events", "llama", "Llama step, events on", "≤", 1.02, RATIO, "bare"),
    Target("llama-stacks", "llama", "Llama step, stacks and parameters", "≤", 1.10, RATIO, "bare"),
    Target("llama-cupti", "llama", "Llama step, timed by CUPTI", "≤", 1.15, RATIO, "bare"),
    Target("llama-profiler", "llama", "the same", "≤", 1, RATIO, "torch.profiler, GPU only"),
    Target("llama-coded", "llama", "Llama step, contents coded", "≤", 4, RATIO, "bare"),
    Target("budget-waits", "budget", "17,000 waits, 96 MB, limit 5 %", "≤", 1.05, RATIO, "bare"),
    Target(
        "budget-regions", "budget", "1,500 waits, 400 regions, limit 5 %", "≤", 1.05, RATIO, "bare"
    ),
    Target("zones-multiply", "bounds", "matrices with zones", "≤", 1.10, RATIO, "bare"),
    Target("zones-relax", "bounds", "grid with zones", "≤", 1.10, RATIO, "bare"),
    Target("zones-train", "bounds", "MLP step with zones", "≤", 1.10, RATIO, "bare"),
    Target("check-all", "check", "a whole check", "≤", 8, RATIO, "bare"),
    Target("check-order", "check", "Llama step, recorded for order", "≤", 1.05, RATIO, "bare"),
    Target("check-bounds", "check", "Llama step with zones", "≤", 1.10, RATIO, "bare"),
    Target("check-order-search", "check", "order in 1,000,000 calls", "≤", 60, "s", gpu=False),
    Target("traces-count", "traces", "kernels, counted", "≤", 2, RATIO, "bare"),
    Target("traces-heartbeat", "traces", "kernels with heartbeats", "≤", 1.15, RATIO, "bare"),
    Target("traces-addresses", "traces", "slowdown by addresses", "≤", 0.5, RATIO, "Sanitizer API"),
    Target("traces-bytes", "traces", "an address record of a copy", "≤", 40, "B"),
    Target("host-memory", "memory", "host memory", "≤", 64, "MiB", "and pinned buffers"),
    Target("host-growth", "memory", "growth of it over the run", "≤", 4, "MiB"),
    Target("device-memory", "memory", "device memory but the ring", "≤", 0.1, "%", "of tracked"),
    Target("growth-bytes", "growth", "epoch, of 4 times the bytes", "≤", 4.4, RATIO),
    Target("growth-dirty", "growth", "gather, of 2 times the bytes", "≤", 2.2, RATIO),
    Target("growth-regions", "growth", "epoch, of 10 times the regions", "≤", 11, RATIO),
    Target("regions-unchanged", "growth", "epoch of 100,000 regions, none changed", "≤", 150, "µs"),
    Target("growth-launches", "growth", "a launch, last against first", "≤", 1.1, RATIO),
    Target("growth-epochs", "growth", "an epoch, last against first", "≤", 1.1, RATIO),
    Target("verify", "toolkit", "verify 1,000,000 region-epochs", "≤", 0.6, "s", gpu=False),
    Target("info", "toolkit", "info", "≤", 0.3, "s", gpu=False),
    Target("import", "toolkit", "import ttanalyze.cli", "≤", 0.25, "s", gpu=False),
    Target("query", "toolkit", "query of 10,000,000 events", "≤", 3, "s", gpu=False),
    Target("trace", "toolkit", "trace, as JSON", "≥", 300_000, "calls/s", gpu=False),
    Target("rewind", "rewind", "rewind 1 GiB", "≥", 0.70, RATIO, "dd that only reads", False),
    Target("replay-restore", "replay", "restore 8 GiB", "≥", 0.95, RATIO, "a pinned copy"),
    Target("replay-cold", "replay", "replay on 1 GiB, from cold", "≤", 1000, "ms"),
    Target("patch-load", "patching", "patching 10,000 instructions", "≤", 2, "ms", gpu=False),
    Target("race", "race", "race of a PyTorch loop, with its reduction", "≤", 60, "s"),
    Target("diff", "diff", "diff of 1,000,000 launches", "≤", 5, "s", gpu=False),
    Target("diff-memory", "diff", "memory for that", "≤", 1024, "MiB", gpu=False),
    Target("length-time", "length", "time of 10 times the launches", "≤", 12, RATIO, gpu=False),
    Target("length-memory", "length", "memory, as many launches", "≤", 512, "MiB", gpu=False),
    Target("open-large", "toolkit", "open a run of 50 GB", "≤", 1.5, RATIO, "a small one", False),
)


def verdict(target: Target, figure: Figure | None, on_gpu: bool) -> str:
    """reached, missed, not measured, or not judged (the simulator's)."""
    if figure is None:
        return MISSING
    if target.gpu and not on_gpu:
        return UNJUDGED
    return REACHED if target.holds(figure.value) else MISSED


def amount(value: float, unit: str) -> str:
    """Three significant digits or so, and the unit."""
    size = abs(value)
    if size >= 100:
        shown = f"{value:,.0f}"
    elif unit == RATIO and size >= 0.1:
        shown = f"{value:.2f}"
    else:
        shown = f"{value:.3g}"
    return f"{shown}\N{MULTIPLICATION SIGN}" if unit == RATIO else f"{shown} {unit}"


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


def figure_rows(
    figures: Mapping[str, Figure],
    on_gpu: bool,
    parts: Container[str],
    where: Mapping[str, str] | None = None,
) -> list[list[str]]:
    """The table of the parts' targets, head first: what, measured, beside, to reach, verdict, and
    where each part was measured.
    """
    rows = [["what", "measured", "beside", "to reach", "verdict", *(["on"] if where else [])]]
    for target in TARGETS:
        if target.part not in parts:
            continue
        figure = figures.get(target.name)
        measured = beside = ""
        if figure:
            measured = amount(figure.value, target.unit)
            ours = quantities(figure.ours)
            measured += f" ({ours})" if ours else ""
            beside = quantities(figure.peers)
        result = verdict(target, figure, on_gpu)
        place = [where.get(target.part, "") if figure else ""] if where else []
        rows.append([target.what, measured, beside, target.text(), result, *place])
    return rows
