"""verify: agreement, every kind of difference, and where it says they are."""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xxhash

import ttanalyze as tt
from tests import rundir
from tests.rundir import Writer, small_run
from tests.support import Cli
from ttanalyze.errors import Error, FormatError
from ttanalyze.format import layout, manifest, recompute
from ttanalyze.verbs.diff import diff
from ttanalyze.verbs.verify import VerifyReport, verify

BLOCK = layout.BLOCK_SIZE
STEPS = 6


def steps(
    path: Path, change: Callable[[Writer, int], None] | None = None, **options: Any
) -> Writer:
    """A run of two regions and six epochs that writes something in every step.

    change: called before every epoch, to do something else as well.
    """
    random = np.random.default_rng(3)
    every = options.pop("every", 64)
    w = Writer(path, **options)
    w.born(0, random.bytes(3 * BLOCK + 50), label="x")
    w.born(1, random.bytes(4000))
    for step in range(STEPS):
        w.write(0, step * 1000, random.bytes(8))
        if step == 4:
            w.write(1, 0, random.bytes(4))
        if change:
            change(w, step)
        w.epoch("sync", *(["full"] if step % every == 0 else []))
    w.close()
    return w


def at_step(step: int, region: int, offset: int, data: bytes) -> Callable[[Writer, int], None]:
    def change(w: Writer, now: int) -> None:
        if now == step:
            w.write(region, offset, data)

    return change


@pytest.fixture(autouse=True, params=["one batch", "many batches"])
def batches(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything holds whether a run fits into one batch of the pass or not."""
    if request.param == "many batches" and "million" not in request.node.name:
        monkeypatch.setattr(recompute, "BATCH_BLOCKS", 3)
        monkeypatch.setattr(recompute, "BATCH_EPOCHS", 2)
        monkeypatch.setattr(recompute, "READ_AT_ONCE", 100_000)


@pytest.fixture
def first(tmp_path: Path) -> Path:
    steps(tmp_path / "first")
    return tmp_path / "first"


def compare(second: Path, first: Path, **options: Any) -> VerifyReport:
    """second against the manifest of first, with first at hand."""
    return verify(tt.open(second), against=tt.open(first), **options)


# ---- agreement ----


def test_run_equals_itself(first: Path) -> None:
    began = time.monotonic()
    report = verify(tt.open(first))
    assert 0 < report.seconds <= time.monotonic() - began
    assert report.same
    assert (report.epochs, report.regions, report.region_epochs) == (6, 2, 12)
    assert report.digest_only == 0
    assert report.blocks_read == 5 + 6 + 1 - 1  # the first step's write is in the first contents


def test_every_kind_of_run_equals_itself(small: Writer, run_path: Path) -> None:
    report = verify(tt.open(run_path))
    assert report.same, report.to_json()
    assert report.region_epochs == 13


def test_manifest_as_file_and_as_object(first: Path, tmp_path: Path) -> None:
    run = tt.open(first)
    path = tmp_path / "golden.json"
    path.write_text(manifest.text(run.manifest()))
    assert verify(run, path).same
    assert verify(run, run.manifest()).same
    (first / "manifest.json").write_text(path.read_text())
    report = verify(run)
    assert report.same
    assert report.manifest == str(first / "manifest.json")


def test_snapshot_frequency_does_not_matter(tmp_path: Path) -> None:
    steps(tmp_path / "a", every=64)
    steps(tmp_path / "b", every=2)
    steps(tmp_path / "c", every=1)
    for one in "abc":
        for other in "abc":
            assert compare(tmp_path / one, tmp_path / other).same


@pytest.mark.parametrize("seed", range(6))
def test_random_runs_equal_themselves_in_every_part(tmp_path: Path, seed: int) -> None:
    """Births, deaths, refused and dropped epochs, several contexts, full ones now and then."""
    random = np.random.default_rng(seed)
    w = Writer(tmp_path / "run", segments=seed % 2 == 0)
    number = 0
    for step in range(40):
        for _ in range(random.integers(0, 3)):
            size = int(random.choice([1, 100, BLOCK, BLOCK * 2 + 1]))
            w.born(number, random.bytes(size), context=int(random.integers(0, 2)))
            number += 1
        for region in list(w.regions):
            if random.random() < 0.1:
                w.died(region)
            elif random.random() < 0.5:
                w.write(region, int(random.integers(0, w.regions[region].size)), b"\x5a")
        flags = [["full"], [], [], [], ["refused"], ["dropped"]][int(random.integers(0, 6))]
        w.epoch("sync", *(["full"] if step < 2 else flags), context=step % 2)
    w.close()
    run = tt.open(tmp_path / "run")
    whole = verify(run)
    assert whole.same, whole.to_json()
    process = run.processes[0]
    had, epochs = process.epochs["flags"], np.arange(len(process.epochs))
    known = np.isin(epochs, process.epoch_of("digests", 0, len(epochs)))
    captured = (had & layout.REFUSED == 0) & ((had & layout.DROPPED == 0) | known)
    assert whole.epochs == np.count_nonzero(captured)
    for a, b in [(0, 5), (7, 7), (20, 30), (39, 50)]:
        if not captured[a : b + 1].any():
            continue
        part = verify(run, epochs=(a, b))
        assert part.same, part.to_json()
    assert verify(run, regions=[0, 3, 5]).same
    checked = 0
    for epoch in range(40):
        for region, contents in w.history[epoch].items():
            try:
                got = run.read(epoch, region)
            except Error:
                continue
            assert got.tobytes() == contents
            checked += 1
    assert checked > 100


def with_refused(path: Path, refused: set[int], changed: int = 0) -> tt.Run:
    """Five epochs of one region that changes once, before the first of them."""
    w = Writer(path)
    w.born(0, bytes([changed]))
    for step in range(5):
        w.epoch("sync", *(["refused"] if step in refused else []))
    w.close()
    return tt.open(path)


def test_refused_epoch_is_not_compared(tmp_path: Path) -> None:
    report = verify(with_refused(tmp_path / "run", {2, 4}))
    assert report.same
    assert (report.epochs, report.region_epochs) == (3, 3)


def test_changes_before_a_refused_epoch_are_compared_after_it(tmp_path: Path) -> None:
    golden = with_refused(tmp_path / "a", {2, 4}).manifest()
    other = with_refused(tmp_path / "b", {2, 4}, changed=1)
    for first, last, shown, until in [(2, 4, 3, 3), (2, 3, 3, 3), (0, 4, 0, 3), (0, 2, 0, 1)]:
        report = verify(other, golden, epochs=(first, last), keep_going=True)
        found = report.differences[0]
        assert (found.epoch, found.until) == (shown, until)
        assert report.differing == report.region_epochs == report.epochs


@pytest.mark.parametrize(
    ("run", "options", "reason"),
    [
        ({0, 1, 2, 3, 4}, {}, "all epochs were refused"),
        ({2}, {"epochs": (2, 2)}, "all epochs were refused"),
        (set(), {"regions": [1]}, "no captured region lives in these epochs"),
    ],
)
def test_empty_comparison_is_not_the_same(
    tmp_path: Path, run: set[int], options: dict[str, Any], reason: str
) -> None:
    w = Writer(tmp_path / "run")
    w.born(0, b"a")
    w.born(1, b"b", captured=False)
    for step in range(5):
        w.epoch("sync", *(["refused"] if step in run else []))
    w.close()
    with pytest.raises(Error, match=f"nothing to compare: {reason}"):
        verify(tt.open(tmp_path / "run"), **options)


def test_run_without_epochs_is_not_the_same(tmp_path: Path) -> None:
    w = Writer(tmp_path / "run")
    w.close("failed", reason="disk full")
    with pytest.raises(Error, match=r"nothing to compare: .*ended early \(failed\): disk full"):
        verify(tt.open(tmp_path / "run"))


def test_failed_recording_is_not_the_same(first: Path, tmp_path: Path) -> None:
    steps(tmp_path / "failed").close("failed", reason="disk full")
    failed, whole = tt.open(tmp_path / "failed"), tt.open(first)
    reports = verify(failed), verify(failed, against=whole), verify(whole, against=failed)
    for report in reports:
        assert not report.same and report.region_epochs == 12 and not report.differences
        assert report.unknown is not None and "ended early (failed): disk full" in report.unknown
    tampered = verify(failed, tamper=(1, 0, 0))
    assert not tampered.same and tampered.differences and tampered.unknown is None


def test_removed_contents_are_compared_by_digest(tmp_path: Path) -> None:
    steps(tmp_path / "run", every=2, segments=True)
    (tmp_path / "run" / "p0" / "data-00000.bin").unlink()
    report = verify(tt.open(tmp_path / "run"))
    assert report.same
    assert (report.region_epochs, report.digest_only) == (12, 4)


def test_regions_are_chosen_by_label_and_by_tensor(first: Path, tmp_path: Path) -> None:
    def tensors(w: Writer, step: int) -> None:
        if not step:
            w.name(1, 0, 4000, "layers.1.weight")
        at_step(3, 1, 17, b"\xa7")(w, step)

    steps(tmp_path / "second", tensors)
    run, golden = tt.open(tmp_path / "second"), tt.open(first).manifest()
    assert verify(run, golden, regions=["x"]).same
    assert verify(run, golden, regions=["layers.1.weight"]).differences[0].region == 1
    assert verify(run, golden, regions=["x", 1]).regions == 2
    with pytest.raises(tt.Error, match=r"^no region or tensor 'y' in .*second$"):
        verify(run, golden, regions=["y"])


# ---- differences in contents ----


def test_changed_byte_is_found(first: Path, tmp_path: Path) -> None:
    offset = BLOCK + 4711
    steps(tmp_path / "second", at_step(3, 0, offset, b"\xa7"))
    report = compare(tmp_path / "second", first)
    assert not report.same
    assert report.stopped
    (difference,) = report.differences
    assert difference.kind == "contents"
    assert (difference.epoch, difference.until, difference.region) == (3, 3, 0)
    assert difference.first_byte == difference.last_byte == offset
    assert difference.differing_bytes == 1
    assert difference.changed_blocks == [0, 1]
    assert difference.origin is not None
    assert difference.origin["label"] == "x"
    assert difference.origin["call"] == "cuMemAlloc_v2"
    assert difference.origin["thread"] == 4711
    run, other = tt.open(tmp_path / "second"), tt.open(first)
    window = difference.window
    assert window is not None
    start = window["offset"]
    assert start <= offset < start + 64
    assert bytes.fromhex(window["actual"]) == run.read(3, 0, start=start, stop=start + 64).tobytes()
    expected = other.read(3, 0, start=start, stop=start + 64).tobytes()
    assert bytes.fromhex(window["expected"]) == expected


def test_all_option_finds_every_range(first: Path, tmp_path: Path) -> None:
    def change(w: Writer, step: int) -> None:
        if step == 1:
            w.write(1, 10, b"\xff\xfe\xfd")
        if step == 5:
            w.write(0, 3 * BLOCK, b"\x01" * 50)

    steps(tmp_path / "second", change)
    report = compare(tmp_path / "second", first, keep_going=True)
    found = [(d.epoch, d.until, d.region) for d in report.differences]
    assert found == [(1, 3, 1), (4, 5, 1), (5, 5, 0)]
    assert report.differing == 3 + 2 + 1
    assert report.total_differences == 3
    assert not report.stopped
    last = report.differences[2]
    assert (last.first_byte, last.last_byte) == (3 * BLOCK, 3 * BLOCK + 49)


def test_localize_finds_the_run_of_a_manifest(cli: Cli, first: Path, tmp_path: Path) -> None:
    second, copy, trace = tmp_path / "second", tmp_path / "golden.json", tmp_path / "t.json"
    shutil.copytree(first, second)
    manifest = first / "manifest.json"
    for file in (manifest, copy):
        assert cli("manifest", first, "-o", file).status == 0
    asked = ("verify", second, "--tamper", "1,0,5")
    same = cli(*asked, "--against", first)
    found = cli(*asked, "--manifest", manifest, "--localize", "--trace-out", trace)
    assert found.status == same.status == 1
    assert found.stdout.splitlines()[2:] == same.stdout.splitlines()[2:]
    marks = [e for e in json.loads(trace.read_text())["traceEvents"] if e.get("ph") == "i"]
    assert any("differs in epoch 1" in mark["name"] for mark in marks)
    refused = cli(*asked, "--manifest", copy, "--localize")
    assert refused.status == 2 and "is in no run directory; name the run with" in refused.stderr


def test_trace_of_a_verified_run(
    cli: Cli, first: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli("verify", first, "--trace-annotate", "--checkpoints", "0-1").status == 0
    assert json.loads((tmp_path / "verify-trace.json").read_text())["traceEvents"]


def test_changed_blocks_are_named_without_the_other_run(first: Path, tmp_path: Path) -> None:
    steps(tmp_path / "second", at_step(2, 0, 2 * BLOCK + 9, b"\xa7"))
    report = verify(tt.open(tmp_path / "second"), tt.open(first).manifest())
    (difference,) = report.differences
    assert (difference.epoch, difference.region) == (2, 0)
    assert difference.changed_blocks == [0, 2]
    assert difference.window is None
    assert difference.first_byte is None


@pytest.mark.parametrize("every", [1, 2, 64])
def test_snapshot_names_only_changed_blocks(tmp_path: Path, every: int) -> None:
    steps(tmp_path / "a", every=every)
    steps(tmp_path / "b", at_step(2, 0, 2 * BLOCK + 9, b"\xa7"), every=every)
    report = verify(tt.open(tmp_path / "b"), tt.open(tmp_path / "a").manifest())
    assert report.differences[0].changed_blocks == [0, 2]
    assert report.differences[0].changed_block_count == 2


def test_epoch_selection_limits_the_comparison(first: Path, tmp_path: Path) -> None:
    steps(tmp_path / "second", at_step(1, 1, 8, b"\xff"))
    second = tt.open(tmp_path / "second")
    golden = tt.open(first).manifest()
    assert verify(second, golden, epochs=(0, 0)).same
    assert verify(second, golden, regions=[0]).same
    late = verify(second, golden, epochs=(3, 3))
    assert (late.differences[0].epoch, late.differences[0].until) == (3, 3)
    assert late.region_epochs == 2
    assert late.epochs == 1


def test_contents_of_one_side_only(tmp_path: Path) -> None:
    def written(path: Path, only: list[int]) -> tt.Run:
        w = Writer(path)
        w.born(0, b"zero")
        w.born(1, b"one")
        w.epoch("sync", only=only)
        w.close()
        return tt.open(path)

    some, both = written(tmp_path / "some", [0]), written(tmp_path / "both", [0, 1])
    missing = verify(some, both.manifest()).differences[0]
    assert missing.message == "region 1 has no contents in epoch 0 of the run"
    extra = verify(both, some.manifest()).differences[0]
    assert extra.message == "region 1 has no contents in epoch 0 of the manifest"


# ---- tampering ----


@pytest.mark.parametrize("offset", [0, 77, BLOCK - 1, BLOCK, 3 * BLOCK, 3 * BLOCK + 49])
@pytest.mark.parametrize("epoch", [0, 3, 5])
def test_tampered_byte_is_located(first: Path, epoch: int, offset: int) -> None:
    report = verify(tt.open(first), tamper=(epoch, 0, offset), keep_going=True)
    (difference,) = report.differences
    assert (difference.epoch, difference.until, difference.region) == (epoch, epoch, 0)
    assert difference.first_byte == difference.last_byte == offset
    assert difference.differing_bytes == 1
    assert difference.window is not None
    at = offset - difference.window["offset"]
    expected = bytes.fromhex(difference.window["expected"])
    actual = bytes.fromhex(difference.window["actual"])
    assert expected[at] ^ actual[at] == 0xFF
    assert verify(tt.open(first)).same  # nothing was written


def test_tampering_with_a_selection_and_another_run(first: Path, tmp_path: Path) -> None:
    steps(tmp_path / "twin")
    report = compare(tmp_path / "twin", first, tamper=(4, 1, 3999), epochs=(3, 5), regions=[1])
    (difference,) = report.differences
    assert (difference.epoch, difference.first_byte) == (4, 3999)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"tamper": (6, 0, 0)}, "tamper: epoch 6 is not among those compared, 0 to 5"),
        ({"tamper": (0, 5, 0)}, "no region 5"),
        ({"tamper": (0, 1, 4000)}, "tamper: no byte 4000 in region 1: it has 4000"),
        ({"tamper": (0, 1, 0), "epochs": (2, 3)}, "tamper: epoch 0 is not among those compared"),
        ({"tamper": (0, 1, 0), "regions": [0]}, "tamper: region 1 is not among those compared"),
        ({"epochs": (6, 9)}, "no epochs 6 to 9: the run has 0 to 5"),
        ({"epochs": (3, 2)}, "no epochs 3 to 2"),
        ({"regions": [0, 9]}, "no region 9 in"),
    ],
)
def test_missing_inputs_are_errors(first: Path, options: dict[str, Any], reason: str) -> None:
    with pytest.raises(Error, match=reason):
        verify(tt.open(first), **options)


# ---- damage to the run itself ----


def damage(path: Path, at: int) -> None:
    raw = bytearray(path.read_bytes())
    raw[at] ^= 0x10
    path.write_bytes(raw)


def test_damaged_contents_name_file_and_block(first: Path, tmp_path: Path) -> None:
    golden = tt.open(first).manifest()
    damage(first / "p0" / "data-00000.bin", 64 + 2 * BLOCK + 5)
    report = verify(tt.open(first), golden, keep_going=True)
    difference = report.differences[0]
    assert difference.kind == "stored"
    assert (difference.epoch, difference.until, difference.region) == (0, 0, 0)
    assert difference.damaged == [
        {"block": 2, "file": "p0/data-00000.bin", "offset": 64 + 2 * BLOCK}
    ]
    assert report.differing == 6
    assert all(d.kind == "stored" for d in report.differences)


def test_damaged_contents_with_an_intact_second_run(first: Path, tmp_path: Path) -> None:
    copy = rundir.copy_of(first, tmp_path / "copy")
    damage(copy / "p0" / "data-00000.bin", 64 + 2 * BLOCK + 5)
    (difference,) = compare(copy, first).differences
    assert difference.kind == "stored"
    assert difference.first_byte == difference.last_byte == 2 * BLOCK + 5
    assert difference.differing_bytes == 1


def test_damaged_contents_are_found_without_a_manifest(first: Path) -> None:
    damage(first / "p0" / "data-00000.bin", 64 + 2 * BLOCK + 5)
    assert not verify(tt.open(first)).same


# ---- differences in structure ----


def messages(report: VerifyReport) -> list[str]:
    return [d.message for d in report.differences]


def test_missing_and_extra_epochs(first: Path, tmp_path: Path) -> None:
    def more(w: Writer, step: int) -> None:
        if step == 5:
            w.epoch("sync")
            w.epoch("sync")

    steps(tmp_path / "longer", more)
    longer, run = tt.open(tmp_path / "longer"), tt.open(first)
    found = verify(longer, run.manifest(), keep_going=True, epochs=(0, 4))
    assert found.same
    fewer = verify(run, longer.manifest(), keep_going=True)
    assert "epochs 6 to 7 are not in the run" in messages(fewer)
    extra = verify(longer, run.manifest(), keep_going=True)
    assert "epochs 6 to 7 are not in the manifest" in messages(extra)


def test_different_trigger_label_and_refusal(first: Path) -> None:
    golden = tt.open(first).manifest()
    epochs = golden["processes"][0]["epochs"]
    epochs[1]["trigger"] = "copy"
    epochs[2]["label"] = "here"
    epochs[3]["flags"] = ["refused"]
    epochs[3]["digests"] = {}
    report = verify(tt.open(first), golden, keep_going=True)
    assert messages(report) == [
        "epoch 1: trigger 'copy' in the manifest, 'sync' in the run",
        "epoch 2: label 'here' in the manifest, none in the run",
        "epoch 3: refused yes in the manifest, no in the run",
    ]


def test_missing_extra_and_different_regions(first: Path) -> None:
    golden = tt.open(first).manifest()
    process = golden["processes"][0]
    process["regions"][0].update(size=5, label="y", died=4)
    process["regions"][1]["id"] = 9
    report = verify(tt.open(first), golden, keep_going=True)
    assert messages(report) == [
        "region 0: size 5 in the manifest, 196658 in the run",
        "region 0: label 'y' in the manifest, 'x' in the run",
        "region 0: died 4 in the manifest, none in the run",
        "region 1 is not in the manifest",
        "region 9 is not in the run",
    ]
    assert verify(tt.open(first), golden, epochs=(0, 2), regions=[0]).total_differences > 0


def test_missing_and_extra_processes(first: Path) -> None:
    golden = tt.open(first).manifest()
    one = dict(golden["processes"][0])
    golden["processes"].append({**one, "process": 3})
    assert messages(verify(tt.open(first), golden)) == ["process 3 is not in the run"]
    golden["processes"] = []
    assert messages(verify(tt.open(first), golden)) == ["process 0 is not in the manifest"]


def test_processes_are_compared_separately(tmp_path: Path) -> None:
    for path, last in ((tmp_path / "a", b"same"), (tmp_path / "b", b"else")):
        for index in range(3):
            w = Writer(path, index)
            w.born(0, bytes(100))
            if index == 2:
                w.write(0, 50, last)
            w.epoch("sync", "full")
            w.close()
    report = compare(tmp_path / "b", tmp_path / "a")
    assert report.processes == 3
    (difference,) = report.differences
    assert (difference.process, difference.first_byte, difference.last_byte) == (2, 50, 52)


def test_progress_counts_epochs_of_all_processes(tmp_path: Path) -> None:
    """In epochs of all processes, up to how many there are."""
    for index, epochs in enumerate((4, 3, 1)):
        w = Writer(tmp_path / "run", index)
        w.born(0, bytes(100))
        for _ in range(epochs):
            w.epoch("sync", "full")
        w.close()
    seen: list[tuple[int, int]] = []
    verify(tt.open(tmp_path / "run"), progress=lambda *now: seen.append(now))
    done = [now for now, _ in seen]
    assert {total for _, total in seen} == {8}
    assert done == sorted(done) and done[-1] == 8
    assert {4, 7} <= set(done), "the end of each process"


# ---- bad manifests ----


def changed(golden: dict[str, Any], place: str, value: object) -> dict[str, Any]:
    at: Any = golden
    *way, last = place.split(".")
    for key in way:
        at = at[int(key) if key.isdigit() else key]
    at[last] = value
    return golden


@pytest.mark.parametrize(
    ("place", "value", "reason"),
    [
        ("format", "ttanalyze-run", "format: expected 'ttanalyze-manifest'"),
        (
            "version",
            layout.VERSION + 1,
            f"(format {layout.VERSION + 1}; this one reads up to {layout.VERSION})",
        ),
        ("version", None, "version: no version"),
        ("block_size", 4096, "block_size: expected 65536"),
        ("digest", "md5", "digest: expected 'xxh3-64'"),
        ("processes", 5, "processes: expected a list, not 5"),
        ("processes", [4], "processes[0]: expected an object, not 4"),
        ("processes.0.process", -1, "processes[0].process: expected 0 or more, not -1"),
        ("processes.0.regions", None, "processes[0].regions: expected a list"),
        ("processes.0.regions.0.size", "4", "regions[0].size: expected a whole number"),
        ("processes.0.regions.1.id", 0, "process 0, regions[1]: region 0 is listed twice"),
        ("processes.0.epochs.2.epoch", 7, "epochs: their numbers are not consecutive"),
        ("processes.0.epochs.2.trigger", 1, "epochs[2].trigger: expected a string"),
        ("processes.0.epochs.2.flags", "full", "epochs[2].flags: expected a list"),
        ("processes.0.epochs.2.digests", [], "epochs[2].digests: expected an object"),
        ("processes.0.epochs.2.digests", {"x": "0" * 16}, "digests: expected a name that matches"),
        ("processes.0.epochs.2.digests", {"4294967295": "0" * 16}, "a key of digests"),
        (
            "processes.0.epochs.2.digests",
            {"0": "0" * 15},
            "digests.0: expected a string that matches",
        ),
        (
            "processes.0.epochs.2.digests",
            {"0": "00 11 22 33 44 5"},
            "0: expected a string that matches",
        ),
        (
            "processes.0.epochs.2.digests",
            {"0": "g" * 16},
            "digests.0: expected a string that matches",
        ),
    ],
)
@pytest.mark.parametrize("separators", [(", ", ": "), (",", ":")])  # the latter as recorded
def test_invalid_manifest_names_the_location(
    first: Path, tmp_path: Path, place: str, value: object, reason: str, separators: Any
) -> None:
    path = tmp_path / "bad.json"
    golden = changed(tt.open(first).manifest(), place, value)
    path.write_text(json.dumps(golden, separators=separators))
    with pytest.raises(FormatError) as caught:
        verify(tt.open(first), path)
    assert str(caught.value).startswith(f"{path}: ")
    assert reason in str(caught.value)


# ---- manifests as text ----


def as_recorded(first: Path) -> str:
    """The manifest of a run in which a region's digest differs in every epoch."""
    golden = tt.open(first).manifest()
    for epoch in golden["processes"][0]["epochs"]:
        epoch["digests"]["0"] = f"{epoch['epoch']:016x}"
    return manifest.text(golden)


@pytest.mark.parametrize(
    "rewrite",
    [
        lambda text: text,
        lambda text: json.dumps(json.loads(text), indent=1),
        lambda text: text.replace('"trigger":"sync"', '"trigger":"s\\u0079nc"'),
        lambda text: text.replace('"digests"', '"\\u0064igests"', 1),
        lambda text: text.replace(
            '"digests":{', '"digests":{"7":"0123456789abcdef"},"digests":{', 1
        ),
        lambda text: text.replace(
            '"digests":{', '"more":{"digests":{"7":"0123456789abcdef"}},"digests":{'
        ),
        lambda text: text.replace('"version"', '"digests":{"7":"0123456789abcdef"},"version"', 1),
        lambda text: re.sub(r'("0":"\w+"),("1":"\w+")', r"\2,\1", text),
    ],
    ids=["as recorded", "spaces", "escapes", "escaped key", "twice", "elsewhere", "above", "order"],
)
def test_manifest_says_the_same_however_it_is_written(
    first: Path, tmp_path: Path, rewrite: Callable[[str], str]
) -> None:
    path = tmp_path / "manifest.json"
    text = as_recorded(first)
    path.write_text(rewrite(text))
    found = verify(tt.open(first), path, keep_going=True)
    wanted = verify(tt.open(first), json.loads(text), keep_going=True)
    assert found.differences == wanted.differences and found.differing == wanted.differing > 0


@pytest.mark.parametrize(
    "rewrite",
    [
        lambda text: re.sub(r'"digests":\{[^{}]+\}', '"digests":0', text, count=1),
        lambda text: re.sub(
            r'"digests":(\{[^{}]+\})', r'"more":{"digests":\1},"digests":0', text, count=1
        ),
    ],
    ids=["a number", "a number, and digests elsewhere"],
)
def test_number_in_place_of_digests_is_refused(
    first: Path, tmp_path: Path, rewrite: Callable[[str], str]
) -> None:
    path = tmp_path / "manifest.json"
    path.write_text(rewrite(as_recorded(first)))
    with pytest.raises(FormatError, match=r"epochs\[0\].digests: expected an object"):
        verify(tt.open(first), path)


# ---- speed ----


def test_million_region_epochs_in_about_a_second(tmp_path: Path) -> None:
    """A thousand regions, a thousand epochs, full every 64, hardly anything to read again."""
    w = Writer(tmp_path / "run")
    for region in range(1000):
        w.born(region, region.to_bytes(4, "little") * 16)
    for epoch in range(16):
        w.epoch("sync", *(["full"] if epoch % 8 == 0 else []))
        w.write(epoch, 0, b"new")
    repeat_epochs(w.path, 1000)
    run = tt.open(tmp_path / "run")
    golden = run.manifest()
    began = time.process_time()
    report = verify(run, golden)
    taken = time.process_time() - began
    assert report.same
    assert report.region_epochs == 1_000_000
    assert taken < 2.5  # about 0.5 on a quiet machine


def repeat_epochs(folder: Path, wanted: int) -> None:
    """Appends epochs that change nothing, every 64th of them full, without writing slowly."""
    epochs = np.frombuffer((folder / "epochs.bin").read_bytes()[64:], layout.EPOCH)
    digests = (folder / "digests.bin").read_bytes()[64:]
    full, quiet = epochs[8].copy(), epochs[-1].copy()
    last_digests = last_state(np.frombuffer(digests, layout.DIGEST), "region")
    raw_blocks = np.frombuffer((folder / "blocks.bin").read_bytes()[64:], layout.BLOCK)
    last_blocks = last_state(raw_blocks, "region")
    spans = {"digests": len(digests) // 16, "blocks": len(raw_blocks)}
    out = []
    for number in range(len(epochs), wanted):
        record = (full if number % 64 == 0 else quiet).copy()
        record["number"] = number
        for name, records in (("digests", last_digests), ("blocks", last_blocks)):
            span = records.tobytes() if number % 64 == 0 else b""
            record[f"{name}_first"], record[f"{name}_count"] = (
                spans[name],
                len(span) // records.itemsize,
            )
            record[f"{name}_check"] = xxhash.xxh3_64_intdigest(span)
            spans[name] += len(span) // records.itemsize
            with (folder / f"{name}.bin").open("ab") as f:
                f.write(span)
        out.append(record)
    with (folder / "epochs.bin").open("ab") as f:
        f.write(rundir.seal(np.array(out, layout.EPOCH)))


def last_state(records: np.ndarray[Any, Any], key: str) -> np.ndarray[Any, Any]:
    """The last record of every region."""
    ids, at = np.unique(records[key][::-1], return_index=True)
    assert len(ids) == 1000
    return records[::-1][at]


def test_verify_stops_reading_after_the_first_difference(
    first: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recompute, "BATCH_EPOCHS", 1)
    steps(tmp_path / "second", at_step(0, 0, 9, b"\xa7"))
    stopped = compare(tmp_path / "second", first)
    whole = compare(tmp_path / "second", first, keep_going=True)
    assert stopped.blocks_read < whole.blocks_read
    assert (stopped.region_epochs, whole.region_epochs) == (2, 12)
    assert stopped.differences[0].until is None, "where the difference ends was not looked at"
    assert whole.differences[0].until == 0


def test_unchanged_contents_are_read_once(tmp_path: Path) -> None:
    w = Writer(tmp_path / "run")
    w.born(0, os.urandom(BLOCK * 4))
    for _ in range(10):
        w.epoch("sync", "full")
    w.close()
    report = verify(tt.open(tmp_path / "run"))
    assert report.same
    assert report.blocks_read == 4
    assert report.bytes_read == 4 * BLOCK


def test_small_run_equals_its_second_recording(tmp_path: Path) -> None:
    small_run(tmp_path / "a")
    small_run(tmp_path / "b")
    assert compare(tmp_path / "a", tmp_path / "b").same


def test_many_data_files_are_read_in_few_passes(tmp_path: Path) -> None:
    """Where all, none or the later ones are there: each pass costs something by itself."""
    w, random = Writer(tmp_path / "run", segments=True), np.random.default_rng(5)
    w.born(0, random.bytes(2 * BLOCK))
    for step in range(60):
        if step % 4 == 1:
            w.born(step, random.bytes(40))
        if step % 4 == 3:
            w.died(step - 2)
        w.write(0, step * 9, random.bytes(8))
        w.epoch("sync", *(["full"] if step % 2 == 0 else []))
    w.close()
    files = sorted((tmp_path / "run" / "p0").glob("data-*.bin"))
    assert len(files) == 30
    stored = []
    for kept in (files, files[10:], []):
        for path in set(files) - set(kept):
            path.unlink(missing_ok=True)
        passes: list[tuple[int, int]] = []
        report = verify(tt.open(tmp_path / "run"), progress=lambda *done: passes.append(done))  # noqa: B023
        assert report.same
        assert report.region_epochs == 90
        assert passes == [(60, 60)] or recompute.BATCH_BLOCKS < 1000
        stored.append(report.region_epochs - report.digest_only)
    assert stored == [90, 60, 0]


def test_epochs_without_digests_are_not_counted_as_compared(tmp_path: Path) -> None:
    """As diff does not count them either."""
    for name in ("a", "b"):
        w = Writer(tmp_path / name)
        w.born(0, bytes(100))
        w.epoch("sync", "full")
        w.epoch("sync", "dropped", only=[])
        w.epoch("sync")
        w.close()
    report = compare(tmp_path / "b", tmp_path / "a")
    assert report.same and (report.epochs, report.region_epochs) == (2, 2)
    found = diff(tt.open(tmp_path / "a"), tt.open(tmp_path / "b"))
    assert found.same and found.processes[0].region_epochs == 2
