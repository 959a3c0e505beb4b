"""The PTX interpreter: the order in which threads run, and how a launch fails."""

from __future__ import annotations

import platform
from typing import Any

import numpy as np
import pytest

from tests.ptx_cases import failure, kernel, program, run
from tests.ptx_machine import Machine, PtxError

pytestmark = pytest.mark.native


def test_racy_kernels_vary_and_others_do_not() -> None:
    outcomes = set()
    for seed in range(8):
        machine, module = program("warp")
        counter = machine.alloc(4)
        module.launch("racy", counter, grid=[4], block=[128], seed=seed)
        outcomes.add(int(machine.view(counter, 4, np.uint32)[0]))
    assert len(outcomes) > 2
    sums = set()
    for seed in range(6):
        machine, module = program("warp")
        rng = np.random.default_rng(5)
        data, out = machine.put(rng.random(5000, np.float32)), machine.alloc(4 * 7)
        module.launch("reduce", data, out, 5000, grid=[7], block=[128], seed=seed)
        sums.add(machine.view(out, 28).tobytes())
    assert len(sums) == 1


def test_seed_fixes_the_schedule() -> None:
    results = []
    for _ in range(2):
        machine, module = program("warp")
        counter = machine.alloc(4)
        module.launch("racy", counter, grid=[9], block=[100], seed=77)
        results.append(int(machine.view(counter, 4, np.uint32)[0]))
    assert results[0] == results[1]


@pytest.mark.parametrize("blocks", [1, 2, 3, 5, 64, 1000])
@pytest.mark.parametrize("seed", [0, 1, 12345])
def test_every_block_runs_once(blocks: int, seed: int) -> None:
    machine = Machine()
    out = machine.alloc(4 * blocks)
    body = (
        "mov.u32 %r1, %ctaid.x; mad.wide.u32 %l1, %r1, 4, %base; atom.global.add.u32 %r2, [%l1], 1;"
    )
    machine.load(kernel(".param .u64 out", body)).launch(
        "k", out, grid=[blocks], block=[1], seed=seed
    )
    assert (machine.view(out, 4 * blocks, np.uint32) == 1).all()


@pytest.mark.parametrize(
    "options", [{"cooperative": True}, {"seed": 9}, {"cooperative": True, "seed": 4}, {}]
)
def test_blocks_may_wait_for_each_other(options: dict[str, Any]) -> None:
    machine, module = program("warp")
    blocks = 4 if options == {"seed": 9} else 12
    n = blocks * 64
    arrived, out = machine.alloc(4), machine.alloc(8 * n)
    module.launch("grid_barrier", arrived, out, grid=[blocks], block=[64], **options)
    got = machine.view(out + 4 * n, 4 * n, np.int32)
    assert (got == (np.arange(n) + 64) % n + 1).all()


@pytest.mark.parametrize("seed", [0, 5])
def test_grid_barrier_works(seed: int) -> None:
    """The grid barrier of cooperative groups lives in a workspace that the launch provides."""
    machine, module = program("groups")
    out = machine.alloc(4 * 6 * 64)
    module.launch("whole_grid", out, grid=[6], block=[64], cooperative=True, seed=seed)
    assert machine.view(out, 4 * 6 * 64, np.int32)[0] == sum(range(6 * 64))
    with pytest.raises(PtxError, match="trap"):
        module.launch("whole_grid", out, grid=[6], block=[64])
    out = machine.alloc(8 * 64)
    module.launch("tiles", out, block=[64], seed=seed)
    got = machine.view(out, 8 * 64, np.int32).reshape(2, 64)
    t = np.arange(64)
    assert (got[0] == t // 8 * 64 + 28 + t % 8 * (t % 8 + 1) // 2).all()
    odd = t[t % 2 == 1]
    assert (got[1][odd] == odd % 32 // 2 + (odd // 32 * 32 + 1)).all()


@pytest.mark.parametrize("seed", [0, 3])
def test_threads_of_one_warp_contend_for_a_lock(seed: int) -> None:
    machine, module = program("warp")
    lock, counter = machine.alloc(4), machine.alloc(4)
    module.launch("spin_lock", lock, counter, grid=[2], block=[64], seed=seed)
    assert machine.view(counter, 4, np.int32)[0] == 128


def test_endless_loops_run_out_of_budget() -> None:
    error = failure("again: bra again;", budget=100000)
    assert error.status == "timeout"
    assert "the kernel does not end" in error.message
    assert "kernel k, line" in error.message


def test_deadlocks_are_detected() -> None:
    error = failure("setp.lt.u32 %p1, %t, 32; @%p1 bar.sync 1, 64; bar.sync 0;", block=[64])
    assert error.status == "timeout"
    assert "waits at a barrier" in error.message
    body = "setp.lt.u32 %p1, %t, 16; @%p1 bra a; bar.sync 0; bra b;\na:\nbar.warp.sync -1;\nb:"
    error = failure(body)
    assert error.status == "timeout"
    assert "deadlock" in error.message
    error = failure(body, seed=3, grid=[5])
    assert error.status == "timeout"
    assert "deadlock" in error.message


def test_host_rounding_mode_is_separate() -> None:
    """A program that rounds upward changes no kernel, and no kernel changes the program."""
    machine = Machine()
    out = machine.alloc(128)
    body = """mov.f32 %f1, 0f40A00000; mov.f32 %f2, 0f40400000; div.rn.f32 %f3, %f1, %f2;
	st.global.f32 [%o], %f3;"""
    upward = {"x86_64": 0x800, "aarch64": 0x400000}[platform.machine()]
    machine.lib.fesetround(upward)
    try:
        machine.load(kernel(".param .u64 out", body)).launch("k", out)
        assert machine.lib.fegetround() == upward
    finally:
        machine.lib.fesetround(0)
    assert (machine.view(out, 128, np.uint32) == 0x3FD55555).all()
    body = body.replace("div.rn", "div.rp")
    machine.load(kernel(".param .u64 out", body)).launch("k", out)
    assert machine.lib.fegetround() == 0
    assert (machine.view(out, 128, np.uint32) == 0x3FD55556).all()


def test_two_launches_at_once() -> None:
    machine, module = program("warp")
    rng = np.random.default_rng(0)
    data = rng.integers(0, 256, 20000, dtype=np.uint8)
    source, bins, total = machine.put(data), machine.alloc(1024), machine.alloc(8)
    module.launch("histogram", source, bins, total, len(data), grid=[10], block=[96], twice=True)
    assert (machine.view(bins, 1024, np.uint32) == 2 * np.bincount(data, minlength=256)).all()
    assert machine.view(total, 8, np.uint64)[0] == 2 * int(data.astype(np.uint64).sum()) << 20


def test_failures_name_the_instruction() -> None:
    store = "setp.eq.u32 %p1, %t, 5; mov.u64 %l1, 0x123400;\n@%p1 st.global.u64 [%l1], %l2;"
    error = failure(store, block=[8, 2], grid=[1, 2, 3])
    assert error.status == "bad address"
    assert error.message.startswith("kernel k, line 11: thread (5,0,0) of block (0,0,0): write"), (
        error.message
    )
    error = failure("mov.u64 %l1, 0x123400;\nst.global.u64 [%l1], %l2;", block=[4, 2], grid=[1, 1])
    assert error.message == (
        "kernel k, line 11: thread (0,0,0) of block (0,0,0): "
        "write of 8 bytes at 0x123400, which is not allocated or not accessible"
    )


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ("ld.global.u32 %r1, [%base+2];", "misaligned", "misaligned read of 4 bytes at 0x70"),
        ("ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%base+8];", "misaligned", "16 bytes"),
        ("atom.global.add.u32 %r1, [%base+1], 1;", "misaligned", "atomic access of 4 bytes"),
        (
            "shl.b32 %r1, %t, 2; ld.shared.u32 %r1, [%r1];",
            "bad address",
            "shared memory of its block",
        ),
        ("mov.u32 %r1, 0; ld.local.u32 %r1, [%r1];", "bad address", "local memory of its thread"),
        ("mov.u64 %l1, 100; ld.param.u32 %r1, [%l1];", "bad address", "parameters of the kernel"),
        ("mov.u64 %l1, -4; ld.global.u32 %r1, [%l1];", "bad address", "0xfffffffffffffffc"),
        ("mov.u64 %l1, 0x4000000000000000; st.u8 [%l1], 1;", "bad address", "write of 1 bytes"),
        ("trap;", "trap", "trap"),
        ("bar.sync 16;", "trap", "barrier 16"),
        ("bar.sync 1, 33;", "trap", "no number of whole warps"),
        ("bar.sync %t;", "trap", "different operands"),
        ("shfl.sync.idx.b32 %r1, %r2, 0, 0x1f, 0xff;", "trap", "member mask 0xff"),
    ],
)
def test_kernel_failures(body: str, status: str, words: str) -> None:
    error = failure(body, block=[33])
    assert error.status == status
    assert words in error.message
    assert "\n" not in error.message


def test_assertions_print_their_message() -> None:
    before = """
.extern .func __assertfail (.param .b64 a, .param .b64 b, .param .b32 c,
	.param .b64 d, .param .b64 e);
.global .align 1 .b8 what[6] = {120, 32, 62, 32, 48, 0};
.global .align 1 .b8 file[5] = {97, 46, 99, 117};
.global .align 1 .b8 function[2] = {102};"""
    body = """setp.ne.u32 %p1, %t, 3; @%p1 bra fine; { .param .b64 a; .param .b64 b;
	.param .b32 c; .param .b64 d; .param .b64 e;
	mov.u64 %l1, what; st.param.b64 [a], %l1; mov.u64 %l1, file; st.param.b64 [b], %l1;
	st.param.b32 [c], 12;
	mov.u64 %l1, function; st.param.b64 [d], %l1; mov.u64 %l1, 1; st.param.b64 [e], %l1;
	call.uni __assertfail, (a, b, c, d, e); }
fine:"""
    error = failure(body, before)
    assert error.status == "assert"
    assert "thread (3,0,0)" in error.message
    assert "assertion failed: a.cu:12: f: x > 0" in error.message


def test_functions_of_the_driver_fail_only_when_reached() -> None:
    before = """.extern .func (.param .b32 r) vprintf (.param .b64 a, .param .b64 b);"""
    call = """{ .param .b64 a; .param .b64 b; .param .b32 r; call.uni (r), vprintf, (a, b); }"""
    assert list(run(f"bra past; {call} past: st.global.u32 [%o], 1;", before)) == [1] * 32
    error = failure(call, before)
    assert error.status == "unsupported"
    assert "call of vprintf" in error.message


@pytest.mark.parametrize(
    ("grid", "block"), [([0], [1]), ([1], [0]), ([1], [1025]), ([1], [32, 33])]
)
def test_invalid_launch_shapes_are_refused(grid: list[int], block: list[int]) -> None:
    assert failure("", grid=grid, block=block).status == "unsupported"
