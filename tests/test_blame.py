"""blame: the history of memory, who may have written it, and when a condition first held."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ttanalyze as tt
from tests import support
from tests.rundir import Writer, busy_run
from tests.support import Cli
from ttanalyze.core.values import TYPES, parse
from ttanalyze.errors import Error
from ttanalyze.format import history, layout
from ttanalyze.format.layout import BLOCK_SIZE, Array
from ttanalyze.verbs.blame import Condition, blame, find_target, search, watch
from ttanalyze.verbs.blame.tested import meet

SEEDS = [1, 2]


def f32(*values: float) -> bytes:
    return np.array(values, "f4").tobytes()


def story(path: Path) -> Writer:
    """One region of floats whose history is short and known, and another that never changes."""
    w = Writer(path)
    w.function(0, "_Z4stepPf")
    w.born(0, bytes(2 * BLOCK_SIZE), label="weights")
    w.born(1, bytes(64), label="quiet")
    base = 0x7F0000000000
    w.event("copy", "cuMemcpyHtoD_v2", dst=base, src=1, bytes=1024)
    w.write(0, 0, f32(*range(256)))
    w.epoch("sync", "full")  # 0
    w.event("launch", "cuLaunchKernel", id=0, grid=[4, 2, 1], block=[256, 1, 1])
    w.write(0, 8, f32(0.5))
    w.epoch("sync")  # 1
    w.event("copy", "cuMemcpyHtoD_v2", dst=base + 4096, src=1, bytes=16)
    w.write(0, 4096, f32(-1, 1e30))
    w.epoch("kernel-before", label="_Z4stepPf")  # 2
    w.event("launch", "cuLaunchKernel", id=0, grid=[4, 2, 1], block=[256, 1, 1])
    w.write(0, 8, f32(float("nan"), float("inf")))
    w.write(0, BLOCK_SIZE + 4, f32(float("nan")))
    w.epoch("sync")  # 3
    w.epoch("sync")  # 4: nothing
    w.close()
    return w


# ---- histories ----


def test_blame_lists_the_history_of_an_item(cli: Cli, run_path: Path) -> None:
    story(run_path)
    outcome = cli("blame", run_path, "--region", "weights", "--element", 2, "--dtype", "f32")
    assert outcome.status == 0
    lines = outcome.stdout.splitlines()
    assert lines[0] == "region 0 'weights', f32 [2]: 3 versions in epochs 0 to 4"
    entries = [line for line in lines if line.startswith("epoch")]
    assert entries == [
        "epoch 0  sync full: 2.0 (first contents)",
        "epoch 1  sync: 2.0 → 0.5",
        "epoch 3  sync: 0.5 → nan",
    ]
    calls = [line for line in lines if line.startswith("    call")]
    assert len(calls) == 3
    assert "cuMemcpyHtoD_v2 1.0 KiB (writes there)" in calls[0]
    assert "step(float*) <<<(4, 2), 256>>> (may write there)" in calls[1]


@pytest.mark.parametrize(
    "place",
    [
        ["--region", "0", "--offset", "8"],
        ["--region", "weights", "--offset", "0x8"],
        ["--address", "0x7f0000000008"],
        ["-r", "0", "--element", "2"],
    ],
)
def test_locations_can_be_given_in_several_forms(
    cli: Cli, run_path: Path, place: list[str]
) -> None:
    story(run_path)
    found = json.loads(cli("blame", run_path, *place, "--dtype", "f32", "--json").stdout)
    assert (found["region"], found["label"], found["offset"]) == (0, "weights", 8)
    assert [(c["epoch"], c["before"], c["after"]) for c in found["changes"]] == [
        (0, None, [2.0]),
        (1, [2.0], [0.5]),
        (3, [0.5], ["nan"]),
    ]
    assert [c["since"] for c in found["changes"]] == [None, 0, 2]


def test_history_of_bytes_and_several_items(cli: Cli, run_path: Path) -> None:
    story(run_path)
    plain = cli("blame", run_path, "-r", "0", "--offset", "8", "--count", "4").stdout
    assert "region 0 'weights', byte 0x8 to 0xb: 3 versions" in plain
    assert "epoch 1  sync: 2 of 4: [2] 00 → 00" not in plain
    assert "epoch 1  sync: 1 of 4: [3] 40 → 3f" in plain
    some = cli("blame", run_path, "-r", "0", "--element", "1", "--count", "4", "--dtype", "f32")
    assert "f32 [1..4]" in some.stdout
    assert "epoch 3  sync: 2 of 4: [1] 0.5 → nan, [2] 3.0 → inf" in some.stdout
    odd = cli("blame", run_path, "-r", "0", "--offset", "7", "--count", "2", "--dtype", "f32")
    assert "region 0 'weights', 2 f32 items from byte 7: 3 versions" in odd.stdout


def test_history_is_limited_to_epochs(cli: Cli, run_path: Path) -> None:
    story(run_path)

    def epochs(*options: str) -> list[int]:
        command = ("blame", run_path, "-r", "0", "--element", "2", "--dtype", "f32", "--json")
        return [c["epoch"] for c in json.loads(cli(*command, *options).stdout)["changes"]]

    assert epochs() == [0, 1, 3]
    assert epochs("--epoch", "2") == [0, 1]
    assert epochs("-e", "0") == [0]
    assert epochs("-e", "1-2") == [1]
    assert epochs("-e", "2-") == [3]
    assert epochs("--limit", "1") == [3]
    assert epochs("--limit", "0") == [0, 1, 3]
    limited = cli("blame", run_path, "-r", "0", "--offset", "11", "--limit", "1").stdout
    assert "before these (--limit 0 shows all)" in limited


def test_history_of_a_whole_region(cli: Cli, run_path: Path) -> None:
    story(run_path)
    out = cli("blame", run_path, "-r", "weights").stdout
    entries = [line for line in out.splitlines() if line.startswith("epoch")]
    assert entries == [
        "epoch 0  sync full: first contents, 2 blocks",
        "epoch 1  sync: changed, 1 block",
        "epoch 2  kernel-before step(float*): changed, 1 block",
        "epoch 3  sync: changed, 2 blocks",
    ]
    quiet = cli("blame", run_path, "-r", "quiet").stdout
    assert "1 version in epochs 0 to 4" in quiet


def test_copies_to_other_offsets_are_no_suspects(cli: Cli, run_path: Path) -> None:
    """Of the copy to offset 4096 the first bytes know nothing, and the other way round."""
    story(run_path)
    command = ("blame", run_path, "-r", "0", "--dtype", "f32", "--json", "--element")
    first, other = (json.loads(cli(*command, e).stdout)["changes"] for e in (2, 1024))
    assert [s["call"] for s in first[0]["suspects"]["listed"]] == ["cuMemcpyHtoD_v2"]
    assert other[0]["suspects"]["listed"] == []
    assert [c["epoch"] for c in other] == [0, 2]
    assert [s["bytes"] for s in other[1]["suspects"]["listed"]] == [16]
    shown = cli("blame", run_path, "-r", "0", "--dtype", "f32", "--element", 1024).stdout
    assert "no recorded call can have written it" in shown


def test_epoch_before_a_launch_excludes_the_launch(cli: Cli, run_path: Path) -> None:
    """Its record has the seq of the launch, whose work is in the next epoch."""
    w = Writer(run_path)
    w.function(0, "step")
    w.born(0, bytes(64))
    w.epoch("sync", "full")
    w.write(0, 0, b"a")
    w.epoch("kernel-before")
    w.write(0, 0, b"b")
    w.epoch("sync")
    w.close()
    path = w.path / "epochs.bin"
    seq = w.event("launch", "cuLaunchKernel", id=0, grid=[1, 1, 1], block=[1, 1, 1])
    from tests import rundir

    rundir.edit(path, 1, seq=seq)
    rundir.edit(path, 2, seq=seq + 1)
    rundir.reseal_records(path)
    found = json.loads(cli("blame", run_path, "-r", "0", "--offset", "0", "--json").stdout)
    kernels = [[s["kernel"] for s in c["suspects"]["listed"]] for c in found["changes"]]
    assert kernels == [[], [], ["step"]]


@pytest.mark.parametrize("seed", SEEDS)
def test_history_of_random_locations_is_complete(run_path: Path, seed: int) -> None:
    w = busy_run(run_path, seed)
    process = tt.open(run_path).process(0)
    random = np.random.default_rng(seed)
    for region in (0, 3, 5):
        size = len(w.history[-1][region])
        for _ in range(5):
            start = int(random.integers(0, size - 16))
            target = find_target(process, region, start, count=4, type=parse("f32"))
            wanted: list[tuple[int, bytes]] = []
            for epoch, known in enumerate(w.history):
                data = known.get(region, b"")[start : start + 16]
                if data and (not wanted or wanted[-1][1] != data):
                    wanted.append((epoch, data))
            found = blame(target, most=0)
            assert [(c.epoch, c.after) for c in found.changes] == wanted
            assert [c.before for c in found.changes] == [None, *(data for _, data in wanted[:-1])]
            assert blame(target, (10, 30), most=0).count == sum(10 <= e <= 30 for e, _ in wanted)


def test_lost_contents_are_reported(cli: Cli, run_path: Path) -> None:
    w = Writer(run_path)
    w.born(0, b"a" * 100)
    for number, value in enumerate("abcde"):
        w.write(0, 3, value.encode())
        w.epoch(
            "sync", *(["full"] if number in (0, 4) else ["dropped"] if number in (2, 3) else [])
        )
    w.close()
    out = cli("blame", run_path, "-r", "0", "--offset", "3").stdout
    entries = [line for line in out.splitlines() if line.startswith("epoch")]
    assert entries == [
        "epoch 0  sync full: 61 (first contents)",
        "epoch 1  sync: 61 → 62",
        "epoch 2 to 3  sync dropped: may have changed; the contents are gone",
        "epoch 4  sync full: 62 → 65",
    ]
    found = json.loads(cli("blame", run_path, "-r", "0", "--offset", "3", "--json").stdout)
    assert found["changes"][-1]["since"] == 1, "the change may have been made ever since"
    assert found["changes"][2]["after"] is None


def test_contents_after_a_loss_are_found_again(cli: Cli, run_path: Path) -> None:
    w = Writer(run_path)
    w.born(0, bytes(2 * BLOCK_SIZE))
    w.epoch("sync", "full")
    w.write(0, BLOCK_SIZE, b"x")
    w.epoch("sync", "dropped")
    w.epoch("sync", "full")
    w.close()
    out = cli("blame", run_path, "-r", "0", "--offset", "0").stdout
    entries = [line for line in out.splitlines() if line.startswith("epoch")]
    assert entries == [
        "epoch 0  sync full: 00 (first contents)",
        "epoch 1  sync dropped: may have changed; the contents are gone",
        "epoch 2  sync full: 00 (known again)",
    ]


def test_unchanged_contents_after_a_loss_are_found_again(cli: Cli, run_path: Path) -> None:
    """An epoch tells what one block is after it, and the next full one what the other is."""
    w = Writer(run_path)
    w.born(0, bytes(2 * BLOCK_SIZE))
    w.epoch("sync", "dropped")
    w.write(0, 0, b"x")
    w.epoch("sync")
    w.epoch("sync", "full")
    w.close()
    out = cli("blame", run_path, "-r", "0", "--offset", BLOCK_SIZE).stdout
    assert [line for line in out.splitlines() if line.startswith("epoch")] == [
        "epoch 0  sync dropped: may have changed; the contents are gone",
        "epoch 2  sync full: 00 (first contents)",
    ]


def test_contents_after_removed_data_files_are_found_again(cli: Cli, run_path: Path) -> None:
    """Nothing changed in the full epochs, which lists anew what is in removed files otherwise."""
    w = Writer(run_path, segments=True)
    w.born(0, bytes(2 * BLOCK_SIZE), context=1)
    w.epoch("sync", "full", context=1)
    w.epoch("sync", "full")  # of another context: it begins a data file
    w.write(0, 0, b"x")
    w.epoch("sync", context=1)
    w.epoch("sync", "full", context=1)
    w.close()
    (w.path / "data-00000.bin").unlink()
    changed, same = (
        [
            line
            for line in cli("blame", run_path, "-r", "0", "--offset", offset).stdout.splitlines()
            if line.startswith("epoch")
        ]
        for offset in (0, BLOCK_SIZE)
    )
    gone = "epoch 0  sync full: may have changed; the contents are gone"
    assert changed == [gone, "epoch 2  sync: 78 (first contents)"]
    assert same == [gone, "epoch 3  sync full: 00 (first contents)"]


def test_history_without_recorded_calls(cli: Cli, run_path: Path) -> None:
    w = story(run_path)
    path = w.path / "events.bin"
    path.write_bytes(path.read_bytes()[: layout.HEADER_SIZE])
    out = cli("blame", run_path, "-r", "0", "--offset", "8").stdout
    assert "no call can be named: the run recorded no calls" in out
    assert "no recorded call" not in out
    seen = cli("blame", run_path, "-r", "0", "--dtype", "f32", "--watch", "nan").stdout
    assert "no call can be named: the run recorded no calls" in seen
    assert "no recorded call" not in seen


# ---- conditions ----

VALUES = [-(2**63), -129, -128, -2, -1, 0, 1, 2, 5, 127, 128, 255, 256, 2**31, 2**53 + 1, 2**64 - 1]


@pytest.mark.parametrize("name", [n for n in TYPES if TYPES[n].kind in ("int", "bool")])
@pytest.mark.parametrize("operator", ["==", "!=", ">", ">=", "<", "<="])
@pytest.mark.parametrize(
    "number", ["0", "1", "-1", "2.5", "-0.5", "127", "1e3", "9007199254740993", "0xff", "1e30"]
)
def test_conditions_on_integers_are_exact(name: str, operator: str, number: str) -> None:
    kind = parse(name)
    low, high = kind.limits()
    inside = [v for v in VALUES if low <= v <= high]
    raw = np.array(inside, "u1" if name == "bool" else kind.numpy).view("u1")
    exact: Any = int(number, 16) if "x" in number else float(number)
    exact = int(number) if re.fullmatch(r"-?\d+", number) else exact
    compare: dict[str, Callable[[int], bool]] = {
        "==": lambda v: v == exact,
        "!=": lambda v: v != exact,
        ">": lambda v: v > exact,
        ">=": lambda v: v >= exact,
        "<": lambda v: v < exact,
        "<=": lambda v: v <= exact,
    }
    wanted = [compare[operator](v) for v in inside]
    try:
        found = Condition.parse(operator + number, kind).test(raw).tolist()
    except Error as e:
        reason = str(e)
    else:
        assert found == wanted
        return
    assert f"no {name} is" in reason
    assert not any(wanted) or operator == "!="


def test_conditions_on_floats_are_exact() -> None:
    kind = parse("f32")
    raw = np.array([0.1, -0.0, np.nan, np.inf, 3, -np.inf], "f4").view("u1")

    def met(text: str) -> list[int]:
        found: list[int] = np.flatnonzero(Condition.parse(text, kind).test(raw)).tolist()
        return found

    assert met("==0.1") == [0], "what the type has nearest to it"
    assert met(" == 0 ") == [1]
    assert met(">0.1") == [0, 3, 4], "the item is above the number that it was rounded from"
    assert met("<=-1e30") == [5]
    assert met("NaN") == [2]
    assert met("inf") == [3, 5]
    assert met("==inf") == [3]
    assert met("!=3") == [0, 1, 2, 3, 5]
    small = parse("bf16")
    data = np.array([0x3DCC, 0x3DCD, 0x7FC0], "u2").view("u1")
    assert Condition.parse("==0.1", small).test(data).tolist() == [False, True, False]


@pytest.mark.parametrize(
    ("text", "dtype", "reason"),
    [
        ("", "f32", "nan, inf, changed, ==VALUE"),
        ("=3", "f32", "nan, inf, changed, ==VALUE"),
        (">", "f32", "'' is not a number"),
        (">x", "f32", "'x' is not a number"),
        ("==nan", "f32", "comparisons with NaN are never true"),
        ("nan", "i32", "i32 items are never nan; see --dtype"),
        (">inf", "i32", "i32 items are all finite"),
        ("==0.5", "i32", "no i32 is that number"),
        ("==256", "u8", "no u8 is that number"),
        (">255", "u8", "no u8 is, they go from 0 to 255"),
        ("==70000", "f16", "no f16 is that number"),
        (">1", "c64", "c64 items have no order"),
        ("==1e99999", "f32", "is not a number"),
    ],
)
def test_invalid_conditions_are_refused(text: str, dtype: str, reason: str) -> None:
    with pytest.raises(Error, match=re.escape(reason)):
        Condition.parse(text, parse(dtype))


# ---- watching ----


@pytest.mark.parametrize(
    ("options", "epoch", "items"),
    [
        (["--watch", "nan"], 3, {0: [2, BLOCK_SIZE // 4 + 1]}),
        (["--watch", "inf"], 3, {0: [3]}),
        (["--watch", "==0.5"], 1, {0: [2]}),
        (["--watch", ">1e20"], 2, {0: [1025]}),
        (["--watch", "<0", "-r", "weights"], 2, {0: [1024]}),
        (["--watch", "changed"], 1, {0: [2]}),
        (["--watch", "changed", "-e", "2-"], 2, {0: [1024, 1025]}),
        (["--watch", "==255"], 0, {0: [255]}),
        (["--watch", "==255", "-e", "2-3"], 2, {0: [255]}),
        (["--watch", "nan", "-r", "0", "--element", "2"], 3, {0: [0]}),
        (["--watch", "changed", "-r", "0", "--element", "1", "--count", "3"], 1, {0: [1]}),
        (["--watch", "!=2", "-r", "0", "--offset", "8"], 1, {0: [0]}),
        (["--watch", "==0", "-r", "quiet"], 0, {1: list(range(8))}),
        (["--watch", "nan", "-e", "2"], None, {}),
        (["--watch", "changed", "-r", "quiet"], None, {}),
        (["--watch", "changed", "-e", "4-"], None, {}),
        (["--watch", ">1e31", "-r", "weights", "-e", "0-2"], None, {}),
    ],
)
@pytest.mark.parametrize("batch", [1 << 18, 1])
def test_watch_finds_the_first_epoch_that_meets_a_condition(
    cli: Cli,
    run_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: list[str],
    epoch: int | None,
    items: dict[int, list[int]],
    batch: int,
) -> None:
    monkeypatch.setattr(history, "BATCH_RECORDS", batch)
    monkeypatch.setattr(search, "AT_ONCE", 1 if batch == 1 else 1024)
    story(run_path)
    command = ("blame", run_path, "--dtype", "f32", *options)
    shown, outcome = cli(*command), cli(*command, "--json")
    assert shown.status == outcome.status == (1 if epoch is None else 0)
    found = json.loads(outcome.stdout)["found"]
    if epoch is None:
        assert found is None
        assert ": in no epoch" in shown.stdout
        return
    assert found["epoch"] == epoch
    assert {h["region"]: h["first"] for h in found["hits"]} == items
    assert f"first in epoch {epoch} (" in shown.stdout


@pytest.mark.parametrize("most", [4, 1 << 20])
def test_watch_in_pieces_finds_the_first_epoch(
    run_path: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """The first epoch counts, whichever piece it is in, and all items of that epoch."""
    monkeypatch.setattr(search, "MOST_BYTES", most)
    w = Writer(run_path)
    w.born(0, bytes(16))
    w.epoch("sync", "full")  # 0
    w.write(0, 13, b"\7")
    w.epoch("sync")  # 1
    w.write(0, 3, b"\7\7")
    w.epoch("sync")  # 2
    w.write(0, 2, b"\7" * 9)
    w.epoch("sync")  # 3
    w.epoch("sync")  # 4: nothing
    w.write(0, 2, bytes(12))
    w.epoch("sync")  # 5
    w.close()
    process = tt.open(run_path).processes[0]
    sevens = Condition.parse("==7", parse("u8"))
    part = find_target(process, 0, 2, count=12)

    def sighted(
        condition: Condition, *epochs: int
    ) -> tuple[int, int | None, int | None, list[int]]:
        seen = watch(process, condition, part, (epochs[0], epochs[1])).sighting
        assert seen is not None
        (hit,) = seen.hits
        data = w.history[seen.epoch][0]
        assert hit.data == bytes(data[2 + i] for i in hit.first)
        return seen.epoch, seen.since, hit.items, hit.first

    assert sighted(sevens, 0, 5) == (1, 0, 1, [11])
    assert sighted(sevens, 1, 5) == (1, 0, 1, [11])
    assert sighted(sevens, 4, 5) == (4, None, 10, list(range(8)))  # from before
    changed = Condition.parse("changed", parse("u8"))
    assert sighted(changed, 0, 5) == (1, 0, 1, [11])
    assert sighted(changed, 2, 5) == (2, 1, 2, [1, 2])
    assert sighted(changed, 4, 5) == (5, 4, 10, list(range(8)))
    assert watch(process, sevens, part, (5, 5)).sighting is None
    assert watch(process, changed, part, (4, 4)).sighting is None


@pytest.mark.parametrize("at_once", [1, 2, 3, 1024])
def test_watch_reads_many_blocks_at_once(
    run_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr(search, "AT_ONCE", at_once)
    w = Writer(run_path)
    for region in range(6):
        w.born(region, bytes([100 + region]) * 64)
    w.epoch("sync", "full")  # 0
    for epoch, regions in ((1, (0, 1, 2, 3, 4, 5)), (2, (1, 4, 5))):
        for region in regions:
            w.write(region, 0, bytes([epoch, region]))
        w.epoch("sync")
    w.close()
    process = tt.open(run_path).processes[0]
    told: list[tuple[int, int]] = []
    for value, epoch, hit in ((105, 0, [5]), (1, 1, [0, 1, 2, 3, 4, 5]), (2, 1, [2])):
        condition = Condition.parse(f"=={value}", parse("u8"))
        seen = watch(process, condition, progress=lambda *done: told.append(done)).sighting
        assert seen is not None
        assert (seen.epoch, [found.region for found in seen.hits]) == (epoch, hit)
    assert all(done <= total == 3 for done, total in told)


def test_copies_beside_the_found_items_are_no_suspects(run_path: Path) -> None:
    w = Writer(run_path)
    w.born(0, bytes(256))
    w.epoch("sync", "full")
    for offset in (24, 80, 96):
        w.event("copy", "cuMemcpyHtoD_v2", dst=0x7F0000000000 + offset, src=1, bytes=16)
        if offset == 80:
            hit = w.seq
    w.write(0, 80, f32(7, 8, 7))
    w.epoch("sync")
    w.close()
    process = tt.open(run_path).processes[0]
    seen = watch(process, Condition.parse("==7", parse("f32")), everywhere=True).sighting
    assert seen is not None and seen.hits[0].first == [20, 22]
    assert [call.seq for call in seen.hits[0].suspects.listed] == [hit]


@pytest.mark.parametrize(
    ("fill", "suspected"),
    [
        ({"src": 0, "shared": 4, "bytes": 16}, False),
        ({"src": 0x40E00000, "shared": 4, "bytes": 16}, True),
        ({"src": 0, "shared": 1, "bytes": 18}, True),  # a part of an item
        ({"src": 0, "shared": 0, "bytes": 16}, True),  # the value is not known
        ({"src": 0, "shared": 4, "bytes": 96, "grid": [1, 2, 1]}, True),  # rows
    ],
)
def test_fills_with_another_value_are_no_suspects(
    fill: dict[str, Any], suspected: bool, run_path: Path
) -> None:
    w = Writer(run_path)
    w.born(0, bytes(256))
    w.epoch("sync", "full")
    fills = w.event("set", dst=0x7F0000000000 + 80, **fill)
    launch = w.event("launch", "cuLaunchKernel")
    w.write(0, 80, f32(7, 8, 7))
    w.epoch("sync")
    w.close()
    process = tt.open(run_path).processes[0]
    seen = watch(process, Condition.parse("==7", parse("f32")), everywhere=True).sighting
    assert seen is not None
    expected = [fills, launch] if suspected else [launch]
    assert [call.seq for call in seen.hits[0].suspects.listed] == expected
    changed = watch(process, Condition.parse("changed", parse("f32"))).sighting
    assert changed is not None
    assert [call.seq for call in changed.hits[0].suspects.listed] == [fills, launch]


def test_watch_result_names_values_and_suspects(cli: Cli, run_path: Path) -> None:
    story(run_path)
    out = cli("blame", run_path, "-r", "weights", "--dtype", "f32", "--watch", "nan").stdout
    assert out.splitlines() == [
        "nan in region 0 'weights', as f32: first in epoch 3 (sync)",
        "not in epoch 2, the previous epoch of its context",
        "region 0 'weights': 2 items: [2] nan, [16385] nan",
        "    call 9, stream 1: step(float*) <<<(4, 2), 256>>> (may write there)",
    ]


def brute(w: Writer, region: int | None, value: float) -> tuple[int, int] | None:
    """The first epoch in which an item is that, and in how many regions one is."""
    for epoch, known in enumerate(w.history):
        hits = 0
        for number, memory in known.items():
            if region in (None, number):
                whole = len(memory) // 4 * 4
                hits += bool((np.frombuffer(memory[:whole], "f4") == np.float32(value)).any())
        if hits:
            return epoch, hits
    return None


@pytest.mark.sampled
@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("segments", [False, True])
def test_watch_equals_a_full_scan(
    run_path: Path, seed: int, segments: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "BATCH_RECORDS", 4)
    w = busy_run(run_path, seed, segments=segments, epochs=40)
    process = tt.open(run_path).process(0)
    kind = parse("f32")
    everything = np.concatenate(
        [np.frombuffer(m[: len(m) // 4 * 4], "f4") for known in w.history for m in known.values()]
    )
    everything = np.unique(everything[np.isfinite(everything)])
    random = np.random.default_rng(seed)
    some = random.choice(everything, 12)
    last = {
        float(v)
        for r in w.history[-1].values()
        for v in np.frombuffer(r[: len(r) // 4 * 4], "f4")[:3]
    }
    with np.errstate(invalid="ignore"):
        for value in [*some.tolist(), *list(last)[:6]]:
            if value != value:
                continue
            for region in (None, 0, 5):
                wanted = brute(w, region, value)
                target = None if region is None else find_target(process, region)
                condition = Condition.parse(f"=={value!r}", kind)
                seen = watch(process, condition, target, everywhere=True)
                assert seen.unseen == 0
                found = seen.sighting
                assert (found and (found.epoch, found.hit_count)) == wanted


def test_unchanged_blocks_are_read_once(run_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Full epochs list everything again, which costs nothing again."""
    w = Writer(run_path)
    w.born(0, bytes(4 * BLOCK_SIZE))
    for number in range(30):
        w.write(0, number, b"\1")
        w.epoch("sync", "full")
    w.close()
    tested: list[int] = []
    real = meet

    def spy(condition: Condition, files: Any, records: Array) -> Array:
        tested.append(len(records))
        return np.asarray(real(condition, files, records))

    monkeypatch.setattr("ttanalyze.verbs.blame.search.meet", spy)
    process = tt.open(run_path).process(0)
    assert watch(process, Condition.parse("==7", parse("u8"))) == (None, 0, [], [])
    assert sum(tested) == 31, "the first block of every epoch, and zeros once"


def test_removed_and_lost_contents_are_counted(cli: Cli, run_path: Path) -> None:
    w = Writer(run_path, segments=True)
    w.born(0, bytes(8))
    for number in range(8):
        w.write(0, 0, bytes([number]))
        w.epoch("sync", *(["full"] if number % 4 == 0 else ["dropped"] if number == 6 else []))
    w.close()
    (w.path / "data-00000.bin").unlink()
    outcome = cli("blame", run_path, "--watch", "==3")
    assert outcome.status == 1
    assert "5 changes not checked: the contents are gone" in outcome.stdout
    found = json.loads(cli("blame", run_path, "--watch", "==5", "--json").stdout)
    assert (found["found"]["epoch"], found["unseen"]) == (5, 5)
    part = cli("blame", run_path, "-r", "0", "--offset", "0", "--watch", "==3")
    assert (part.status, "not checked: the contents are gone" in part.stdout) == (1, True)


def test_whole_region_location_has_values(cli: Cli, run_path: Path) -> None:
    w = Writer(run_path)
    w.born(0, f32(1), label="loss")
    w.born(1, b"a", label="flag")
    w.epoch("sync", "full")
    w.write(0, 0, f32(2))
    w.write(1, 0, b"b")
    w.epoch("sync")
    w.close()
    loss = cli("blame", run_path, "-r", "loss", "--element", "0", "--dtype", "f32").stdout
    assert "region 0 'loss', f32 [0]: 2 versions" in loss
    assert "epoch 1  sync: 1.0 → 2.0" in loss
    assert "epoch 1  sync: 61 → 62" in cli("blame", run_path, "-r", 1, "--offset", 0).stdout
    address = f"{0x7F0001000000:#x}"
    assert "epoch 1  sync: 61 → 62" in cli("blame", run_path, "--address", address).stdout
    assert "epoch 1  sync: changed, 1 block" in cli("blame", run_path, "-r", "flag").stdout
    watched = ("blame", run_path, "-r", "loss", "--element", "0", "--dtype", "f32", "--watch")
    assert "==2 in region 0 'loss', f32 [0]: first in epoch 1" in cli(*watched, "==2").stdout


def changing(path: Path) -> None:
    """Region 0 lives in epochs 0 to 2, region 1 from epoch 3 on, region 2 all the time; epochs 1
    and 4 were refused. All hold 7 from their second byte on.
    """
    w = Writer(path)
    w.born(0, b"\x07" * 100)
    w.born(2, b"\x07" * 100)
    w.epoch("sync", "full")
    w.epoch("sync", "refused")
    w.write(2, 0, b"\x01")
    w.epoch("sync")
    w.died(0)
    w.born(1, b"\x07" * 100)
    w.epoch("sync")
    w.epoch("sync", "refused")
    w.epoch("sync", "full")
    w.close()


@pytest.mark.parametrize("place", [[], ["--offset", "4", "--count", "8"]])
@pytest.mark.parametrize(
    ("region", "epochs", "epoch"),
    [
        ("0", "0-", 0),
        ("0", "1-", 2),
        ("0", "2-5", 2),
        ("0", "3-", "region 0 does not exist in epochs 3 to 5"),
        ("0", "1-1", "epochs 1 to 1 have no contents"),
        ("1", "1-", 3),
        ("1", "4-", 5),
        ("1", "0-2", "region 1 does not exist in epochs 0 to 2"),
        ("2", "1-", 2),
        ("2", "4-", 5),
        (None, "1-", 2),
        (None, "4-", 5),
        (None, "4-4", "epochs 4 to 4 have no contents"),
    ],
)
def test_value_is_found_in_the_next_epoch_with_contents(
    cli: Cli, run_path: Path, place: list[str], region: str | None, epochs: str, epoch: int | str
) -> None:
    changing(run_path)
    of = ["-r", region, *place] if region is not None else []
    outcome = cli("blame", run_path, *of, "--watch", "==7", "-e", epochs, "--json")
    if isinstance(epoch, str):
        assert (outcome.status, epoch in outcome.stderr) == (2, True)
    else:
        assert json.loads(outcome.stdout)["found"]["epoch"] == epoch


def test_watch_skips_lost_contents_only(cli: Cli, run_path: Path) -> None:
    w = Writer(run_path)
    w.born(0, b"a" * 100)
    w.born(1, b"b" * 100)
    w.epoch("sync", "full")
    w.write(0, 0, b"x")
    w.epoch("sync", "dropped")
    w.epoch("sync", "full")
    w.close()
    found = json.loads(cli("blame", run_path, "--watch", "==98", "-e", "1-", "--json").stdout)
    assert (found["found"]["epoch"], found["unseen"]) == (1, 1)
    found = json.loads(cli("blame", run_path, "--watch", "==97", "-e", "1-", "--json").stdout)
    assert (found["found"]["epoch"], found["unseen"]) == (2, 1)


@pytest.mark.parametrize("named", [False, True])
def test_change_after_the_last_whole_item_is_reported(
    cli: Cli, run_path: Path, named: bool
) -> None:
    w = Writer(run_path)
    w.born(0, bytes(7))
    w.name(0, 0, 7, "seven", "f32")
    w.epoch("sync", "full")
    w.write(0, 5, b"x")
    w.epoch("sync")
    w.close()
    of = ["-r", "seven"] if named else []
    command = ("blame", run_path, *of, "--watch", "changed", "--dtype", "f32")
    shown, found = cli(*command), json.loads(cli(*command, "--json").stdout)["found"]
    assert (shown.status, found["epoch"]) == (0, 1)
    assert [(hit["items"], hit["first"]) for hit in found["hits"]] == [(0, [])]
    assert "region 0: only bytes after the last whole item" in shown.stdout
    assert cli("blame", run_path, *of, "--watch", "==0", "--dtype", "f32").status == 0


# ---- errors ----


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ([], "which memory? Give --region, or --address"),
        (["-r", "nobody"], "no region or tensor 'nobody' in process 0"),
        (["-r", "99"], "no region or tensor '99' in process 0"),
        (["-r", "2", "--offset", "0"], "region 2 is not captured"),
        (["-r", "0", "--offset", "196708"], "no byte 196708 in region 0: it has 196708"),
        (["-r", "0", "--element", "-1"], "no byte -1 in region 0"),
        (["-r", "0", "--offset", "4", "--element", "1"], "--offset and --element"),
        (["-r", "0", "--offset", "x"], "--offset x: expected a number such as 4096, 4K or 0x1000"),
        (["-r", "0", "--count", "0"], "in region 0: it has 196708"),
        (["-r", "0", "--offset", "0", "--count", "196709"], "no bytes 0 to 196708 in region 0"),
        (["--address", "12"], "no captured region at 0xc in process 0"),
        (["--address", "0x7f0000000000", "-r", "0"], "--address stands for --region"),
        (["--address", "0xffffffffffffffff"], "no captured region at 0xffffffffffffffff"),
        (["-r", "0", "--epoch", "x"], "--epoch x: expected a number or a range such as 2-5"),
        (["-r", "0", "--epoch", "9-"], "--epoch 9-: process 0 has 5 epochs"),
        (["-r", "0", "--dtype", "f31"], "no type 'f31'"),
        (["-r", "0", "--limit", "-1"], "--limit -1: must be 0 or more"),
        (["-r", "0", "--process", "1"], "no process 1"),
        (["--watch", "nan"], "u8 items are never nan; see --dtype"),
        (["--watch", "odd"], "--watch odd: expected nan, inf, changed"),
        (["--watch", "==0", "--count", "3"], "--count: needs --region or --address"),
    ],
)
def test_invalid_arguments_are_errors(
    cli: Cli, small: Writer, run_path: Path, options: list[str], reason: str
) -> None:
    outcome = cli("blame", run_path, *options)
    assert outcome.status == 2
    assert outcome.stdout == ""
    assert reason in outcome.stderr
    assert outcome.stderr.count("\n") == 1


def test_ambiguous_labels_and_addresses(cli: Cli, run_path: Path) -> None:
    w = Writer(run_path)
    for region in range(3):
        w.born(region, bytes(8), label="twin")
    w.epoch("sync", "full")
    w.died(0)
    w.died(1)
    w.epoch("sync")
    w.close()
    both = cli("blame", run_path, "-r", "twin")
    assert both.status == 2
    assert "that is 3 regions (0, 1, 2): use --region" in both.stderr
    assert "region 2 'twin'" in cli("blame", run_path, "-r", "twin", "-e", "1").stdout


@pytest.mark.parametrize("name", ["blocks.bin", "digests.bin", "data-00000.bin"])
def test_damaged_run_gives_a_one_line_error(
    cli: Cli, small: Writer, run_path: Path, name: str
) -> None:
    path = small.path / name
    raw = bytearray(path.read_bytes())
    raw[layout.HEADER_SIZE + 3] ^= 1
    path.write_bytes(raw)
    asked = [["-r", "0", "--offset", "0"]]
    if name != "digests.bin":  # which a watch for values does without
        asked.append(["--watch", "==77"])
    for options in asked:
        outcome = cli("blame", run_path, *options)
        assert outcome.status == 2
        assert outcome.stdout == ""
        assert outcome.stderr.startswith(f"ttanalyze: {path}: offset ")
        assert outcome.stderr.count("\n") == 1


# ---- real runs ----


def test_blame_names_the_training_kernels(cli: Cli, built: Path, run_path: Path) -> None:
    """Every step's change of a weight is blamed on the kernels that are given its region."""
    command = support.command("example-training", built)
    environment = support.recording(support.simulator_environment(), run_path, params="1")
    assert support.run(command, environment).status == 0
    options = ("-r", "0", "--element", 3, "--dtype", "f32", "--json")
    found = json.loads(cli("blame", run_path, *options).stdout)
    run = tt.open(run_path)
    values = [float(run.read(e, 0, dtype="f4")[3]) for e in range(len(run.epochs))]
    assert [c["after"][0] for c in found["changes"]] == values
    for change in found["changes"][1:]:
        kernels = {s["kernel"] for s in change["suspects"]["listed"]}
        assert "update" in kernels
        assert "squared_error" not in kernels, "it is given no pointer to the weights"
        assert change["suspects"]["indirect"] > 0
    seen = cli("blame", run_path, "-r", "0", "--dtype", "f32", "--watch", "changed", "--json")
    assert json.loads(seen.stdout)["found"]["epoch"] == 1
    assert cli("blame", run_path, "--dtype", "f32", "--watch", "nan").status == 1


def test_blame_names_the_out_of_bounds_write(cli: Cli, built: Path, run_path: Path) -> None:
    """The example that writes past the end of its own buffer: who wrote into the one behind."""
    command = support.command("example-scribble", built)
    environment = support.recording(
        support.simulator_environment(), run_path, params="1", epoch="launch"
    )
    support.run(command, environment)
    run = tt.open(run_path)
    regions = run.regions[run.regions["captured"]]
    for region in regions["region"].tolist():
        found = json.loads(cli("blame", run_path, "-r", region, "--json").stdout)
        assert found["count"] >= 1
        digests = run.digests[run.digests["region"] == region]["digest"].tolist()
        distinct = [d for i, d in enumerate(digests) if i == 0 or d != digests[i - 1]]
        assert found["count"] == len(distinct)


def test_guide_examples_run(
    run_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its examples of histories and of memory as numbers."""
    story(run_path)
    monkeypatch.chdir(tmp_path)
    for guide, name in (("blame", "item = "), ("values", "compare_values")):
        page = (support.ROOT / "docs" / "guides" / f"{guide}.md").read_text()
        blocks = re.findall(r"```python\n(.*?)```", page, re.S)
        code = next(block for block in blocks if name in block)
        found: dict[str, Any] = {"run": tt.open(run_path)}
        exec(compile(code, f"docs/guides/{guide}.md", "exec"), found)
    assert np.load("weights.npy").shape == (256, 128)
    assert (found["found"].count, found["summary"].nan) == (0, 2)
