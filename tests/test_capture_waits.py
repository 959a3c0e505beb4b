"""Calls that had to wait for a capture: which one, of which region, and for how long."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import ttanalyze as tt
from tests import support
from tests.region_ready import check_region_ready
from tests.rundir import Writer
from tests.support import Cli
from tests.traces import Item, traced
from ttanalyze.core.writers import writers
from ttanalyze.format.activities import OWN
from ttanalyze.format.captures import WAITED
from ttanalyze.verbs.diff import diff
from ttanalyze.verbs.info import info
from ttanalyze.verbs.info.show import info_text
from ttanalyze.verbs.query import Query, query
from ttanalyze.verbs.trace import FORMATS, calls

KERNEL = "_Z4stepPf"
BASE = 0x7F0000000000
CUPTI = {"asked": "cupti", "source": "cupti", "reason": None, "missed": 0, "clock_error_ns": 0}


@pytest.fixture(params=list(FORMATS))
def form(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def waits(items: list[Item]) -> list[tuple[str, int, int]]:
    return [(i.name, i.begin, i.end) for i in items if i.category == "capture-wait"]


def waiting_run(path: Path, timeline: bool) -> Writer:
    """Two regions, of which the second has tensors; launches after an epoch, which wait for it."""
    w = Writer(path)
    w.function(0, KERNEL)
    w.born(0, bytes(64), label="weights")  # 1
    w.born(1, bytes(64))  # 2
    w.name(1, 0, 16, "bias")
    w.event("launch", "cuLaunchKernel", id=0, stream=16)  # 3
    w.epoch("launch", seq=3, time_ns=3900, captured_ns=90_000, done_ns=95_000)
    some = {"id": 0, "flags": WAITED}
    w.event("launch", "cuLaunchKernel", stream=16, dst=BASE, **some)  # 4
    w.event("launch", "cuLaunchKernel", stream=17, dst=BASE + (1 << 24), **some)  # 5
    w.event("launch", "cuLaunchKernel", stream=17, id=0)  # 6
    w.event("copy", "cuMemcpyHtoD_v2", stream=18, dst=BASE, bytes=8, flags=WAITED)  # 7
    w.event("graph-launch", stream=16, flags=WAITED)  # 8, which was over
    if timeline:
        w.activity("launch", 3, 5000, 40_000, KERNEL)
        own: dict[str, Any] = {"flags": OWN, "stream": 0}
        w.activity("launch", 0, 40_000, 60_000, "tt_capture_digest", **own)
        w.activity("launch", 0, 60_000, 70_000, "tt_capture_gather", **own)
        w.activity("copy", 0, 71_000, 75_000, **own)
        w.activity("launch", 4, 70_000, 71_000, KERNEL)
        w.activity("launch", 5, 70_500, 72_000, KERNEL)
        w.activity("launch", 6, 72_000, 73_000, KERNEL)
        w.activity("copy", 7, 65_000, 66_000, bytes=8)
        w.activity("launch", 8, 71_000, 73_000, KERNEL, node=7)
    w.close(timeline=CUPTI if timeline else {})
    return w


def test_waits_end_with_the_kernels_of_the_capture(
    run_path: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting_run(run_path, True)
    for _ in range(2):
        seen, _ = traced(run_path, form)
        assert waits(seen.of("stream 16")) == [("waits for epoch 0", 40_000, 70_000)]
        assert waits(seen.of("stream 17")) == [("waits for epoch 0", 5000, 70_000)]
        # What began before the capture was through did not wait for all of it.
        assert waits(seen.of("stream 18")) == [("waits for epoch 0", 7000, 65_000)]
        assert not seen.of("(2)")
        (epoch,) = seen.of("epochs")
        assert (epoch.begin, epoch.end, epoch.args["captured_after_ns"]) == (3900, 70_000, 66_100)
        (drain,) = seen.of("drain")
        assert (drain.begin, drain.end) == (70_000, 95_000)
        monkeypatch.setattr(calls, "PIECE", 2)


def test_waits_end_when_the_capture_was_seen_finished(
    run_path: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting_run(run_path, False)
    for _ in range(2):
        seen, done = traced(run_path, form)
        assert waits(seen.of("stream 16")) == [("waits for epoch 0", 4000, 90_000)]
        assert waits(seen.of("stream 17")) == [("waits for epoch 0", 5000, 90_000)]
        assert waits(seen.of("stream 18")) == [("waits for epoch 0", 7000, 90_000)]
        work = [i for i in seen.of("stream 17") if i.category == "launch"]
        assert [(i.begin, i.end) for i in work] == [(90_000, 91_000), (91_000, 92_000)]
        assert done.arrows == 7
        (epoch,) = seen.of("epochs")
        assert (epoch.begin, epoch.end) == (3900, 90_000)
        monkeypatch.setattr(calls, "PIECE", 2)


def test_waits_name_the_region(run_path: Path, form: str) -> None:
    waiting_run(run_path, True)
    seen, _ = traced(run_path, form)
    held = {i.args["seq"]: i.args for i in seen.of("stream") if i.category == "capture-wait"}
    assert (held[4]["epoch"], held[4]["region"], held[4]["label"]) == (0, 0, "weights")
    assert (held[5]["region"], held[5]["tensors"]) == (1, ["bias"])
    assert "label" not in held[5] and "region" not in held[7]


def test_capture_wait_columns(run_path: Path) -> None:
    waiting_run(run_path, False)
    run = tt.open(run_path)
    rows = query(run, Query(filter="waited >= 0", fields=["seq", "waited", "waited_region"]))
    assert rows["seq"].tolist() == [4, 5, 7, 8] and set(rows["waited"]) == {0}
    assert rows["waited_region"].astype(object).where(
        rows["waited_region"].notna(), None
    ).tolist() == [*(0, 1, None, None)]
    assert query(run, Query(fields=["waited"]))["waited"].isna().sum() == 4


@pytest.mark.parametrize(
    ("timeline", "line"),
    [
        (True, "waits    4 calls had to wait for a capture, 153 µs in all\n"),
        (False, "waits    4 calls had to wait for a capture\n"),
    ],
)
def test_info_shows_capture_waits(cli: Cli, run_path: Path, timeline: bool, line: str) -> None:
    waiting_run(run_path, timeline)
    assert line in info_text(info(tt.open(run_path)))
    said = json.loads(cli("info", run_path, "--json").stdout)["processes"][0]["capture_waits"]
    assert said == {"count": 4, "time_ns": 153_000 if timeline else None}


def test_last_epoch_before_a_call_is_found(run_path: Path) -> None:
    """Refused ones and those of other contexts don't count, nor what was cut after the call."""
    w = Writer(run_path)
    w.function(0, KERNEL)
    w.born(0, bytes(64))  # 1
    w.born(1, bytes(64), context=1)  # 2
    w.epoch(seq=2, time_ns=2000, captured_ns=9_000, done_ns=9_500)  # 0
    w.epoch("sync", "refused", seq=2, time_ns=2500)  # 1
    w.epoch("launch", seq=2, context=1, time_ns=2600, captured_ns=9_000, done_ns=9_500)  # 2
    w.event("launch", id=0, flags=WAITED)  # 3: 0
    w.event("launch", id=0, flags=WAITED)  # 4: the one before it, though another has its seq
    w.epoch("kernel-before", seq=4, time_ns=4100, captured_ns=9_900, done_ns=9_950)  # 3
    w.epoch("kernel-after", seq=4, time_ns=4200, captured_ns=12_000, done_ns=12_500)  # 4
    w.event("launch", id=0, flags=WAITED)  # 5: 4
    w.event("sync", "cuCtxSynchronize", thread=2)  # 6, which returns when others are over
    w.event("launch", id=0, flags=WAITED)  # 7: 4 still
    w.epoch("sync", seq=6, time_ns=11_000, captured_ns=15_000, done_ns=15_500)  # 5
    w.event("launch", id=0, flags=WAITED, context=1)  # 8: 2
    w.event("launch", id=0, flags=WAITED, context=2)  # 9: none
    w.close()
    rows = query(tt.open(run_path), Query(filter="kind == 'launch'", fields=["waited"]))
    assert rows["waited"].astype(object).where(rows["waited"].notna(), None).tolist() == [
        *(0, 3, 4, 4, 2, None)
    ]


def test_epoch_cut_during_a_call(run_path: Path) -> None:
    w = Writer(run_path)
    w.born(0, bytes(64))
    w.epoch(seq=1, captured_ns=1500, done_ns=1600)
    w.event("sync", thread=2)
    w.event("launch", flags=WAITED)  # which is at 3000
    w.epoch(seq=2, time_ns=3100, captured_ns=3900, done_ns=4000)
    w.close()
    rows = query(tt.open(run_path), Query(filter="kind == 'launch'", fields=["waited"]))
    assert rows["waited"].tolist() == [1]


def test_order_decides_without_times(run_path: Path) -> None:
    """As in deterministic runs."""
    w = Writer(run_path)
    w.born(0, bytes(64))
    w.epoch(seq=1, time_ns=0, done_ns=0)
    w.event("launch", flags=WAITED, time_ns=0)
    w.epoch(seq=2, time_ns=0, done_ns=0)
    w.event("launch", flags=WAITED, time_ns=0)
    w.close()
    rows = query(tt.open(run_path), Query(filter="kind == 'launch'", fields=["waited"]))
    assert rows["waited"].tolist() == [0, 1]
    seen, _ = traced(run_path)
    assert not waits(seen.of("stream"))


def test_later_region_at_the_same_address(run_path: Path) -> None:
    w = Writer(run_path)
    w.born(0, bytes(64))
    w.epoch(seq=1, captured_ns=1500, done_ns=1600)
    w.event("launch", flags=WAITED, dst=BASE)
    w.died(0)
    w.event("launch", flags=WAITED, dst=BASE)
    w.close()
    rows = query(tt.open(run_path), Query(filter="kind == 'launch'", fields=["waited_region"]))
    assert rows["waited_region"].isna().tolist() == [False, True]


def test_mismatched_capture_kernels_are_ignored(run_path: Path) -> None:
    w = Writer(run_path)
    w.born(0, bytes(64))
    for seq in (1, 2):
        w.epoch(seq=seq, captured_ns=seq * 1000 + 700, done_ns=seq * 1000 + 800)
    w.activity("launch", 0, 1100, 1200, "tt_capture_digest", flags=OWN)
    w.event("launch", flags=WAITED)
    w.close()
    captures = tt.open(run_path).process(0).captures
    assert captures.begins.tolist() == [0, 0] and captures.ends.tolist() == [1700, 2700]


def test_different_waits_are_no_difference(tmp_path: Path) -> None:
    for name, flags in (("a", WAITED), ("b", 0)):
        w = Writer(tmp_path / name)
        w.function(0, KERNEL)
        w.born(0, bytes(64))
        w.epoch()
        for _ in range(3):
            w.event("launch", "cuLaunchKernel", id=0, flags=flags, dst=BASE if flags else 0)
        w.epoch()
        w.close()
    found = diff(tt.open(tmp_path / "a"), tt.open(tmp_path / "b"))
    assert found.same
    assert [len(pair.launches.stretches) for pair in found.processes if pair.launches] in ([], [0])


def test_waited_regions_are_not_possible_writes(run_path: Path) -> None:
    found = {}
    for flags in (0, WAITED):
        w = Writer(run_path / str(flags))
        w.function(0, KERNEL)
        w.born(0, bytes(64))
        w.born(1, bytes(64))
        w.event("launch", "cuLaunchKernel", id=0, flags=flags, dst=BASE if flags else 0)
        w.close()
        of = [writers(tt.open(w.run).process(0), region, 0, 9) for region in (0, 1)]
        found[flags] = [(f.events["seq"].tolist(), f.how.tolist()) for f in of]
    assert found[0] == found[WAITED]


# ---- recorded programs ----


@pytest.mark.native
@pytest.mark.parametrize("timeline", ["cupti", "events", "off"])
@pytest.mark.parametrize("regions", ["touched", "all"])
def test_waits_of_a_recorded_program(
    built: Path, tmp_path: Path, form: str, timeline: str, regions: str
) -> None:
    path = tmp_path / "run"
    command = [str(support.build_program("recorder_independent_streams", built))]
    environment = support.simulator_environment(TT_SIM_SCHEDULE="random", TT_SIM_SEED="1")
    options = {"epoch": "launch", "regions": regions, "timeline": timeline, "params": "1"}
    outcome = support.run(command, support.recording(environment, path, **options))
    assert outcome.status == 0, outcome.stderr
    run = tt.open(path)
    process = run.process(0)
    told = query(run, Query(filter="waited >= 0", fields=["seq", "waited", "waited_region"]))
    assert len(told) == info(run).processes[0].capture_waits["count"] > 0
    before = run.epochs.set_index("epoch")["seq"].loc[told["waited"]].to_numpy()
    assert (before < told["seq"].to_numpy()).all()
    if regions == "touched":
        assert told["waited_region"].notna().any()
    captures = process.captures
    if timeline == "cupti":
        assert (captures.begins > process.epochs["time_ns"].astype("i8")).all()
    seen, _ = traced(path, form)
    held = [i for i in seen.of("stream") if i.category == "capture-wait"]
    assert held
    of = dict(zip(told["seq"], told["waited"], strict=True))
    for item in held:
        assert of[item.args["seq"]] == item.args["epoch"]
        assert item.end <= captures.ends[item.args["epoch"]]
        (work,) = [
            i
            for i in seen.of("stream")
            if i.args["seq"] == item.args["seq"] and i.category != "capture-wait"
        ]
        assert work.begin >= item.end


# ---- captures that wait for what the program says ----


@pytest.mark.parametrize("deps", ["off", "device"])
def test_captures_wait_for_the_events_of_regions(deps: str, built: Path, run_path: Path) -> None:
    command = [str(support.build_program("recorder_region_ready", built))]
    environment = support.simulator_environment()
    recorded = support.recording(environment, run_path, epoch="api", deps=deps, timeline="events")
    outcome = support.run(command, recorded)
    assert (outcome.stdout, outcome.status) == (support.run(command, environment).stdout, 0)
    assert "not ready" not in outcome.stderr and "no allocation" not in outcome.stderr
    assert len(check_region_ready(run_path)) == 4
