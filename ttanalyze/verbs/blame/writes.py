"""What stores of threads, one after the other, did to the bytes of a target."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from ttanalyze.traces.accesses import Access
from ttanalyze.verbs.blame.target import Target


@dataclass
class Write:
    """A write to a target.

    Attributes:
        number: Of the instruction: its place in machine code divided by 16, or its line of PTX.
        text: The instruction.
        line: FILE:LINE of the source, None if it is unknown.
        access: `store` or `atomic`.
        block, thread: The thread, as x, y, z.
        offset: The first byte in the region, at the beginning of an item.
        size: The bytes of the written items.
        before: These items before the write, None if unknown.
        after: The same after it.
        ordered: Whether its place among the writes of these bytes is known.
        last: Among writes in unknown order: it alone leaves what was there after the launch.
    """

    number: int
    text: str
    line: str | None
    access: str
    block: tuple[int, ...]
    thread: tuple[int, ...]
    offset: int
    size: int
    before: bytes | None = None
    after: bytes | None = None
    ordered: bool = True
    last: bool = False

    @property
    def changes(self) -> bool:
        """Whether it may have changed anything."""
        return None in (self.before, self.after) or self.before != self.after


def followed(
    target: Target, stores: Sequence[Access], before: bytes | None, after: bytes | None
) -> list[Write]:
    """Returns the writes of stores that are in the order of the trace.

    Args:
        target: The target.
        stores: The stores.
        before: The bytes of the target before the first of them, None if unknown.
        after: The bytes after the last of them, None if unknown.
    """
    total = target.stop - target.start
    contested = _contested(stores, total)
    state: list[int | None] = list(before) if before is not None else [None] * total
    out = []
    for store in stores:
        low, high = _part(store, total)
        write = _write(target, store, total)
        begin = write.offset - target.start
        write.ordered = not any(contested[low:high])
        items = state[begin : begin + write.size]
        if not write.ordered:
            items = [None for _ in items]
        write.before = _known(_with(items, store, store.returned, begin))
        items[low - begin : high - begin] = [None] * (high - low)
        items = _with(items, store, store.stored, begin)
        write.after = _known(items)
        state[begin : begin + write.size] = items
        out.append(write)
    if after is not None:
        _fill(out, [_part(store, total) for store in stores], target.start, after)
        _find_last(out, target.start, after)
    return out


def fits(target: Target, writes: Sequence[Write], before: bytes | None, after: bytes) -> bool:
    """Returns whether writes can have left the target as it is afterwards."""
    state: list[int | None] = list(before) if before is not None else [None] * len(after)
    for write in writes:
        begin = write.offset - target.start
        known = write.after if write.ordered else None
        state[begin : begin + write.size] = known or [None] * write.size
    return all(byte in (None, left) for byte, left in zip(state, after, strict=True))


def _part(store: Access, total: int) -> tuple[int, int]:
    return max(store.begin, 0), min(store.begin + store.size, total)


def _known(some: Sequence[int | None]) -> bytes | None:
    numbers = [byte for byte in some if byte is not None]
    return bytes(numbers) if len(numbers) == len(some) else None


def _with(
    items: list[int | None], store: Access, data: bytes | None, begin: int
) -> list[int | None]:
    """Returns the bytes from `begin` on, with what a store has of them."""
    if data is None or len(data) != store.size:
        return items
    low, high = max(store.begin, begin), min(store.begin + store.size, begin + len(items))
    some = data[low - store.begin : high - store.begin]
    return [*items[: low - begin], *some, *items[high - begin :]]


def _contested(stores: Sequence[Access], total: int) -> list[bool]:
    """Returns which bytes are written by several warps, or by several lanes at once."""
    out, writer = [False] * total, [(-1, -1)] * total
    warps: list[object] = [None] * total
    for store in stores:
        for byte in range(*_part(store, total)):
            apart = warps[byte] not in (None, store.warp)
            out[byte] |= apart or writer[byte][0] == store.place[0]
            warps[byte], writer[byte] = store.warp, store.place
    return out


def _write(target: Target, store: Access, total: int) -> Write:
    item = 1 if target.type is None else target.type.itemsize
    low, high = _part(store, total)
    begin, stop = low // item * item, min(-(-high // item) * item, total)
    return Write(
        store.instruction.number,
        store.instruction.text,
        store.instruction.source,
        store.instruction.access or "store",
        store.warp[0],
        store.thread,
        target.start + begin,
        stop - begin,
    )


def _fill(
    writes: Sequence[Write], parts: Sequence[tuple[int, int]], start: int, after: bytes
) -> None:
    """Adds what atomic operations left: what came next, or what was there in the end."""
    later: list[int | None] = list(after)
    for write, (low, high) in zip(reversed(writes), reversed(parts), strict=True):
        begin = write.offset - start
        if write.ordered and write.after is None:
            write.after = _known(later[begin : begin + write.size])
        told = write.before if write.ordered else None
        later[low:high] = (
            [None] * (high - low) if told is None else told[low - begin : high - begin]
        )


def _find_last(writes: Sequence[Write], start: int, after: bytes) -> None:
    """Marks the only write in unknown order that leaves what was there in the end."""
    rivals = [write for write in writes if not write.ordered]
    places = Counter((write.offset, write.size) for write in rivals)
    unknown = {(write.offset, write.size) for write in rivals if write.after is None}
    begins = [write.offset - start for write in rivals]
    fits = [
        write
        for write, at in zip(rivals, begins, strict=True)
        if write.after == after[at : at + write.size]
    ]
    alone = Counter((write.offset, write.size) for write in fits)
    overlaps = len({offset for offset, _ in places}) < len(places)
    for write in fits:
        place = write.offset, write.size
        write.last = alone[place] == 1 and place not in unknown and not overlaps
