"""What a plan to do recorded work again contains, and why there is none, is what a simple model of
the program says, in random runs.
"""

from __future__ import annotations

import random
import re
import struct
from collections.abc import Callable
from dataclasses import astuple, dataclass, field
from pathlib import Path
from typing import Any

import pytest

import ttanalyze as tt
from tests.rundir import CALLS, Writer, digest, record, seal
from ttanalyze.errors import Error
from ttanalyze.format import layout
from ttanalyze.format.process import Process
from ttanalyze.gpu.rebuild.dependency_graph import span
from ttanalyze.gpu.rebuild.steps import Span
from ttanalyze.verbs.replay.plan import PARTIAL, choice, launches, none_of, plan

FEW, MANY = range(150), range(1000, 4000)
SLOTS, SLOT, FIRST = 6, 0x1000, 0x7F0000000000
LEGACY, PER_THREAD = 1, 2
CAPTURING, COOPERATIVE, SYNC_COPY, HOST_DST = 1, 2, 4, 8
NOBODY: frozenset[int] = frozenset()
Given = bytes | None  # parameters of a launch
NAMES = {0: "_Z3addPfS_i", 1: "tick", 2: "draw"}
SIZES = {0: (28, 4), 1: (0, 0), 2: (16, 2)}  # bytes and number of parameters
BAD = {
    "refused": "was refused",
    "dropped": "was dropped",
    "loose": "was cut while work was running",
}
IMAGES = {  # of the modules of the second kernel and the third
    1: ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry tick()\n{\nret;\n}\n",
    2: ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry draw(.param .u64 t)\n{\n"
    ".reg .b32 %r<9>; .reg .b64 %rd<3>;\nld.param.u64 %rd1, [t];\n"
    "tex.1d.v4.u32.s32 {%r1, %r2, %r3, %r4}, [%rd1, {%r5}];\nret;\n}\n",
}


class RefusedError(Exception):
    """Why there is no plan: a part of what is said."""


@dataclass
class Region:
    number: int
    base: int
    size: int
    kind: str
    context: int
    birth: int
    born: int
    death: int | None = None
    died: int | None = None

    def lives(self, seq: int) -> bool:
        """Whether a call finds it there."""
        return self.birth < seq and (self.death is None or seq <= self.death)

    def holds(self, address: int) -> bool:
        return self.base <= address < self.base + self.size

    def reached(self, begin: int, end: int) -> bool:
        return begin < self.base + self.size and self.base < end


@dataclass
class Call:
    seq: int
    kind: str
    name: str
    context: int = 0
    stream: int = 1
    thread: int = 4711
    result: int = 0
    flags: int = 0
    dst: int = 0
    src: int = 0
    bytes: int = 0
    id: int = layout.NO_ID
    shared: int = 0
    grid: tuple[int, ...] = (0, 0, 0)
    block: tuple[int, ...] = (0, 0, 0)
    params: Given = None

    @property
    def done(self) -> bool:
        return not self.result and not self.flags & CAPTURING

    @property
    def said(self) -> str:
        return f"call {self.seq} ({self.name})"

    @property
    def words(self) -> tuple[int, ...]:
        raw = self.params or b""
        return struct.unpack(f"<{len(raw) // 8}Q", raw[: len(raw) // 8 * 8])

    @property
    def reach(self) -> int:
        """Bytes from the first that a copy, a set or a write of a value changes to the last."""
        if self.kind == "mem-op":
            return self.shared
        if self.kind == "copy" and self.rows:
            return self.grid[0] + (self.grid[1] - 1) * self.block[0]
        return self.bytes

    @property
    def rows(self) -> bool:
        return self.kind == "copy" and self.grid[1] > 1


@dataclass
class Epoch:
    number: int
    context: int
    flags: tuple[str, ...]
    trigger: str
    whole: int
    read: list[int] | None  # None: all regions

    @property
    def good(self) -> bool:
        return not BAD.keys() & set(self.flags) and self.trigger != "graph-node"


@dataclass
class Kept:
    before: int
    after: int
    views: list[str] = field(default_factory=list)


class Order:
    """What comes before what, as sets of steps by number."""

    def __init__(self, serial: bool) -> None:
        self.serial = serial
        self.before: list[frozenset[int]] = []
        self.all = NOBODY  # what every later step comes after
        self.last: dict[Any, frozenset[int]] = {}
        self.recorded: dict[int, frozenset[int]] = {}
        self.written: dict[int, frozenset[int]] = {}

    def _lane(self, call: Call) -> Any:
        if self.serial or call.stream == LEGACY:
            return None
        return (call.thread,) if call.stream == PER_THREAD else call.stream

    def tail(self, call: Call) -> frozenset[int]:
        lane = self._lane(call)
        if lane is None:
            return self.all.union(*self.last.values())
        return self.all | self.last.get(lane, NOBODY)

    def follow(self, call: Call, steps: frozenset[int]) -> None:
        if self._lane(call) is None:
            self.last, self.all = {}, steps
        else:
            self.last[self._lane(call)] = steps

    def submit(self, call: Call) -> None:
        before = self.tail(call)
        self.before.append(before)
        self.follow(call, before | {len(self.before) - 1})

    def barrier(self) -> None:
        self.all = self.all.union(*self.last.values())
        self.last = {}


class Program:
    """Makes random calls and epochs, writes them, and says what each plan must be."""

    def __init__(self, path: Path, seed: int) -> None:
        self.r = random.Random(seed)
        self.w = Writer(path)
        self.contexts = self.r.choice((1, 1, 2))
        self.keeps = self.r.random() < 0.4
        self.calls: dict[int, Call] = {}
        self.regions: list[Region] = []
        self.epochs: list[Epoch] = []
        self.kept: dict[int, Kept] = {}
        for number, name in NAMES.items():
            self.w.function(
                number, name, number, param_bytes=SIZES[number][0], param_count=SIZES[number][1]
            )
        self._modules()
        for _ in range(self.r.randint(1, 4)):
            self._birth()
        self._cut()
        for _ in range(self.r.randint(3, 30)):
            self._something()
        if self.r.random() < 0.7:
            self._cut()
        chance = self.r.random()
        self.lost = self.r.choice((1, 3)) if chance < 0.03 else 0
        self.silent = 0.03 <= chance < 0.06
        self.params = not 0.06 <= chance < 0.1
        options = {"TT_PARAMS": str(int(self.params)), "TT_EVENTS": str(int(not self.silent))}
        options |= {"TT_REPLAYABLE": "1"} if self.keeps else {}
        counters = {"events": len(self.calls), "events_lost": self.lost}
        self.w.close(options=options, counters=counters)

    # ---- what happens ----

    def _modules(self) -> None:
        folder = self.w.path / "modules"
        folder.mkdir()
        for number in NAMES:
            members: dict[str, Any] = {"kind": layout.MODULE_KINDS.index("ptx"), "size": 1}
            if number in IMAGES:
                raw = IMAGES[number].encode()
                members["image"] = digest(raw)
                (folder / f"{members['image']:016x}").write_bytes(raw)
            out = record(layout.MODULE, id=number, path=layout.NO_ID, **members)
            self.w.append("modules.bin", seal(out))

    def _call(self, kind: str, name: str, **members: Any) -> Call:
        call = Call(self.w.seq + 1, kind, name, **members)
        given = {key: getattr(call, key) for key in members if key != "params"}
        if call.params:
            given |= {"params": self.w.piece(call.params), "params_size": len(call.params)}
        assert self.w.event(kind, name, **given) == call.seq
        self.calls[call.seq] = call
        return call

    def _place(self) -> dict[str, Any]:
        """Where a call is made, and what may be odd of it."""
        chance = self.r.random()
        return {
            "context": self.r.randrange(self.contexts),
            "stream": self.r.choice((LEGACY, PER_THREAD, 16, 17, 17)),
            "thread": self.r.choice((1, 2)),
            "result": 700 if chance < 0.04 else 0,
            "flags": CAPTURING if 0.04 <= chance < 0.08 else 0,
        }

    def _living(self) -> list[Region]:
        return [region for region in self.regions if region.death is None]

    def _birth(self) -> None:
        free = [
            n for n in range(SLOTS) if not any(r.holds(FIRST + n * SLOT) for r in self._living())
        ]
        if not free:
            return
        base = FIRST + self.r.choice(free) * SLOT
        size = self.r.choice((8, 200, SLOT // 2, SLOT))
        kind = self.r.choice(("device",) * 6 + ("arena", "managed", "ipc", "host"))
        context, number = self.r.randrange(self.contexts), len(self.regions)
        self.w.born(number, bytes(size), kind, captured=kind != "host", context=context, base=base)
        call = Call(self.w.seq, "alloc", CALLS[0])
        self.calls[call.seq] = call
        born = len(self.epochs)
        self.regions.append(Region(number, base, size, kind, context, call.seq, born))

    def _death(self) -> None:
        if len(self._living()) > 1:
            region = self.r.choice(self._living())
            name = self.r.choice(("cuMemFree_v2", "cuMemFreeAsync"))
            self.w.died(region.number, name)
            region.death, region.died = self.w.seq, len(self.epochs)
            self.calls[self.w.seq] = Call(self.w.seq, "free", name)

    def _address(self) -> int:
        """Of a region that lives, sometimes of one that lived, sometimes of nothing."""
        chance = self.r.random()
        if chance < 0.04:
            return self.r.choice((0, 0x1234, FIRST + SLOTS * SLOT + 8))
        of = self._living() if chance < 0.95 else self.regions
        region = self.r.choice(of or self.regions)
        return region.base + self.r.choice((0, 0, 8, 64, region.size // 2, region.size - 1))

    def _room(self, address: int) -> int:
        """Bytes from an address to the end of its region."""
        of = (r for r in reversed(self.regions) if r.holds(address))
        return next((r.base + r.size - address for r in of), 8)

    def _launch(self, **members: Any) -> Call:
        function = self.r.choice((0, 0, 0, 0, 1, 2))
        words = [self._address() if self.r.random() < 0.7 else self.r.choice((0, 5)) for _ in "abc"]
        raw = struct.pack("<3QI", *words, 7)[: SIZES[function][0]]
        chance = self.r.random()
        raw = raw[: 8 * self.r.randint(1, 2)] if chance < 0.1 else raw
        given = {"params": None if chance > 0.97 or not raw else raw, **self._place(), **members}
        given["flags"] |= COOPERATIVE if self.r.random() < 0.1 else 0
        number = self.r.choice((layout.NO_ID, 55)) if self.r.random() < 0.02 else function
        return self._call(
            "launch",
            "cuLaunchKernel",
            id=number,
            shared=self.r.choice((0, 48)),
            grid=(self.r.randint(1, 4), 2, 1),
            block=(32, self.r.randint(1, 2), 1),
            **given,
        )

    def _copy(self) -> None:
        place, chance = self._place(), self.r.random()
        dst = self._address()
        size = min(self.r.choice((0, 1, 8, 8, 64, 200)), self._room(dst))
        if chance < 0.5:
            name, src = "cuMemcpyHtoD_v2", 0x5555000
        elif chance < 0.85:
            name, src = "cuMemcpyDtoD_v2", self._address()
        else:
            name, src, dst = "cuMemcpyDtoH_v2", dst, 0x5555000
            place["flags"] |= HOST_DST
        place["flags"] |= SYNC_COPY if self.r.random() < 0.3 else 0
        members: dict[str, Any] = {}
        if self.r.random() < 0.25:
            name, rows = "cuMemcpy2D_v2", self.r.randint(1, 3)
            pitches = tuple(size + self.r.choice((0, 24, 100)) for _ in range(2))
            rows = rows if pitches[0] * rows <= self._room(dst) else 1
            if self.r.random() < 0.9:
                members = {"grid": (size, rows, 1), "block": (*pitches, 0)}
            size *= rows
        self._call("copy", name, dst=dst, src=src, bytes=size, **members, **place)

    def _set(self) -> None:
        dst, item = self._address(), self.r.choice((1, 2, 4, 4))
        width = min(self.r.randint(0, 9), self._room(dst) // item)
        members: dict[str, Any] = {"bytes": item * width}
        rows, pitch = self.r.randint(1, 3), item * width + self.r.choice((0, 4, 40))
        if self.r.random() < 0.3 and pitch * rows <= self._room(dst):
            members = {"bytes": pitch * rows, "grid": (width, rows, 0)}
        item = 0 if self.r.random() < 0.03 else item
        value = self.r.randrange(1 << 8 * item)
        self._call(
            "set",
            "cuMemcpyDtoD_v2",
            dst=dst,
            src=value,
            shared=item,
            **members,
            **self._place(),
        )

    def _mem_op(self) -> None:
        place, chance = self._place(), self.r.random()
        at = self.r.choice((0x6000, self._address() & ~7))
        if chance < 0.45:
            value = self.r.randrange(1 << 32)
            self._call("mem-op", "cuStreamWriteValue32_v2", dst=at, src=value, shared=4, **place)
        elif chance < 0.95:
            self._call("mem-op", "cuStreamWaitValue32_v2", src=at, **place)
        else:
            self._call("mem-op", "cuStreamBatchMemOp_v2", **place)

    def _other(self) -> None:
        place, handle = self._place(), self.r.choice((0x70, 0x71))
        what = self.r.choice(("event-record", "event-wait", "event-wait", "sync", "sync", "sync"))
        members: dict[str, Any] = {"src": handle}
        if what == "sync":
            members = self.r.choice(({"src": handle}, {}, {}))
            if not members and self.r.random() < 0.4:
                place["stream"] = 0
        if self.r.random() < 0.1:
            what, members = "launch-host", {}
        elif self.r.random() < 0.04:
            what, members = "graph-launch", {"id": 3}
        self._call(what, "cuCtxSynchronize", **members, **place)

    def _something(self) -> None:
        what = self.r.random()
        if what < 0.08:
            self._birth()
        elif what < 0.14:
            self._death()
        elif what < 0.42:
            self._launch()
        elif what < 0.62:
            self._copy()
        elif what < 0.7:
            self._set()
        elif what < 0.74:
            self._mem_op()
        elif what < 0.86:
            self._other()
        elif what < 0.92 and self.keeps:
            self._keep()
        else:
            self._cut()

    def _cut(self, trigger: str = "", context: int | None = None, seq: int | None = None) -> None:
        context = self.r.randrange(self.contexts) if context is None else context
        mine = [region for region in self._living() if region.context == context]
        flags: list[str] = []
        if self.r.random() < 0.25:
            flags = [self.r.choice(("refused", "dropped", "loose", "touched", "touched", "full"))]
        read, cut = None, 0
        launches = [call.seq for call in self.calls.values() if call.kind == "launch"]
        if not trigger:
            trigger = "sync"
            chance = self.r.random()
            if chance < 0.05:
                trigger, flags = "graph-node", ["touched"]
                seq = self._call("graph-launch", "cuLaunchKernel", id=9, context=context).seq
            elif chance < 0.15 and launches and launches[-1] == self.w.seq:
                trigger, seq = "launch", launches[-1]
            elif chance < 0.3:
                least = max([1, *(e.whole for e in self.epochs if e.context == context)])
                cut = max(least, self.w.seq - self.r.randint(0, 2))
        if "touched" in flags:
            read = [region.number for region in mine if self.r.random() < 0.6]
        number = self.w.epoch(trigger, *flags, context=context, only=read, seq=seq, cut=cut)
        if seq is None:
            self.calls[self.w.seq] = Call(self.w.seq, "epoch", "cuCtxSynchronize")
        of = self.w.seq if seq is None else seq
        whole = cut or of - (trigger in ("kernel-before", "graph-node"))
        self.epochs.append(Epoch(number, context, tuple(flags), trigger, whole, read))

    def _keep(self) -> None:
        """A launch that is recorded to be run again."""
        context = self.r.randrange(self.contexts)
        self._cut("kernel-before", context, self.w.seq + 1)
        call = self._launch(context=context, result=0, flags=0)
        self._cut("kernel-after", context, call.seq)
        after = len(self.epochs) - 1
        kept = Kept(after - 1, after)
        chance = self.r.random()
        if chance < 0.08:
            kept.before = 1000
        elif chance < 0.16:
            kept.after = layout.NO_ID
        elif chance < 0.2:
            kept.before = self.r.randrange(after)
        if self.r.random() < 0.3:
            kept.views = [self.r.choice(("texture", "surface", "reference"))]
        views = b"".join(
            record(layout.VIEW, kind=layout.VIEW_KINDS.index(kind), object=4).tobytes()
            for kind in kept.views
        )
        members: dict[str, Any] = {"before": kept.before, "after": kept.after, "function": call.id}
        members |= {"views": self.w.piece(views), "view_count": len(kept.views)} if views else {}
        out = record(layout.LAUNCH, seq=call.seq, **members)
        self.w.append("launches.bin", seal(out))
        self.kept[call.seq] = kept

    # ---- what a plan must be ----

    def at(self, address: int, seq: int) -> Region | None:
        found = [r for r in self.regions if r.lives(seq) and r.holds(address)]
        assert len(found) < 2
        return found[0] if found else None

    def good(self, context: int) -> list[Epoch]:
        return [e for e in self.epochs if e.context == context and e.good]

    def plan(self, seq: int) -> dict[str, Any]:
        call = self.calls.get(seq)
        if call is None:
            raise RefusedError(f"no call {seq} in process 0")
        if call.kind == "graph-launch":
            raise RefusedError(f"{call.said} launches a graph")
        if call.kind != "launch":
            raise RefusedError(f"{call.said} is not a launch of a kernel")
        if call.result:
            raise RefusedError("was refused by the driver (error 700)")
        if call.flags & CAPTURING:
            raise RefusedError("was recorded into a graph, not executed")
        before, after = self._bounds(call)
        if before is None:
            advice = " without the --kernel or --max-per-kernel that left it out"
            raise RefusedError("record with --replayable" + advice * self.keeps)
        made = self.span(before, call.seq, None)
        if not made["steps"] or made["steps"][-1][1] != seq:
            raise RefusedError("lacks an epoch before or after it")
        self._check_reads(before, made, call)
        others = 0
        if after is not None:
            kinds = ("launch", "graph-launch", "copy", "set", "mem-op")
            others = sum(
                c.kind in kinds
                and c.done
                and c.context == call.context
                and not c.flags & HOST_DST
                and "Wait" not in c.name
                for c in self.calls.values()
                if seq < c.seq <= after.whole
            )
        why = "no epoch has its result"
        if after is not None:
            many = "other call" if others == 1 else "other calls"
            why = f"{others} {many} came between it and epoch {after.number}" if others else ""
        made["unchecked"], made["before"] = why, before.number
        made["after"] = None if why or after is None else after.number
        made["notes"] = self._notes(made, [before, *([] if why or after is None else [after])])
        return made

    def _bounds(self, call: Call) -> tuple[Epoch | None, Epoch | None]:
        kept = self.kept.get(call.seq)
        if kept is None:
            good = self.good(call.context)
            earlier = [e for e in good if e.whole < call.seq]
            later = [e for e in good if e.whole >= call.seq]
            return (earlier or [None])[-1], (later or [None])[0]  # type: ignore[list-item]
        for kind in kept.views:
            unknown = call.id not in IMAGES
            if unknown or (call.id == 2 and kind != "surface"):
                raise RefusedError(
                    "may use texture or surface" if kind == "reference" else f"{kind} obj"
                )
        if kept.before >= len(self.epochs):
            raise RefusedError("did not reach the disk in time")
        before = self.epochs[kept.before]
        if not before.good:
            why = next(
                (BAD[f] for f in ("refused", "dropped", "loose") if f in before.flags), "has no"
            )
            raise RefusedError(f"epoch {before.number} before it {why}")
        after = self.epochs[kept.after] if kept.after < len(self.epochs) else None
        return before, after if after is not None and after.good else None

    def _check_reads(self, before: Epoch, made: dict[str, Any], call: Call) -> None:
        """Of memory that others write to nobody knows what it held later than in the epoch."""
        if call.seq in self.kept or (
            before.trigger == "kernel-before" and before.whole == call.seq - 1
        ):
            return
        for kind, seq, *what in made["steps"]:
            words = self.calls[seq].words if kind == "Launch" else ()
            words = (what[1],) if kind == "Move" else words
            for region in (self.at(word, seq) for word in words):
                if region is not None and region.kind in ("managed", "ipc"):
                    who = {"managed": "the host", "ipc": "another process"}[region.kind]
                    raise RefusedError(f"region {region.number}, to which {who} may have written")

    def span(self, first: Epoch, until: int, last: Epoch | None) -> dict[str, Any]:
        if self.silent or self.lost or not self.params:
            raise RefusedError(self._unknown())
        context = first.context
        steps: list[tuple[Any, ...]] = []
        order = Order(serial=last is None)
        left_out: dict[str, int] = {}
        lived = [r for r in self.regions if r.lives(first.whole + 1)]
        known = {r.number for r in lived}
        for seq in range(first.whole + 1, until + 2):
            for region in self.regions:
                if region.birth >= seq or region.birth <= first.whole or region.number in known:
                    continue
                end = region.base + region.size
                again = any(other.reached(region.base, end) for other in lived)
                lived.append(region)
                known.add(region.number)
                if region.context == context and (again or region.kind == "arena"):
                    order.barrier()
                if region.context == context and region.kind == "arena":
                    steps.append(("Fill", region.birth, region.base, region.size, 0, 1, 1, 0))
                    order.submit(Call(region.birth, "set", "", stream=LEGACY))
            call = self.calls.get(seq)
            if call is None or not call.done or seq > until:
                continue
            if call.context != context:
                there = self.at(call.dst, seq)
                if call.kind in ("copy", "set") and self._ours(there, context):
                    raise RefusedError(
                        f"{call.said} can't be replayed: it writes to memory of this"
                    )
                continue
            self._submit(call, context, last, steps, order, left_out)
        rows = [r.number for r in lived if r.context == context]
        out = [
            f"{n} {what}{'s' * (n > 1)}".replace("wait for a values", "waits for values")
            for what, n in left_out.items()
        ]
        return {"steps": steps, "order": order.before, "rows": sorted(rows), "left_out": out}

    def _unknown(self) -> str:
        if self.silent:
            return "recorded with --no-events"
        if not self.params:
            return "recorded without --params"
        return "1 call were lost" if self.lost == 1 else f"{self.lost} calls were lost"

    @staticmethod
    def _ours(region: Region | None, context: int) -> bool:
        return region is not None and region.context == context and region.kind != "host"

    def _submit(
        self,
        call: Call,
        context: int,
        last: Epoch | None,
        steps: list[tuple[Any, ...]],
        order: Order,
        left_out: dict[str, int],
    ) -> None:
        """What a call does to memory, and to the order."""

        def refuse(why: str) -> None:
            raise RefusedError(f"{call.said} can't be replayed: {why}")

        def add(kind: str, *what: Any) -> None:
            steps.append((kind, call.seq, *what))
            order.submit(call)

        ours = self._ours(self.at(call.dst, call.seq), context)
        if call.kind == "launch":
            if call.id not in NAMES:
                refuse("its kernel is unknown")
            if SIZES[call.id][1] and not call.params:
                refuse(f"the parameters of {NAMES[call.id]} were not recorded")
            add(
                "Launch",
                call.id,
                call.grid,
                call.block,
                (0, 0, 0),
                call.shared,
                bool(call.flags & COOPERATIVE),
                call.params or b"",
                (),
                (),
            )
        elif call.kind == "graph-launch":
            refuse("the graph's nodes are unknown")
        elif call.kind == "copy":
            if not call.flags & HOST_DST:
                if "2D" in call.name and call.dst and call.src and not call.grid[1]:
                    refuse("the pitch of the rows")
                if not call.dst or not call.src:
                    refuse("it copies from or to an array")
                if ours and call.bytes:
                    self._copied(call, context, last, add)
            if call.flags & SYNC_COPY:
                order.all |= order.tail(call)
        elif call.kind == "set":
            if not call.shared:
                refuse("its value was not recorded")
            width, rows, _ = call.grid
            if ours and call.bytes and rows and width:
                size, pitch = width * call.shared, call.bytes // rows
                add("Fill", call.dst, size, call.src, call.shared, rows, pitch)
            elif ours and call.bytes and not rows:
                add("Fill", call.dst, call.bytes, call.src, call.shared, 1, 0)
        elif call.kind == "mem-op":
            if "Batch" in call.name:
                refuse("the values that it writes are unknown")
            if "Write" in call.name:
                if ours:
                    add("Fill", call.dst, 4, call.src, 4, 1, 0)
                order.written[call.dst] = order.tail(call)
            elif order.written.get(call.src):
                order.follow(call, order.tail(call) | order.written[call.src])
            else:
                left_out["wait for a value"] = left_out.get("wait for a value", 0) + 1
        elif call.kind == "launch-host":
            left_out["host function"] = left_out.get("host function", 0) + 1
        elif call.kind == "event-record":
            order.recorded[call.src] = order.tail(call)
        elif call.kind == "event-wait" and order.recorded.get(call.src):
            order.follow(call, order.tail(call) | order.recorded[call.src])
        elif call.kind == "sync" and call.src:
            order.all |= order.recorded.get(call.src, NOBODY)
        elif call.kind == "sync" and call.stream:
            order.all |= order.tail(call)
        elif call.kind in ("sync", "free") and "Async" not in call.name:
            order.barrier()

    def _copied(self, call: Call, context: int, last: Epoch | None, add: Any) -> None:
        size = call.bytes // call.grid[1] if call.rows else call.bytes
        rows = (call.grid[1], 1, call.block[0], call.block[1], 0, 0) if call.rows else None
        if self._ours(self.at(call.src, call.seq), context):
            add("Move", call.dst, call.src, size, rows)
            return
        region = self.at(call.dst, call.seq)
        assert region is not None
        epoch, doubt = self._uploaded(call, region, last)
        add("Upload", call.dst, size, region.number, call.dst - region.base, epoch, doubt, rows)

    def _uploaded(self, call: Call, region: Region, last: Epoch | None) -> tuple[int, str]:
        """The epoch that has what a copy from the host brought, and why that is not sure."""
        later = [
            e
            for e in self.good(region.context)
            if e.whole >= call.seq
            and (last is None or e.number <= last.number)
            and e.number >= region.born
            and (e.read is None or region.number in e.read)
        ]
        if not later or (region.died is not None and later[0].number >= region.died):
            raise RefusedError(
                f"{call.said} can't be replayed: no epoch has the bytes that it copied"
            )
        epoch, doubt = later[0], ""
        for other in self.calls.values():
            if not call.seq < other.seq <= epoch.whole or not other.done:
                continue
            what = other.name
            if other.kind == "launch" and other.id != layout.NO_ID:
                what = NAMES.get(other.id, f"function {other.id}")
            if other.kind in ("copy", "set", "mem-op") and not other.flags & HOST_DST:
                if not region.holds(other.dst) or "Wait" in other.name:
                    continue
                end = other.dst + max(other.reach, 0)
                if other.dst < call.dst + call.reach and call.dst < end:
                    raise RefusedError(f"{other.said} wrote there before epoch {epoch.number}")
                if "2D" in other.name and not other.grid[1]:
                    doubt = doubt or f"{what} (call {other.seq}) writes there"
            elif other.kind == "launch" and other.params:
                if any(region.holds(word) for word in other.words):
                    doubt = doubt or f"{what} (call {other.seq}) is given a pointer to it"
            elif other.kind in ("launch", "graph-launch"):
                shared = region.kind in ("managed", "ipc")
                if shared or other.context == region.context:
                    doubt = doubt or f"{what} (call {other.seq}) may write there"
        return epoch.number, doubt

    def _notes(self, made: dict[str, Any], epochs: list[Epoch]) -> list[str]:
        *prepare, launch = made["steps"]
        out, count = [], sum(step[0] == "Launch" for step in prepare)
        if count:
            many = f"{count} launch{'es' * (count > 1)}"
            out.append(f"its input comes from epoch {made['before']} and {many} after it")
        function, params = launch[2], launch[8]
        wanted = SIZES[function][0]
        if len(params) < wanted:
            out.append(
                f"the program gave {len(params)} of {wanted} bytes of parameters: the values "
                "of the others are unknown"
            )
        if any(epoch.read is not None for epoch in epochs):
            out.append(PARTIAL)
        for kind, _, *what in prepare:
            if kind == "Upload" and what[5]:
                out.append(
                    f"region {what[2]}: a copy from the host is taken from epoch {what[4]}, "
                    f"though {what[5]}"
                )
        return out + [f"{what}: left out" for what in made["left_out"]]


def found_steps(made: Span) -> tuple[list[tuple[Any, ...]], list[frozenset[int]]]:
    """Returns the steps with effects, and for each the steps before it."""
    numbers: dict[int, int] = {}
    steps: list[tuple[Any, ...]] = []
    before: list[frozenset[int]] = []  # of all steps, by number
    out = []
    for at, step in enumerate(made.steps):
        assert all(0 <= other < at for other in step.after)
        reached = frozenset[int]().union(*(before[other] for other in step.after))
        reached |= {numbers[other] for other in step.after if other in numbers}
        before.append(reached)
        if step.what is not None:
            numbers[at] = len(steps)
            steps.append((type(step.what).__name__, step.seq, *astuple(step.what)))
            out.append(reached)
    return steps, out


def compare_span(got: Span, expected: dict[str, Any]) -> None:
    steps, before = found_steps(got)
    assert steps == expected["steps"]
    assert before == expected["order"]
    assert sorted(got.process.regions.id[got.regions].tolist()) == expected["rows"]
    assert got.left_out == expected["left_out"]


def refusal(ask: Callable[[], object]) -> str | None:
    """Why something can't be done again; None where it can."""
    try:
        ask()
    except (Error, RefusedError) as e:
        return str(e)
    return None


def check_plan(program: Program, process: Process, seq: int) -> bool:
    """Gives whether there is one."""
    why, said = refusal(lambda: program.plan(seq)), refusal(lambda: plan(process, seq))
    assert (why is None) == (said is None), f"{said}, not {why}"
    if why is not None:
        assert why in (said or "")
        return False
    got, expected = plan(process, seq), program.plan(seq)
    compare_span(got.span, expected)
    assert (got.before, got.after) == (expected["before"], expected["after"])
    assert got.unchecked == expected["unchecked"]
    assert got.notes == expected["notes"]
    assert (got.seq, got.kernel) == (seq, NAMES[program.calls[seq].id])
    return True


def check_span(program: Program, process: Process, first: Epoch, last: Epoch) -> None:
    bounds = first.number, last.number
    why = refusal(lambda: program.span(first, last.whole, last))
    said = refusal(lambda: span(process, *bounds))
    assert (why is None) == (said is None), f"{said}, not {why}"
    if why is not None:
        assert why in (said or "")
    else:
        compare_span(span(process, *bounds), program.span(first, last.whole, last))


def check_choice(program: Program, process: Process, pattern: str | None) -> None:
    """Which launches are meant by the name of a kernel, and why none is."""
    named = [number for number, name in NAMES.items() if re.search(pattern or "", name)]
    executed = [c for c in program.calls.values() if c.kind == "launch" and c.done]
    wanted = [c.seq for c in executed if c.id in named or pattern is None]
    keeps = [seq for seq in wanted if seq in program.kept or not program.kept]
    assert launches(process, pattern)["seq"].tolist() == wanted
    assert choice(process, pattern) == (keeps, len(wanted) - len(keeps))
    if not wanted:
        of_graphs = sum(c.kind == "graph-launch" and c.done for c in program.calls.values())
        said = "launches of graphs, but no" if of_graphs > 1 else "launch of a graph, but no"
        said = f"{of_graphs} {said}" if of_graphs else "no launch was recorded"
        said = f"no launch of a kernel whose name has {pattern!r}" if executed and pattern else said
        assert ("recorded with --no-events" if program.silent else said) in none_of(
            process, pattern
        )


def check(path: Path, seed: int) -> int:
    """Gives how many launches can be done again."""
    program = Program(path, seed)
    process = tt.open(path).process(0)
    planned = 0
    for pattern in (None, "add", "^d", "tick|draw"):
        check_choice(program, process, pattern)
    for seq in (*program.calls, 0, program.w.seq + 1):
        try:
            planned += check_plan(program, process, seq)
        except Exception as e:
            e.args = (f"seed {seed}, call {seq}: {e}",)
            raise
    for context in range(program.contexts):
        good = program.good(context)
        for i, first in enumerate(good):
            for last in good[i + 1 : i + 4 : 2]:
                try:
                    check_span(program, process, first, last)
                except Exception as e:
                    e.args = (f"seed {seed}, epochs {first.number} to {last.number}: {e}",)
                    raise
    return planned


def test_plans_equal_a_model(tmp_path: Path) -> None:
    assert sum(check(tmp_path / str(seed), seed) for seed in FEW) > len(FEW)


@pytest.mark.long
def test_plans_of_many_runs_equal_a_model(tmp_path: Path) -> None:
    for seed in MANY:
        check(tmp_path / str(seed), seed)
