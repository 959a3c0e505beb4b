"""Matches regions of two processes by their use: the same parameter of matched calls points to the
same offset in them.
"""

from __future__ import annotations

import numpy as np

from ttanalyze.format import event_kinds, layout
from ttanalyze.format.layout import Array
from ttanalyze.format.process import Process
from ttanalyze.verbs.diff.match import MatchedCalls, Pair

CALLS = 1 << 16  # pairs of calls that are looked at
PARAMETERS = 1 << 12  # of these, pairs of launches whose parameters are


def used_alike(a: Process, b: Process, calls: MatchedCalls) -> tuple[Pair, Array]:
    """Returns ids of regions of a and b, and the number of parameters that point to both."""
    found = calls.alignment
    chosen = np.unique(np.linspace(0, max(0, len(found.a) - 1), CALLS).astype("i8"))
    chosen = chosen[: len(found.a)]
    seqs = calls.a.seq[found.a[chosen]], calls.b.seq[found.b[chosen]]
    events = _events(a, seqs[0]), _events(b, seqs[1])
    words, at = _pointers((a, b), events)
    pointees = [
        _pointees(process, values, side["seq"][at])
        for process, values, side in zip((a, b), words, events, strict=True)
    ]
    both = (pointees[0][0] >= 0) & (pointees[1][0] >= 0) & (pointees[0][1] == pointees[1][1])
    pairs = np.stack([region[both] for region, _ in pointees], axis=1)
    different, counts = np.unique(pairs, axis=0, return_counts=True)
    return (different[:, 0], different[:, 1]), counts


def _events(process: Process, seqs: Array) -> Array:
    """Returns the records of these calls, all of which exist."""
    order = np.argsort(seqs, kind="stable")
    out = np.zeros(len(seqs), layout.EVENT)
    for records in process.event_pieces() if len(seqs) else ():
        at = np.minimum(np.searchsorted(seqs[order], records["seq"]), len(seqs) - 1)
        wanted = seqs[order][at] == records["seq"]
        layout.whole(out)[order[at[wanted]]] = layout.whole(layout.take(records, wanted))
    return out


def _pointers(processes: tuple[Process, Process], events: Pair) -> tuple[Pair, Array]:
    """Returns possible pointers of both sides, and the event of each."""
    plain = np.flatnonzero(np.isin(events[0]["kind"], event_kinds.MOVE))
    words = [[side["dst"][plain], side["src"][plain]] for side in events]
    at = [plain, plain]
    launches = (events[0]["params_size"] == events[1]["params_size"]) & (
        events[0]["params_size"] > 0
    )
    for row in np.flatnonzero(launches)[:PARAMETERS].tolist():
        raw = [
            np.frombuffer(p.params(side[row]), "u1")
            for p, side in zip(processes, events, strict=True)
        ]
        count = min(len(one) for one in raw) // 8
        for values, one in zip(words, raw, strict=True):
            values.append(one[: count * 8].view("<u8"))
        at.append(np.full(count, row))
    return (np.concatenate(words[0]), np.concatenate(words[1])), np.concatenate(at)


def _pointees(process: Process, words: Array, seqs: Array) -> Pair:
    """Returns the region that each word points to at a call, -1 if none, and the offset in it."""
    birth = process.regions.birth
    if not len(birth):
        return np.full(len(words), -1), words
    order = np.lexsort((birth["seq"], birth["base"]))
    birth, death = birth[order], process.regions.death_seq[order]
    bases, group = np.unique(birth["base"], return_inverse=True)
    births = np.sort(birth["seq"])
    most = len(births) + 1
    keys = group * most + np.searchsorted(births, birth["seq"])
    of = np.searchsorted(bases, words, "right") - 1
    row = np.searchsorted(keys, of * most + np.searchsorted(births, seqs, "right")) - 1
    offset = words - birth["base"][row]
    inside = (of >= 0) & (row >= 0) & (group[row] == of) & (offset < birth["size"][row])
    inside &= (death[row] == 0) | (death[row] > seqs)
    return np.where(inside, birth["id"][row].astype("i8"), -1), offset
