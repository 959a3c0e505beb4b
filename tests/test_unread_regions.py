"""Epochs that read some regions only: what the others hold is not sure, which every verb says."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest

import ttanalyze as tt
from tests import support
from tests.rundir import Writer
from tests.support import Cli
from ttanalyze.errors import UnreadWarning
from ttanalyze.format.unread import UNREAD, Unread, find_unread, keys_of
from ttanalyze.verbs.diff import diff

TABLE, TARGET, OTHER = 0, 1, 2


@pytest.fixture(scope="module")
def chased(built: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Recorded runs of kernels that write through a pointer in memory, by what was read."""
    program, out = support.build_program("recorder_pointer_in_memory", built), {}
    simulated = support.simulator_environment()
    for regions in ("all", "touched"):
        run = tmp_path_factory.mktemp(regions) / "run"
        options = {"regions": regions, "epoch": "sync", "snapshot_every": "5", "deterministic": "1"}
        done = support.run([program], support.recording(simulated, run, **options))
        assert (done.stderr, done.stdout) == ("", "target: 12 0\n")
        out[regions] = run
    return out


@pytest.mark.native
def test_contents_are_correct_or_marked_uncertain(chased: dict[str, Path]) -> None:
    """Memory that kernels reach through pointers, against a run that reads everything."""
    every, some = tt.open(chased["all"]), tt.open(chased["touched"])
    ids = [int(i) for i in some.regions["region"][some.regions["kind"] == "arena"]]
    warned = dict.fromkeys(ids, 0)
    stale = 0
    for epoch in range(len(every.epochs)):
        for region in ids:
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                found = some.read(epoch, region)
            same = np.array_equal(found, every.read(epoch, region))
            assert same or [one.category for one in said] == [UnreadWarning]
            assert {one.filename for one in said} <= {__file__}  # the caller's line
            warned[region] += len(said)
            stale += not same
    assert stale > 5
    assert warned[ids[TABLE]] == warned[ids[OTHER]] == 0  # read, though the table never changed
    assert warned[ids[TARGET]] >= stale


@pytest.mark.native
def test_writes_without_an_address_are_seen_where_all_is_read(built: Path, tmp_path: Path) -> None:
    """No word that the host or a kernel is given holds the address: no search for one finds it."""
    program = support.build_program("recorder_hidden_writes", built)
    ways = ["masked", "halves", "distance", "indexed", "variable"]
    seen: dict[str, list[int]] = {}
    for regions in ("all", "touched"):
        options = {"regions": regions, "epoch": "sync", "snapshot_every": "0", "deterministic": "1"}
        environment = support.simulator_environment()
        run = tmp_path / regions
        done = support.run([program], support.recording(environment, run, **options))
        assert (done.stderr, done.status) == ("", 0)
        assert done.stdout == "".join(f"{way}: {i + 1}\n" for i, way in enumerate(ways))
        opened = tt.open(run)
        assert len(opened.epochs) == len(ways) * 2
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UnreadWarning)
            found = [opened.read(epoch, 1, dtype="u4")[0] for epoch in range(1, len(ways) * 2, 2)]
        seen[regions] = [int(value) for value in found]
    assert seen["all"] == [1, 2, 3, 4, 5]
    assert seen["touched"] == [0] * len(ways), "docs/limits/epochs.md"


@pytest.mark.native
def test_verbs_mark_uncertain_contents(chased: dict[str, Path], cli: Cli) -> None:
    run = chased["touched"]
    opened = tt.open(run)
    target = str(opened.regions["region"][opened.regions["kind"] == "arena"].iloc[TARGET])
    last = str(len(opened.epochs) - 2)
    for command in (
        ["verify", run],
        ["verify", run, "--manifest", chased["all"] / "manifest.json"],
        ["diff", run, chased["all"]],
        ["blame", run, "--region", target],
        ["blame", run, "--region", target, "--watch", "==200", "--dtype", "u32"],
        ["info", run],
    ):
        done = cli(*command)
        assert UNREAD in done.stdout, done.stdout
        assert done.status == (1 if "--watch" in command else 0), done.stdout
    done = cli("rewind", run, "--epoch", last, "--summary")
    assert UNREAD in done.stderr and target in done.stderr.strip().split(": ")[-1].split(", ")
    done = cli("verify", chased["all"])
    assert UNREAD not in done.stdout


def written(path: Path, content: bytes, *, partial: bool) -> tt.Run:
    """Region 1 changes in epoch 1; where partial is true that is seen in epoch 2 only."""
    w = Writer(path)
    w.born(0, b"zero")
    w.born(1, b"one ")
    w.epoch("sync", "full")
    w.write(0, 0, b"1111")
    w.write(1, 0, content)
    w.epoch("sync", "touched", only=[0]) if partial else w.epoch("sync")
    w.epoch("sync", "full")
    w.close()
    return tt.open(path)


def test_unread_regions_are_not_compared(tmp_path: Path) -> None:
    """Neither found the same nor different, on either side."""
    some = written(tmp_path / "some", b"two ", partial=True)
    every = written(tmp_path / "every", b"two ", partial=False)
    other = written(tmp_path / "other", b"xxxx", partial=False)
    for run, manifest in ((some, every), (every, some)):
        found = tt.verify(run, manifest.manifest())
        assert (found.same, found.region_epochs, found.unread) == (True, 5, 1)
    found = tt.verify(other, some.manifest())
    assert [(d.epoch, d.region) for d in found.differences] == [(2, 1)]
    alone = tt.verify(some, epochs=(1, 1), regions=[0])
    assert (alone.same, alone.unread) == (True, 0)
    with pytest.raises(tt.Error, match="these epochs read none of the regions"):
        tt.verify(some, epochs=(1, 1), regions=[1])


def lost(path: Path, content: bytes) -> tt.Run:
    """Region 1 changes in epoch 1, which keeps digests only; epochs 2 and 3 do not read it."""
    w = Writer(path)
    w.function(0, "_Z4stepPf")
    w.born(0, b"zero")
    w.born(1, b"one ")
    w.epoch("sync", "full")
    w.write(1, 0, content)
    w.epoch("sync", "dropped")
    for number, read in enumerate(([0], [0], [0, 1])):
        w.event("launch", "cuLaunchKernel", id=0)
        w.write(0, 0, bytes([number]))
        w.epoch("graph-node", "touched", only=read)
    w.close()
    return tt.open(path)


def test_difference_shows_in_the_first_epoch_that_both_runs_read(tmp_path: Path) -> None:
    """Though one run has a digest from before, of an epoch that the other lost."""
    a, b = lost(tmp_path / "a", b"one "), lost(tmp_path / "b", b"two ")
    report = diff(a, b)
    (process,) = report.processes
    assert report.first is not None
    assert (report.first[1].region_a, report.first[1].epoch_a) == (1, 4)
    assert (process.left_out_a, process.epochs_alone_b, process.unread) == (1, 1, 2)


def test_difference_ends_at_an_epoch_that_skips_the_region(tmp_path: Path) -> None:
    """And begins again where one does: nobody knows what was in between."""
    run = lost(tmp_path / "run", b"two ")
    manifest = run.manifest()
    for epoch in (1, 4):
        manifest["processes"][0]["epochs"][epoch]["digests"]["1"] = "0" * 16
    found = tt.verify(run, manifest, keep_going=True)
    assert [(d.region, d.epoch, d.until) for d in found.differences] == [(1, 1, 1), (1, 4, 4)]


def test_unread_spans_end_at_the_next_read() -> None:
    """Until the next epoch that reads the region: one that reads all, or lists it."""
    touched, full, refused = 2, 1, 8
    flags = np.array([full, touched, touched, 0, touched, refused, touched, touched], "u4")
    region, epoch = np.array([[1, 1], [1, 6], [2, 1], [2, 2], [2, 4], [2, 6], [2, 7]], "u4").T
    lives = (np.array([1, 2, 3], "u4"), np.array([0, 0, 5], "u4"), np.array([9, 9, 7], "u4"))
    of = (*lives, np.zeros(3, "u4"))
    found = find_unread(flags, np.zeros(8, "u4"), of, lambda: (region, epoch))
    places = [(1, 2, 3), (1, 4, 6), (1, 7, 9), (3, 6, 7)]
    expected = np.array(places, "u4").T
    assert found.begin.tolist() == keys_of(expected[0], expected[1]).tolist()
    assert found.end.tolist() == keys_of(expected[0], expected[2]).tolist()
    assert (found.count(0, 7), found.count(2, 4, 1), found.count(0, 7, 2)) == (5, 2, 0)
    one = Unread(keys_of(*np.array([[1], [0]], "u4")), keys_of(*np.array([[1], [3]], "u4")))
    both = found.joined(one)
    assert (
        both.left_out(1, 0)
        and both.left_out(1, 5)
        and not both.left_out(1, 6)
        and not both.left_out(2, 5)
    )
    assert len(both.begin) == 4
