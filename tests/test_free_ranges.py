"""Where the recorder puts what it keeps of regions: places come back, whatever the order in which
the program frees.
"""

from __future__ import annotations

import ctypes
import itertools
import random
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.ptx_machine import sanitizers
from tests.support import ROOT

pytestmark = pytest.mark.native
SLAB = 1 << 20
LIVE = 30_000


class Ranges(ctypes.Structure):
    _fields_ = (
        ("list", ctypes.POINTER(ctypes.c_uint64)),
        ("count", ctypes.c_size_t),
        ("room", ctypes.c_size_t),
    )


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Any:
    built = tmp_path_factory.mktemp("ranges") / "libranges.so"
    source = ROOT / "interpose" / "capture" / "free_ranges.c"
    command = [
        "gcc",
        "-std=gnu11",
        f"-I{ROOT / 'interpose'}",
        *sanitizers(),
        "-O1",
        "-g",
        "-fPIC",
        "-shared",
    ]
    subprocess.run([*command, "-o", str(built), str(source)], check=True)
    out = ctypes.CDLL(str(built))
    for name in ("add", "take", "remove"):
        getattr(out, f"free_ranges_{name}").restype = ctypes.c_bool
    return out


@contextmanager
def ranges(library: Any) -> Iterator[Any]:
    made = Ranges()
    yield ctypes.byref(made)
    library.free_ranges_end(ctypes.byref(made))


def u64(value: int) -> Any:
    return ctypes.c_uint64(value)


def test_freed_ranges_are_reused(library: Any) -> None:
    """After 60,000 allocations and frees in random order there are few slabs more than the most
    that was in use at a time takes, and in the end each is one free range again.
    """
    source = random.Random(1)
    slabs = 0
    used: list[tuple[int, int]] = []
    at = ctypes.c_uint64()
    with ranges(library) as free:
        most = total = 0
        for _ in range(60_000):
            if used and (len(used) >= LIVE or source.random() < 0.4):
                i = source.randrange(len(used))
                used[i], used[-1] = used[-1], used[i]
                start, size = used.pop()
                total -= size
                assert library.free_ranges_add(free, u64(start), u64(size))
                continue
            size = 8 * source.choice((1, 1, 1, 2, 16, 160))
            while not library.free_ranges_take(free, u64(size), ctypes.byref(at)):
                slabs += 1
                assert library.free_ranges_add(free, u64(slabs * 2 * SLAB), u64(SLAB))
            used.append((at.value, size))
            total += size
            most = max(most, total)
        assert slabs <= most // SLAB + 2
        ordered = sorted(used)
        assert all(a + size <= b for (a, size), (b, _) in itertools.pairwise(ordered))
        for start, size in used:
            assert library.free_ranges_add(free, u64(start), u64(size))
        for slab in range(1, slabs + 1):
            assert library.free_ranges_remove(free, u64(slab * 2 * SLAB), u64(SLAB))
        assert not library.free_ranges_take(free, u64(1), ctypes.byref(at))
