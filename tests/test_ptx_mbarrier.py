"""The PTX interpreter: mbarrier objects."""

from __future__ import annotations

import pytest

from tests.ptx_cases import failure, run

pytestmark = pytest.mark.native

SHARED = ".shared .align 8 .b64 bar[4]; .shared .align 16 .b32 data[64];"


def test_a_phase_ends_when_all_expected_threads_have_arrived() -> None:
    """The parity that has ended before and after each of six arrivals, three to a phase."""
    body = """	setp.ne.u32 %p1, %t, 0; @%p1 exit;
	mbarrier.init.shared::cta.b64 [bar+8], 3;
	mov.u32 %r1, 0;
LOOP:	mbarrier.test_wait.parity.shared.b64 %p2, [bar+8], 0;
	mbarrier.test_wait.parity.shared.b64 %p3, [bar+8], 1;
	selp.u32 %r2, 1, 0, %p2; selp.u32 %r3, 2, 0, %p3; or.b32 %r2, %r2, %r3;
	st.global.u32 [%o], %r2; add.u64 %o, %o, 4;
	mbarrier.arrive.shared.b64 _, [bar+8];
	add.u32 %r1, %r1, 1; setp.lt.u32 %p4, %r1, 7; @%p4 bra LOOP;
"""
    assert list(run(body, SHARED))[:7] == [2, 2, 2, 1, 1, 1, 2]


def test_tokens_name_the_phase_of_their_arrival() -> None:
    body = """	setp.eq.u32 %p1, %t, 0;
	mov.u64 %l1, bar; cvta.shared.u64 %l1, %l1;
	@%p1 mbarrier.init.b64 [%l1], 4;
	bar.sync 0;
	mbarrier.arrive.release.cta.b64 %l2, [%l1];
	mbarrier.pending_count.b64 %r1, %l2;
	mbarrier.test_wait.acquire.cta.b64 %p2, [%l1], %l2;
	@%p1 mbarrier.arrive.noComplete.b64 %l3, [%l1], 2;
	mbarrier.test_wait.b64 %p3, [%l1], %l3;
	selp.u32 %r2, 10, 0, %p2; selp.u32 %r3, 100, 0, %p3;
	@!%p1 mov.u32 %r3, 0;
	add.u32 %r1, %r1, %r2; add.u32 %r1, %r1, %r3;
	st.global.u32 [%o], %r1;
"""
    assert list(run(body, SHARED, threads=4)) == [14, 13, 12, 11]


def test_warps_pass_data_back_and_forth() -> None:
    """A warp fills, another one reads and adds, for 9 rounds through two barriers."""
    body = """	setp.ne.u32 %p1, %t, 0; @%p1 bra READY;
	mbarrier.init.shared.b64 [bar], 32; mbarrier.init.shared.b64 [bar+8], 32;
	fence.mbarrier_init.release.cluster; fence.proxy.async.shared::cta;
READY:	bar.sync 0;
	and.b32 %r1, %t, 31; mov.u32 %r2, data; mad.lo.u32 %r2, %r1, 4, %r2;
	mov.u32 %r3, 0; mov.u32 %r9, 0;
	setp.gt.u32 %p1, %t, 31;
ROUND:	and.b32 %r4, %r3, 1;
	@%p1 bra READ;
	xor.b32 %r5, %r4, 1;
FULL:	mbarrier.try_wait.parity.shared.b64 %p2, [bar+8], %r5; @!%p2 bra FULL;
	mad.lo.u32 %r6, %r3, 100, %r1; st.shared.u32 [%r2], %r6;
	mbarrier.arrive.shared.b64 _, [bar], 1;
	bra NEXT;
READ:	mbarrier.try_wait.parity.shared.b64 %p2, [bar], %r4, 1000; @!%p2 bra READ;
	ld.shared.u32 %r6, [%r2]; add.u32 %r9, %r9, %r6;
	mbarrier.arrive.shared.b64 %l1, [bar+8];
NEXT:	add.u32 %r3, %r3, 1; setp.lt.u32 %p3, %r3, 9; @%p3 bra ROUND;
	st.global.u32 [%o], %r9;
"""
    expected = [0] * 32 + [9 * i + 3600 for i in range(32)]
    for seed in (0, 5):
        assert list(run(body, SHARED, threads=64, seed=seed)) == expected


def test_expected_bytes_hold_a_phase_up() -> None:
    body = """	mbarrier.init.shared.b64 [bar], 1;
	mbarrier.arrive.expect_tx.shared.b64 %l1, [bar], 48;
	mbarrier.expect_tx.relaxed.cta.shared.b64 [bar], 16;
	mbarrier.complete_tx.shared.b64 [bar], 32;
	mbarrier.test_wait.shared.b64 %p1, [bar], %l1;
	mbarrier.complete_tx.shared.b64 [bar], 32;
	mbarrier.test_wait.shared.b64 %p2, [bar], %l1;
	mbarrier.inval.shared.b64 [bar];
	selp.u32 %r1, 1, 0, %p1; selp.u32 %r2, 2, 0, %p2; or.b32 %r1, %r1, %r2;
	st.global.u32 [%o], %r1;
"""
    assert list(run(body, SHARED, threads=1)) == [2]


def test_threads_that_drop_are_no_longer_expected() -> None:
    body = """	mbarrier.init.shared.b64 [bar], 2;
	mbarrier.arrive_drop.shared.b64 _, [bar];
	mbarrier.arrive.shared.b64 _, [bar];
	mbarrier.arrive.shared.b64 _, [bar];
	mbarrier.test_wait.parity.shared.b64 %p1, [bar], 1;
	selp.u32 %r1, 1, 0, %p1;
	st.global.u32 [%o], %r1;
"""
    assert list(run(body, SHARED, threads=1)) == [1]


@pytest.mark.parametrize(
    ("instructions", "message"),
    [
        ("mbarrier.arrive.shared.b64 _, [bar];", "more threads arrive"),
        ("mbarrier.init.shared.b64 [bar], 0;", "an mbarrier for no threads"),
        (
            "mbarrier.init.shared.b64 [bar], 1;"
            " mbarrier.arrive.noComplete.shared.b64 %l1, [bar], 1;",
            ".noComplete completes the phase",
        ),
        ("mbarrier.init.shared.b64 [bar+4], 1;", "misaligned"),
    ],
)
def test_misuse_fails_the_launch(instructions: str, message: str) -> None:
    assert message in failure(f"	{instructions}\n", SHARED).message


@pytest.mark.parametrize(
    "instruction",
    [
        "mbarrier.arrive.expect_tx.shared.b64 _, [bar];",
        "mbarrier.test_wait.shared.b64 %p1, [bar];",
        "mbarrier.arrive.parity.shared.b64 _, [bar];",
        "mbarrier.init.shared.b64 [bar], 1, 2;",
        "mbarrier.init.global.b64 [%o], 1;",
    ],
)
def test_other_forms_are_refused(instruction: str) -> None:
    assert failure(f"	{instruction}\n", SHARED).status == "unsupported"


def test_a_missing_arrival_never_ends() -> None:
    body = """	mbarrier.init.shared.b64 [bar], 2;
	mbarrier.arrive.shared.b64 %l1, [bar];
WAIT:	mbarrier.try_wait.shared.b64 %p1, [bar], %l1;
	@!%p1 bra WAIT;
"""
    assert failure(body, SHARED, block=[1], budget=10000).status == "timeout"
