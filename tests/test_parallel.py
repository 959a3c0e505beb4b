"""Work on many ranks in processes of this machine, which dask schedules."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import ttanalyze as tt
from tests import support
from tests.test_breakdown import job
from ttanalyze.errors import Error
from ttanalyze.util.parallel import each

RANKS = 12


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
