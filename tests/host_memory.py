"""What recordings of recorder_host_memory.c hold, on the simulator and on a GPU."""

from __future__ import annotations

from pathlib import Path

import ttanalyze as tt


def check_host_memory(run: Path) -> None:
    """Each step adds 1 in both: a kernel to all items of one, the host to one item of the other."""
    opened = tt.open(run)
    regions = opened.regions.set_index("kind")
    allocated, registered = (regions.loc[kind] for kind in ("host", "host-registered"))
    assert allocated["captured"] and registered["captured"]
    steps = opened.epochs.query("trigger == 'sync'")["epoch"].tolist()[:3]
    for number, epoch in enumerate(steps, 1):
        whole = opened.read(epoch, int(allocated["region"]), dtype="u4")
        part = opened.read(epoch, int(registered["region"]), dtype="u4")
        assert set(whole.tolist()) == {number}
        assert part[100] == number and part.sum() == number
    assert len(steps) == 3 and tt.verify(opened, run / "manifest.json").same
