"""diff: the first divergence of two runs, the differences, and their possible causes."""

from __future__ import annotations

import json
import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ttanalyze as tt
from tests import rundir
from tests.diff_runs import BLOCK, STEPS, as_manifest, at_step, compared, launch, train
from tests.rundir import Writer, small_run
from tests.support import Cli
from tests.test_damage import cut, flip, reseal
from ttanalyze.core import values
from ttanalyze.core.values import Tolerance
from ttanalyze.errors import Error, FormatError
from ttanalyze.verbs.diff import diff, parse_types, states
from ttanalyze.verbs.diff.show import diff_text


@pytest.fixture(autouse=True, params=["one batch", "many batches"])
def batches(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything holds whether digests are compared in one batch or in many."""
    if request.param == "many batches":
        monkeypatch.setattr(states, "BATCH", 2)


@pytest.fixture
def first(tmp_path: Path) -> Path:
    return train(tmp_path / "first")


# ---- the same ----


def test_run_equals_itself(first: Path, tmp_path: Path) -> None:
    report = compared(first, train(tmp_path / "again"))
    assert report.same and report.memory_same and report.first is None
    (process,) = report.processes
    assert (process.epochs_a, process.epochs_b, process.common, process.regions) == (6, 6, 6, 2)
    assert (process.region_epochs, process.differing, process.unknown) == (12, 0, 0)
    assert process.launches is not None
    assert (process.launches.a, process.launches.same, process.launches.exact) == (12, 12, True)
    assert diff_text(report).startswith("same: memory is the same in all 6 common epochs\n")


def test_every_kind_of_run_equals_itself(run_path: Path, tmp_path: Path) -> None:
    small_run(run_path)
    small_run(tmp_path / "again")
    report = compared(run_path, tmp_path / "again", every=True)
    assert report.same
    assert report.processes[0].common == 5
    assert compared(run_path, run_path).same


def test_snapshot_frequency_does_not_matter(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in "ab"]
    for path, full in zip(paths, ([0, 3], [0, 1, 2]), strict=True):
        w = Writer(path)
        w.born(0, bytes(BLOCK + 5))
        for step in range(5):
            w.write(0, step, b"\x01")
            w.epoch("sync", *(["full"] if step in full else []))
        w.close()
    report = compared(*paths)
    assert report.same
    assert report.processes[0].region_epochs == 5


# ---- memory differs ----


def test_first_divergence_is_exact_to_the_byte(first: Path, tmp_path: Path) -> None:
    offset = 2 * BLOCK + 4711
    second = train(tmp_path / "second", at_step(3, lambda w: w.write(0, offset, b"\xa7\xa8")))
    report = compared(first, second)
    assert not report.same and not report.memory_same
    assert report.first is not None
    process, found = report.first
    assert (found.epoch_a, found.epoch_b, found.equal_a, found.equal_b) == (3, 3, 2, 2)
    assert (found.until_a, found.until_b) == (None, None)
    assert (found.region_a, found.region_b, found.label, found.kind) == (0, 0, "weights", "device")
    assert (found.blocks, found.block_count, found.block_total) == ([2], 1, 4)
    assert found.bytes is not None
    assert (found.bytes.count, found.bytes.first, found.bytes.last) == (2, offset, offset + 1)
    assert found.bytes.extents == [(offset, 2)]
    window = found.bytes.window
    for path, side in ((first, "expected"), (second, "actual")):
        at = window["offset"]
        there = tt.open(path).read(3, 0, start=at, stop=at + 64).tobytes()
        assert bytes.fromhex(window[side]) == there
    assert found.origin_a is not None and found.origin_a["label"] == "weights"
    assert found.after is not None
    assert (found.after["kernel"], found.after["ordinal"]) == ("update", 4)
    assert (process.divergence_count, process.differing, process.regions_differing) == (1, 3, 1)
    text = diff_text(report)
    assert text.startswith(
        f"different: memory first diverges in epoch 3, region 0 'weights' at byte {offset}, "
        "after launch 4 of update (call "
    )
    assert "block 2, of 4" in text
    assert f"2 differ, from offset {offset} to {offset + 1}" in text


def test_suspects_are_the_calls_between_epochs(first: Path, tmp_path: Path) -> None:
    """Of both sides, and first what only one side does."""

    def stray_copy(w: Writer) -> None:
        w.event("copy", dst=0x7F0000000000 + 8, bytes=4)
        w.write(0, 8, b"\x99")

    report = compared(first, train(tmp_path / "second", at_step(3, stray_copy)))
    assert report.first is not None
    found = report.first[1]
    assert found.suspect_count == 3
    copy, *launches = found.suspects
    assert (copy.kind, copy.seq_a, copy.alone, copy.bytes) == ("copy", None, True, 4)
    assert copy.how == "writes there"
    assert [s.kernel for s in launches] == ["_Z4gradPfS_", "update"]
    for suspect in launches:
        assert not suspect.alone and suspect.how == "may write there"
        assert suspect.grid == [4, 1, 1] and suspect.block == [256, 1, 1]
        events = [tt.open(tmp_path / name).events for name in ("first", "second")]
        for frame, seq in zip(events, (suspect.seq_a, suspect.seq_b), strict=True):
            assert frame[frame["seq"] == seq]["kernel"].tolist() == [suspect.kernel]
    text = diff_text(report)
    assert "possible writers since epoch 2" in text
    assert re.search(r"copy of 4 bytes +writes there, only in B\n", text)
    assert "grad(float*, float*)<<<4, 256>>>" in text
    assert report.processes[0].launches is not None
    assert report.processes[0].launches.others_b == 1


def test_different_parameters_are_reported(tmp_path: Path) -> None:
    """Pointers are the same if they point to the same place in regions that correspond."""

    def written(path: Path, region: int, rate: int, content: bytes) -> Path:
        w = Writer(path)
        w.function(0, "update")
        w.function(1, "other")
        if region:
            w.born(0, b"in the way", kind="host", captured=False)
        w.born(region, bytes(64))
        w.born(region + 1, bytes(64))
        w.born(region + 9, bytes(128), kind="host", captured=False)
        w.epoch("sync")
        base = 0x7F0000000000 + (region << 24)
        for function, words in (
            (0, [base + 8, 5]),
            (1, [base + (1 << 24), base + (9 << 24) + 100]),
            (0, [base + 8, rate]),
        ):
            raw = np.array(words, "<u8").tobytes()
            launch(w, function, params=w.piece(raw), params_size=len(raw))
        w.write(region, 8, content)
        w.epoch("sync")
        w.close()
        return path

    a, b = written(tmp_path / "a", 0, 3, b"\x03"), written(tmp_path / "b", 1, 4, b"\x04")
    report = compared(a, b)
    assert report.first is not None
    given, same, other = report.first[1].suspects
    assert (given.parameters, given.parameter_offset) == ("different", 8)
    assert (given.parameters_a, given.parameters_b) == ("03" + 7 * "00", "04" + 7 * "00")
    assert given.how == same.how == "is given a pointer to it"
    assert same.parameters == other.parameters == "same"
    assert other.how == "is given no pointer to it"
    assert "its parameters differ at byte 8: 0300000000000000 / 0400" in diff_text(report)


def test_region_that_always_differed(first: Path, tmp_path: Path) -> None:
    second = train(tmp_path / "second", at_step(0, lambda w: w.write(1, 3999, b"\x01")))
    report = compared(first, second)
    assert report.first is not None
    found = report.first[1]
    assert (found.epoch_a, found.equal_a, found.region_a) == (0, None, 1)
    assert any("it was never the same" in note for note in found.notes)
    assert {s.kernel for s in found.suspects} == {"_Z4gradPfS_", "update"}


def test_all_divergences_have_an_end(first: Path, tmp_path: Path) -> None:
    """Part, agree again, part again; and how it spread from one region to the other."""

    def change(w: Writer, step: int) -> None:
        if step in (1, 2, 4):
            before = w.regions[1].contents[3000:3001]
            w.write(1, 3000, bytes([before[0] ^ (0xFF if step != 1 else 0x0F)]))
        if step == 3:
            w.write(1, 3000, bytes([w.regions[1].contents[3000] ^ 0xF0]))
            w.write(0, 100, b"\x00\x00")

    second = train(tmp_path / "second", change)
    report = compared(first, second, every=True)
    (process,) = report.processes
    found = [(d.region_a, d.epoch_a, d.until_a, d.equal_a) for d in process.divergences]
    assert found == [(1, 1, 2, 0), (0, 3, None, 2), (1, 4, None, 3)]
    assert process.differing == 2 + 3 + 2
    assert [(s.region_a, s.epoch_a, s.stretches) for s in process.spread] == [(1, 1, 2), (0, 3, 1)]
    short = compared(first, second)
    assert [d.epoch_a for d in short.processes[0].divergences] == [1]
    assert short.processes[0].divergence_count == 3
    assert "2 more divergences: --all describes them" in diff_text(short)
    assert "spread of the divergence" in diff_text(short)


# ---- values ----


def floats(path: Path, *steps: list[float]) -> Path:
    w = Writer(path)
    w.born(0, bytes(BLOCK) + np.zeros(8, "f4").tobytes(), label="x")
    w.born(1, bytes(16))
    for step in steps:
        launch(w, 0)
        w.write(0, BLOCK, np.array(step, "<f4").tobytes())
        w.epoch("sync")
    w.close()
    return path


def test_differing_values_are_shown(tmp_path: Path) -> None:
    a = floats(tmp_path / "a", [1, 2, 3], [1, 2, 3, 4])
    b = floats(tmp_path / "b", [1, 2, 3], [1, 2.5, float("nan"), 4])
    report = compared(a, b, types=values.parse("f32"))
    assert report.first is not None
    found = report.first[1].values
    assert found is not None
    assert (found.elements, found.count, found.max_abs) == (BLOCK // 4 + 8, 2, 0.5)
    assert (found.nan, found.inf) == ((0, 1), (0, 0))
    assert found.first == [BLOCK // 4 + 1, BLOCK // 4 + 2]
    text = diff_text(report)
    assert "2 of 16,392 f32 differ" in text
    assert "NaN: 0 in A, 1 in B" in text


def test_tolerance_ignores_small_differences(tmp_path: Path) -> None:
    a = floats(tmp_path / "a", [1, 2], [1, 2], [1, 2])
    b = floats(tmp_path / "b", [1, 2], [1, 2.001], [1, 2.1])
    types = {"x": values.parse("f32")}
    first = compared(a, b, types=types).first
    assert first is not None and first[1].epoch_a == 1
    report = compared(a, b, types=types, tolerance=Tolerance.parse("0.01"))
    assert report.first is not None
    process, found = report.first
    assert (found.epoch_a, found.equal_a, process.tolerated) == (2, 1, 1)
    wide = compared(a, b, types=types, tolerance=Tolerance.parse(",0.5"))
    assert wide.same and wide.processes[0].tolerated == 2
    assert "memory is the same within ,0.5" in diff_text(wide)
    bytes_of_others = compared(a, b, types={1: values.parse("f32")}, tolerance=Tolerance(abs=9))
    assert bytes_of_others.first is not None and bytes_of_others.first[1].epoch_a == 1


def test_tolerance_stops_at_the_first_difference(tmp_path: Path) -> None:
    a = floats(tmp_path / "a", [1], [1], [1], [1], [1])
    b = floats(tmp_path / "b", [1], [1.5], [1.01], [3], [1])
    options: dict[str, Any] = {"types": values.parse("f32"), "tolerance": Tolerance(abs=0.1)}
    (process,) = compared(a, b, **options).processes
    assert process.stopped and process.divergence_count == 1
    assert "stopped at the first difference" in diff_text(diff(a, b, **options))
    (process,) = compared(a, b, every=True, **options).processes
    found = [(d.epoch_a, d.until_a) for d in process.divergences]
    assert found == [(1, 1), (3, 3)]
    assert (process.tolerated, process.differing) == (1, 2)


def test_dtype_per_region() -> None:
    types = parse_types("f32,3=bf16,the weights=int64")
    assert {key: one.name for key, one in types.items()} == {
        None: "f32",
        3: "bf16",
        "the weights": "i64",
    }
    for wrong in ("", "f33", "f32,f16", "3=", "=f32", "3=f32,3=f16"):
        with pytest.raises(Error):
            parse_types(wrong)


def test_dtype_of_an_unknown_region(first: Path) -> None:
    for key in (7, "nothing"):
        with pytest.raises(Error, match="which A does not have"):
            diff(first, first, types={key: values.parse("f32")})
    with pytest.raises(Error, match="--tolerance needs --dtype"):
        diff(first, first, tolerance=Tolerance(abs=1))


# ---- manifests ----


def test_manifest_on_either_side(first: Path, tmp_path: Path) -> None:
    second = train(tmp_path / "second", at_step(3, lambda w: w.write(0, 70000, b"\x01")))
    for a in (first, as_manifest(first)):
        assert compared(a, as_manifest(first)).same
        assert compared(as_manifest(first), a).same
        for b in (second, as_manifest(second)):
            report = compared(a, b)
            assert report.first is not None
            found = report.first[1]
            assert (found.epoch_a, found.equal_a, found.region_a) == (3, 2, 0)
            assert found.digest_a != found.digest_b
            assert (found.bytes is None) == (a.suffix == ".json" or b.suffix == ".json")
    assert compared(tt.open(first).manifest(), as_manifest(second)).first is not None  # type: ignore[arg-type]


def test_extra_epoch_in_a_manifest_is_skipped(first: Path, tmp_path: Path) -> None:
    def more(w: Writer) -> None:
        w.write(1, 3000, b"\x01")
        w.epoch("sync")
        w.write(1, 3000, w.seen_before)  # type: ignore[attr-defined]

    def change(w: Writer, step: int) -> None:
        if step == 3:
            w.seen_before = w.regions[1].contents[3000:3001]  # type: ignore[attr-defined]
            more(w)

    second = train(tmp_path / "second", change)
    report = compared(as_manifest(first), as_manifest(second))
    assert report.processes[0].common >= 5
    assert report.memory_same, "gradients were the same at the end of the step"


# ---- what is missing or damaged ----


def test_refused_and_lost_epochs_are_skipped(first: Path, tmp_path: Path) -> None:
    w = Writer(tmp_path / "second")
    source = np.random.default_rng(3)
    w.function(0, "_Z4gradPfS_")
    w.function(1, "update")
    w.born(0, source.bytes(3 * BLOCK + 48), label="weights")
    w.born(1, source.bytes(4000))
    for step in range(STEPS):
        launch(w, 0)
        w.write(1, step * 8, source.bytes(8))
        launch(w, 1)
        w.write(0, step * 1000, source.bytes(8))
        w.event("sync", "cuCtxSynchronize")
        w.epoch("sync", *{2: ["refused"], 3: ["gap"], 4: ["dropped"]}.get(step, []))
    w.close()
    report = compared(first, tmp_path / "second")
    (process,) = report.processes
    assert report.same
    assert (process.left_out_a, process.left_out_b, process.common) == (0, 1, 5)
    assert "1 epoch of B was refused or lost: left out" in diff_text(report)


def test_digests_show_differences_of_removed_contents(first: Path, tmp_path: Path) -> None:
    second = train(tmp_path / "second", at_step(3, lambda w: w.write(0, 9, b"\x01")))
    (second / "p0" / "data-00000.bin").unlink()
    report = compared(first, second)
    assert report.first is not None
    found = report.first[1]
    assert (found.epoch_a, found.bytes) == (3, None)
    assert any("data-00000.bin" in note for note in found.notes)
    types = values.parse("u8")
    assert not compared(first, second, types=types, tolerance=Tolerance(abs=255)).same


def test_damaged_contents_are_an_error(first: Path, tmp_path: Path) -> None:
    second = train(tmp_path / "second", at_step(3, lambda w: w.write(0, 9, b"\x01")))
    path = second / "p0" / "data-00000.bin"
    raw = bytearray(path.read_bytes())
    raw[64:] = bytes(byte ^ 0x55 for byte in raw[64:])
    path.write_bytes(raw)
    report = compared(first, second)
    assert report.first is not None
    found = report.first[1]
    assert found.bytes is None
    assert any("does not match its digest" in note for note in found.notes)


@pytest.mark.parametrize("name", ["epochs.bin", "digests.bin", "regions.bin", "functions.bin"])
def test_damaged_records_are_an_error(first: Path, tmp_path: Path, name: str) -> None:
    second = rundir.copy_of(first, tmp_path / "second")
    path = second / "p0" / name
    raw = bytearray(path.read_bytes())
    raw[70] ^= 1
    path.write_bytes(raw)
    with pytest.raises(FormatError, match=name.replace(".", r"\.")):
        diff(first, second)


@pytest.mark.parametrize(
    ("values", "reason"),
    [({"kind": 99}, "not an event"), ({"seq": 0}, "not an event"), ({"check": 1}, "its check")],
)
def test_bad_events_are_an_error(
    first: Path, tmp_path: Path, values: dict[str, int], reason: str
) -> None:
    second = rundir.copy_of(first, tmp_path / "second")
    rundir.edit(second / "p0" / "events.bin", 3, **values)
    if "check" not in values:
        rundir.reseal_records(second / "p0" / "events.bin")
    with pytest.raises(FormatError, match=reason):
        diff(first, second)


@pytest.mark.parametrize(
    "values",
    [
        {"id": 0xFFFFFFFF},
        {"id": 12345},
        {"seq": (1 << 64) - 1},
        {"dst": (1 << 64) - 1, "bytes": (1 << 64) - 1},
        {"context": 0xFFFFFFFF, "stream": (1 << 64) - 1, "thread": 0},
        {"call": 4000, "result": 0},
    ],
)
def test_random_event_values_do_not_crash_diff(
    first: Path, tmp_path: Path, values: dict[str, int]
) -> None:
    """diff prints a report or an error of one line."""
    second = rundir.copy_of(first, tmp_path / "second")
    for record in (2, 4, 9):
        rundir.edit(second / "p0" / "events.bin", record, **values)
    rundir.reseal_records(second / "p0" / "events.bin")
    assert compared(first, second, every=True).processes[0].region_epochs <= 12
    assert compared(second, first, every=True).processes


@pytest.mark.parametrize("change", [flip, cut, reseal])
@pytest.mark.parametrize("seed", range(2))
def test_random_damage(
    first: Path, tmp_path: Path, change: Callable[[Path, random.Random], None], seed: int
) -> None:
    """An error of one line, or a report; memory is the same, unless hostile files say otherwise.

    Where calls are cut off, what corresponds may be taken wrongly.
    """
    source = random.Random(f"{change.__name__} {seed}")
    names = sorted(p.relative_to(first) for p in first.rglob("*") if p.is_file())
    outcomes = set()
    for _ in range(40):
        second = rundir.copy_of(first, tmp_path / "second")
        name = source.choice(names)
        change(second / name, source)
        try:
            report = diff(first, second, every=True, types=values.parse("u8"))
            assert diff_text(report)
            fewer = change is cut and name.name == "events.bin"
            assert report.memory_same or change is reseal or fewer
            outcomes.add("report")
        except tt.Error as e:
            outcomes.add(f"error of {len(str(e).splitlines())} line")
        shutil.rmtree(second)
    assert outcomes == {"report", "error of 1 line"}


def test_escape_sequences_in_names_are_not_printed(tmp_path: Path) -> None:
    def written(path: Path, content: bytes) -> Path:
        w = Writer(path)
        w.function(0, "evil\x1b[2J")
        w.born(0, content, label="\x1b]0;owned\x07")
        w.born(1, content * 2 if content == b"b" else content, label="x\x1b[1m")
        launch(w, 0)
        if content == b"b":
            launch(w, 0)
        w.epoch("api", label="\x1b[31m")
        w.close()
        return path

    a, b = written(tmp_path / "a", b"a"), written(tmp_path / "b", b"b")
    for one, other in ((a, b), (b, a), (as_manifest(a), as_manifest(b))):
        shown = diff_text(diff(one, other, every=True))
        assert "owned" in shown
        assert "\x1b" not in shown


# ---- against the plain way ----


def both(path: Path, seed: int, differ: bool) -> tuple[Writer, Writer]:
    """Two random runs that do the same, but for what they write where `differ`."""
    source = np.random.default_rng(seed)
    writers = Writer(path / "a"), Writer(path / "b")
    number = 0
    for step in range(40):
        for w in writers:
            launch(w, step % 5)
        for _ in range(int(source.integers(0, 3))):
            content = source.bytes(int(source.choice([1, 100, BLOCK + 1])))
            context = int(source.integers(0, 2))
            for w in writers:
                w.born(number, content, context=context, label=f"r{number}")
            number += 1
        for region in list(writers[0].regions):
            if source.random() < 0.08:
                for w in writers:
                    w.died(region)
            elif source.random() < 0.5:
                at = int(source.integers(0, writers[0].regions[region].size))
                for w in writers:
                    w.write(region, at, bytes([step]))
                if differ and source.random() < 0.2:
                    writers[1].write(region, 0, source.bytes(1))
                if differ and source.random() < 0.3:
                    writers[1].regions[region].contents = writers[0].regions[region].contents
        for w in writers:
            w.epoch("sync", *(["full"] if step % 11 == 0 else []), context=step % 2)
    for w in writers:
        w.close()
    return writers


@pytest.mark.parametrize("seed", range(6))
def test_divergences_equal_contents_differences(tmp_path: Path, seed: int) -> None:
    writers = both(tmp_path, seed, differ=True)
    a, b = (tmp_path / "a"), (tmp_path / "b")
    report = compared(a, b, every=True)
    regions = tt.open(a).regions.set_index("region")
    expected: dict[int, list[int]] = {}
    states = 0
    for epoch in range(40):
        one, other = (w.history[epoch] for w in writers)
        for region in one.keys() & other.keys():
            if int(regions["context"][region]) == epoch % 2:
                states += 1
                if one[region] != other[region]:
                    expected.setdefault(region, []).append(epoch)
    (process,) = report.processes
    assert process.region_epochs == states
    assert process.differing == sum(map(len, expected.values())) > 0
    got: dict[int, list[int]] = {}
    for d in process.divergences:
        died = regions["died"].fillna(40)[d.region_a]
        until = d.until_a if d.until_a is not None else died - 1
        span = [e for e in range(d.epoch_a, int(until) + 1) if e % 2 == d.epoch_a % 2]
        got.setdefault(d.region_a, []).extend(span)
        ours, theirs = (w.history[d.epoch_a][d.region_a] for w in writers)
        assert d.bytes is not None
        at = [i for i, pair in enumerate(zip(ours, theirs, strict=True)) if pair[0] != pair[1]]
        assert (d.bytes.count, d.bytes.first, d.bytes.last) == (len(at), at[0], at[-1])
    assert got == expected


@pytest.mark.parametrize("seed", range(2))
def test_equal_random_runs_are_the_same(tmp_path: Path, seed: int) -> None:
    both(tmp_path, seed, differ=False)
    assert compared(tmp_path / "a", tmp_path / "b").same
    assert compared(as_manifest(tmp_path / "a"), tmp_path / "b").same


# ---- the command line ----


def test_exit_status_shows_the_result(cli: Cli, first: Path, tmp_path: Path) -> None:
    second = train(tmp_path / "second", at_step(3, lambda w: w.write(0, 8, b"\x01")))
    assert cli("diff", first, first).status == 0
    different = cli("diff", first, second)
    assert different.status == 1
    assert different.stdout.splitlines()[0].startswith(
        "different: memory first diverges in epoch 3,"
    )
    assert different.stderr == ""
    as_json = cli("diff", first, second, "--json", "--all", "--dtype", "f64")
    found = json.loads(as_json.stdout)
    assert as_json.status == 1
    assert found["processes"][0]["divergences"][0]["values"]["type"] == "f64"
    assert found["processes"][0]["divergences"][0]["suspects"][0]["kernel"] == "_Z4gradPfS_"
    report = tmp_path / "report.json"
    assert cli("diff", first, second, "-o", report).status == 1
    assert json.loads(report.read_text())["same"] is False
    wide = ("--dtype", "weights=u8", "--tolerance", "255")
    assert cli("diff", first, second, *wide).status == 0


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["RUN"], "Missing argument"),
        (["RUN", "nothing"], "nothing: No such file or directory"),
        (["RUN", "RUN/run.json"], "expected 'ttanalyze-manifest'"),
        (["RUN", "RUN/p0/epochs.bin"], "epochs.bin: offset"),
        (["RUN", "RUN/p0"], "not a run directory"),
        (["RUN", "RUN", "--dtype", "f33"], "no type 'f33'"),
        (["RUN", "RUN", "--dtype", "9=f32"], "region 9, which A does not have"),
        (["RUN", "RUN", "--tolerance", "1"], "--tolerance needs --dtype"),
        (["RUN", "RUN", "--dtype", "f32", "--tolerance", "x"], "tolerance x"),
        (["RUN", "RUN", "-o", "/"], "/: is a directory"),
    ],
)
def test_errors_are_one_line_and_status_2(
    cli: Cli, first: Path, arguments: list[str], reason: str
) -> None:
    outcome = cli("diff", *(a.replace("RUN", str(first)) for a in arguments))
    assert (outcome.status, outcome.stdout) == (2, "")
    assert outcome.stderr.startswith("ttanalyze: ")
    assert outcome.stderr.count("\n") == 1
    assert reason in outcome.stderr


def test_only_the_first_ranges_are_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And all are counted."""
    monkeypatch.setattr(states, "MOST", 3)
    for name in "ab":
        w = Writer(tmp_path / name)
        for region in range(2):
            w.born(region, b"same")
        for step in range(6):
            for region in range(2):
                w.write(region, 0, bytes([step, 99 if step % 2 else ord(name)]))
            w.epoch("sync")
        w.close()
    (process,) = compared(tmp_path / "a", tmp_path / "b", every=True).processes
    assert (process.divergence_count, process.differing) == (6, 6)
    assert [(d.epoch_a, d.region_a) for d in process.divergences] == [(0, 0), (0, 1), (2, 0)]


@pytest.mark.parametrize("unread", ["a", "b"])
def test_unread_regions_are_counted(tmp_path: Path, unread: str) -> None:
    """On either side, though nothing changed then."""
    for name in "ab":
        w = Writer(tmp_path / name)
        for region in range(2):
            w.born(region, b"same")
        w.epoch("sync", "full")
        for step in range(5):
            w.write(0, 0, bytes([step]))
            some = name == unread and step in (1, 2)
            w.epoch("sync", *(["touched"] if some else []), only=[0] if some else None)
        w.epoch("sync", "full")
        w.close()
    report = compared(tmp_path / "a", tmp_path / "b")
    (process,) = report.processes
    assert report.same and (process.region_epochs, process.unread) == (12, 2)
