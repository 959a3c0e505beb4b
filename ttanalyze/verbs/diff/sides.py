"""The two sides of a comparison: a recorded process, or a process of a manifest.

A manifest has no calls, contexts or contents; these are empty or zero.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from ttanalyze.format import event_kinds, layout, statuses
from ttanalyze.format.epoch_coverage import INSIDE
from ttanalyze.format.event_kinds import KIND
from ttanalyze.format.expected import ExpectedProcess
from ttanalyze.format.layout import Array
from ttanalyze.format.process import Process
from ttanalyze.format.unread import Unread, find_unread
from ttanalyze.util import libraries

FACTOR = np.uint64(0x9E3779B97F4A7C15)
CAPTURING = layout.constant("TT_EVENTF_CAPTURING")
# Of an event's flags, those that are the program's doing.
HOST_DST = layout.constant("TT_EVENTF_HOST_DST")
FLAGS = CAPTURING | HOST_DST | layout.constant("TT_EVENTF_HOST_SRC")
FLAGS |= layout.constant("TT_EVENTF_COOPERATIVE") | layout.constant("TT_EVENTF_PEER")


class Names:
    """Texts by number, with the same number for the same text on both sides. 0 is no text."""

    def __init__(self) -> None:
        self._texts: list[str | None] = [None]
        self._numbers: dict[str | None, int] = {None: 0}

    def number(self, text: str | None) -> int:
        if text not in self._numbers:
            self._numbers[text] = len(self._texts)
            self._texts.append(text)
        return self._numbers[text]

    def text(self, number: int) -> str | None:
        return self._texts[number]


def mixed(*columns: Array) -> Array:
    """Returns a uint64 for each row of columns, equal for equal rows."""
    with np.errstate(over="ignore"):
        out = np.zeros(len(columns[0]), "u8")
        for column in columns:
            out = (out ^ column.astype("u8")) * FACTOR
            out ^= out >> np.uint64(32)
        return out


@dataclass(frozen=True)
class Calls:
    """The driver calls of a program, by seq.

    same: equal for calls with equal arguments except addresses. alike: equal for the same kernel or
    the same kind of call. stack: equal for the same call stack, 0 if it was not recorded.
    """

    seq: Array
    time: Array
    context: Array
    stream: Array
    thread: Array
    same: Array
    alike: Array
    stack: Array
    work: Array  # bool: may change memory
    launch: Array  # bool: of a kernel or a graph

    def where(self, chosen: Array) -> Calls:
        return Calls(*(getattr(self, name)[chosen] for name in Calls.__dataclass_fields__))

    def of_context(self, context: int) -> Calls:
        """Returns the calls of one context, without a copy if it is the only one."""
        in_context = self.context == context
        return self if in_context.all() else self.where(in_context)


COLUMNS = {
    "seq": layout.EVENT["seq"],
    "time": layout.EVENT["time_ns"],
    **{name: layout.EVENT[name] for name in ("context", "stream", "thread")},
    **dict.fromkeys(("same", "alike"), np.dtype("u8")),
    "stack": np.dtype("u4"),
    **dict.fromkeys(("work", "launch"), np.dtype(bool)),
}


@dataclass(frozen=True)
class Regions:
    """Captured regions by id.

    kind, label: numbers of Names. born, died: as in a manifest; died is NO_EPOCH for a live region.
    seq: of the birth. thread: that allocated it, 0 if unknown.
    """

    id: Array
    kind: Array
    label: Array
    size: Array
    context: Array
    seq: Array
    thread: Array
    born: Array
    died: Array

    def where(self, chosen: Array) -> Regions:
        return Regions(*(getattr(self, name)[chosen] for name in Regions.__dataclass_fields__))


@dataclass
class Side:
    """One process of one side.

    process: None for a manifest. The arrays of epochs have one item per epoch. trigger, label:
    numbers of Names. flags: of a tt_epoch. seq: of the call that caused it. time: when it was cut.
    cut: the seq from which on calls come after it. exact: whether this is certain despite other
    threads. inside: whether it was cut inside the last call before that. digest_end: where its
    digests end. last_call: the seq of the last call that counts, if more may come.
    """

    index: int
    process: Process | None
    trigger: Array
    label: Array
    flags: Array
    context: Array
    seq: Array
    time: Array
    cut: Array
    exact: Array
    inside: Array
    digest_end: Array
    regions: Regions
    expected: ExpectedProcess | None = None
    last_call: int | None = None
    usable: Array = field(init=False)  # epochs that say what memory was

    def __post_init__(self) -> None:
        counts = np.diff(self.digest_end, prepend=np.uint64(0))
        lost = (self.flags & layout.DROPPED != 0) & (counts == 0)
        self.usable = ~lost & (self.flags & layout.REFUSED == 0)

    @property
    def skipped(self) -> int:
        """The number of epochs that were skipped to keep to --max-overhead."""
        if self.process is not None:
            return int(np.count_nonzero(self.process.epochs["skipped"]))
        assert self.expected is not None, "a side is a process or a manifest's"
        return sum("skipped" in flags for flags in self.expected.flags)

    @property
    def ended(self) -> bool:
        """Whether it was recorded up to its end, as far as is known."""
        return self.process is None or self.process.status in statuses.WITH_THE_PROCESS

    @functools.cached_property
    def unread(self) -> Unread:
        """The regions that its epochs left out."""
        of = self.regions
        regions = of.id, of.born, of.died, of.context
        return find_unread(
            self.flags, self.context, regions, lambda: self.digests(0, len(self.flags))[:2]
        )

    def digests(
        self, first: int, end: int, only: Array | None = None
    ) -> tuple[Array, Array, Array]:
        """Returns region, epoch and digest of the records of epochs first to end - 1, by epoch.

        only: ids of regions, ascending. The records of others may be left out.
        """
        if self.process is not None:
            records = self.process.digests(first, end)
            records, epochs = self._kept(records, "digests", first, end, only)
            return records["region"], epochs, records["digest"]
        assert self.expected is not None, "a side is a process or a manifest's"
        before = int(self.digest_end[first - 1]) if first else 0
        of = slice(before, int(self.digest_end[end - 1]) if end > first else before)
        return self.expected.region[of], self.expected.epoch[of], self.expected.digest[of]

    def _kept(
        self, records: Array, kind: str, first: int, end: int, only: Array | None
    ) -> tuple[Array, Array]:
        """Returns the records of some regions, all if these are most, and the epoch of each.

        kind: "digests" or "blocks". records: those of epochs first to end - 1.
        """
        assert self.process is not None, "a manifest has no records"
        if only is None or 2 * len(only) > len(self.regions.id):
            return records, self.process.epoch_of(kind, first, end)
        wanted = np.zeros(int(self.regions.id.max()) + 1, "u1")
        wanted[only] = 1
        at = np.empty(len(records), "u4")
        found = libraries.toolkit().tt_wanted_records(
            layout.pointer(records, "void"),
            records.itemsize,
            len(records),
            len(wanted),
            *map(layout.pointer, (wanted, at)),
        )
        at = at[:found]
        ends = np.cumsum(self.process.epochs[f"{kind}_count"][first:end].astype("i8"))
        return records[at], (first + np.searchsorted(ends, at, "right")).astype("u4")

    # ---- for one pass over all records, as `find_differing` makes it ----

    def records(self, first: int, end: int) -> Array:
        """Returns the records of epochs first to end - 1 of a process."""
        assert self.process is not None, "a manifest has no records"
        return self.process.digests(first, end)

    def places(self, regions: Array) -> Array:
        """Returns the row of each region by its id, -1 if it is not among these."""
        out = np.full(int(self.regions.id.max(initial=0)) + 1, -1, "i8")
        out[regions] = np.arange(len(regions))
        return out


def of_process(process: Process, names: Names) -> Side:
    """Returns the side of a recorded process. Its calls are read later."""
    epochs = process.epochs
    table = process.regions
    captured = np.flatnonzero(table.flags & layout.CAPTURED)
    birth = table.birth[captured]
    regions = Regions(
        id=table.id[captured],
        kind=_numbers(birth["kind"], lambda k: layout.REGION_KINDS[k], names),
        label=_numbers(table.label[captured], process.strings.get, names),
        size=birth["size"],
        context=birth["context"],
        seq=birth["seq"],
        thread=np.zeros(len(captured), "u4"),
        born=table.born[captured],
        died=table.died[captured],
    )
    return Side(
        index=process.index,
        process=process,
        trigger=_numbers(epochs["trigger"], lambda t: layout.TRIGGERS[t], names),
        label=_numbers(epochs["label"], process.strings.get, names),
        flags=epochs["flags"],
        context=epochs["context"],
        seq=epochs["seq"],
        time=epochs["time_ns"],
        cut=(process.coverage.some + 1).astype("u8"),
        exact=epochs["cut"] != 0,
        inside=epochs["trigger"] == INSIDE,
        digest_end=epochs["digests_first"] + epochs["digests_count"],
        regions=regions,
        last_call=_last_call(process) if process.status == "running" else None,
    )


def _last_call(process: Process) -> int:
    return max((int(events["seq"].max()) for events in process.event_pieces()), default=0)


def of_manifest(expected: ExpectedProcess, names: Names) -> Side:
    """Returns the side of a process of a manifest."""
    count = len(expected.triggers)
    table = expected.regions
    zeros = np.zeros(len(table.id), "u4")
    regions = Regions(
        id=table.id,
        kind=np.array([names.number(kind) for kind in table.kind.tolist()], "i8"),
        label=np.array([names.number(label) for label in table.label.tolist()], "i8"),
        size=table.size,
        context=zeros,
        seq=zeros.astype("u8"),
        thread=zeros,
        born=table.born,
        died=table.died,
    )
    numbers = np.arange(count, dtype="u4")
    return Side(
        index=expected.index,
        process=None,
        trigger=np.array([names.number(t) for t in expected.triggers], "i8"),
        label=np.array([names.number(t) for t in expected.labels], "i8"),
        flags=expected.flag_bits,
        context=np.zeros(count, "u4"),
        seq=np.zeros(count, "u8"),
        time=np.zeros(count, "u8"),
        cut=np.zeros(count, "u8"),
        exact=np.zeros(count, bool),
        inside=np.zeros(count, bool),
        digest_end=np.searchsorted(expected.epoch, numbers, "right").astype("u8"),
        regions=regions,
        expected=expected,
    )


def _numbers(values: Array, text_of: Callable[[int], str | None], names: Names) -> Array:
    """Returns the number of the text of each value."""
    different, which = np.unique(values, return_inverse=True)
    return np.array([names.number(text_of(v)) for v in different.tolist()], "i8")[which]


def _stack_text(process: Process, number: int) -> str | None:
    """Returns a text for a call stack, equal in all runs of the program.

    Code that is in no file has another address in each run, so this is left out.
    """
    first, last = np.searchsorted(process.frames["stack"], [number, number + 1])
    parts = []
    for frame in process.frames[first:last]:
        address = frame["address"] if frame["file"] != layout.NO_ID else 0
        texts = [process.strings.get(int(frame[name])) for name in ("function", "file")]
        parts.append(f"{frame['kind']} {frame['line']} {address} {texts}")
    return "\n".join(parts) or None


def read_calls(side: Side, names: Names) -> Calls | None:
    """Returns the successful calls of a process that are aligned, None if it has none.

    It also fills in the threads of the side's regions.
    """
    if side.process is None:
        return None
    kinds, births = np.zeros((2, len(layout.EVENT_KINDS)), bool)
    kinds[[*event_kinds.WORK, *event_kinds.WAIT]] = True
    births[[*event_kinds.BIRTH]] = True
    # At once at their full length: a list of parts and its sum would take twice the memory.
    most = side.process.count_events()
    columns = {name: np.empty(most, dtype) for name, dtype in COLUMNS.items()}
    recorded, count = False, 0
    stack_text = functools.cache(functools.partial(_stack_text, side.process))
    for records in side.process.event_pieces():
        recorded |= len(records) > 0
        if side.last_call is not None:
            records = layout.take(records, records["seq"] <= side.last_call)
        chosen = kinds[records["kind"]] & (records["result"] == 0)
        calls = _calls(side.process, records[chosen][: most - count], names, stack_text)
        for name, column in columns.items():
            column[count : count + len(calls.seq)] = getattr(calls, name)
        count += len(calls.seq)
        made = records[births[records["kind"]]]
        _, rows, at = np.intersect1d(side.regions.seq, made["seq"], return_indices=True)
        side.regions.thread[rows] = made["thread"][at]
    if not recorded:
        return None
    out = Calls(**{name: column[:count] for name, column in columns.items()})
    in_order = (out.seq[1:] >= out.seq[:-1]).all()
    return out if in_order else out.where(np.argsort(out.seq, kind="stable"))


def _calls(
    process: Process, events: Array, names: Names, stack_text: Callable[[int], str | None]
) -> Calls:
    kind, flags = events["kind"], events["flags"] & FLAGS
    launch = kind == KIND["launch"]
    kernel = _numbers(np.where(launch, events["id"], layout.NO_ID), process.kernel, names)
    sizes = [events[size][:, axis] for size in ("grid", "block", "cluster") for axis in range(3)]
    alike = mixed(kind, flags, kernel)
    return Calls(
        seq=events["seq"],
        time=events["time_ns"],
        **{name: events[name] for name in ("context", "stream", "thread")},
        same=mixed(alike, events["bytes"], events["shared"], *sizes),
        alike=alike,
        stack=_numbers(events["stack"], stack_text, names).astype("u4"),
        work=np.isin(kind, event_kinds.WRITES) & (flags & (CAPTURING | HOST_DST) == 0),
        launch=np.isin(kind, event_kinds.LAUNCH),
    )
