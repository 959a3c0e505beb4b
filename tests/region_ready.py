"""What recordings of recorder_region_ready.c hold, on the simulator and on a GPU."""

from __future__ import annotations

from pathlib import Path

import ttanalyze as tt
from tests.traces import traced

LAUNCHES, ROUNDS = 60, 4


def check_region_ready(run: Path) -> list[int]:
    """Each epoch has all of the work before the event. Returns the waits in nanoseconds, if the
    run has a timeline.
    """
    opened = tt.open(run)
    region = int(opened.regions.query("size == 80000")["region"].iloc[0])
    cut = opened.epochs.query("trigger == 'api'")["epoch"]
    values = [set(opened.read(int(epoch), region, dtype="u4").tolist()) for epoch in cut]
    assert values == [{LAUNCHES * (i + 1)} for i in range(ROUNDS)]
    calls = opened.events.query("kind == 'region-ready'")
    assert len(calls) == ROUNDS and set(calls["id"]) == {region}
    assert tt.verify(opened, run / "manifest.json").same
    waits = opened.activities.query("kind == 'region-ready'")
    assert waits["own"].all() and set(waits["seq"]) <= set(calls["seq"])
    seen, _ = traced(run)
    shown = [item for item in seen.items if item.name == f"waits for region {region}"]
    assert len(shown) == len(waits)
    return [int(wait) for wait in waits["gpu_time"].astype("i8")]
