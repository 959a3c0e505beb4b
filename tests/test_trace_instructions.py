"""What is known of traced instructions: PTX statements by line, and machine instructions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import ttanalyze as tt
from tests import support
from tests.rundir import Writer, digest, record, seal
from ttanalyze.code.ptx_statements import statements
from ttanalyze.disassembly.decode import parsed
from ttanalyze.format import layout
from ttanalyze.traces.instructions import (
    SIMULATOR,
    Instruction,
    instructions_of,
    machine_instruction,
    ptx_instruction,
)

PTX = b"""//
.version 8.0
.target sm_80
.address_size 64
.file 1 "/src/kernel.cu"
/* a comment
   of two lines: ld.global.u32 %r1, [%rd1]; */
.func (.param .b32 out) twice(.param .b32 in)
{
    .reg .b32 %a<2>;
    ld.param.u32 %a1, [in];
    st.param.b32 [out], %a1;
    ret;
}
.visible .entry kernel(.param .u64 p)
{
    .reg .pred %p<3>;
    .reg .b32 %r<9>;
    .reg .b64 %rd<4>;
    .reg .f32 %f<4>;
    .shared .align 4 .b8 tile[64];
    .loc 1 12 5
    ld.param.u64 %rd1, [p];
$L1: @!%p1 ld.global.nc.v4.f32 {%f0, %f1, %f2, %f3}, [%rd1+16]; // here
    .loc 1 14 9, function_name $L__info, inlined_at 1 12 5
    atom.shared.add.u32
        %r1, [tile], %r2;
    { .reg .b64 %r2; add.s64 %r2, %r2, 1; st.u8 [%rd1], %r3; }
    setp.lt.s32 %p1|%p2, %r1, %r3;
    call.uni (%r4), twice, (%r1);
    bar.sync 0;
    @%p2 bra $L1;
    cp.async.ca.shared.global [%r5], [%rd2], 8;
    red.global.add.f32 [%rd1], %f1;
    mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%f0,%f1}, {%r1}, {%r2}, {%f2,%f3};
    ret;
}
.visible .entry other() { ret; }
"""
KERNEL = "kernel"


def of_ptx(begin: str) -> Instruction:
    (one,) = (s for s in statements(PTX, KERNEL) or () if s.mnemonic.startswith(begin))
    return ptx_instruction(one)


def test_statements_have_their_lines() -> None:
    found = statements(PTX, KERNEL)
    assert found is not None
    lines = PTX.decode().splitlines()
    assert all(one.mnemonic in lines[one.line - 1] for one in found)
    assert {one.function for one in found} == {"kernel", "twice"}
    assert len(found) == 16
    assert statements(PTX, "missing") is None
    assert statements(PTX, "twice") is None


def test_statements_have_source_lines() -> None:
    assert of_ptx("ld.global").source == "/src/kernel.cu:12"
    assert of_ptx("atom").source == "/src/kernel.cu:14"
    assert [s.source for s in statements(PTX, KERNEL) or () if s.function == "twice"] == [None] * 3


def test_a_load_of_a_vector() -> None:
    one = of_ptx("ld.global")
    assert (one.opcode, one.predicate, one.category) == ("ld", "@!%p1", "memory")
    assert (one.access, one.space, one.size) == ("load", "global", 16)
    assert one.writes == ("%f0", "%f1", "%f2", "%f3")
    assert one.reads == ("%rd1",)
    assert one.recorded == ("%f0", "%f1", "%f2", "%f3", "%rd1", "%rd1.hi")


@pytest.mark.parametrize(
    ("begin", "access", "space", "size", "category"),
    [
        ("atom", "atomic", "shared", 4, "memory"),
        ("red", "atomic", "global", 4, "memory"),
        ("st.u8", "store", "generic", 1, "memory"),
        ("cp.async", "copy", "global", 8, "memory"),
        ("bar", None, None, 0, "sync"),
        ("bra", None, None, 0, "control"),
        ("mma", None, None, 0, "mma"),
        ("setp", None, None, 0, "other"),
    ],
)
def test_statements(
    begin: str, access: str | None, space: str | None, size: int, category: str
) -> None:
    one = of_ptx(begin)
    assert (one.access, one.space, one.size) == (access, space, size)
    assert one.category == category


@pytest.mark.parametrize(
    ("begin", "writes", "reads", "recorded"),
    [
        ("setp", ("%p1", "%p2"), ("%r1", "%r3"), ("%r1", "%r3")),
        ("atom", ("%r1",), ("%r2",), ("%r1", "%r2")),
        ("red", (), ("%rd1", "%f1"), ("%rd1", "%rd1.hi", "%f1")),
        ("call", ("%r4",), ("%r1",), ("%r4", "%r1")),
        ("add.s64", ("%r2",), ("%r2",), ("%r2", "%r2.hi")),  # as its block declares it
        ("bra", (), (), ()),
    ],
)
def test_registers_of_statements(
    begin: str, writes: tuple[str, ...], reads: tuple[str, ...], recorded: tuple[str, ...]
) -> None:
    one = of_ptx(begin)
    assert (one.writes, one.reads, one.recorded) == (writes, reads, recorded)


def machine(sass: str) -> Instruction:
    text = parsed(sass)
    row: dict[str, Any] = {name: getattr(text, name) for name in ("sass", "opcode", "mnemonic")}
    row |= {"operands": text.operands, "predicate": text.predicate, **text.registers._asdict()}
    return machine_instruction(row | {"pc": 32, "file": "a.cu", "line": 7, "binary": "00"})


@pytest.mark.parametrize(
    ("sass", "access", "space", "size", "category"),
    [
        ("LDG.E.128 R4, desc[UR4][R2.64]", "load", "global", 16, "memory"),
        ("STG.E.U8 [R2.64], R5", "store", "global", 1, "memory"),
        ("LDS.64 R4, [R2+0x8]", "load", "shared", 8, "memory"),
        ("ATOMG.E.ADD.F32x2.RN.STRONG.GPU PT, R4, desc[UR4][R2.64], R6", "atomic", "global", 8, ""),
        ("RED.E.ADD.F16x2.RN.STRONG.GPU desc[UR4][R2.64], R6", "atomic", "global", 4, "memory"),
        ("LDGSTS.E.BYPASS.128 [R1], desc[UR4][R2.64]", "copy", "global", 16, "memory"),
        ("LD.E.64 R4, [R2.64]", "load", "generic", 8, "memory"),
        ("LDC R1, c[0x0][0x28]", "load", "const", 4, "other"),
        ("BAR.SYNC.DEFER_BLOCKING 0x0", None, None, 0, "sync"),
        ("HMMA.16816.F32 R4, R8, R12, R4", None, None, 0, "mma"),
        ("UTMALDG.2D [UR8], [UR4]", None, None, 0, "tma"),
        ("EXIT", None, None, 0, "control"),
        ("IADD3 R1, R2, R3, RZ", None, None, 0, "other"),
    ],
)
def test_machine_instructions(
    sass: str, access: str | None, space: str | None, size: int, category: str
) -> None:
    one = machine(sass)
    assert (one.number, one.access, one.space, one.size) == (2, access, space, size)
    assert one.category == (category or "memory")
    assert one.source == "a.cu:7"


def test_registers_of_a_machine_instruction_are_in_the_order_of_its_operands() -> None:
    one = machine("@P0 STG.E.64 desc[UR4][R10.64+0x8], R2")
    assert one.recorded == ("R10", "R11", "R2", "R3")
    assert one.uniform == ("UR4", "UR5")
    assert one.predicate == "@P0"
    assert one.reads == ("R2", "R3", "R10", "R11", "UR4", "UR5")


def simulated(path: Path, contents: bytes = PTX, **members: int) -> tt.Run:
    """A run of the simulator with one kernel."""
    run = Writer(path)
    found = {"id": 0, "image": digest(contents), "size": len(contents), **members}
    run.append("modules.bin", seal(record(layout.MODULE, **found)))
    (run.path / "modules").mkdir()
    (run.path / "modules" / f"{digest(contents):016x}").write_bytes(contents)
    run.function(0, KERNEL)
    run.close(devices=[{"ordinal": 0, "name": SIMULATOR, "memory": 1 << 30}])
    return tt.open(path)


def test_instructions_of_a_run(tmp_path: Path) -> None:
    run = simulated(tmp_path)
    found = instructions_of(run, run.process(0), 0)
    assert (found.kernel, found.ptx) == ("kernel", True)
    assert found.by_number[23].text == "ld.param.u64 %rd1, [p]"


def test_two_statements_on_a_line_are_one_instruction(tmp_path: Path) -> None:
    run = simulated(tmp_path)
    found = instructions_of(run, run.process(0), 0)
    one = found.by_number[28]
    assert one.text == "add.s64 %r2, %r2, 1; st.u8 [%rd1], %r3"
    assert (one.access, one.size) == ("store", 1)


def test_code_that_the_run_lacks(tmp_path: Path) -> None:
    run = simulated(tmp_path / "other", contents=b".version 8.0\n.entry another() { ret; }")
    with pytest.raises(tt.Error, match="no PTX of kernel: its module has none"):
        instructions_of(run, run.process(0), 0)
    run = simulated(tmp_path / "unsaved", image=0, missing=layout.MISSING.index("large"))
    with pytest.raises(tt.Error, match="no PTX of kernel: the image of its module was too large"):
        instructions_of(run, run.process(0), 0)


@pytest.mark.native
def test_the_simulator_records_what_the_table_says(built: Path, tmp_path: Path) -> None:
    program = support.build_examples(built / "examples") / "race"
    options = ("--kind", "registers,values", "--launch", "0", "--blocks", "0:1")
    environment = support.simulator_environment()
    command: list[str | Path] = ["instrument", "--sim", *options, "-o", tmp_path / "run"]
    support.ttanalyze(*command, "--", program, environment=environment)
    run = tt.open(tmp_path / "run")
    table = instructions_of(run, run.process(0), int(run.process(0).traced["function"][0]))
    seen = 0
    for records in run.trace_records(kinds=["registers", "values"]):
        numbers = records.heads["instruction"].tolist()
        words, sizes = records.words.tolist(), (records.sizes // 16).tolist()
        for number, kind, word, size in zip(numbers, records.kinds, words, sizes, strict=True):
            one = table.by_number[number]
            told = -(-one.size // 4) if layout.TRACE_KINDS[kind] == "values" else len(one.recorded)
            assert told == (word or size), one.text
            seen += 1
    assert seen > 500
