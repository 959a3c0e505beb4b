"""Memory that graphs allocate for themselves, on the simulator and on a GPU."""

from __future__ import annotations

from pathlib import Path

import ttanalyze as tt
from tests import recordings, support


def check_graph_memory(built: Path, run: Path, environment: dict[str, str], deps: str) -> None:
    """Records recorder_graph_memory. Memory that a launch leaves is in the epoch after it, until
    the next launch, another graph or a call frees it.
    """
    command = [str(support.build_program("recorder_graph_memory", built))]
    bare = support.run(command, environment)
    assert bare.stdout == "".join(f"launch {i}: {i} to {i}\n" for i in range(1, 5))
    options = {"epoch": "graph", "deps": deps}
    recorded = support.run(command, support.recording(environment, run, **options))
    recordings.compare("recorder_graph_memory", bare, recorded)
    opened = tt.open(run)
    kept = opened.regions.query("kind == 'async'")
    assert kept[["call", "size"]].values.tolist() == [["cuGraphLaunch", 4000]] * 4
    assert kept["base"].nunique() == 1
    assert kept["death_call"].tolist() == ["cuGraphLaunch"] * 3 + ["cuMemFreeAsync"]
    epochs = opened.epochs["epoch"].tolist()
    assert len(epochs) == 5
    after = [epochs[i] for i in (0, 1, 2, 4)]  # the launch before epoch 3 only frees
    for number, (epoch, region) in enumerate(zip(after, kept["region"], strict=True), 1):
        assert (opened.read(epoch, int(region), dtype="u4") == number).all()
        blamed = tt.blame(opened, region=int(region)).changes[0].suspects.listed
        wrote = blamed[0]
        assert (wrote.kind, wrote.seq) == ("graph-launch", opened.epochs["seq"][epoch])
    assert tt.verify(opened, run / "manifest.json").same
