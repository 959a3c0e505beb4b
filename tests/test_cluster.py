"""Verbs on a real dask scheduler with two workers give the answers of this process."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import ttanalyze as tt
from bench.generated_job import Job, write
from tests import support
from tests.rundir import Writer
from tests.test_breakdown import job as timed_job
from ttanalyze.errors import Error
from ttanalyze.format.layout import BLOCK_SIZE
from ttanalyze.verbs.query import open_sources

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        importlib.util.find_spec("distributed") is None,
        reason="needs dask: pip install 'ttanalyze[cluster]'",
    ),
]

RANKS = 12


class Cluster:
    """A scheduler and its workers, processes of their own."""

    def __init__(self, folder: Path, workers: int) -> None:
        self.processes: list[subprocess.Popen[bytes]] = []
        file = folder / "scheduler.json"
        self._dask(folder, "scheduler", "--port", "0", "--scheduler-file", str(file))
        until = time.monotonic() + 60
        while not file.exists() or not file.read_text().endswith("}"):
            assert time.monotonic() < until, "the scheduler does not start"
            time.sleep(0.05)
        self.address = json.loads(file.read_text())["address"]
        for _ in range(workers):
            self._dask(folder, "worker", self.address, "--nthreads", "1", "--no-nanny")
        self.workers = self.processes[1:]

    def _dask(self, folder: Path, *words: str) -> None:
        command = [sys.executable, "-m", "dask", *words, "--no-dashboard"]
        with open(folder / f"{words[0]}{len(self.processes)}.log", "wb") as log:
            self.processes.append(
                subprocess.Popen(
                    command, cwd=folder, env=support.bare_environment(), stdout=log, stderr=log
                )
            )

    def wait(self, workers: int) -> None:
        """Waits until so many workers are there."""
        connect: Any = importlib.import_module("distributed").Client
        with connect(self.address, set_as_default=False) as client:
            client.wait_for_workers(workers, timeout=60)

    def end(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()


@contextmanager
def started(folder: Path, workers: int) -> Iterator[Cluster]:
    cluster = Cluster(folder, workers)
    try:
        if workers:
            cluster.wait(workers)
        yield cluster
    finally:
        cluster.end()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with started(tmp_path_factory.mktemp("dask"), 2) as found:
        yield found.address


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two jobs of digests; one of few ranks with contents and events; one with GPU times."""
    folder = tmp_path_factory.mktemp("runs")
    write(folder / "a", Job(RANKS, 30, 40, own=2, fault=(5, 12, 39)))
    write(folder / "b", Job(RANKS, 30, 40, own=2))
    for rank in range(3):
        writer = Writer(folder / "full", rank)
        writer.function(7, "scale")
        for region in range(4):
            writer.born(region, bytes(3 * BLOCK_SIZE))
        for step in range(6):
            for n in range(rank + 2):
                writer.event("launch", "cuLaunchKernel", id=7, grid=[n + 1, 1, 1], time_ns=step)
            for region in range(4):
                data = np.random.default_rng([rank, step, region]).random(3 * BLOCK_SIZE // 4, "f4")
                if (rank, step, region) == (0, 4, 2):
                    data[17] = np.nan
                writer.write(region, 0, data.tobytes())
            writer.epoch()
        place = {"rank": rank, "local_rank": rank, "world_size": 3, "node": "n", "job": "j"}
        writer.close(rank={**place, "launcher": "torchrun", "visible_devices": ""})
    timed_job(folder / "timed")
    return folder


def plain(found: Any) -> Any:
    """What does not depend on time."""
    if isinstance(found, pd.DataFrame):
        return found.to_dict("records")
    if hasattr(found, "seconds"):
        found = replace(found, seconds=0.0)
    return json.loads(found.to_json()) if hasattr(found, "to_json") else found


CALLS: dict[str, Callable[[Path, str | None], Any]] = {
    "replicas": lambda runs, at: tt.replicas(tt.open(runs / "a"), cluster=at),
    "replicas of some": lambda runs, at: tt.replicas(tt.open(runs / "a"), [0, 5, 7], cluster=at),
    "diff": lambda runs, at: tt.diff(runs / "a", runs / "b", cluster=at),
    "verify": lambda runs, at: tt.verify(tt.open(runs / "full"), cluster=at),
    "verify a part": lambda runs, at: tt.verify(
        tt.open(runs / "full"), epochs=(2, 4), regions=[1, 3], keep_going=True, cluster=at
    ),
    "verify another": lambda runs, at: tt.verify(
        tt.open(runs / "full"), tamper=(3, 1, 70000), keep_going=True, cluster=at
    ),
    "breakdown": lambda runs, at: tt.breakdown(tt.open(runs / "timed"), cluster=at),
    "count": lambda runs, at: tt.query(
        tt.open(runs / "full"), group_by=["rank", "kind"], count=True, sum=["seq"], cluster=at
    ),
    "mean": lambda runs, at: tt.query(
        tt.open(runs / "full"), group_by=["kernel"], mean=["seq"], max=["seq"], cluster=at
    ),
    "no rows": lambda runs, at: tt.query(
        tt.open(runs / "full"), filter="seq < 0", count=True, cluster=at
    ),
    "rows": lambda runs, at: tt.query(
        tt.open(runs / "full"), filter="rank > 0", fields=["rank", "seq", "kind"], cluster=at
    ),
    "sorted": lambda runs, at: tt.query(
        tt.open(runs / "full"), sort=["-seq"], top=7, fields=["rank", "kernel"], cluster=at
    ),
    "tail": lambda runs, at: tt.query(tt.open(runs / "full"), table="epochs", tail=9, cluster=at),
    "regions": lambda runs, at: tt.query(tt.open(runs / "full"), table="regions", cluster=at),
    "several": lambda runs, at: tt.query(
        open_sources([runs / "a", runs / "full"]),
        table="epochs",
        group_by=["file", "rank"],
        count=True,
        cluster=at,
    ),
}


@pytest.mark.whole
@pytest.mark.parametrize("call", CALLS)
def test_answers_are_those_of_this_process(call: str, cluster: str, runs: Path) -> None:
    assert plain(CALLS[call](runs, cluster)) == plain(CALLS[call](runs, None))


def test_nan_is_found_on_a_cluster(
    cluster: str, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through the command line, which takes the address from the environment as well."""
    words = ["blame", str(runs / "full"), "--watch", "nan", "--dtype", "f32", "--rank", "0"]
    here = support.ttanalyze(*words)
    assert here.status == 0 and "17" in here.stdout
    assert support.ttanalyze(*words, "--cluster", cluster).stdout == here.stdout
    there = support.bare_environment(DASK_SCHEDULER_ADDRESS=cluster)
    assert support.ttanalyze(*words, environment=there).stdout == here.stdout


def test_a_lost_worker_loses_no_result(tmp_path: Path, runs: Path) -> None:
    """One of two workers is killed after the first results."""
    with started(tmp_path, 2) as found:
        done: list[int] = []

        def progress(count: int, total: int) -> None:
            if not done:
                os.kill(found.workers[0].pid, signal.SIGKILL)
            done.append(count)

        report = tt.replicas(tt.open(runs / "a"), cluster=found.address, progress=progress)
        assert found.workers[0].wait(10) == -signal.SIGKILL
    assert plain(report) == plain(tt.replicas(tt.open(runs / "a")))
    assert done == sorted(done) and done[-1] == RANKS - 1


def test_files_that_a_worker_does_not_see(cluster: str, runs: Path, tmp_path: Path) -> None:
    timed_job(tmp_path / "run")
    opened = tt.open(tmp_path / "run")
    (tmp_path / "run").rename(tmp_path / "moved")
    with pytest.raises(Error) as raised:
        tt.breakdown(opened, cluster=cluster)
    said = str(raised.value)
    assert said.startswith(f"{tmp_path / 'run'}/p") and ": not there on " in said
    assert "same path, or at a URL" in said
    assert cluster.partition("://")[0] in said and "\n" not in said


def test_bad_clusters_are_one_line(tmp_path: Path, runs: Path, cluster: str) -> None:
    def said(address: str) -> str:
        outcome = support.ttanalyze("replicas", runs / "a", "--cluster", address)
        assert outcome.status == 2 and outcome.stderr.count("\n") == 1, outcome.stderr
        return outcome.stderr

    assert "no dask scheduler answers; start it with `dask scheduler`" in said("tcp://127.0.0.1:9")
    assert "not an address, such as tcp://node0:8786" in said("frob://x:1")
    assert "no certificates; configure distributed.comm.tls of dask" in said("tls://127.0.0.1:9")
    with socket.create_server(("127.0.0.1", 0)) as silent:  # one of another kind
        address = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        assert "no dask scheduler answers; start it with `dask scheduler`" in said(address)
    with started(tmp_path, 0) as empty:
        assert f"start some with `dask worker {empty.address} --nthreads 1`" in said(empty.address)
