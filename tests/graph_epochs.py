"""What recordings of recorder_graph_epochs*.c hold, on the simulator and on a GPU."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

import ttanalyze as tt
from tests import support

N = 40000
BASES = [1000, 2000, 3000, 4000, 4000]


def check_graph_epochs(run: Path) -> None:
    """An epoch after each kernel of each replay, with what its buffer holds then."""
    opened = tt.open(run)
    epochs = opened.epochs
    node_epochs = epochs[epochs["trigger"] == "graph-node"]
    assert not node_epochs["refused"].any()
    assert not node_epochs["loose"].any()
    launches = sorted(node_epochs["seq"].unique())
    assert len(launches) == len(BASES)
    index = np.arange(N, dtype="u4")
    a, b, c = opened.regions.query(f"size == {N * 4}")["region"].iloc[:3]
    for seq, base in zip(launches, BASES, strict=True):
        of_launch = node_epochs[node_epochs["seq"] == seq]
        assert sorted(of_launch["label"]) == ["add", "add", "add", "fill", "fill"]
        seen: dict[int, list[int]] = {a: [], b: [], c: []}
        for epoch in of_launch["epoch"]:
            for region, values in seen.items():
                contents = opened.read(epoch, region, dtype="u4")
                assert np.array_equal(contents - contents[0], index) or not contents.any()
                if not values or values[-1] != int(contents[0]):
                    values.append(int(contents[0]))
        assert seen[a][-2:] == [base, base + 1]
        assert seen[b][-2:] == [base + 100, base + 101]
        assert seen[c][-1] == base + 3
    assert tt.verify(opened, run / "manifest.json").same


def check_order(run: Path, updates: list[bool]) -> None:
    """The same where graphs of other node orders were taken over, or refused (updates)."""
    opened = tt.open(run)
    epochs = opened.epochs
    node_epochs = epochs[epochs["trigger"] == "graph-node"]
    assert not node_epochs["refused"].any()
    launches = sorted(node_epochs["seq"].unique())
    assert len(launches) == 1 + len(updates)
    a, b, c = opened.regions.query(f"size == {N * 4}")["region"].iloc[:3]
    base = 1000
    for i, seq in enumerate(launches):
        base = 1000 * (i + 1) if i == 0 or updates[i - 1] else base
        seen: dict[int, list[int]] = {a: [], b: [], c: []}
        for epoch in node_epochs[node_epochs["seq"] == seq]["epoch"]:
            for region, values in seen.items():
                first = int(opened.read(epoch, region, dtype="u4")[0])
                if not values or values[-1] != first:
                    values.append(first)
        assert seen[a][-3:] == [base, base + 1, base + 11]
        assert seen[b][-2:] == [base + 100, base + 102]
        assert seen[c][-1] == base + 203
    assert tt.verify(opened, run / "manifest.json").same


def check_streams(run: Path) -> None:
    """Of recorder_graph_epochs_streams: each launch adds its number to the memory of its graph."""
    opened = tt.open(run)
    node_epochs = opened.epochs[opened.epochs["trigger"] == "graph-node"]
    assert not node_epochs[["refused", "loose"]].any().any()
    launches = opened.events.query("kind == 'graph-launch'")["seq"].tolist()
    assert node_epochs["seq"].tolist() == launches
    regions = opened.regions.query("size == 120000")["region"].tolist()
    sums = [0] * len(regions)
    for i, epoch in enumerate(node_epochs["epoch"].tolist()):
        of = i % len(regions)
        sums[of] += i + 1
        contents = opened.read(epoch, regions[of], dtype="u4")
        assert (contents == sums[of]).all()
    assert tt.verify(opened, run / "manifest.json").same


def check_marks(run: Path, kernels: int) -> None:
    """Of recorder_graph_marks: each launch has an epoch after each of its kernels."""
    opened = tt.open(run)
    epochs = opened.epochs
    marked = epochs[epochs["trigger"] == "graph-node"]
    assert not marked[["refused", "loose"]].any().any()
    launches = opened.events.query("kind == 'graph-launch'")["seq"].tolist()
    assert marked["seq"].tolist() == [seq for seq in launches for _ in range(kernels)]
    labels = [f"added {i}" for i in range(kernels)]
    assert marked["label"].tolist() == labels * len(launches) and len(launches) == 4
    region = int(opened.regions.query("size == 20000")["region"].iloc[0])
    values = [int(opened.read(int(epoch), region, dtype="u4")[0]) for epoch in marked["epoch"]]
    last = 3 * kernels
    by_ten = [last + 10 * i for i in range(1, kernels + 1)]
    assert values == [*range(1, last + 1), *by_ten]
    nodes = opened.graph_nodes(0)
    assert (nodes["kernel"] == "tt_epoch").sum() == kernels
    assert tt.verify(opened, run / "manifest.json").same


CHILD_MARKS = ("first", "inner a", "inner b", "inner a", "inner b", "middle a")


BODY_MARKS = (
    ("first", 1, 0),
    ("runs", 1, 1),
    ("runs", 2, 1),
    *2 * [("does not", 2, 1)],
    ("last", 3, 1),
)


def check_body_marks(run: Path) -> None:
    """Of recorder_graph_body_marks: each launch has all epochs. In a body that did not run, nothing
    changed."""
    opened = tt.open(run)
    marked = opened.epochs[opened.epochs["trigger"] == "graph-node"]
    assert not marked[["refused", "loose"]].any().any() and not opened.warnings
    launches = opened.events.query("kind == 'graph-launch'")["seq"].tolist()
    assert marked["label"].tolist() == [label for label, _, _ in BODY_MARKS] * 4
    assert marked["seq"].tolist() == [seq for seq in launches for _ in BODY_MARKS]
    a, b = opened.regions.query("size == 20000")["region"].tolist()
    found = [
        tuple(int(opened.read(epoch, region, dtype="u4")[0]) for region in (a, b))
        for epoch in marked["epoch"].astype(int)
    ]
    before = [(3 * launch, launch, 1) for launch in range(3)] + [(9, 3, 10)]
    assert found == [
        (in_a + by * more, in_b + by * of_b)
        for in_a, in_b, by in before
        for _, more, of_b in BODY_MARKS
    ]
    assert tt.verify(opened, run / "manifest.json").same


def check_child_marks(run: Path) -> None:
    """Of recorder_graph_child_marks: each launch has an epoch after each kernel of each graph."""
    opened = tt.open(run)
    marked = opened.epochs[opened.epochs["trigger"] == "graph-node"]
    assert not marked[["refused", "loose"]].any().any()
    launches = opened.events.query("kind == 'graph-launch'")["seq"].tolist()
    assert marked["label"].tolist() == list(CHILD_MARKS) * 4
    assert marked["seq"].tolist() == [seq for seq in launches for _ in CHILD_MARKS]
    a, b = opened.regions.query("size == 20000")["region"].tolist()
    expected, found, so_far = [], [], [0, 0]
    for by in (1, 1, 1, 10):
        for label in CHILD_MARKS:
            so_far[label.endswith("b")] += 2 * by if label.endswith("b") else by
            expected.append(tuple(so_far))
    for epoch in marked["epoch"].astype(int):
        values = (opened.read(epoch, region, dtype="u4") for region in (a, b))
        found.append(tuple(int(words[0]) for words in values if (words == words[0]).all()))
    assert found == expected
    assert tt.verify(opened, run / "manifest.json").same


def record(command: list[str], run: Path, environment: dict[str, str], **options: str) -> str:
    """Expects the program to do what it does without us, and gives its error output."""
    bare = support.run(command, environment)
    outcome = support.run(command, support.recording(environment, run, **options))
    assert (outcome.stdout, outcome.status) == (bare.stdout, bare.status)
    return outcome.stderr


def check_cut(run: Path) -> int:
    """Checks recorder_consistent_epochs. An epoch that names its last call holds the work of all
    calls up to it, and of no later call. Returns how many epochs name one.
    """
    events = tt.open(run).events
    graphs, launches = events["kind"] == "graph-launch", events["kind"] == "launch"
    return _check_counted(
        run,
        [
            graphs & (events["id"] == 0),
            launches & (events["block_x"] == 65),
            None,
            graphs & (events["id"] == 3),
            launches & (events["block_x"] == 68),
            None,
        ],
        40,
    )


def check_late(run: Path) -> int:
    """The same of recorder_late_threads."""
    return _check_counted(run, [None] * 3, 900)


def _check_counted(run: Path, calls: list[pd.Series[bool] | None], rounds: int) -> int:
    """calls: by which each thread counts, None for sets of its memory."""
    opened = tt.open(run)
    events, regions = opened.events, opened.regions
    counters = [regions[regions["size"] == 256 + 4 * i].iloc[-1] for i in range(len(calls))]
    counted = [
        events[(events["kind"] == "set") & (events["dst"] == c["base"]) if by is None else by][
            "seq"
        ]
        for c, by in zip(counters, calls, strict=True)
    ]
    counted = [seqs[-rounds:] for seqs in counted]
    assert {len(seqs) for seqs in counted} == {rounds}
    epochs = opened.processes[0].epochs
    exact = epochs[epochs["cut"] >= max(seqs.iloc[0] for seqs in counted)]
    for number, cut in zip(exact["number"].tolist(), exact["cut"].tolist(), strict=True):
        held = [opened.read(number, int(c["region"]), dtype="u4")[0] for c in counters]
        assert held == [(seqs <= cut).sum() for seqs in counted], f"epoch {number}"
    return len(exact)


def check_changes(run: Path) -> None:
    """Checks recorder_graph_epochs_changes. Each launch has the time of each of its kernels and an
    epoch after it, with the name of the kernel that ran.
    """
    opened = tt.open(run)
    node_epochs = opened.epochs[opened.epochs["trigger"] == "graph-node"]
    assert not node_epochs[["refused", "loose"]].any().any()
    launches = opened.events.query("kind == 'graph-launch'")["seq"].tolist()
    assert sorted(node_epochs["seq"]) == sorted(7 * launches)
    exchanged = node_epochs[node_epochs["label"] == "add"]["seq"].tolist()
    assert exchanged == launches[13:16]
    names = opened.activities.query("stamped").groupby("seq")["kernel"]
    assert {seq: sorted(of) for seq, of in names} == {
        seq: ["add"] * (seq in exchanged) + ["fill"] * (7 - (seq in exchanged)) for seq in launches
    }
    assert tt.verify(opened, run / "manifest.json").same


def check_paired(run: Path) -> None:
    """Checks recorder_graph_epochs_crosswise. The graph has epochs until a node changes that cannot
    be identified any more. From then on the run does not say which nodes the graph has.
    """
    opened = tt.open(run)
    node_epochs = opened.epochs[opened.epochs["trigger"] == "graph-node"]
    launches = opened.events.query("kind == 'graph-launch'")["seq"].tolist()
    assert len(launches) == 4
    assert node_epochs["seq"].tolist() == [launches[0]] * 2 + [launches[1]] * 2
    known = [opened.processes[0].graphs.known(0, seq) for seq in launches]
    assert known == [True, True, False, False]
    assert "the driver refuses the program's changes" in str(opened.warnings)
    assert tt.verify(opened, run / "manifest.json").same


def check_astray(run: Path) -> None:
    """Checks recorder_graph_epochs_reordered: the run says that no epochs follow the update."""
    opened = tt.open(run)
    node_epochs = opened.epochs[opened.epochs["trigger"] == "graph-node"]
    launches = opened.events.query("kind == 'graph-launch'")["seq"].tolist()
    assert len(launches) == 6
    assert sorted(node_epochs["seq"]) == sorted(3 * launches[:3])
    assert "the driver refuses the program's changes" in str(opened.warnings)
    assert tt.verify(opened, run / "manifest.json").same
