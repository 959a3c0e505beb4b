"""What a recording of recorder_graph_controls holds, on the simulator and on a GPU."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

import ttanalyze as tt

N = 20000
OPTIONS = {"epoch": "sync;graph-node:^(add|mix)$", "graph_stamps": "."}
# Of each replay: whether there are epochs in it, times, what is read after the two kernels, and
# what was set by then.
ALWAYS = (True, True, (True, True), None)
SILENT = (False, True, (False, False), "points=off;stamps=on;snapshot=64;regions=all")
BY_NAME = (True, False, (True, False), "points=on;stamps=off;snapshot=64;regions=^weights")
BY_ID = (True, False, (False, True), "points=on;stamps=off;snapshot=64;regions=1")
WHOLE = (True, False, (True, True), "points=on;stamps=off;snapshot=2;regions=all")
QUEUED = (True, True, (True, True), "points=on;stamps=on;snapshot=64;regions=all")
REPLAYS: list[tuple[bool, bool, tuple[bool, bool], str | None]] = [
    *(ALWAYS, ALWAYS, SILENT, SILENT, BY_NAME, BY_ID, WHOLE, WHOLE, *[QUEUED] * 10, SILENT)
]


def check_controls(run: Path) -> None:
    """Each replay is recorded as it was asked for when it was launched."""
    opened = tt.open(run)
    epochs, events, activities = opened.epochs, opened.events, opened.activities
    launches = events["seq"][events["kind"] == "graph-launch"].tolist()
    assert len(launches) == len(REPLAYS)
    labels = opened.regions.set_index("label")["region"]
    points = epochs[epochs["trigger"] == "graph-node"]
    assert not points[["refused", "loose", "full"]].any().any()
    mixed = 0
    for i, (seq, (there, _, read, setting)) in enumerate(zip(launches, REPLAYS, strict=True)):
        of_launch = points[points["seq"] == seq]
        assert of_launch["label"].tolist() == (["add", "mix"] if there else [])
        mixed = (mixed * 1664525 + 1013904223) % 2**32
        what = (("weights.a", i + 1), ("b", mixed))
        for row, is_read, (label, value) in zip(of_launch.itertuples(), read, what, strict=False):
            assert row.bytes_read == (N * 4 if is_read else 0)
            assert row.controls == setting if setting else pd.isna(row.controls)
            if is_read:
                assert (opened.read(row.epoch, labels[label], dtype="u4") == value).all()
    stamped = activities[activities["stamped"]]
    timed = [seq for seq, replay in zip(launches, REPLAYS, strict=True) if replay[1]]
    assert sorted(set(stamped["seq"])) == timed
    check_times(opened, stamped)
    assert len(events[events["kind"] == "control"]) == 6
    assert tt.verify(opened, run / "manifest.json").same


def check_times(opened: tt.Run, stamped: pd.DataFrame) -> None:
    """Kernels run one after the other, and not before their launch."""
    timeline = opened.process(0).info["timeline"]
    assert timeline["missed"] == 0
    assert stamped["coarse"].all()
    assert stamped["kernel"].tolist() == ["add", "mix"] * (len(stamped) // 2)
    assert stamped["node"].tolist() == [0, 1] * (len(stamped) // 2)
    begins, ends = stamped["begin_ns"].to_numpy("i8"), stamped["end_ns"].to_numpy("i8")
    assert (begins[1:] >= ends[:-1] - timeline["clock_error_ns"]).all()  # the line may be another
    calls = dict(zip(opened.events["seq"], opened.events["time_ns"], strict=True))
    made = np.array([calls[seq] for seq in stamped["seq"].tolist()], "i8")
    assert (begins >= made - timeline["clock_error_ns"]).all()
    means = stamped["gpu_time"].astype("i8").groupby(stamped["node"]).mean()
    assert opened.process(0).node_times.means(0).took.tolist() == [round(mean) for mean in means]
