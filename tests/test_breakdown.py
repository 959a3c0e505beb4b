"""Where the time of ranks and steps went, from written GPU times."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ttanalyze as tt
from tests import support
from tests.rundir import Writer
from ttanalyze.errors import Error
from ttanalyze.output.times import as_nanoseconds

NCCL = "_Z39ncclDevKernel_AllReduce_Sum_f32_RING_LL24ncclDevKernelArgsStorageILm4096EE"


class Timed(Writer):
    """A rank with GPU times. Calls are made at the given time."""

    def work(self, kind: str, called: int, begin: int, end: int, name: str | None = None) -> int:
        call = "cuLaunchKernel" if kind == "launch" else "cuMemcpyHtoD_v2"
        seq = self.event(kind, call, time_ns=called)
        self.activity(kind, seq, begin, end, name, device=0)
        return seq

    def push(self, name: str, time: int) -> None:
        self.event("range-push", id=self.string(name), time_ns=time, dst=0xFFFFFFFF)

    def pop(self, time: int) -> None:
        self.event("range-pop", time_ns=time, dst=0xFFFFFFFF)

    def end(self, rank: int, world: int = 2) -> None:
        self.close(rank={"rank": rank, "world_size": world, "node": "n", "job": "j"})


def job(path: Path, steps: tuple[int, ...] = (2, 2)) -> Path:
    """Ranks whose steps take 1000 ns: 400 of kernels, 300 of communication, of which 100 are
    hidden, a copy of 100, and idle 300, of which the host is the reason for 200.
    """
    for rank, count in enumerate(steps):
        writer = Timed(path, rank)
        for step in range(count):
            at = 10_000 + 1000 * step
            writer.push(f"step {step}", at - 500)
            writer.work("launch", at - 400, at, at + 400, "gemm")
            writer.work("launch", at - 300, at + 300, at + 600, NCCL)
            writer.work("copy", at + 800, at + 900, at + 1000)
            writer.pop(at + 850)
        writer.end(rank)
    return path


def test_times_of_each_rank_and_step(tmp_path: Path) -> None:
    found = tt.breakdown(tt.open(job(tmp_path / "run")))
    assert found.steps["step"].tolist() == ["step 0", "step 1"] * 2
    assert found.ranks["rank"].tolist() == [0, 1] and found.ranks["step"].tolist() == [2, 2]
    (row,) = as_nanoseconds(found.steps)[
        ["total", "compute", "communication", "exposed_communication"]
    ][1:2].values
    assert row.tolist() == [1000, 400, 300, 200]
    (row,) = as_nanoseconds(found.steps)[
        ["memory", "exposed_memory", "idle", "idle_host", "idle_waiting"]
    ][:1].values
    assert row.tolist() == [100, 100, 300, 200, 100]
    assert found.ranks["overlap"].tolist() == [33.33, 33.33]
    assert found.notes == []


def test_shares_on_the_screen_and_in_the_report(tmp_path: Path) -> None:
    run = job(tmp_path / "run")
    shown = support.ttanalyze("breakdown", run).stdout
    assert "40.0 %" in shown and "20.0 %" in shown and "33.3 %" in shown
    answer = json.loads(support.ttanalyze("breakdown", run, "--json", "--rank", "1").stdout)
    assert [row["rank"] for row in answer["ranks"]] == [1] and len(answer["steps"]) == 2
    page = tt.report(tt.open(run))
    assert "breakdown-section" in page and "exposed: 20.0 %" in page


def test_epochs_are_steps_without_ranges(tmp_path: Path) -> None:
    writer = Timed(tmp_path / "run")
    writer.born(0, bytes(4096))
    for step in range(3):
        writer.work("launch", 1000 * step, 1000 * step + 1, 1000 * step + 501, "gemm")
        writer.epoch("api", "full", label=f"iter_{step}")
    writer.close()
    found = tt.breakdown(tt.open(tmp_path / "run"))
    assert found.steps["step"].tolist() == ["iter_0", "iter_1", "iter_2"]
    assert found.steps["total"].dtype == "m8[ns]"
    assert found.steps["total"].astype("i8").tolist() == [1000, 1000, 500]
    chosen = tt.breakdown(tt.open(tmp_path / "run"), "_1$").steps
    assert chosen["total"].astype("i8").tolist() == [500]


def test_work_of_the_recorder_is_not_idle_time(tmp_path: Path) -> None:
    writer = Timed(tmp_path / "run")
    writer.work("launch", 0, 100, 200, "gemm")
    writer.activity("launch", 0, 200, 300, "capture", flags=2, device=0)
    writer.work("launch", 0, 400, 500, "gemm")
    writer.close()
    row = as_nanoseconds(tt.breakdown(tt.open(tmp_path / "run")).ranks).iloc[0]
    assert (row["total"], row["compute"], row["recorder"], row["idle"]) == (400, 200, 100, 100)


def test_bad_input_is_one_line(tmp_path: Path) -> None:
    Writer(tmp_path / "bare").close()
    with pytest.raises(Error, match="has no GPU times; record with --timeline cupti"):
        tt.breakdown(tt.open(tmp_path / "bare"))
    run = job(tmp_path / "run", (2, 1))
    for step, said in (("(", "not a regular expression"), ("epoch", "no process has GPU times of")):
        told = support.ttanalyze("breakdown", run, "--step", step)
        assert told.status == 2 and said in told.stderr and told.stderr.count("\n") == 1
    assert tt.breakdown(tt.open(run)).notes == ["rank 1: fewer steps than the 2 of others"]
    assert tt.breakdown(tt.open(run, ranks=[0])).notes == []
    shutil.rmtree(run / "p1")
    (run / "run.json").unlink()
    assert tt.breakdown(tt.open(run)).notes == ["not recorded: rank 1"]


@pytest.mark.parametrize("seed", range(20))
def test_sums_are_those_of_each_nanosecond(seed: int, tmp_path: Path) -> None:
    """A plain model marks each nanosecond; the definitions are those of Holistic Trace Analysis."""
    random = np.random.default_rng(seed)
    writer, marks = Timed(tmp_path / "run"), np.zeros((3, 400), bool)
    for _ in range(random.integers(1, 30)):
        kind = int(random.integers(3))
        begin = int(random.integers(0, 380))
        end = begin + int(random.integers(1, 20))
        name = (None, "gemm", NCCL)[kind]
        writer.work("launch" if kind else "copy", 0, 1000 + begin, 1000 + end, name)
        marks[kind, begin:end] = True
    writer.close()
    memory, compute, nccl = marks
    row: Any = as_nanoseconds(tt.breakdown(tt.open(tmp_path / "run")).ranks).iloc[0]
    busy = marks.any(axis=0)
    span = np.flatnonzero(busy)[-1] + 1 - np.flatnonzero(busy)[0]
    assert row["total"] == span and row["idle"] == span - busy.sum()
    assert row["compute"] == compute.sum() and row["communication"] == nccl.sum()
    assert row["exposed_communication"] == (nccl & ~compute).sum()
    assert row["memory"] == memory.sum()
    assert row["exposed_memory"] == (memory & ~compute & ~nccl).sum()
