"""diff of runs that do not quite do the same, or were recorded otherwise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ttanalyze as tt
from tests.diff_runs import BLOCK, STEPS, as_manifest, at_step, compared, launch, train
from tests.rundir import Writer
from ttanalyze.errors import Error
from ttanalyze.verbs.diff import diff, states
from ttanalyze.verbs.diff.show import diff_text


@pytest.fixture(autouse=True, params=["one batch", "many batches"])
def batches(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything holds whether digests are compared in one batch or in many."""
    if request.param == "many batches":
        monkeypatch.setattr(states, "BATCH", 2)


@pytest.fixture
def first(tmp_path: Path) -> Path:
    return train(tmp_path / "first")


# ---- what does not quite do the same ----


def test_extra_launch_does_not_shift_others(first: Path, tmp_path: Path) -> None:
    """Nor does the epoch that comes with it."""

    def more(w: Writer) -> None:
        launch(w, 0)
        w.event("sync", "cuCtxSynchronize")
        w.epoch("sync")

    report = compared(first, train(tmp_path / "second", at_step(3, more)))
    (process,) = report.processes
    assert report.memory_same and not report.same
    assert (process.common, process.epochs_b) == (6, 7)
    assert process.launches is not None
    assert (process.launches.same, process.launches.alone_a, process.launches.alone_b) == (12, 0, 1)
    (stretch,) = process.launches.stretches
    assert (stretch.count_a, stretch.count_b, stretch.kernels_b) == (0, 1, {"_Z4gradPfS_": 1})
    assert stretch.before_a == stretch.before_b
    assert diff_text(report).startswith(
        "different: memory is the same in all 6 common epochs; the launches differ\n"
    )
    back = compared(tmp_path / "second", first).processes[0].launches
    assert back is not None and (back.alone_a, back.alone_b) == (1, 0)


def test_extra_launch_that_wrote_is_a_difference(first: Path, tmp_path: Path) -> None:
    def more(w: Writer) -> None:
        launch(w, 0, grid=99)
        w.write(0, 50, b"\x77")

    report = compared(first, train(tmp_path / "second", at_step(4, more)))
    assert report.first is not None
    found = report.first[1]
    assert (found.epoch_a, found.epoch_b) == (4, 4)
    assert found.suspects[0].grid == [99, 1, 1]
    assert found.suspects[0].alone and found.suspects[0].seq_a is None


def test_missing_launch_and_changed_shape(first: Path, tmp_path: Path) -> None:
    w = Writer(tmp_path / "second")
    random = np.random.default_rng(3)
    w.function(4, "update")  # numbers of functions are a run's own
    w.function(7, "_Z4gradPfS_")
    w.born(0, random.bytes(3 * BLOCK + 48), label="weights")
    w.born(1, random.bytes(4000))
    for step in range(STEPS):
        launch(w, 7, grid=4 if step != 2 else 5)
        w.write(1, step * 8, random.bytes(8))
        if step != 4:
            launch(w, 4)
        w.write(0, step * 1000, random.bytes(8))
        w.event("sync", "cuCtxSynchronize")
        w.epoch("sync")
    w.close()
    report = compared(first, tmp_path / "second")
    found = report.processes[0].launches
    assert found is not None and report.memory_same
    assert (found.same, found.changed, found.alone_a, found.alone_b) == (10, 1, 1, 0)
    changed, missing = found.stretches
    assert (changed.kind, changed.before_a, changed.before_b) == ("changed", 4, 4)
    assert changed.kernels_a == changed.kernels_b == {"_Z4gradPfS_": 1}
    assert (missing.kind, missing.before_a, missing.count_b) == ("alone", 9, 0)
    assert "10 correspond, 1 with another shape, 1 only in A" in diff_text(report)


def test_run_that_ended_early(first: Path, tmp_path: Path) -> None:
    def stop(w: Writer) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "second", at_step(4, stop))
    report = compared(first, tmp_path / "second")
    (process,) = report.processes
    assert report.memory_same and not report.same
    assert (process.common, process.epochs_b) == (4, 4)
    assert process.launches is not None and process.launches.alone_a == 3


def ended_early(path: Path, epochs: int = 3, **process: Any) -> Path:
    """A run with all calls of train() and its first epochs only."""

    def no_more(w: Writer, step: int) -> None:
        if step == epochs:
            w.epoch = lambda *_: None  # type: ignore[assignment, method-assign]

    return train(path, no_more, **process)


@pytest.mark.parametrize("manifest", [False, True])
@pytest.mark.parametrize("events", [False, True])
def test_missing_last_epochs_are_a_difference(
    first: Path, tmp_path: Path, manifest: bool, events: bool
) -> None:
    """Whether it still runs and its calls are ahead of its epochs, or its calls are not known."""
    other = ended_early(tmp_path / "other", status="running", events=events)
    whole = as_manifest(first) if manifest else first
    for a, b in ((whole, other), (other, whole)):
        report = compared(a, b)
        assert report.memory_same and not report.same
        assert report.processes[0].common == 3
        assert "3 epochs of" in diff_text(report) and "the epochs differ" in diff_text(report)


def test_runs_killed_at_the_same_point_are_the_same(tmp_path: Path) -> None:
    a, b = (ended_early(tmp_path / name, status="running") for name in "ab")
    assert compared(a, b).same


def test_refused_epochs_are_not_missing(first: Path, tmp_path: Path) -> None:
    def refuse(w: Writer, step: int) -> None:
        epoch = Writer.epoch
        flags = ["refused"] if step >= 4 else []
        w.epoch = lambda *given: epoch(w, *given, *flags)  # type: ignore[method-assign]

    other = train(tmp_path / "other", refuse, status="running")
    assert compared(first, other).same
    assert compared(as_manifest(first), other).same


def test_failed_recording_is_neither_same_nor_different(first: Path, tmp_path: Path) -> None:
    def stop(w: Writer) -> None:
        w.close("failed", reason="disk full")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "failed", at_step(4, stop))
    for a, b in ((first, tmp_path / "failed"), (tmp_path / "failed", first)):
        report = compared(a, b)
        assert report.memory_same and not report.same
        assert report.unknown is not None and "disk full" in report.unknown
        text = diff_text(report)
        assert text.startswith("unknown: memory is the same in all 4 common epochs; the launches")
        assert text.splitlines()[0].endswith("differ; a recording failed")
    changed = train(tmp_path / "changed", at_step(2, lambda w: w.write(0, 9, b"\x01")))
    report = compared(changed, tmp_path / "failed")
    assert not report.same and report.unknown is None
    more = train(tmp_path / "more", at_step(1, lambda w: launch(w, 0)))
    report = compared(more, tmp_path / "failed")
    assert report.unknown is not None, "it may have been made by the launch that is missing"


@pytest.mark.parametrize("size", [None, 8])
def test_missing_copies_are_a_difference(tmp_path: Path, size: int | None) -> None:
    """And copies of another size."""

    def copying(size: int | None) -> Any:
        return at_step(2, lambda w: size and w.event("copy", dst=0x7F0000000000, bytes=size))

    a, b = train(tmp_path / "a", copying(4)), train(tmp_path / "b", copying(size))
    report = compared(a, b)
    assert report.memory_same and not report.same
    assert "the copies and fills differ" in diff_text(report)
    said = "1 other call only in A" if size is None else "1 other call of another size"
    assert said in diff_text(report)


def test_calls_are_compared_without_memory(tmp_path: Path) -> None:
    def written(path: Path, launches: int, epochs: int = 1, regions: int = 0) -> Path:
        w = Writer(path)
        for region in range(regions):
            w.born(region, b"abc")
        for _ in range(launches):
            launch(w, 0)
        for _ in range(epochs):
            w.epoch("sync", "refused")
        w.close()
        return path

    assert compared(written(tmp_path / "a", 2), written(tmp_path / "b", 2)).same
    assert not compared(written(tmp_path / "c", 2), written(tmp_path / "d", 1)).same
    for name, given in (("e", (0, 0)), ("f", (2, 1, 1))):
        one, other = written(tmp_path / name, *given), written(tmp_path / f"{name}2", *given)
        with pytest.raises(Error, match="nothing to compare"):
            diff(one, other)


# ---- recorded at other points ----


@pytest.mark.parametrize(("every", "common"), [(1, 6), (2, 3), (3, 2)])
def test_runs_with_other_triggers_share_epochs(tmp_path: Path, every: int, common: int) -> None:
    fine = train(tmp_path / "fine", fine=True)
    coarse = train(tmp_path / "coarse", every=every)
    for a, b in ((fine, coarse), (coarse, fine)):
        report = compared(a, b)
        assert report.same
        assert report.processes[0].common == common


def test_difference_between_shared_epochs(tmp_path: Path) -> None:
    change = at_step(3, lambda w: w.write(1, 3000, b"\x01\x02"))
    fine = train(tmp_path / "fine", change, fine=True)
    coarse = train(tmp_path / "coarse", every=2)
    report = compared(fine, coarse)
    assert report.first is not None
    found = report.first[1]
    assert (found.epoch_b, found.equal_b) == (1, 0)
    epochs = tt.open(fine).epochs
    assert epochs["trigger"][found.epoch_a] == "sync"
    assert (found.epoch_a, found.equal_a) == (3 * 4 - 1, 3 * 2 - 1)
    assert "epoch 11 of A and 1 of B" in diff_text(report)
    assert found.suspect_count == 4


def test_no_common_epoch_is_an_error(tmp_path: Path) -> None:
    def written(path: Path, at: int) -> Path:
        w = Writer(path)
        w.born(0, bytes(8))
        for i in range(3):
            launch(w, 0)
            if i == at:
                w.epoch("launch")
        w.close()
        return path

    a, b = written(tmp_path / "a", 0), written(tmp_path / "b", 1)
    with pytest.raises(Error, match="no epoch of one is at the same point"):
        diff(a, b)


def test_runs_without_epochs_compare_their_launches(tmp_path: Path) -> None:
    paths = [train(tmp_path / name, every=99) for name in "ab"]
    assert compared(*paths).same
    other = train(tmp_path / "c", at_step(2, lambda w: launch(w, 0)), every=99)
    report = compared(paths[0], other)
    assert not report.same and report.processes[0].common == 0


def test_without_calls_epochs_are_matched_by_their_order(tmp_path: Path) -> None:
    a = train(tmp_path / "a", events=False)
    assert compared(a, train(tmp_path / "b")).same
    changed = train(tmp_path / "c", at_step(2, lambda w: w.write(0, 9, b"\x01")), events=False)
    report = compared(a, changed)
    assert report.first is not None
    assert (report.first[1].epoch_a, report.first[1].suspects) == (2, [])
    assert report.processes[0].launches is None
    extra = train(tmp_path / "d", at_step(3, lambda w: w.epoch("sync")), events=False)
    report = compared(a, extra)
    assert report.memory_same, "what changed tells which epoch is the extra one"
    (process,) = report.processes
    assert (process.common, process.epochs_alone_a, process.epochs_alone_b) == (6, 0, 1)
    assert not report.same, "nothing tells what was done before it"
    assert "memory is the same in all 6 common epochs; the epochs differ" in diff_text(report)


# ---- regions ----


def test_extra_allocations_do_not_shift_others(first: Path, tmp_path: Path) -> None:
    def before(w: Writer) -> None:
        w.born(0, bytes(4000))
        w.born(1, bytes(7))

    report = compared(first, train(tmp_path / "second", before=before))
    (process,) = report.processes
    assert report.memory_same and not report.same
    assert process.regions == 2
    assert process.regions_alone_count == 2
    assert {(r.side, r.region_b, r.size_b) for r in process.regions_alone} == {
        ("b", 0, 4000),
        ("b", 1, 7),
    }
    assert "the allocations differ" in diff_text(report)


def test_extra_allocation_of_equal_size_is_recognised(tmp_path: Path) -> None:
    """By the launches before and after it."""

    def written(path: Path, extra: bool) -> Path:
        w = Writer(path)
        number = 0
        for step in range(4):
            launch(w, step)
            w.born(number, step.to_bytes(8, "little"))
            number += 1
            if extra and step == 1:
                launch(w, 9)
                w.born(number, b"extra on")
                number += 1
        w.epoch("sync")
        w.close()
        return path

    a, b = written(tmp_path / "a", False), written(tmp_path / "b", True)
    (process,) = compared(a, b).processes
    assert (process.regions, process.differing) == (4, 0)
    assert [r.region_b for r in process.regions_alone] == [2]


def in_order(
    path: Path, order: str, pointers: str | None, wrong: int | None = None, sizes: int = 1
) -> Path:
    """A run that allocates x, y and z, and fills one after the other. sizes: how many there are.
    pointers: what tells which is meant: "params" of launches, "copies" to it, or None. wrong: the
    step that writes to another.
    """
    w = Writer(path)
    w.function(0, "fill")
    names = {name: number for number, name in enumerate(order)}
    for name, number in names.items():
        w.born(number, bytes(4096 + 4096 * ("xyz".index(name) % sizes)))
    for step, name in enumerate("xyzzxy"):
        given: dict[str, Any] = {}
        pointer = 0x7F0000000000 + (names[name] << 24) + 16
        if pointers == "params":
            raw = np.array([step, pointer], "<u8").tobytes()
            given = {"params": w.piece(raw), "params_size": len(raw)}
        launch(w, 0, **given)
        if pointers == "copies":
            w.event("copy", dst=pointer, bytes=8)
        target = "x" if wrong == step else name
        w.write(names[target], 16, bytes([step + 1] * 8))
        w.epoch("sync")
    w.close()
    return path


@pytest.mark.parametrize("pointers", ["params", "copies", None])
@pytest.mark.parametrize("sizes", [1, 2, 3])
@pytest.mark.parametrize("order", ["xyz", "zyx", "yzx"])
def test_allocations_in_another_order_are_the_same(
    tmp_path: Path, order: str, sizes: int, pointers: str | None
) -> None:
    first = in_order(tmp_path / "a", "xyz", pointers, sizes=sizes)
    report = compared(first, in_order(tmp_path / "b", order, pointers, sizes=sizes))
    (process,) = report.processes
    assert report.same and (process.regions, process.regions_alone_count) == (3, 0)
    other = in_order(tmp_path / "c", order, pointers, wrong=3, sizes=sizes)
    report = compared(first, other)
    assert report.first is not None, "a write to another region is not another order"
    if pointers or order == "xyz":
        found = report.first[1]
        assert found.epoch_a == 3
        assert "xyz"[found.region_a] == order[found.region_b]


def test_many_allocations_in_another_order(tmp_path: Path) -> None:
    def written(path: Path, order: range) -> Path:
        w = Writer(path)
        for number, which in enumerate(order):
            w.born(number, b"%04d" % which * (1 + which % 7))
        w.epoch("sync")
        w.close()
        return path

    count = 500
    a = written(tmp_path / "a", range(count))
    report = compared(a, written(tmp_path / "b", range(count - 1, -1, -1)))
    assert report.same and report.processes[0].regions == count


def test_regions_of_other_sizes_are_named(tmp_path: Path) -> None:
    def written(path: Path, size: int) -> Path:
        w = Writer(path)
        w.born(0, bytes(100), label="table")
        w.born(1, bytes(size), label="weights")
        w.born(2, bytes(300))
        w.epoch("sync")
        w.close()
        return path

    report = compared(written(tmp_path / "a", 200), written(tmp_path / "b", 240))
    (process,) = report.processes
    assert process.regions == 2 and report.memory_same and not report.same
    (alone,) = process.regions_alone
    assert (alone.side, alone.label, alone.size_a, alone.size_b) == ("both", "weights", 200, 240)


def test_reused_addresses_are_other_regions(tmp_path: Path) -> None:
    def written(path: Path, content: bytes) -> Path:
        w = Writer(path)
        for number in range(4):
            w.born(number, bytes(500))
            launch(w, 0)
            w.write(number, 3, content if number == 2 else b"\x05")
            w.epoch("sync")
            w.died(number)
        w.close()
        return path

    report = compared(written(tmp_path / "a", b"\x01"), written(tmp_path / "b", b"\x02"))
    (process,) = report.processes
    assert (process.region_epochs, process.differing) == (4, 1)
    assert [(d.region_a, d.epoch_a) for d in process.divergences] == [(2, 2)]


def test_uninitialized_bytes_do_not_hide_writes(tmp_path: Path) -> None:
    """Memory that nothing wrote to may differ from the beginning."""

    def written(path: Path, leftover: bytes, result: bytes) -> Path:
        w = Writer(path)
        w.born(0, leftover)
        w.born(1, bytes(8))
        w.epoch("sync")
        launch(w, 0)
        w.write(1, 0, result)
        w.epoch("sync")
        w.close()
        return path

    a = written(tmp_path / "a", b"what was", b"\x01")
    report = compared(a, written(tmp_path / "b", b"here ago", b"\x02"))
    assert report.first is not None
    found = report.first[1]
    assert (found.region_a, found.epoch_a, found.leftover) == (1, 1, False)
    assert report.processes[0].divergence_count == 2
    report = compared(a, written(tmp_path / "c", b"here ago", b"\x01"))
    assert report.first is not None
    assert report.first[1].leftover and not report.memory_same
    text = diff_text(report)
    assert text.startswith("different: memory that no call wrote differs in epoch 0")
    assert "no call wrote to it" in text


def test_regions_read_on_one_side_are_not_compared(tmp_path: Path) -> None:
    def written(path: Path, only: list[int]) -> Path:
        w = Writer(path)
        w.born(0, b"zero")
        w.born(1, b"one")
        w.epoch("sync", "touched", only=only)
        w.close()
        return path

    report = compared(written(tmp_path / "a", [0]), written(tmp_path / "b", [0, 1]))
    assert report.same
    found = report.processes[0]
    assert (found.region_epochs, found.unknown, found.unread) == (1, 0, 1)
    assert "1 region-epoch not compared" in diff_text(report)


# ---- several processes, contexts, threads ----


def test_processes_are_matched_by_command(tmp_path: Path) -> None:
    """In whatever order they arrived."""
    for path, order in ((tmp_path / "a", "012"), (tmp_path / "b", "201")):
        for index, rank in enumerate(order):
            change = at_step(2, lambda w: w.write(0, 5, b"\x01")) if path.name == "b" else None
            mine = change if rank == "1" else None
            train(path, mine, index=index, argv=["./train", "--rank", rank])
    report = compared(tmp_path / "a", tmp_path / "b")
    assert [(p.process_a, p.process_b) for p in report.processes] == [(0, 1), (1, 2), (2, 0)]
    assert [p.divergence_count for p in report.processes] == [0, 1, 0]
    assert "memory first diverges in process 1, epoch 2" in diff_text(report)
    assert "process 1 of A and 2 of B" in diff_text(report)


def test_processes_of_one_side_only(tmp_path: Path) -> None:
    for index in range(3):
        train(tmp_path / "a", index=index)
    train(tmp_path / "b", index=0)
    report = compared(tmp_path / "a", tmp_path / "b")
    assert not report.same and report.memory_same
    assert (report.alone_a, report.alone_b) == ([1, 2], [])
    assert "processes 1, 2 only in A" in diff_text(report)


def interleaved(path: Path, order: list[int], contexts: bool, last: bytes = b"") -> Path:
    """Two threads, each with a stream and a region of its own; order: whose turn it is."""
    w = Writer(path)
    for who in (0, 1):
        w.born(who, bytes(100), context=who if contexts else 0)
    done = [0, 0]
    for who in order:
        place = {"thread": 100 + who, "stream": 16 + who, "context": who if contexts else 0}
        launch(w, done[who] % 3, **place)
        w.write(who, done[who], b"\x01")
        done[who] += 1
        if contexts:
            w.epoch("sync", context=who)
    w.write(1, 50, last)
    launch(w, 5, thread=101, stream=17, context=1 if contexts else 0)
    for who in (0, 1) if contexts else (0,):
        w.epoch("sync", context=who)
    w.close()
    return path


@pytest.mark.parametrize("contexts", [False, True])
def test_thread_order_does_not_matter(tmp_path: Path, contexts: bool) -> None:
    a = interleaved(tmp_path / "a", [0, 1] * 6, contexts)
    b = interleaved(tmp_path / "b", [0, 0, 0, 1] * 2 + [1] * 4, contexts)
    report = compared(a, b)
    assert report.same
    assert report.processes[0].common == (14 if contexts else 1)
    c = interleaved(tmp_path / "c", [1, 0] * 6, contexts, b"\x07")
    report = compared(a, c)
    assert report.first is not None
    assert (report.first[1].region_a, report.processes[0].differing) == (1, 1)


def test_streams_are_matched_by_their_work(tmp_path: Path) -> None:
    """Stream numbers differ, because one run creates another stream first."""

    def written(path: Path, shift: int) -> Path:
        w = Writer(path)
        w.born(0, bytes(100))
        for step in range(10):
            for who in (0, 1):
                launch(w, 2 * who + step % 2, thread=100 + who, stream=16 + shift + who)
        w.epoch("sync")
        w.close()
        return path

    report = compared(written(tmp_path / "a", 0), written(tmp_path / "b", 1))
    assert report.same
    assert report.processes[0].common == 1
