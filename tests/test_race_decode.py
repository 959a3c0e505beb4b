"""What instructions mean for races: statements of PTX and machine instructions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.race_traces import ALL, LOAD, STORE, Written, shared
from ttanalyze.code.ptx_statements import Statement, statements
from ttanalyze.verbs.race.exact import elided, listing, load, machine
from ttanalyze.verbs.race.exact.analysis import conflicts
from ttanalyze.verbs.race.exact.model import Access, Operation, Scope, Space, Sync

PTX = {
    "@%p1 ld.global.nc.v4.u32 {%r1,%r2,%r3,%r4}, [%rd1];": "LOAD GLOBAL 16",
    "$L__BB0_1: ld.shared::cta.v2.f32 {%f1,%f2}, [%r1+8];": "LOAD SHARED 8",
    "st.volatile.shared.u8 [%r1], %rs1;": "STORE SHARED 1 strong",
    "st.release.gpu.u32 [%rd1], 1;": "STORE GENERIC 4 strong release",
    "ld.acquire.cta.global.u64 %rd2, [%rd1];": "LOAD GLOBAL 8 strong acquire block",
    "atom.global.cas.b32 %r1, [%rd1], %r2, %r3;": "ATOMIC GLOBAL 4 strong",
    "atom.add.acq_rel.gpu.u32 %r26,[%rd13],%r27;": "ATOMIC GENERIC 4 strong release acquire",
    "red.global.add.f16x2 [%rd1], %r1;": "ATOMIC GLOBAL 4 strong no result",
    "ld.param.u64 %rd1, [k_param_0];": "nothing",
    "add.s32 %r1, %r2, %r3;": "nothing",
    "call.uni (retval0), f, (param0);": "nothing",
    "bar.sync 0;": "BARRIER 0 0",
    "barrier.sync.aligned 3, 96;": "BARRIER 3 96",
    "bar.arrive %r1, 64;": "BARRIER_ARRIVE None 64",
    "bar.red.popc.u32 %r24, %r3, 64, %p1;": "BARRIER None 64",
    "bar.red.or.pred %p2, 0, %p1; ": "BARRIER 0 0",
    "bar.warp.sync -1;": "WARP 4294967295 0",
    "bar.warp.sync %r1;": "WARP None 0",
    "membar.cta;": "FENCE 0 0 block",
    "fence.acq_rel.gpu;": "FENCE 0 0",
    "fence.proxy.async.shared::cta;": "nothing",
    "barrier.cluster.arrive.aligned;": "CLUSTER_ARRIVE 0 0",
    "barrier.cluster.wait;": "CLUSTER_WAIT 0 0",
    "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 1024;": "MBARRIER_ARRIVE 0 0",
    "{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%r1], 0; }": "MBARRIER_WAIT 0 0",
    "cp.async.ca.shared.global [%r1], [%rd2], 16;": "STORE SHARED 16 copy",
    "cp.async.wait_group 0;": "COPY_WAIT 0 0",
    "griddepcontrol.wait;": "UNKNOWN 0 0",
    "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f1}, %rd1, %rd2;": "UNKNOWN 0 0",
    "bar.sync 0; membar.gl;": "UNKNOWN 0 0",
}
MACHINE = {
    "@!P0 LDG.E.64.CONSTANT R2, desc[UR4][R2.64];": "LOAD GLOBAL 8",
    "LDG.E.STRONG.SYS R4, desc[UR10][R2.64+0xfa0]": "LOAD GLOBAL 4 strong",
    "STS.U8 [R5+UR4], R2": "STORE SHARED 1",
    "LDSM.16.M88.4 R4, [R2]": "LOAD SHARED 16",
    "ATOMS.POPC.INC.32 RZ, [UR4]": "ATOMIC SHARED 4 strong",
    "RED.E.ADD.STRONG.GPU desc[UR4][R2.64], R5": "ATOMIC GENERIC 4 strong no result",
    "LDC R1, c[0x0][0x28]": "nothing",
    "LDL R1, [R2]": "nothing",
    "LDGSTS.E.BYPASS.128 [R7], desc[UR4][R2.64]": "STORE SHARED 16 copy",
    "BAR.SYNC.DEFER_BLOCKING 0x1, 0x40": "BARRIER 1 64",
    "BAR.RED.POPC.DEFER_BLOCKING 0x0, P2": "BARRIER 0 0",
    "@P0 BAR.ARV R10, 0x40": "BARRIER_ARRIVE None 64",
    "WARPSYNC R0": "WARP None 0",
    "WARPSYNC.ALL": "WARP 4294967295 0",
    "NOP": "WARP None 0",
    "MEMBAR.SC.CTA": "FENCE 0 0 block",
    "CCTL.IVALL": "FENCE 0 0",
    "UCGABAR_WAIT": "CLUSTER_WAIT 0 0",
    "SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [R2+URZ], R3": "MBARRIER_WAIT 0 0",
    "SYNCS.ARRIVE.TRANS64.A1T0 RZ, [R2+URZ], RZ": "MBARRIER_ARRIVE 0 0",
    "DEPBAR.LE SB0, 0x0": "COPY_WAIT 0 0",
    "UTMALDG.2D [UR8], [UR4]": "UNKNOWN 0 0",
    "FFMA R1, R2, R3, R4": "nothing",
}


ENTRY = ".entry one() {%s\n}\n"


def found(text: str, kernel: str) -> list[Statement]:
    made = statements(text.encode(), kernel)
    assert made is not None
    return made


def of_ptx(line: str) -> Operation:
    (one,) = listing.of_ptx(found(ENTRY % line, "one")).values()
    return one


def told(one: Operation) -> str:
    words = []
    if one.access != Access.NONE:
        words = [one.access.name, one.space.name, str(one.size)]
    elif one.sync != Sync.NONE:
        words = [one.sync.name, str(one.barrier), str(one.count)]
    words += [name for name in ("strong", "release", "acquire", "copy") if getattr(one, name)]
    words += ["block"] if one.scope == Scope.BLOCK else []
    return " ".join(words + ([] if one.returns else ["no result"])) or "nothing"


@pytest.mark.parametrize(
    ("decode", "line", "expected"),
    [(of_ptx, *item) for item in PTX.items()]
    + [(machine.operation, *item) for item in MACHINE.items()],
    ids=lambda value: value[:40] if isinstance(value, str) else "",
)
def test_instruction_is_understood(
    decode: Callable[[str], Operation], line: str, expected: str
) -> None:
    assert told(decode(line)) == expected


def test_generic_space_is_the_default() -> None:
    assert of_ptx("ld.u32 %r1, [%rd1];").space == Space.GENERIC


def test_lines_of_ptx_have_their_source() -> None:
    body = "\n.loc 1 7 3\n ld.global.u32 %r1, [%rd1]; // a\n}\n.entry k() {\n bar.sync 0;"
    text = f'.file 1 "/home/me/a.cu"\n{ENTRY % body}'
    made = listing.of_ptx(found(text, "one") + found(text, "k"))
    assert sorted(made) == [4, 7] and made[4].source == "a.cu:7" and made[7].source is None


def test_what_fills_the_end_of_machine_code_is_no_warp_sync() -> None:
    names = ("NOP", "EXIT", "NOP")
    rows = [{"opcode_id": i, "sass": name, "opcode": name} for i, name in enumerate(names)]
    made = listing.of_machine(rows)
    assert [made[i].sync for i in range(3)] == [Sync.WARP, Sync.NONE, Sync.NONE]


def test_copies_without_a_record_are_named() -> None:
    lines = ("UBLKCP.S.G [UR8], [UR10], UR12", "LDG.E R2, desc[UR4][R2.64]")
    code = dict(enumerate(map(machine.operation, lines)))
    assert load.unseen_copies(code, {1: code[1]}) == ["no record of UBLKCP, which access memory"]
    assert load.unseen_copies(code, code) == [] == load.unseen_copies({1: code[1]}, {})


def test_generic_addresses_outside_of_allocations_are_noticed() -> None:
    made = Written()
    made.add(1, machine.operation("ST.E [R2.64], R4"), base=0x1000)
    starts, ends = np.array([0x4000, 0x1000], "u8"), np.array([0x5000, 0x1080], "u8")
    assert not load.elsewhere(made.launch(), starts, ends)
    assert load.elsewhere(made.launch(), starts, ends - np.uint64(4))
    assert load.elsewhere(made.launch(), starts[:0], ends[:0])


LOOP = """
BSSY B0, 0x60
STS [R5], R0
NOP
@P0 BRA 0x50
LDS R2, [R5]
BSYNC B0
NOP
LDS R3, [R5]
@P1 BRA 0x30
NOP
@P1 STS [R5], R0
EXIT
"""


def test_what_is_left_of_a_warp_sync_is_known_by_an_access_beside_it() -> None:
    lines = LOOP.strip().splitlines()
    rows = [
        {
            "opcode_id": i,
            "sass": line,
            "opcode": (words := line.removeprefix("@P0 ").removeprefix("@P1 ").split())[0],
            "predicate": "@P" if line.startswith("@") else None,
            "category": "branch" if words[0] in ("BRA", "BSSY", "EXIT") else "other",
            "target": int(words[-1], 16) if words[0] in ("BRA", "BSSY") else None,
        }
        for i, line in enumerate(lines)
    ]
    assert elided.anchors(rows, listing.of_machine(rows)) == {2: (1, True), 6: (7, False)}
    rows[3]["opcode"] = "BRX"
    assert elided.anchors(rows, listing.of_machine(rows)) == {}


@pytest.mark.parametrize("follows", [True, False])
def test_a_warp_that_met_at_it_has_a_record(follows: bool) -> None:
    made = Written(threads=64)
    for warp in range(2):
        made.add(1, STORE, warp, base=shared(128 * warp))
        made.add(3, LOAD, warp, base=shared(128 * warp), stride=0, mask=1)
    made.scattered(3, LOAD, [shared(4)], mask=1)
    assert [one.instructions for one in made.conflicts()] == [(1, 3)]
    before = made.launch()
    names = ("instruction", "mask", "block", "warp", "base", "stride", "row")
    columns = {name: getattr(before, name) for name in names}
    after = elided.insert(columns, {2: (1, True) if follows else (3, False)})
    assert after["instruction"].tolist() == (
        [1, 2, 3, 1, 2, 3, 3] if follows else [1, 2, 3, 1, 2, 3, 2, 3]
    )
    assert (after["mask"][after["instruction"] == 2] == (ALL if follows else 1)).all()
    operations = {**before.operations, 2: machine.operation("NOP")}
    changed: dict[str, Any] = {**after, "operations": operations}
    met = replace(before, **changed)
    assert bool(conflicts(met)) is not follows  # a single lane meets no other
