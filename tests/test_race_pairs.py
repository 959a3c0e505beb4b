"""The pairs of calls that may have raced, as a simple model of random runs says."""

from __future__ import annotations

import random
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import ttanalyze as tt
from tests.device_order import HOST_DST, LEGACY, PER_THREAD, STREAMS, Program
from tests.rundir import Writer
from ttanalyze.format import graphs
from ttanalyze.verbs.race import pairs
from ttanalyze.verbs.race.report import Pair

BASE, SPOTS, SPOT = 1 << 40, 3, 64
FEW, MANY = range(30), range(1000, 1500)
HOW = ("reads", "reaches", "writes")
STREAM_DELAYED = pairs.DELAYED & ~(pairs.DELAYED - 1)
Touch = tuple[int, set[int]]  # how (of HOW), and which bytes


def span(address: int, size: int) -> set[int]:
    return set(range(address, address + max(size, 1)))


@dataclass
class Region:
    bytes_: set[int]
    born: int
    died: int | None = None


@dataclass
class Made:
    """What a random program did."""

    program: Program
    regions: dict[int, Region] = field(default_factory=dict)
    touches: dict[int, list[Touch]] = field(default_factory=dict)  # by seq
    late: set[int] = field(default_factory=set)
    epochs: list[tuple[int, dict[int, bytes]]] = field(default_factory=list)  # until, contents


def words_of(choose: random.Random) -> tuple[bytes, list[Touch]]:
    """Parameters: pointers, numbers, and a few bytes more."""
    words = [somewhere(choose) for _ in range(choose.randint(1, 3))]
    words += choose.sample((3, 1 << 63, (1 << 64) - 1), choose.randint(0, 2))
    choose.shuffle(words)
    raw = struct.pack(f"<{len(words)}Q", *words) + bytes(choose.choice((0, 0, 4)))
    return raw, [(1, span(word, 1)) for word in words]


def somewhere(choose: random.Random) -> int:
    return BASE + choose.randrange(-8, SPOTS * SPOT + 8, 4)


def random_node(choose: random.Random) -> tuple[dict[str, Any], list[Touch]]:
    kind = choose.choice(("kernel", "copy", "set", "mem-op", "host", "kernel", "host"))
    flags = choose.choice((0, 0, 0, graphs.DISABLED, graphs.HOST_DST, graphs.FLAGS["host_src"]))
    sure = choose.random() < 0.7  # not in the body of a conditional node
    node: dict[str, Any] = {"kind": kind, "flags": flags | graphs.CONDITIONAL * (not sure)}
    out: list[Touch] = []
    if kind == "kernel":
        raw, out = words_of(choose)
        node |= {"data": raw, "dst": somewhere(choose)}
    elif kind == "mem-op":
        address = somewhere(choose)
        node |= {"data": struct.pack("<Q", address)}
        out = [(1 + sure, span(address, 1))]
    else:
        dst, src, size = somewhere(choose), somewhere(choose), choose.choice((0, 4, 40))
        node |= {"dst": dst, "src": src, "bytes": size // 2, "reach": size}
        out = [(0, span(src, size))] if kind == "copy" else []
        if kind != "host" and not flags & graphs.HOST_DST:
            out.append((1 + sure, span(dst, size)))
    return node, [] if flags & graphs.DISABLED else out


def random_program(path: Path, seed: int) -> Made:
    """Regions that come and go at a few addresses, and calls of all kinds that reach them."""
    choose, w = random.Random(seed), Writer(path)
    program = Program(w, choose, (*STREAMS, *STREAMS, *STREAMS, LEGACY, PER_THREAD))
    made = Made(program)
    there: list[int] = []
    of_graphs: list[list[Touch]] = []
    for unread in (False, False, True):
        nodes = [] if unread else [random_node(choose) for _ in range(choose.randint(0, 6))]
        w.graph([node for node, _ in nodes], flags=graphs.UNREAD * unread)
        of_graphs.append([touch for _, touches in nodes for touch in touches])

    def born() -> None:
        base, size = BASE + SPOT * choose.randrange(SPOTS) + choose.choice((0, 16)), 48
        if any(made.regions[r].bytes_ & span(base, size) for r in there):
            return
        number = len(made.regions) + 5
        w.born(number, bytes([number] * size), base=base, label=choose.choice((None, "x")))
        made.regions[number] = Region(span(base, size), w.seq)
        there.append(number)

    for _ in range(choose.randint(40, 80)):
        kind = choose.choices(
            ("born", "died", "launch", "copy", "set", "value", "graph", "order", "epoch", "write"),
            (6, 2, 8, 4, 3, 1, 3, 3, 3, 5),
        )[0]
        late = choose.choice((0, 0, STREAM_DELAYED, pairs.DELAYED & ~STREAM_DELAYED))
        dst, src, size = somewhere(choose), somewhere(choose), choose.choice((0, 4, 40))
        touches: list[Touch] = []
        seq = 0
        if kind == "born":
            born()
        elif kind == "died" and there:
            number = there.pop(choose.randrange(len(there)))
            program.free(
                choose.choice(("cuMemFreeAsync", "cuMemFreeAsync", "cuMemFree_v2")), number
            )
            made.regions[number].died = w.seq
            if choose.random() < 0.7:
                born()
        elif kind == "launch":
            raw, touches = words_of(choose)
            params = {"params": w.piece(raw), "params_size": len(raw)}
            seq = program.work("launch", id=0, flags=late, **params)
            made.late |= {seq} if late else set()
        elif kind == "copy":
            flags, seq = program.copy(dst=dst, src=src, bytes=size)
            touches = [(0, span(src, size))]
            touches += [] if flags & HOST_DST else [(2, span(dst, size))]
        elif kind == "set":
            seq = program.work("set", dst=dst, bytes=size, flags=late, src=src)
            made.late |= {seq} if late else set()
            touches = [(2, span(dst, size))]
        elif kind == "value":
            seq = program.write_value(dst)
            touches = [(2, span(dst, 4))]
        elif kind == "graph":
            graph = choose.randrange(len(of_graphs) + 1)
            seq = program.launch_graph(graph, [], [])
            touches = of_graphs[graph] if graph < len(of_graphs) else []
        elif kind == "order":
            program.orders()
        elif kind == "epoch" and there:
            w.epoch("sync", *choose.choice(((), ("full",))))
            made.epochs.append((w.seq, {r: w.regions[r].contents for r in there}))
        elif kind == "write" and there:
            w.write(choose.choice(there), choose.randrange(48), bytes([choose.randrange(3)]))
        if seq:
            made.touches[seq] = touches
    w.close()
    return made


def changed(made: Made, since: int | None, epoch: int) -> set[int]:
    """Regions that are not all along what they were in the epoch, or not yet there then."""
    first = 0 if since is None else since + 1
    out = set()
    for region in made.regions:
        was = [held[region] for _, held in made.epochs[:first] if region in held][-1:]
        seen = [held[region] for _, held in made.epochs[first : epoch + 1] if region in held]
        if seen and (not was or any(one != was[0] for one in seen)):
            out.add(region)
    return out


def reached(made: Made, seq: int) -> dict[int, int]:
    """How the call with that seq touches each region that lives then."""
    out: dict[int, int] = {}
    for number, region in made.regions.items():
        if region.born < seq and (region.died is None or seq < region.died):
            hows = [how for how, touched in made.touches[seq] if touched & region.bytes_]
            if hows:
                out[number] = max(hows)
    return out


Rank = tuple[Any, ...]
Found = tuple[int, int, int, str, str]  # both seqs, the region, what either does there


def expected(made: Made, region: int, since: int | None, epoch: int) -> dict[Found, Rank]:
    """The pairs, and how unlikely each is."""
    before, nodes = made.program.before(), made.program.nodes
    after = 0 if since is None else made.epochs[since][0]
    window = sorted(seq for seq in made.touches if after < seq <= made.epochs[epoch][0])
    differ, out = changed(made, since, epoch), {}
    reach = {seq: reached(made, seq) for seq in window}
    for i, one in enumerate(window):
        for other in window[i + 1 :]:
            if nodes[one] in before[other]:
                continue
            if max(reach[seq].get(region, 0) for seq in (one, other)) == 0:
                continue
            for shared in reach[one].keys() & reach[other].keys() & differ:
                hows = reach[one][shared], reach[other][shared]
                late = (one in made.late) + (other in made.late)
                rank = (late == 0, -max(hows), shared != region, late == 2, other - one)
                if max(hows):
                    out[one, other, shared, HOW[hows[0]], HOW[hows[1]]] = rank
    return out


def shown(pair: Pair) -> Found:
    one, other = pair.first, pair.second
    return one.seq, other.seq, pair.region, one.does, other.does


def check_pairs(path: Path, seed: int) -> int:
    made = random_program(path, seed)
    process = tt.open(path).processes[0]
    choose = random.Random(seed)
    count = 0
    for epoch in range(len(made.epochs)):
        since = choose.choice((None, *range(epoch)))
        for region in made.regions:
            found = pairs.find(process, region, since, epoch)
            ranks = expected(made, region, since, epoch)
            got = [shown(pair) for pair in found]
            assert set(got) == set(ranks) and len(got) == len(ranks), (seed, region, since, epoch)
            assert [ranks[pair] for pair in got] == sorted(ranks.values())
            for pair in found:
                for call in (pair.first, pair.second):
                    assert call.delayed == (call.seq in made.late)
            count += len(got)
    return count


def test_pairs_equal_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairs, "LISTED", 1 << 30)
    count = sum(check_pairs(tmp_path / str(seed), seed) for seed in FEW)
    assert count > 200


@pytest.mark.long
def test_pairs_of_many_runs_equal_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairs, "LISTED", 1 << 30)
    for seed in MANY:
        check_pairs(tmp_path / str(seed), seed)


# ---- one by one ----


def pointer(address: int) -> bytes:
    return struct.pack("<Q", address)


def launch(w: Writer, stream: int, address: int, **members: Any) -> int:
    raw = pointer(address)
    members = {"id": 0, "stream": stream, "params": w.piece(raw), "params_size": 8, **members}
    return w.event("launch", "cuLaunchKernel", **members)


def found(w: Writer, region: int, since: int | None, epoch: int) -> list[Pair]:
    if not (w.path / "process.json").exists():
        w.close()
    return pairs.find(tt.open(w.run).processes[0], region, since, epoch)


@pytest.fixture
def w(run_path: Path) -> Writer:
    """A run with one region, of which epoch 0 is."""
    writer = Writer(run_path)
    for stream in (16, 17, 18):
        writer.event("stream-create", stream=stream, bytes=1)
    writer.function(0, "fill")
    writer.born(0, bytes(64), base=BASE, label="first")
    writer.epoch("sync")
    return writer


def change(w: Writer, *regions: int) -> int:
    for region in regions:
        w.write(region, 0, bytes([w.seq % 250 + 1]))
    return w.epoch("sync")


def test_pairs_on_the_differing_region_come_first(w: Writer) -> None:
    """However many there are."""
    for number in range(1, 300):
        w.born(number, b"x", base=BASE + 1000 + number)
    raw = struct.pack("<2Q", BASE, BASE + 1299)
    for stream in (16, 17):
        launch(w, stream, 0, params=w.piece(raw), params_size=16)
    last = change(w, 0, 299)
    for region, other in ((299, 0), (0, 299)):
        assert [pair.region for pair in found(w, region, 0, last)] == [region, other]


def test_reused_address_is_another_region(w: Writer) -> None:
    """Calls before belong to the region that lived then."""
    old = [launch(w, stream, BASE + 8) for stream in (16, 17)]
    change(w, 0)
    w.died(0, "cuMemFreeAsync")
    w.born(1, bytes(32), base=BASE)
    new = [launch(w, stream, BASE + 8) for stream in (16, 17)]
    last = change(w, 1)
    assert {shown(p)[:3] for p in found(w, 0, 0, last)} == {(old[0], old[1], 0)}
    assert {shown(p)[:3] for p in found(w, 1, 0, last)} == {(new[0], new[1], 1)}


def test_text_of_a_pair(w: Writer) -> None:
    w.stack(3, [("step", "/app/train.py", 12)])
    w.born(1, bytes(64), base=BASE + 64)
    one = launch(w, 16, BASE, thread=5, stack=3, flags=STREAM_DELAYED)
    other = w.event("copy", "cuMemcpyHtoD_v2", dst=BASE + 64, src=BASE, bytes=64, stream=17)
    (pair,) = found(w, 0, 0, change(w, 0))
    assert (pair.region, pair.label, pair.size) == (0, "first", 64)
    first, second = pair.first, pair.second
    assert (first.seq, first.kind, first.call) == (one, "launch", "cuLaunchKernel")
    assert (first.kernel, first.stream, first.thread) == ("fill", 16, 5)
    assert (first.does, first.delayed, first.caller) == ("reaches", True, "step (train.py:12)")
    assert (second.seq, second.kind, second.call) == (other, "copy", "cuMemcpyHtoD_v2")
    assert (second.kernel, second.stream, second.thread) == (None, 17, 4711)
    assert (second.does, second.delayed, second.caller) == ("reads", False, None)


def test_likeliest_pairs_are_listed(w: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    for i in range(10):
        launch(w, 16 + i % 2, BASE)
    sure = w.event("set", dst=BASE, bytes=4, stream=18)
    late = [launch(w, 18, BASE, flags=pairs.DELAYED), launch(w, 17, BASE, flags=STREAM_DELAYED)]
    last = change(w, 0)
    listed = found(w, 0, 0, last)
    assert len(listed) == 8 and shown(listed[0])[:2] == (sure, late[1])
    monkeypatch.setattr(pairs, "LISTED", 1000)
    every = found(w, 0, 0, last)
    assert every[:8] == listed
    kinds = [(pair.first.delayed + pair.second.delayed, sure == pair.second.seq) for pair in every]
    assert kinds == [(1, False)] * 16 + [(2, False)] + [(0, True)] * 10 + [(0, False)] * 25
    apart = [pair.second.seq - pair.first.seq for pair in every]
    assert apart[1:16] == sorted(apart[1:16]) and apart[17:27] == sorted(apart[17:27])
    monkeypatch.setattr(pairs, "COMPARED", 3)
    few = [shown(pair)[:2] for pair in found(w, 0, 0, last)]
    assert few == [(sure, late[1]), (late[0], late[1])]


def test_graph_continues_after_an_epoch_inside_it(w: Writer) -> None:
    graph = w.graph([{"data": pointer(BASE)}])
    one = w.event("graph-launch", id=graph, stream=16)
    inside = w.epoch("graph-node", seq=one)
    other = launch(w, 17, BASE)
    (pair,) = found(w, 0, inside, change(w, 0))
    assert (pair.first.seq, pair.second.seq) == (one, other)
    assert pair.first.kernel is None and pair.second.kernel == "fill"


def test_conditional_node_is_a_possible_writer(w: Writer) -> None:
    """One in the body of a conditional node, which the device runs as often as it likes."""
    kinds: dict[str, dict[str, Any]] = {
        "set": {"dst": BASE, "reach": 4},
        "mem-op": {"data": pointer(BASE)},
    }
    of_graphs = [
        w.graph([{"kind": kind, "flags": graphs.CONDITIONAL * body, **members}])
        for kind, members in kinds.items()
        for body in (True, False)
    ]
    for graph in of_graphs:
        w.event("graph-launch", id=graph, stream=16)
    launch(w, 17, BASE)
    listed = found(w, 0, 0, change(w, 0))
    does = {pair.first.seq: pair.first.does for pair in listed}
    assert [does[seq] for seq in sorted(does)] == ["reaches", "writes"] * 2
    assert [pair.first.does for pair in listed] == ["writes"] * 2 + ["reaches"] * 2
