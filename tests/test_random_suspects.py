"""Suspects of a difference are those of a simple model, in two random runs of one script."""

from __future__ import annotations

import random
import struct
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ttanalyze as tt
from tests.rundir import Writer
from ttanalyze.core.align import Alignment
from ttanalyze.core.writers import HOW
from ttanalyze.verbs.diff import suspects
from ttanalyze.verbs.diff.match import MatchedCalls, MatchedRegions
from ttanalyze.verbs.diff.sides import Names, of_process, read_calls

FEW, MANY = range(80), range(1000, 1500)
BASES, SIZE, REGIONS = (1 << 40, 1 << 41), 64, 3
WRITES, POINTER, POSSIBLE, INDIRECT = range(4)
Word = tuple[int | None, int]  # a region and an offset, or no region and a number


@dataclass(frozen=True)
class Step:
    """A call of the script. words: a launch's parameters, None where they are not recorded."""

    kind: str
    at: Word = (0, 0)
    words: tuple[Word, ...] | None = None
    tail: bytes = b""


@dataclass(frozen=True)
class Done:
    """A step as one side did it."""

    seq: int
    step: Step
    raw: bytes


def random_word(choose: random.Random) -> Word:
    if choose.random() < 0.4:
        return None, choose.choice((0, 3, 300, (1 << 64) - 1))
    return choose.randrange(REGIONS), choose.choice((0, 8, 16, SIZE - 1))


def random_step(choose: random.Random) -> Step:
    kind = choose.choice(("launch", "launch", "launch", "copy", "set"))
    if kind != "launch":
        return Step(kind, (choose.randrange(REGIONS), choose.randrange(SIZE)))
    if choose.random() < 0.15:
        return Step(kind)
    words = tuple(random_word(choose) for _ in range(choose.randint(1, 3)))
    return Step(kind, words=words, tail=choose.choice((b"", b"", b"\x01\x02")))


def changed(step: Step, choose: random.Random) -> Step:
    """Another one of that kind, as a program might make it in the other run."""
    if step.words is None:
        return step
    words = list(step.words)
    words[choose.randrange(len(words))] = random_word(choose)
    tail = choose.choice((*[step.tail] * 4, b"", b"\x01\x03"))
    return replace(step, words=tuple(words), tail=tail)


class Side:
    """Does steps and records them; regions have other numbers and addresses on either side."""

    def __init__(self, path: Path, base: int, order: list[int]) -> None:
        self.w, self.base, self.order = Writer(path), base, order
        self.done: list[Done] = []
        for number in range(REGIONS):
            self.w.born(number, bytes(SIZE), base=base + number * 2 * SIZE)

    def address(self, word: Word) -> int:
        region, offset = word
        return offset if region is None else self.base + self.order[region] * 2 * SIZE + offset

    def do(self, step: Step) -> int:
        """Gives which of its calls this is."""
        given: dict[str, Any] = {"dst": self.address(step.at), "bytes": 1}
        raw = b""
        if step.kind == "launch":
            given = {"id": 0, "grid": [2, 1, 1]}
        if step.words is not None:
            raw = struct.pack(f"<{len(step.words)}Q", *map(self.address, step.words)) + step.tail
            given |= {"params": self.w.piece(raw), "params_size": len(raw)}
        self.done.append(Done(self.w.event(step.kind, **given), step, raw))
        return len(self.done) - 1


def how_of(step: Step, region: int) -> int | None:
    """How sure it is that a step wrote to a region."""
    if step.kind != "launch":
        return WRITES if step.at[0] == region else None
    if step.words is None:
        return POSSIBLE
    return POINTER if any(word[0] == region for word in step.words) else INDIRECT


def compared(one: Done, other: Done) -> tuple[str, int | None] | None:
    """Whether two launches were given the same, and the first byte where not."""
    a, b = one.step.words, other.step.words
    if a is None or b is None:
        return None
    if len(one.raw) != len(other.raw):
        return "different", min(len(one.raw), len(other.raw))
    unequal = [i for i in range(len(one.raw)) if one.raw[i] != other.raw[i]]
    for i, (x, y) in enumerate(zip(a, b, strict=True)):
        if x != y:
            pointers = x[0] is not None and y[0] is not None
            return "different", 8 * i if pointers else next(at for at in unequal if at >= 8 * i)
    behind = [at for at in unequal if at >= 8 * len(a)]
    return ("different", behind[0]) if behind else ("same", None)


def check(path: Path, seed: int) -> None:
    choose = random.Random(seed)
    order = choose.sample(range(REGIONS), REGIONS)
    sides = Side(path / "a", BASES[0], list(range(REGIONS))), Side(path / "b", BASES[1], order)
    pairs: list[tuple[int, int]] = []
    for _ in range(choose.randint(1, 18)):
        step = random_step(choose)
        who = choose.choices(("both", "a", "b"), (8, 1, 1))[0]
        other = changed(step, choose) if choose.random() < 0.5 else step
        if who == "both":
            pairs.append((sides[0].do(step), sides[1].do(other)))
        else:
            sides["ab".index(who)].do(step)
    region = choose.randrange(REGIONS)
    spans = []
    for side in sides:
        after = choose.choice((0, choose.randint(0, side.w.seq)))
        spans.append((after, choose.choice((side.w.seq, choose.randint(after, side.w.seq)))))
        side.w.close()
    processes = [tt.open(path / name).processes[0] for name in "ab"]
    names = Names()
    forms = [of_process(process, names) for process in processes]
    calls = [read_calls(form, names) for form in forms]
    assert calls[0] is not None and calls[1] is not None
    at = np.array(pairs, "i8").reshape(-1, 2)
    found = Alignment(at[:, 0], at[:, 1], np.zeros(len(at), "u1"), True)
    matched = MatchedCalls(calls[0], calls[1], found, np.zeros(len(at), "i8"))
    rows = np.arange(REGIONS), np.array(order)
    regions = MatchedRegions(forms[0].regions, forms[1].regions, *rows)
    known = choose.random() < 0.9
    windows = [
        suspects.Window(process, number, *span)
        for process, number, span in zip(processes, (region, order[region]), spans, strict=True)
    ]
    got, count = suspects.find(windows[0], windows[1], matched if known else None, regions)

    hows: dict[tuple[int | None, int | None], int] = {}
    for which, side in enumerate(sides):
        for number, done in enumerate(side.done):
            how = how_of(done.step, region)
            if how is None or not spans[which][0] < done.seq <= spans[which][1]:
                continue
            partner = next((pair for pair in pairs if pair[which] == number), None)
            key: list[int | None] = [None, None]
            key[which] = number
            if partner is not None and known:
                key = list(partner)
            hows[key[0], key[1]] = min(how, hows.get((key[0], key[1]), INDIRECT))
    expected = []
    for (i, j), how in hows.items():
        one = None if i is None else sides[0].done[i]
        other_one = None if j is None else sides[1].done[j]
        alone = known and (one is None or other_one is None)
        result = compared(one, other_one) if one and other_one else None
        odd = how < INDIRECT and (alone or (result is not None and result[0] == "different"))
        seqs = one.seq if one else 0, other_one.seq if other_one else 0
        said = result or (None, None)
        where = said[1]
        raws = [
            None if where is None or done is None else done.raw[where : where + 8].hex()
            for done in (one, other_one)
        ]
        done_by = one or other_one
        assert done_by is not None
        kind = done_by.step.kind
        shown = (seqs[0] or None, seqs[1] or None, alone, HOW[how], *said, *raws, kind)
        expected.append(((not odd, how, max(seqs), seqs), shown))
    expected.sort()
    assert count == len(expected), seed
    assert [
        (
            *(s.seq_a, s.seq_b, s.alone, s.how, s.parameters, s.parameter_offset),
            *(s.parameters_a, s.parameters_b, s.kind),
        )
        for s in got
    ] == [shown for _, shown in expected[: suspects.LISTED]], seed
    for suspect in got:
        launch = suspect.kind == "launch"
        assert (suspect.grid, suspect.bytes) == (([2, 1, 1], None) if launch else (None, 1))


def test_suspects_equal_a_model(tmp_path: Path) -> None:
    for seed in FEW:
        check(tmp_path / str(seed), seed)


@pytest.mark.long
def test_suspects_of_many_runs_equal_a_model(tmp_path: Path) -> None:
    for seed in MANY:
        check(tmp_path / str(seed), seed)
