"""Runs to compare, and reports of them that were looked at from all sides."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import ttanalyze as tt
from tests.rundir import Writer
from ttanalyze.format import layout, manifest
from ttanalyze.verbs.diff import DiffReport, diff
from ttanalyze.verbs.diff.show import diff_text

BLOCK = layout.BLOCK_SIZE
STEPS = 6
Change = Callable[[Writer, int], None]


def launch(w: Writer, function: int, grid: int = 4, **values: Any) -> int:
    shape = {"grid": [grid, 1, 1], "block": [256, 1, 1]}
    return w.event("launch", "cuLaunchKernel", id=function, **shape, **values)


def train(
    path: Path,
    change: Change | None = None,
    fine: bool = False,
    every: int = 1,
    index: int = 0,
    events: bool = True,
    before: Callable[[Writer], None] | None = None,
    **process: Any,
) -> Path:
    """A run of six steps: gradients by one kernel, weights by another, then a wait.

    change: called before each step's second launch. fine: an epoch after each launch too. every:
    an epoch only at every so manieth wait. before: called before anything is allocated.
    """
    random = np.random.default_rng(3)
    w = Writer(path, index)
    w.function(0, "_Z4gradPfS_")
    w.function(1, "update")
    if before:
        before(w)
    first = max(w.regions, default=-1) + 1
    weights, gradients = first, first + 1
    w.born(weights, random.bytes(3 * BLOCK + 48), label="weights")
    w.born(gradients, random.bytes(4000))
    for step in range(STEPS):
        launch(w, 0)
        w.write(gradients, step * 8, random.bytes(8))
        if fine:
            w.epoch("launch", label="grad")
        if change:
            change(w, step)
        launch(w, 1)
        w.write(weights, step * 1000, random.bytes(8))
        if fine:
            w.epoch("launch", label="update")
        w.event("sync", "cuCtxSynchronize")
        if (step + 1) % every == 0:
            w.epoch("sync")
    if not events:
        events_bin = w.path / "events.bin"
        events_bin.write_bytes(events_bin.read_bytes()[: layout.HEADER_SIZE])
    w.close(**process)
    return path


def at_step(step: int, what: Callable[[Writer], Any]) -> Change:
    def change(w: Writer, now: int) -> None:
        if now == step:
            what(w)

    return change


def compared(a: Path, b: Path, **options: Any) -> DiffReport:
    """The report, which must also look like something on a screen and be JSON."""
    report = diff(a, b, **options)
    for width in (0, 60):
        assert diff_text(report, colour=True, width=width)
    assert json.loads(report.to_json())["same"] == report.same
    return report


def as_manifest(run: Path) -> Path:
    path = run.with_suffix(".json")
    path.write_text(manifest.text(tt.open(run).manifest()))
    return path
