"""NVTX annotations of the program: ranges, marks, names of threads and streams.

The ranges of a thread are nested. The path of a range has the messages of all enclosing ranges,
such as train/step 3/forward. The path of a range that may end in another thread is its message.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from ttanalyze.format import event_kinds, layout
from ttanalyze.format.event_kinds import KIND
from ttanalyze.format.layout import NO_ID, Array
from ttanalyze.format.strings import Strings

MARK, PUSH, POP, START, END, NAME = (
    KIND[name] for name in ("mark", "range-push", "range-pop", "range-start", "range-end", "name")
)
THREAD, STREAM = layout.enum("named").values()  # what has a name
BYTES = 7  # the type of an extended payload
PAYLOADS = {1: "<u8", 2: "<i8", 3: "<f8", 4: "<u4", 5: "<i4", 6: "<f4"}

# A range, or a mark: rows of records where it begins and ends (-1: it never did), and the number
# of its path; level: how many ranges of its thread are around it.
RANGE = np.dtype([("begin", "i8"), ("end", "i8"), ("path", "u4"), ("level", "u4")])


def is_annotation(kinds: Array) -> Array:
    """Returns which kinds of events are annotations."""
    return np.isin(kinds, event_kinds.NVTX)


class Annotations:
    """The annotations of one process. records: tt_event records by seq."""

    def __init__(self, pieces: Iterable[Array], strings: Strings) -> None:
        """pieces: all tt_event records, in any order."""
        found = [np.empty(0, layout.EVENT)]
        for records in pieces:
            some = is_annotation(records["kind"])
            if some.any():
                found.append(records[some])
        together = np.concatenate(found)
        self.records = together[np.argsort(together["seq"], kind="stable")]
        self._strings = strings
        self._paths: list[tuple[int, int]] = []  # of each: the one around it, or NO_ID; message
        self._numbers: dict[tuple[int, int], int] = {}
        self._texts: dict[int, str] = {}

    # ---- names ----

    @functools.cached_property
    def threads(self) -> dict[int, str]:
        """The last name of each named thread."""
        return {int(r["src"]): name for r, name in self._names(THREAD)}

    @functools.cached_property
    def streams(self) -> dict[tuple[int, int], str]:
        """The last name of each named stream, by context and stream."""
        return {(int(r["context"]), int(r["stream"])): name for r, name in self._names(STREAM)}

    def _names(self, of: int) -> Iterator[tuple[Any, str]]:
        some = (self.records["kind"] == NAME) & (self.records["dst"] == of)
        for record in self.records[some]:
            name = self._strings.get(int(record["id"]))
            if name is not None:
                yield record, name

    # ---- ranges ----

    @functools.cached_property
    def ranges(self) -> Array:
        """RANGE records of ranges and marks, by begin."""
        return self._walked[0]

    def path(self, number: int) -> str | None:
        """Returns the text of a path, None for NO_ID."""
        if number == NO_ID:
            return None
        if number not in self._texts:
            around, message = self._paths[number]
            text = self._strings.get(message) or "?"
            outer = self.path(around)
            self._texts[number] = text if outer is None else f"{outer}/{text}"
        return self._texts[number]

    def messages(self, number: int) -> list[str]:
        """Returns the messages of a path, the innermost first."""
        found = []
        while number != NO_ID:
            number, message = self._paths[number]
            found.append(self._strings.get(message) or "?")
        return found

    def paths_at(self, threads: Array, seqs: Array) -> Array:
        """Returns the number of the path that was open in each thread right after a call, NO_ID if
        none.
        """
        states = self._walked[1]
        out = np.full(len(seqs), NO_ID, "u4")
        for thread in layout.distinct(threads).tolist() if states else ():
            known = states.get(thread)
            if known is not None:
                rows = np.flatnonzero(threads == thread)
                at = np.searchsorted(known[0], seqs[rows], "right")
                out[rows] = known[1][at]
        return out

    def range_of(self, event: Any) -> str | None:
        """Returns the path that was open in the thread of a call (a tt_event) right after it."""
        threads, seqs = np.array([event["thread"]]), np.array([event["seq"]])
        return self.path(int(self.paths_at(threads, seqs)[0]))

    @functools.cached_property
    def _walked(self) -> tuple[Array, dict[int, tuple[Array, Array]]]:
        """Returns the ranges, and for each thread the innermost path from one call to the next."""
        stacks: dict[int, _Stack] = {}
        started: dict[int, int] = {}  # ranges that may end anywhere
        made: list[list[int]] = []
        names = ("kind", "thread", "id", "dst", "src", "seq")
        columns = (self.records[name].tolist() for name in names)
        for row, (kind, thread, message, domain, number, seq) in enumerate(
            zip(*columns, strict=True)
        ):
            if kind in (PUSH, POP, MARK):
                stack = stacks.setdefault(thread, _Stack(self))
                if kind == MARK:
                    path = self._number(stack.path, message)
                    made.append([row, row, path, len(stack.open)])
                elif kind == PUSH:
                    stack.push(len(made), domain, message, seq)
                    made.append([row, -1, stack.path, len(stack.open) - 1])
                else:
                    ended = stack.pop(domain, seq)
                    if ended is not None:
                        made[ended][1] = row
            elif kind == START:
                started[number] = len(made)
                made.append([row, -1, self._number(NO_ID, message), 0])
            elif kind == END and number in started:
                made[started.pop(number)][1] = row
        states = {
            thread: (np.array(s.seqs, "u8"), np.array([NO_ID, *s.paths], "u4"))
            for thread, s in stacks.items()
        }
        return np.array([tuple(r) for r in made], RANGE), states

    def _number(self, around: int, message: int) -> int:
        key = (around, message)
        if key not in self._numbers:
            self._numbers[key] = len(self._paths)
            self._paths.append(key)
        return self._numbers[key]


class _Stack:
    """The open ranges of a thread. seqs, paths: the innermost path from each seq on."""

    def __init__(self, owner: Annotations) -> None:
        self._owner = owner
        self.open: list[tuple[int, int, int, int]] = []  # which, domain, message, path
        self.seqs: list[int] = []
        self.paths: list[int] = []

    @property
    def path(self) -> int:
        return self.open[-1][3] if self.open else NO_ID

    def _note(self, seq: int) -> None:
        self.seqs.append(seq)
        self.paths.append(self.path)

    def push(self, which: int, domain: int, message: int, seq: int) -> None:
        self.open.append((which, domain, message, self._owner._number(self.path, message)))
        self._note(seq)

    def pop(self, domain: int, seq: int) -> int | None:
        """Ends the innermost range of a domain and returns it, None if none is open."""
        at = len(self.open) - 1
        while at >= 0 and self.open[at][1] != domain:
            at -= 1
        if at < 0:
            return None
        inner = self.open[at + 1 :]
        which = self.open[at][0]
        del self.open[at:]
        for range_, of, message, _ in inner:  # they are in one less now
            self.open.append((range_, of, message, self._owner._number(self.path, message)))
        self._note(seq)
        return which


def payloads(records: Array) -> Array:
    """Returns the payload of each annotation as float64, NaN if it has none."""
    out = np.full(len(records), np.nan)
    kinds = records["grid"][:, 0]
    for kind, dtype in PAYLOADS.items():
        some = np.flatnonzero(kinds == kind)
        raw = np.ascontiguousarray(records["bytes"][some]).view("u1").reshape(-1, 8)
        size = np.dtype(dtype).itemsize
        out[some] = np.ascontiguousarray(raw[:, :size]).view(dtype)[:, 0]
    return out


def extended_payloads(records: Array) -> tuple[Array, Array]:
    """Returns the first 32 bytes of each annotation's extended payload (uint8 by row), and how many
    of them it has: 0 if it has none.
    """
    parts = [
        np.ascontiguousarray(records[name]).view("u1").reshape(len(records), size)
        for name, size in (("bytes", 8), ("block", 12), ("cluster", 12))
    ]
    sizes = np.where(records["grid"][:, 0] == BYTES, records["grid"][:, 2], 0)
    return np.concatenate(parts, axis=1), np.minimum(sizes, 32)
