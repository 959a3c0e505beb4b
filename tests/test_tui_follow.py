"""The live view of a recording that still runs: `ttanalyze tui --follow`."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import ttanalyze as tt
from tests import rundir, support
from tests.rundir import Writer
from tests.test_tui import Session, at_terminal
from ttanalyze.format import layout
from ttanalyze.format.events import SLOTS
from ttanalyze.tui import follow, looks
from ttanalyze.tui.looks import Follower, Look

LAUNCH = layout.EVENT_KINDS.index("launch")

PROGRAM = """
import ctypes
cuda, context, memory = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_uint64()
assert cuda.cuInit(0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
for step in range(100):
    assert cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(4096)) == 0
    assert cuda.cuMemsetD8_v2(memory, step % 256, ctypes.c_size_t(4096)) == 0
    assert cuda.cuCtxSynchronize() == 0
"""


@pytest.fixture
def growing(run_path: Path) -> Writer:
    """A run of a process that runs: this one."""
    w = Writer(run_path)
    w.function(0, "_Z3addPfS_i")
    w.born(0, bytes(1000))
    w.epoch("sync", "full")
    w.event("launch", "cuLaunchKernel", id=0)
    w.close("running", pid=os.getpid())
    return w


def follow_run(path: Path, script: Callable[[Session], Awaitable[None]], **options: Any) -> Any:
    async def main() -> Any:
        app = follow.Follow(path)
        async with app.run_test(size=(200, 30)) as pilot:
            await script(Session(app, pilot))  # type: ignore[arg-type]
        return app.return_value

    return asyncio.run(main())


def test_live_view_shows_only_whole_records(growing: Writer) -> None:
    follower = Follower(growing.run)
    look = follower.look()
    assert (look.epochs, look.launches, look.memory, look.ended) == (1, 1, 1000, None)
    assert look.kernels == [("add", 1)]
    growing.write(0, 0, b"x")
    committed = (growing.path / "epochs.bin").read_bytes()
    growing.epoch("launch", label="add")
    whole = (growing.path / "epochs.bin").read_bytes()
    (growing.path / "epochs.bin").write_bytes(whole[: len(committed) + 80])  # half an epoch
    event = (growing.path / "events.bin").read_bytes()
    unpublished = rundir.record(layout.EVENT, seq=99, id=0)  # without kind and check
    (growing.path / "events.bin").write_bytes(event + unpublished.tobytes())
    assert replace(follower.look(), at=look.at, waits=look.waits) == look
    (growing.path / "epochs.bin").write_bytes(whole)
    look = follower.look()
    assert (look.epochs, look.recent[0].what, look.recent[0].changed) == (2, "launch add", 1000)


def test_late_events_are_counted_once(growing: Writer) -> None:
    """Slots fill in any order, and each is counted whenever it is published."""
    path = growing.path / "events.bin"
    slots = rundir.record(layout.EVENT, seq=1, kind=LAUNCH, id=0, call=layout.NO_CALL)
    published = rundir.seal(slots)
    empty = bytes(len(published))
    head = path.read_bytes()[: layout.HEADER_SIZE]
    follower = Follower(growing.run)
    counts = []
    for used in (
        [10],  # a run that began
        [SLOTS, 3],  # it is full, and the next one began
        [SLOTS, SLOTS - 1, 5],
        [SLOTS, SLOTS, 0, 7],  # claimed, and nothing is in it yet
        [SLOTS, SLOTS, 9, SLOTS],
    ):
        body = b"".join(published * n + empty * (SLOTS - n) for n in used)
        path.write_bytes(head + body)
        counts.append(follower.look().launches)
        assert counts[-1] == sum(used)
    assert follower.look().launches == counts[-1]


def test_a_file_may_shrink_when_the_process_ends(
    growing: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The recorder cuts off slots that it never used, maybe right after the run was opened."""
    path = growing.path / "events.bin"
    used = path.read_bytes()
    path.write_bytes(used + bytes(1 << 20))

    def open_and_cut(run: Path) -> tt.Run:
        opened = tt.open(run)
        path.write_bytes(used)
        return opened

    monkeypatch.setattr(looks, "open_run", open_and_cut)
    assert Follower(growing.run).look().launches == 1


def test_an_unreadable_moment_is_told_and_passes(
    growing: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "EVERY", 0.01)
    path = growing.run / "run.json"
    good = path.read_text()

    async def script(s: Session) -> None:
        await s.until(lambda: "1 of 1 process running" in s.text)
        path.write_text("{")
        await s.until(lambda: "run.json: offset 1: not JSON" in s.lines[-2])
        assert "1,000" in s.text or "1000 B" in s.text  # of the last good look
        path.write_text(good)
        await s.until(lambda: "committed epochs and whole records only" in s.lines[-2])
        for _ in range(500):
            growing.event("launch", "cuLaunchKernel", id=0)
        await s.until(lambda: " 501" in s.text)
        s.send("q")
        await s.pilot.pause(0.1)

    assert follow_run(growing.run, script) is None


def test_a_look_may_end_while_the_screen_closes(
    growing: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "EVERY", 0.01)
    monkeypatch.setattr(follow, "SHARE", 0)
    looked: list[int] = []
    look = Follower.look

    def counted(self: Follower) -> Look:
        looked.append(1)
        return look(self)

    monkeypatch.setattr(Follower, "look", counted)

    async def script(s: Session) -> None:
        await s.until(lambda: "add" in s.text)
        await s.app.query_one("#said").remove()  # as the screen's parts go one by one
        seen = len(looked)
        await s.until(lambda: len(looked) > seen + 2)
        s.send("q")
        await s.pilot.pause(0.1)

    assert follow_run(growing.run, script) is None


def test_enter_opens_the_browser_before_the_end(growing: Writer) -> None:
    async def script(s: Session) -> None:
        await s.until(lambda: "add" in s.text)
        s.send("enter")
        await s.pilot.pause(0.1)

    assert follow_run(growing.run, script) == ""


def test_live_view_of_a_killed_program_ends(
    run_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    w = Writer(run_path)
    w.epoch("sync", "full")
    w.close("running", pid=child.pid)
    follower = Follower(run_path)
    monkeypatch.setattr(looks, "QUIET", 0.0)
    assert follower.look().ended is None
    child.send_signal(signal.SIGKILL)
    child.communicate()
    assert [follower.look().running, follower.look().ended] == [
        0,
        "no process of the program runs, and nothing is new for 0 s",
    ]


@pytest.mark.native
def test_live_view_follows_a_program_to_its_end(tmp_path: Path) -> None:
    """Every look is right: numbers never go back, and the last are those of the finished run."""
    run = tmp_path / "run"
    options = ["record", "--sim", "-q", "--epoch", "sync", "-o", str(run)]
    command = [sys.executable, "-m", "ttanalyze", *options, "--", sys.executable, "-c", PROGRAM]
    environment = support.bare_environment(**support.sanitizer_runtimes())
    program = subprocess.Popen(command, cwd=support.ROOT, env=environment)
    latest = time.monotonic() + 60
    while not (run / "p0" / "epochs.bin").exists():
        assert time.monotonic() < latest
        time.sleep(0.01)
    follower, seen = Follower(run), [Look(**dict.fromkeys(Look.__dataclass_fields__, 0))]  # type: ignore[arg-type]
    while not seen[-1].ended:
        seen.append(follower.look())
        for name in ("epochs", "waits", "stored", "allocations", "peak"):
            assert getattr(seen[-1], name) >= getattr(seen[-2], name)
        assert time.monotonic() < latest
    assert program.wait() == 0
    whole = tt.open(run)
    last = seen[-1]
    assert last.ended == "the program ended with status 0"
    assert (last.epochs, last.waits) == (len(whole.epochs), 100)
    assert (last.memory, last.allocations) == (100 * 4096, 100)
    assert last.stored == whole.epochs["bytes_stored"].sum()


@pytest.mark.long
def test_follow_of_a_finished_run_opens_the_browser(growing: Writer) -> None:
    growing.close()
    path = growing.run / "run.json"
    ending = {"exit": {"status": 3, "signal": None}}
    path.write_text(json.dumps({**json.loads(path.read_text()), **ending}))
    status, seen = at_terminal(["tui", growing.run, "--follow"], b"q", b"status 3", b"Back")
    assert status == 0
    assert "the program ended with status 3" in seen
    assert "epoch 0 of 0" in seen
