"""Every answer about random runs is that of a model of memory that shares no code with them."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import pytest

import ttanalyze as tt
from tests.random_runs import HOST, RandomProcess
from ttanalyze.core.values import parse
from ttanalyze.errors import Error
from ttanalyze.format import contents
from ttanalyze.format.process import Process
from ttanalyze.format.run import Run
from ttanalyze.verbs.blame import Condition, blame, find_target, watch
from ttanalyze.verbs.diff import diff
from ttanalyze.verbs.memory import memory
from ttanalyze.verbs.query import Query, query
from ttanalyze.verbs.rewind import rewind
from ttanalyze.verbs.verify import verify

AT_ONCE = 5  # runs of a test
SOME, MANY = 50, 3050  # runs of `make test`, of `make test-all`
U8 = parse("u8")
T = TypeVar("T")


def ask(path: Path, seed: int) -> None:
    """Makes the run of a seed and asks it everything."""
    asked = random.Random(seed)
    count = asked.choice([1, 1, 2])
    models = [RandomProcess(path / "run", seed, i) for i in range(count)]
    run = tt.open(path / "run")
    for model in models:
        process = run.process(model.writer.index)
        _reads(process, model, asked)
        _rewinds(run, model, asked)
        _blames(process, model, asked)
        _watches(process, model, asked)
        _allocations(run, model)
        _tables(run, model)
    _verifies(run, models, asked)
    _diffs(path, run, models, seed, asked)


def _answer(question: Callable[[], T]) -> tuple[T | None, str]:
    """What comes of it, or why nothing does."""
    try:
        return question(), ""
    except Error as e:
        return None, str(e)


def _places(model: RandomProcess, asked: random.Random, count: int) -> Iterator[tuple[int, int]]:
    """Regions that are captured, and an epoch."""
    numbers = [r.number for r in model.regions.values() if r.kind != HOST]
    for _ in range(count if numbers else 0):
        yield asked.choice(numbers), asked.randrange(len(model.epochs))


def _span(asked: random.Random, size: int) -> tuple[int, int]:
    start = asked.randrange(size)
    return asked.choice([(0, size), (start, min(size, start + asked.randint(1, 70000)))])


def _reads(process: Process, model: RandomProcess, asked: random.Random) -> None:
    for region, epoch in _places(model, asked, 20):
        start, stop = _span(asked, model.regions[region].size)
        known = model.known(epoch, region, start, stop)
        what = f"epoch {epoch}, region {region}, bytes {start} to {stop}"
        found, reason = _answer(partial(contents.read, process, epoch, region, start, stop))
        if found is None:
            assert known is not True, f"{what}: {reason}"
            continue
        assert known is not False, f"{what} can't be known"
        assert found.tobytes() == model.epochs[epoch].states[region].contents[start:stop], what


def _rewinds(run: Run, model: RandomProcess, asked: random.Random) -> None:
    for epoch in {asked.randrange(len(model.epochs)) for _ in range(3)}:
        states = model.epochs[epoch].states
        known = [model.known(epoch, r, 0, model.regions[r].size) for r in states]
        living = {
            r.number
            for r in model.regions.values()
            if r.kind != HOST and r.born <= epoch and (r.died is None or epoch < r.died)
        }
        found, reason = _answer(partial(_rewound, run, epoch, model.writer.index))
        if found is None:
            lost = False in known or None in known or model.epochs[epoch].empty
            assert lost, f"epoch {epoch}: {reason}"
            continue
        assert False not in known and not model.epochs[epoch].empty, f"epoch {epoch} is lost"
        assert found[0] == {r: state.contents for r, state in states.items()}, f"epoch {epoch}"
        assert found[1] == living - set(states), f"epoch {epoch}"
        assert found[2] == {r for r, s in states.items() if s.left_out}, f"epoch {epoch}"


def _rewound(run: Run, epoch: int, process: int) -> tuple[dict[int, bytes], set[int], set[int]]:
    """Contents by region, regions without contents, and those that the epoch did not read."""
    found = rewind(run, epoch, process=process)
    with contents.DataFiles(found.process) as files:
        whole = {p.region: b"".join(map(bytes, p.pieces(files))) for p in found.parts}
    return whole, set(found.left_out), set(found.unread)


def _blames(process: Process, model: RandomProcess, asked: random.Random) -> None:
    for region, last in _places(model, asked, 4):
        size = model.regions[region].size
        start = asked.randrange(size)
        length = asked.randint(1, min(size - start, 300))
        target = find_target(process, region, start, count=length)
        found = blame(target, (0, last), most=0).changes
        what = f"region {region}, bytes {start} to {start + length}"
        for epoch in range(last + 1):
            state = model.epochs[epoch].states.get(region)
            if state is None or model.epochs[epoch].empty:
                continue
            known = model.known(epoch, region, start, start + length)
            before = [change for change in found if change.epoch <= epoch]
            if known:
                assert before and before[-1].after is not None, f"{what}: epoch {epoch} is known"
            if before and before[-1].after is not None:
                wanted = state.contents[start : start + length]
                assert before[-1].after == wanted, f"{what}: epoch {epoch}"
        for one, other in pairwise(found):
            assert one.epoch < other.epoch
            if one.after is not None and other.after is not None:
                assert one.after != other.after, f"{what}: no change in epoch {other.epoch}"


def _watches(process: Process, model: RandomProcess, asked: random.Random) -> None:
    for region, first in _places(model, asked, 4):
        of = asked.choice([None, region])
        value = asked.choice([0, asked.randrange(256)])
        start, stop = 0, model.regions[region].size
        part = asked.random() < 0.5
        if part and of is not None:
            start = asked.randrange(stop)
            stop = asked.randint(start + 1, min(stop, start + 40))
        what = f"=={value} in {of} [{start}, {stop}) from epoch {first}"
        target = None
        if of is not None:
            offset, count = (start, stop - start) if part else (None, None)
            target = find_target(process, of, offset, count=count)
        hits: dict[int, set[int]] = {}
        for epoch in range(first, len(model.epochs)):
            states = {} if model.epochs[epoch].empty else model.epochs[epoch].states
            for number, state in states.items():
                here = state.contents if of is None else state.contents[start:stop]
                if of in (None, number) and value in here:
                    hits.setdefault(epoch, set()).add(number)
        condition = Condition.parse(f"=={value}", U8)
        epochs = first, len(model.epochs) - 1
        seen, reason = _answer(partial(watch, process, condition, target, epochs))
        if seen is None:
            there = [not e.empty for e in model.epochs[first:]]
            if of is not None:
                r = model.regions[of]
                begin, end = max(first, r.born), len(model.epochs) if r.died is None else r.died
                there = [not e.empty for e in model.epochs[begin:end]]
            assert not any(there), f"{what}: {reason}"
            continue
        found = seen.sighting
        if found is not None:
            numbers = {hit.region for hit in found.hits}
            assert numbers <= hits.get(found.epoch, set()), f"{what}: not in epoch {found.epoch}"
        if not seen.unseen:
            wanted = min(hits, default=None)
            assert (found.epoch if found else None) == wanted, what
            assert found is None or found.hit_count == len(hits[found.epoch]), what


def _allocations(run: Run, model: RandomProcess) -> None:
    found = memory(run, process=model.writer.index)[0]
    device = [r for r in model.regions.values() if r.kind != HOST]
    assert found.peak.bytes == max(model.levels)
    assert found.end.bytes == model.levels[-1]
    assert found.timeline["bytes"].tolist() == model.levels[1:]
    assert found.allocations == len(device)
    assert found.freed == sum(r.died is not None for r in device)
    assert found.allocated_bytes == sum(r.size for r in device)


def _tables(run: Run, model: RandomProcess) -> None:
    mine = f"process == {model.writer.index}"
    counted = query(run, Query("events", mine, group_by=["kind", "thread"], count=True))
    rows = zip(counted["kind"], counted["thread"], counted["count"], strict=True)
    assert {(kind, thread): n for kind, thread, n in rows} == Counter(model.calls)
    digests = query(run, Query("digests", mine))
    columns = (digests[name].tolist() for name in ("epoch", "region", "digest"))
    assert set(zip(*columns, strict=True)) == {
        (number, region, value)
        for number, epoch in enumerate(model.epochs)
        for region, value in epoch.digests.items()
    }
    changes = query(run, Query("regions", f"{mine} and captured", fields=["region", "changes"]))
    for region, count in changes.values.tolist():
        values = [e.digests[region] for e in model.epochs if region in e.digests]
        assert count == sum(a != b for a, b in pairwise(values))


def _verifies(run: Run, models: list[RandomProcess], asked: random.Random) -> None:
    head = {"format": "ttanalyze-manifest", "version": 1, "block_size": 65536, "digest": "xxh3-64"}
    whole: dict[str, Any] = {**head, "processes": [model.manifest() for model in models]}
    places = [
        (i, number, region)
        for i, model in enumerate(models)
        for number, epoch in enumerate(model.epochs)
        for region in epoch.digests
    ]
    if not places:
        with pytest.raises(Error, match="nothing to compare"):
            verify(run, whole)
        return
    if any(model.removed for model in models):  # manifests call these epochs dropped
        return
    report = verify(run, whole, keep_going=True)
    assert report.same
    told = [e for model in models for e in model.epochs if not e.empty]
    assert report.epochs == len(told)
    assert report.unread == sum(s.left_out for e in told for s in e.states.values())
    i, epoch, region = asked.choice(places)
    text = whole["processes"][i]["epochs"][epoch]["digests"]
    text[str(region)] = f"{int(text[str(region)], 16) ^ 1:016x}"
    report = verify(run, whole, keep_going=True)
    found = [(d.process, d.region, d.epoch) for d in report.differences]
    starts = _stretches(models[i], region, epoch)
    assert found == [(models[i].writer.index, region, start) for start in starts]


def _stretches(model: RandomProcess, region: int, epoch: int) -> Iterator[int]:
    """Where stretches begin over which epochs read what a region was since this one."""
    before = False
    for number, e in enumerate(model.epochs[epoch:], epoch):
        if region not in e.states or (number > epoch and region in e.digests):
            return
        if "refused" not in e.flags:
            now = not e.states[region].left_out
            if now and not before:
                yield number
            before = now


def _diffs(
    path: Path, run: Run, models: list[RandomProcess], seed: int, asked: random.Random
) -> None:
    if any(model.removed for model in models) or not any(m.epochs for m in models):
        return
    last = models[-1]
    twist = asked.choice([None, asked.randrange(len(last.epochs))])
    others = [RandomProcess(path / "other", seed, m.writer.index) for m in models[:-1]]
    others.append(RandomProcess(path / "other", seed, last.writer.index, twist))
    apart = _first_difference(last, others[-1])
    report, reason = _answer(partial(diff, run, tt.open(path / "other")))
    if report is None:
        assert not any(e.digests for m in models for e in m.epochs), reason
        return
    if apart is None:
        assert report.same
    elif apart[1]:
        assert not report.same and report.first is not None, f"twist in epoch {twist}"
        assert report.first[1].epoch_a == apart[0]
        assert report.first[1].region_a in apart[1]


def _first_difference(a: RandomProcess, b: RandomProcess) -> tuple[int, set[int]] | None:
    """The first epoch in which both can be asked and memory differs, and the regions that do; no
    regions where memory differs in other epochs only.
    """
    known: tuple[dict[int, int], dict[int, int]] = {}, {}
    found: tuple[int, set[int]] | None = None
    for number, (ours, theirs) in enumerate(zip(a.epochs, b.epochs, strict=True)):
        known[0].update(ours.digests)
        known[1].update(theirs.digests)
        of = {r for r in ours.states if a.regions[r].context == ours.context}
        told = {r for r in of if not ours.states[r].left_out and not theirs.states[r].left_out}
        regions = {r for r in told if known[0].get(r) != known[1].get(r)}
        if regions and not ours.empty and not theirs.empty:
            return number, regions
        found = found or ((number, set()) if regions else None)
    return found


def check(path: Path, seeds: range) -> None:
    for seed in seeds:
        folder = path / str(seed)
        folder.mkdir()
        try:
            ask(folder, seed)
        except BaseException as e:
            e.args = (f"seed {seed}: {e}",)
            raise
        shutil.rmtree(folder)


@pytest.mark.parametrize("first", range(0, SOME, AT_ONCE))
def test_random_runs_equal_a_model(tmp_path: Path, first: int) -> None:
    check(tmp_path, range(first, first + AT_ONCE))


@pytest.mark.long
@pytest.mark.parametrize("first", range(SOME, MANY, 20 * AT_ONCE))
def test_many_random_runs_equal_a_model(tmp_path: Path, first: int) -> None:
    check(tmp_path, range(first, first + 20 * AT_ONCE))
