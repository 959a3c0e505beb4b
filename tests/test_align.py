"""The alignment of sequences: right, as good as it can be where it says so, and fast."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import pytest

from ttanalyze.core import align as aligning
from ttanalyze.core.align import Alignment, align
from ttanalyze.format.layout import Array

LONG = 200_000


def longest(a: list[int], b: list[int]) -> int:
    """The length of a longest common subsequence, the plain way."""
    row = [0] * (len(b) + 1)
    for x in a:
        before = row
        row = [0]
        for j, y in enumerate(b):
            row.append(before[j] + 1 if x == y else max(row[j], before[j + 1]))
    return row[-1]


def check(a: Array, b: Array, found: Alignment) -> None:
    """What corresponds is equal and in the same order on both sides."""
    assert (np.diff(found.a) > 0).all()
    assert (np.diff(found.b) > 0).all()
    np.testing.assert_array_equal(a[found.a], b[found.b])


def two_sequences(random: np.random.Generator) -> tuple[Array, Array]:
    """Unrelated, or one made of the other by edits, or periodic ones."""
    a = random.integers(0, random.integers(1, 8), random.integers(0, 60))
    way = random.integers(0, 3)
    if way == 0 or len(a) < 4:
        return a, random.integers(0, random.integers(1, 8), random.integers(0, 60))
    if way == 1:
        a = np.tile(a[:4], 12)
    b = np.delete(a, random.integers(0, len(a), random.integers(0, 4)))
    places = random.integers(0, len(b) + 1, random.integers(0, 4))
    return a, np.insert(b, places, random.integers(0, 9, len(places)))


@pytest.mark.parametrize("seed", range(4))
def test_alignment_is_longest(seed: int) -> None:
    random = np.random.default_rng(seed)
    for _ in range(300):
        a, b = two_sequences(random)
        found = align((a, b))
        check(a, b, found)
        assert found.exact
        assert len(found.a) == longest(a.tolist(), b.tolist())


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("cells", "edits", "window", "kept"),
    [(0, 1000, 8, 6), (0, 3, 8, 6), (0, 0, 8, 6), (30, 0, 16, 12), (0, 0, 2, 1)],
    ids=["few edits", "up to three", "never exact", "small boxes", "narrow window"],
)
def test_long_sequence_algorithms_are_correct(
    monkeypatch: pytest.MonkeyPatch, cells: int, edits: int, window: int, kept: int
) -> None:
    monkeypatch.setattr(aligning, "CELLS", cells)
    monkeypatch.setattr(aligning, "SMALL", 0)
    monkeypatch.setattr(aligning, "MOST_EDITS", edits)
    monkeypatch.setattr(aligning, "WINDOW", window)
    monkeypatch.setattr(aligning, "KEPT", kept)
    random = np.random.default_rng(7)
    exact = 0
    for _ in range(600):
        a, b = two_sequences(random)
        found = align((a, b))
        check(a, b, found)
        if found.exact:
            exact += 1
            assert len(found.a) == longest(a.tolist(), b.tolist())
    assert exact > 50
    assert exact == 600 or edits < 1000


def test_empty_and_disjoint_sequences() -> None:
    none, some = np.empty(0, "i8"), np.arange(5)
    for a, b in [(none, none), (none, some), (some, none), (some, some + 10)]:
        found = align((a, b))
        assert len(found.a) == len(found.b) == 0
        assert found.exact


def test_next_level_fills_gaps() -> None:
    """Items that are only alike correspond between those that are the same."""
    a = np.array([1, 20, 3, 40, 5, 6])
    b = np.array([1, 21, 3, 5, 60, 6])
    found = align((a, b), (a // 10, b // 10))
    pairs = list(zip(found.a.tolist(), found.b.tolist(), found.level.tolist(), strict=True))
    assert pairs == [(0, 0, 0), (1, 1, 1), (2, 2, 0), (4, 3, 0), (5, 5, 0)]


@pytest.mark.parametrize("seed", range(3))
def test_levels_never_cross(seed: int) -> None:
    random = np.random.default_rng(seed)
    for _ in range(200):
        a, b = two_sequences(random)
        found = align((a, b), (a // 2, b // 2), (a * 0, b * 0))
        assert (np.diff(found.a) > 0).all()
        assert (np.diff(found.b) > 0).all()
        for level, wide in ((0, 1), (1, 2)):
            at = found.level == level
            np.testing.assert_array_equal(a[found.a[at]] // wide, b[found.b[at]] // wide)
        gaps = [np.diff(at, prepend=-1, append=len(of)) for at, of in ((found.a, a), (found.b, b))]
        assert (np.minimum(*gaps) == 1).all(), "by the last level all are alike"


# ---- long sequences ----


def steps(kinds: int = 50) -> Array:
    """The launches of a training loop: the same hundred kernels in each step."""
    out: Array = np.tile(np.random.default_rng(1).integers(0, kinds, 100), LONG // 100)
    return out


def inserted(a: Array, count: int, kinds: int, first: int = 0) -> Array:
    random = np.random.default_rng(2)
    places = random.integers(0, len(a), count)
    out: Array = np.insert(a, places, first + random.integers(0, kinds, count))
    return out


def half_of_them_changed(a: Array) -> Array:
    b: Array = a.copy()
    b[::2] += 1000
    return b


def without(a: Array, count: int) -> Array:
    out: Array = np.delete(a, np.random.default_rng(3).choice(len(a), count, replace=False))
    return out


CHANGES: dict[str, tuple[Callable[[Array], Array], int]] = {
    "one extra": (lambda a: np.insert(a, LONG // 2, 7), LONG),
    "twenty of another kernel": (lambda a: inserted(a, 20, 1, 777), LONG),
    "many of another kernel": (lambda a: inserted(a, 400, 1, 777), LONG),
    "many of the same kernels": (lambda a: inserted(a, 400, 50), LONG),
    "many missing": (lambda a: without(a, 400), LONG - 400),
    "two phases more": (
        lambda a: np.insert(a, [60_000] * 10_000 + [140_000] * 14_000, 777),
        LONG,
    ),
    "every other one changed": (half_of_them_changed, LONG // 2),
    "a part moved": (lambda a: np.roll(a, 50), LONG - 50),
    "shorter": (lambda a: a[: LONG // 2], LONG // 2),
}


@pytest.mark.parametrize("what", CHANGES)
def test_long_sequences_are_aligned_in_a_second(what: str) -> None:
    change, expected = CHANGES[what]
    a = steps()
    b = change(a)
    began = time.process_time()
    found = align((a, b))
    taken = time.process_time() - began
    check(a, b, found)
    assert len(found.a) >= 0.999 * expected
    assert taken < 4  # below 0.5 on a quiet machine


@pytest.mark.long
@pytest.mark.parametrize(
    "b",
    [
        np.random.default_rng(5).integers(0, 50, LONG),
        np.random.default_rng(6).integers(0, 2, LONG),
        np.arange(LONG)[::-1].copy(),
        np.random.default_rng(7).permutation(LONG),
        np.zeros(LONG, "i8"),
    ],
    ids=["random", "two kernels", "backwards", "shuffled", "one kernel"],
)
def test_hopeless_sequences_take_no_longer(b: Array) -> None:
    for a in (steps(), np.arange(LONG)):
        began = time.process_time()
        check(a, b, align((a, b)))
        assert time.process_time() - began < 5  # below 0.8 on a quiet machine
