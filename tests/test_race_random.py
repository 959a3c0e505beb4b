"""Random launches: `conflicts` says that there is a race where a search of all pairs says so."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable
from functools import partial

import pytest

from tests.race_traces import BARRIER, LOAD, STORE, Written
from ttanalyze.verbs.race.exact.model import Access, Operation, Sync

WARPS, LANES, BLOCKS = 2, 3, 2
USED = (1 << LANES) - 1
DATA, FLAGS = 0x1000, 0x9000
NAMED = Operation("bar.sync 1, 64", sync=Sync.BARRIER, barrier=1, count=64)
RELEASE = Operation("st.release", Access.STORE, 4, strong=True, release=True)
ACQUIRE = Operation("ld.acquire", Access.LOAD, 4, strong=True, acquire=True)
Thread = tuple[int, int, int]  # block, warp, lane
Known = set[tuple[int, int]]  # accesses: record, lane


class Model:
    """Writes a launch, and keeps for each thread the accesses that come before what it does."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.written = Written(threads=32 * WARPS)
        self.known: dict[Thread, Known] = defaultdict(set)
        self.flags: dict[int, Known] = defaultdict(set)
        self.pending: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
        self.accesses: list[tuple[int, int, Thread, int, bool, bool]] = []
        self.raced = False

    def lanes(self, mask: int) -> list[int]:
        return [lane for lane in range(LANES) if mask >> lane & 1]

    def next(self, block: int, warp: int) -> int:
        """The number of the warp's next record, before which it takes what it waited for."""
        for flag, mask in self.pending.pop((block, warp), []):
            for lane in self.lanes(mask):
                self.known[block, warp, lane] |= self.flags[flag]
        return len(self.written.rows)

    def access(self, block: int, warp: int) -> None:
        address = DATA + 4 * self.random.randrange(60)
        self.at(block, warp, address, self.random.randint(1, USED), self.random.random() < 0.4)

    def at(self, block: int, warp: int, address: int, mask: int, store: bool) -> None:
        record, operation = self.next(block, warp), STORE if store else LOAD
        self.written.add(1 + store, operation, warp, block, base=address, mask=mask)
        self.note(record, block, warp, mask, address, store, strong=False)

    def note(
        self, record: int, block: int, warp: int, mask: int, base: int, store: bool, strong: bool
    ) -> None:
        for lane in self.lanes(mask):
            thread, address = (block, warp, lane), base + 4 * lane
            for other, its_lane, its_thread, its_address, stored, its_strong in self.accesses:
                conflict = its_address == address and its_thread != thread and (store or stored)
                if conflict and not (strong and its_strong):
                    self.raced |= (other, its_lane) not in self.known[thread]
        for lane in self.lanes(mask):
            self.accesses.append(
                (record, lane, (block, warp, lane), base + 4 * lane, store, strong)
            )
            self.known[block, warp, lane].add((record, lane))

    def meet(self, threads: list[Thread]) -> None:
        union = set().union(*(self.known[thread] for thread in threads))
        for thread in threads:
            self.known[thread] = set(union)

    def warp_sync(self, block: int, warp: int) -> None:
        self.next(block, warp)
        mask = self.random.choice((USED, self.random.randint(1, USED)))
        sync = Operation("bar.warp.sync", sync=Sync.WARP, barrier=None)
        self.written.add(3, sync, warp, block, mask=mask)
        self.meet([(block, warp, lane) for lane in self.lanes(mask)])

    def barrier(self, block: int, warp: int) -> None:
        named = self.random.random() < 0.3
        for one in self.random.sample(range(WARPS), WARPS):
            self.next(block, one)
            self.written.add(4 + named, NAMED if named else BARRIER, one, block, mask=USED)
        self.meet([(block, one, lane) for one in range(WARPS) for lane in range(LANES)])

    def hand_over(self, block: int, warp: int) -> None:
        """A lane stores and releases; one of the other block acquires, and loads or stores."""
        lane, address = self.random.randrange(LANES), DATA + 0x1000 + 4 * self.random.randrange(3)
        flag, late = self.random.randrange(2), self.random.random() < 0.05
        for its_block, release in ((block, True), (1 - block, False)):
            store = release or self.random.random() < 0.3
            steps: list[Callable[[], None]] = [
                partial(self.at, its_block, warp, address - 4 * lane, 1 << lane, store),
                partial(self.flag, its_block, warp, lane, flag, release),
            ]
            for step in steps if release != late else steps[::-1]:
                step()

    def any_flag(self, block: int, warp: int) -> None:
        lane, flag = self.random.randrange(LANES), self.random.randrange(2)
        self.flag(block, warp, lane, flag, self.random.random() < 0.5)

    def flag(self, block: int, warp: int, lane: int, flag: int, release: bool) -> None:
        record, address = self.next(block, warp), FLAGS + 64 * flag
        number, operation = (6, RELEASE) if release else (7, ACQUIRE)
        base = address - 4 * lane
        self.written.add(number, operation, warp, block, base=base, mask=1 << lane)
        self.note(record, block, warp, 1 << lane, base, release, strong=True)
        if release:
            self.flags[address] |= self.known[block, warp, lane]
        else:
            self.pending[block, warp].append((address, 1 << lane))

    def run(self, steps: int) -> None:
        acts: list[Callable[[int, int], None]] = [self.access, self.warp_sync, self.barrier]
        acts += [self.any_flag, self.hand_over, self.hand_over]
        for _ in range(steps):
            act = self.random.choice(acts)
            act(self.random.randrange(BLOCKS), self.random.randrange(WARPS))


@pytest.mark.sampled
@pytest.mark.parametrize("steps", [4, 6, 10])
def test_random_launches_race_where_a_search_of_all_pairs_says_so(steps: int) -> None:
    raced = 0
    for seed in range(120):
        model = Model(seed)
        model.run(steps)
        found = model.written.found()
        assert bool(found) == model.raced, f"seed {seed}: {found}"
        assert all(certain for _, certain in found), seed
        raced += model.raced
    assert 0 < raced < 120
