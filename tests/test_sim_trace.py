"""The PTX interpreter: records of what traced instructions do."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest

from tests.ptx_cases import kernel
from tests.ptx_machine import Machine, PtxError
from tests.ptx_trace import (
    ADDRESSES,
    COUNT,
    DISCARD,
    HEAD,
    LOST,
    OPCODE,
    REGISTERS,
    TMA,
    VALUES,
    Record,
    Trace,
    lanes,
)

pytestmark = pytest.mark.native

EVERYONE = 0xFFFFFFFF
OUT = ".param .u64 out"
SHARED, LOCAL = 0x4000000000000000, 0x5000000000000000


class Run:
    """One traced launch of a kernel whose lines end in // MARK where something is recorded."""

    def __init__(
        self, body: str, kinds: int | dict[str, int], out: int = 4096, before: str = "", **more: Any
    ) -> None:
        text = kernel(OUT, body, before)
        marks = [line.rpartition("// ")[2] for line in text.splitlines() if "// " in line]
        self.at = {
            m: i
            for i, line in enumerate(text.splitlines(), 1)
            for m in marks
            if line.endswith("// " + m)
        }
        asked = kinds if isinstance(kinds, dict) else dict.fromkeys(marks, kinds)
        self.machine = Machine()
        self.out = self.machine.alloc(out)
        self.values = self.machine.view(self.out, out, np.uint32)
        self.values[:] = np.arange(out // 4) + 100
        options = {k: more.pop(k) for k in ("size", "warps", "blocks") if k in more}
        self.trace = Trace(self.machine, {self.at[m]: k for m, k in asked.items()}, **options)
        pause = more.pop("pause", lambda run: run.trace.drain())
        if more.pop("discard", False):
            self.trace.ring[DISCARD] = 1
        self.error = None
        try:
            self.machine.load(text).launch(
                "k", self.out, trace=self.trace.request(), pause=lambda: pause(self), **more
            )
        except PtxError as error:
            self.error = error
        self.trace.drain()
        self.records = self.trace.records

    def record(self, kind: str, mark: str, *more: Any, **named: Any) -> Record:
        return Record(kind, self.at[mark], *more, **named)


def spaced(base: int, mask: int = EVERYONE, step: int = 4) -> tuple[int, ...]:
    return tuple(base + step * i for i in lanes(mask))


def test_vector_add_has_each_kind_of_record_in_order() -> None:
    r = Run(
        """	ld.global.u32 %r1, [%o];			// load
	add.u32 %r2, %r1, %t;				// add
	st.global.u32 [%o+128], %r2;			// store
""",
        {
            "load": OPCODE | REGISTERS | ADDRESSES | VALUES,
            "add": OPCODE | REGISTERS,
            "store": VALUES,
        },
    )
    old = tuple(range(100, 132))
    new = tuple(x + i for i, x in enumerate(old))
    base = [r.out + 4 * i for i in range(32)]
    halves = (tuple(x & EVERYONE for x in base), tuple(x >> 32 for x in base))
    assert r.records == [
        r.record("opcode", "load"),
        r.record("registers", "load", words=((0,) * 32, *halves)),
        r.record("addresses", "load", strided=True, addresses=spaced(r.out)),
        r.record("values", "load", strided=True, addresses=spaced(r.out), words=(old,)),
        r.record("opcode", "add"),
        r.record("registers", "add", words=((0,) * 32, old, tuple(range(32)))),
        r.record("values", "store", strided=True, addresses=spaced(r.out + 128), words=(new,)),
    ]
    assert r.values[32:64].tolist() == list(new)


def test_divergent_threads_have_records_of_their_own() -> None:
    r = Run(
        """	and.b32 %r1, %t, 1;
	setp.eq.u32 %p1, %r1, 0;
	@%p1 bra EVEN;					// branch
	add.u32 %r2, %t, 1;				// odd
	bra JOIN;
EVEN:	add.u32 %r2, %t, 2;				// even
JOIN:	mov.u32 %r3, %r2;				// join
	@%p1 mov.u32 %r3, 5;				// guarded
	@!%p1 mov.u32 %r3, 6;				// other
	setp.gt.u32 %p2, %t, 99;
	@%p2 mov.u32 %r3, 7;				// nobody
""",
        OPCODE,
    )
    even, odd = 0x55555555, 0xAAAAAAAA
    assert [(x.line, x.mask) for x in r.records] == [
        (r.at[m], mask)
        for m, mask in [
            ("branch", even),
            ("odd", odd),
            ("even", even),
            ("join", EVERYONE),
            ("guarded", even),
            ("other", odd),
        ]
    ]


def test_counts_are_those_of_each_thread_s_loop() -> None:
    r = Run(
        """	mov.u32 %r1, 0;				// begin
LOOP:	add.u32 %r1, %r1, 1;				// body
	setp.le.u32 %p1, %r1, %t;
	@%p1 bra LOOP;					// back
""",
        COUNT,
        block=[40],
        grid=[3],
    )
    turns = [i + 1 for i in range(40)]
    assert r.records == []
    assert r.trace.counts() == {
        r.at["begin"]: (6, 120),
        r.at["body"]: (3 * (32 + 40), 3 * sum(turns)),
        r.at["back"]: (3 * (31 + 39), 3 * (sum(turns) - 40)),
    }


def test_barriers_order_the_accesses_to_shared_memory() -> None:
    r = Run(
        """	mov.u32 %r1, s;
	mad.lo.u32 %r2, %t, 8, %r1;
	st.shared.u32 [%r2], %t;			// put
	bar.sync 0;					// barrier
	xor.b32 %r3, %t, 32;
	mad.lo.u32 %r2, %r3, 8, %r1;
	ld.shared.u32 %r4, [%r2];			// get
""",
        {"put": ADDRESSES, "barrier": OPCODE, "get": VALUES},
        before=".shared .align 8 .b8 s[512];",
        block=[64],
    )
    first, second = (spaced(256 * w, step=8) for w in (0, 1))
    a, b = (tuple(range(32 * w, 32 * w + 32)) for w in (0, 1))
    assert r.records == [
        r.record("addresses", "put", warp=(0, 0), strided=True, addresses=first),
        r.record("opcode", "barrier", warp=(0, 0)),
        r.record("addresses", "put", warp=(0, 1), strided=True, addresses=second),
        r.record("opcode", "barrier", warp=(0, 1)),
        r.record("values", "get", warp=(0, 1), strided=True, addresses=first, words=(a,)),
        r.record("values", "get", warp=(0, 0), strided=True, addresses=second, words=(b,)),
    ]


def test_atomics_have_what_they_return_or_else_bring() -> None:
    r = Run(
        """	atom.global.add.u32 %r1, [%base], 2;		// add
	red.global.max.u32 [%base+4], %t;		// max
	cvt.u64.u32 %l1, %t;
	atom.global.exch.b64 %l2, [%base+8], %l1;	// swap
""",
        VALUES,
        block=[3],
    )
    same = {"mask": 7, "strided": True}
    assert r.records == [
        r.record("values", "add", **same, addresses=(r.out,) * 3, words=((100, 102, 104),)),
        r.record("values", "max", **same, addresses=(r.out + 4,) * 3, words=((0, 1, 2),)),
        r.record(
            "values", "swap", **same, addresses=(r.out + 8,) * 3, words=((102, 0, 1), (103, 0, 0))
        ),
    ]


def test_vectors_and_narrow_types_have_the_bytes_of_memory() -> None:
    r = Run(
        """	mul.wide.u32 %l1, %t, 16;
	add.u64 %l1, %l1, %base;
	ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%l1];	// four
	ld.global.v2.u64 {%l2, %l3}, [%l1];		// wide
	ld.global.v2.u32 {_, %r5}, [%l1];		// half
	mov.u32 %r6, -2;
	st.global.v4.u8 [%l1], {%r6, %r6, %r1, %r1};	// bytes
	ld.global.s8 %r7, [%l1];			// signed
""",
        VALUES,
        block=[2],
    )
    columns = ((100, 104), (101, 105), (102, 106), (103, 107))
    same = {"mask": 3, "strided": True, "addresses": (r.out, r.out + 16)}
    assert r.records == [
        r.record("values", "four", **same, words=columns),
        r.record("values", "wide", **same, words=columns),
        r.record("values", "half", **same, words=((0, 0), columns[1])),
        r.record("values", "bytes", **same, words=((0x6464FEFE, 0x6868FEFE),)),
        r.record("values", "signed", **same, words=((0xFE, 0xFE),)),
    ]


def test_addresses_are_strided_only_where_that_is_exact() -> None:
    r = Run(
        """	mul.wide.u32 %l1, %t, 4;
	sub.u64 %l1, %base, %l1;
	ld.global.u32 %r1, [%l1+124];			// down
	mul.lo.u32 %r2, %t, %t;
	mul.wide.u32 %l2, %r2, 4;
	add.u64 %l2, %base, %l2;
	ld.global.u32 %r1, [%l2];			// square
	mul.wide.u32 %l3, %t, 65536;
	add.u64 %l3, %base, %l3;
	setp.eq.u32 %p1, %t, 5;
	@%p1 sub.u64 %l3, %l3, 327680;
	@%p1 ld.global.u32 %r1, [%l3];			// one
	setp.gt.u32 %p2, %t, 29;
	@%p2 ld.global.u32 %r1, [%o];			// two
	setp.lt.u32 %p3, %t, 2;
	@%p3 ld.global.u32 %r1, [%l3];			// far
""",
        ADDRESSES,
        out=1 << 17,
    )
    assert r.records == [
        r.record("addresses", "down", strided=True, addresses=spaced(r.out + 124, step=-4)),
        r.record("addresses", "square", addresses=tuple(r.out + 4 * i * i for i in range(32))),
        r.record("addresses", "one", mask=1 << 5, strided=True, addresses=(r.out,)),
        r.record(
            "addresses", "two", mask=3 << 30, strided=True, addresses=(r.out + 120, r.out + 124)
        ),
        r.record("addresses", "far", mask=3, addresses=(r.out, r.out + 65536)),
    ]


def test_each_space_has_addresses_as_the_instruction_computes_them() -> None:
    r = Run(
        """	.local .align 8 .b8 mine[16];
	ld.param.u64 %l9, [out];			// param
	st.shared.u32 [s+4], %t;			// shared
	st.local.u32 [mine+8], %t;			// local
	mov.u64 %l1, s;
	cvta.shared.u64 %l1, %l1;
	mov.u64 %l2, mine;
	cvta.local.u64 %l2, %l2;
	setp.eq.u32 %p1, %t, 0;
	selp.b64 %l3, %l1, %l2, %p1;
	ld.u32 %r1, [%l3+4];				// generic
""",
        ADDRESSES,
        before=".shared .align 8 .b8 s[16];",
        block=[2],
    )
    assert r.records[:3] == [
        r.record("addresses", mark, mask=3, strided=True, addresses=(at, at))
        for mark, at in [("param", 0), ("shared", 4), ("local", 8)]
    ]
    assert r.records[3:] == [
        r.record("addresses", "generic", mask=3, addresses=(SHARED + 4, LOCAL + 4))
    ]


def test_operations_on_an_mbarrier_have_its_address() -> None:
    r = Run(
        """	mbarrier.init.shared.b64 [s+8], 2;			// init
	mbarrier.arrive.shared.b64 %l1, [s+8];			// arrive
	mbarrier.test_wait.shared.b64 %p1, [s+8], %l1;		// wait
""",
        {"init": VALUES, "arrive": ADDRESSES | VALUES, "wait": OPCODE | ADDRESSES},
        before=".shared .align 8 .b64 s[2];",
        block=[1],
    )
    same = {"mask": 1, "strided": True, "addresses": (8,)}
    assert r.records == [
        r.record("addresses", "init", **same),
        r.record("addresses", "arrive", **same),
        r.record("opcode", "wait", mask=1),
        r.record("addresses", "wait", **same),
    ]


def test_copies_have_where_they_write_and_bulk_copies_their_mbarrier() -> None:
    r = Run(
        """	mbarrier.init.shared.b64 [b], 1;
	cp.async.ca.shared.global [s+8], [%base], 8;		// copy
	mbarrier.expect_tx.shared.b64 [b], 64;
	mov.u32 %r1, s;
	mad.lo.u32 %r1, %t, 16, %r1;
	setp.lt.u32 %p1, %t, 2;
	mov.u64 %l1, %base;
	@%p1 cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r1], [%l1], 16, [b]; // in
	cp.async.bulk.global.shared::cta.bulk_group [%base+64], [s], 16;	// back
""",
        {"copy": ADDRESSES | TMA, "in": VALUES | TMA, "back": TMA},
        before=".shared .align 16 .b8 s[64]; .shared .align 8 .b64 b;",
        block=[3],
    )
    assert r.error is None
    assert r.records == [
        r.record("addresses", "copy", 7, strided=True, addresses=(8, 8, 8)),
        r.record("addresses", "in", 3, strided=True, addresses=(0, 16)),
        *(r.record("tma", "in", mask, tma=(0, 64, 0, 0, 0, 0, 0, 0)) for mask in (1, 2)),
        *(r.record("tma", "back", mask, tma=(0, 0, 0, 0, 0, 0, 0, 0)) for mask in (1, 2, 4)),
    ]


MAGIC = 0x70616D726F736E74  # of sim/tensor_map.h
SIZES = (4, 32, 64, 64, 64, 7, 3, 0, 0, 0, 4, 1, 1, 1, 1, 1, 1, 1, 1, 1)  # of five dimensions


def test_tensor_copies_have_their_map_and_coordinates() -> None:
    """A map of 8 by 4 numbers at the output, and boxes of 4 by 2."""
    sizes = (4, 32, 0, 0, 0, 7, 3, 0, 0, 0, 4, 2, 0, 0, 0, 1, 1, 0, 0, 0)
    packed = struct.pack("<7Q5I5H8B", MAGIC, 0, *sizes, 2, 4, 0).ljust(128, b"\0")
    words = ", ".join(map(str, struct.unpack("<16Q", packed)))
    load = "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
    r = Run(
        f"""	mbarrier.init.shared.b64 [b], 1;
	mov.u64 %l1, m;
	st.global.u64 [m+8], %base;
	mov.u16 %h1, 1;
	mbarrier.expect_tx.shared.b64 [b], 32;
	{load}.multicast::cluster [s], [%l1, {{4, 3}}], [b], %h1; // in
	mov.u32 %r1, 4;
	cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%l1, {{%r1, 2}}], [s]; // out
""",
        TMA | ADDRESSES,
        before=(
            ".shared .align 128 .b8 s[128]; .shared .align 8 .b64 b;"
            f".global .align 64 .u64 m[16] = {{{words}}};"
        ),
        block=[1],
    )
    assert r.error is None
    moved = [*range(128, 132), *range(124, 128), 0, 0, 0, 0]
    assert r.values[:32].tolist() == [*range(100, 120), *moved]
    into, out = (one for one in r.records if one.kind == "tma")
    assert (into.tma[1:8], out.tma[1:8]) == ((128, 4, 3, 0, 0, 0, 1), (0, 4, 2, 0, 0, 0, 0))
    assert into.tma[0] == out.tma[0] and into.tma[8:10] == (MAGIC, r.out)
    assert [one.addresses for one in r.records if one.kind == "addresses"] == [(0,), (0,)]


@pytest.mark.parametrize("at", [84, 90, 93])
def test_a_tensor_map_that_a_kernel_spoilt_is_refused(at: int) -> None:
    """Its box, a step, or its swizzle."""
    packed = bytearray(struct.pack("<7Q5I5H8B", MAGIC, 4096, *SIZES, 5, 4, 0).ljust(128, b"\0"))
    packed[at] ^= 1
    words = ", ".join(map(str, struct.unpack("<16Q", packed)))
    copy = "cp.async.bulk.tensor.5d.global.shared::cta.bulk_group [%l1, {100, 0, 0, 0, 0}], [s];"
    before = f".shared .align 128 .b8 s[128]; .global .align 64 .u64 m[16] = {{{words}}};"
    r = Run(f"	mov.u64 %l1, m; {copy} // out\n", TMA, before=before, block=[1])
    assert r.error is not None and "no tensor map" in str(r.error)


CALLEE = """.func (.param .u32 result) twice(.param .u32 x)
{
	.reg .b32 %r<3>;
	ld.param.u32 %r1, [x];
	add.u32 %r2, %r1, %r1;				// inside
	st.param.u32 [result], %r2;
	ret;						// return
}
.func (.reg .u32 result) thrice(.reg .u32 x)
{
	mul.lo.u32 result, x, 3;			// second
	ret;
}
"""


def test_a_call_is_one_instruction_with_those_of_its_function() -> None:
    r = Run(
        """	setp.lt.u32 %p1, %t, 8;
	@%p1 call (%r1), twice, (%t);			// call
	call (%r2), thrice, (%t);			// whole
	add.u32 %r3, %r1, %r2;				// after
""",
        OPCODE,
        before=CALLEE,
    )
    assert [(x.line, x.mask) for x in r.records] == [
        (r.at["call"], 0xFF),
        (r.at["inside"], 0xFF),
        (r.at["return"], 0xFF),
        (r.at["whole"], EVERYONE),
        (r.at["second"], EVERYONE),
        (r.at["after"], EVERYONE),
    ]


def test_a_call_by_address_is_recorded_once_for_each_function() -> None:
    r = Run(
        """	.param .u32 x; .param .u32 y;
	and.b32 %r1, %t, 1;
	setp.eq.u32 %p1, %r1, 0;
	mov.u64 %l1, nothing;
	mov.u64 %l2, other;
	selp.b64 %l3, %l1, %l2, %p1;
P:	.callprototype _ ();
	call %l3, P;					// call
""",
        OPCODE,
        before=".func nothing() { ret; }\n.func other() { ret; }\n",
    )
    assert [x.mask for x in r.records] == [0x55555555, 0xAAAAAAAA]


def test_threads_that_exit_early_leave_the_masks() -> None:
    r = Run(
        """	setp.ge.u32 %p1, %t, 20;
	@%p1 exit;					// exit
	add.u32 %r1, %t, 1;				// rest
""",
        OPCODE,
        block=[48],
    )
    assert [(x.line, x.mask, x.warp) for x in r.records] == [
        (r.at["exit"], EVERYONE & ~0xFFFFF, (0, 0)),
        (r.at["rest"], 0xFFFFF, (0, 0)),
        (r.at["exit"], 0xFFFF, (0, 1)),
    ]


def test_only_the_blocks_that_were_asked_for_are_recorded() -> None:
    r = Run("	add.u32 %r1, %t, 1;	// add\n", OPCODE | COUNT, grid=[9], blocks=(2, 4))
    assert [x.warp for x in r.records] == [(2, 0), (3, 0), (4, 0)]
    assert r.trace.counts() == {r.at["add"]: (3, 96)}


@pytest.mark.parametrize("kinds", [ADDRESSES, VALUES, ADDRESSES | VALUES])
def test_a_fault_leaves_the_record_of_its_access(kinds: int) -> None:
    r = Run(
        """	mul.wide.u32 %l1, %t, 4;
	ld.global.u32 %r1, [%l1];			// load
""",
        {"load": OPCODE | kinds},
    )
    assert r.error and r.error.status == "bad address"
    assert r.records == [
        r.record("opcode", "load"),
        r.record("addresses", "load", strided=True, addresses=spaced(0)),
    ]


LOOP = """	mov.u32 %r1, 0;
LOOP:	ld.global.u32 %r2, [%o];			// load
	add.u32 %r1, %r1, 1;
	setp.lt.u32 %p1, %r1, 200;
	@%p1 bra LOOP;
"""


@pytest.mark.parametrize("kinds", [OPCODE, ADDRESSES | VALUES])
def test_a_ring_smaller_than_the_trace_loses_nothing(kinds: int) -> None:
    r = Run(LOOP, kinds, size=1024, block=[64])
    each = {"opcode": OPCODE, "addresses": ADDRESSES, "values": VALUES}
    names = [name for name, kind in each.items() if kinds & kind]
    assert r.trace.ring[LOST] == r.trace.ring[DISCARD] == 0
    assert [x.kind for x in r.records] == names * 400
    assert [x.warp for x in r.records] == [(0, w) for w in (0, 1) for _ in range(200 * len(names))]
    assert {x.addresses for x in r.records if x.addresses} == {
        spaced(r.out),
        spaced(r.out + 128),
    } - ({spaced(r.out), spaced(r.out + 128)} if kinds == OPCODE else set())


def test_records_are_counted_as_lost_once_they_are_discarded() -> None:
    r = Run(LOOP, OPCODE, discard=True)
    assert (r.records, r.trace.ring[HEAD], r.trace.ring[LOST]) == ([], 0, 200)

    def stop(run: Run) -> None:
        run.trace.ring[DISCARD] = 1

    r = Run(LOOP, OPCODE, size=1024, pause=stop)
    assert r.error is None
    assert (len(r.records), r.trace.ring[LOST]) == (32, 168)


def test_a_record_larger_than_the_ring_is_lost() -> None:
    r = Run("	fma.rn.f64 %d1, %d2, %d3, %d4;	// fma\n", OPCODE | REGISTERS, size=512)
    assert [x.kind for x in r.records] == ["opcode"]
    assert r.trace.ring[LOST] == 1


def test_heartbeats_tell_who_waits_runs_and_has_exited() -> None:
    seen = []

    def look(run: Run) -> None:
        seen.append(run.trace.beats())
        run.values[0] = 0

    r = Run(
        """	setp.gt.u32 %p1, %t, 95;
	@%p1 exit;					// exit
	setp.gt.u32 %p1, %t, 63;
	@%p1 bra SPIN;
	bar.sync 0;					// barrier
SPIN:	ld.global.u32 %r1, [%base];			// spin
	setp.eq.u32 %p2, %r1, 100;
	@%p2 bra SPIN;
	@!%p1 bra DONE;
	bar.sync 0;
DONE:
""",
        {},
        block=[128],
        warps=4,
        pause=look,
    )
    assert r.error is None
    barrier, spin = r.at["barrier"], r.at["spin"]
    first, second, third, fourth = seen[0]
    assert first[:2] == second[:2] == (barrier, 3)
    assert third[0] in range(spin, spin + 3)
    assert third[1] == 1
    assert third[2] > 10000
    assert fourth == (0, 0, 0)
    assert {beat[1] for beat in r.trace.beats()} == {2}


@pytest.mark.parametrize("seed", [0, 3])
def test_a_traced_launch_runs_as_an_untraced_one(seed: int) -> None:
    """Warps race; the order of their turns decides the result."""
    body = """	mov.u32 %r1, 0;
LOOP:	ld.global.u32 %r2, [%base];			// load
	mad.lo.u32 %r2, %r2, 31, %t;
	st.global.u32 [%base], %r2;
	and.b32 %r3, %r2, 3;
	setp.eq.u32 %p1, %r3, 0;
	@%p1 add.u32 %r1, %r1, 1;
	@%p1 bra LOOP;
	add.u32 %r1, %r1, 1;
	setp.lt.u32 %p1, %r1, 3000;
	@%p1 bra LOOP;
"""
    options: dict[str, Any] = {"block": [96], "grid": [2], "seed": seed}
    r = Run(body, OPCODE, warps=6, size=1 << 20, **options)
    machine = Machine()
    out = machine.put(np.arange(1024, dtype=np.uint32) + 100)
    machine.load(kernel(OUT, body)).launch("k", out, **options)
    assert machine.view(out, 4096).tobytes() == r.values.tobytes()


def test_memory_of_a_trace_that_is_not_there_fails_the_launch() -> None:
    machine = Machine()
    trace = Trace(machine)
    trace.ring_at = 64
    with pytest.raises(PtxError, match="memory for its trace is not allocated"):
        machine.load(kernel(OUT, "")).launch("k", machine.alloc(64), trace=trace.request())


@pytest.mark.parametrize("seed", range(4))
def test_every_warp_of_every_block_has_exited_in_the_end(seed: int) -> None:
    """Blocks that are not recorded have heartbeats as well."""
    body = "	mov.u32 %r1, 1; add.u32 %r1, %r1, %t; add.u32 %r1, %r1, 1;	// add\n"
    r = Run(body, OPCODE, grid=[40], block=[64], warps=80, blocks=(3, 3), seed=seed)
    assert {record.warp[0] for record in r.records} == {3}
    assert {beat[1:] for beat in r.trace.beats()} == {(2, r.trace.beats()[0][2])}
