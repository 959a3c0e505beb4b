"""Random calls: what orders them, and what they may have written to, as simple models say."""

from __future__ import annotations

import random
import struct
from pathlib import Path
from typing import Any

import pytest

import ttanalyze as tt
from tests.device_order import CAPTURING, HOST_DST, Program
from tests.rundir import Writer
from ttanalyze.core import order, writers
from ttanalyze.core.order import calls_between, unordered

WEIGHTS = (6, 1, 1, 2, 2, 15)
FEW, MANY = range(20), range(1000, 1600)


def random_order(path: Path, seed: int) -> tuple[dict[int, set[int]], dict[int, int]]:
    """Writes a run. Gives, of each piece of work by seq, what comes before it and its node."""
    choose, w = random.Random(seed), Writer(path)
    program = Program(w, choose)
    links = [([7], []), ([], [8]), ([8], [7]), ([], [])]
    for waits, records in links:
        names = [("event-wait", handle) for handle in waits]
        names += [("event-record", handle) for handle in records]
        w.graph([{"kind": kind, "src": handle} for kind, handle in names])
    for _ in range(50):
        kind = choose.choices(("launch", "launch-host", "set", "copy", "graph", "order"), WEIGHTS)
        if kind == ["order"]:
            program.orders()
        elif kind == ["copy"]:
            program.copy()
        elif kind == ["graph"]:
            graph = choose.randrange(5)
            program.launch_graph(graph, *(links[graph] if graph < 4 else ([], [])))
        else:
            program.work(kind[0])
    w.close()
    return program.before(), program.nodes


def check_order(path: Path, seed: int) -> None:
    before, nodes = random_order(path, seed)
    process = tt.open(path).processes[0]
    choose = random.Random(seed)
    last = max(before, default=0)
    for after in (0, *(choose.randint(0, last) for _ in range(4))):
        calls = calls_between(process, after, last)
        seqs = [call.event.seq for call in calls]
        assert seqs == sorted(seq for seq in before if seq > after)
        for one, a in zip(seqs, calls, strict=True):
            for other, b in zip(seqs, calls, strict=True):
                if one < other:
                    assert unordered(a, b) == (nodes[one] not in before[other]), (seed, one, other)


def test_work_of_all_contexts_is_examined(run_path: Path) -> None:
    writer = Writer(run_path)
    seqs = [writer.event("launch", stream=16 + i, context=i) for i in range(3)]
    writer.close()
    process = tt.open(run_path).processes[0]
    assert [call.event.seq for call in calls_between(process, 0, 99)] == seqs


def test_only_the_last_of_very_many_calls_are_examined(
    run_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = Writer(run_path)
    seqs = [writer.event("launch") for _ in range(5)]
    writer.close()
    monkeypatch.setattr(order, "MOST", 3)
    found = calls_between(tt.open(run_path).processes[0], 0, 99)
    assert [call.event.seq for call in found] == seqs[2:]


@pytest.mark.parametrize("seed", FEW)
def test_call_order_equals_a_model(tmp_path: Path, seed: int) -> None:
    check_order(tmp_path / "run", seed)


@pytest.mark.long
def test_order_of_many_calls_equals_a_model(tmp_path: Path) -> None:
    for seed in MANY:
        check_order(tmp_path / str(seed), seed)


# ---- writers ----


def check_writers(path: Path, seed: int) -> None:
    """Compares writers with a model: two contexts reuse a few addresses."""
    choose, w = random.Random(seed), Writer(path)
    w.function(0, "k")
    lives: dict[int, list[int]] = {}  # base, size, birth, death, context
    there: set[int] = set()
    calls: list[tuple[int, str, int, int, list[int] | None, int]] = []
    for _ in range(60):
        what = choose.choices(("born", "died", "copy", "set", "launch", "not"), (3, 1, 4, 2, 5, 2))[
            0
        ]
        context = choose.randint(0, 1)
        spot = choose.randrange(6)
        address = (1 << 40) + (spot << 12) + choose.choice((0, 0, 8, 100, 4000))
        if what == "born":
            spots = {lives[region][0] for region in there}
            base, size = (1 << 40) + (spot << 12), choose.choice((8, 100, 4096))
            if base not in spots:
                number = len(lives)
                w.born(number, bytes(size), base=base, context=context)
                lives[number] = [base, size, w.seq, 0, context]
                there.add(number)
        elif what == "died" and there:
            number = choose.choice(sorted(there))
            w.died(number)
            lives[number][3] = w.seq
            there.remove(number)
        elif what in ("copy", "set"):
            size = choose.choice((1, 8, 96, 5000))
            seq = w.event(what, dst=address, bytes=size, context=context)
            calls.append((seq, "stores", address, size, None, context))
        elif what == "launch":
            words = [choose.choice((address, 3, address + 4)) for _ in range(choose.randint(1, 3))]
            raw = struct.pack(f"<{len(words)}Q", *words)
            given: dict[str, Any] = {"params": w.piece(raw), "params_size": len(raw)}
            known = choose.random() < 0.7
            seq = w.event("launch", id=0, context=context, **(given if known else {}))
            calls.append((seq, "launch", 0, 0, words if known else None, context))
        elif what == "not":
            odd: dict[str, Any] = choose.choice(
                ({"result": 1}, {"flags": HOST_DST}, {"flags": CAPTURING})
            )
            w.event("copy", dst=address, bytes=8, context=context, **odd)
    w.close()
    process = tt.open(path).processes[0]
    for region, (base, size, birth, death, context) in lives.items():
        after = choose.randint(0, w.seq)
        until = choose.randint(after, w.seq)
        expected = []
        for seq, kind, dst, length, given_words, of in calls:
            if not (max(after, birth) < seq <= until) or (death and seq >= death):
                continue
            if kind == "stores":
                how = 0 if dst < base + size and base < dst + length else None
            elif given_words is None:
                how = 2 if of == context else None
            else:
                named = any(base <= word < base + size for word in given_words)
                how = 1 if named else 3 if of == context else None
            if how is not None:
                expected.append((seq, how))
        found = writers.writers(process, region, after, until)
        got = list(zip(found.events["seq"].tolist(), found.how.tolist(), strict=True))
        assert got == expected, (seed, region, after, until)


@pytest.mark.parametrize("seed", FEW)
def test_writers_equal_a_model(tmp_path: Path, seed: int) -> None:
    check_writers(tmp_path / "run", seed)


@pytest.mark.long
def test_writers_of_many_runs_equal_a_model(tmp_path: Path) -> None:
    for seed in MANY:
        check_writers(tmp_path / str(seed), seed)
