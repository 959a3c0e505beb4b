"""What corresponds in two runs: random calls, regions and epochs against the plain rules."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from ttanalyze.core.align import align
from ttanalyze.verbs.diff import match
from ttanalyze.verbs.diff.sides import Calls, Regions

FEW, MANY = range(200), range(1000, 2500)
Pairs = list[tuple[int, int]]
Row = dict[str, Any]


def aligned(*levels: tuple[Sequence[Hashable], Sequence[Hashable]]) -> list[tuple[int, int, int]]:
    """The alignment, by things of any kind: a, b and the level."""
    numbers: dict[Hashable, int] = {}
    given = [
        tuple(
            np.array([numbers.setdefault(one, len(numbers)) for one in side], "i8")
            for side in level
        )
        for level in levels
    ]
    found = align(*cast(Any, given))
    return list(zip(found.a.tolist(), found.b.tolist(), found.level.tolist(), strict=True))


def rank(pairs: Pairs) -> Pairs:
    """The first of each, as long as neither is taken."""
    out: Pairs = []
    for one, other in pairs:
        if not any(one == x or other == y for x, y in out):
            out.append((one, other))
    return sorted(out)


# ---- calls ----


def random_calls(choose: random.Random, like: list[Row] | None = None) -> list[Row]:
    """Calls of several threads and streams, or those of another run in another order."""
    threads, streams = choose.randint(1, 3), choose.randint(1, 3)
    out: list[Row] = []
    stacks = choose.choice(((0,), (1, 2), (0, *range(1, 13))))
    for _ in range(choose.randint(0, 14)):
        alike = choose.randrange(4)
        call = {"alike": alike, "same": 10 * alike + choose.randrange(2)}
        call |= {"thread": choose.randrange(threads) + 7, "stream": choose.randrange(streams) + 16}
        out.append(call | {"work": choose.random() < 0.7, "stack": choose.choice(stacks)})
    if like and choose.random() < 0.7:
        out = [{**c, "thread": c["thread"] + 1, "stream": 40 - c["stream"]} for c in like]
        for _ in range(choose.randrange(4)):
            out.insert(choose.randint(0, len(out)), dict(choose.choice(out)))
        for _ in range(choose.randrange(3)):
            i = choose.randrange(len(out))
            out[i:i] = [out.pop(choose.randrange(len(out)))]
    seq = 0
    for call in out:
        seq += choose.randint(1, 3)
        call |= {"seq": seq, "time": seq * 10 + choose.choice((0, 0, 15)), "context": 0}
        call["launch"] = call["work"]
    return out


TYPES = {"seq": "u8", "same": "u8", "alike": "u8", "time": "u8", "work": "?", "launch": "?"}


def calls_of(rows: list[Row]) -> Calls:
    names = Calls.__dataclass_fields__
    return Calls(*(np.array([r[name] for r in rows], TYPES.get(name, "u4")) for name in names))


def grouped(rows: list[Row], by: str) -> dict[int, list[int]]:
    out: dict[int, list[int]] = {}
    for i, row in enumerate(rows):
        out.setdefault(row[by], []).append(i)
    return out


def in_common(a: list[Row], b: list[Row], by: str) -> int:
    return sum((Counter(row[by] for row in a) & Counter(row[by] for row in b)).values())


def in_lanes(a: list[Row], b: list[Row], by: str) -> list[Pairs]:
    """The pairs of each lane: streams, or threads, that do most the same are matched."""
    in_a, in_b = list(grouped(a, by).values()), list(grouped(b, by).values())
    ranked = []
    for i, one in enumerate(in_a):
        for j, other in enumerate(in_b):
            of_a, of_b = [a[k] for k in one], [b[k] for k in other]
            same, alike = in_common(of_a, of_b, "same"), in_common(of_a, of_b, "alike")
            if alike:
                ranked.append((-same, -alike, abs(i - j), i, j))
    chosen = rank([(i, j) for *_, i, j in sorted(ranked)])
    if max(len(in_a), len(in_b)) > match.MOST_GROUPS:
        chosen = [(i, i) for i in range(min(len(in_a), len(in_b)))]
    return [pairs_of(a, b, in_a[i], in_b[j]) for i, j in chosen]


def share_with_stack_of(rows: list[Row], others: list[Row]) -> float:
    known = {r["stack"] for r in others} - {0}
    return sum(r["stack"] in known for r in rows) / len(rows) if rows else 0


def pairs_of(a: list[Row], b: list[Row], of_a: list[int], of_b: list[int]) -> Pairs:
    in_a, in_b = [a[i] for i in of_a], [b[j] for j in of_b]
    levels = [([r[by] for r in in_a], [r[by] for r in in_b]) for by in ("same", "alike")]
    if min(share_with_stack_of(in_a, in_b), share_with_stack_of(in_b, in_a)) >= 0.9:
        placed = [[1000 * r["stack"] + r["same"] for r in rows] for rows in (in_a, in_b)]
        levels.insert(0, (placed[0], placed[1]))
    return [(of_a[i], of_b[j]) for i, j, _ in aligned(*levels)]


def expected_lanes(a: list[Row], b: list[Row]) -> list[Pairs]:
    threads = [{row["thread"] for row in side if row["work"]} for side in (a, b)]
    if max(map(len, threads)) < 2:
        return [pairs_of(a, b, list(range(len(a))), list(range(len(b))))]
    by_stream, by_thread = in_lanes(a, b, "stream"), in_lanes(a, b, "thread")
    return by_thread if sum(map(len, by_thread)) > sum(map(len, by_stream)) else by_stream


def before(rows: list[Row], lanes: list[Pairs], side: int, cut: int, every: bool) -> list[int]:
    """Of each lane, how many calls that correspond come before a cut."""
    own = [[rows[pair[side]] for pair in lane] for lane in lanes]
    return [sum(r["seq"] < cut and (every or r["work"]) for r in lane) for lane in own]


def check_calls(seed: int) -> None:
    choose = random.Random(seed)
    a = random_calls(choose)
    b = random_calls(choose, a)
    lanes = expected_lanes(a, b)
    found = match.match_calls(calls_of(a), calls_of(b))
    got = list(zip(found.alignment.a.tolist(), found.alignment.b.tolist(), strict=True))
    assert got == sorted(pair for lane in lanes for pair in lane), seed
    numbers = [i for i, lane in enumerate(lanes) for _ in lane]
    in_order = sorted(zip((p for lane in lanes for p in lane), numbers, strict=True))
    assert found.lane.tolist() == [number for _, number in in_order], seed
    assert found.lanes == max(numbers, default=0) + 1
    assert found.alignment.exact
    level = [a[i]["same"] != b[j]["same"] for i, j in got]
    assert found.alignment.level.tolist() == level
    for every in (False, True):
        points: dict[int, list[int]] = {}
        for side, rows in enumerate((a, b)):
            cuts = list(range(rows[-1]["seq"] + 2 if rows else 1))
            given = found.calls_before(side, np.array(cuts, "u8"), all_calls=every)
            for cut, point in zip(cuts, given.tolist(), strict=True):
                count = before(rows, lanes, side, cut, every)
                count += [0] * (found.lanes - len(count))
                assert points.setdefault(point, count) == count, seed
        counts = [tuple(count[: found.lanes]) for count in points.values()]
        assert len(set(counts)) == len(counts), seed
    for rows in (a, b):
        several = len({row["thread"] for row in rows if row["work"]}) > 1
        assert match.several_threads(calls_of(rows)) == several


def test_matched_calls_follow_the_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in FEW:
        check_calls(seed)
    monkeypatch.setattr(match, "MOST_GROUPS", 2)
    for seed in FEW:
        check_calls(seed)


# ---- epochs where several threads submit work ----


def test_epoch_includes_work_of_other_threads() -> None:
    for seed in FEW:
        choose = random.Random(seed)
        rows = random_calls(choose)
        last = rows[-1]["seq"] if rows else 1
        count = 8
        cuts = [choose.randint(0, last + 1) for _ in range(count)]
        times = [choose.randint(0, last * 10 + 20) for _ in range(count)]
        exact = [choose.random() < 0.3 for _ in range(count)]
        seqs = [choose.randint(0, last) for _ in range(count)]
        side = SimpleNamespace(
            cut=np.array(cuts, "u8"),
            time=np.array(times, "u8"),
            exact=np.array(exact),
            seq=np.array(seqs, "u8"),
        )
        chosen = sorted(choose.sample(range(count), 5))
        calls = calls_of(rows)
        found, sure = match.settled_cuts(cast(Any, side), np.array(chosen), calls)
        for at, epoch in enumerate(chosen):
            cut, certain = cuts[epoch], True
            for own in grouped(rows, "thread").values():
                until = [i for n, i in enumerate(own) if late(rows, own[: n + 1]) <= times[epoch]]
                call = rows[until[-1]] if until else None
                if exact[epoch] or call is None or call["seq"] < cuts[epoch]:
                    continue
                if call["seq"] != seqs[epoch]:
                    certain &= not call["work"]
                    cut = max(cut, call["seq"] + 1)
            assert (found[at], sure[at]) == (cut, certain), (seed, epoch)
        assert side.cut.tolist() == cuts


def late(rows: list[Row], own: list[int]) -> int:
    return int(max(rows[i]["time"] for i in own))


# ---- regions ----


def random_regions(choose: random.Random, calls: list[Row]) -> list[Row]:
    ids = sorted(choose.sample(range(40), choose.randint(0, 8)))
    last = calls[-1]["seq"] if calls else 3
    seqs = sorted(choose.randint(0, last + 1) for _ in ids)
    return [
        {
            "id": number,
            "kind": choose.choice((1, 1, 1, 2)),
            "label": choose.choice((0, 0, 0, 1)),
            "size": choose.choice((8, 8, 16)),
            "thread": choose.choice((7, 8, 9)),
            "seq": seq,
        }
        for number, seq in zip(ids, seqs, strict=True)
    ]


def regions_of(rows: list[Row]) -> Regions:
    zeros = dict.fromkeys(("context", "born", "died"), 0)
    names = Regions.__dataclass_fields__
    types = {"size": "u8", "seq": "u8", "kind": "i8", "label": "i8"}
    filled = [zeros | row for row in rows]
    columns = (np.array([row[name] for row in filled], types.get(name, "u4")) for name in names)
    return Regions(*columns)


def kind_of(row: Row) -> tuple[int, int]:
    return row["label"], row["size"]


class PlainRegions:
    """The rules of matching regions, one pair at a time."""

    def __init__(
        self, a: list[Row], b: list[Row], calls: tuple[list[Row], list[Row]] | None
    ) -> None:
        self.sides, self.calls = (a, b), calls
        self.pairs: Pairs = []
        self.lanes = [] if calls is None else expected_lanes(*calls)

    def left(self) -> tuple[list[int], list[int]]:
        taken = [{pair[side] for pair in self.pairs} for side in (0, 1)]
        a, b = ([i for i in range(len(self.sides[s])) if i not in taken[s]] for s in (0, 1))
        return a, b

    def used(self, used: list[tuple[int, int, int]]) -> None:
        rows = [{row["id"]: i for i, row in enumerate(side)} for side in self.sides]
        ranked = []
        for number, (one, other, count) in enumerate(used):
            i, j = rows[0].get(one), rows[1].get(other)
            if i is not None and j is not None:
                x, y = self.sides[0][i], self.sides[1][j]
                if (*kind_of(x), x["kind"]) == (*kind_of(y), y["kind"]):
                    ranked.append((-count, abs(i - j), number, i, j))
        self.pairs += rank([(i, j) for *_, i, j in sorted(ranked)])

    def threads(self) -> Pairs:
        """Threads most of whose calls correspond."""
        assert self.calls is not None
        both = [
            (self.calls[0][i]["thread"], self.calls[1][j]["thread"])
            for lane in self.lanes
            for i, j in lane
        ]
        if all(len({pair[side] for pair in both}) <= 1 for side in (0, 1)):
            return []
        counts = Counter(both)
        return rank(sorted(counts, key=lambda pair: (-counts[pair], pair)))

    def in_order(self, rows: tuple[list[int], list[int]]) -> tuple[Pairs, Pairs]:
        """Those of the same size, and of others."""
        keys: list[list[Row]] = [[], []]
        for side in (0, 1):
            for i in rows[side]:
                row = self.sides[side][i]
                point: tuple[int, ...] = ()
                if self.calls is not None:
                    point = tuple(before(self.calls[side], self.lanes, side, row["seq"], False))
                keys[side].append({"row": i, "point": point, **row})
        levels: list[Callable[[Row], Hashable]] = [
            lambda k: (k["point"], k["kind"], *kind_of(k)),
            lambda k: (k["point"], *kind_of(k)),
            kind_of,
            lambda k: ("label", k["label"]) if k["label"] > 0 else (k["point"], k["label"]),
        ]
        found = aligned(*(([f(k) for k in keys[0]], [f(k) for k in keys[1]]) for f in levels))
        out: tuple[Pairs, Pairs] = ([], [])
        for i, j, _ in found:
            one, other = keys[0][i], keys[1][j]
            out[kind_of(one) != kind_of(other)].append((one["row"], other["row"]))
        return out

    def any_order(self) -> None:
        a, b = self.left()
        for i in a:
            same = [j for j in b if kind_of(self.sides[1][j]) == kind_of(self.sides[0][i])]
            if same:
                self.pairs.append((i, same[0]))
                b.remove(same[0])

    def all(self, used: list[tuple[int, int, int]] | None) -> Pairs:
        if used is not None:
            self.used(used)
        for one, other in self.threads() if self.calls is not None else []:
            a, b = self.left()
            of_a = [i for i in a if self.sides[0][i]["thread"] == one]
            of_b = [j for j in b if self.sides[1][j]["thread"] == other]
            self.pairs += self.in_order((of_a, of_b))[0]
        same, sizes = self.in_order(self.left())
        self.pairs += same
        self.any_order()
        a, b = self.left()
        self.pairs += [(i, j) for i, j in sizes if i in a and j in b]
        return sorted(self.pairs)


def check_regions(seed: int) -> None:
    choose = random.Random(seed)
    calls_a = random_calls(choose)
    calls_b = random_calls(choose, calls_a)
    a, b = random_regions(choose, calls_a), random_regions(choose, calls_b)
    if choose.random() < 0.5:
        b = [dict(row) for row in a]
        choose.shuffle(b)
    known = choose.random() < 0.7
    matched = match.match_calls(calls_of(calls_a), calls_of(calls_b)) if known else None
    used: list[tuple[int, int, int]] | None = None
    if choose.random() < 0.5:
        used = [
            (choose.randrange(40), choose.randrange(40), choose.randint(1, 3)) for _ in range(9)
        ]
        used += [
            (choose.choice(a)["id"], choose.choice(b)["id"], choose.randint(1, 3))
            for _ in range(6 if a and b else 0)
        ]
        used = sorted(set(used))
    ids = None if used is None else np.array(used, "i8").reshape(-1, 3)
    found = match.match_regions(
        regions_of(a),
        regions_of(b),
        matched,
        None if ids is None else lambda: ((ids[:, 0], ids[:, 1]), ids[:, 2]),
    )
    model = PlainRegions(a, b, (calls_a, calls_b) if known else None)
    got = list(zip(found.rows_a.tolist(), found.rows_b.tolist(), strict=True))
    assert got == model.all(used), seed
    assert (found.alone(0).tolist(), found.alone(1).tolist()) == model.left()


def test_matched_regions_follow_the_rules() -> None:
    for seed in FEW:
        check_regions(seed)


@pytest.mark.long
def test_many_random_matches_follow_the_rules() -> None:
    for seed in MANY:
        check_calls(seed)
        check_regions(seed)
        check_epochs(seed)


def test_regions_are_matched_by_contents() -> None:
    """Of the same size and label; pairs that were not chosen stay."""
    made = 0
    for seed in FEW:
        choose = random.Random(seed)
        a = [{**row, "label": 0} for row in random_regions(choose, [])]
        b = [dict(row) for row in a]
        choose.shuffle(b)
        found = match.match_regions(regions_of(a), regions_of(b), None)
        pairs = list(zip(found.rows_a.tolist(), found.rows_b.tolist(), strict=True))
        chosen = sorted(choose.sample(range(len(pairs)), choose.randint(0, len(pairs))))
        held: list[list[int]] = [[choose.randrange(3) for _ in chosen] for _ in "ab"]
        histories = np.array(held[0], "u8"), np.array(held[1], "u8")
        again = match.by_contents(found, np.array(chosen, "i8"), histories)
        keys = [
            [(*kind_of((a, b)[s][pairs[n][s]]), held[s][k]) for k, n in enumerate(chosen)]
            for s in (0, 1)
        ]
        expected = by_ordinal(*keys)
        if not expected:
            assert again is None
            continue
        assert again is not None
        out = [(pairs[chosen[i]][0], pairs[chosen[j]][1]) for i, j in expected]
        left = [sorted(pairs[n][s] for n in chosen) for s in (0, 1)]
        left = [[i for i in left[s] if i not in [pair[s] for pair in out]] for s in (0, 1)]
        rest = by_ordinal([kind_of(a[i]) for i in left[0]], [kind_of(b[j]) for j in left[1]])
        out += [(left[0][i], left[1][j]) for i, j in rest]
        out += [pair for n, pair in enumerate(pairs) if n not in chosen]
        got = list(zip(again.rows_a.tolist(), again.rows_b.tolist(), strict=True))
        assert got == sorted(out), seed
        made += 1
    assert made > 50


def by_ordinal(a: Sequence[Hashable], b: Sequence[Hashable]) -> Pairs:
    """The first with the first of the same key, the second with the second."""
    free = list(enumerate(b))
    out = []
    for i, key in enumerate(a):
        same = [item for item in free if item[1] == key]
        if same:
            out.append((i, same[0][0]))
            free.remove(same[0])
    return out


# ---- epochs ----


def random_epochs(choose: random.Random, calls: list[Row]) -> list[Row]:
    last = calls[-1]["seq"] if calls else 3
    return [
        {
            "trigger": choose.choice((1, 1, 2)),
            "label": choose.choice((0, 0, 3)),
            "inside": choose.random() < 0.3,
            "cut": cut,
            "state": choose.randrange(3),
            "change": choose.randrange(2),
        }
        for cut in sorted(choose.randint(0, last + 1) for _ in range(choose.randint(0, 7)))
    ]


def check_epochs(seed: int) -> None:
    choose = random.Random(seed)
    calls_a = random_calls(choose)
    calls = calls_a, random_calls(choose, calls_a)
    a = random_epochs(choose, calls[0])
    b = random_epochs(choose, calls[1]) if choose.random() < 0.5 else [dict(row) for row in a]
    if b and choose.random() < 0.5:
        del b[choose.randrange(len(b))]
    known = choose.random() < 0.6
    lanes = expected_lanes(*calls)
    sides, chosen, keys = [], [], []
    for side, rows in enumerate((a, b)):
        numbers = [i for i in range(len(rows)) if choose.random() < 0.9]
        columns = {n: np.array([row[n] for row in rows], "i8") for n in ("trigger", "label")}
        columns["cut"] = np.array([row["cut"] for row in rows], "u8")
        columns["inside"] = np.array([row["inside"] for row in rows], bool)
        sides.append(SimpleNamespace(**columns))
        chosen.append(numbers)
        keys.append([{**rows[i], "side": side} for i in numbers])

    def point(key: Row, every: bool = False) -> tuple[int, ...]:
        count = before(calls[key["side"]], lanes, key["side"], key["cut"], every)
        return (*count, key["label"] + 1 if key["inside"] and not every else 0)

    histories = [
        (
            np.array([key["state"] for key in side], "u8"),
            np.array([key["change"] for key in side], "u8"),
        )
        for side in keys
    ]
    matched = match.match_calls(*map(calls_of, calls)) if known else None
    found = match.match_epochs(
        cast(Any, sides[0]),
        cast(Any, sides[1]),
        np.array(chosen[0], "i8"),
        np.array(chosen[1], "i8"),
        matched,
        lambda: histories,
    )
    levels: list[Any]
    if known:
        levels = [
            lambda k: (point(k), point(k, True), k["trigger"], k["label"]),
            lambda k: (point(k), k["trigger"], k["label"]),
            point,
        ]
    else:
        levels = [
            lambda k: k["state"],
            lambda k: (k["trigger"], k["label"], k["change"]),
            lambda k: (k["trigger"], k["label"]),
        ]
    given = [([f(k) for k in keys[0]], [f(k) for k in keys[1]]) for f in levels]
    expected = [(i, j) for i, j, _ in aligned(*given)]
    if not known and given[2][0] == given[2][1]:
        expected = [(i, i) for i in range(len(keys[0]))]
    got = list(zip(*(them.tolist() for them in found), strict=True))
    assert got == [(chosen[0][i], chosen[1][j]) for i, j in expected], seed


def test_matched_epochs_follow_the_rules() -> None:
    for seed in FEW:
        check_epochs(seed)
