"""Random runs, and what each must say: a model of memory in plain Python.

The model knows what the program's memory was in each epoch and what the run can know of it. It
follows docs/format.md and shares no code with the toolkit; tests/rundir.py writes the run.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import xxhash

from tests.rundir import Writer

BLOCK = 65536
SIZES = (1, 7, 40, 1000, BLOCK, BLOCK + 3, 2 * BLOCK, 3 * BLOCK + 100)
TRIGGERS = ("sync", "launch", "copy", "api", "graph-node")
HOST = "host"
BARE = -1  # the segment of blocks without contents


def digest(contents: bytes) -> int:
    """A region's, as docs/format.md defines it."""
    out = b"".join(
        xxhash.xxh3_64_intdigest(contents[i : i + BLOCK]).to_bytes(8, "little")
        for i in range(0, len(contents), BLOCK)
    )
    return xxhash.xxh3_64_intdigest(out)


@dataclass
class Region:
    """now: its contents. seen: those of its last epoch. stored: of each block the contents that
    were stored last, in which epoch and segment. lost: its last epoch without stored contents.
    left_out: whether its last epoch did not read it.
    """

    number: int
    size: int
    kind: str
    context: int
    born: int
    now: bytes
    died: int | None = None
    seen: bytes | None = None
    stored: dict[int, tuple[bytes, int, int]] = field(default_factory=dict)
    lost: int = -1
    left_out: bool = False


@dataclass(frozen=True)
class State:
    """What is known of a region in an epoch: its contents as they were; those that are stored, by
    block None where they may be old, or their segment.
    """

    contents: bytes
    blocks: tuple[int | None, ...]
    good: bool  # whether what is stored is right, be it old
    left_out: bool  # by the last epoch of its context


@dataclass
class Epoch:
    context: int
    flags: tuple[str, ...]
    trigger: str
    digests: dict[int, int]
    states: dict[int, State]  # of all regions that live and were seen

    @property
    def empty(self) -> bool:
        """Whether nothing can be asked of it."""
        return "refused" in self.flags or ("dropped" in self.flags and not self.digests)


class RandomProcess:
    """One process of a random run: `story` makes it and what it says.

    twist: in this epoch one more byte changes in some region, if any lives.
    """

    def __init__(self, run: Path, seed: int, index: int = 0, twist: int | None = None) -> None:
        self.random = random.Random(seed * 1000 + index)
        self.twist = twist
        self.lossy = self.random.random() < 0.4
        self.segments = self.random.random() < 0.3
        self.choosy = self.random.random() < 0.3
        self.contexts = self.random.choice([1, 1, 2, 3])
        self.threads = self.random.choice([1, 2, 4])
        self.regions: dict[int, Region] = {}
        self.bases: dict[int, int] = {}
        self.epochs: list[Epoch] = []
        self.segment = 0
        self.removed: set[int] = set()
        self.calls: list[tuple[str, int]] = []  # kind and thread
        self.levels = [0]  # bytes allocated on the device, after each step
        self.writer = Writer(run, index, segments=self.segments)
        self.writer.function(0, "_Z4stepPf")
        self._story()
        self.writer.close()

    # ---- what happens ----

    def _story(self) -> None:
        for _ in range(self.random.randint(1, 4)):
            self._birth()
        for _ in range(self.random.randint(2, 24)):
            for _ in range(self.random.randint(0, 5)):
                self._step()
            self._cut()
        if self.segments and self.segment > 1 and self.random.random() < 0.6:
            self.removed = set(range(self.random.randint(1, self.segment)))
            for number in self.removed:
                (self.writer.path / f"data-{number:05d}.bin").unlink()

    def _thread(self) -> int:
        return 100 + self.random.randrange(self.threads)

    def _living(self) -> list[Region]:
        return [region for region in self.regions.values() if region.died is None]

    def _step(self) -> None:
        what = self.random.random()
        living = self._living()
        if what < 0.12:
            self._birth()
        elif what < 0.2 and len(living) > 1:
            self._death(self.random.choice(living))
        elif living:
            self._write(self.random.choice(living))

    def _birth(self) -> None:
        number = len(self.regions)
        size = self.random.choice(SIZES)
        fill = self.random.random()
        contents = bytes(size) if fill < 0.4 else self.random.randbytes(size)
        kind = self.random.choice(["device", "device", "async", "managed", HOST])
        context = self.random.randrange(self.contexts)
        dead = [r.number for r in self.regions.values() if r.died is not None]
        base = 0x7F0000000000 + (number << 24)
        if dead and self.random.random() < 0.5:  # an address that is used again
            again = self.random.choice(dead)
            other = [r for r in self._living() if self.bases[r.number] == self.bases[again]]
            base = base if other else self.bases[again]
        self.bases[number] = base
        thread = self._thread()
        self.calls.append(("alloc", thread))
        self.writer.born(
            *(number, contents, kind),
            captured=kind != HOST,
            context=context,
            base=base,
            thread=thread,
        )
        self.regions[number] = Region(number, size, kind, context, len(self.epochs), contents)
        if kind != HOST:
            self.levels.append(self.levels[-1] + size)

    def _death(self, region: Region) -> None:
        self.calls.append(("free", 4711))
        self.writer.died(region.number)
        region.died = len(self.epochs)
        if region.kind != HOST:
            self.levels.append(self.levels[-1] - region.size)

    def _write(self, region: Region) -> None:
        thread = self._thread()
        self.calls.append(("launch", thread))
        self.writer.event("launch", "cuLaunchKernel", id=0, thread=thread)
        length = min(region.size, self.random.choice([1, 2, 8, 100, BLOCK]))
        at = self.random.randrange(region.size - length + 1)
        same = self.random.random()
        data = bytes(length) if same < 0.3 else self.random.randbytes(length)
        self._put(region, at, data)

    def _put(self, region: Region, at: int, data: bytes) -> None:
        self.writer.write(region.number, at, data)
        region.now = region.now[:at] + data + region.now[at + len(data) :]

    def _cut(self) -> None:
        number = len(self.epochs)
        context = self.random.randrange(self.contexts)
        trigger = self.random.choice(TRIGGERS)
        first = all(e.context != context or "refused" in e.flags for e in self.epochs)
        flags: list[str] = []
        chance = self.random.random()
        captured = [r for r in self._living() if r.kind != HOST]
        seen = [r for r in captured if r.context == context]
        only = None
        if first and chance < 0.9:
            flags = ["full"]
        elif trigger == "graph-node" or chance < 0.15:
            flags = ["touched"]
            only = [r.number for r in seen if self.random.random() < 0.5]
        elif chance < 0.25:
            flags = ["refused"]
        elif chance < 0.4 and self.lossy:
            flags = ["dropped"]
        elif chance < 0.6:
            flags = ["full"]
        if flags != ["refused"] and self.epochs and "refused" in self.epochs[-1].flags:
            flags.append("gap")
        if self.random.random() < 0.1:
            flags += [] if "refused" in flags else ["loose"]
        if number == self.twist and seen:
            region = seen[number % len(seen)]
            self._put(region, region.size // 2, bytes([region.now[region.size // 2] ^ 0xFF]))
        whole = [r.number for r in seen if self.random.random() < 0.1]
        bare = self.choosy and self.random.random() < 0.5
        seq = None
        if trigger == "graph-node":
            thread = self._thread()
            self.calls.append(("graph-launch", thread))
            seq = self.writer.event("graph-launch", "cuLaunchKernel", thread=thread)
        else:
            self.calls.append(("epoch", 4711))
        which: dict[str, Any] = {"only": only, "whole": whole, "bare": bare}
        self.writer.epoch(trigger, *flags, context=context, seq=seq, **which)
        self._captured(number, context, tuple(flags), trigger, seen, **which)

    # ---- what the run knows of it ----

    def _captured(
        self,
        number: int,
        context: int,
        flags: tuple[str, ...],
        trigger: str,
        seen: list[Region],
        only: list[int] | None,
        whole: list[int],
        bare: bool,
    ) -> None:
        if "full" in flags and self.segments and self.epochs and not bare:
            self.segment += 1
        digests = {}
        for region in seen:
            if "refused" in flags or (only is not None and region.number not in only):
                region.left_out |= "touched" in flags
                continue
            every = "full" in flags or region.number in whole or region.seen is None
            listed = [
                i
                for i in range(-(-region.size // BLOCK))
                if every or _block(region.now, i) != _block(region.seen or b"", i)
            ]
            region.seen = region.now
            if not listed and "touched" not in flags:
                region.left_out &= "dropped" in flags  # which says only of what it lists
                continue
            region.left_out = False
            digests[region.number] = digest(region.now)
            if "dropped" in flags:
                region.lost = number
            else:
                for i in listed:
                    place = BARE if bare else self.segment
                    region.stored[i] = _block(region.now, i), number, place
        states = {r.number: _state(r) for r in self._living() if r.seen is not None}
        self.epochs.append(Epoch(context, flags, trigger, digests, states))

    def manifest(self) -> dict[str, Any]:
        """What manifest.json says of the process."""
        regions = [
            {
                "id": r.number,
                "kind": r.kind,
                "size": r.size,
                "label": None,
                "born": r.born,
                "died": r.died,
            }
            for r in self.regions.values()
            if r.kind != HOST
        ]
        order = ("full", "touched", "loose", "refused", "dropped", "gap")
        epochs = []
        for number, epoch in enumerate(self.epochs):
            epochs.append(
                {
                    "epoch": number,
                    "trigger": epoch.trigger,
                    "label": None,
                    "flags": [name for name in order if name in epoch.flags],
                    "digests": {str(r): f"{d:016x}" for r, d in sorted(epoch.digests.items())},
                }
            )
        return {"process": self.writer.index, "regions": regions, "epochs": epochs}

    def known(self, epoch: int, region: int, start: int, stop: int) -> bool | None:
        """Whether bytes of a region in an epoch have to be given; None: they may be."""
        e = self.epochs[epoch]
        state = e.states.get(region)
        if e.empty or state is None:
            return False
        blocks = state.blocks[start // BLOCK : -(-stop // BLOCK)]
        if any(segment in {BARE, *self.removed} for segment in blocks if segment is not None):
            return False
        if None not in blocks:
            return True
        return None if state.good else False


def _block(contents: bytes, index: int) -> bytes:
    return contents[index * BLOCK : (index + 1) * BLOCK]


def _state(region: Region) -> State:
    assert region.seen is not None
    count = -(-region.size // BLOCK)
    blocks = []
    for i in range(count):
        kept = region.stored.get(i)
        blocks.append(None if kept is None or kept[1] < region.lost else kept[2])
    stored = b"".join(region.stored[i][0] for i in range(count) if i in region.stored)
    return State(region.seen, tuple(blocks), stored == region.seen, region.left_out)
