"""Event slots from many threads, past the end of the disk and of the recording."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

from tests.drain_run import (
    FFI,
    HEADER,
    NONE,
    check_epochs,
    open_events,
    program,
    read_events,
    records,
    run_stress,
    segments,
    small_disk,
    string,
    unmount,
)


@pytest.mark.long
def test_sixteen_threads_record_each_event_once(stress: Path, tmp_path: Path) -> None:
    count, lost = run_stress(stress, "events", tmp_path, 16, 20_000)
    assert (count, lost) == (320_000, 0)
    used = read_events(tmp_path)
    assert np.array_equal(used["seq"], np.arange(1, 320_001))
    for thread in range(16):
        mine = used[used["thread"] == thread]
        assert np.array_equal(mine["id"], np.arange(20_000)), "each thread's order is kept"


def test_short_lived_threads_share_slots(stress: Path, tmp_path: Path) -> None:
    count, lost = run_stress(stress, "brief", tmp_path, 200, 10)
    assert (count, lost) == (2000, 0)
    assert len(read_events(tmp_path)) == 2000
    assert (tmp_path / "events.bin").stat().st_size <= HEADER + 5 * 512 * 128


def test_close_while_threads_record(stress: Path, tmp_path: Path) -> None:
    count, lost = run_stress(stress, "late", tmp_path, 8)
    used = read_events(tmp_path)
    assert lost == 0
    assert 0 < len(used) <= count + 8
    assert count - len(used) <= 64


@pytest.mark.long
def test_old_slot_stays_writable(stress: Path, tmp_path: Path) -> None:
    count, lost = run_stress(stress, "hold", tmp_path, 300_000)
    assert (count, lost) == (300_002, 0)
    used = read_events(tmp_path)
    assert len(used) in (300_001, 300_002), (
        "the last was filled after the end, the first long after its turn"
    )
    assert used[300_000]["id"] == NONE
    assert records(tmp_path, "events.bin")[0]["seq"] == 300_001


@pytest.mark.long
def test_memory_use_is_constant(drain_path: Path, tmp_path: Path) -> None:
    body = """
run.mkdir()
def resident(): return int(open("/proc/self/statm").read().split()[1]) * 4096
before = resident()
assert t.open_events(lib, run) is None
worst = 0
for i in range(1_000_000):
    event = lib.events_next()
    assert event != t.FFI.NULL, lib.events_lost()
    lib.events_publish(event, 1)
    if i % 50_000 == 0:
        worst = max(worst, resident() - before)
assert lib.events_count() == 1_000_000
assert worst < 64 << 20, worst
"""
    done = program(body, drain_path, tmp_path / "run")
    assert done.returncode == 0, done.stderr


@pytest.mark.long
def test_event_after_close_is_ignored(drain_path: Path, tmp_path: Path) -> None:
    body = """
import json, xxhash
run.mkdir()
assert t.open_events(lib, run) is None
events = [lib.events_next() for _ in range(3)]
for event in events:
    event.seq = 1
lib.events_publish(events[0], 1)
lib.events_publish(events[2], 1)
lib.events_close()
raw = (run / "events.bin").read_bytes()
lib.events_publish(events[1], 1)
assert events[1].kind == 1 and (run / "events.bin").read_bytes() == raw
out = t.FFI.new("struct json *")
lib.json_begin(out, t.FFI.NULL, t.FFI.NULL)
lib.json_open(out, b"{")
lib.events_json(out)
lib.json_close(out, b"}")
told = json.loads(t.FFI.string(lib.json_text(out)))
assert told == {"events.bin": {"size": 64 + 3 * 128, "check": xxhash.xxh3_64_hexdigest(raw)}}, told
"""
    done = program(body, drain_path, tmp_path / "run")
    assert done.returncode == 0, done.stderr


def test_events_without_a_recording_are_ignored(drain: Any, tmp_path: Path) -> None:
    assert drain.events_next() == FFI.NULL
    none = tmp_path / "none"
    none.mkdir()
    why = open_events(drain, none, before=none.rmdir)
    assert why == f"creating events.bin in {none}: No such file or directory"
    drain.events_close()


def test_events_and_epochs_from_many_threads(stress: Path, tmp_path: Path) -> None:
    count, lost = run_stress(stress, "store", tmp_path / "run", 40, 6)
    process = tmp_path / "run" / "p0"
    assert (count, lost) == (800, 0)
    assert len(read_events(process)) == 800
    assert len(check_epochs(process)) == 40
    assert segments(process) == [8, 9]
    functions = records(process, "functions.bin")
    assert sorted(functions["id"]) == [t * 1000 + i for t in range(4) for i in range(200)]
    assert {string(process, int(f["name"])) for f in functions} == {
        f"kernel {i}" for i in range(200)
    }
    assert len(set(functions["name"])) == 200, "each text once"


def test_forked_child_records_its_own_events(stress: Path, tmp_path: Path) -> None:
    run_stress(stress, "fork", tmp_path / "run")
    for name, ids in {"p0": [1, 2], "p1": [3]}.items():
        assert list(read_events(tmp_path / "run" / name)["id"]) == ids
    assert len(check_epochs(tmp_path / "run" / "p0")) == 2
    assert len(check_epochs(tmp_path / "run" / "p1")) == 1
    assert len(orjson.loads((tmp_path / "run" / "run.json").read_bytes())["processes"]) == 2


FULL_DISK_EVENTS = """
run.mkdir()
error = t.FFI.new("char[512]")
assert t.open_events(lib, run) is None
taken = lost = 0
for i in range(100000):
    e = lib.events_next()
    if e == t.FFI.NULL:
        lost += 1
        continue
    taken += 1
    e.seq = taken
    lib.events_publish(e, 1)
lib.events_failed(error, 512)
print(t.FFI.string(error).decode())
assert taken == lib.events_count() and lost == lib.events_lost() and lost > 0, (taken, lost)
lib.events_close()
assert lib.events_count() == taken
print(taken)
"""


@pytest.mark.parametrize("limit", ["file size", "disk"])
def test_full_disk_ends_events(drain_path: Path, tmp_path: Path, limit: str) -> None:
    folder = tmp_path / "small"
    prepare, why = small_disk(folder, 5 << 20, limit)
    try:
        done = program(prepare + FULL_DISK_EVENTS, drain_path, folder / "run")
        assert done.returncode == 0, done.stderr
        reason, taken = done.stdout.splitlines()
        assert reason == f"reserving disk space for {folder}/run/events.bin: {why}"
        events = records(folder / "run", "events.bin")
        assert list(events["seq"]) == list(range(1, int(taken) + 1))
        assert int(taken) >= (4 << 20) // 128 - 512
    finally:
        unmount(folder)


def test_helper_thread_blocks_signals(drain_path: Path, tmp_path: Path) -> None:
    body = """
run.mkdir()
assert t.open_events(lib, run) is None
def tasks():
    path = "/proc/self/task/"
    return {open(f"{path}{n}/comm").read().strip(): n for n in os.listdir(path)}
threads = tasks()
fields = dict(line.split(":") for line in open(f"/proc/self/task/{threads['tt-events']}/status"))
blocked = int(fields["SigBlk"], 16)
for name in "SIGINT SIGTERM SIGUSR1 SIGALRM SIGCHLD SIGXFSZ".split():
    assert blocked >> (getattr(signal, name) - 1) & 1, name
assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == set()
lib.events_close()
assert "tt-events" not in tasks()
"""
    done = program(body, drain_path, tmp_path / "run")
    assert done.returncode == 0, done.stderr
