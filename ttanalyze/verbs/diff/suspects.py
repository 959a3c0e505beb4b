"""Suspected calls of a divergence: the possible writers of both sides.

Calls that only one side has, or with different parameters, come first. Then come those that are
surest to have written, in program order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ttanalyze.core import writers as writing
from ttanalyze.format import event_kinds, layout
from ttanalyze.format.event_kinds import KIND
from ttanalyze.format.layout import Array
from ttanalyze.format.process import Process
from ttanalyze.verbs.diff.match import MatchedCalls, MatchedRegions
from ttanalyze.verbs.diff.report import Suspect
from ttanalyze.verbs.diff.sides import Calls, mixed

LISTED = 16
COMPARED = 4096  # launches whose parameters are compared
SHOWN = 8  # bytes of parameters that differ
NONE = np.uint64(0)  # in the place of a seq


@dataclass(frozen=True)
class Window:
    """A region of one side, and the calls with seq in (after, until]."""

    process: Process
    region: int
    after: int
    until: int


def find(
    a: Window | None, b: Window | None, calls: MatchedCalls | None, regions: MatchedRegions
) -> tuple[list[Suspect], int]:
    """Returns the likeliest suspects and their number. None for a side without a process."""
    return _Search(a, b, calls, regions).run()


class _Search:
    def __init__(
        self,
        a: Window | None,
        b: Window | None,
        calls: MatchedCalls | None,
        regions: MatchedRegions,
    ) -> None:
        self.windows = (a, b)
        self.calls = calls
        self.regions = regions
        self.found = [_writers(window) for window in self.windows]
        self.identities = [
            np.empty(0, "u8") if window is None else self._identities_of(side)
            for side, window in enumerate(self.windows)
        ]

    def run(self) -> tuple[list[Suspect], int]:
        seqs, how = self._together()
        alone = (seqs == NONE).any(axis=1) & (self.calls is not None)
        order = np.lexsort((seqs.max(axis=1), how))
        differs = {}
        for i in order[:COMPARED].tolist():
            if not alone[i] and how[i] <= writing.INDIRECT and (seqs[i] != NONE).all():
                differs[i] = self._parameters(*seqs[i].tolist())
        odd = alone.copy()
        odd[[i for i, found in differs.items() if found.get("parameters") == "different"]] = True
        odd &= how < writing.INDIRECT
        order = np.lexsort((seqs.max(axis=1), how, ~odd))[:LISTED]
        listed = [
            self._suspect(seqs[i], bool(alone[i]), int(how[i]), differs.get(i, {}))
            for i in order.tolist()
        ]
        return listed, len(how)

    def _together(self) -> tuple[Array, Array]:
        """Returns the calls of both sides, (n, 2) seqs with NONE for a missing one, and how sure
        each is.
        """
        seqs = [np.empty((0, 2), "u8")]
        for side, found in enumerate(self.found):
            both = np.zeros((len(found.how), 2), "u8")
            both[:, side] = found.events["seq"]
            if self.calls is not None:
                both[:, 1 - side] = _counterparts(self.calls, side, both[:, side])
            seqs.append(both)
        how = np.concatenate([found.how for found in self.found])
        pairs = np.concatenate(seqs)
        order = np.lexsort((how, pairs[:, 1], pairs[:, 0]))
        pairs, how = pairs[order], how[order]
        new = np.append(True, (pairs[1:] != pairs[:-1]).any(axis=1))[: len(pairs)]
        return pairs[new], how[new]

    def _event(self, side: int, seq: int) -> Any:
        """Returns the record of a call. A counterpart that is no suspect is read again."""
        events = self.found[side].events
        at = int(np.searchsorted(events["seq"], seq))
        if at < len(events) and int(events["seq"][at]) == seq:
            return events[at]
        window = self.windows[side]
        assert window is not None, "a side without a process has no calls"
        return window.process.events_between(seq - 1, seq)[0]

    def _suspect(self, seqs: Array, alone: bool, how: int, parameters: dict[str, Any]) -> Suspect:
        side = 0 if seqs[0] != NONE else 1
        window, event = self.windows[side], self._event(side, int(seqs[side]))
        assert window is not None, "a side without a process has no calls"
        kind = layout.EVENT_KINDS[int(event["kind"])]
        launch = kind == "launch"
        return Suspect(
            kind=kind,
            call=window.process.call(int(event["call"])),
            kernel=window.process.kernel(int(event["id"])) if launch else None,
            seq_a=int(seqs[0]) or None,
            seq_b=int(seqs[1]) or None,
            alone=alone,
            stream=int(event["stream"]),
            grid=event["grid"].tolist() if launch else None,
            block=event["block"].tolist() if launch else None,
            cluster=event["cluster"].tolist() if launch and event["cluster"].any() else None,
            shared=int(event["shared"]) if launch else None,
            bytes=int(event["bytes"]) if event["kind"] in event_kinds.MOVE else None,
            how=writing.HOW[how],
            stack=window.process.stack(int(event["stack"])) or None,
            range=window.process.annotations.range_of(event),
            **parameters,
        )

    # ---- parameters ----

    def _parameters(self, seq_a: int, seq_b: int) -> dict[str, Any]:
        """Returns whether a launch got the same parameters on both sides, None if unknown."""
        events = self._event(0, seq_a), self._event(1, seq_b)
        if any(event["kind"] != KIND["launch"] for event in events):
            return {}
        raw = []
        for window, event in zip(self.windows, events, strict=True):
            assert window is not None, "a side without a process has no calls"
            raw.append(window.process.params(event))
        if not all(raw):
            return {}
        at = self._first_difference(raw[0], raw[1], seq_a, seq_b)
        if at is None:
            return {"parameters": "same"}
        return {
            "parameters": "different",
            "parameter_offset": at,
            "parameters_a": raw[0][at : at + SHOWN].hex(),
            "parameters_b": raw[1][at : at + SHOWN].hex(),
        }

    def _first_difference(self, a: bytes, b: bytes, seq_a: int, seq_b: int) -> int | None:
        """Returns the offset of the first parameter byte that differs; for a pointer, of its first
        byte.
        """
        if len(a) != len(b):
            return min(len(a), len(b))
        words = [np.frombuffer(raw[: len(raw) // 8 * 8], "<u8") for raw in (a, b)]
        (place_a, in_a), (place_b, in_b) = (
            self._pointees(side, words[side], seq) for side, seq in enumerate((seq_a, seq_b))
        )
        pointers = in_a & in_b
        same = np.where(pointers, place_a == place_b, words[0] == words[1])
        tail = len(words[0]) * 8
        if same.all():
            return None if a[tail:] == b[tail:] else _unequal(a, b, tail)
        word = int(same.argmin())
        return word * 8 if pointers[word] else _unequal(a, b, word * 8)

    def _pointees(self, side: int, words: Array, seq: int) -> tuple[Array, Array]:
        """Returns for each word the number of the region that it points to, equal on both sides,
        and whether there is one.
        """
        window = self.windows[side]
        assert window is not None, "a side without a process has no calls"
        table = window.process.regions
        lives = table.birth["seq"] <= seq
        lives &= (table.death_seq == 0) | (table.death_seq > seq)
        birth, identity = table.birth[lives], self.identities[side][lives]
        if not len(birth):
            return words, np.zeros(len(words), bool)
        order = np.argsort(birth["base"], kind="stable")
        base, size, identity = birth["base"][order], birth["size"][order], identity[order]
        found = np.searchsorted(base, words, "right") - 1
        offset = words - base[found]
        inside = (found >= 0) & (offset < size[found])
        return mixed(identity[found], offset), inside

    def _identities_of(self, side: int) -> Array:
        """Returns a number for each region that equals that of its counterpart.

        Regions without contents, such as host memory, share a number by kind and size.
        """
        window = self.windows[side]
        assert window is not None, "a side without a process has no calls"
        table = window.process.regions
        out = mixed(table.birth["kind"], table.size)
        regions, rows = (
            (self.regions.a, self.regions.rows_a),
            (self.regions.b, self.regions.rows_b),
        )[side]
        out[table.rows(regions.id[rows])] = np.arange(len(rows))
        return out


def _unequal(a: bytes, b: bytes, at: int) -> int:
    return next(i for i in range(at, len(a)) if a[i] != b[i])


def _writers(window: Window | None) -> writing.Writers:
    if window is None:
        return writing.Writers(np.empty(0, layout.EVENT), np.empty(0, "u1"))
    return writing.writers(window.process, window.region, window.after, window.until)


def _counterparts(calls: MatchedCalls, side: int, seqs: Array) -> Array:
    """Returns the seqs of the corresponding calls of the other side, or NONE."""
    sides: tuple[Calls, Calls] = (calls.a, calls.b)
    this, other = calls.alignment.a, calls.alignment.b
    this, other = (this, other) if side == 0 else (other, this)
    order = np.argsort(this, kind="stable")
    mine, theirs = sides[side].seq[this[order]], sides[1 - side].seq[other[order]]
    out = np.zeros(len(seqs), "u8")
    if len(mine):
        at = np.minimum(np.searchsorted(mine, seqs), len(mine) - 1)
        found = mine[at] == seqs
        out[found] = theirs[at[found]]
    return out
