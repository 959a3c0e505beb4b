"""The terminal browser: what is on the screen, and what every key does to it."""

from __future__ import annotations

import asyncio
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Awaitable, Callable
from fcntl import ioctl
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xxhash
from textual import events

import ttanalyze as tt
from tests import rundir, support
from tests.rundir import Writer
from ttanalyze.format import layout
from ttanalyze.format.layout import BLOCK_SIZE
from ttanalyze.tui.app import Browser
from ttanalyze.tui.items import NAMES, Items
from ttanalyze.tui.keys import KEYS
from ttanalyze.tui.lists import brief
from ttanalyze.tui.screens import CallRows
from ttanalyze.tui.timeline import Timeline
from ttanalyze.tui.view import View

CHARACTERS = {
    "[": "left_square_bracket",
    "]": "right_square_bracket",
    "{": "left_curly_bracket",
    "}": "right_curly_bracket",
    "(": "left_parenthesis",
    ")": "right_parenthesis",
    "<": "less_than_sign",
    ">": "greater_than_sign",
    ".": "full_stop",
    ",": "comma",
    "+": "plus",
    "-": "minus",
    "/": "slash",
    "?": "question_mark",
}


class Session:
    """Somebody at the terminal: presses keys, and reads what is on the screen."""

    def __init__(self, app: Browser, pilot: Any) -> None:
        self.app, self.pilot = app, pilot

    async def press(self, *keys: str) -> None:
        for key in keys:
            self.send(key)
            await self.settle()

    def send(self, key: str) -> None:
        """A key by its name or its character."""
        character = key if len(key) == 1 else None
        name = CHARACTERS.get(key, key)
        self.app.post_message(events.Key(name, character))

    async def type(self, words: str) -> None:
        """Types words into the prompt, and enter."""
        for key in [*words, "enter"]:
            self.send(key)
        await self.settle()

    async def settle(self) -> None:
        """Waits until all that was asked for is on the screen."""
        for _ in range(2):
            seen = asyncio.Event()
            self.app.call_later(seen.set)
            await seen.wait()
            await self.pilot.pause(0)
            await self.app.workers.wait_for_complete()
        await self.pilot.pause(0)

    async def until(self, holds: Callable[[], bool]) -> None:
        """Waits for what shows while something is still under way."""
        latest = time.monotonic() + 60
        while not holds():
            assert time.monotonic() < latest, self.text
            await self.pilot.pause(0.01)

    @property
    def lines(self) -> list[str]:
        screen = self.app.screen
        return [strip.text.rstrip() for strip in screen._compositor.render_strips(screen.size)]

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    @property
    def told(self) -> str:
        """The line in which calls and messages are."""
        return self.lines[-2].strip()

    @property
    def where(self) -> tuple[int, int | None, int]:
        """Epoch, region, offset."""
        return self.app.epoch, self.app.region, self.app.view.cursor

    def line(self, part: str) -> str:
        """The first line that begins with these words."""
        return next(line for line in self.lines if line.startswith(part))


def browse(
    path: Path,
    script: Callable[[Session], Awaitable[None]],
    size: tuple[int, int] = (80, 24),
    **start: Any,
) -> None:
    """Opens a run and lets the script use it."""

    async def main() -> None:
        app = Browser(tt.open(path), **start)
        async with app.run_test(size=size) as pilot:
            session = Session(app, pilot)
            await session.settle()
            await script(session)

    asyncio.run(main())


@pytest.fixture(scope="module")
def training(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real recording: an epoch after every kernel of three steps."""
    program = support.build_examples(built / "examples") / "training"
    run = tmp_path_factory.mktemp("tui") / "run"
    options = ("-q", "--sim", "--epoch", "launch", "-o", run, "--", program, "--steps", "3")
    outcome = support.ttanalyze("record", *options)
    assert outcome.status == 0, outcome.stderr
    return run


def alive(run: tt.Run, region: int) -> range:
    """The epochs that a region has contents in."""
    regions = run.processes[0].regions
    row = int(np.flatnonzero(regions.id == region)[0])
    return range(int(regions.born[row]), min(int(regions.died[row]), len(run.epochs)))


def joined(text: str) -> str:
    """A screen's text with lines that were wrapped put together again."""
    return re.sub(r"\s+", " ", text)


def floats(*values: float, size: int = 256) -> bytes:
    out = np.zeros(size, "<f4")
    out[: len(values)] = values
    return out.tobytes()


@pytest.fixture
def story(run_path: Path) -> Path:
    """Six epochs of three regions: weights change in 1, 3 and 5, a NaN comes up in 3."""
    w = Writer(run_path)
    w.function(0, "_Z3addPfS_i")
    w.function(1, "scale")
    w.born(0, floats(1, 2, 3, size=40_000), label="weights")
    w.born(1, floats(7), label="bias")
    w.born(2, bytes(64), kind="host", captured=False)
    w.epoch("sync", "full")  # 0
    w.event("launch", "cuLaunchKernel", id=0, grid=[4, 2, 1], block=[256, 1, 1], shared=64)
    w.event("launch", "cuLaunchKernel", id=1, grid=[1, 1, 1], block=[32, 1, 1])
    w.write(0, 4, np.float32(2.5).tobytes())
    w.epoch("sync")  # 1
    w.epoch("sync", "refused")  # 2
    w.event("launch", "cuLaunchKernel", id=1, grid=[1, 1, 1], block=[32, 1, 1])
    w.write(0, 100_000, np.float32(np.nan).tobytes())
    w.epoch("kernel-after", label="scale")  # 3
    w.write(1, 8, np.float32(np.inf).tobytes())
    w.epoch("api", label="half way")  # 4
    w.write(0, 4, np.float32(9).tobytes())
    w.died(1)
    w.epoch("final")  # 5
    w.close()
    return run_path


# ---- what is shown ----


def test_browser_starts_at_the_last_epoch(story: Path) -> None:
    async def script(s: Session) -> None:
        assert s.where == (5, 0, 0)
        lines = s.lines
        assert len(lines) == 24
        assert max(map(len, lines)) <= 80
        assert lines[0].split("  ") == [" run", "epoch 5 of 5", "final"]
        assert re.search(r"●\s+5 final +64\.0K", s.text)
        assert re.search(r"●\s+0 weights +156K +1/3", s.text)
        assert "bias" not in s.text  # it was freed
        heading = (
            " region 0  weights, device  156.2 KiB  as hex  against epoch 4  at 0x7f0000000000"
        )
        assert f"{heading[:78]}…" in s.text
        assert s.line("00000000  ").startswith(
            "00000000  00 00 80 3f 00 00 10 41  00 00 40 40 00 00 00 00  ···?···A··@@····"
        )
        assert s.told == "since epoch 4: 2 calls: free"

    browse(story, script)


@pytest.mark.long
def test_every_epoch_and_region_shows_what_was_recorded(training: Path) -> None:
    """Shows memory, changes and epochs of a recorded program."""
    run = tt.open(training)
    (process,) = run.processes

    async def script(s: Session) -> None:
        seen = 0
        for region in run.regions["region"].tolist():
            for epoch in range(0, len(process.epochs), 9):
                s.app.go_to(epoch=epoch, region=region)
                await s.settle()
                if epoch not in alive(run, region):
                    assert f"region {region} does not exist in epoch {epoch}" in s.text
                    continue
                expected = run.read(epoch, region)
                shown = s.line("00000000  ")[10:58]
                assert bytes.fromhex(shown.strip()) == expected[:16].tobytes()
                window = s.app.view.window
                assert (window.raw == expected[window.start : window.stop]).all()
                if epoch - 1 in alive(run, region):
                    old = run.read(epoch - 1, region)[window.start : window.stop]
                    assert (window.changed == (window.raw != old)).all()
                else:
                    assert window.before is None
                seen += 1
        assert seen > 10

    browse(training, script, size=(80, 24))


def test_changes_are_visible_without_colours(story: Path) -> None:
    """Bold and underlined: also for those who see no orange."""

    async def script(s: Session) -> None:
        await s.press("d")
        await s.type("f32")
        strip = s.app.view.render_line(1)
        marked = [seg.text for seg in strip if seg.style and seg.style.underline and seg.style.bold]
        assert marked == ["9.0"]
        assert any(seg.style and seg.style.reverse is not True for seg in strip)
        assert "1.0" in strip.text
        await s.press("enter", "right")
        assert "9.0 (was 2.5)" in s.lines[-3]

    browse(story, script)


@pytest.mark.long
@pytest.mark.parametrize("size", [(80, 24), (200, 50)])
def test_every_type_is_displayed(run_path: Path, size: tuple[int, int]) -> None:
    """The numbers on the screen are those in memory, none cut off."""
    memory = np.random.default_rng(3).bytes(4096)
    w = Writer(run_path)
    w.born(0, memory)
    w.epoch("sync", "full")
    w.close()

    async def script(s: Session) -> None:
        for name in NAMES:
            items = Items.named(name)
            assert f"as {name}" in s.text
            rows = [s.app.view.render_line(y).text for y in range(1, s.app.view.size.height)]
            each = s.app.view.row_bytes
            for i, row in enumerate(rows):
                wanted = items.texts(np.frombuffer(memory[i * each : (i + 1) * each], "u1"))
                cells = row.split()
                assert cells[0] == f"{i * each:08x}"
                assert cells[1 : 1 + len(wanted)] == wanted
            assert each & (each - 1) == 0
            assert len(rows[0].rstrip()) <= size[0]
            await s.press("t")

    browse(run_path, script, size)


def test_type_is_selected_by_key_and_name(story: Path) -> None:
    async def script(s: Session) -> None:
        for name in [*NAMES[1:], NAMES[0]]:
            await s.press("t")
            assert f"as {name}" in s.text
        await s.press("T")
        assert f"as {NAMES[-1]}" in s.text
        await s.press("d")
        await s.type("float16")
        assert "as f16" in s.text
        await s.press("d")
        await s.type("f12")
        assert "f12" in s.told
        assert "as f16" in s.text

    browse(story, script)


# ---- in time ----


def test_keys_step_through_epochs(story: Path) -> None:
    async def script(s: Session) -> None:
        for epoch in (4, 3, 2, 1, 0):
            await s.press("[")
            assert s.app.epoch == epoch
        await s.press("[")
        assert s.told == "epoch 0 is the first one"
        await s.press(".")
        assert s.app.epoch == 1
        await s.press("tab", "tab", "shift+tab", "shift+tab", "home", "down", "down", "up")
        assert s.app.epoch == 1
        await s.press("pagedown", "end")
        assert s.app.epoch == 5
        await s.press("]")
        assert s.told == "epoch 5 is the last one"

    browse(story, script)


def test_jumps_to_changes_of_the_region_and_of_an_item(story: Path) -> None:
    async def script(s: Session) -> None:
        went = []
        for key in "{<{{":
            await s.press(key)
            went.append(s.app.epoch)
        assert went == [3, 1, 0, 0]
        assert s.told == "region 0 does not change before epoch 0"
        await s.press("}")
        assert s.app.epoch == 1
        await s.press("g")
        await s.type("e0 4")
        assert s.where == (0, 0, 4)
        await s.press("t")  # f32
        await s.press(")")
        assert s.where == (1, 0, 4)
        assert "2.5 (was 2.0)" in s.lines[-3]
        await s.press("+")
        assert s.where == (5, 0, 4)
        await s.press("+")
        assert s.told == "the item at 0x4 does not change after epoch 5"
        await s.press("(")
        assert s.where == (1, 0, 4)
        await s.press("-")
        assert s.where == (0, 0, 4)
        await s.press("-")
        assert s.told == "the item at 0x4 does not change before epoch 0"

    browse(story, script)


def test_jumps_agree_with_reading_every_epoch(training: Path) -> None:
    """Against brute force, on a real run."""
    run = tt.open(training)
    region = int(run.digests["region"].value_counts().index[0])
    epochs = alive(run, region)
    values = [run.read(epoch, region, stop=4).tobytes() for epoch in epochs]
    changes = [e for e, (a, b) in zip(epochs[1:], pairwise(values), strict=True) if a != b]
    assert len(changes) > 2

    async def script(s: Session) -> None:
        await s.press("d")
        await s.type("f32")
        s.app.go_to(epoch=epochs[-1], region=region, offset=0)
        await s.settle()
        went = []
        for _ in [*changes, 0]:
            await s.press("-")
            went.append(s.app.epoch)
        expected = [e for e in changes[::-1] if e < epochs[-1]]
        assert went[: len(expected) + 1] == [*expected, epochs[0]]
        went = []
        for _ in changes:
            await s.press("+")
            went.append(s.app.epoch)
        assert went == changes

    browse(training, script)


def test_history_of_an_item(story: Path) -> None:
    async def script(s: Session) -> None:
        await s.press("t")
        await s.press("enter", "right", "h")
        assert "region 0, f32 at 0x4: 3 values" in s.text
        rows = [line.split() for line in s.lines[2:5]]
        assert [row[:3] for row in rows] == [
            ["0", "sync", "2.0"],
            ["1", "sync", "2.5"],
            ["5", "final", "9.0"],
        ]
        assert [row[3] for row in rows[:2]] == ["▏", "███▊"]
        assert "2 to 9" in s.lines[1]
        await s.press("up", "enter")
        assert s.where == (1, 0, 4)
        await s.press("h", "escape")
        assert s.where == (1, 0, 4)

    browse(story, script)


def test_compares_with_a_marked_epoch(story: Path) -> None:
    async def script(s: Session) -> None:
        await s.press("g")
        await s.type("e0 4")
        await s.press("m", "t", "end")
        s.app.go_to(epoch=5, offset=4)
        await s.settle()
        assert "compared with epoch 0" in s.lines[0]
        assert "9.0 (was 2.0)" in s.lines[-3]
        await s.press("m")
        assert "9.0 (was 2.5)" in s.lines[-3]

    browse(story, script)


# ---- values ----


def test_keys_find_the_next_nan(story: Path) -> None:
    async def script(s: Session) -> None:
        await s.press("n")
        assert "floating point" in s.told
        await s.press("t", "n")
        assert s.where == (5, 0, 100_000)
        assert "nan" in s.lines[-3]
        await s.press("n")
        assert s.told == ("no NaN or infinity behind 0x186a0 in region 0 in epoch 5")
        await s.press("end", "N")
        assert s.where == (5, 0, 100_000)
        await s.press("g")
        await s.type("e0 0")
        await s.press("n")
        assert s.told.startswith("no NaN or infinity behind 0x0 in region 0 in epoch 0")
        await s.press("w")
        assert s.where == (3, 0, 100_000)
        await s.press("w")
        assert s.told == "no new NaN or infinity appears in region 0 after epoch 3"
        s.app.go_to(epoch=0, region=1)
        await s.settle()
        await s.press("w")
        assert s.where == (4, 1, 8)
        assert "inf" in s.lines[-3]

    browse(story, script)


def test_old_nans_in_full_epochs_are_not_new(run_path: Path) -> None:
    w = Writer(run_path)
    w.born(0, floats(np.nan))
    w.epoch("sync", "full")
    w.epoch("sync", "full")
    w.write(0, 16, np.float32(np.inf).tobytes())
    w.epoch("sync")
    w.epoch("sync", "full")
    w.close()

    async def script(s: Session) -> None:
        await s.press("w")
        assert s.app.epoch == 2
        await s.press("w")
        assert s.app.epoch == 2
        assert s.told.startswith("no new NaN")

    browse(run_path, script, epoch=0, items="f32")


# ---- going and finding ----


@pytest.mark.long
def test_goto_accepts_locations(story: Path) -> None:
    async def script(s: Session) -> None:
        for words, where in (
            ("e1", (1, 0, 0)),
            ("r1 e3 0x10", (3, 1, 0x10)),
            ("+8", (3, 1, 0x18)),
            ("-16", (3, 1, 8)),
            ("r0", (3, 0, 0)),
            ("#25000", (3, 0, 25_000)),
            ("e1 rbias", (1, 1, 8)),
            ("e3 @0x7f0000000000", (3, 0, 0)),
            ("@0x7f0001000004", (3, 1, 4)),
            ("r0 25000", (3, 0, 25_000)),
        ):
            await s.press("g")
            await s.type(words)
            assert s.where == where
        await s.press("t", "g")
        await s.type("#25000")
        assert s.where == (3, 0, 100_000)
        for words, reason in (
            ("e6", "no epoch 6: there are epochs 0 to 5"),
            ("r9", "no region '9' in process 0"),
            ("160000", "no byte 160000 in region 0: it has 160,000"),
            ("-9999999", "no byte -9899999 in region 0: it has 160,000"),
            ("x", "x: expected e12, r3, #100, 4096, 0x1000, +64 or @0x7f0000000000"),
            ("rx", "no region 'x' in process 0"),
            ("@1", "no captured region at 0x1 in process 0"),
            ("e", "e: expected e12, r3"),
        ):
            await s.press("g")
            await s.type(words)
            assert s.told.startswith(reason)
            assert s.where == (3, 0, 100_000)
        await s.press("g", "escape")
        assert isinstance(s.app.focused, View)

    browse(story, script)


def test_tensors_are_named(run_path: Path) -> None:
    w = Writer(run_path)
    w.born(0, floats(1, size=1000))
    w.born(1, bytes(100_000), label="pool")
    w.name(1, 70_000, 400, "layers.1.weight", "f32")
    w.epoch("sync", "full")
    w.name(1, 70_000, 400, None)
    w.epoch("sync")
    w.close()

    async def script(s: Session) -> None:
        await s.press("g")
        await s.type("e0 rlayers.1.weight")
        assert s.where == (0, 1, 70_000)
        await s.press("g")
        await s.type("70010")
        assert "byte 70,010  layers.1.weight [2]  00" in s.lines[-3]
        await s.press("g")
        await s.type("70400")
        assert "weight" not in s.lines[-3]
        await s.press("g")
        await s.type("e1 70010")
        assert "weight" not in s.lines[-3]
        await s.press("g")
        await s.type("rlayers.1.weight")
        assert s.told.startswith("no region or tensor 'layers.1.weight' in process 0")

    browse(run_path, script)

    async def begun(s: Session) -> None:
        assert s.where == (0, 1, 70_016)

    browse(run_path, begun, epoch=0, region="layers.1.weight", offset=16)


def test_finds_bytes_across_blocks_and_pieces(run_path: Path) -> None:
    size = 40 * BLOCK_SIZE
    places = [5, BLOCK_SIZE - 2, 16 * BLOCK_SIZE - 3, 32 * BLOCK_SIZE, size - 4]
    memory = bytearray(size)
    for offset in places:
        memory[offset : offset + 4] = b"\xde\xad\xbe\xef"
    w = Writer(run_path)
    w.born(0, bytes(memory))
    w.epoch("sync", "full")
    w.close()

    async def script(s: Session) -> None:
        await s.press("/")
        await s.type("deadbeef")
        went = [s.app.view.cursor]
        for _ in places[1:]:
            await s.press("f")
            went.append(s.app.view.cursor)
        assert went == places
        await s.press("f")
        assert s.told.startswith("no deadbeef behind 0x27fffc")
        for offset in places[-2::-1]:
            await s.press("F")
            assert s.app.view.cursor == offset
        await s.press("/", "ctrl+u")
        await s.type("xyz")
        assert s.told == 'xyz: expected bytes such as de ad be ef, or "text"'

    browse(run_path, script)


def test_finds_values_regions_and_epochs(story: Path) -> None:
    async def script(s: Session) -> None:
        await s.press("f")
        assert s.told == "no search yet: / starts one"
        await s.press("t", "/")
        await s.type("9")
        assert s.where == (5, 0, 4)
        await s.press("/", "ctrl+u")
        await s.type("2.51")
        assert s.told.startswith("no f32 2.51 behind 0x4")
        await s.press("/", "ctrl+u")
        await s.type("nine")
        assert s.told == "nine: expected a value of type f32"
        await s.press("g")
        await s.type("e0")
        await s.press("/", "ctrl+u", "tab", "tab")
        await s.type("HALF")
        assert s.where == (4, 0, 4)
        await s.press("f")
        assert s.told == "no epoch behind epoch 4 is called HALF"
        await s.press("/", "ctrl+u")
        await s.type("sync")
        await s.press("F", "F")
        assert s.app.epoch == 1
        await s.press("/", "ctrl+u", "shift+tab")
        await s.type("bias")
        assert s.where[:2] == (1, 1)
        await s.press("f")
        assert s.told == "no region behind region 1 is called bias"

    browse(story, script)


@pytest.mark.long
def test_finds_whole_numbers_and_small_floats(run_path: Path) -> None:
    memory = bytearray(range(256))
    w = Writer(run_path)
    w.born(0, bytes(memory))
    w.epoch("sync", "full")
    w.close()

    async def script(s: Session) -> None:
        for name, words in (
            ("i16", "0x1110"),
            ("u8", "200"),
            ("e4m3", "0.4375"),
            ("bf16", "-1e-5"),
        ):
            await s.press("d")
            await s.type(name)
            await s.press("enter", "home", "/", "ctrl+u")
            await s.type(words)
            of = Items.named(name).type
            assert of is not None
            every = of.view(np.frombuffer(bytes(memory), "u1"))
            if name == "bf16":
                assert s.told.startswith("no bf16 -1e-5")
            else:
                wanted = np.flatnonzero(
                    every
                    == every.dtype.type(float(int(words, 0)) if "." not in words else float(words))
                )
                assert s.app.view.cursor == wanted[0] * of.itemsize
        await s.press("d")
        await s.type("u8")
        await s.press("/", "ctrl+u")
        await s.type("256")
        assert s.told == "256: a value of type u8 is from 0 to 255"

    browse(run_path, script, items="u16")


# ---- regions ----


def test_region_list_is_filtered_and_sorted(story: Path) -> None:
    def ids(s: Session) -> list[int]:
        return [int(i) for i in s.app.regions.ids]

    async def script(s: Session) -> None:
        assert ids(s) == [0]
        await s.press("a")
        assert ids(s) == [0, 1, 2]
        assert re.search(r"1 bias +1\.0K +freed", s.text)
        assert re.search(r"2 host +64 not capt…", s.text)
        await s.press("s", "s")
        assert "all by size" in s.text
        assert ids(s) == [0, 1, 2]
        await s.press("s", "tab", "down")
        assert s.app.region == 1
        assert "region 1 does not exist in epoch 5: it lives from epoch 0 to epoch 4" in s.text
        await s.press("a")
        assert ids(s) == [0, 1]  # the selected one stays
        await s.press("[")
        assert re.search(r"●\s+1 bias +1\.0K +1/1", s.text)
        s.app.go_to(region=2)
        await s.settle()
        assert "region 2 is not captured: only its life was recorded" in s.text

    browse(story, script)


def test_cursor_is_kept_per_region(story: Path) -> None:
    async def script(s: Session) -> None:
        await s.press("enter", "down", "down")
        assert s.where == (1, 0, 32)
        s.app.go_to(region=1)
        await s.settle()
        assert s.where == (1, 1, 0)
        s.app.go_to(region=0)
        await s.settle()
        assert s.where == (1, 0, 32)

    browse(story, script, epoch=1)


# ---- calls ----


def test_calls_between_epochs_are_listed(story: Path) -> None:
    async def script(s: Session) -> None:
        assert s.told.startswith("since epoch 0: 3 calls; may write there: ")
        assert "add" in s.told and "scale" in s.told
        await s.press("c")
        assert "3 calls between epoch 0 and epoch 1" in s.text
        assert "add(float*, float*, int) <<<(4, 2), 256, 64>>>" in s.text
        assert "scale <<<1, 32>>>" in s.text
        assert s.text.count("may write there") == 2
        await s.press("escape")
        assert s.app.epoch == 1

    browse(story, script, (120, 24), epoch=1)


def test_browser_without_calls(story: Path) -> None:
    (story / "p0" / "events.bin").unlink()

    async def script(s: Session) -> None:
        assert s.told == "calls were not recorded"
        await s.press("c")
        assert s.told == "no calls between this epoch and the one before"

    browse(story, script)


@pytest.fixture
def stacked(run_path: Path) -> Path:
    """Launches with call stacks: one is given a pointer to the region that changes, one is not."""
    w = Writer(run_path)
    w.function(0, "fill")
    w.function(1, "read")
    w.stack(1, [("alloc_all", "/app/memory.py", 7), ("main", "/app/train.py", 3)])
    w.stack(2, [("step", "/app/train.py", 12), ("main", "/app/train.py", 40)])
    w.stack(3, [("log", "/app/train.py", 30), ("main", "/app/train.py", 41)])
    w.born(0, floats(1), stack=1)
    w.born(1, floats(2), label="bias", stack=1)
    w.epoch("sync", "full")
    for kernel, base, stack in ((0, w.regions[0].base, 2), (1, w.regions[1].base, 3)):
        given = {"params": w.piece(base.to_bytes(8, "little")), "params_size": 8, "stack": stack}
        w.event("launch", "cuLaunchKernel", id=kernel, grid=[1] * 3, block=[32, 1, 1], **given)
    w.write(0, 0, floats(5, size=1))
    w.epoch("launch", label="read", seq=w.seq)
    w.close()
    return run_path


def test_lists_name_callers_and_allocation_sites(stacked: Path) -> None:
    async def wide(s: Session) -> None:
        assert re.search(r"1 launch read +\d+\S+ +log \(train\.py:30\)", s.text)
        site = r"memory\.py:7 in alloc_all < train\.py:3 in main"
        assert re.search(rf"0 +\S+ +1/1 device +0x7f0000000000 +{site}", s.text)
        assert re.search(rf"1 bias .* {site}", s.text)
        lists = {part: s.app.query_one(f"#{part}").size.width for part in ("epochs", "regions")}
        assert lists["regions"] > 1.4 * lists["epochs"]
        assert "is given a pointer to it: fill from step (train.py:12)" in s.told
        await s.press("c")
        assert re.search(r"fill <<<1, 32>>> +◉ given a pointer +step \(train\.py:12\)", s.text)
        assert "from step (train.py:12) < main (train.py:40)" in s.text
        await s.press("down")
        assert "from log (train.py:30) < main (train.py:41)" in s.text

    async def narrow(s: Session) -> None:
        assert re.search(r"0 memory\.py:7 i…", s.text)  # in place of a name
        assert re.search(r"1 bias ", s.text)

    browse(stacked, wide, (200, 40))
    browse(stacked, narrow)


def test_sure_and_unsure_writers_differ_in_mark_and_style(stacked: Path) -> None:
    async def script(s: Session) -> None:
        await s.press("c", "down")
        rows = s.app.screen.query_one(CallRows)
        lines = [rows.render_line(y) for y in (1, 2)]
        assert "◉ given a pointer" in lines[0].text
        assert "· given no pointer" in lines[1].text
        (sure,) = [g.style for g in lines[0] if g.style and "◉" in g.text]
        await s.press("up")
        (unsure,) = [g.style for g in rows.render_line(2) if g.style and "· given" in g.text]
        assert (sure.bold, sure.dim) != (unsure.bold, unsure.dim)
        assert unsure.dim

    browse(stacked, script, (160, 40))


def test_damaged_stacks_are_told_and_hide_nothing_else(stacked: Path) -> None:
    path = stacked / "p0" / "frames.bin"
    raw = bytearray(path.read_bytes())
    raw[70] ^= 0xFF
    path.write_bytes(raw)

    async def script(s: Session) -> None:
        assert "frames.bin: offset 64: the record does not match its check" in s.told
        assert re.search(r"1 launch read", s.text)

    browse(stacked, script, (160, 40))


def test_values_beside_the_memory_follow_the_cursor(story: Path) -> None:
    def values(s: Session) -> list[list[str]]:
        lines = [s.app.past.render_line(y).text.split() for y in range(1, s.app.past.count + 1)]
        return [line[:2] for line in lines]

    async def script(s: Session) -> None:
        await s.press("t", "enter", "right")
        await s.settle()
        assert values(s) == [["0", "2.0"], ["1", "2.5"], ["5", "9.0"]]
        assert s.app.past.cursor == 2
        await s.press("[", "[")
        assert s.app.past.cursor == 1
        await s.press("right")
        await s.settle()
        assert values(s) == [["0", "3.0"]]
        await s.press("left", "tab", "up")
        assert s.where == (0, 0, 4)
        await s.press("v")
        assert not s.app.past.display
        assert s.app.view.size.width == 130
        await s.press("v")
        s.app.go_to(region=1, offset=8)
        await s.settle()
        assert values(s) == [["0", "0.0"], ["4", "inf"]]
        await s.pilot.resize_terminal(100, 40)
        await s.press("v")
        assert s.told == "values beside the memory need 120 columns: h shows them"

    browse(story, script, (130, 40))


# ---- what is not as it should be ----


def test_unread_memory_is_marked(run_path: Path) -> None:
    rundir.partly_read_run(run_path)

    async def script(s: Session) -> None:
        said = "uncertain: as last read"
        assert "region 0" in s.text and said not in s.text
        await s.press("g")
        await s.type("r1")
        assert "region 1" in s.text and said in s.text
        await s.press("[")
        assert "region 1" in s.text and said not in s.text

    browse(run_path, script)


def test_lost_contents_are_marked(run_path: Path) -> None:
    w = Writer(run_path)
    w.born(0, b"a" * 100, label="x")
    w.epoch("sync", "full")
    w.epoch("sync", "refused")
    w.write(0, 0, b"b")
    w.epoch("sync", "dropped")
    w.write(0, 0, b"c")
    w.epoch("sync")
    w.close()

    async def script(s: Session) -> None:
        assert "63 61 61" in s.text
        await s.press("[")
        assert "are lost: 1 of its 1 blocks were not stored" in joined(s.text)
        assert re.search(r"2 sync .*D", s.text)
        await s.press("[")
        assert "epoch 1 was refused: it has no contents" in s.text
        assert re.search(r"1 sync .*R", s.text)
        await s.press("[")
        assert "61 61 61" in s.text
        await s.press("]", "]", "]")
        assert "63 61 61" in s.text

    browse(run_path, script)


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("name", "at", "shown"),
    [
        ("data-00000.bin", 70, "does not match its digest"),
        ("blocks.bin", 70, "the records of epoch 0 do not match the epoch's check"),
        ("digests.bin", 70, "the records of epoch 0 do not match the epoch's check"),
        ("regions.bin", 70, "the record does not match its check"),
        ("events.bin", 70, "the record does not match its check"),
        ("strings.bin", 64 + 40, "the string does not match its check"),
        ("functions.bin", 70, "the record does not match its check"),
    ],
)
def test_damaged_contents_are_marked(story: Path, name: str, at: int, shown: str) -> None:
    """And all that is not damaged can be seen."""
    path = story / "p0" / name
    raw = bytearray(path.read_bytes())
    raw[at] ^= 0xFF
    path.write_bytes(raw)

    async def script(s: Session) -> None:
        await s.press("v")  # so that no line of the screen has two messages
        seen = [s.text]
        for key in ("[", "[", "[", "[", "[", "tab", "down", "t", "n", "h", "}", "c", "escape"):
            await s.press(key)
            seen.append(s.text)
        assert any(name in text and shown in text for text in map(joined, seen))
        if name in ("data-00000.bin", "blocks.bin", "digests.bin"):
            s.app.go_to(epoch=5, region=0, offset=100_000)
            await s.settle()
            assert shown not in s.text
        if name == "digests.bin":
            assert re.search(r"\?\s+0 sync", s.text)

    browse(story, script, (400, 24))  # no message is wrapped


def test_browser_of_an_empty_run(tmp_path: Path) -> None:
    empty = Writer(tmp_path / "empty")
    empty.close("running")
    bare = Writer(tmp_path / "bare")
    bare.epoch("sync", "full")
    bare.close()
    keys = [
        "[",
        "]",
        "{",
        "}",
        "(",
        ")",
        "n",
        "t",
        "n",
        "w",
        "h",
        "c",
        "a",
        "s",
        "m",
        "z",
        "p",
        "f",
    ]

    async def script(s: Session) -> None:
        assert "no epochs were recorded: no memory to show" in s.text
        assert "(running)" in s.lines[0]
        await s.press(*keys, "tab", "down", "tab", "down", "right", "pagedown", "end")

    async def other(s: Session) -> None:
        assert "no region is alive in epoch 0" in s.text
        await s.press(*keys, "tab", "down", "tab", "down", "right", "pagedown", "end")

    browse(tmp_path / "empty", script)
    browse(tmp_path / "bare", other)


def test_escape_sequences_in_names_are_not_printed(run_path: Path) -> None:
    w = Writer(run_path)
    w.born(0, b"abc", label="[red]x[/]\x1b[2J\n")
    w.epoch("api", "full", label="\x1b]0;owned\x07[b]y")
    w.close()

    async def script(s: Session) -> None:
        assert r"[red]x[/]\x1b[2J\n" in s.text
        assert r"\x1b]0;owned\x07[b]y" in s.text
        assert "\x1b" not in s.text

    browse(run_path, script, (160, 24))


# ---- size and speed ----


def huge_run(path: Path, epochs: int, gibibytes: int) -> None:
    """A long run: a region of 1 MiB of which a block changes in every epoch, and a huge one of
    zeros. Written by hand, as the writer would take too long.
    """
    w = Writer(path)
    digest = xxhash.xxh3_64_intdigest
    few, many = 16, (gibibytes << 30) // BLOCK_SIZE
    pool = [bytes([i]) * BLOCK_SIZE for i in range(64)]
    names = np.array([digest(block) for block in pool], "u8")
    places = np.array([w.append("data-00000.bin", block) for block in pool], "u8")
    for region, (size, label) in enumerate(
        ((few * BLOCK_SIZE, "state"), (gibibytes << 30, "huge"))
    ):
        seq = w.event("alloc", "cuMemAlloc_v2", id=region, bytes=size)
        values: dict[str, Any] = {"op": 1, "id": region, "base": 1 << (40 + region), "size": size}
        values |= {"kind": 1, "flags": layout.CAPTURED, "seq": seq, "label": w.string(label)}
        born = rundir.record(layout.REGION, call=0, module=layout.NO_ID, **values)
        w.append("regions.bin", rundir.seal(born))
    which = np.arange(1, epochs) % len(pool)
    blocks = np.zeros(few + many + epochs - 1, layout.BLOCK)
    blocks["length"], blocks["region"][few : few + many] = BLOCK_SIZE, 1
    blocks["block"][:few], blocks["block"][few : few + many] = np.arange(few), np.arange(many)
    blocks["block"][few + many :] = np.arange(1, epochs) % few
    blocks["digest"], blocks["offset"] = names[0], places[0]
    blocks["digest"][few + many :], blocks["offset"][few + many :] = names[which], places[which]
    digests = np.zeros(epochs + 1, layout.DIGEST)
    digests["changed"], digests["region"][1] = 1, 1
    digests["changed"][:2] = few, many
    state = np.full(few, names[0])
    digests["digest"][0] = digest(state.tobytes())
    digests["digest"][1] = digest(np.full(many, names[0]).tobytes())
    for i in range(1, epochs):
        state[i % few] = names[which[i - 1]]
        digests["digest"][i + 1] = digest(state.tobytes())
    events = np.zeros(epochs, layout.EVENT)
    events["seq"] = 10 + np.arange(epochs)
    events["kind"], events["id"] = layout.EVENT_KINDS.index("epoch"), np.arange(epochs)
    cut = np.zeros(epochs, layout.EPOCH)
    cut["number"], cut["trigger"], cut["label"] = np.arange(epochs), 1, layout.NO_ID
    cut["flags"][0], cut["seq"], cut["bytes_changed"] = layout.FULL, events["seq"], BLOCK_SIZE
    for kind, records, first in (("digests", digests, 2), ("blocks", blocks, few + many)):
        cut[f"{kind}_count"], cut[f"{kind}_first"][1:] = 1, first + np.arange(epochs - 1)
        cut[f"{kind}_count"][0] = first
        raw, size = records.tobytes(), records.itemsize
        sums = [digest(raw[: first * size])]
        sums += [digest(raw[i * size : (i + 1) * size]) for i in range(first, len(records))]
        cut[f"{kind}_check"] = sums
        w.append(f"{kind}.bin", raw)
    w.append("events.bin", rundir.seal(events))
    w.append("epochs.bin", rundir.seal(cut))
    w.close()


@pytest.mark.long
def test_long_run_and_huge_region_stay_fast(
    run_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """100,000 epochs and 100 GiB: no more is looked at than can be seen."""
    huge_run(run_path, 100_000, 100)
    rows, most = [], []
    epoch_rows, read = Timeline.epoch_rows, Timeline.bytes

    def counting(self: Timeline, first: int, last: int, region: int | None) -> Any:
        rows.append(last - first)
        return epoch_rows(self, first, last, region)

    def reading(self: Timeline, epoch: int, region: int, start: int, stop: int) -> Any:
        most.append(stop - start)
        return read(self, epoch, region, start, stop)

    monkeypatch.setattr(Timeline, "epoch_rows", counting)
    monkeypatch.setattr(Timeline, "bytes", reading)
    began = time.process_time()

    async def script(s: Session) -> None:
        assert "epoch 99999 of 99999" in s.lines[0]
        s.app.go_to(region=1, offset=99 << 30)
        await s.settle()
        assert "huge, device  100.0 GiB" in s.text
        assert "18c0000000  00 00" in s.text
        opened = time.process_time() - began
        await s.press("enter", "end", "pageup", "pagedown")
        assert s.app.view.cursor == (100 << 30) - 1
        await s.press("{")
        assert s.app.epoch == 0
        await s.press("g")
        await s.type("e50000 r0")
        await s.press("shift+tab", "shift+tab")
        for _ in range(20):
            await s.press("pagedown")
        assert s.app.epoch > 50_000 + 20 * 5
        await s.press("home", "end")
        assert s.app.epoch == 99_999
        assert "99999 sync" in s.text
        assert opened < 10
        assert time.process_time() - began < 30

    browse(run_path, script)
    assert max(rows) < 100
    assert max(most) < 4096


@pytest.mark.long
@pytest.mark.sampled
@pytest.mark.parametrize("size", [(20, 6), (40, 10), (132, 43), (300, 100)])
def test_any_terminal_size(story: Path, size: tuple[int, int]) -> None:
    async def script(s: Session) -> None:
        for key in ("t", "T", "tab", "down", "tab", "down", "right", "z", "z", "c", "escape", "?"):
            await s.press(key)
        await s.press("escape")
        assert max(map(len, s.lines)) <= size[0]
        await s.pilot.resize_terminal(100, 30)
        await s.settle()
        assert "weights" in s.text
        assert "00000000" in s.text

    browse(story, script, size)


def test_screen_stays_responsive_while_reading(
    story: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys work while something is read; of what was asked for meanwhile the last is shown."""
    gate, window, asked = threading.Event(), Timeline.window, []

    def slow(self: Timeline, epoch: int, *rest: Any) -> Any:
        asked.append(epoch)
        gate.wait(60)
        return window(self, epoch, *rest)

    def shows(s: Session, words: str) -> bool:
        return words in s.lines[0]

    async def script(s: Session) -> None:
        monkeypatch.setattr(Timeline, "window", slow)
        for epoch in range(4, -1, -1):
            s.send("[")
            await s.until(partial(shows, s, f"epoch {epoch} of 5"))
        await s.until(lambda: bool(asked))
        assert len(asked) == 1
        gate.set()
        await s.settle()
        assert asked[-1] == 0
        assert len(asked) < 5
        assert "00 00 80 3f 00 00 00 40" in s.text

    browse(story, script)


def test_search_shows_progress_and_can_be_cancelled(
    story: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ttanalyze.tui import search

    def endless(*arguments: Any) -> None:
        while True:
            arguments[-1].report(1, 4)
            time.sleep(0.01)

    monkeypatch.setattr(search, "region_change", endless)

    async def script(s: Session) -> None:
        s.send("{")
        await s.until(lambda: s.told == "searching, 25%; escape stops it")
        s.send("[")
        await s.until(lambda: "epoch 4 of 5" in s.lines[0])
        await s.press("escape")
        assert s.told == "stopped"
        await s.press("[")
        assert "since epoch" in s.told

    browse(story, script)


# ---- the mouse ----


def test_mouse_selects_items(story: Path) -> None:
    async def script(s: Session) -> None:
        await s.pilot.click("#epochs", offset=(5, 2))
        await s.settle()
        assert s.app.epoch == 1
        await s.press("a")
        await s.pilot.click("#regions", offset=(10, 2))
        await s.settle()
        assert s.app.region == 1
        for x, y, offset in (
            (10, 1, 0),
            (13, 1, 1),
            (31, 2, 0x17),
            (35, 1, 8),
            (60, 1, 0),
            (75, 3, 47),
        ):
            await s.pilot.click("#memory", offset=(x, y))
            await s.settle()
            assert s.app.view.cursor == offset
        await s.press("t")
        await s.pilot.click("#memory", offset=(30, 3))
        await s.settle()
        assert s.app.view.cursor == 2 * 16 + 4
        await s.pilot.click("#epochs", offset=(5, 1), times=2)
        await s.settle()
        assert s.app.epoch == 0
        assert isinstance(s.app.focused, View)

    browse(story, script)


# ---- the rest ----


def test_help_lists_every_key(story: Path) -> None:
    async def script(s: Session) -> None:
        await s.press("?")
        for binding in KEYS:
            assert binding.tooltip in s.text
        for key in ("[ ,", "] .", "{ <", "} >", "( -", ") +", "? f1", "/", "tab shift+tab"):
            assert f"\n  {key} " in s.text
        await s.press("?")
        assert "weights" in s.text

    browse(story, script, (100, 60))


def test_tui_page_lists_every_key_and_type() -> None:
    page = (support.ROOT / "docs" / "guides" / "tui.md").read_text()
    for binding in KEYS:
        assert f" | {binding.tooltip} |" in page
    for name in ("hex", "f32", "bf16", "e4m3", "i8", "u64", "bool", "c64", "c128"):
        assert name in NAMES
        assert name in page


def test_keys_switch_processes(tmp_path: Path) -> None:
    for index in (0, 3):
        w = Writer(tmp_path / "run", index)
        w.born(0, bytes([index]) * 20, label=f"of {index}")
        w.epoch("sync", "full")
        w.close()

    async def script(s: Session) -> None:
        assert "process 0, one of 2" in s.lines[0]
        await s.press("p")
        assert "process 3, one of 2" in s.lines[0]
        assert "of 3, device" in s.text
        assert "03 03 03" in s.text
        await s.press("p")
        assert "of 0, device" in s.text

    browse(tmp_path / "run", script)
    with pytest.raises(tt.Error, match="no process 1"):
        browse(tmp_path / "run", script, process=1)


def test_growing_run_is_reloaded(run_path: Path) -> None:
    w = Writer(run_path)
    w.born(0, b"old")
    w.epoch("sync", "full")
    w.close("running")

    async def script(s: Session) -> None:
        w.write(0, 0, b"new")
        w.epoch("sync")
        await s.press("R")
        assert s.told == "1 new epoch"
        assert s.app.epoch == 0
        await s.press("]")
        assert "6e 65 77" in s.text
        (run_path / "run.json").write_text("{")
        await s.press("R")
        assert "run.json: offset 1: not JSON" in s.told
        assert "6e 65 77" in s.text

    browse(run_path, script, (200, 24))


def test_short_sizes() -> None:
    sizes = [0, 999, 1024, 1536, 102_400, 1 << 20, 156 << 10, 1023 << 20, 100 << 30, 5 << 50]
    told = [brief(size) for size in sizes]
    assert told == ["0", "999", "1.0K", "1.5K", "100K", "1.0M", "156K", "1023M", "100G", "5120T"]
    assert max(map(len, told)) <= 5


# ---- as a command ----


def at_terminal(
    arguments: list[str | Path], keys: bytes, *words: bytes, **environment: str
) -> tuple[int, str]:
    """Runs the command on a terminal of 80x24; presses keys when the footer and words are there."""
    parent, child = pty.openpty()
    ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    bare = {k: v for k, v in support.bare_environment().items() if k not in ("NO_COLOR", "TERM")}
    process = subprocess.Popen(
        [sys.executable, "-m", "ttanalyze", *map(str, arguments)],
        stdin=child,
        stdout=child,
        stderr=child,
        cwd=support.ROOT,
        env=bare | {"TERM": "xterm-256color"} | environment,
        start_new_session=True,
    )
    os.close(child)
    seen, until, pressed = b"", time.monotonic() + 60, False
    while time.monotonic() < until:
        if select.select([parent], [], [], 0.1)[0]:
            try:
                piece = os.read(parent, 65536)
            except OSError:
                break
            if not piece:
                break
            seen += piece
        elif not pressed and all(word in seen for word in (b"Quit", *words)):
            os.write(parent, keys)
            pressed = True
    os.close(parent)
    return process.wait(60), seen.decode(errors="replace")


def test_tui_command(story: Path) -> None:
    arguments: list[str | Path] = ["tui", story, "--epoch", "3", "--offset", "0x186a0"]
    status, seen = at_terminal([*arguments, "--dtype", "f32"], b"q", b"nan")
    assert status == 0
    assert "epoch 3 of 5" in seen
    assert "nan" in seen
    assert re.search(r"\x1b\[[0-9;]*38;", seen)
    assert "\x1b[?1049l" in seen  # the screen is what it was before
    assert "Traceback" not in seen


def test_no_color_is_followed(story: Path) -> None:
    status, seen = at_terminal(["tui", story], b"]q", b"weights", NO_COLOR="1")
    assert status == 0
    assert "weights" in seen
    codes = {code for found in re.findall(r"\x1b\[([0-9;]*)m", seen) for code in found.split(";")}
    assert codes <= {"", "0", "1", "2", "3", "4", "7", "39", "49"}  # 39, 49: no colour
    assert {"1", "4", "7"} <= codes


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--epoch", "6"], "no epoch 6: there are epochs 0 to 5"),
        (["--region", "7"], "no region '7' in process 0"),
        (["--process", "1"], "no process 1"),
        (["--offset", "x"], "--offset x: expected a number such as 4096, 4K or 0x1000"),
        (["--dtype", "f12"], "f12"),
    ],
)
def test_command_errors(story: Path, arguments: list[str], reason: str) -> None:
    status, seen = at_terminal(["tui", story, *arguments], b"q")
    assert status == 2
    assert seen.startswith("ttanalyze: ")
    assert reason in seen
    assert seen.count("\n") == 1


def test_missing_terminal_or_textual_is_explained(story: Path, tmp_path: Path) -> None:
    outcome = support.ttanalyze("tui", story)
    message = "ttanalyze: tui: standard input, output and error must be a terminal\n"
    assert outcome == support.Outcome("", message, 2)
    (tmp_path / "textual.py").write_text("raise ImportError\n")
    path = f"{tmp_path}:{support.ROOT}"
    status, seen = at_terminal(["tui", story], b"q", PYTHONPATH=path)
    assert status == 2
    assert seen == "ttanalyze: tui needs textual: pip install 'ttanalyze[tui]'\r\n"
