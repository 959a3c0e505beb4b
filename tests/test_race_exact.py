"""Races within one launch, in traces that are written here."""

from __future__ import annotations

import pytest

from tests.race_traces import ALL, ATOMIC, BARRIER, LOAD, STORE, Written, shared
from ttanalyze.verbs.race.exact.model import Access, Operation, Scope, Sync

DATA, FLAG = 0x7F0000001000, 0x7F0000009000
WARP_SYNC = Operation("bar.warp.sync -1", sync=Sync.WARP, barrier=ALL)
FENCE = Operation("membar.gl", sync=Sync.FENCE)
FENCE_BLOCK = Operation("membar.cta", sync=Sync.FENCE, scope=Scope.BLOCK)
CLUSTER_ARRIVE = Operation("barrier.cluster.arrive", sync=Sync.CLUSTER_ARRIVE)
CLUSTER_WAIT = Operation("barrier.cluster.wait", sync=Sync.CLUSTER_WAIT)
ARRIVE = Operation("mbarrier.arrive", size=8, sync=Sync.MBARRIER_ARRIVE)
WAIT = Operation("mbarrier.try_wait", size=8, sync=Sync.MBARRIER_WAIT)
RELEASE = Operation("st.release", Access.STORE, 4, strong=True, release=True)
ACQUIRE = Operation("ld.acquire", Access.LOAD, 4, strong=True, acquire=True)
STRONG_STORE = Operation("st.volatile", Access.STORE, 4, strong=True)
STRONG_LOAD = Operation("ld.volatile", Access.LOAD, 4, strong=True)
ONE = 1


def hand_over(synced: bool, count: int = 2) -> Written:
    """Each warp stores a tile of shared memory and loads that of the next."""
    made = Written(threads=32 * count)
    for warp in range(count):
        made.add(1, STORE, warp, base=shared(128 * warp))
    if synced:
        made.everywhere(2, BARRIER, count)
    for warp in range(count):
        made.add(3, LOAD, warp, base=shared(128 * ((warp + 1) % count)))
    return made


def test_read_after_write_without_barrier() -> None:
    (one,) = hand_over(synced=False).conflicts()
    assert one.instructions == (1, 3) and one.certain and one.count == 64
    assert hand_over(synced=True).found() == []


def test_write_after_read_without_barrier() -> None:
    """The load of a round is not ordered before the store of the next round."""

    def rounds(second: bool) -> Written:
        made = Written()
        for _ in range(3):
            for warp in range(2):
                made.add(1, STORE, warp, base=shared(128 * warp))
            made.everywhere(2, BARRIER, 2)
            for warp in range(2):
                made.add(3, LOAD, warp, base=shared(128 * (1 - warp)))
            if second:
                made.everywhere(4, BARRIER, 2)
        return made

    assert rounds(second=False).found() == [((1, 3), True)]
    assert rounds(second=True).found() == []


def test_blocks_have_their_own_shared_memory() -> None:
    made = Written()
    for block in range(3):
        made.add(1, STORE, block=block, base=shared(0, block))
    assert made.found() == []


def test_blocks_that_store_to_the_same_global_memory() -> None:
    made = Written(threads=32)
    for block in range(3):
        made.add(1, STORE, block=block, base=DATA + 64 * block)
    (one,) = made.conflicts()
    assert one.instructions == (1, 1) and one.certain and one.count == 32
    assert one.address == DATA + 64


def test_barriers_of_a_block_do_not_order_other_blocks() -> None:
    made = Written(threads=32)
    for block in range(2):
        made.add(1, STORE, block=block, base=DATA + 128 * block)
    for block in range(2):
        made.everywhere(2, BARRIER, 1, block)
    for block in range(2):
        made.add(3, LOAD, block=block, base=DATA + 128 * (1 - block))
    assert made.found() == [((1, 3), True)]


def test_bytes_next_to_each_other_do_not_race() -> None:
    made = Written(threads=64)
    byte = Operation("st.u8", Access.STORE, 1)
    made.add(1, byte, 0, base=DATA, stride=2)
    made.add(1, byte, 1, base=DATA + 1, stride=2)
    assert made.found() == []
    made.add(2, Operation("ld.u16", Access.LOAD, 2), 1, base=DATA, stride=2)
    assert made.found() == [((1, 2), True)]


def test_atomics_do_not_race_with_each_other_or_with_loads() -> None:
    made = Written()
    for warp in range(2):
        made.add(1, ATOMIC, warp, base=DATA, stride=0)
        made.add(2, LOAD, warp, base=DATA, stride=0)
    assert made.found() == []
    made.add(3, STORE, 0, base=DATA, mask=ONE)
    assert ((1, 3), True) in made.found()


def test_strong_accesses_do_not_race_with_each_other() -> None:
    made = Written()
    made.add(1, STRONG_STORE, 0, base=DATA, mask=ONE)
    made.add(2, STRONG_LOAD, 1, base=DATA, mask=ONE)
    assert made.found() == []
    made.add(3, LOAD, 1, base=DATA, mask=ONE)
    assert made.found() == [((1, 3), True)]


# ---- within a warp ----


def test_lanes_of_a_warp_need_a_warp_sync() -> None:
    def exchange(synced: bool) -> Written:
        made = Written(threads=32)
        made.add(1, STORE, base=shared(0))
        if synced:
            made.add(2, WARP_SYNC)
        made.scattered(3, LOAD, [shared(4 * (lane ^ 1)) for lane in range(32)])
        return made

    assert exchange(synced=False).found() == [((1, 3), True)]
    assert exchange(synced=True).found() == []


def test_a_warp_sync_orders_only_its_lanes() -> None:
    def exchange(mask: int) -> Written:
        made = Written(threads=32)
        made.add(1, STORE, base=shared(0))
        made.add(2, Operation("bar.warp.sync", sync=Sync.WARP, barrier=mask), mask=mask)
        made.scattered(3, LOAD, [shared(4 * (lane ^ 16)) for lane in range(32)])
        return made

    assert exchange(0x00FF00FF).found() == [((1, 3), True)]
    assert exchange(ALL).found() == []


def test_lanes_that_reach_a_warp_sync_apart() -> None:
    made = Written(threads=32)
    made.add(1, STORE, base=shared(0))
    made.add(2, WARP_SYNC, mask=0xFFFF)
    made.add(2, WARP_SYNC, mask=0xFFFF0000)
    made.scattered(3, LOAD, [shared(4 * (lane ^ 16)) for lane in range(32)])
    assert made.found() == []


def test_a_warp_sync_does_not_order_other_warps() -> None:
    made = Written()
    made.add(1, STORE, 0, base=shared(0))
    for warp in range(2):
        made.add(2, WARP_SYNC, warp)
    made.add(3, LOAD, 1, base=shared(0))
    assert made.found() == [((1, 3), True)]


@pytest.mark.parametrize("same", [False, True])
def test_lanes_of_one_instruction_that_store_to_one_byte(same: bool) -> None:
    made = Written(threads=32)
    made.add(1, STORE, base=DATA, stride=0, values=[7 if same else i for i in range(32)])
    (one,) = made.conflicts()
    assert one.instructions == (1, 1) and one.count == 31 and one.same_value == same


def test_scattered_lanes_that_store_to_one_byte() -> None:
    made = Written(threads=32)
    made.scattered(1, STORE, [DATA + 4 * lane for lane in range(32)])
    assert made.found() == []
    made.scattered(1, STORE, [DATA + 4 * (lane % 31) for lane in range(32)])
    (one,) = made.conflicts()
    assert one.records == (1, 1) and one.lanes == (0, 31) and one.count == 1


def test_stores_of_the_same_value_by_two_blocks() -> None:
    made = Written(threads=32)
    for block in range(2):
        made.add(1, STORE, block=block, base=DATA, mask=ONE, values=[5] * 32)
    (one,) = made.conflicts()
    assert one.same_value
    made.add(1, STORE, block=2, base=DATA, mask=ONE, values=[6] * 32)
    (one,) = made.conflicts()
    assert not one.same_value


# ---- barriers of some threads ----


def test_a_warp_that_exits_early_is_not_waited_for() -> None:
    made = Written(threads=96)
    made.add(1, STORE, 0, base=shared(0))
    for warp in range(2):
        made.add(2, BARRIER, warp)
    made.add(3, LOAD, 1, base=shared(0))
    assert made.found() == []


def test_threads_that_reach_a_barrier_apart_from_their_warp() -> None:
    made = Written(threads=32)
    made.add(1, STORE, base=shared(0), mask=0xFFFF)
    made.add(2, BARRIER, mask=0xFFFF)
    made.add(3, STORE, base=shared(0), mask=0xFFFF0000)
    made.add(4, BARRIER, mask=0xFFFF0000)
    made.scattered(5, LOAD, [shared(4 * (lane ^ 16)) for lane in range(32)])
    assert made.found() == []


@pytest.mark.parametrize("number", [1, 2])
def test_a_barrier_of_some_warps(number: int) -> None:
    """Warps 0 and 1 meet at barrier 1, warps 2 and 3 at barrier 2."""

    def named(which: int) -> Operation:
        return Operation(f"bar.sync {which}, 64", sync=Sync.BARRIER, barrier=which, count=64)

    made = Written(threads=128)
    made.add(1, STORE, 0, base=shared(0))
    for warp in range(4):
        made.add(2 + warp // 2, named(1 + warp // 2), warp)
    made.add(9, LOAD, number, base=shared(0))
    assert made.found() == ([] if number == 1 else [((1, 9), True)])


def test_a_producer_that_arrives_and_a_consumer_that_waits() -> None:
    def hand(early: bool) -> Written:
        arrive = Operation("bar.arrive 1, 64", sync=Sync.BARRIER_ARRIVE, barrier=1, count=64)
        wait = Operation("bar.sync 1, 64", sync=Sync.BARRIER, barrier=1, count=64)
        made = Written()
        if not early:
            made.add(1, STORE, 0, base=shared(0))
        made.add(2, arrive, 0)
        if early:
            made.add(1, STORE, 0, base=shared(0))
        made.add(3, wait, 1)
        made.add(4, LOAD, 1, base=shared(0))
        return made

    assert hand(early=False).found() == []
    assert hand(early=True).found() == [((1, 4), True)]


def test_a_barrier_of_unknown_number_leaves_a_race_possible() -> None:
    wait = Operation("bar.sync R1, R2", sync=Sync.BARRIER, barrier=None, count=None)
    made = Written()
    made.add(1, STORE, 0, base=shared(0))
    made.add(3, LOAD, 1, base=shared(0))
    for warp in range(2):
        made.add(2, wait, warp)
    (one,) = made.conflicts()
    assert not one.certain and "not modelled" in one.reasons()[0]


def test_barriers_whose_operands_are_registers() -> None:
    wait = Operation("bar.sync R1, R2", sync=Sync.BARRIER, barrier=None, count=None)
    made = Written(threads=96)
    made.add(1, STORE, 0, base=shared(0))
    for warp in range(2):
        made.add(2, wait, warp, operands=(1, 64))
    made.add(3, LOAD, 1, base=shared(0))
    assert made.found() == []
    made.add(4, LOAD, 2, base=shared(0))
    assert made.found() == [((1, 4), True)]


# ---- clusters, mbarriers, copies ----


def test_blocks_of_a_cluster_need_its_barrier() -> None:
    def look(synced: bool) -> Written:
        made = Written(threads=32, cluster=(2, 1, 1))
        for block in range(2):
            made.add(1, STORE, block=block, base=shared(0, block))
            if synced:
                made.add(2, CLUSTER_ARRIVE, block=block)
                made.add(3, CLUSTER_WAIT, block=block)
        for block in range(2):
            made.add(4, LOAD, block=block, base=shared(0, 1 - block))
        return made

    assert look(synced=False).found() == [((1, 4), True)]
    assert look(synced=True).found() == []


@pytest.mark.parametrize(("block", "races"), [(1, 1), (2, 0), (3, 1), (8, 1)])
def test_a_cluster_has_blocks_of_several_rows(block: int, races: int) -> None:
    """In a grid of 2 times 4 blocks, block 0 is in a cluster with block 2, below it."""
    made = Written(threads=32, cluster=(1, 2, 1), grid=(2, 4, 2))
    made.add(1, STORE, base=DATA)
    for one in (0, block):
        made.add(2, CLUSTER_ARRIVE, block=one)
        made.add(3, CLUSTER_WAIT, block=one)
    made.add(4, LOAD, block=block, base=DATA)
    assert len(made.found()) == races


@pytest.mark.parametrize("offset", [0, 4096, 16380, 16384])
def test_a_large_copy_races_with_each_byte_of_it(offset: int) -> None:
    made = Written(threads=32)
    copy = Operation("cp.async.bulk", Access.STORE, 16384, copy=True, sync=Sync.MBARRIER_ARRIVE)
    made.add(1, copy, base=shared(0), stride=0, mask=1)
    made.add(2, LOAD, base=shared(offset), stride=0, mask=1)
    assert made.found() == ([((1, 2), True)] if offset < 16384 else [])


def test_an_mbarrier_orders_those_who_wait() -> None:
    def pipeline(wait: bool) -> Written:
        made = Written()
        made.add(1, STORE, 0, base=shared(64))
        made.add(2, ARRIVE, 0, base=shared(0), stride=0)
        if wait:
            made.add(3, WAIT, 1, base=shared(0), stride=0)
        made.add(4, LOAD, 1, base=shared(64))
        return made

    assert pipeline(wait=False).found() == [((1, 4), True)]
    assert pipeline(wait=True).found() == []


def test_another_mbarrier_orders_nothing() -> None:
    made = Written()
    made.add(1, STORE, 0, base=shared(64))
    made.add(2, ARRIVE, 0, base=shared(0), stride=0)
    made.add(3, WAIT, 1, base=shared(8), stride=0)
    made.add(4, LOAD, 1, base=shared(64))
    assert made.found() == [((1, 4), True)]


@pytest.mark.parametrize("waits", [False, True])
def test_a_bulk_copy_ends_at_its_mbarrier(waits: bool) -> None:
    """A barrier of the block does not wait for the copy."""
    copy = Operation(
        "cp.async.bulk", Access.STORE, 256, copy=True, sync=Sync.MBARRIER_ARRIVE, barrier=None
    )
    made = Written()
    made.add(1, copy, 0, base=shared(64), stride=0, mask=ONE)
    made.everywhere(2, BARRIER, 2)
    if waits:
        for warp in range(2):
            made.add(3, WAIT, warp, base=shared(0), stride=0)
    made.add(4, LOAD, 1, base=shared(64))
    assert made.found() == ([] if waits else [((1, 4), True)])


@pytest.mark.parametrize("waits", [False, True])
def test_an_asynchronous_copy_ends_where_its_thread_waits(waits: bool) -> None:
    made = Written()
    for warp in range(2):
        made.add(
            1, Operation("cp.async", Access.STORE, 4, copy=True), warp, base=shared(128 * warp)
        )
        if waits:
            made.add(2, Operation("cp.async.wait_all", sync=Sync.COPY_WAIT), warp)
    made.everywhere(3, BARRIER, 2)
    for warp in range(2):
        made.add(4, LOAD, warp, base=shared(128 * (1 - warp)))
    assert made.found() == ([] if waits else [((1, 4), True)])


@pytest.mark.parametrize("meets", [False, True])
def test_a_named_barrier_orders_only_the_lanes_that_wait_there(meets: bool) -> None:
    """Half of a warp meets the other warp; its other half, which reads, does so or does not."""
    wait = Operation("bar.sync 1, 64", sync=Sync.BARRIER, barrier=1, count=64)
    half = 0xFFFF0000
    made = Written()
    made.add(1, STORE, 1, base=shared(0))
    made.add(2, wait, 0, mask=ALL if meets else 0xFFFF)
    made.add(2, wait, 1)
    made.add(3, LOAD, 0, base=shared(0), mask=half)
    assert made.found() == ([] if meets else [((1, 3), True)])


# ---- flags ----


def publish(
    store: Operation, load: Operation, fences: str = "", scope: Operation = FENCE
) -> Written:
    """Block 0 stores data and a flag, block 1 reads the flag and the data."""
    made = Written(threads=32)
    made.add(1, STORE, block=0, base=DATA, mask=ONE)
    if "s" in fences:
        made.add(2, scope, block=0, mask=ONE)
    made.add(3, store, block=0, base=FLAG, mask=ONE)
    made.add(4, load, block=1, base=FLAG, mask=ONE)
    if "l" in fences:
        made.add(5, scope, block=1, mask=ONE)
    made.add(6, LOAD, block=1, base=DATA, mask=ONE)
    return made


def test_a_flag_that_is_released_and_acquired_orders() -> None:
    assert publish(RELEASE, ACQUIRE).found() == []
    assert publish(STRONG_STORE, STRONG_LOAD, "sl").found() == []
    assert publish(ATOMIC, ATOMIC, "sl").found() == []


def test_a_flag_without_fences_orders_nothing() -> None:
    assert publish(STRONG_STORE, STRONG_LOAD).found() == [((1, 6), True)]
    assert publish(STRONG_STORE, STRONG_LOAD, "l").found() == [((1, 6), True)]


def test_a_flag_without_a_fence_behind_its_read_leaves_a_race_possible() -> None:
    (one,) = publish(STRONG_STORE, STRONG_LOAD, "s").conflicts()
    assert not one.certain and "fence" in one.reasons()[0]


def test_a_fence_of_the_block_does_not_reach_other_blocks() -> None:
    assert publish(ATOMIC, ATOMIC, "sl", FENCE_BLOCK).found() == [((1, 6), True)]


def test_a_flag_that_is_read_before_its_record_came() -> None:
    """A record precedes its instruction: the store of the flag may come first all the same."""
    made = Written(threads=32)
    made.add(1, STORE, block=0, base=DATA, mask=ONE)
    made.add(4, ACQUIRE, block=1, base=FLAG, mask=ONE)
    made.add(3, RELEASE, block=0, base=FLAG, mask=ONE)
    made.add(6, LOAD, block=1, base=DATA, mask=ONE)
    assert made.found() == []


@pytest.mark.parametrize("reads_late", [False, True])
def test_a_flag_orders_only_what_follows_its_read(reads_late: bool) -> None:
    """A long trace: the flag is read soon after the load, or soon before it."""
    made = Written(threads=32)
    for i in range(16):
        made.add(9, STORE, block=0, base=DATA + 4096 + 128 * i)
    made.add(1, STORE, block=0, base=DATA, mask=ONE)
    made.add(3, RELEASE, block=0, base=FLAG, mask=ONE)
    for number in (6, 4) if reads_late else (4, 6):
        operation, base = (LOAD, DATA) if number == 6 else (ACQUIRE, FLAG)
        made.add(number, operation, block=1, base=base, mask=ONE)
    assert made.found() == ([((1, 6), True)] if reads_late else [])


def test_a_flag_of_one_lane_does_not_cover_the_other_lanes() -> None:
    def reduce(synced: bool) -> Written:
        made = Written(threads=32)
        made.add(1, STORE, block=0, base=DATA)
        if synced:
            made.everywhere(2, BARRIER, 1, 0)
        made.add(3, RELEASE, block=0, base=FLAG, mask=ONE)
        made.add(4, ACQUIRE, block=1, base=FLAG, mask=ONE)
        made.everywhere(2, BARRIER, 1, 1)
        made.add(6, LOAD, block=1, base=DATA)
        return made

    assert reduce(synced=False).found() == [((1, 6), True)]
    assert reduce(synced=True).found() == []


@pytest.mark.parametrize("waits", [False, True])
def test_a_barrier_of_the_grid_made_of_atomics(waits: bool) -> None:
    """As cooperative groups do it: one thread of each block counts, and waits for the others."""
    add = Operation("atom.add.release", Access.ATOMIC, 4, strong=True, release=True)
    blocks = 4
    made = Written()
    for block in range(blocks):
        for warp in range(2):
            made.add(1, STORE, warp, block, base=DATA + 256 * block + 128 * warp)
        made.everywhere(2, BARRIER, 2, block)
        made.add(3, add, block=block, base=FLAG, mask=ONE)
    for block in range(blocks):
        if waits:
            made.add(4, ACQUIRE, block=block, base=FLAG, mask=ONE)
        made.everywhere(5, BARRIER, 2, block)
        for warp in range(2):
            other = (block + 1) % blocks
            made.add(6, LOAD, warp, block, base=DATA + 256 * other + 128 * (1 - warp))
    assert made.found() == ([] if waits else [((1, 6), True)])


def test_certain_races_come_first() -> None:
    made = publish(STRONG_STORE, STRONG_LOAD, "s")
    for block in range(2):
        made.add(8, STORE, block=block, base=DATA + 4096, mask=ONE)
    assert made.found() == [((8, 8), True), ((1, 6), False)]


def test_an_instruction_of_unknown_meaning_leaves_races_possible() -> None:
    made = hand_over(synced=False)
    made.add(5, Operation("newsync", sync=Sync.UNKNOWN), 0)
    (one,) = made.conflicts()
    assert not one.certain


def test_an_empty_trace_has_no_races() -> None:
    made = Written()
    made.add(1, BARRIER)
    assert made.found() == []


@pytest.mark.parametrize("kind", [Sync.WARP, Sync.FENCE])
def test_kinds_that_a_trace_does_not_tell_leave_races_possible(kind: Sync) -> None:
    """A warp sync that is not told may order lanes of a warp, but no two warps."""
    (one,) = hand_over(synced=False).conflicts(frozenset([kind]))
    assert one.certain == (kind == Sync.WARP)
    made = Written(threads=32)
    made.add(1, STORE, base=shared(0))
    made.scattered(3, LOAD, [shared(4 * (lane ^ 1)) for lane in range(32)])
    (one,) = made.conflicts(frozenset([kind]))
    assert not one.certain and "no record" in one.reasons()[0]
