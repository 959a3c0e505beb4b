"""Random calls: what orders them, and what they may have written to, as simple models say."""

from __future__ import annotations

import random
import struct
from pathlib import Path
from typing import Any

import pytest

import ttanalyze as tt
from tests.rundir import Writer
from ttanalyze import writers
from ttanalyze.model import layout
from ttanalyze.race.order import calls_between, unordered

LEGACY, PER_THREAD, STREAMS, FREE = 1, 2, (16, 17, 18), 18  # FREE does not wait for LEGACY
THREADS, HANDLES = (1, 2), (7, 8)
CAPTURING = layout.constant("TT_EVENTF_CAPTURING")
HOST_DST = layout.constant("TT_EVENTF_HOST_DST")
SYNC_COPY = layout.constant("TT_EVENTF_SYNC_COPY")
FEW, MANY = range(20), range(1000, 1600)
Lane = tuple[int, int]


class Device:
    """A graph of calls: what each comes right after. Reachability is the order."""

    def __init__(self) -> None:
        self.before: list[set[int]] = []
        self.last: dict[Lane, int] = {}
        self.recorded: dict[int, int] = {}
        self.host = self.node(set())

    def node(self, after: set[int]) -> int:
        self.before.append(after)
        return len(self.before) - 1

    def ready(self, lane: Lane) -> set[int]:
        """What the next call of a lane comes right after."""
        out = {self.host} | ({self.last[lane]} if lane in self.last else set())
        if lane[0] == LEGACY:
            out |= {last for other, last in self.last.items() if other[0] != FREE}
        elif lane[0] != FREE and (LEGACY, 0) in self.last:
            out.add(self.last[LEGACY, 0])
        return out

    def submit(self, lane: Lane, more: set[int] = frozenset()) -> int:  # type: ignore[assignment]
        self.last[lane] = self.node(self.ready(lane) | more)
        return self.last[lane]

    def learn(self, calls: set[int]) -> None:
        self.host = self.node({self.host} | calls)

    def all_before(self, node: int) -> set[int]:
        out: set[int] = set()
        left = [node]
        while left:
            for one in self.before[left.pop()] - out:
                out.add(one)
                left.append(one)
        return out


def random_order(path: Path, seed: int) -> tuple[dict[int, set[int]], dict[int, int]]:
    """Writes a run. Gives, of each piece of work by seq, what comes before it and its node."""
    choose, device, w = random.Random(seed), Device(), Writer(path)
    for stream in STREAMS:
        w.event("stream-create", stream=stream, bytes=int(stream == FREE))
    nodes: dict[int, int] = {}
    for _ in range(60):
        stream, thread = (
            choose.choice((*STREAMS, *STREAMS, LEGACY, PER_THREAD)),
            choose.choice(THREADS),
        )
        lane = stream, thread if stream == PER_THREAD else 0
        given: dict[str, Any] = {"stream": stream, "thread": thread}
        handle = choose.choice(HANDLES)
        kinds = ("launch", "set", "event-record", "event-wait", "sync", "copy", "bad", "captured")
        kind = choose.choices(kinds, (8, 2, 5, 5, 1, 1, 1, 1))[0]
        if kind == "bad":
            w.event(
                choose.choice(("launch", "event-record", "sync")), result=1, src=handle, **given
            )
        elif kind == "captured":
            w.event(choose.choice(("launch", "event-wait")), flags=CAPTURING, src=handle, **given)
        elif kind in ("launch", "set"):
            nodes[w.event(kind, **given)] = device.submit(lane)
        elif kind == "copy":
            waits = choose.random() < 0.5
            flags = HOST_DST | (SYNC_COPY if waits else 0)
            nodes[w.event(kind, flags=flags, **given)] = node = device.submit(lane)
            if waits:
                device.learn({node})
        elif kind == "event-record":
            w.event(kind, src=handle, **given)
            device.recorded[handle] = device.node(device.ready(lane))
        elif kind == "event-wait":
            w.event(kind, src=handle, **given)
            device.submit(lane, {device.recorded[handle]} if handle in device.recorded else set())
        else:
            what = choose.choice(("context", "stream", "event"))
            given |= {"stream": 0} if what != "stream" else {}
            w.event(kind, src=handle if what == "event" else 0, **given)
            if what == "context":
                device.learn(set(device.last.values()))
            elif what == "stream":
                device.learn(device.ready(lane))
            elif handle in device.recorded:
                device.learn({device.recorded[handle]})
    w.close()
    return {seq: device.all_before(node) for seq, node in nodes.items()}, nodes


def check_order(path: Path, seed: int) -> None:
    before, nodes = random_order(path, seed)
    process = tt.open(path).processes[0]
    choose = random.Random(seed)
    last = max(before, default=0)
    for after in (0, choose.randint(0, last)):
        calls = calls_between(process, 0, after, last)
        seqs = [int(call.event["seq"]) for call in calls]
        assert seqs == sorted(seq for seq in before if seq > after)
        for one, a in zip(seqs, calls, strict=True):
            for other, b in zip(seqs, calls, strict=True):
                if one < other:
                    assert unordered(a, b) == (nodes[one] not in before[other]), (seed, one, other)


@pytest.mark.parametrize("seed", FEW)
def test_calls_are_ordered_as_a_graph_of_them_says(tmp_path: Path, seed: int) -> None:
    check_order(tmp_path / "run", seed)


@pytest.mark.long
def test_many_calls_are_ordered_as_graphs_of_them_say(tmp_path: Path) -> None:
    for seed in MANY:
        check_order(tmp_path / str(seed), seed)


# ---- writers ----


def check_writers(path: Path, seed: int) -> None:
    """Of regions that come and go at a few addresses, copies, sets and launches of two contexts."""
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
def test_writers_are_those_of_a_model(tmp_path: Path, seed: int) -> None:
    check_writers(tmp_path / "run", seed)


@pytest.mark.long
def test_writers_of_many_runs_are_those_of_a_model(tmp_path: Path) -> None:
    for seed in MANY:
        check_writers(tmp_path / str(seed), seed)
