"""Which calls may have written to a region."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ttanalyze as tt
from tests import rundir
from tests.rundir import Writer
from ttanalyze.core.writers import HOW, INDIRECT, POINTER, POSSIBLE, WRITES, writers
from ttanalyze.errors import Error, FormatError
from ttanalyze.format import layout

SIZE = 1000
EVER = 1 << 62


def base(region: int) -> int:
    """Where rundir puts it."""
    return 0x7F0000000000 + (region << 24)


def launch(w: Writer, *words: int, function: int = 0, **values: Any) -> int:
    """A launch whose parameters are these 64-bit words; none: they were not recorded."""
    if words:
        raw = np.array(words, "<u8").tobytes()
        values = {"params": w.piece(raw), "params_size": len(raw), **values}
    return w.event("launch", "cuLaunchKernel", id=function, **values)


def begin(path: Path, kind: str = "device", **values: Any) -> Writer:
    w = Writer(path)
    w.function(0, "add")
    w.function(1, "scale", module=7)
    w.born(0, bytes(SIZE), kind=kind, **values)
    w.born(1, bytes(SIZE))
    return w


def found(
    path: Path, w: Writer, region: int | str = 0, after: int = 0, until: int = EVER
) -> dict[int, str]:
    """How sure each call is, by seq."""
    w.close()
    result = writers(tt.open(path).processes[0], region, after, until)
    assert (np.diff(result.events["seq"].astype("i8")) > 0).all()
    return {
        int(seq): HOW[how]
        for seq, how in zip(result.events["seq"].tolist(), result.how.tolist(), strict=True)
    }


def test_copies_and_sets_name_their_destination(run_path: Path) -> None:
    w = begin(run_path, label="weights")
    end = base(0) + SIZE
    hits = [
        w.event("copy", dst=base(0), bytes=SIZE),
        w.event("copy", dst=end - 1, bytes=1),
        w.event("copy", dst=base(0) - 10, bytes=11),
        w.event("set", dst=base(0) + 500, bytes=4),
        w.event("copy", dst=base(0) - 10, bytes=1 << 40),
        w.event("mem-op", dst=base(0) + 8),
    ]
    w.event("copy", dst=end, bytes=8)
    w.event("copy", dst=base(0) - 10, bytes=10)
    w.event("set", dst=base(1), bytes=8)
    w.event("copy", dst=0x1000, src=base(0), bytes=8)
    assert found(run_path, w, "weights") == dict.fromkeys(hits, HOW[WRITES])


@pytest.mark.parametrize(
    "values",
    [
        {"result": 1},
        {"flags": layout.constant("TT_EVENTF_CAPTURING")},
        {"flags": layout.constant("TT_EVENTF_HOST_DST")},
    ],
    ids=["failed", "recorded into a graph", "to the host"],
)
def test_failed_copies_are_no_writers(run_path: Path, values: dict[str, Any]) -> None:
    w = begin(run_path)
    w.event("copy", dst=base(0), bytes=SIZE, **values)
    assert found(run_path, w) == {}


def test_launch_certainty_follows_known_parameters(run_path: Path) -> None:
    w = begin(run_path)
    expected = {
        launch(w): HOW[POSSIBLE],
        launch(w, 1, base(0) + 400, 3): HOW[POINTER],
        launch(w, base(0) + SIZE, base(1)): HOW[INDIRECT],
        launch(w, base(0) + SIZE - 1): HOW[POINTER],
        launch(w, base(0) - 1): HOW[INDIRECT],
        w.event("graph-launch"): HOW[POSSIBLE],
    }
    launch(w, base(0), result=700)
    launch(w, base(0), flags=layout.constant("TT_EVENTF_CAPTURING"))
    for kind in ("sync", "stream-create", "event-record", "launch-host"):
        w.event(kind)
    assert found(run_path, w) == expected


def test_missing_parameters_are_an_error(run_path: Path) -> None:
    w = begin(run_path)
    w.event("launch", id=0, params=1 << 20, params_size=64)
    with pytest.raises(FormatError, match=r"params\.bin: offset 16777216: "):
        found(run_path, w)


def test_other_contexts_write_only_named_memory(run_path: Path) -> None:
    w = begin(run_path)
    launch(w, context=1)
    w.event("graph-launch", context=1)
    named = launch(w, base(0), context=1)
    copied = w.event("copy", dst=base(0), bytes=1, context=1)
    assert found(run_path, w) == {named: HOW[POINTER], copied: HOW[WRITES]}


def test_managed_memory_belongs_to_every_context(run_path: Path) -> None:
    w = begin(run_path, kind="managed")
    seq = launch(w, context=1)
    assert found(run_path, w) == {seq: HOW[POSSIBLE]}


def test_writers_lie_between_the_calls_and_in_the_region_lifetime(run_path: Path) -> None:
    w = Writer(run_path)
    before = launch(w)
    w.born(0, bytes(SIZE))
    calls = [launch(w) for _ in range(4)]
    w.died(0)
    behind = launch(w)
    w.born(5, bytes(SIZE))
    assert list(found(run_path, w)) == calls
    assert before < calls[0] and behind > calls[-1]
    assert list(found(run_path, w, after=calls[0], until=calls[2])) == calls[1:3]
    assert list(found(run_path, w, after=calls[2], until=calls[2])) == []


def test_most_certain_writers_come_first(run_path: Path) -> None:
    w = begin(run_path)
    first, copy, second = launch(w), w.event("set", dst=base(0), bytes=1), launch(w)
    w.close()
    result = writers(tt.open(run_path).processes[0], 0, 0, EVER)
    assert result.events["seq"][result.surest()].tolist() == [copy, second, first]


def test_writers_of_a_tensor_are_those_of_its_bytes(run_path: Path) -> None:
    w = begin(run_path)
    w.name(0, 512, 256, "bias", "f4")
    w.name(0, 768, 128, "split")
    w.name(1, 0, 128, "split", start=128)
    w.event("set", dst=base(0), bytes=512)
    inside = w.event("set", dst=base(0) + 500, bytes=16)
    before, at = launch(w, base(0)), launch(w, base(0) + 600)
    expected = {inside: HOW[WRITES], before: HOW[INDIRECT], at: HOW[POINTER]}
    assert found(run_path, w, "bias") == expected
    with pytest.raises(Error, match=r"'split' lies in several regions \(0, 1\): name one of them"):
        writers(tt.open(run_path).processes[0], "split", 0, EVER)


def test_unknown_region_is_an_error(run_path: Path) -> None:
    w = begin(run_path)
    w.close()
    for region in (2, -1, 1 << 40):
        with pytest.raises(Error, match="no region"):
            writers(tt.open(run_path).processes[0], region, 0, EVER)


def test_no_writers_without_events(run_path: Path) -> None:
    w = begin(run_path)
    launch(w)
    path = w.path / "events.bin"
    path.write_bytes(path.read_bytes()[: layout.HEADER_SIZE])
    assert found(run_path, w) == {}


PLAIN = {"kind": "kernel", "function": 0}


def words(*values: int) -> bytes:
    return np.array(values, "<u8").tobytes()


@pytest.mark.parametrize(
    ("nodes", "how"),
    [
        ([{"kind": "set", "dst": base(0) + 900, "bytes": 8, "reach": 8}], WRITES),
        ([{"kind": "set", "dst": base(0) - 8, "bytes": 8, "reach": 16}], WRITES),
        ([{"kind": "copy", "dst": base(1), "src": base(0), "bytes": 8, "reach": 8}], None),
        ([{"kind": "copy", "dst": base(0), "bytes": 8, "reach": 8, "flags": 8}], None),
        ([{"kind": "set", "dst": base(0), "bytes": 8, "reach": 8, "flags": 1}], None),
        ([{"kind": "set", "dst": base(0), "bytes": 8, "reach": 8, "flags": 32}], POSSIBLE),
        ([{"kind": "mem-op", "data": words(base(1), base(0) + 4)}], WRITES),
        ([{**PLAIN, "data": words(5, base(0) + SIZE - 1)}], POINTER),
        ([{**PLAIN, "data": words(base(0) + SIZE)}], INDIRECT),
        ([{**PLAIN, "data": words(base(0)), "flags": 1}], None),
        ([{**PLAIN, "data": words(base(0)), "flags": 32}], POSSIBLE),
        ([PLAIN], POSSIBLE),
        ([{**PLAIN, "data": words(1), "flags": 64}], POSSIBLE),
        ([{**PLAIN, "data": words(1)}, {**PLAIN, "data": words(base(0))}], POINTER),
        ([{"kind": "empty"}, {"kind": "host"}], None),
        ([], None),
    ],
)
def test_graph_is_as_certain_as_its_most_certain_node(
    nodes: list[dict[str, Any]], how: int | None, run_path: Path
) -> None:
    w = begin(run_path)
    seq = w.event("graph-launch", id=w.graph(nodes))
    assert found(run_path, w) == ({} if how is None else {seq: HOW[how]})


def test_graphs_are_examined_as_launched(run_path: Path) -> None:
    w = begin(run_path)
    graph = w.graph([{**PLAIN, "data": words(base(1))}])
    before = w.event("graph-launch", id=graph)
    w.node(graph, 0, w.next_seq(), function=0, data=words(base(0)))
    after = w.event("graph-launch", id=graph)
    w.graph([], flags=4, seq=w.next_seq(), remakes=graph)
    unknown = w.event("graph-launch", id=graph)
    hows = {before: HOW[INDIRECT], after: HOW[POINTER], unknown: HOW[POSSIBLE]}
    assert found(run_path, w) == hows


def test_graph_kernels_of_the_variables_module(run_path: Path) -> None:
    w = Writer(run_path)
    w.function(1, "scale", module=7)
    w.born(0, bytes(SIZE), kind="global")
    rundir.edit(w.path / "regions.bin", 0, module=7)
    rundir.reseal_records(w.path / "regions.bin")
    seq = w.event("graph-launch", id=w.graph([{**PLAIN, "function": 1, "data": words(1)}]))
    assert found(run_path, w) == {seq: HOW[POSSIBLE]}
