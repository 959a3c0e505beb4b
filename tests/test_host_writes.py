"""Writes of the host to page-locked memory that an asynchronous copy still has to read."""

from __future__ import annotations

import json
import random
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import ttanalyze as tt
from tests import support
from tests.check import corpus
from tests.device_order import HOST_DST, HOST_SRC, Program
from tests.rundir import Writer
from tests.support import Cli
from ttanalyze.core.host_writes import HOST_LANE
from ttanalyze.core.reach import ATOMIC, READS, WRITES
from ttanalyze.core.unordered import Unordered, find_unordered
from ttanalyze.format.event_kinds import KIND

WAITS = ["stream-sync", "context-sync", "event-sync", "event-query", "stream-query"]
WAITS += ["stream-in-between"]
OTHERS = ["download", "kernel", "function", "function-tells", "value-tells", "wait-for-value"]
TOO_EARLY = ["nothing", "other-stream-sync", "event-before", "registered", "large", "loop"]
COPIED = 65536  # bytes: a block


def recorded(built: Path, path: Path, how: str, **options: str) -> tuple[pd.DataFrame, Any]:
    """The changes that the recorder saw, and the process."""
    program = support.build_program("recorder_host_writes", built)
    given = {"params": "1", "host_writes": "1", "contents": "none"} | options
    environment = support.recording(support.simulator_environment(), path, **given)
    outcome = support.run([program, how], environment)
    assert (outcome.stdout, outcome.status) == ("done\n", 0), outcome
    run = tt.open(path)
    return run.events.query("kind == 'source-change'"), run.processes[0]


@pytest.mark.native
@pytest.mark.parametrize("how", TOO_EARLY)
def test_a_write_before_the_copy_is_complete_is_found(
    built: Path, tmp_path: Path, how: str
) -> None:
    changes, process = recorded(built, tmp_path / "run", how)
    (found,) = find_unordered(process)
    assert found.sure and process.call(found.first.call.event.call) == "cuMemcpyHtoDAsync_v2"
    assert found.times == len(changes) and set(changes["thread"]) == {found.first.call.event.thread}
    assert len(changes) == (99 if how == "loop" else 1)


@pytest.mark.native
@pytest.mark.parametrize("how", [*WAITS, "pageable", "gone", "threads", "at-exit"])
def test_a_write_after_a_wait_is_not_found(built: Path, tmp_path: Path, how: str) -> None:
    _, process = recorded(built, tmp_path / "run", how, epoch="none")
    assert not find_unordered(process, every=True)


@pytest.mark.native
@pytest.mark.parametrize("how", OTHERS)
def test_what_others_may_have_written_or_told_is_a_guess(
    built: Path, tmp_path: Path, how: str
) -> None:
    changes, process = recorded(built, tmp_path / "run", how)
    assert not find_unordered(process)
    found = find_unordered(process, every=True)
    assert len(found) == len(changes) == 1 and not found[0].sure


@pytest.mark.native
def test_without_the_option_nothing_is_watched(built: Path, tmp_path: Path) -> None:
    changes, _ = recorded(built, tmp_path / "run", "nothing", host_writes="0")
    assert changes.empty


@pytest.mark.native
def test_memory_that_may_not_be_read_is_named(built: Path, tmp_path: Path) -> None:
    changes, _ = recorded(built, tmp_path / "run", "forbidden")
    (warning,) = tt.open(tmp_path / "run").warnings
    assert changes.empty and "registered is not watched" in warning
    assert "Operation not permitted" in warning


# ---- random programs and a model ----

HOST, DEVICE, SIZE, REGIONS = 1 << 46, 1 << 40, 32, 3
KERNELS: list[dict[int, int] | None] = [{0: READS}, {0: WRITES}, {0: ATOMIC}, None]


@dataclass
class Made:
    """What the model says. wanted: by seq of the change, the seq of the copy, and whether the host
    surely wrote too early.
    """

    wanted: dict[int, tuple[int, bool]] = field(default_factory=dict)
    copies: dict[int, tuple[int, int, set[int]]] = field(default_factory=dict)
    writers: list[tuple[int, range]] = field(default_factory=list)  # nodes, and what they write
    kernels: list[int] = field(default_factory=list)
    functions: list[int] = field(default_factory=list)
    either: set[int] = field(default_factory=set)  # copies after waits for values that are over


def random_program(path: Path, seed: int) -> Made:
    choose, w = random.Random(seed), Writer(path)
    program, made = Program(w, choose), Made()
    for number in range(REGIONS):
        w.born(number, bytes(SIZE), base=HOST + 64 * number, kind="host", captured=False)
    w.born(REGIONS, bytes(SIZE), base=DEVICE)
    kinds = ("upload", "download", "kernel", "function", "change", "order")
    for _ in range(choose.randint(20, 60)):
        kind = choose.choices(kinds, (6, 2, 2, 0.2, 5, 7))[0]
        stack, at = {"stack": w.seq + 1}, HOST + 64 * choose.randrange(REGIONS)
        if kind == "upload":
            known = program.device.all_before(program.device.host)
            given = {"dst": DEVICE, "src": at, "bytes": SIZE, "flags": HOST_SRC}
            seq = program.work("copy", **given, **stack)
            made.copies[seq] = program.nodes[seq], at, known
        elif kind == "download":
            to = at + choose.choice((0, 8, 16))
            seq = program.work("copy", dst=to, src=DEVICE, bytes=8, flags=HOST_DST)
            made.writers.append((program.nodes[seq], range(to, to + 8)))
        elif kind == "kernel":
            function, pointer = choose.randrange(len(KERNELS)), at + choose.choice((0, 8))
            raw = struct.pack("<Q", pointer)
            seq = program.work("launch", id=function, params=w.piece(raw), params_size=len(raw))
            if KERNELS[function] != {0: READS}:
                made.writers.append((program.nodes[seq], range(pointer, at + SIZE)))
                made.kernels.append(program.nodes[seq])
        elif kind == "function":
            made.functions.append(program.nodes[program.work("launch-host")])
        elif kind == "change" and made.copies:
            change(made, program, choose)
        elif kind == "order":
            program.orders()
    w.close()
    return made


def change(made: Made, program: Program, choose: random.Random) -> None:
    """The memory of a copy changes."""
    device, copy = program.device, choose.choice(list(made.copies))
    node, src, known = made.copies[copy]
    at = src + choose.choice((0, 4, 24))
    seq = program.w.event("source-change", src=copy, dst=at, bytes=8, stream=0)
    if node in device.all_before(device.host):
        return
    pending = {one for one in range(len(device.before)) if one not in known}
    by_device = any(
        one in pending and max(where.start, at) < min(where.stop, at + 8)
        for one, where in made.writers
    )
    told = any(node in device.all_before(kernel) for kernel in made.kernels)
    waited = device.all_before(node) & program.waits
    if waited and not waited & pending:
        made.either.add(copy)
    guess = by_device or told or waited or any(one in pending for one in made.functions)
    made.wanted[seq] = copy, not guess


def agrees(path: Path, seed: int) -> tuple[int, int]:
    made = random_program(path, seed)
    process = tt.open(path).processes[0]
    found = find_unordered(process, uses=KERNELS.__getitem__, every=True)
    pairs = [
        pair
        for pair in found
        if pair.second.call.event.kind == KIND["source-change"]
        and pair.first.call.event.seq not in made.either
    ]
    got = {(p.first.call.event.seq, p.sure): p for p in pairs}
    wanted = {one for one in made.wanted.values() if one[0] not in made.either}
    assert got.keys() == wanted, (seed, got.keys() ^ wanted)
    for pair in pairs:  # changes of one copy are one finding
        first, times = pair.second.call.event.seq, pair.times
        same = [seq for seq, one in made.wanted.items() if one == made.wanted[first]]
        assert (min(same), len(same)) == (first, times), seed
    sure = find_unordered(process, uses=KERNELS.__getitem__)
    shown = {p.first.call.event.seq for p in sure if p.second.call.lane == HOST_LANE}
    assert shown - made.either == {one for one, surely in wanted if surely}, seed
    return len(shown), len(wanted)


def test_findings_equal_a_model(tmp_path: Path) -> None:
    counts = [agrees(tmp_path / str(seed), seed) for seed in range(60)]
    sure, every = (sum(numbers) for numbers in zip(*counts, strict=True))
    assert sure > 50 and every - sure > 50


@pytest.mark.long
def test_findings_of_many_programs_equal_a_model(tmp_path: Path) -> None:
    for seed in range(1000, 2500):
        agrees(tmp_path / str(seed), seed)


@pytest.fixture
def w(run_path: Path) -> Writer:
    """Memory of the host, and of a device."""
    writer = Writer(run_path)
    writer.born(0, bytes(SIZE), base=HOST, kind="host", captured=False)
    writer.born(1, bytes(SIZE), base=DEVICE)
    return writer


def found_in(w: Writer, every: bool = False) -> list[Unordered]:
    w.close()
    return find_unordered(tt.open(w.run).processes[0], every=every)


def test_what_the_host_knew_to_be_over_did_not_write(w: Writer) -> None:
    for stream in (16, 17):
        w.event("stream-create", stream=stream, bytes=1)
    w.event("copy", dst=HOST, src=DEVICE, bytes=8, flags=HOST_DST, stream=16)
    w.event("set", dst=DEVICE, bytes=8, stream=16)
    w.event("launch-host", stream=17)
    w.event("sync", stream=16)
    w.event("sync", stream=17)
    w.event("set", dst=DEVICE, bytes=8, stream=16)
    copy = w.event("copy", dst=DEVICE, src=HOST, bytes=8, flags=HOST_SRC, stream=17)
    w.event("source-change", src=copy, dst=HOST, bytes=8, stream=0)
    pairs = [pair for pair in found_in(w) if pair.second.call.lane == HOST_LANE]
    assert [pair.sure for pair in pairs] == [True]


@pytest.mark.parametrize("how", ["unknown copy", "before", "behind", "far", "empty", "no copy"])
def test_a_change_of_other_memory_says_nothing(how: str, w: Writer) -> None:
    copy = w.event("copy", dst=DEVICE, src=HOST + 8, bytes=8, flags=HOST_SRC, stream=16)
    launch = w.event("launch", id=0, stream=16)
    of = {"unknown copy": copy + 100, "no copy": launch}.get(how, copy)
    at = {"before": HOST, "behind": HOST + 16, "far": HOST + 24}.get(how, HOST + 8)
    w.event("source-change", src=of, dst=at, bytes=0 if how == "empty" else 8, stream=0)
    assert not found_in(w, every=True)


# ---- as a check ----


def checked(cli: Cli, program: Path, folder: Path, how: str) -> tuple[Any, Any]:
    """What the check says, and its finding."""
    given = ("--sim", "--only", "order", "--json", "-q", "-o", folder)
    outcome = json.loads(cli("check", *given, "--", program, how).stdout)["outcomes"][0]
    (found,) = outcome["findings"]
    assert found["kind"] == "host write after read"
    return outcome, found


def test_what_the_copy_brought_confirms_a_finding(cli: Cli, built: Path, tmp_path: Path) -> None:
    program = support.build_program("recorder_host_writes", built)
    _, found = checked(cli, program, tmp_path / "out", "nothing")
    assert found["call"]["call"] == "cuMemcpyHtoDAsync_v2" and found["certainty"] == "confirmed"
    assert found["details"]["brought"] and found["details"]["times"] == 1
    assert found["memory"]["count"] == COPIED
    assert not list((tmp_path / "out").glob("order-*"))


def test_what_a_later_copy_brought_confirms_nothing(cli: Cli, tmp_path: Path) -> None:
    """The last copy is in order, and brings what the host wrote after the first. A delay of the
    host confirms the finding, unless the program varies by itself.
    """
    outcome, found = checked(cli, corpus.build(tmp_path), tmp_path / "out", "staging_reused")
    assert not found["details"]["brought"] and found["details"]["times"] == 5
    varies = "runs differ without any" in outcome["reason"]
    assert varies or found["summary"].endswith("changes the result.")
