"""--contents: of which epochs contents are stored, and of which blocks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import ttanalyze as tt
from tests import support
from tests.recordings import record
from ttanalyze.format import layout

SIM = support.simulator_environment()
pytestmark = pytest.mark.native

# A program and what is recorded of it, the same each time.
WORK: dict[str, tuple[str, list[str]]] = {
    "training": ("example-training", []),
    "touched": ("example-training", ["--regions", "touched"]),
    "snapshots": ("example-training", ["--snapshot-every", "3"]),
    "launches": ("example-streams", ["--epoch", "launch"]),
    "small-ring": ("example-training", ["--ring-bytes", "256K"]),
    "deterministic": ("example-vmm", ["--deterministic"]),
    "managed": ("example-managed", []),
    "inside-graphs": ("recorder_graph_epochs", ["--epoch", "graph-node:."]),
    "flight-recorder": ("example-training", ["--overwrite", "drop-oldest"]),
}


def told(run: Path, *more: str | Path) -> tuple[int, Any]:
    outcome = support.ttanalyze(*more[:1], run, *more[1:], "--json")
    return outcome.status, json.loads(outcome.stdout)


@pytest.mark.long
@pytest.mark.parametrize("kind", WORK)
def test_digests_do_not_depend_on_contents(kind: str, built: Path, tmp_path: Path) -> None:
    name, options = WORK[kind]
    command = support.command(name, built)
    bare = support.run(command, SIM)
    digests: dict[str, list[dict[int, int]]] = {}
    blocks: dict[str, list[set[tuple[int, int, int]]]] = {}
    for contents in ("changed", "none"):
        run = tmp_path / contents
        outcome = record(command, SIM, run, "--contents", contents, "--require-complete", *options)
        assert (outcome.stdout, outcome.status) == (bare.stdout, bare.status), outcome.stderr
        assert "warning" not in outcome.stderr
        opened = tt.open(run)
        assert opened.warnings == []
        process = opened.processes[0]
        epochs = [(epoch, epoch + 1) for epoch in range(len(process.epochs))]
        digests[contents] = [
            {int(row["region"]): int(row["digest"]) for row in process.digests(*one)}
            for one in epochs
        ]
        blocks[contents] = [
            {(int(row["region"]), int(row["block"]), int(row["digest"])) for row in rows}
            for rows in (process.blocks(*one) for one in epochs)
        ]
    assert digests["none"] == digests["changed"]
    assert blocks["none"] == blocks["changed"]
    assert sum(map(len, digests["none"])) > 3
    assert not any((tmp_path / "none" / "p0").glob("data-*.bin")) or (
        sum(p.stat().st_size for p in (tmp_path / "none" / "p0").glob("data-*.bin")) <= 64
    )
    assert support.ttanalyze("verify", tmp_path / "none").status == 0
    outcome = support.ttanalyze("diff", tmp_path / "none", tmp_path / "changed")
    assert outcome.status == 0, outcome.stdout
    assert outcome.stdout.startswith("same: ")


def test_digests_show_a_difference(built: Path, tmp_path: Path) -> None:
    """The same epoch, region and blocks as with contents; only the bytes are not known."""
    program = support.command("example-scribble", built)[0]
    command = [program, "--size", "90000", "--steps", "2"]
    found = {}
    for contents in ("changed", "none"):
        good, bad = tmp_path / f"{contents}-good", tmp_path / f"{contents}-bad"
        record(command, SIM, good, "--contents", contents)
        record([*command, "--fixed"], SIM, bad, "--contents", contents)
        status, report = told(good, "diff", bad)
        assert status == 1
        first = report["processes"][0]["divergences"][0]
        found[contents] = {k: first[k] for k in ("epoch_a", "epoch_b", "region_a", "blocks")}
        manifest = good / "manifest.json"
        assert support.ttanalyze("verify", bad, "--manifest", manifest).status == 1
    assert found["none"] == found["changed"]
    assert found["none"]["blocks"] == [5]
    commands: list[list[str | Path]] = [["diff", bad, good], ["verify", bad, "--against", good]]
    for words in commands:
        outcome = support.ttanalyze(*words)
        assert outcome.status == 1
        assert "  blocks   block 5" in outcome.stdout
        assert "  within   bytes 327680 to 393215\n" in outcome.stdout
        assert "contents were not stored: recorded with --contents none" in outcome.stdout
    status, report = told(bad, "verify", "--against", good)
    (difference,) = report["differences"]
    assert (status, difference["differing_blocks"]) == (1, [5])
    assert difference["differing_bytes"] is None


def test_missing_contents_are_explained(built: Path, tmp_path: Path) -> None:
    """What needs them says why they are missing; info counts no loss."""
    record(support.command("example-training", built), SIM, tmp_path / "run", "--contents", "none")
    opened = tt.open(tmp_path / "run")
    why = r"contents of region 1 in epoch 5 were not stored: 1 of 1 blocks.*--contents none\)"
    with pytest.raises(tt.Error, match=why):
        opened.read(5, 1)
    with pytest.raises(tt.Error, match=why):
        tt.rewind(opened, 5, regions=[1])
    shown = support.ttanalyze("info", tmp_path / "run").stdout
    assert "lost     nothing" in shown
    assert ", digests only " in shown
    assert shown.endswith("no warnings\n")


def test_each_epoch_is_a_snapshot(built: Path, tmp_path: Path) -> None:
    record(support.command("example-training", built), SIM, tmp_path / "run", "--contents", "all")
    epochs = tt.open(tmp_path / "run").epochs
    assert len(epochs) > 10
    assert epochs["full"].all()


# What is recorded with contents of each fourth epoch.
SOME: dict[str, tuple[str, list[str]]] = {
    "training": ("example-training", []),
    "launches": ("example-streams", ["--epoch", "launch"]),
    "touched": ("example-training", ["--regions", "touched"]),
    "small-ring": ("example-training", ["--ring-bytes", "256K"]),
    "snapshots": ("example-training", ["--compress", "1", "--snapshot-every", "3"]),
    "removed": ("example-training", ["--retain", "5"]),
    "flight-recorder": ("example-training", ["--overwrite", "drop-oldest"]),
}


def memory(run: tt.Run, epoch: int) -> dict[int, bytes]:
    regions = run.processes[0].regions
    alive = (regions.born <= epoch) & (epoch < regions.died) & (regions.flags & layout.CAPTURED > 0)
    return {r: run.read(epoch, r).tobytes() for r in regions.id[alive].tolist()}


@pytest.mark.long
@pytest.mark.parametrize("kind", SOME)
def test_contents_of_each_fourth_epoch(kind: str, built: Path, tmp_path: Path) -> None:
    """They are as in a recording of all contents; the other epochs have the same digests."""
    name, options = SOME[kind]
    command = support.command(name, built)
    epochs = options if "--epoch" in options else []
    record(command, SIM, tmp_path / "all", *epochs)
    more = ["--contents", "every:4", "--require-complete", *options]
    outcome = record(command, SIM, tmp_path / "some", *more)
    assert (outcome.status, "warning" in outcome.stderr) == (0, False), outcome.stderr
    whole, some = tt.open(tmp_path / "all"), tt.open(tmp_path / "some")
    count = len(whole.epochs)
    assert count > 10
    alone = some.processes[0].digests_alone
    assert alone.any() and not alone[::4].any()
    first = count - 5 if kind == "removed" else 0
    for epoch in range(first + -first % 4, count, 4):
        assert some.processes[0].epochs["flags"][epoch] & layout.FULL
        assert memory(some, epoch) == memory(whole, epoch), epoch
    with pytest.raises(tt.Error, match=r"not stored.*recorded with --contents every"):
        memory(some, int(alone.nonzero()[0][-1]))
    assert tt.verify(some).same
    assert tt.diff(some, whole).same
    stored = [int(r.processes[0].epochs["bytes_stored"].sum()) for r in (some, whole)]
    assert 0 < stored[0] < stored[1]
    assert some.manifest() == json.loads((tmp_path / "some" / "manifest.json").read_text())


def say(words: str, built: Path, run: Path, contents: str, **options: str) -> tt.Run:
    program = support.build_program("recorder_nvtx", built)
    environment = support.recording(SIM, run, contents=contents, **options)
    outcome = support.run([program, *words.split()], environment)
    assert outcome.status == 0, outcome.stderr
    return tt.open(run)


def with_contents(run: tt.Run) -> list[int]:
    numbers: list[int] = (~run.processes[0].digests_alone).nonzero()[0].tolist()
    return numbers


@pytest.mark.parametrize(
    ("words", "contents", "expected"),
    [
        ("push:a launch sync pop push:b launch sync launch sync pop launch sync", "^b", [1, 2]),
        ("launch sync push:out push:in launch sync pop launch sync pop launch sync", "out", [1, 2]),
        ("launch sync start:long launch sync end launch sync", "long", [1]),
        ("domain:D push:x launch sync pop domain:E push:x launch sync pop", "^D/", [0]),
        ("launch sync push:x launch sync pop", "never", []),
    ],
)
def test_contents_inside_nvtx_ranges(
    words: str, contents: str, expected: list[int], built: Path, tmp_path: Path
) -> None:
    run = say(f"cuda {words}", built, tmp_path / "some", f"nvtx:{contents}")
    whole = say(f"cuda {words}", built, tmp_path / "all", "changed")
    assert with_contents(run) == expected
    for epoch in expected:
        assert memory(run, epoch) == memory(whole, epoch)
    assert tt.diff(run, whole).same
    told = [line for line in run.warnings if "never applied" in line]
    wanted = [] if expected else ["no epoch has contents: --contents nvtx:never never applied"]
    assert told == wanted


def test_contents_at_the_end_of_ranges_and_at_marks(built: Path, tmp_path: Path) -> None:
    words = "cuda push:step launch pop push:eval launch pop launch mark:step launch mark:other"
    run = say(words, built, tmp_path / "run", "nvtx:^step", epoch="nvtx:.")
    assert run.epochs["label"].tolist() == ["step", "eval", "step", "other"]
    assert with_contents(run) == [0, 2]


def test_contents_of_epochs_inside_graphs(built: Path, tmp_path: Path) -> None:
    """Before the first ones with contents there is a snapshot, for them to build on."""
    words = "cuda graph graph push:a graph graph pop graph sync"
    run = say(words, built, tmp_path / "some", "nvtx:a", epoch="graph-node:.")
    whole = say(words, built, tmp_path / "all", "changed", epoch="graph-node:.")
    triggers = run.epochs["trigger"].tolist()
    assert triggers[:6] == ["graph", *["graph-node"] * 2, "graph", *["graph-node"] * 2]
    assert with_contents(run) == [3, 4, 5]
    assert run.epochs["full"][3]
    whole_at = [n for n, t in enumerate(whole.epochs["trigger"].tolist()) if t == "graph-node"]
    some_at = [n for n, t in enumerate(triggers) if t == "graph-node"]
    assert len(some_at) == len(whole_at) == 5
    for epoch in (4, 5):
        assert memory(run, epoch) == memory(whole, whole_at[some_at.index(epoch)])
    assert tt.diff(run, whole).memory_same


def test_contents_of_epochs_and_ranges(built: Path, tmp_path: Path) -> None:
    words = "cuda times:5 { launch sync } push:a times:2 { launch sync } pop launch sync"
    run = say(words, built, tmp_path / "run", "every:3,nvtx:a")
    assert with_contents(run) == [0, 3, 5, 6]
    full = run.epochs["full"].tolist()
    assert (full[5], full[6]) == (True, False)  # those before had digests only


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--contents", "none", "--replayable"], "all contents are needed"),
        (["--contents", "all", "--snapshot-every", "4"], "each epoch is a snapshot"),
        (["--contents", "some"], "none, changed or all"),
        (["--contents", "every:0"], "every:N needs a count from 1"),
        (["--contents", "changed,every:2"], "can't be combined"),
        (["--contents", "none,all"], "'all': expected"),
        (["--contents", "nvtx:("], "nvtx:(: Unmatched"),
        (["--contents", "every:4", "--replayable"], "all contents are needed"),
        (["--contents", "every:4", "--epoch", "graph-node:."], "graphs are no snapshots"),
    ],
)
def test_conflicting_options_are_refused(options: list[str], reason: str, tmp_path: Path) -> None:
    outcome = support.ttanalyze("record", "--sim", "-o", tmp_path / "run", *options, "--", "true")
    assert outcome.status == 2
    assert reason in outcome.stderr
