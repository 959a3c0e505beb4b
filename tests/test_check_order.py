"""Calls that nothing orders and that reach the same memory, found in one recording."""

from __future__ import annotations

import json
import random
import struct
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import ttanalyze as tt
from tests import support
from tests.device_order import LEGACY, PER_THREAD, STREAMS, Program
from tests.rundir import TWO_STREAMS_BASE as BASE
from tests.rundir import Writer, two_streams
from tests.support import Cli
from ttanalyze.code.pointers import ANYTHING, READ, WRITE, pointer_uses
from ttanalyze.code.pointers import ATOMIC as ATOMICALLY
from ttanalyze.core import unordered
from ttanalyze.core.reach import ATOMIC, MAY_WRITE, READS, WRITES
from ttanalyze.core.unordered import Unordered, find_unordered
from ttanalyze.disassembly import tools
from ttanalyze.disassembly.decode import parsed
from ttanalyze.disassembly.find import find_tables
from ttanalyze.disassembly.pointers import pointer_uses as code_uses
from ttanalyze.disassembly.tables import Table
from ttanalyze.verbs.check import session

SIZE, REGIONS = 32, 3
FEW, MANY = range(60), range(1000, 3500)
# What each kernel does through its two parameters.
KERNELS: list[dict[int, int] | None] = [
    {0: WRITES, 8: READS},
    {0: READS, 8: READS},
    {0: ATOMIC, 8: READS},
    {8: WRITES},
    {0: MAY_WRITE},
    None,
]
Touch = tuple[int, int, int, int, int]  # mode, first and last address, certain and possible, node


@dataclass
class Made:
    program: Program
    touches: dict[int, list[Touch]] = field(default_factory=dict)  # by seq
    functions: dict[int, int] = field(default_factory=dict)  # host functions: node by seq
    inside: dict[int, tuple[int, set[tuple[int, int]]]] = field(default_factory=dict)


def somewhere(choose: random.Random) -> int:
    return BASE + choose.randrange(REGIONS) * 64 + choose.randrange(0, SIZE, 8)


def end_of(address: int) -> int:
    return address - (address - BASE) % 64 + SIZE


def touches_of(function: int, words: list[int], node: int = -1) -> list[Touch]:
    uses, out = KERNELS[function], []
    for at, word in enumerate(words):
        mode = MAY_WRITE if uses is None else uses.get(8 * at)
        if mode is not None:
            out.append((mode, word, word + 1, end_of(word), node))
    return out


def moved(choose: random.Random) -> tuple[dict[str, int], list[Touch]]:
    dst, src, size = somewhere(choose), somewhere(choose), choose.choice((1, 8, 24))
    size = min(size, end_of(dst) - dst, end_of(src) - src)
    touches = [(READS, src, src + size, src + size), (WRITES, dst, dst + size, dst + size)]
    return {"dst": dst, "src": src, "bytes": size}, [(*t, -1) for t in touches]


def random_graph(w: Writer, choose: random.Random) -> tuple[list[Touch], set[tuple[int, int]]]:
    """What its nodes touch, and which come before which."""
    nodes: list[dict[str, Any]] = []
    touches: list[Touch] = []
    for number in range(choose.randint(1, 5)):
        if choose.random() < 0.5:
            function, words = choose.randrange(len(KERNELS)), [somewhere(choose) for _ in "12"]
            data = struct.pack("<2Q", *words)
            nodes.append({"kind": "kernel", "function": function, "data": data})
            touches += touches_of(function, words, number)
        else:
            members, found = moved(choose)
            nodes.append({"kind": "copy", **members, "reach": members["bytes"]})
            touches += [(*t[:4], number) for t in found]
    count = len(nodes)
    edges = {(a, b) for b in range(count) for a in range(b) if choose.random() < 0.4}
    w.graph(nodes, sorted(edges))
    before = set(edges)
    for _ in nodes:
        before |= {(a, d) for a, b in before for c, d in before if b == c}
    return touches, before


def random_program(path: Path, seed: int) -> Made:
    choose, w = random.Random(seed), Writer(path)
    program = Program(w, choose, (*STREAMS, *STREAMS, LEGACY, PER_THREAD))
    made = Made(program)
    for number in range(REGIONS):
        w.born(number, bytes(SIZE), base=BASE + 64 * number)
    of_graphs = [random_graph(w, choose) for _ in range(3)]
    for _ in range(choose.randint(20, 60)):
        kind = choose.choices(("launch", "move", "host", "graph", "order"), (6, 5, 0.3, 2, 9))[0]
        stack = {"stack": w.seq + 1}  # no two calls are from the same place
        if kind == "launch":
            function, words = choose.randrange(len(KERNELS)), [somewhere(choose) for _ in "12"]
            params = {"params": w.piece(struct.pack("<2Q", *words)), "params_size": 16}
            seq = program.work("launch", id=function, **stack, **params)
            made.touches[seq] = touches_of(function, words)
        elif kind == "move":
            members, touches = moved(choose)
            copies = choose.random() < 0.7
            seq = program.work("copy" if copies else "set", **members, **stack)
            made.touches[seq] = touches if copies else touches[1:]
        elif kind == "host":
            seq = program.work("launch-host")
            made.functions[seq] = program.nodes[seq]
        elif kind == "graph":
            graph = choose.randrange(3)
            seq = program.launch_graph(graph, [], [], **stack)
            made.touches[seq] = of_graphs[graph][0]
            made.inside[seq] = graph, of_graphs[graph][1]
        else:
            program.orders()
    w.close()
    return made


def conflict(one: Touch, other: Touch) -> set[int]:
    """The bytes that two calls surely reach, and that one of both writes."""
    modes = {one[0], other[0]}
    if not modes & {WRITES, ATOMIC} or modes == {ATOMIC}:
        return set()
    return set(range(max(one[1], other[1]), min(one[2], other[2])))


def expected(made: Made) -> tuple[dict[tuple[int, int], set[int]], dict[int, set[int]]]:
    """Bytes of pairs that have no order; and those that have to be found, by their second calls."""
    before, nodes = made.program.before(), made.program.nodes
    pairs: dict[tuple[int, int], set[int]] = {}
    wanted: dict[int, set[int]] = {}
    unsure: dict[int, set[int]] = {}  # where a wait for a value may order them
    for second, touches in made.touches.items():
        for first, others in made.touches.items():
            if first >= second or nodes[first] in before[second]:
                continue
            found = {b for one in others for other in touches for b in conflict(one, other)}
            told = any(
                first == h or nodes[first] in before[h] for h in made.functions if h < second
            )
            if not found or told:
                continue
            pairs[first, second] = found
            waits = (before[first] | before[second]) & made.program.waits
            (unsure if waits else wanted).setdefault(second, set()).update(found)
    return pairs, {second: found - unsure.get(second, set()) for second, found in wanted.items()}


def check(path: Path, seed: int) -> int:
    made = random_program(path, seed)
    pairs, wanted = expected(made)
    process = tt.open(path).processes[0]
    found = find_unordered(process, uses=KERNELS.__getitem__)
    got: dict[int, set[int]] = {}
    for pair in found:
        first, second = (side.call.event.seq for side in (pair.first, pair.second))
        reached = set(range(BASE + 64 * pair.row + pair.low, BASE + 64 * pair.row + pair.high))
        if first == second:
            continue
        assert pair.sure and reached and reached <= pairs[first, second], (seed, first, second)
        got.setdefault(second, set()).update(pairs[first, second])  # of places only one is listed
    for second, spots in wanted.items():
        assert spots <= got.get(second, set()), (seed, second)
    check_inside(made, found, seed)
    every = find_unordered(process, uses=KERNELS.__getitem__, every=True)
    shown = {(p.first.call.event.seq, p.second.call.event.seq) for p in every if p.sure}
    assert shown >= {(p.first.call.event.seq, p.second.call.event.seq) for p in found}, seed
    return len(found)


def check_inside(made: Made, found: list[Unordered], seed: int) -> None:
    """Nodes of one graph, at its first launch."""
    seen = set()
    for seq, (graph, before) in made.inside.items():
        if graph in seen:
            continue
        seen.add(graph)
        wanted: dict[frozenset[int], set[int]] = {}
        for one in made.touches[seq]:
            for other in made.touches[seq]:
                a, b = one[4], other[4]
                if a < b and (a, b) not in before and conflict(one, other):
                    wanted.setdefault(frozenset((a, b)), set()).update(conflict(one, other))
        got = [p for p in found if p.first.call is p.second.call and p.first.call.event.seq == seq]
        pairs = {frozenset((p.first.access.node, p.second.access.node)) for p in got}
        assert pairs <= wanted.keys() and bool(pairs) == bool(wanted), (seed, seq)


def test_findings_equal_a_model(tmp_path: Path) -> None:
    assert sum(check(tmp_path / str(seed), seed) for seed in FEW) > 200


def test_order_check_forgets_completed_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its memory is bounded by the work that is not over, and nothing is missed."""
    monkeypatch.setattr(unordered, "CROWDED", 0)
    for seed in FEW[:20]:
        check(tmp_path / str(seed), seed)


@pytest.mark.long
def test_findings_of_many_programs_equal_a_model(tmp_path: Path) -> None:
    for seed in MANY:
        check(tmp_path / str(seed), seed)


# ---- one by one ----

ORDERS = ["same", "wait", "event-query", "stream-query", "event-sync", "stream-sync", "value"]
ORDERS += ["graph-wait", "free-wait", "host-wait"]
NOTHING = ["none", "wait-before", "other-sync", "graph", "free", "host"]


def recorded(built: Path, run: Path, how: str) -> list[Unordered]:
    program = support.build_program("recorder_stream_order", built)
    environment = support.recording(support.simulator_environment(), run, params="1")
    outcome = support.run([program, how], environment)
    assert (outcome.stdout, outcome.status) == ("done\n", 0), outcome
    return find_unordered(tt.open(run).processes[0])


@pytest.mark.native
@pytest.mark.parametrize("how", ORDERS)
def test_ordered_calls_are_not_reported(built: Path, tmp_path: Path, how: str) -> None:
    assert not recorded(built, tmp_path / "run", how)


@pytest.mark.native
@pytest.mark.parametrize("how", NOTHING)
def test_unordered_calls_are_reported(built: Path, tmp_path: Path, how: str) -> None:
    found = recorded(built, tmp_path / "run", how)
    modes = {frozenset((p.first.access.mode, p.second.access.mode)) for p in found}
    assert frozenset((READS, WRITES)) in modes or how == "free", found
    assert found and all(pair.sure for pair in found)


@pytest.mark.native
def test_only_successful_queries_are_recorded(built: Path, tmp_path: Path) -> None:
    recorded(built, tmp_path / "run", "event-query")
    events = tt.open(tmp_path / "run").events
    assert events.query("kind == 'query'")["call"].tolist() == ["cuEventQuery"]


# ---- what kernels do through their parameters ----

HEAD = ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k("
PARAMS = ".param .u64 a, .param .u32 n, .param .align 8 .b8 s[24], .param .u64 .ptr .align 4 z)"
LOADS = "ld.param.u64 %rd1, [a]; ld.param.u64 %rd2, [s+8]; ld.param.u64 %rd3, [z];"


@pytest.mark.parametrize(
    ("code", "uses"),
    [
        ("", {}),
        ("ld.global.u32 %r1, [%rd1];", {0: READ}),
        ("cvta.to.global.u64 %rd4, %rd2; @%p1 st.global.v2.u32 [%rd4+8], {%r1, %r2};", {24: WRITE}),
        ("mad.wide.s32 %rd4, %r1, 4, %rd3; atom.global.add.u32 %r2, [%rd4], 1;", {40: ATOMICALLY}),
        ("red.global.add.f32 [%rd1], %f1;", {0: ATOMICALLY}),
        ("st.global.u64 [%rd1], %rd2;", {0: WRITE, 24: ANYTHING}),
        ("st.param.b64 [param0], %rd3; call.uni f, (param0);", {40: ANYTHING}),
        ("mov.b64 %rd4, s; ld.param.u64 %rd5, [%rd4];", {16: ANYTHING, 24: ANYTHING, 32: ANYTHING}),
        ("st.shared.u32 [%rd1], %r1; ld.local.u32 %r1, [%rd2];", {}),
        ("cp.async.ca.shared.global [%r1], [%rd1], 16;", {0: READ}),
        ("ld.global.u64 %rd1, [%rd1]; st.global.u32 [%rd1], %r1;", {0: READ}),
        ("@%p1 mov.b64 %rd1, %rd2; st.global.u32 [%rd1], %r1;", {0: WRITE, 24: WRITE}),
        ("L: st.global.u32 [%rd1], %r1; mov.b64 %rd1, %rd3; bra L;", {0: WRITE, 40: WRITE}),
        ("sub.s64 %rd4, %rd1, %rd2; cvt.u32.u64 %r1, %rd4; st.shared.u32 [%r1], %r1;", {}),
        ("prefetch.global.L2 [%rd1];", {}),
    ],
)
def test_accesses_through_kernel_parameters(code: str, uses: dict[int, int]) -> None:
    text = f"{HEAD}{PARAMS}\n{{\n{LOADS}\n{code}\nret;\n}}\n".encode()
    assert pointer_uses(text, ["k", "other"]) == [uses, None]


# ---- as a check ----


def checked(cli: Cli, built: Path, folder: Path, how: str, *options: str) -> Any:
    program = support.build_program("recorder_stream_order", built)
    given = ("--sim", "--only", "order", "--json", "-q", "-o", folder, *options)
    outcome = cli("check", *given, "--", program, how)
    return json.loads(outcome.stdout)["outcomes"][0]


@pytest.mark.native
def test_a_finding_is_confirmed_by_a_delay(cli: Cli, built: Path, tmp_path: Path) -> None:
    outcome = checked(cli, built, tmp_path / "out", "none")
    assert (outcome["status"], outcome["launches"]) == ("found", 1)
    (found,) = outcome["findings"]
    assert (found["kind"], found["certainty"]) == ("read after write", "confirmed")
    assert found["call"]["kernel"] == "copy" and found["details"]["other"]["kernel"] == "fill"
    assert found["details"]["streams"] == [16, 17]
    texts = [found["details"][name]["text"] for name in ("instruction", "other_instruction")]
    assert [one.split()[0] for one in texts] == ["ld.global.u32", "st.global.u32"]
    wanted = f"stream 17 does not wait for stream 16 after call {found['details']['other']['seq']}"
    assert found["details"]["missing"] == wanted and wanted in found["summary"]
    assert "reads(" not in found["summary"] and "recorder_stream_order.c" in found["call"]["line"]
    assert found["command"][:2] == ["ttanalyze", "diff"]
    delays = json.loads(Path(found["details"]["delays"]).read_text())
    assert delays["launches"].keys() == {"16:0"}


@pytest.mark.native
def test_launches_that_access_other_bytes_are_told(cli: Cli, built: Path, tmp_path: Path) -> None:
    (found,) = checked(cli, built, tmp_path / "out", "halves", "--all")["findings"]
    assert found["certainty"] == "possible" and "instruction" not in found["details"]
    assert found["summary"].endswith(" In a traced run they access different bytes of it.")


@pytest.mark.native
@pytest.mark.parametrize("how", ["hidden", "hidden-graph"])
def test_an_unclear_kernel_is_traced(how: str, cli: Cli, built: Path, tmp_path: Path) -> None:
    """Its code does not say what it does through its pointer, which goes through memory."""
    quick = checked(cli, built, tmp_path / "quick", how, "--quick")
    assert quick["status"] == "clean"
    outcome = checked(cli, built, tmp_path / "out", how)
    (found,) = outcome["findings"]
    assert found["kind"] == "read after write" and found["details"]["other"]["kernel"] == "set"
    assert found["details"]["other_instruction"]["text"] == "st.global.u32 [%rd3], 1"
    assert outcome["reason"] == "of 1 kernel, the accesses are those of one traced launch"


@pytest.mark.native
def test_of_kernels_with_one_name_each_is_traced(cli: Cli, built: Path, tmp_path: Path) -> None:
    """The first one only reads."""
    outcome = checked(cli, built, tmp_path / "out", "hidden-twin")
    (found,) = outcome["findings"]
    assert found["kind"] == "read after write" and found["details"]["other"]["kernel"] == "set"
    assert found["details"]["other_instruction"]["text"] == "st.global.u32 [%rd3], 1"
    assert outcome["reason"] == "of 2 kernels, the accesses are those of one traced launch"


@pytest.mark.native
def test_without_a_delay_a_finding_is_possible(cli: Cli, built: Path, tmp_path: Path) -> None:
    outcome = checked(cli, built, tmp_path / "out", "graph")
    (found,) = outcome["findings"]
    assert (found["kind"], found["certainty"]) == ("read after write", "possible")
    assert [found["call"]["kernel"], found["details"]["other"]["kernel"]] == ["copy", "fill"]
    assert "no edges order nodes" in found["details"]["missing"]
    sides = [found["details"][name] for name in ("instruction", "other_instruction")]
    assert [(one["node"], one["kernel"]) for one in sides] == [(2, "copy"), (1, "fill")]
    recorded = sorted(p.stem for p in (tmp_path / "out").glob("*.status"))
    assert recorded == ["order", "order-trace"]


@pytest.mark.native
def test_a_program_in_order_is_clean(cli: Cli, built: Path, tmp_path: Path) -> None:
    assert checked(cli, built, tmp_path / "out", "wait")["status"] == "clean"
    same = checked(cli, built, tmp_path / "same", "same")
    assert (same["status"], same["reason"]) == ("clean", "")


@pytest.mark.native
def test_guesses_are_listed_on_request(cli: Cli, built: Path, tmp_path: Path) -> None:
    """A function of the host may have told the program that the first call is done."""
    assert checked(cli, built, tmp_path / "out", "host-function", "--quick")["status"] == "clean"
    outcome = checked(cli, built, tmp_path / "all", "host-function", "--quick", "--all")
    assert [found["details"]["sure"] for found in outcome["findings"]] == [False]


# ---- calls that are written by hand ----


@pytest.fixture
def w(run_path: Path) -> Writer:
    """Two streams, two allocations."""
    return two_streams(run_path)


def launched(w: Writer, stream: int, function: int, *words: int, **members: Any) -> int:
    raw = struct.pack(f"<{len(words)}Q", *words)
    given = {"params": w.piece(raw), "params_size": len(raw), "stream": stream, **members}
    return w.event("launch", "cuLaunchKernel", id=function, **given)


def pairs_of(w: Writer, every: bool = False) -> list[Unordered]:
    w.close()
    process = tt.open(w.run).processes[0]
    return find_unordered(process, uses=KERNELS.__getitem__, every=every)


def test_pointers_into_one_allocation_are_a_guess(w: Writer) -> None:
    """It may be the pool of an allocator, with many tensors."""
    launched(w, 16, 3, 0, BASE)
    launched(w, 17, 3, 0, BASE + 64)
    assert not pairs_of(w)
    (found,) = pairs_of(w, every=True)
    assert not found.sure


def test_a_tensor_says_how_far_a_pointer_reaches(w: Writer) -> None:
    w.name(0, 0, 128, "x", "f32")
    w.name(0, 128, 64, "y", "f32")
    launched(w, 16, 3, 0, BASE)
    launched(w, 17, 3, 0, BASE + 64)
    launched(w, 17, 3, 0, BASE + 128)
    (found,) = pairs_of(w)
    assert found.sure and (found.low, found.high) == (64, 128)


def test_kernels_that_may_write_are_a_guess(w: Writer) -> None:
    launched(w, 16, 4, BASE)
    launched(w, 17, 4, BASE)
    launched(w, 17, 1, BASE)
    assert not pairs_of(w)
    assert len(pairs_of(w, every=True)) == 2


def test_the_same_pair_again_and_again_is_listed_once(w: Writer) -> None:
    for _ in range(10):
        launched(w, 16, 3, 0, BASE, stack=1)
        launched(w, 17, 1, BASE, stack=2)
        w.event("sync", stream=0)
    (found,) = pairs_of(w)
    assert found.times == 10


def test_host_functions_make_findings_a_guess(w: Writer) -> None:
    launched(w, 16, 3, 0, BASE)
    w.event("launch-host", stream=16)
    launched(w, 17, 1, BASE)
    assert not pairs_of(w)
    assert len(pairs_of(w, every=True)) == 1


def test_a_wait_for_a_value_may_be_called_before_that_is_written(w: Writer) -> None:
    w.event("mem-op", "cuStreamWaitValue32_v2", src=5, stream=17)
    launched(w, 17, 1, BASE)
    launched(w, 16, 3, 0, BASE)
    w.event("mem-op", "cuStreamWriteValue32_v2", dst=5, stream=16)
    assert not pairs_of(w)


def test_a_value_that_is_written_too_early_orders_nothing(w: Writer) -> None:
    w.event("mem-op", "cuStreamWaitValue32_v2", src=5, stream=17)
    w.event("mem-op", "cuStreamWriteValue32_v2", dst=5, stream=16)
    launched(w, 16, 3, 0, BASE)
    launched(w, 17, 1, BASE)
    assert len(pairs_of(w)) == 1


def test_a_value_that_somebody_else_writes_may_order_all(w: Writer) -> None:
    launched(w, 16, 3, 0, BASE)
    w.event("mem-op", "cuStreamWaitValue32_v2", src=5, stream=17)
    launched(w, 17, 1, BASE)
    assert not pairs_of(w)


def test_rows_of_a_copy_are_told_apart(w: Writer) -> None:
    rows: dict[str, Any] = {
        "grid": [8, 4, 1],
        "block": [32, 32, 0],
        "cluster": [4, 4, 0],
        "bytes": 32,
    }
    for stream, column, source in ((16, 0, 0), (17, 8, 16), (17, 4, 16)):
        w.event("copy", dst=BASE + column, src=BASE + 256 + source, stream=stream, **rows)
    (found,) = pairs_of(w)
    assert found.second.access.low == 4 and (found.low, found.high) == (4, 8)


def test_work_on_two_devices_is_ordered_by_events(w: Writer) -> None:
    def send(ordered: bool) -> None:
        launched(w, 16, 3, 0, BASE)
        if ordered:
            w.event("event-record", src=7, stream=16)
            w.event("event-wait", src=7, stream=17, context=1)
        w.event("copy", "cuMemcpyDtoD_v2", dst=BASE + 256, src=BASE, bytes=4, stream=17, context=1)
        for context in (0, 1):
            w.event("sync", stream=0, context=context)

    send(True)
    send(False)
    (found,) = pairs_of(w)
    assert (found.second.call.event.context, found.times) == (1, 1)


def test_memory_that_is_freed_and_used_again_is_other_memory(w: Writer) -> None:
    launched(w, 16, 3, 0, BASE)
    w.died(0, "cuMemFreeAsync")
    w.born(2, bytes(256), base=BASE)
    launched(w, 17, 1, BASE)
    assert not pairs_of(w)


SASS = support.ROOT / "tests" / "data" / "sass"


@pytest.fixture
def nvdisasm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that knows what the real one says of the files in data/sass."""
    tool = tmp_path / "tools" / "nvdisasm"
    tool.parent.mkdir()
    tool.write_text(f'#!/bin/sh\nexec {sys.executable} {SASS / "nvdisasm.py"} "$@"\n')
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tool.parent))
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(tools, "OTHERS", ())


@pytest.mark.usefixtures("nvdisasm")
@pytest.mark.parametrize("name", ["sm_80", "sm_90a", "sm_100a", "sm_120a"])
def test_what_machine_code_does_through_parameters(name: str) -> None:
    tables = {t.kernel_name: t for t in find_tables(SASS / f"{name}.cubin")}
    found = {kernel: code_uses(table, 24) for kernel, table in tables.items()}
    assert found["product"] == {8: READ, 0: WRITE}
    assert found["wide"] == {8: READ, 0: READ | WRITE, 16: READ}
    assert found["exchange"] == {8: READ, 0: READ | WRITE | ATOMICALLY}
    if "tiles" in found:  # a descriptor in the parameters names memory
        assert found["tiles"] == {0: ANYTHING, 8: ANYTHING, 16: ANYTHING}


@pytest.mark.parametrize(
    ("code", "uses"),
    [
        (["@P0 IMAD.MOV.U32 R2, RZ, RZ, R4", "STG.E [R2], R9"], {0: WRITE, 8: WRITE}),
        (["MOV R2, R4", "STG.E [R2], R9"], {8: WRITE}),
        (["@!P0 MOV R2, R4", "@!P0 STG.E [R2], R9"], {8: WRITE}),
        (["@!P0 MOV R2, R4", "@P0 STG.E [R2], R9"], {0: WRITE, 8: WRITE}),
        (
            ["@P0 MOV R2, R4", "ISETP.GE.AND P0, PT, R7, R8, PT", "@P0 STG.E [R2], R9"],
            {0: WRITE, 8: WRITE},
        ),
        (["LDG.E.64 R2, [R2]", "STG.E [R2], R9"], {0: READ}),
        (["STL.64 [R1], R2", "LDL.64 R6, [R1]", "RED.E.ADD [R6], R9"], {0: ATOMICALLY}),
        (["BRA 0x50", "STG.E [R2], R9"], {}),
        (["@P0 BRA 0x60", "STG.E [R2], R9", "EXIT", "NOP", "LDG.E R9, [R4]"], {0: WRITE, 8: READ}),
        (["LDC.64 R6, c[0x0][R8+0x210]", "STG.E [R6], R9"], {0: WRITE, 8: WRITE, 16: WRITE}),
        (["STG.E.64 [R2], R4"], {0: WRITE, 8: ANYTHING}),
        (["UBLKCP.S.G [UR8], [UR4], UR10"], {16: ANYTHING}),
    ],
)
def test_how_values_move_in_machine_code(code: list[str], uses: dict[int, int]) -> None:
    begin = ["LDC.64 R2, c[0x0][0x210]", "LDC.64 R4, c[0x0][0x218]"]
    rows = []
    for i, line in enumerate([*begin, "ULDC.64 UR4, c[0x0][0x220]", *code, "EXIT"]):
        text = parsed(line)
        rows.append({**vars(text), **text.registers._asdict(), "pc": 16 * i, "opcode": text.opcode})
    table = Table("k", "", "", 90, "", rows)
    assert code_uses(table, 24) == uses


@pytest.mark.native
def test_epochs_of_the_order_check_alone_cost_little(
    cli: Cli, built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pairs are found without epochs; with other checks it shares their recording."""
    monkeypatch.setitem(session.BUDGET, "overhead_allowance", "0")
    program = support.command("recorder_many_waits", built)
    for names, recorded in (("order", "order"), ("determinism,order", "plain")):
        folder = tmp_path / names
        done = cli("check", "--sim", "-q", "--only", names, "-o", folder, "--", *program)
        assert done.status == 0, done.stderr
        skipped = int((tt.open(folder / recorded).process(0).epochs["skipped"] > 0).sum())
        assert (skipped > 300) == (recorded == "order"), skipped
