"""How much was allocated when, by whom, where, and what was never freed."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import ttanalyze as tt
from tests import recordings, support
from tests.rundir import Writer, edit, reseal_records
from tests.support import Cli
from ttanalyze.core.allocations import levels
from ttanalyze.format.layout import HEADER_SIZE
from ttanalyze.verbs.memory import memory, timeline
from ttanalyze.verbs.memory.show import plot

KINDS = ("device", "managed", "async", "arena")


@pytest.fixture(scope="module")
def recorded(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real run: examples/async, which allocates and frees in order of streams."""
    return recordings.record_example("async", built, tmp_path_factory.mktemp("memory") / "async")


@pytest.mark.native
def test_frees_are_matched_to_the_freeing_thread(built: Path, run_path: Path) -> None:
    """Though memory may be another thread's by the time that its free is recorded."""
    program = support.build_program("threads_one_pool", built)
    environment = support.recording(support.simulator_environment(), run_path, epoch="none")
    assert support.run([program], environment).status == 0
    run = tt.open(run_path)
    allocated = run.events[run.events["kind"] == "alloc"]
    freed = run.events[run.events["kind"] == "free"].set_index("seq")["thread"]
    assert sorted(allocated["id"]) == list(range(4 * 1000))
    owner = allocated.set_index("id")["thread"]
    gone = run.regions.set_index("region")["death_seq"]
    by_frees = gone[gone.isin(freed.index)]  # the others ended when their place was allocated again
    assert (by_frees.map(freed) == owner.reindex(by_frees.index)).all()


class History:
    """A run of allocations and frees by chance, and what was allocated after each call."""

    def __init__(self, path: Path, seed: int) -> None:
        random = np.random.default_rng(seed)
        w = Writer(path)
        self.alive: dict[int, tuple[str, int]] = {}
        self.after: dict[int, dict[int, tuple[str, int]]] = {0: {}}
        self.epochs: list[int] = []
        for region in range(60):
            kind = str(random.choice([*KINDS, "host", "ipc", "global"]))
            size = int(random.integers(1, 5000))
            w.born(region, bytes(size), kind=kind, captured=kind != "host")
            self.alive[region] = kind, size
            self.after[w.seq] = dict(self.alive)
            while self.alive and random.random() < 0.45:
                gone = int(random.choice(list(self.alive)))
                w.died(gone)
                del self.alive[gone]
                self.after[w.seq] = dict(self.alive)
            if random.random() < 0.2:
                w.epoch()
                self.epochs.append(w.seq)
        w.close()

    def at(self, seq: int) -> dict[int, int]:
        """Regions on the device and their sizes, after a call."""
        last = max(s for s in self.after if s <= seq)
        return {r: s for r, (k, s) in self.after[last].items() if k not in ("host", "ipc")}


@pytest.fixture(params=[1, 2, 3])
def history(request: pytest.FixtureRequest, run_path: Path) -> History:
    return History(run_path, request.param)


def test_timeline_has_every_allocation_and_free(history: History, run_path: Path) -> None:
    steps = timeline(tt.open(run_path).processes[0])
    for seq, _, region, change, size, count in steps.itertuples(index=False):
        alive = history.at(seq)
        assert (size, count) == (sum(alive.values()), len(alive))
        assert (region in alive) == (change > 0)
    changing = {s for s in history.after if s and history.at(s) != history.at(s - 1)}
    assert set(steps["seq"]) == changing
    assert steps["seq"].is_monotonic_increasing


def test_peak_and_end_are_reported(history: History, run_path: Path) -> None:
    (found,) = memory(tt.open(run_path))
    sizes = {seq: sum(history.at(seq).values()) for seq in history.after}
    peak = max(sizes.values())
    first = min(seq for seq, size in sizes.items() if size == peak)
    assert (found.peak.seq, found.peak.bytes) == (first, peak)
    assert found.peak.allocations == len(history.at(first))
    assert found.peak.time_ns == first * 1000
    assert found.peak.site == "cuMemAlloc_v2, thread 4711"
    later = [n for n, seq in enumerate(history.epochs) if seq >= first]
    assert found.peak.epoch == (later[0] if later else None)
    assert found.end.bytes == sizes[max(sizes)]
    assert found.at == found.peak
    assert dict(found.alive[["region", "bytes"]].values.tolist()) == history.at(first)
    assert found.alive["bytes"].is_monotonic_decreasing
    host = [sum(s for k, s in alive.values() if k == "host") for alive in history.after.values()]
    assert found.host_peak is not None and found.host_peak.bytes == max(host)


@pytest.mark.long
def test_memory_at_any_moment(history: History, run_path: Path) -> None:
    run = tt.open(run_path)
    for seq in range(0, max(history.after) + 3, 3):
        (found,) = memory(run, f"seq:{seq}")
        assert found.at.seq == seq
        assert dict(found.alive[["region", "bytes"]].values.tolist()) == history.at(seq)
        assert found.at.bytes == sum(history.at(seq).values())
    for epoch, seq in enumerate(history.epochs):
        (found,) = memory(run, f"epoch:{epoch}")
        assert (found.at.seq, found.at.epoch) == (seq, epoch)
        assert set(found.alive["region"]) == set(history.at(seq))
    (found,) = memory(run, "end")
    assert set(found.alive["region"]) == set(history.at(max(history.after)))


def test_allocation_sites_and_leaks(history: History, run_path: Path) -> None:
    (found,) = memory(tt.open(run_path))
    every = {r: ks for alive in history.after.values() for r, ks in alive.items()}
    for row in found.sites.to_dict("records"):
        sizes = [size for kind, size in every.values() if kind == row["kind"]]
        left = [size for kind, size in history.alive.values() if kind == row["kind"]]
        assert row["site"] == "cuMemAlloc_v2, thread 4711"
        assert (row["allocations"], row["bytes"]) == (len(sizes), sum(sizes))
        assert row["largest"] == max(sizes)
        assert (row["alive"], row["alive_bytes"]) == (len(left), sum(left))
        assert row["freed"] == len(sizes) - len(left)
    assert set(found.sites["kind"]) == {kind for kind, _ in every.values()}
    leaked = {kind for kind, _ in history.alive.values()} - {"global"}
    assert set(found.leaks["kind"]) == leaked
    assert found.leaks["bytes"].sum() == sum(
        size for kind, size in history.alive.values() if kind != "global"
    )
    on_device = [r for r, (kind, _) in every.items() if kind not in ("host", "ipc")]
    assert found.allocations == len(on_device)
    assert found.freed == len([r for r in on_device if r not in history.alive])
    assert found.allocated_bytes == sum(every[r][1] for r in on_device)


def test_address_ranges(run_path: Path) -> None:
    w = Writer(run_path)
    places = [(0, 100), (100, 50), (1000, 10), (200, 30), (5000, 1)]
    for region, (_, size) in enumerate(places):
        w.born(region, bytes(size), kind="async" if region == 4 else "device")
    w.born(9, bytes(77), kind="array", captured=False)
    for region, (base, _) in enumerate(places):
        edit(w.path / "regions.bin", region, base=base)
    reseal_records(w.path / "regions.bin")
    w.close()
    (found,) = memory(tt.open(run_path))
    rows = {row.pop("kind"): row for row in found.ranges.to_dict("records")}
    assert rows == {
        "device": {
            "device": 0,
            "regions": 4,
            "bytes": 190,
            "span": 1010,
            "ranges": 3,
            "largest_range": 150,
            "gap_bytes": 820,
            "largest_gap": 770,
            "used": 190 / 1010,
        },
        "async": {
            "device": 0,
            "regions": 1,
            "bytes": 1,
            "span": 1,
            "ranges": 1,
            "largest_range": 1,
            "gap_bytes": 0,
            "largest_gap": 0,
            "used": 1.0,
        },
    }
    assert found.peak.bytes == 191 + 77, "an array has no address, but takes memory"


def test_overlapping_ranges_are_merged(run_path: Path) -> None:
    """Of each kind by itself, and an inner one ends no range."""
    w = Writer(run_path)
    places = [(100, 100), (120, 20), (180, 70), (300, 50), (150, 10), (320, 10)]
    for region, (_, size) in enumerate(places):
        w.born(region, bytes(size), kind="managed" if region == 4 else "device")
    for region, (base, _) in enumerate(places):
        edit(w.path / "regions.bin", region, base=base)
    reseal_records(w.path / "regions.bin")
    w.close()
    (found,) = memory(tt.open(run_path))
    rows = found.ranges.set_index("kind")
    device = ("regions", "bytes", "span", "ranges", "largest_range", "gap_bytes", "largest_gap")
    assert rows.loc["device", list(device)].tolist() == [5, 250, 250, 2, 150, 50, 50]
    assert rows.loc["device", "used"] == 200 / 250
    assert rows.loc["managed", list(device)].tolist() == [1, 10, 10, 1, 10, 0, 0]


def test_moment_names_the_call_before(run_path: Path) -> None:
    w = Writer(run_path)
    w.epoch("sync")
    calls: dict[int, tuple[object, ...]] = dict.fromkeys((0, w.seq), (0, 0, 0, None, None))
    site = "cuMemAlloc_v2, thread 4711"
    w.born(0, bytes(100))
    calls[w.seq] = (w.seq * 1000, 100, 1, "cuMemAlloc_v2", site)
    w.born(7, bytes(1))
    w.died(7)
    calls[w.seq] = (w.seq * 1000, 100, 1, "cuMemFree_v2", None)
    w.born(1, bytes(500), kind="host", captured=False)
    calls[w.seq] = ((w.seq - 1) * 1000, 100, 1, None, None)  # the call before it counts
    w.born(2, bytes(30))
    calls[w.seq] = (w.seq * 1000, 130, 2, "cuMemAlloc_v2", site)
    w.epoch("sync", "full")
    cut = w.seq
    calls[w.seq] = ((w.seq - 1) * 1000, 130, 2, None, None)
    w.died(0)
    calls[w.seq] = (w.seq * 1000, 30, 1, "cuMemFree_v2", None)
    w.close()
    run = tt.open(run_path)
    for seq, expected in calls.items():
        (found,) = memory(run, f"seq:{seq}")
        at = found.at
        assert (at.time_ns, at.bytes, at.allocations, at.call, at.site) == expected, seq
        assert at.seq == seq
        assert at.epoch == (0 if seq <= 1 else 1 if seq <= cut else None)
    (found,) = memory(run)
    assert (found.peak.bytes, found.peak.epoch, found.peak.call) == (130, 1, "cuMemAlloc_v2")
    assert (found.end.bytes, found.end.epoch, found.end.call) == (30, None, "cuMemFree_v2")
    assert found.host_peak is not None
    assert (found.host_peak.bytes, found.host_peak.allocations, found.host_peak.site) == (
        *(500, 1),
        site,
    )
    assert found.alive["region"].tolist() == [0, 2], "the largest first"
    assert found.alive["bytes"].tolist() == [100, 30]
    assert found.sites["kind"].tolist() == ["host", "device"], "the most bytes first"


def test_memory_before_the_first_allocation(run_path: Path) -> None:
    w = Writer(run_path)
    w.event("launch", "cuLaunchKernel", id=0)
    w.epoch("sync")
    w.born(0, bytes(7))
    w.epoch("sync")
    w.close()
    (found,) = memory(tt.open(run_path), "seq:1")
    assert found.at == replace(found.at, seq=1, time_ns=0, epoch=0, bytes=0, allocations=0)
    assert (found.at.call, found.at.site, len(found.alive), len(found.ranges)) == (None, None, 0, 0)
    assert found.host_peak is None


def test_largest_named_memory_is_first(run_path: Path) -> None:
    w = Writer(run_path)
    w.born(0, bytes(5), label="small")
    w.born(1, bytes(500), label="large")
    w.epoch("sync")
    w.close()
    (found,) = memory(tt.open(run_path))
    assert found.alive["label"].tolist() == ["large", "small"]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("timed", [False, True])
def test_levels_are_the_maximum_of_each_part(seed: int, timed: bool) -> None:
    """Against a look at every moment."""
    random = np.random.default_rng(seed)
    count = int(random.integers(1, 40))
    changes = [int(n) for n in random.integers(-500, 1000, count)]
    times = np.sort(random.integers(0, 100, count)).tolist() if timed else [7] * count
    steps = steps_of(changes, times)
    borders, found, axis = levels(steps, 10)
    places = times if timed and times[-1] > times[0] else list(range(1, count + 1))
    assert axis == ("time_ns" if timed and times[-1] > times[0] else "seq")
    assert (borders[0], borders[-1]) == (places[0], max(places[-1], places[0] + 1))
    assert len(borders) == 11 and np.allclose(np.diff(borders), (borders[-1] - borders[0]) / 10)
    sizes = steps["bytes"].tolist()
    for part, (begin, end) in enumerate(pairwise(borders.tolist())):
        at = [i for i, place in enumerate(places) if place < begin]
        during = [sizes[at[-1]]] if at else [0]
        inside = [b for b, place in zip(sizes, places, strict=True) if begin <= place]
        during += (
            inside
            if part == 9
            else [b for b, place in zip(sizes, places, strict=True) if begin <= place < end]
        )
        assert found[part] == max(during)


def test_levels_of_an_empty_timeline() -> None:
    borders, found, axis = levels(steps_of([], []), 4)
    assert (borders.tolist(), found.tolist(), axis) == ([0, 0.25, 0.5, 0.75, 1], [0] * 4, "seq")


def test_level_of_a_single_call() -> None:
    steps = steps_of([8], [0])
    steps["seq"] = [5]
    borders, found, axis = levels(steps, 2)
    assert (borders.tolist(), found.tolist(), axis) == ([5, 5.5, 6], [8, 8], "seq")


def test_empty_region_has_no_range(run_path: Path) -> None:
    w = Writer(run_path)
    w.born(0, b"")
    w.born(1, b"xy", kind="managed")
    w.close()
    (found,) = memory(tt.open(run_path))
    assert found.ranges["kind"].tolist() == ["managed"]
    assert found.alive["region"].tolist() == [1, 0]


def test_regions_of_one_call_are_added(run_path: Path) -> None:
    w = Writer(run_path)
    for region in range(3):
        w.born(region, bytes(10), kind="global")
    w.born(3, bytes(1))
    path = w.path / "regions.bin"
    for region in range(3):
        edit(path, region, seq=2)
    reseal_records(path)
    w.close()
    (found,) = memory(tt.open(run_path), "seq:2")
    assert (found.at.bytes, found.at.allocations) == (30, 3)
    assert found.at.site == "cuMemAlloc_v2, thread 4711"
    assert len(found.leaks) == 1, "variables of modules are nobody's to free"


def test_absurd_sizes_give_a_one_line_error(cli: Cli, run_path: Path) -> None:
    w = Writer(run_path)
    for region in range(3):
        w.born(region, b"x")
        edit(w.path / "regions.bin", region, size=(1 << 63) - 1)
    reseal_records(w.path / "regions.bin")
    w.close()
    outcome = cli("memory", run_path)
    assert (outcome.status, outcome.stdout) == (2, "")
    path = w.path / "regions.bin"
    assert outcome.stderr == f"ttanalyze: {path}: the sizes of its regions are too large\n"


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--at", "noon"], "--at noon: expected peak, end, epoch:N or seq:N"),
        (["--at", "seq:"], "--at seq:: expected peak, end"),
        (["--at", "seq:-1"], "--at seq:-1: expected peak, end"),
        (["--at", "epoch:5"], "--at epoch:5: process 0 has epochs 0 to 4"),
        (["--process", "3"], "no process 3 (there are: 0)"),
        (["--top", "0"], "--top 0: expected at least 1"),
    ],
)
def test_errors_are_one_line(
    cli: Cli, small: Writer, run_path: Path, arguments: list[str], reason: str
) -> None:
    outcome = cli("memory", run_path, *arguments)
    assert (outcome.status, outcome.stdout) == (2, "")
    assert outcome.stderr.startswith("ttanalyze: ") and outcome.stderr.count("\n") == 1
    assert reason in outcome.stderr


def test_large_moment_is_the_end(small: Writer, run_path: Path) -> None:
    (found,) = memory(tt.open(run_path), f"seq:{10**30}")
    assert found.at.bytes == found.end.bytes


# ---- on a screen, and as JSON ----


def test_memory_of_a_recorded_program(cli: Cli, recorded: Path) -> None:
    outcome = cli("memory", recorded)
    assert (outcome.status, outcome.stderr) == (0, "")
    text = outcome.stdout
    for expected in (
        "peak   192.0 KiB in 3 allocations, from call ",
        "end    0 B in 0 allocations\n",
        "total  512.0 KiB in 8 allocations, 8 freed\n",
        "192.0 KiB ┤",
        "Allocated at the peak: 192.0 KiB in 3 regions\n",
        "cuMemAllocFromPoolAsync, thread ",
        "By allocation site\n",
    ):
        assert expected in text
    assert "Never freed" not in text
    (found,) = memory(tt.open(recorded))
    assert found.peak.bytes == 196608
    assert tt.open(recorded).regions["size"].sum() == found.allocated_bytes


def test_leaks_are_shown(cli: Cli, small: Writer, run_path: Path) -> None:
    text = cli("memory", run_path, "--at", "end").stdout
    assert "Allocated at the end: 192.0 KiB in 3 regions\n" in text
    leaks = text.partition("Never freed\n")[2].splitlines()
    assert [line.split()[3] for line in leaks[1:]] == ["host", "async", "device"]
    assert "host   page-locked: peak 64.0 KiB in 1 allocation" in text


def test_memory_as_json(cli: Cli, small: Writer, run_path: Path) -> None:
    (said,) = json.loads(cli("memory", run_path, "--json").stdout)
    (found,) = memory(tt.open(run_path))
    assert said["peak"]["bytes"] == found.peak.bytes == 3 * 65536 + 100 + 1 + 2 * 65536
    assert said["peak"]["epoch"] == 1 and said["host_peak"]["bytes"] == 65536
    assert [row["region"] for row in said["alive"]] == [0, 7, 1]
    assert said["alive"][0]["label"] == "weights" and said["alive"][1]["label"] is None
    assert max(said["timeline"]["bytes"]) == found.peak.bytes
    assert len(said["timeline"]["time_ns"]) == len(said["timeline"]["bytes"])
    assert said["freed"] == 1 and len(said["leaks"]) == 3
    (short,) = json.loads(cli("memory", run_path, "--json", "--top", "1").stdout)
    assert len(short["alive"]) == len(short["sites"]) == 1


def test_memory_of_several_processes(cli: Cli, run_path: Path) -> None:
    for index in range(2):
        w = Writer(run_path, index)
        w.born(0, bytes(1000 * (index + 1)))
        w.close(argv=["./app", f"--rank={index}\x1b[2J"])
    text = cli("memory", run_path).stdout
    assert "process 0  ./app" in text and "process 1  ./app" in text
    assert "\x1b" not in text
    assert [p.peak.bytes for p in memory(tt.open(run_path))] == [1000, 2000]
    assert "process 0" not in cli("memory", run_path, "--process", "1").stdout


def test_empty_runs(cli: Cli, tmp_path: Path) -> None:
    Writer(tmp_path / "empty").close()
    outcome = cli("memory", tmp_path / "empty")
    assert outcome.status == 0
    none = "0 B in 0 allocations"
    assert outcome.stdout == f"peak   {none}\nend    {none}\ntotal  {none}, 0 freed\n"
    (said,) = json.loads(cli("memory", tmp_path / "empty", "--json").stdout)
    assert said["peak"]["bytes"] == 0 and said["alive"] == []
    (tmp_path / "none").mkdir()
    info = '{"format":"ttanalyze-run","version":1,"created_ns":0,"processes":[]}'
    (tmp_path / "none" / "run.json").write_text(info)
    assert cli("memory", tmp_path / "none").stdout == "no process was recorded\n"


def test_progress_is_reported(history: History, run_path: Path) -> None:
    run = tt.open(run_path)
    seen: list[tuple[int, int]] = []
    memory(run, progress=lambda done, of: seen.append((done, of)))
    assert seen[-1] == (len(run.events), len(run.events))


def test_no_threads_without_recorded_calls(cli: Cli, small: Writer, run_path: Path) -> None:
    path = small.path / "events.bin"
    path.write_bytes(path.read_bytes()[:HEADER_SIZE])
    (found,) = memory(tt.open(run_path))
    assert set(found.sites["site"]) == {"cuMemAlloc_v2"}
    assert cli("memory", run_path).status == 0


def steps_of(changes: list[int], times: list[int]) -> pd.DataFrame:
    made: dict[str, Any] = {"seq": range(1, len(changes) + 1), "time_ns": times, "change": changes}
    made["bytes"] = np.cumsum(changes)
    steps: pd.DataFrame = pd.DataFrame(made)
    return steps


def test_plot_shows_every_peak() -> None:
    changes = [100] + [0] * 500 + [900, -900] + [0] * 500 + [-100]
    lines = plot(steps_of(changes, list(range(len(changes)))), 60).splitlines()
    assert max(map(len, lines)) <= 60
    assert lines[0].startswith(" 1000 B ┤") or lines[0].startswith("1000 B ┤")
    assert lines[0].count("█") == 1, "a short peak is a column"
    assert lines[-1].split() == ["0", "s", "1", "µs"]
    flat = plot(steps_of([5], [0]), 60).splitlines()
    assert flat[-1].split() == ["call", "1", "call", "2"]
    assert all("█" in line for line in flat[:-1])
    nothing = plot(steps_of([0, 0], [0, 0]), 12)
    assert "█" not in nothing


@pytest.mark.native
def test_launches_find_allocations_among_many_that_came_and_went(
    built: Path, run_path: Path
) -> None:
    """Each launch touches the one allocation that it is given, wherever others were before."""
    program = support.build_program("alloc_churn", built)
    options = {"epoch": "sync", "regions": "touched", "fill": "zero"}
    done = support.run(
        [program], support.recording(support.simulator_environment(), run_path, **options)
    )
    live, total = map(int, re.findall(r"\d+", done.stdout))
    run = tt.open(run_path)
    last = run.epochs["epoch"].max()
    regions = run.regions[run.regions["kind"] == "device"]
    alive = regions.loc[regions["death_seq"].isna(), "region"]
    assert len(alive) == live
    values = [int(run.read(last, int(one), dtype="<u4", stop=4)[0]) for one in alive]
    assert sum(values) == total
    assert len(set(values) - {0}) == sum(value > 0 for value in values)
