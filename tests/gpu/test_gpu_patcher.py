"""On a GPU: the patcher's traces are those of NVIDIA's Sanitizer API, and change no result."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ttanalyze as tt
from tests import support
from tests.test_instrument import KIND, records
from ttanalyze.format import layout
from ttanalyze.format.layout import Array
from ttanalyze.traces.instructions import Instruction, instructions_of
from ttanalyze.verbs.record.run import sanitizer_library

HERE = Path(__file__).resolve().parent
BARE = support.bare_environment()
LINKED = ("divided", "called", "pointed", "printed")
KERNELS = (
    *("copy", "vectors", "gather", "reduction", "histogram", "product", "softmax", "globals"),
    *("divergent", "crowded", "framed", *LINKED, "specialised", "dynamic", "together"),
)
KINDS = (
    *("count", "opcode", "registers", "addresses", "values", "tma", "heartbeat"),
    *("values,heartbeat", "count,opcode,addresses,heartbeat", "count,registers,values,tma"),
)
Found = Counter[tuple[int, ...]]
ARENA_END = 1 << 46  # of deterministic memory
VARIABLES_ALIGN = 256  # bytes
ROW = 16  # words of 64 bits: a register of each lane
ADDRESS = re.compile(r"\[(U?R(?:\d+|Z))(\.64)?(?:\+(UR\d+))?(?:\+(-?0x[0-9a-f]+))?\]")

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif("H" not in (support.gpu_name() or ""), reason="needs a GPU of sm_90"),
]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("kernels") / "kernels"
    return support.build_cuda(HERE / "patcher_kernels.cu", target, "-O3", "-arch=sm_90a")


def lines(text: str) -> list[str]:
    """Without the times."""
    return [line.rsplit(" ", 1)[0] for line in text.splitlines()]


def trace(run: Path, command: list[Path | str], way: str, *options: str) -> support.Outcome:
    given: list[str | Path] = ["instrument", "-q", "--way", way, *options, "-o", run, "--"]
    return support.ttanalyze(*given, *command, environment=BARE)


def accesses(run: Path) -> dict[int, Found]:
    """Of each launch: instruction, block, warp, lanes and their addresses. Variables of modules are
    not at the same addresses each time, and the stack depends on what code needs of it.
    """
    opened = tt.open(run)
    process = opened.process(0)
    known = instructions_of(opened, process, int(process.traced["function"][0])).by_number
    parts = [
        (head, [int(a) for lane, a in enumerate(every) if int(head["mask"]) >> lane & 1])
        for part in opened.trace_records(kinds=["addresses"])
        for head, every in zip(part.heads, part.addresses(), strict=True)
    ]
    local = {number for number, one in known.items() if one.space == "local"}
    stack = min((min(at) for head, at in parts if int(head["instruction"]) in local), default=0)
    found: dict[int, Found] = {}
    for head, given in parts:
        number, mask = int(head["instruction"]), int(head["mask"])
        if number in local:
            at = [a - stack for a in given]
        else:
            at = [a % VARIABLES_ALIGN if a > ARENA_END else a for a in given]
        key = (number, int(head["block_x"]), int(head["warp"]), mask, *at)
        found.setdefault(int(head["launch"]), Counter())[key] += 1
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_traced_kernels_give_the_same_results(kind: str, program: Path, tmp_path: Path) -> None:
    bare = support.run([program, "all", "16"], BARE)
    few = ("--blocks", "0:0") if "registers" in kind else ()
    given = ("--kind", kind, *few)
    done = trace(tmp_path / "run", [program, "all", "16"], "patcher", *given)
    assert (done.status, lines(done.stdout)) == (0, lines(bare.stdout)), done.stderr
    refused = tt.open(tmp_path / "run").processes[0].traced["refused"]
    full = ["crowded", "framed", "specialised"]  # a heartbeat needs registers of its own
    assert (full if "heartbeat" in kind else []) == [
        kernel
        for kernel, why in zip(KERNELS, refused, strict=True)
        if layout.REFUSED_TRACES[why] != "none"
    ]


@pytest.fixture(scope="module")
def linked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program with functions that the linker put beside its kernels."""
    target = tmp_path_factory.mktemp("linked") / "kernels"
    options = ("-O3", "-arch=sm_90a", "-rdc=true")
    return support.build_cuda(HERE / "patcher_kernels.cu", target, *options)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("kernel", LINKED)
def test_kernels_that_call_functions_give_the_same_results(
    kernel: str, kind: str, linked: Path, tmp_path: Path
) -> None:
    command: list[Path | str] = [linked, kernel, "16", "2", "8192"]
    bare = support.run(command, BARE)
    done = trace(tmp_path / "run", command, "patcher", "--kind", kind)
    assert (done.status, lines(done.stdout)) == (0, lines(bare.stdout)), done.stderr
    refused = tt.open(tmp_path / "run").processes[0].traced["refused"]
    assert {layout.REFUSED_TRACES[why] for why in refused} == {"none"}


def test_counts_are_those_of_the_records(program: Path, tmp_path: Path) -> None:
    """Kernels that wait for each other repeat loops differently often."""
    for kernel in (
        *("vectors", "reduction", "softmax", "globals", "divergent"),
        *("crowded", "framed", *LINKED, "specialised"),
    ):
        run, alone = tmp_path / kernel, tmp_path / f"{kernel}-alone"
        command: list[Path | str] = [program, kernel, "4", "1", "8192"]
        assert trace(run, command, "patcher", "--kind", "count,opcode").status == 0
        found = list(records(run))
        warps = Counter(one.line for one in found if one.kind == KIND["opcode"])
        counts = {one.line: one.numbers for one in found if one.kind == KIND["count"]}
        assert warps and warps.keys() <= counts.keys()
        assert {i: counts[i][0] for i in warps} == warps
        assert trace(alone, command, "patcher", "--kind", "count").status == 0
        again = (one for one in records(alone) if one.kind == KIND["count"])
        assert {one.line: one.numbers for one in again} == counts


@pytest.mark.parametrize("kernel", ["copy", "vectors"])
def test_values_are_those_of_memory(kernel: str, program: Path, tmp_path: Path) -> None:
    """What the program puts there: see main() of patcher_kernels.cu."""
    word, given = 1, []
    for _ in range(8192):
        word = (word * 1664525 + 1013904223) % 2**32
        given.append(word)
    command: list[Path | str] = [program, kernel, "4", "1", "8192"]
    assert trace(tmp_path / "run", command, "patcher", "--kind", "values").status == 0
    found: dict[int, tuple[int, ...]] = {}
    for part in tt.open(tmp_path / "run").trace_records(kinds=["values"]):
        for at, values in zip(part.addresses(), part.values(), strict=True):
            found |= zip(at.tolist(), map(tuple, values.T.tolist()), strict=True)
    size = 1 if kernel == "copy" else 4
    loaded = [tuple(given[i : i + size]) for i in range(0, len(given), size)]
    stored = loaded if size == 1 else [(d, c, b, (a + 1) % 2**32) for a, b, c, d in loaded]
    seen = [found[at] for at in sorted(found)]
    halves = seen[: len(loaded)], seen[len(loaded) :]
    assert halves in ((loaded, stored), (stored, loaded))


def executions(run: Path, kind: str) -> dict[int, tuple[Array, Array, list[Any]]]:
    """By instruction: keys, masks and what `kind` has, in the order of warps and their time."""
    found: dict[int, list[tuple[tuple[int, ...], int, Any]]] = {}
    for part in tt.open(run).trace_records(kinds=[kind]):
        if kind == "registers":
            each = zip(part.registers(), part.uniform_registers(), strict=True)
        else:
            each = zip(part.addresses(), part.values(), strict=True)
        for head, more in zip(part.heads, each, strict=True):
            key = tuple(int(head[name]) for name in ("block_x", "block_y", "warp"))
            found.setdefault(int(head["instruction"]), []).append((key, int(head["mask"]), more))
    out = {}
    for number, rows in found.items():
        rows.sort(key=lambda row: row[0])
        keys, masks, more = zip(*rows, strict=True)
        out[number] = (np.array(keys), np.array(masks, "u4"), list(more))
    return out


def address(one: Instruction, general: Array, uniform: Array) -> Array:
    """What an instruction accesses with these registers: (32) addresses."""

    def value(name: str) -> Array:
        if name.endswith("Z"):
            return np.zeros(32, "u8")
        if name in one.uniform:
            return np.full(32, uniform[one.uniform.index(name)], "u8")
        return general[one.recorded.index(name)].astype("u8")

    base, wide, added, offset = ADDRESS.findall(one.text)[-1]
    at = value(base)
    if wide and base != "RZ":
        at = at | value(f"R{int(base[1:]) + 1}") << np.uint64(32)
    at = at + (value(added) if added else np.uint64(0))
    at = at + np.uint64(int(offset or "0", 16) % 2**64)
    return at if wide else at & np.uint64(2**32 - 1)


@pytest.mark.parametrize("kernel", KERNELS)
def test_registers_of_accesses_give_addresses_and_values(
    kernel: str, program: Path, tmp_path: Path
) -> None:
    blocks, words = {"dynamic": ("4", "49152"), "product": ("256", "65536")}.get(
        kernel, ("4", "8192")
    )
    command: list[Path | str] = [program, kernel, blocks, "1", words]
    bare = support.run(command, BARE)
    given = ("--kind", "registers,values", "--blocks", "0:3" if kernel != "product" else "0:0")
    done = trace(tmp_path / "run", command, "patcher", *given)
    assert (done.status, lines(done.stdout)) == (0, lines(bare.stdout)), done.stderr
    run = tt.open(tmp_path / "run")
    known = instructions_of(run, run.process(0), int(run.process(0).traced["function"][0]))
    registers, values = (executions(tmp_path / "run", kind) for kind in ("registers", "values"))
    stored = 0
    for number, (keys, masks, rows) in values.items():
        one = known.by_number[number]
        own_keys, own_masks, own = registers[number]
        assert np.array_equal(own_keys, keys) and np.array_equal(own_masks, masks), one.text
        data = one.recorded.index(name) if (name := one.text.split()[-1]) in one.recorded else -1
        for mask, (at, words), (general, uniform) in zip(masks, rows, own, strict=True):
            lanes = (mask >> np.arange(32, dtype="u4") & 1).astype(bool)
            assert np.array_equal(address(one, general, uniform)[lanes], at[lanes]), one.text
            if one.opcode in ("STG", "STS") and one.size >= 4 and data >= 0:
                assert np.array_equal(general[data][lanes], words[0][lanes]), one.text
                stored += 1
    assert len(values) > 1 and (stored or kernel in ("histogram", "globals"))
    shown = support.ttanalyze("query", tmp_path / "run", "--table", "trace", "--head", "1")
    assert "unknown" not in shown.stderr


def test_bulk_copies_are_those_of_the_simulator(built: Path, tmp_path: Path) -> None:
    command = support.command("tensor_maps", built)
    bare = support.run(command, BARE)
    given = ("instrument", "-q", "--kind", "tma,registers")
    shown = {}
    ways = {"gpu": [*given, "--way", "patcher"], "sim": [*given, "--sim"]}
    if sanitizer_library():
        ways["api"] = ["instrument", "-q", "--kind", "tma", "--way", "sanitizer"]
    for name, way in ways.items():
        run = tmp_path / name
        done = support.ttanalyze(*way, "-o", run, "--", *command, environment=BARE)
        assert (done.status, done.stdout) == (0, bare.stdout), done.stderr
        out = support.ttanalyze("query", run, "--table", "tma", "--format", "json")
        same = ("does", "first", "last", "records", "bytes", "multicast", "swizzle", "box_dim")
        rows = json.loads(out.stdout)
        shown[name] = sorted(repr([row[n] for n in (*same, "global_dim")]) for row in rows)
    assert len(shown["gpu"]) == 36
    assert shown["gpu"] == shown["sim"]
    loads = [row for row in shown["gpu"] if row.startswith("['load'")]
    assert len(loads) == 18 and shown.get("api", loads) == loads  # which has loads alone


def computed(one: Instruction, had: dict[str, Array]) -> Array | None:
    """What some instructions write, of what their registers had; None: it is not known here."""
    modifiers, (to, *sources) = one.mnemonic.split(".")[1:], one.operands or ("",)

    def value(text: str) -> Array | None:
        text = text.removesuffix(".reuse")
        if re.fullmatch(r"-?0x[0-9a-f]+", text):
            return np.full(32, int(text, 16) % 2**32, "u4")
        if text == "RZ":
            return np.zeros(32, "u4")
        if text.startswith("-") and (of := value(text[1:])) is not None:
            return -of
        return had.get(text)

    if to not in one.writes or len(one.writes) > 1:
        return None
    given = [value(source) for source in sources]
    if any(of is None for of in given[:3]):
        return None
    known = [of for of in given if of is not None]
    if one.opcode == "MOV":
        return known[0]
    if one.opcode in ("IADD3", "VIADD") and not modifiers and len(known) in (2, 3):
        return sum(known[1:], known[0])
    if one.opcode == "IMAD" and {*modifiers} <= {"SHL", "MOV", "IADD", "U32"} and len(known) == 3:
        return known[0] * known[1] + known[2]
    if one.opcode == "LOP3" and modifiers == ["LUT"] and len(known) >= 4:
        a, b, c, table = known[0], known[1], known[2], int(known[3][0])
        terms = (
            (a if n & 4 else ~a) & (b if n & 2 else ~b) & (c if n & 1 else ~c)
            for n in range(8)
            if table >> n & 1
        )
        return sum(terms, np.zeros(32, "u4"))
    return None


@pytest.mark.parametrize("kernel", KERNELS)
def test_registers_keep_what_was_written_to_them(
    kernel: str, program: Path, tmp_path: Path
) -> None:
    """Each has the value that it had, or that the instruction in between computes."""
    blocks, words = {
        "dynamic": ("1", "49152"),
        "product": ("256", "65536"),
        "divergent": ("1", "1024"),
    }.get(kernel, ("1", "8192"))
    command: list[Path | str] = [program, kernel, blocks, "1", words]
    given = ("--kind", "registers", "--blocks", "0:0")
    assert trace(tmp_path / "run", command, "patcher", *given).status == 0
    run = tt.open(tmp_path / "run")
    known = instructions_of(run, run.process(0), int(run.process(0).traced["function"][0]))
    parts = list(run.trace_records(kinds=["registers"]))
    seen = {int(number) for part in parts for number in np.unique(part.heads["instruction"])}
    others = (one for number, one in known.by_number.items() if number not in seen)
    unclear = {name for one in others for name in one.writes}
    has: dict[
        tuple[int, int], dict[str, tuple[Array, Array]]
    ] = {}  # by warp: values, and for which lanes
    kept = made = 0
    for part in parts:
        for head, size, general in zip(part.heads, part.sizes, part.registers(), strict=True):
            one = known.by_number[int(head["instruction"])]
            lanes = (int(head["mask"]) >> np.arange(32) & 1).astype(bool)
            warp = has.setdefault((int(head["block_x"]), int(head["warp"])), {})
            rows = dict(zip(one.recorded, general[: size // ROW], strict=False))
            for name, values in rows.items():
                old, valid = warp.get(name, (values, np.zeros(32, bool)))
                same = lanes & valid
                assert np.array_equal(old[same], values[same]), (one.number, one.text, name)
                kept += int(same.sum())
                warp[name] = np.where(lanes, values, old), valid | lanes
            new = computed(one, rows)
            for name in one.writes:
                old, valid = warp.get(name, (np.zeros(32, "u4"), np.zeros(32, bool)))
                if new is None:
                    warp[name] = old, valid & ~lanes
                else:
                    warp[name] = np.where(lanes, new, old), valid | lanes
                    made += int(lanes.sum())
            for name in unclear:
                warp.pop(name, None)
    assert kept > 100 and (made > 1000 or kernel == "copy"), (kept, made)


@pytest.mark.skipif(not sanitizer_library(), reason="nvidia-cuda-sanitizer-api >= 13.5")
@pytest.mark.parametrize("kernel", KERNELS)
def test_addresses_are_those_of_the_sanitizer_api(
    kernel: str, program: Path, tmp_path: Path
) -> None:
    words = {"dynamic": "49152", "product": "65536"}.get(kernel, "8192")
    command: list[Path | str] = [program, kernel, "4", "1", words]
    given = ("--kind", "addresses", "--deterministic")
    for way in ("patcher", "sanitizer"):
        assert trace(tmp_path / way, command, way, *given).status == 0
    ours, theirs = accesses(tmp_path / "patcher"), accesses(tmp_path / "sanitizer")
    if kernel == "together":  # it waits in loops
        assert {key[0] for key in ours[0]} == {key[0] for key in theirs[0]}
    else:
        assert ours == theirs


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="needs triton")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("script", ["triton_case.py", "train_adamw.py"])
def test_triton_and_torch_compute_the_same(script: str, kind: str, tmp_path: Path) -> None:
    command: list[str | Path] = [sys.executable, HERE / script]
    bare = support.run(command, BARE)
    few = () if kind in ("count", "heartbeat") else ("--blocks", "0:0", "--max-records", "20000")
    done = trace(tmp_path / "run", command, "patcher", "--kind", kind, *few)
    assert (done.status, done.stdout) == (0, bare.stdout), done.stderr
    refused = Counter(int(r) for r in tt.open(tmp_path / "run").processes[0].traced["refused"])
    assert refused[layout.REFUSED_TRACES.index("none")] > 0
