"""What recordings of recorder_host_memory.c and recorder_arrays.c hold, on the simulator and on a
GPU.
"""

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


def check_arrays(run: Path) -> None:
    """Each step sets each array to another byte. The second one is made again."""
    opened = tt.open(run)
    regions = opened.regions.query("kind == 'array'")
    assert regions["captured"].all() and regions["size"].tolist() == [400, 8000, 24000, 8000]
    line, plane, space, again = (int(region) for region in regions["region"])
    waits = opened.events.query("call == 'cuCtxSynchronize'")["seq"].tolist()
    epochs = opened.epochs.query("trigger == 'sync'").set_index("seq")["epoch"]
    for step, seq in enumerate(waits[:3], 1):
        for region, byte in ((line, step), (plane, 10 * step), (space, 20 * step)):
            assert set(opened.read(int(epochs[seq]), region).tolist()) == {byte}
    assert set(opened.read(int(epochs[waits[3]]), again).tolist()) == {99}
    assert tt.verify(opened, run / "manifest.json").same
