"""The PTX interpreter: branches, calls, and what threads do together."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ptx_cases import failure, kernel, run
from tests.ptx_machine import HEADER, Machine

pytestmark = pytest.mark.native


@pytest.mark.long
@pytest.mark.large
def test_divergence_and_reconvergence() -> None:
    """Threads take paths of different lengths and are one group again afterwards."""
    body = """
	mov.u32 %r1, 0; and.b32 %r2, %t, 7; setp.lt.u32 %p1, %t, 20; @%p1 bra small;
	mov.u32 %r1, 1000; bra join;
small:	setp.eq.u32 %p2, %r2, 0; @%p2 bra join;
loop:	add.u32 %r1, %r1, %r2; sub.u32 %r2, %r2, 1; setp.ne.u32 %p3, %r2, 0; @%p3 bra loop;
join:	activemask.b32 %r3; setp.ne.u32 %p4, %r3, -1; @%p4 add.u32 %r1, %r1, 100000;
	st.global.u32 [%o], %r1;"""
    expected = [(t & 7) * ((t & 7) + 1) // 2 if t < 20 else 1000 for t in range(32)]
    assert list(run(body)) == expected


def test_threads_meet_right_after_a_skipped_instruction() -> None:
    body = """setp.lt.u32 %p1, %t, 9; @%p1 bra over; add.u32 %t, %t, 100;
over:	activemask.b32 %r1; st.global.u32 [%o], %r1;"""
    assert list(run(body)) == [2**32 - 1] * 32


def test_partial_warps_and_early_exits() -> None:
    body = """and.b32 %r1, %t, 3; setp.eq.u32 %p1, %r1, 2; @%p1 exit;
	bar.sync 0; activemask.b32 %r2; popc.b32 %r2, %r2; st.global.u32 [%o], %r2;"""
    got = run(body, threads=45)
    live = [sum(t % 4 != 2 for t in range(32)), sum(t % 4 != 2 for t in range(32, 45))]
    assert list(got) == [0 if t % 4 == 2 else live[t // 32] for t in range(45)]


def test_scopes_have_their_own_names() -> None:
    body = """
	mov.u32 %r1, 1;
	{ .reg .b32 x; .reg .pred q; mov.u32 x, %t; setp.gt.u32 q, x, 9; @q bra L; add.u32 %r1, %r1, 10;
L:	add.u32 %r1, %r1, 100; }
	{ .reg .b64 x; mov.u64 x, 5; setp.gt.u32 %p1, %t, 9; { @!%p1 bra L; add.u32 %r1, %r1, 1000; }
L:	add.u64 x, x, 1; cvt.u32.u64 %r2, x; add.u32 %r1, %r1, %r2; }
	st.global.u32 [%o], %r1;"""
    assert list(run(body)) == [1 + 100 + 6 + (1000 if t > 9 else 10) for t in range(32)]


def test_branch_tables() -> None:
    body = """
	rem.u32 %r1, %t, 4;
table:	.branchtargets zero, one, two, one;
	brx.idx %r1, table;
zero:	mov.u32 %r2, 100; bra.uni done;
one:	mov.u32 %r2, 101; bra.uni done;
two:	mov.u32 %r2, 102;
done:	st.global.u32 [%o], %r2;"""
    assert list(run(body)) == [[100, 101, 102, 101][t % 4] for t in range(32)]
    error = failure(body.replace("rem.u32 %r1, %t, 4;", "mov.u32 %r1, %t;"))
    assert error.status == "trap"
    assert "branch to entry 4" in error.message
    assert "(4,0,0)" in error.message


def test_calls_with_registers_and_predicates() -> None:
    before = """
.func (.reg .b32 result) triple(.reg .b32 x) { mul.lo.u32 result, x, 3; ret; }
.func (.param .b32 out0, .param .b64 out1) both(.param .b32 x, .param .b64 y)
{ .reg .b32 %r<3>; .reg .b64 %l<3>; ld.param.u32 %r1, [x]; ld.param.u64 %l1, [y];
  add.u32 %r1, %r1, 1; add.u64 %l1, %l1, 2; st.param.b32 [out0], %r1; st.param.b64 [out1], %l1;
  ret; }
.func early(.param .b64 at) { .reg .pred %p; .reg .b64 %l; .reg .b32 %r; ld.param.u64 %l, [at];
	mov.u32 %r, %tid.x;
  setp.lt.u32 %p, %r, 16; @%p ret; st.global.u32 [%l], 5; }
"""
    body = """
	st.global.u32 [%o], 0;
	{ .param .b64 p; st.param.b64 [p], %o; call.uni early, (p); }
	setp.lt.u32 %p1, %t, 8; @%p1 call (%r1), triple, (%t); @!%p1 mov.u32 %r1, 0;
	call (%r2, %l2), both, (%r1, 40);
	cvt.u32.u64 %r3, %l2; add.u32 %r2, %r2, %r3; ld.global.u32 %r4, [%o]; add.u32 %r2, %r2, %r4;
	st.global.u32 [%o], %r2;"""
    assert list(run(body, before)) == [
        (3 * t if t < 8 else 0) + 43 + (5 if t >= 16 else 0) for t in range(32)
    ]


def test_calls_leave_the_registers_of_the_caller() -> None:
    before = """
.func (.param .b32 r) f(.param .b32 x)
{ .reg .pred %p<5>; .reg .b32 %r<5>; .reg .b64 %l<5>; .reg .f64 %d<3>; ld.param.u32 %r1, [x];
  setp.ge.u32 %p1, %r1, 0; setp.lt.u32 %p2, %r1, 0; setp.ne.u32 %p3, %r1, %r1;
  mov.u32 %r2, 77; mov.u32 %r3, 78; mov.u64 %l1, 79; mov.u64 %l2, 80;
  setp.gt.u32 %p4, %r1, 0; sub.u32 %r4, %r1, 1; @%p4 call (%r4), f, (%r4);
  add.u32 %r4, %r4, %r1; @!%p4 mov.u32 %r4, 0; st.param.b32 [r], %r4; ret; }
"""
    body = """and.b32 %r1, %t, 3; setp.lt.u32 %p1, %t, 5; setp.ge.u32 %p2, %t, 7;
	mov.u32 %r2, 1; mov.u64 %l1, 10; mov.u64 %l2, 20;
	call (%r5), f, (%r1);
	@%p1 add.u32 %r5, %r5, 1000; @!%p2 add.u32 %r5, %r5, 2000;
	mad.lo.u32 %r5, %r2, 100, %r5; cvt.u32.u64 %r6, %l1; add.u32 %r5, %r5, %r6;
	st.global.u32 [%o], %r5;"""
    assert list(run(body, before)) == [
        [0, 1, 3, 6][t % 4] + 1000 * (t < 5) + 2000 * (t < 7) + 110 for t in range(32)
    ]


def test_every_call_has_local_memory_of_its_own() -> None:
    before = """
.func (.param .b32 r) depth(.param .b32 n, .param .b64 outer)
{ .reg .pred %p; .reg .b32 %r<6>; .reg .b64 %l<6>; .local .align 4 .b8 mine[8];
  ld.param.u32 %r1, [n]; ld.param.u64 %l1, [outer]; mov.u64 %l2, mine; cvta.local.u64 %l3, %l2;
  st.local.u32 [%l2], %r1; st.local.u32 [mine+4], %r1; mov.u32 %r2, 0;
  setp.eq.u32 %p, %r1, 0; @%p bra done; sub.u32 %r3, %r1, 1; call (%r2), depth, (%r3, %l3);
  ld.u32 %r4, [%l1]; ld.local.u32 %r5, [mine]; mad.lo.u32 %r2, %r2, 10, %r5;
  ld.local.u32 %r5, [%l2+4]; sub.u32 %r4, %r4, %r5; add.u32 %r2, %r2, %r4;
done: st.param.b32 [r], %r2; ret; }
"""
    body = """.local .align 4 .b8 top[4]; mov.u64 %l1, top; and.b32 %r1, %t, 3; add.u32 %r2, %r1, 1;
	st.local.u32 [%l1], %r2; cvta.local.u64 %l2, %l1; call (%r3), depth, (%r1, %l2);
	st.global.u32 [%o], %r3;"""

    def depth(n: int) -> int:
        return depth(n - 1) * 10 + n + 1 if n else 0

    assert list(run(body, before)) == [depth(t & 3) for t in range(32)]


def test_call_of_an_invalid_function() -> None:
    body = "mov.u64 %l1, 12345; p: .callprototype _ (); call %l1, p;"
    error = failure(body)
    assert error.status == "bad address"
    assert "0x3039, which is no function" in error.message


def test_endless_recursion_overflows_the_stack() -> None:
    before = ".func f() { .local .b8 big[1024]; call f; ret; }"
    error = failure("call f;", before)
    assert error.status == "bad address"
    assert "stack overflow in the call of f" in error.message


def test_registers_without_a_value_are_zero() -> None:
    """Also where others, which nobody reads any more, had the same place before."""
    body = """
	add.u32 %r1, %t, 1; add.u32 %r2, %r1, %r1; add.u32 %r3, %r2, %r1; mov.u32 %r4, 0;
	add.u32 %r5, %r3, %r2; setp.lt.u32 %p1, %r5, 50; @%p1 mov.u32 %r6, 7; mov.u32 %r7, %r6;
	mov.b64 %l1, {%r5, %r7}; mov.b64 {%r8, %r9}, %l1; add.u32 %r20, %r8, %r9;
loop:	add.u32 %r10, %r10, %r4; mov.u32 %r11, %r12; add.u32 %r12, %r4, 1; add.u32 %r4, %r4, 1;
	add.u32 %r20, %r20, %r11; setp.ne.u32 %p2, %r4, 5; @%p2 bra loop;
	mov.u32 %r13, %r10; add.u32 %r20, %r20, %r13; @%p1 bra end; mov.u32 %r14, 1000;
end:	add.u32 %r20, %r20, %r14; st.global.u32 [%o], %r20;"""
    expected = []
    for t in range(32):
        five = 5 * (t + 1)
        expected.append(five + (7 if five < 50 else 1000) + (0 + 1 + 2 + 3 + 4) + (1 + 2 + 3 + 4))
    assert list(run(body)) == expected


def test_special_registers() -> None:
    machine = Machine()
    names = [f"{n}.{d}" for n in ("tid", "ntid", "ctaid", "nctaid") for d in "xyz"]
    names += ["laneid", "warpid", "nwarpid"]
    names += [f"lanemask_{relation}" for relation in ("eq", "lt", "le", "gt", "ge")]
    names += ["dynamic_smem_size", "total_smem_size"]
    stores = "".join(
        f"mov.u32 %r1, %{n}; st.global.u32 [%l9+{4 * i}], %r1;\n" for i, n in enumerate(names)
    )
    body = f"""
	.shared .align 4 .b8 some[20];
	mov.u32 %r2, %tid.y; mov.u32 %r3, %ntid.x; mad.lo.u32 %t, %r2, %r3, %t;
	mov.u32 %r2, %tid.z; mul.lo.u32 %r3, %r3, %ntid.y; mad.lo.u32 %t, %r2, %r3, %t;
	mov.u32 %r2, %ctaid.z; mad.lo.u32 %r2, %r2, %nctaid.y, %ctaid.y;
	mad.lo.u32 %r2, %r2, %nctaid.x, %ctaid.x;
	mad.lo.u32 %t, %r2, 60, %t; mad.wide.u32 %l9, %t, 88, %base;
	{stores}"""
    module = machine.load(kernel(".param .u64 out", body))
    out = machine.alloc(8 * 60 * 88)
    module.launch("k", out, grid=[2, 2, 2], block=[5, 4, 3], shared=100)
    got = machine.view(out, 8 * 60 * 88, np.uint32).reshape(8, 60, 22)
    for block, t in np.ndindex(8, 60):
        lane = t % 32
        ones = 2**32 - 1
        assert list(got[block, t]) == [
            t % 5, t // 5 % 4, t // 20, 5, 4, 3, block % 2, block // 2 % 2, block // 4, 2, 2, 2,
            lane, t // 32, 2, 1 << lane, (1 << lane) - 1, (2 << lane) - 1,
            ones & ~((2 << lane) - 1), ones & ~((1 << lane) - 1), 100, 132,
        ]  # fmt: skip


def test_clocks_advance() -> None:
    body = """mov.u64 %l1, %clock64; mov.u32 %r1, %clock; mov.u64 %l2, %globaltimer;
	nanosleep.u32 20;
again:	mov.u64 %l3, %clock64; sub.u64 %l3, %l3, %l1; setp.lt.u64 %p1, %l3, 100000;
	@%p1 bra again;
	mov.u64 %l4, %globaltimer; setp.gt.u64 %p2, %l4, %l2; mov.u32 %r2, %clock;
	setp.ne.u32 %p3, %r1, %r2;
	selp.u32 %r3, 1, 0, %p2; selp.u32 %r4, 2, 0, %p3; add.u32 %r3, %r3, %r4;
	st.global.u32 [%o], %r3;"""
    assert list(run(body)) == [3] * 32


def shuffle(mode: str, values: list[int], b: int, c: int) -> tuple[list[int], list[bool]]:
    out, valid = [], []
    clamp, segment = c & 31, c >> 8 & 31
    for lane in range(32):
        most = (lane & segment) | (clamp & ~segment)
        source = {
            "up": lane - b,
            "down": lane + b,
            "bfly": lane ^ b,
            "idx": (lane & segment) | (b & ~segment),
        }[mode]
        inside = source >= most if mode == "up" else source <= most
        valid.append(inside)
        out.append(values[source if inside else lane])
    return out, valid


@pytest.mark.parametrize("mode", ["up", "down", "bfly", "idx"])
def test_shuffles(mode: str) -> None:
    for b in (0, 1, 5, 16, 31):
        for c in (0x1F, 0x00, 0x181F, 0x1C07, 0x1000 + 9):
            body = f"""mad.lo.u32 %r1, %t, 7, 3; shfl.sync.{mode}.b32 %r2|%p1, %r1, {b}, {c}, -1;
	@%p1 add.u32 %r2, %r2, 1000; st.global.u32 [%o], %r2;"""
            values, valid = shuffle(mode, [7 * t + 3 for t in range(32)], b, c)
            assert list(run(body)) == [v + 1000 * p for v, p in zip(values, valid, strict=True)], (
                b,
                hex(c),
            )


def test_shuffles_of_divergent_warps() -> None:
    """Halves with masks of their own at one place; then all threads, from two places."""
    body = """
	setp.lt.u32 %p1, %t, 16; selp.b32 %r1, 0xffff, 0xffff0000, %p1;
	shfl.sync.bfly.b32 %r2, %t, 3, 0x1f, %r1;
	@%p1 bra low;
	shfl.sync.idx.b32 %r3, %t, 5, 0x1f, -1; add.u32 %r3, %r3, 100; bra join;
low:	mul.lo.u32 %r4, %t, 2; shfl.sync.idx.b32 %r3, %r4, 20, 0x1f, -1;
join:	mad.lo.u32 %r2, %r2, 1000, %r3; st.global.u32 [%o], %r2;"""
    assert list(run(body)) == [(t ^ 3) * 1000 + (20 if t < 16 else 110) for t in range(32)]


def test_exchanges_of_two_thread_sets() -> None:
    """Four quarters come from four places; two of them each wait for the other two."""
    body = """
	shr.u32 %r1, %t, 3; setp.eq.u32 %p1, %r1, 0; setp.eq.u32 %p2, %r1, 1; setp.eq.u32 %p3, %r1, 2;
	@%p1 bra a; @%p3 bra c; @%p2 bra b;
	shfl.sync.bfly.b32 %r2, %t, 8, 0x1f, 0xffff0000; bra done;
a:	shfl.sync.bfly.b32 %r2, %t, 8, 0x1f, 0xffff; bra done;
c:	shfl.sync.bfly.b32 %r2, %t, 8, 0x1f, 0xffff0000; bra done;
b:	shfl.sync.bfly.b32 %r2, %t, 8, 0x1f, 0xffff;
done:	st.global.u32 [%o], %r2;"""
    for seed in range(4):
        assert list(run(body, seed=seed)) == [t ^ 8 for t in range(32)]


def test_votes_matches_and_reductions() -> None:
    body = """
	setp.lt.u32 %p1, %t, 12; and.b32 %r9, %t, 1; setp.eq.u32 %p8, %r9, 0;
	selp.b32 %r10, 0x55555555, 0xaaaaaaaa, %p8;
	vote.sync.ballot.b32 %r1, %p1, %r10; vote.sync.any.pred %p2, !%p1, %r10;
	vote.sync.all.pred %p3, %p1, %r10;
	vote.sync.uni.pred %p4, %p1, %r10; vote.sync.uni.pred %p5, 1, -1;
	rem.u32 %r2, %t, 5; match.any.sync.b32 %r3, %r2, -1; cvt.u64.u32 %l1, %r9; shl.b64 %l1, %l1, 40;
	match.all.sync.b64 %r4|%p6, %l1, %r10; match.all.sync.b32 %r5|%p7, %t, -1;
	sub.u32 %r6, %t, 9; redux.sync.min.s32 %r7, %r6, -1; redux.sync.max.u32 %r8, %r6, -1;
	redux.sync.add.u32 %r11, %t, %r10;
	redux.sync.xor.b32 %r12, %t, %r10;
	mov.u32 %r20, 0; @%p2 or.b32 %r20, %r20, 1; @%p3 or.b32 %r20, %r20, 2;
	@%p4 or.b32 %r20, %r20, 4;
	@%p5 or.b32 %r20, %r20, 8; @%p6 or.b32 %r20, %r20, 16; @%p7 or.b32 %r20, %r20, 32;
	mad.wide.u32 %l9, %t, 32, %base;
	st.global.v4.u32 [%l9], {%r1, %r3, %r4, %r5};
	st.global.v4.u32 [%l9+16], {%r7, %r8, %r11, %r20};"""
    machine = Machine()
    out = machine.alloc(32 * 32)
    machine.load(kernel(".param .u64 out", body)).launch("k", out)
    got = machine.view(out, 1024, np.uint32).reshape(32, 8)
    for t in range(32):
        half = 0xAAAAAAAA if t & 1 else 0x55555555
        peers = sum(1 << i for i in range(32) if i % 5 == t % 5)
        total = sum(i for i in range(32) if i % 2 == t % 2)
        assert list(got[t]) == [
            0xFFF & half,
            peers,
            half,
            0,
            2**32 - 9,
            2**32 - 1,
            total,
            1 | 8 | 16,
        ]


def test_barriers_with_results_counts_and_names() -> None:
    body = """
	.shared .align 4 .b32 box[128];
	setp.lt.u32 %p1, %t, 70; barrier.cta.red.popc.aligned.u32 %r1, 1, %p1;
	bar.red.and.pred %p2, 2, %p1;
	bar.red.or.pred %p3, 2, 128, !%p1;
	selp.u32 %r2, 1, 0, %p2; selp.u32 %r3, 2, 0, %p3; add.u32 %r1, %r1, %r2;
	mad.lo.u32 %r1, %r3, 500, %r1;
	mov.u32 %r5, box; mad.lo.u32 %r6, %t, 4, %r5; setp.lt.u32 %p4, %t, 64; @!%p4 bra wait;
	st.shared.u32 [%r6], %t; membar.cta; barrier.sync 3, 64; bar.arrive 5, 128; bra done;
wait:	bar.sync 5, 128; ld.shared.u32 %r7, [%r6+-256]; add.u32 %r1, %r1, %r7;
done:	fence.acq_rel.gpu; st.global.u32 [%o], %r1;"""
    assert list(run(body, threads=128)) == [
        70 + 1000 + (t - 64 if t >= 64 else 0) for t in range(128)
    ]


@pytest.mark.parametrize("seed", [0, 1, 7])
def test_barriers_with_partial_warps(seed: int) -> None:
    """The last warp has 8 threads, of which 4 leave, and still counts as 32."""
    body = """
	.shared .align 4 .b32 sum; setp.ge.u32 %p1, %t, 36; @%p1 exit;
	atom.shared.add.u32 %r1, [sum], 1; barrier.sync 2, 64;
	ld.shared.u32 %r2, [sum]; st.global.u32 [%o], %r2;"""
    assert list(run(body, threads=40, seed=seed)) == [36] * 36 + [0] * 4


def test_barriers_from_divergent_threads() -> None:
    """Threads of one warp may come to a barrier one after the other, and by different ways."""
    body = """
	.shared .align 4 .b32 sum; setp.eq.u32 %p1, %t, 0; @%p1 st.shared.u32 [sum], 0; bar.sync 0;
	and.b32 %r1, %t, 1; setp.eq.u32 %p2, %r1, 0; @%p2 bra even;
	atom.shared.add.u32 %r2, [sum], 1; bar.sync 0; bra both;
even:	atom.shared.add.u32 %r2, [sum], 100; bar.sync 0;
both:	ld.shared.u32 %r3, [sum]; st.global.u32 [%o], %r3;"""
    for seed in (0, 1, 2):
        assert list(run(body, threads=64, seed=seed)) == [32 + 3200] * 64


def test_dynamic_shared_memory() -> None:
    body = """
	.shared .align 4 .b8 fixed[12];
	mov.u32 %r1, pool; mad.lo.u32 %r2, %t, 4, %r1; st.shared.u32 [%r2], %t; mov.u64 %l1, pool;
	cvt.u32.u64 %r3, %l1;
	xor.b32 %r4, %t, 31; mad.lo.u32 %r4, %r4, 4, %r3; bar.warp.sync -1; ld.shared.u32 %r5, [%r4];
	ld.shared.u32 %r6, [pool+8]; mad.lo.u32 %r5, %r6, 1000, %r5; mad.lo.u32 %r5, %r1, 10000, %r5;
	st.global.u32 [%o], %r5;"""
    before = ".extern .shared .align 16 .b8 pool[];"
    assert list(run(body, before, shared=128)) == [16 * 10000 + 2000 + (t ^ 31) for t in range(32)]
    error = failure(body, before, shared=124)
    assert error.status == "bad address"
    assert "beyond the shared memory" in error.message


def test_shared_memory_of_functions() -> None:
    machine = Machine()
    module = machine.load(
        HEADER
        + """
.shared .align 8 .b8 common[24];
.func g() { .shared .align 4 .b8 own[40]; .reg .b32 %r; mov.u32 %r, own; ret; }
.visible .entry alone() { .shared .b8 s[100]; ret; }
.visible .entry caller() { .shared .align 4 .b8 s[8]; call g; ret; }
.visible .entry user() { .reg .b32 %r; ld.shared.u32 %r, [common+20]; ret; }
.visible .entry limited() .maxntid 64, 2, 1 .minnctapersm 2 { ret; }
"""
    )
    assert [module.info(n).shared_bytes for n in ("alone", "caller", "user")] == [100, 72, 64]
    assert module.info("limited").max_threads == 128
    assert module.info("alone").max_threads == 1024
    assert module.functions() == ["alone", "caller", "user", "limited"]
    for name in module.functions():
        module.launch(name)
