"""Work on many ranks in processes of this machine, which dask schedules."""

from __future__ import annotations

import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ttanalyze as tt
from tests import support
from tests.rundir import Writer
from tests.test_breakdown import job
from ttanalyze.core.values import TYPES
from ttanalyze.errors import Error
from ttanalyze.format.layout import BLOCK_SIZE
from ttanalyze.util.parallel import each
from ttanalyze.verbs.blame import Condition, watch
from ttanalyze.verbs.query import Query

RANKS = 12


@pytest.fixture(autouse=True)
def processors(monkeypatch: pytest.MonkeyPatch) -> None:
    """With one processor, there would be one process, and this one would be killed."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return job(tmp_path_factory.mktemp("many") / "run", (2,) * RANKS)


def test_answer_is_that_of_one_process(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[tuple[int, int]] = []
    found = tt.breakdown(tt.open(run), progress=lambda *counts: done.append(counts))
    assert [count for count, _ in done] == sorted({count for count, _ in done})
    assert done[-1] == (RANKS, RANKS) and found.ranks["rank"].tolist() == list(range(RANKS))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    assert found.steps.equals(tt.breakdown(tt.open(run)).steps)


def test_threads_get_what_their_own_task_makes() -> None:
    def asked(number: int) -> tuple[list[int], list[tuple[int, int]]]:
        told: list[tuple[int, int]] = []
        parts = range(number, number + 4)

        def task(part: int) -> int:
            if part == 13:
                raise Error("unlucky")
            return part * 100 + number

        return each(task, parts, progress=lambda *counts: told.append(counts)), told

    with ThreadPoolExecutor(4) as pool:
        found = [pool.submit(asked, number) for number in range(20)]
        for number, one in enumerate(found):
            if 13 in range(number, number + 4):
                with pytest.raises(Error, match=r"^unlucky$"):
                    one.result()
                continue
            made, told = one.result()
            assert made == [part * 100 + number for part in range(number, number + 4)]
            assert told[-1] == (4, 4) and len(told) <= 4


def test_groups_of_a_large_table_are_those_of_one_process(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = Query(group_by=["rank", "kind"], count=True, mean=["seq"], sort=["rank"])
    done: list[int] = []
    alone = tt.query(tt.open(run), wanted, progress=lambda _, total: done.append(total))
    monkeypatch.setattr("ttanalyze.verbs.query.execute.WORTH", 0)
    found = tt.query(tt.open(run), wanted, progress=lambda _, total: done.append(total))
    assert found.equals(alone) and done[-1] == RANKS != done[0]


def test_contents_read_side_by_side_give_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """verify finds the damaged block, and blame an earlier element that is not a number."""
    writer = Writer(tmp_path / "run")
    for region in range(6):
        writer.born(region, bytes(3 * BLOCK_SIZE))
    for step in range(4):
        for region in range(6):
            data = np.random.default_rng([step, region]).random(3 * BLOCK_SIZE // 4, "f4")
            data[17] = np.nan if (step, region) == (2, 4) else 1
            writer.write(region, 0, data.tobytes())
        writer.epoch(bytes_stored=18 * BLOCK_SIZE)
    writer.close()
    shutil.copytree(tmp_path / "run", tmp_path / "bad")
    with open(tmp_path / "bad" / "p0" / "data-00000.bin", "r+b") as file:
        file.seek(60 * BLOCK_SIZE)
        file.write(b"\x01\x02\x03")
    condition = Condition.parse("nan", TYPES["f32"])

    def found() -> tuple[int, list[Any], Any]:
        done: list[int] = []
        bad, run = tt.open(tmp_path / "bad"), tt.open(tmp_path / "run")
        report = tt.verify(bad, keep_going=True, progress=lambda _, total: done.append(total))
        return done[-1], report.differences, watch(run.process(), condition)

    epochs, *expected = found()
    monkeypatch.setattr("ttanalyze.format.recompute.WORTH", 0)
    for verb in ("verify.recompute", "blame.tested"):
        monkeypatch.setattr(f"ttanalyze.verbs.{verb}.LEAST", 1)
    parts, *cut = found()
    assert cut == expected and cut[0] and parts != epochs == 4


def test_error_of_a_part_is_one_line(tmp_path: Path) -> None:
    damaged = job(tmp_path / "run", (2,) * RANKS) / "p7" / "events.bin"
    size = damaged.stat().st_size
    with open(damaged, "r+b") as file:
        file.seek(size - 40)
        file.write(b"\xff" * 8)
    outcome = support.ttanalyze("breakdown", tmp_path / "run")
    assert outcome.status == 2 and outcome.stderr.count("\n") == 1, outcome.stderr
    assert outcome.stderr.startswith(f"ttanalyze: {damaged}: ")


def test_killed_process_is_one_line() -> None:
    with pytest.raises(Error, match=r"was killed, perhaps for lack of memory; .*`taskset -c 0 "):
        each(lambda part: os._exit(9) if part == 5 else part, range(8))
