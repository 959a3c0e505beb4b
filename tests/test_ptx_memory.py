"""The PTX interpreter: memory of all spaces, variables, parameters, atomic operations."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.ptx_cases import failure, kernel, run
from tests.ptx_machine import HEADER, Machine, PtxError

pytestmark = pytest.mark.native


def test_loads_extend_and_stores_truncate() -> None:
    machine = Machine()
    source = machine.put(np.array([0xFEDCBA9876543280], np.uint64))
    out = machine.alloc(64)
    body = """
	ld.param.u64 %l1, [in];
	ld.global.s8 %h1, [%l1]; cvt.u32.u16 %r1, %h1; st.global.u32 [%base], %r1;
	ld.global.s8 %r1, [%l1]; st.global.u32 [%base+4], %r1;
	ld.global.u8 %r1, [%l1]; st.global.u32 [%base+8], %r1;
	ld.global.s16 %r1, [%l1+6]; st.global.u32 [%base+12], %r1;
	ld.global.s32 %l2, [%l1+4]; st.global.u64 [%base+16], %l2;
	ld.global.u32 %l2, [%l1+4]; st.global.u64 [%base+24], %l2;
	ld.global.s8 %l2, [%l1+0]; st.global.u8 [%base+32], %l2;
	ld.global.u16 %h2, [%l1+2]; st.global.u16 [%base+34], %h2;
	ld.global.s16 %l2, [%l1+6]; st.global.u32 [%base+36], %l2;
	st.global.u8 [%base+40], 511; st.global.v2.u16 [%base+44], {%h2, 7};"""
    module = machine.load(kernel(".param .u64 out, .param .u64 in", body))
    module.launch("k", out, source, block=[1])
    words = machine.view(out, 64, np.uint32)
    assert [hex(w) for w in words[:12]] == [
        "0xff80", "0xffffff80", "0x80", "0xfffffedc", "0xfedcba98", "0xffffffff", "0xfedcba98",
        "0x0", "0x76540080", "0xfffffedc", "0xff", "0x77654",
    ]  # fmt: skip


def test_vectors_and_aliasing() -> None:
    """A vector load may overwrite the register that held its address."""
    machine = Machine()
    data = np.arange(64, dtype=np.uint64)
    source, out = machine.put(data), machine.alloc(32 * 16)
    body = """
	ld.param.u64 %l1, [in]; mad.wide.u32 %l1, %t, 16, %l1; mad.wide.u32 %l9, %t, 16, %base;
	ld.global.nc.L1::no_allocate.v2.u64 {%l1, %l2}, [%l1];
	add.u64 %l1, %l1, 1; st.global.cs.v2.b64 [%l9], {%l2, %l1};"""
    module = machine.load(kernel(".param .u64 out, .param .u64 in", body))
    module.launch("k", out, source)
    got = machine.view(out, 512, np.uint64).reshape(32, 2)
    assert (got == np.stack([data[1::2], data[::2] + 1], 1)).all()


def test_generic_addresses_reach_every_space() -> None:
    body = """
	.local .align 8 .b8 mine[16]; .shared .align 4 .b8 ours[128];
	mul.lo.u32 %r1, %t, 10;
	mov.u64 %l1, mine; cvta.local.u64 %l2, %l1; st.u32 [%l2+4], %r1;
	mov.u32 %r2, ours; mad.lo.u32 %r2, %t, 4, %r2; cvt.u64.u32 %l3, %r2;
	cvta.shared.u64 %l4, %l3; st.u32 [%l4], %t;
	bar.sync 0;
	xor.b32 %r3, %t, 1; mov.u32 %r4, ours; mad.lo.u32 %r4, %r3, 4, %r4; ld.shared.u32 %r5, [%r4];
	ld.local.u32 %r6, [mine+4]; ld.u32 %r7, [%l4]; ld.u32 %r8, [table+8];
	add.u32 %r9, %r5, %r6; add.u32 %r9, %r9, %r7; add.u32 %r9, %r9, %r8;
	isspacep.shared %p1, %l4; isspacep.local %p2, %l2; isspacep.global %p3, %o;
	isspacep.global %p4, %l4;
	@!%p1 trap; @!%p2 trap; @!%p3 trap; @%p4 trap;
	cvta.to.shared.u64 %l5, %l4; setp.ne.u64 %p5, %l5, %l3; @%p5 trap;
	st.u32 [%o], %r9;"""
    t = np.arange(32)
    assert (
        run(body, ".const .align 4 .u32 table[3] = {5, 6, 700};") == (t ^ 1) + 10 * t + t + 700
    ).all()


def test_neighbouring_allocations_have_separate_bounds() -> None:
    """One instruction of a warp may reach many small allocations, each with bounds of its own."""
    machine = Machine()
    cells = [machine.put(np.array([100 + i], np.uint32)) for i in range(32)]
    pointers, out = machine.put(np.array(cells, np.uint64)), machine.alloc(128)
    body = """ld.param.u64 %l1, [in]; mad.wide.u32 %l1, %t, 8, %l1; ld.global.u64 %l2, [%l1];
	ld.global.u32 %r1, [%l2]; add.u32 %r2, %r1, 1; st.global.u32 [%l2], %r2;
	st.global.u32 [%o], %r1;"""
    machine.load(kernel(".param .u64 out, .param .u64 in", body)).launch("k", out, pointers)
    assert (machine.view(out, 128, np.uint32) == 100 + np.arange(32)).all()
    assert [int(machine.view(c, 4, np.uint32)[0]) for c in cells] == [101 + i for i in range(32)]


@pytest.mark.parametrize("size", [1, 3, 4, 5, 4095, 4096, 4097, 8191, 70000])
def test_bounds_are_exact_to_the_byte(size: int) -> None:
    machine = Machine()
    block, out = machine.alloc(size), machine.alloc(128)
    body = """ld.param.u64 %l1, [at]; ld.global.u8 %r1, [%l1]; st.global.u8 [%l1], 1;"""
    module = machine.load(kernel(".param .u64 out, .param .u64 at", body))
    module.launch("k", out, block + size - 1, block=[1])
    module.launch("k", out, block, block=[1])
    for beyond in (block + size, block - 1):
        with pytest.raises(PtxError) as error:
            module.launch("k", out, beyond, block=[1])
        assert error.value.status == "bad address"
        assert hex(beyond) in error.value.message
    assert machine.view(block, size).sum() == (1 if size == 1 else 2)


def test_read_only_memory() -> None:
    machine = Machine()
    block, out = machine.alloc(16384, readonly=True) + 8192, machine.alloc(128)
    for write, fails in (
        ("", False),
        ("st.global.u32 [%l2], %r1;", True),
        ("red.global.add.u32 [%l2], 1;", True),
    ):
        body = f"""ld.param.u64 %l1, [at]; mad.wide.u32 %l2, %t, 4, %l1;
	ld.global.u32 %r1, [%l2]; {write}"""
        module = machine.load(kernel(".param .u64 out, .param .u64 at", body))
        if fails:
            with pytest.raises(PtxError, match="bad address"):
                module.launch("k", out, block)
        else:
            module.launch("k", out, block)


def test_out_of_bounds_warp_at_a_page_end() -> None:
    machine = Machine()
    while (block := machine.alloc(4096)) % 4096:
        pass
    out = machine.alloc(128)
    body = """ld.param.u64 %l1, [at]; mad.wide.u32 %l1, %t, 4, %l1; ld.global.u32 %r1, [%l1];
	st.global.u32 [%o], %r1;"""
    module = machine.load(kernel(".param .u64 out, .param .u64 at", body))
    module.launch("k", out, block + 4096 - 128)
    with pytest.raises(PtxError) as error:
        module.launch("k", out, block + 4096 - 64)
    assert error.value.status == "bad address"
    assert (
        f"thread (16,0,0) of block (0,0,0): read of 4 bytes at {block + 4096:#x}"
        in error.value.message
    )


def test_parameters_lie_as_declared() -> None:
    machine = Machine()
    out = machine.alloc(64)
    parameters = """.param .u64 out, .param .u8 a, .param .align 8 .b8 s[12], .param .u16 b,
	.param .u64 .ptr .global .align 1 q, .param .f32 f"""
    body = """
	ld.param.u8 %r1, [a]; st.global.u32 [%base], %r1;
	ld.param.v2.u32 {%r2, %r3}, [s]; st.global.v2.u32 [%base+8], {%r2, %r3};
	ld.param.u32 %r4, [s+8]; st.global.u32 [%base+16], %r4;
	ld.param.u16 %h1, [b]; st.global.u16 [%base+20], %h1;
	ld.param.f32 %f1, [f]; st.global.f32 [%base+24], %f1;
	mov.b64 %l1, s; add.u64 %l1, %l1, 4; ld.param.u32 %r5, [%l1]; st.global.u32 [%base+28], %r5;"""
    module = machine.load(kernel(parameters, body))
    info = module.info("k")
    offsets = [(info.params[i].offset, info.params[i].size) for i in range(info.param_count)]
    assert offsets == [(0, 8), (8, 1), (16, 12), (28, 2), (32, 8), (40, 4)]
    assert info.param_bytes == 44
    module.launch(
        "k", out, 200, np.array([1, 2, 3], np.uint32), 40000, 0, np.float32(2.5), block=[1]
    )
    words = machine.view(out, 32, np.uint32)
    assert list(words[[0, 2, 3, 4, 5, 7]]) == [200, 1, 2, 3, 40000, 2]
    assert machine.view(out + 24, 4, np.float32)[0] == 2.5


def test_variables_and_initial_values() -> None:
    machine = Machine()
    module = machine.load(
        HEADER
        + """
.visible .global .align 4 .u32 plain = 0x1234;
.global .align 8 .b8 bytes[12] = {1, 2, 255, -1};
.global .f64 doubles[3] = {0d3FF8000000000000, 2.5, -3};
.global .f32 floats[2] = {0f3F800000, -0.25};
.global .s16 grid[2][3] = {{1, 2}, {-4, 5, 6}};
.global .u64 addresses[5] = {plain, generic(bytes)+4, bytes+8, later, last};
.global .u32 later = 9;
.global .align 1 .b8 low[4] = {0xFF(plain), 0xFF00(plain), 0, 7};
.const .align 16 .b32 constants[] = {7, 8, 9};
.global .u32 zeros[100];
.visible .func last() { ret; }
.global .v4 .f32 vector = {1.0, 2.0, 3.0, 4.0};
.global .attribute(.managed) .u32 managed = 1;
"""
    )

    def contents(name: str, dtype: Any) -> list[Any]:
        address, size = module.variable(name)
        return list(machine.view(address, size, dtype).tolist())

    assert contents("plain", np.uint32) == [0x1234]
    assert contents("bytes", np.uint8) == [1, 2, 255, 255] + [0] * 8
    assert contents("doubles", np.float64) == [1.5, 2.5, -3.0]
    assert contents("floats", np.float32) == [1.0, -0.25]
    assert contents("grid", np.int16) == [1, 2, 0, -4, 5, 6]
    plain, byte, later = (module.variable(n)[0] for n in ("plain", "bytes", "later"))
    assert contents("addresses", np.uint64)[:4] == [plain, byte + 4, byte + 8, later]
    assert contents("low", np.uint8) == [plain & 255, plain >> 8 & 255, 0, 7]
    assert contents("constants", np.uint32) == [7, 8, 9]
    assert contents("zeros", np.uint32) == [0] * 100
    assert contents("vector", np.float32) == [1, 2, 3, 4]
    assert later % 4 == 0
    assert module.variable("constants")[0] % 16 == 0
    with pytest.raises(KeyError):
        module.variable("nothing")


@pytest.mark.parametrize(
    ("kind", "operation", "start", "operand", "last"),
    [
        ("u32", "add", 5, 3, 5 + 32 * 3),
        ("s32", "add", 5, -3, 5 - 32 * 3),
        ("u64", "add", 2**40, 2**35, 2**40 + 32 * 2**35),
        ("u32", "min", 50, "t", 0),
        ("s32", "min", 50, "-t", -31),
        ("u32", "max", 0, "t", 31),
        ("s32", "max", -9, "-t", 0),
        ("u64", "max", 2, "t", 31),
        ("s64", "min", 2, "-t", -31),
        ("b32", "and", 0xFFFF, 0xFF0, 0xFF0),
        ("b32", "or", 1, "t", 31),
        ("b64", "xor", 1, "t", 1),
        ("u32", "inc", 0, 9, 2),
        ("u32", "dec", 3, 9, 1),
        ("b32", "exch", 0, 77, 77),
    ],
)
@pytest.mark.parametrize("space", ["global", "shared", "generic"])
def test_atomics(
    space: str, kind: str, operation: str, start: int, operand: int | str, last: int
) -> None:
    machine = Machine()
    wide = kind.endswith("64")
    reg, width = ("l", 8) if wide else ("r", 4)
    memory = machine.alloc(8)
    olds = machine.alloc(32 * 8)
    value = f"%{reg}1" if isinstance(operand, str) else str(operand)
    word = "" if space == "generic" else f".{space}"
    address = "%l9" if space == "shared" else "%base"
    negate = "neg.s64 %l1, %l1; neg.s32 %r1, %r1;" if operand == "-t" else ""
    bits = f"b{8 * width}"
    body = f"""
	.shared .align 8 .u64 cell;
	cvt.u64.u32 %l1, %t; mov.u32 %r1, %t; {negate}
	mov.u64 %l9, cell; setp.ne.u32 %p1, %t, 0; mov.{bits} %{reg}3, {start};
	@!%p1 st.{bits} [%base], %{reg}3; @!%p1 st.shared.{bits} [cell], %{reg}3; bar.sync 0;
	atom{word}.{operation}.{kind} %{reg}2, [{address}], {value};
	bar.sync 0; mov.u64 %l5, {width}; ld.param.u64 %l4, [olds]; cvt.u64.u32 %l6, %t;
	mad.lo.u64 %l4, %l6, %l5, %l4; st.global.{bits} [%l4], %{reg}2;
	setp.eq.u32 %p2, {int(space == "shared")}, 1; and.pred %p3, %p2, !%p1;
	ld.shared.{bits} %{reg}8, [cell]; @%p3 st.global.{bits} [%base], %{reg}8;"""
    module = machine.load(kernel(".param .u64 out, .param .u64 olds", body))
    module.launch("k", memory, olds)
    names = {"s4": np.int32, "s8": np.int64, "u4": np.uint32, "u8": np.uint64}
    dtype: Any = names[("s" if kind[0] == "s" else "u") + str(width)]
    assert machine.view(memory, width, dtype)[0] == last
    seen = machine.view(olds, 32 * width, dtype)
    assert seen[0] == start
    if operation == "add":
        assert list(seen) == [start + i * int(operand) for i in range(32)]
    if operation == "inc":
        assert list(seen) == [i % 10 for i in range(32)]
    if operation == "exch":
        assert list(seen) == [start] + [77] * 31


def test_float_atomics() -> None:
    machine = Machine()
    out = machine.alloc(64)
    body = """
	cvt.rn.f32.u32 %f1, %t; cvt.rn.f64.u32 %d1, %t;
	red.global.add.f32 [%base], %f1; red.global.add.f64 [%base+8], %d1;
	red.relaxed.gpu.global.or.b32 [%base+16], %t;
	mov.f32 %f2, 0f00000001; mov.b32 %r5, %f2; atom.add.f32 %f3, [%base+20], %f2;
	add.u32 %r1, %t, 1; atom.acq_rel.gpu.global.cas.b32 %r2, [%base+24], %t, %r1;
	cvt.u64.u32 %l1, %t; add.u64 %l2, %l1, 1; atom.global.cas.b64 _, [%base+32], %l1, %l2;"""
    machine.load(kernel(".param .u64 out", body)).launch("k", out)
    assert machine.view(out, 4, np.float32)[0] == 496
    assert machine.view(out + 8, 8, np.float64)[0] == 496
    words = machine.view(out, 64, np.uint32)
    assert words[4] == 31
    assert words[5] == 0, "global f32 sums flush subnormal numbers"
    assert words[6] == 32
    assert words[8] == 32


SHARED = ".shared .align 16 .b8 s[2048]; .shared .align 8 .b64 bar;"


def test_copies_to_shared_memory() -> None:
    """4 bytes by each thread, then 16 of which 8 are given; nothing has to be waited for."""
    body = """	st.global.u32 [%o], %t;
	mov.u32 %r1, s; mad.lo.u32 %r2, %t, 4, %r1;
	cp.async.ca.shared.global [%r2], [%o], 4;
	cp.async.commit_group;
	cp.async.wait_group 0;
	ld.shared.u32 %r3, [%r2];
	mul.wide.u32 %l1, %t, 16; add.u64 %l1, %l1, %base;
	mad.lo.u32 %r4, %t, 16, %r1; mov.u32 %r9, 8;
	setp.lt.u32 %p1, %t, 8;
	@%p1 cp.async.cg.shared.global.L2::128B [%r4+1024], [%l1], 16, %r9;
	cp.async.wait_all;
	ld.shared.v4.u32 {%r5, %r6, %r7, %r8}, [%r4+1024];
	add.u32 %r3, %r3, %r5; add.u32 %r3, %r3, %r6; add.u32 %r3, %r3, %r7; add.u32 %r3, %r3, %r8;
	st.global.u32 [%o], %r3;
"""
    assert list(run(body, SHARED)) == [t + (8 * t + 1 if t < 8 else 0) for t in range(32)]


def test_bulk_copies_complete_their_mbarrier() -> None:
    body = """	st.global.u32 [%o], %t;
	setp.ne.u32 %p1, %t, 0; @%p1 bra WAIT;
	mbarrier.init.shared::cta.b64 [bar], 1;
	mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 128;
	mov.u32 %r1, s; mov.u32 %r2, 96;
	cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%base], %r2, [bar];
	mbarrier.test_wait.parity.shared.b64 %p2, [bar], 0; @%p2 trap;
	cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [s+96], [%base+16], 32, [bar];
WAIT:	mbarrier.try_wait.parity.shared.b64 %p3, [bar], 0; @!%p3 bra WAIT;
	mov.u32 %r1, s; mad.lo.u32 %r1, %t, 4, %r1; ld.shared.u32 %r3, [%r1];
	@%p1 bra END;
	cp.async.bulk.global.shared::cta.bulk_group [%base+64], [s+16], 16;
	cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 0;
	ld.global.u32 %r4, [%base+76]; add.u32 %r3, %r3, %r4;
END:	bar.sync 0; st.global.u32 [%o], %r3;
"""
    assert list(run(body, SHARED)) == [7, *range(1, 24), *range(4, 12)]


def test_an_arrival_may_wait_for_copies() -> None:
    body = """	setp.ne.u32 %p1, %t, 0; @%p1 bra READY;
	mbarrier.init.shared.b64 [bar], 33;
READY:	bar.sync 0;
	cp.async.mbarrier.arrive.shared.b64 [bar];
	cp.async.mbarrier.arrive.noinc.shared.b64 [bar];
	@!%p1 mbarrier.arrive.shared.b64 _, [bar];
	mbarrier.test_wait.parity.shared.b64 %p2, [bar], 0;
	selp.u32 %r1, 1, 0, %p2; st.global.u32 [%o], %r1;
"""
    assert list(run(body, SHARED)) == [1] * 32


@pytest.mark.parametrize(
    ("copy", "status", "message"),
    [
        ("cp.async.ca.shared.global [s], [%base+2], 4;", "misaligned", "read of 4 bytes"),
        ("cp.async.ca.shared.global [s+4096], [%base], 4;", "bad address", "write of 4 bytes"),
        ("cp.async.ca.shared.global [s], [%base+65536], 4;", "bad address", "read of 4 bytes"),
        ("cp.async.bulk.global.shared::cta.bulk_group [%base], [s], 24;", "misaligned", "of 16"),
        ("cp.async.bulk.global.shared::cta.bulk_group [%base+8], [s], 16;", "misaligned", "write"),
        ("cp.async.bulk.global.global.bulk_group [%base], [%base], 16;", "unsupported", "cp."),
        ("cp.async.ca.global.shared [%base], [s], 4;", "unsupported", "cp."),
        ("cp.async.bulk.tensor.1d.global.tile [%base], [s], 4;", "unsupported", "cp."),
        (
            "cp.async.bulk.tensor.1d.global.shared::cta.bulk_group [%base, {0}], [s];",
            "illegal instruction",
            "no tensor map",
        ),
        (
            "cp.async.bulk.tensor.1d.global.shared::cta.bulk_group [%base+32, {0}], [s];",
            "misaligned",
            "read of 64 bytes",
        ),
    ],
)
def test_bad_copies_fail(copy: str, status: str, message: str) -> None:
    error = failure(f"	{copy}\n", SHARED)
    assert error.status == status
    assert message in error.message
