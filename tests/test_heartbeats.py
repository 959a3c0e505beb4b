"""What heartbeats of warps say: which wait, and whether a launch moves."""

from __future__ import annotations

import ctypes
import json
import os
import shlex
import subprocess
from collections.abc import Callable

import numpy as np
import pytest

from tests.support import ROOT

pytestmark = pytest.mark.native
BEAT = np.dtype(
    [
        *(("instruction", "u4"), ("state", "u4"), ("object", "u8"), ("count", "u8")),
        *(("repeated", "u8"), ("changed", "u8"), ("seen", "u8", 2), ("access", "u4")),
        *(("first", "u4"), ("last", "u4"), ("exited", "u4"), ("barriers", "u8")),
    ]
)
RUNS, NUMBERED, ALL = 1, 5, 2**32 - 1
Told = Callable[[list[dict[str, int]]], tuple[dict[str, int], bool]]


def barrier(count: int = 0, number: int = 0, threads: int = 0) -> dict[str, int]:
    """A warp that has come to its barrier number `count`."""
    return {"state": NUMBERED | number << 8 | threads << 16 | (count % 16) << 28, "instruction": 7}


def loop(passes: int) -> dict[str, int]:
    """One that repeats a loop, between readings with 0 and so many passes."""
    return {"state": RUNS, "count": passes, "repeated": passes, "last": 9}


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Told:
    """Of a block whose warps did this: how many do what, and whether it may do something."""
    made = tmp_path_factory.mktemp("heartbeats") / "libheartbeats.so"
    sources = ("instrument/heartbeats.c", "util/json_writer.c", "util/clock.c")
    subprocess.run(
        [
            *shlex.split(os.environ.get("CC", "cc")),
            *("-std=gnu11", "-D_GNU_SOURCE=", "-O2", "-fPIC", "-shared", "-fvisibility=hidden"),
            *shlex.split(os.environ.get("CFLAGS", "")),
            *(f"-I{ROOT / 'interpose' / name}" for name in ("", "include", "third_party")),
            *(str(ROOT / "interpose" / name) for name in sources),
            *(str(ROOT / "tests" / "heartbeats_harness.c"), "-o", str(made)),
        ],
        check=True,
    )
    harness = ctypes.CDLL(str(made)).harness_heartbeats
    harness.restype = ctypes.c_char_p

    def say(warps: list[dict[str, int]]) -> tuple[dict[str, int], bool]:
        now, moved = np.zeros(len(warps), BEAT), ctypes.c_int()
        for i, warp in enumerate(warps):
            for member, value in warp.items():
                now[i][member] = value
        before = now.copy()
        for member in ("count", "repeated", "changed"):
            before[member] = 0
        parts = before.ctypes.data_as(ctypes.c_void_p), now.ctypes.data_as(ctypes.c_void_p)
        text = json.loads(harness(*parts, 32 * len(warps), ctypes.byref(moved)))
        return {group["state"]: group["count"] for group in text["groups"]}, bool(moved.value)

    return say


def test_a_barrier_waits_for_warps_that_have_not_come_to_it(told: Told) -> None:
    assert told([barrier(2), barrier(2), barrier(1)]) == ({"barrier": 2, "silent": 1}, True)
    assert told([barrier(16), barrier(15)]) == ({"barrier": 1, "silent": 1}, True)
    assert told([barrier(3), barrier(3)]) == ({"silent": 2}, True)


def test_warps_that_have_exited_are_not_waited_for(told: Told) -> None:
    assert told([barrier(3), {"exited": ALL}]) == ({"silent": 1, "exited": 1}, True)


def test_a_barrier_and_a_loop_do_not_move(told: Told) -> None:
    assert told([barrier(3), loop(2048)]) == ({"barrier": 1, "loops": 1}, False)
    assert told([barrier(3), barrier(3), {}]) == ({"barrier": 2, "not started": 1}, False)
    assert told([barrier(0, 1, 96), barrier(0, 1, 96), {"exited": ALL}])[1] is False
