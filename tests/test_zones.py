"""Zones around allocations: what a program writes out of bounds, and that it notices nothing."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ttanalyze as tt
from tests import support
from tests.check import corpus
from tests.recordings import check_run, compare
from ttanalyze.core import zones
from ttanalyze.format import layout
from ttanalyze.verbs.check import bounds, session
from ttanalyze.verbs.check import check as run_checks
from ttanalyze.verbs.check.findings import Outcome
from ttanalyze.verbs.check.session import Settings
from ttanalyze.verbs.info import info
from ttanalyze.verbs.info.show import info_text

pytestmark = pytest.mark.native
SIM = support.simulator_environment()
PROGRAMS = [
    *("alloc_many", "alloc_neighbours", "alloc_pitch", "alloc_reuse", "async_alloc", "async_reuse"),
    *("free_while_working", "graph_capture", "memory_info", "out_of_memory", "pools"),
    *("managed_memory", "recorder_no_peer_access", "threads_allocate", "threads_one_pool"),
    "async_stream_only",
    "vmm_remap",
]


@pytest.fixture(scope="module")
def faults(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return corpus.build(tmp_path_factory.mktemp("faults"))


def changed(program: Path, fault: str, run: Path, **options: str) -> list[zones.ChangedZone]:
    """The zones that a planted fault changes."""
    done = support.run([program, fault], support.recording(SIM, run, zones="256", **options))
    assert done.status == 0, done.stderr
    return zones.changed_zones(tt.open(run).process(0))


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_does_the_same_between_zones(name: str, built: Path, tmp_path: Path) -> None:
    environment = SIM | {"TT_SIM_DEVICES": "2"}
    command = [support.build_program(name, built)]
    bare = support.run(command, environment)
    recorded = support.run(command, support.recording(environment, tmp_path / "run", zones="256"))
    compare(name, bare, recorded)
    for process in tt.open(tmp_path / "run").processes:
        assert zones.changed_zones(process) == []
    check_run(name, tmp_path / "run")


@pytest.mark.parametrize(
    ("fault", "side", "first", "count"),
    [
        ("end_4", zones.END, 0, 4),
        ("end_12", zones.END, 0, 12),
        ("start_4", zones.START, 508, 4),
        ("end_200", zones.END, 0, 200),
        ("set_too_long", zones.END, 0, 8),
        ("copy_too_long", zones.END, 0, 16),
        ("upload_too_long", zones.END, 0, 20),
        ("bad_index", zones.START, 508, 4),
        ("pool_end_4", zones.END, 0, 4),
        ("graph_end_4", zones.END, 0, 4),
    ],
)
def test_a_write_into_a_zone_has_its_bytes(
    fault: str, side: str, first: int, count: int, faults: Path, tmp_path: Path
) -> None:
    (zone,) = changed(faults, fault, tmp_path / "run")
    assert (zone.side, zone.first) == (side, first)
    assert zone.count is not None and count - 2 <= zone.count <= count  # some may be as before
    assert zone.allocation is not None


@pytest.mark.parametrize("fault", ["write_after_free", "pool_write_after_free"])
def test_freed_memory_is_a_zone(fault: str, faults: Path, tmp_path: Path) -> None:
    (zone,) = changed(faults, fault, tmp_path / "run")
    assert zone.side == zones.FREED
    assert zone.allocation is not None


def test_digests_alone_show_a_changed_zone(faults: Path, tmp_path: Path) -> None:
    (zone,) = changed(faults, "end_4", tmp_path / "run", contents="none")
    assert (zone.side, zone.first, zone.count) == (zones.END, None, None)


def test_info_says_in_a_line_that_zones_changed(faults: Path, tmp_path: Path) -> None:
    (zone,) = changed(faults, "end_4", tmp_path / "bad")
    told = info_text(info(tt.open(tmp_path / "bad")))
    assert f"1 zone written to (epoch {zone.epoch}); `ttanalyze check --only bounds`" in told
    good = support.recording(SIM, tmp_path / "good", zones="256")
    assert support.run([faults, "end_4", "--fixed"], good).status == 0
    summary = info(tt.open(tmp_path / "good"))
    assert "zones    none changed; around " in info_text(summary)
    (process,) = summary.processes
    assert process.zones and process.zones["allocations"] == process.zones["of_allocations"] > 0


def test_check_names_the_allocations_on_both_sides(faults: Path, tmp_path: Path) -> None:
    options = ["--sim", "--quick", "--quiet", "--only", "bounds", "-o", str(tmp_path / "out")]
    done = support.ttanalyze("check", *options, "--", faults, "end_4", environment=SIM)
    assert done.status == 1, done.stderr
    assert re.search(
        r"past the end of region \d+ \(.*, allocated at faults\.c:\d+ in raw\)", done.stdout
    )
    assert re.search(r"next to +region \d+ \(.*, allocated at faults\.c:\d+ in raw\)", done.stdout)


def findings(program: Path, fault: str, out: Path, *options: str) -> list[dict[str, Any]]:
    """What the check says of a planted fault."""
    options = ("--sim", "--quiet", "--json", "--only", "bounds", "-o", str(out), *options)
    done = support.ttanalyze("check", *options, "--", program, fault, environment=SIM)
    assert done.status == 1, done.stderr
    return list(json.loads(done.stdout)["outcomes"][0]["findings"])


@pytest.mark.parametrize(
    ("fault", "call"), [("set_too_long", "cuMemsetD8_v2"), ("copy_too_long", "cuMemcpyDtoD_v2")]
)
def test_check_knows_the_bytes_of_copies_and_sets(
    fault: str, call: str, faults: Path, check: Callable[..., Outcome]
) -> None:
    outcome = check(faults, fault, quick=True)
    (found,) = outcome.findings
    assert found.certainty == "confirmed" and found.call is not None
    assert (found.call.call, outcome.bytes, outcome.launches) == (call, 1, None)


def test_check_says_how_far_a_write_is_from_the_allocation(
    faults: Path, check: Callable[..., Outcome]
) -> None:
    (found,) = check(faults, "start_4").findings
    assert " directly before the start of region " in found.summary


@pytest.fixture
def check(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Outcome]:
    """The check in this process. No epoch is skipped, however slow the machine is."""
    monkeypatch.setitem(session.BUDGET, "max_overhead", None)
    monkeypatch.setitem(session.BUDGET, "overhead_allowance", None)
    for name, value in support.sanitizer_runtimes().items():
        monkeypatch.setenv(name, value)

    def run(*command: str | Path, quick: bool = False) -> Outcome:
        settings = Settings(tuple(map(str, command)), sim=True, quick=quick)
        (outcome,) = run_checks(settings, tmp_path / "out", ["bounds"]).outcomes
        return outcome

    return run


def lines_of(found: list[dict[str, Any]], fault: str) -> list[bool]:
    """Whether each finding names a line of the fault."""
    (case,) = (case for case in corpus.cases() if case.name == fault)
    return [any(place in one["call"]["line"] for place in case.places) for one in found]


def test_each_change_of_a_zone_is_seen(faults: Path, tmp_path: Path) -> None:
    """Two launches in each of six rounds, with an epoch after each."""
    seen = changed(faults, "end_by_two", tmp_path / "run", epoch="launch")
    assert len({zone.region for zone in seen}) == 1
    assert (seen[0].first, seen[0].count, len(seen)) == (0, 4, 12)
    assert [zone.before for zone in seen[1:]] == [zone.epoch for zone in seen[:-1]]
    (process,) = info(tt.open(tmp_path / "run")).processes
    assert process.zones
    assert (process.zones["changed"], process.zones["epochs"]) == (1, [seen[0].epoch])


def test_two_culprits_at_one_zone_are_two_findings(faults: Path, tmp_path: Path) -> None:
    found = findings(faults, "end_by_two", tmp_path / "out")
    assert [one["certainty"] for one in found] == ["confirmed", "confirmed"]
    assert [one["details"]["times"] for one in found] == [6, 6]
    assert len({one["call"]["line"] for one in found}) == 2
    assert lines_of(found, "end_by_two") == [True, True]


def test_unexamined_writes_are_added_to_a_known_writer(
    faults: Path, check: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the first of six rounds is looked at closely."""
    monkeypatch.setattr(bounds, "WINDOWS", 1)
    monkeypatch.setattr(bounds, "TOGETHER", 2)
    outcome = check(faults, "end_by_two")
    assert [one.certainty for one in outcome.findings] == ["confirmed", "confirmed"]
    assert sum(one.details["times"] for one in outcome.findings) == 2 + 5


def test_near_writes_are_examined_in_one_recording(
    faults: Path, check: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three recordings of two rounds each."""
    monkeypatch.setattr(bounds, "TOGETHER", 4)
    outcome = check(faults, "end_by_two")
    assert [one.details["times"] for one in outcome.findings] == [6, 6]


def test_progress_counts_the_recordings_that_look_closer() -> None:
    """And one that traces the instructions of the culprit."""
    assert bounds.recordings(Settings(("true",))).more == bounds.WINDOWS + 2
    assert bounds.recordings(Settings(("true",), quick=True)).more == 0


def test_clean_program_is_recorded_without_callers(
    faults: Path, check: Callable[..., Outcome], tmp_path: Path
) -> None:
    """That costs it less; with a finding, there is a second recording, which has them."""
    assert check(faults, "end_4", "--fixed").status == "clean"
    columns = tt.open(tmp_path / "out" / "zones").process(0).event_columns("stack", "params_size")
    assert not columns["stack"].any() and not columns["params_size"].any()
    assert not (tmp_path / "out" / "zones-callers").exists()


def test_write_that_does_not_come_again_is_still_found(
    faults: Path, check: Callable[..., Outcome], tmp_path: Path
) -> None:
    marker = tmp_path / "marker"
    once = f"[ -e {marker} ] && more=--fixed; touch {marker}; exec {faults} end_4 $more"
    outcome = check("sh", "-c", once)
    (found,) = outcome.findings
    assert outcome.status == "found" and " past the end of " in found.summary
    assert found.call is None and found.certainty == "possible"


def test_number_of_changes_that_are_looked_at_is_limited(
    faults: Path, check: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "MOST", 4)
    (found,) = check(faults, "end_by_two", quick=True).findings
    assert "; at least 4 epochs show such a write." in found.summary
    assert found.details["times"] == 4


def test_a_node_that_ran_beside_another_is_confirmed(faults: Path, tmp_path: Path) -> None:
    """Two branches of a graph: the epoch after one of them does not wait for the other, but a trace
    has the store.
    """
    (found,) = findings(faults, "graph_branch_end_96", tmp_path / "out")
    assert found["certainty"] == "confirmed" and "instruction" in found["details"]
    assert lines_of([found], "graph_branch_end_96") == [True]


def test_graph_without_epochs_inside_is_named_as_a_whole(faults: Path, tmp_path: Path) -> None:
    """Two of its nodes are given the allocation."""
    (found,) = findings(faults, "graph_end_4", tmp_path / "out", "--quick")
    assert (found["call"]["kind"], found["certainty"]) == ("graph-launch", "possible")


def test_memory_of_a_stream_is_used_again_without_a_wait(built: Path, tmp_path: Path) -> None:
    """Freed memory is held back until 256 MiB are newer, not until the host waits."""
    program = support.build_program("async_stream_only", built)
    options = {"zones": "256", "contents": "none", "fill": "keep"}
    done = support.run([program, "x"], support.recording(SIM, tmp_path / "run", **options))
    assert done.stdout == "value 24\n"
    process = tt.open(tmp_path / "run").process(0)
    given = process.regions.birth[process.regions.birth["kind"] == zones.ARENA]
    places = len(set(given["base"].tolist()))
    assert len(given) == 24 and 7 <= places <= 8
    around = process.regions.birth["seq"][process.regions.birth["kind"] == zones.ZONE]
    assert np.isin(around, given["seq"]).sum() == 2 * places, "zones of a place go on"
    (zone,) = zones.changed_zones(process)
    assert zone.side == zones.END and zone.allocation == given["id"][-1]


def test_freed_memory_that_is_not_held_back_keeps_its_zones(built: Path, tmp_path: Path) -> None:
    """The next allocation of its size goes on with them: a step costs no fill and few records."""
    size = 80_000_000  # too much to be held back
    steps = [one for slot in range(8) for one in (f"a:{size}", f"f:{slot}", "s")]
    program = support.build_program("recorder_out_of_bounds", built)
    steps += [f"a:{size}", f"m:8:{size}:4:7", "s"]
    options = {"zones": "256", "contents": "none", "fill": "keep"}
    done = support.run([program, *steps], support.recording(SIM, tmp_path / "run", **options))
    assert done.status == 0, done.stderr
    process = tt.open(tmp_path / "run").process(0)
    given = process.regions.birth[process.regions.birth["kind"] == zones.ARENA]
    assert len(given) == 9 and len(set(given["base"].tolist())) == 1
    assert np.count_nonzero(process.regions.birth["kind"] == zones.ZONE) == 2
    (zone,) = zones.changed_zones(process)
    assert zone.side == zones.END and zone.allocation == given["id"][-1]


@pytest.mark.parametrize("size", [80_000_000, 512])
@pytest.mark.parametrize("fill", ["keep", "zero"])
def test_epochs_read_zones_alone(size: int, fill: str, built: Path, tmp_path: Path) -> None:
    """Then memory that is allocated again has the same region, until it is held back."""
    steps = [one for slot in range(8) for one in (f"a:{size}", f"f:{slot}", "s")]
    program = support.build_program("recorder_out_of_bounds", built)
    steps += [f"a:{size}", f"m:8:{size}:4:7", "s", "a:77"]
    options = {"zones": "256", "contents": "none", "fill": fill, "regions": "zones"}
    done = support.run([program, *steps], support.recording(SIM, tmp_path / "run", **options))
    assert done.status == 0, done.stderr
    process = tt.open(tmp_path / "run").process(0)
    regions = process.regions
    arena, zone_rows = (regions.birth["kind"] == kind for kind in (zones.ARENA, zones.ZONE))
    captured = np.unique(process.digests(0, len(process.epochs))["region"])
    assert len(captured) and set(captured) <= set(regions.id[zone_rows])
    held = size == 512
    count = 2 if fill == "keep" and not held else 10
    assert len(zones.allocations(process)) == 10
    assert len(set(zones.allocations(process).tolist())) == arena.sum() == count
    assert zones.coverage(process)[:2] == (10, 10)
    died = regions.died[arena] != layout.NO_EPOCH
    assert died.sum() == arena.sum() - 2, "what is held back or placed again has ended"
    (zone,) = zones.changed_zones(process)
    assert zone.side == zones.END
    assert zone.allocation == regions.id[zones.allocations(process)[8]]


def test_only_zones_needs_zones(tmp_path: Path) -> None:
    out = ("-o", tmp_path / "run", "--regions", "zones")
    done = support.ttanalyze("record", *out, "--", "true")
    assert done.status and "--regions zones needs --zones" in done.stderr
    done = support.ttanalyze("record", *out[:3], "touched", "--zones", "256", "--", "true")
    assert done.status and "--zones needs another --regions than touched" in done.stderr


@pytest.mark.parametrize("epoch", ["none", "sync"])
def test_waits_for_a_stream_are_enough_to_use_memory_again(
    epoch: str, built: Path, tmp_path: Path
) -> None:
    """No wait for all work comes, which would end all captures that may read old zones."""
    rounds, each = (8, 1000) if epoch == "none" else (60, 60)
    steps = []
    for number in range(rounds):
        steps += [one for i in range(each) for one in ("A:512", f"F:{number * each + i}")]
        steps.append("S")
    last = rounds * each
    steps += ["A:512", f"m:{last}:512:4:7", "S"]
    program = support.build_program("recorder_out_of_bounds", built)
    options = {"zones": "256", "contents": "none", "fill": "keep", "regions": "zones"}
    recording = support.recording(SIM, tmp_path / "run", epoch=epoch, **options)
    done = support.run([program, *steps], recording)
    assert done.status == 0, done.stderr
    process = tt.open(tmp_path / "run").process(0)
    arena = process.regions.birth[process.regions.birth["kind"] == zones.ARENA]
    held = 1024 if epoch == "none" else 256
    assert len(zones.allocations(process)) == last + 1
    assert held < len(set(arena["base"].tolist())) < 4 * 1024
    if epoch == "sync":
        (zone,) = zones.changed_zones(process)
        assert (zone.side, zone.count) == (zones.END, None)


def test_a_program_that_frees_much_has_less_held_back(built: Path, tmp_path: Path) -> None:
    """So that what it takes stays a share of what the program's calls take."""
    rounds, each, always, calls = 21, 1000, 16384, 128
    steps = []
    for number in range(rounds):
        steps += [one for i in range(each) for one in ("A:512", f"F:{number * each + i}")]
        steps.append("s")
    program = support.build_program("recorder_out_of_bounds", built)
    options = {"zones": "256", "contents": "none", "fill": "keep", "epoch": "none"}
    done = support.run([program, *steps], support.recording(SIM, tmp_path / "run", **options))
    assert done.status == 0, done.stderr
    process = tt.open(tmp_path / "run").process(0)
    birth = process.regions.birth
    given = birth[birth["kind"] == zones.ARENA]
    held = np.isin(birth["base"][birth["kind"] == zones.ZONE], given["base"]).sum()
    assert len(given) == rounds * each
    assert always < held <= always + len(process.events) / calls + 1


def test_info_has_no_such_line_without_zones(faults: Path, tmp_path: Path) -> None:
    plain = support.recording(SIM, tmp_path / "run")
    assert support.run([faults, "end_4", "--fixed"], plain).status == 0
    assert info(tt.open(tmp_path / "run")).processes[0].zones is None


def test_the_pattern_is_the_same_at_any_offset() -> None:
    whole = zones.pattern(0x2000_0020_0000, 4096)
    for offset, size in ((0, 1), (1, 7), (3, 8), (8, 16), (13, 1000), (4095, 1)):
        part = zones.pattern(0x2000_0020_0000 + offset, size)
        assert np.array_equal(part, whole[offset : offset + size])


@pytest.mark.parametrize(("words", "tails"), [(1001, 1), (1000, 0)])
def test_tail_of_managed_memory_is_watched(
    words: int,
    tails: int,
    built: Path,
    check: Callable[..., Outcome],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A kernel writes so many words to managed memory of 1,000; another allocation has zones."""
    monkeypatch.setenv("TT_SIM_BOUNDS", "lenient")
    steps = ["M:4000", "a:4000", "s", f"w:0:0:{words}:7", "s", "f:0", "M:8192", "s"]
    outcome = check(support.build_program("recorder_out_of_bounds", built), *steps)
    assert "of 1 other the rest of the last 256 bytes is watched" in outcome.reason
    assert outcome.status == ("found" if tails else "clean")
    assert [one.certainty for one in outcome.findings] == ["possible"] * tails
    for one in outcome.findings:
        assert one.memory is not None and one.memory.region == 0
        assert (one.memory.first, one.details["first"]) == (4000, 0)
        assert one.call is not None and one.call.kind == "launch"


@pytest.mark.long
def test_nearly_all_seeded_writes_of_a_program_are_found(built: Path, tmp_path: Path) -> None:
    """A word is written before or behind an allocation, or into a freed one, of random sizes."""
    rng, steps, wanted = random.Random(3), [], []
    sizes = [rng.randrange(4, 5000) for _ in range(400)]
    steps += [f"a:{size}" for size in sizes]
    freed = range(0, len(sizes), 4)
    steps += [*(f"f:{slot}" for slot in freed), "s"]
    for slot, size in enumerate(sizes):
        if slot in freed:
            at = rng.randrange(size - 3)
        else:
            at = rng.choice([-rng.randrange(4, 257), size + rng.randrange(253)])
        steps.append(f"m:{slot}:{at}:4:{rng.randrange(256)}")
        wanted.append((slot, at))
    program = support.build_program("recorder_out_of_bounds", built)
    done = support.run([program, *steps], support.recording(SIM, tmp_path / "run", zones="256"))
    assert done.status == 0, done.stderr
    process = tt.open(tmp_path / "run").process(0)
    arena = process.regions.id[process.regions.birth["kind"] == zones.ARENA].tolist()
    ids, bases = process.regions.id.tolist(), process.regions.birth["base"].tolist()
    base = dict(zip(ids, bases, strict=True))
    found = {}
    for zone in zones.changed_zones(process):
        if zone.allocation is not None and zone.first is not None:
            at = base[zone.region] + zone.first - base[zone.allocation]
            found[arena.index(zone.allocation)] = at
    hits = [slot in found and at <= found[slot] < at + 4 for slot, at in wanted]
    assert sum(hits) >= 0.99 * len(wanted)


@pytest.mark.long
def test_nearly_all_seeded_writes_into_zones_are_found() -> None:
    """A byte of the pattern is overwritten by a value that it does not have already: 255 of 256."""
    rng = random.Random(7)
    pattern = zones.pattern(0x2000_0020_0000, 1 << 20)
    found = 0
    for _ in range(10_000):
        at, size = rng.randrange(1 << 20), rng.choice([1, 2, 4, 8, 12])
        data = np.frombuffer(rng.randbytes(size), "u1")
        found += not np.array_equal(pattern[at : at + size], data[: (1 << 20) - at])
    assert found >= 9900
