"""Writes Perfetto's format: the message Trace of protos/perfetto/trace/perfetto_trace.proto.

Traces have TracePacket with TrackDescriptor, TrackEvent and InternedData. Repeated texts are
interned, in one sequence of packets. Numbers in templates are varints of full length, which
decoders accept, so the size of every packet is known, and columns are filled in as arrays.

The columns are begin and end of either span, the number of the arrow, then NUMBERS.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

import numpy as np

from ttanalyze.format.layout import Array
from ttanalyze.verbs.trace.rows import (
    ADDRESSES,
    COUNTER,
    MARK,
    NUMBERS,
    VALUE,
    Group,
    Lane,
    Part,
    Rows,
    Template,
    filled,
)

FLOW, FIRST = 4, 5  # columns: the arrow's number, the first of NUMBERS
WIDTH = 10  # bytes of a varint in a column
FIXED = 8  # and of an arrow's number
SEQUENCE = 1

PACKET = 1  # of Trace; of TracePacket:
TIMESTAMP, SEQUENCE_ID, TRACK_EVENT, INTERNED, FLAGS, DESCRIPTOR = 8, 10, 11, 12, 13, 60
CLEARED, NEEDED = 1, 2  # FLAGS: interned texts are cleared; are used
UUID, TRACK_NAME, PROCESS, THREAD, PARENT, COUNTS, ORDERING, RANK = 1, 2, 3, 4, 5, 8, 11, 12
EXPLICIT = 3  # ORDERING: by RANK
PID, PROCESS_NAME, LABELS, SORT_INDEX = 1, 6, 8, 3  # of ProcessDescriptor
TID, THREAD_NAME = 2, 5  # of ThreadDescriptor, which has PID and SORT_INDEX as well
UNIT, BYTES = 3, 3  # of CounterDescriptor
CATEGORY, ARG, TYPE, NAME, TRACK, AMOUNT, OUT, IN = 3, 4, 9, 10, 11, 30, 47, 48  # of TrackEvent
BEGIN, END, INSTANT, COUNT = 1, 2, 3, 4  # TYPE
ARG_NAME, ARG_BOOL, ARG_NUMBER, ARG_POINTER, ARG_TEXT, ARG_ITEMS = 1, 2, 3, 7, 17, 12
CATEGORIES, NAMES, ARG_NAMES, TEXTS = 1, 2, 3, 29  # of InternedData: id 1, text 2
Kind = int


class _Message(Template):
    """A message or a part of one."""

    def raw(self, data: bytes | bytearray) -> None:
        self.data.extend(data)

    def number(self, tag: int, value: int) -> None:
        self.raw(_varint(tag << 3) + _varint(value))

    def string(self, tag: int, value: str) -> None:
        data = value.encode()
        self.raw(_varint(tag << 3 | 2) + _varint(len(data)) + data)

    def message(self, tag: int, value: _Message) -> None:
        self.raw(_varint(tag << 3 | 2) + _varint(len(value.data)))
        self.add(value)

    def add(self, value: _Message) -> None:
        """Adds the contents of another."""
        self.columns.extend((len(self.data) + at, column) for at, column in value.columns)
        self.raw(value.data)

    def column(self, tag: int, column: int) -> None:
        fixed = column == FLOW
        self.raw(_varint(tag << 3 | fixed))  # wire type 1 is a number of eight bytes
        self.columns.append((len(self.data), column))
        self.raw(bytes(FIXED if fixed else WIDTH))


class PerfettoWriter:
    """Writes packets."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._ids: dict[tuple[Kind, str], int] = {}
        self._new: list[tuple[Kind, str, int]] = []  # interned, and not yet written
        self._packet(_Message(), CLEARED)

    def group(self, group: Group) -> None:
        process = _Message()
        process.number(PID, group.pid)
        process.string(PROCESS_NAME, group.name)
        process.string(LABELS, group.labels)
        process.number(SORT_INDEX, group.rank)
        track = _Message()
        track.number(UUID, group.number)
        track.message(PROCESS, process)
        track.number(ORDERING, EXPLICIT)
        self._describe(track)

    def lane(self, lane: Lane) -> None:
        track = _Message()
        track.number(UUID, lane.number)
        track.number(PARENT, lane.group.number)
        track.number(RANK, lane.rank)
        if lane.thread is None:
            track.string(TRACK_NAME, lane.name)
        else:
            thread = _Message()
            thread.number(PID, lane.group.pid)
            thread.number(TID, lane.thread)
            thread.string(THREAD_NAME, lane.name)
            thread.number(SORT_INDEX, lane.rank)
            track.message(THREAD, thread)
        if lane.counter:
            counter = _Message()
            counter.number(UNIT, BYTES)
            track.message(COUNTS, counter)
        self._describe(track)

    def template(self, parts: Sequence[Part]) -> _Message:
        out = _Message()
        for part in parts:
            for packet in self._packets(part):
                out.add(packet)
        self._write_new()
        return out

    def rows(self, templates: Sequence[Template], rows: Rows) -> None:
        if not templates:
            return
        columns: list[Array] = []
        for begins, ends in rows.spans:
            again = columns and begins is rows.spans[0][0] and ends is rows.spans[0][1]
            columns += columns if again else [_varints(begins), _varints(ends)]
        columns.append(rows.flows.astype("<u8").view("u1").reshape(-1, FIXED))
        columns += [_varints(column) for column in rows.numbers]
        for data in filled(templates, columns):
            self._file.write(data.tobytes())

    def end(self) -> None:
        pass

    # ---- packets ----

    def _packets(self, part: Part) -> Iterator[_Message]:
        begin, end = 2 * part.span, 2 * part.span + 1
        event = _Message()
        event.number(TRACK, part.lane.number)
        if part.kind == COUNTER:
            event.number(TYPE, COUNT)
            event.column(AMOUNT, FIRST + VALUE)
            yield self._event(begin, event)
            return
        event.number(TYPE, INSTANT if part.kind == MARK else BEGIN)
        event.number(NAME, self._interned(NAMES, part.name))
        event.number(CATEGORY, self._interned(CATEGORIES, part.category))
        if part.flow:
            event.column(OUT if part.flow == "out" else IN, FLOW)
        for name, value in part.args.items():
            event.message(ARG, self._arg(name, value))
        for name in part.numbers:
            arg = _Message()
            arg.number(ARG_NAME, self._interned(ARG_NAMES, name))
            kind = ARG_POINTER if name in ADDRESSES else ARG_NUMBER
            arg.column(kind, FIRST + NUMBERS.index(name))
            event.message(ARG, arg)
        yield self._event(begin, event)
        if part.kind != MARK:
            closing = _Message()
            closing.number(TRACK, part.lane.number)
            closing.number(TYPE, END)
            yield self._event(end, closing)

    def _arg(self, name: str, value: Any) -> _Message:
        arg = _Message()
        if name:
            arg.number(ARG_NAME, self._interned(ARG_NAMES, name))
        if isinstance(value, bool):
            arg.number(ARG_BOOL, value)
        elif isinstance(value, int):
            arg.number(ARG_NUMBER, value)
        elif isinstance(value, str):
            arg.number(ARG_TEXT, self._interned(TEXTS, value))
        else:
            for item in value:
                arg.message(ARG_ITEMS, self._arg("", item))
        return arg

    def _event(self, time: int, event: _Message) -> _Message:
        packet = _Message()
        packet.column(TIMESTAMP, time)
        packet.message(TRACK_EVENT, event)
        return self._whole(packet, NEEDED)

    def _interned(self, kind: Kind, text: str) -> int:
        if (kind, text) not in self._ids:
            self._ids[kind, text] = len(self._ids) + 1
            self._new.append((kind, text, len(self._ids)))
        return self._ids[kind, text]

    def _write_new(self) -> None:
        if not self._new:
            return
        texts = _Message()
        for kind, text, number in self._new:
            entry = _Message()
            entry.number(1, number)
            entry.string(2, text)
            texts.message(kind, entry)
        self._new.clear()
        packet = _Message()
        packet.message(INTERNED, texts)
        self._packet(packet, NEEDED)

    def _describe(self, track: _Message) -> None:
        packet = _Message()
        packet.message(DESCRIPTOR, track)
        self._packet(packet, 0)

    def _packet(self, packet: _Message, flags: int) -> None:
        """Writes a packet without columns."""
        self._file.write(self._whole(packet, flags).data)

    @staticmethod
    def _whole(packet: _Message, flags: int) -> _Message:
        packet.number(SEQUENCE_ID, SEQUENCE)
        if flags:
            packet.number(FLAGS, flags)
        out = _Message()
        out.message(PACKET, packet)
        return out


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _varints(values: Array) -> Array:
    """Returns non-negative integers as varints of WIDTH bytes, a row each."""
    rest = values.astype("u8")
    out = np.full((len(rest), WIDTH), 0x80, "u1")
    if rest.any():
        for i in range(WIDTH):
            out[:, i] |= (rest & np.uint64(0x7F)).astype("u1")
            rest >>= np.uint64(7)
    out[:, -1] &= 0x7F
    return out
