"""Runs of many ranks: parts of the work are done side by side, with the same answers."""

from __future__ import annotations

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import xxhash

import ttanalyze as tt
from bench import generated_job
from bench.generated_job import Job
from tests import support
from tests.rundir import Writer, copy_of
from ttanalyze.errors import FormatError
from ttanalyze.format import process as process_module
from ttanalyze.format import summaries
from ttanalyze.format.files import RecordFile, read_checked
from ttanalyze.format.layout import Array
from ttanalyze.verbs.diff import compare as diff_compare
from ttanalyze.verbs.diff import states
from ttanalyze.verbs.info import ProcessSummary
from ttanalyze.verbs.record import totals
from ttanalyze.verbs.replicas import compare as replicas_compare

RANKS, STEPS, TENSORS, FAULT = 70, 6, 8, (5, 3, 7)


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A job with more ranks than are opened at once, a tensor of each rank alone, and a fault."""
    path = tmp_path_factory.mktemp("job") / "run"
    generated_job.write(path, Job(RANKS, STEPS, TENSORS, own=1, fault=FAULT))
    return path


@pytest.fixture
def side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small runs are worth processes of their own, too."""
    for module in (diff_compare, replicas_compare):
        monkeypatch.setattr(module, "WORTH", 0)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1, 2})


def test_ranks_of_a_large_job_are_listed(job: Path) -> None:
    summary = tt.info(tt.open(job))
    told = [process.rank and process.rank.rank for process in summary.processes]
    assert told == list(range(RANKS)) and {p.epochs for p in summary.processes} == {STEPS}
    assert summary.bytes_on_disk == sum(f.stat().st_size for f in job.rglob("*") if f.is_file())
    assert summary.warnings == []
    shown = support.ttanalyze("info", job)
    assert shown.status == 0 and "node8" not in shown.stdout and "6 more" in shown.stdout


@pytest.fixture(scope="module")
def long_job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A job of two long ranks."""
    path = tmp_path_factory.mktemp("long") / "run"
    generated_job.write(path, Job(2, totals.LONG, 1))
    return path


@pytest.fixture
def no_rank_may_be_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(process: object) -> None:
        raise AssertionError("opened")

    monkeypatch.setattr("ttanalyze.format.run.AT_ONCE", 0)
    monkeypatch.setattr(process_module.Process, "open", fail)


def without_summaries(run: Path, to: Path) -> Path:
    copied = copy_of(run, to)
    for rank in copied.glob("p*"):
        (rank / "summary.json").unlink()
    return copied


def processes_of(run: Path) -> list[ProcessSummary]:
    found: list[ProcessSummary] = tt.info(tt.open(run)).processes
    return found


def test_info_of_long_ranks_reads_their_summaries(
    long_job: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    read = processes_of(without_summaries(long_job, tmp_path / "plain"))
    request.getfixturevalue("no_rank_may_be_opened")
    assert processes_of(long_job) == read and read[1].epochs == totals.LONG
    size = sum(f.stat().st_size for f in long_job.rglob("*") if f.is_file())
    assert tt.info(tt.open(long_job)).bytes_on_disk == size


def test_summary_does_not_count_once_a_file_has_changed(long_job: Path, tmp_path: Path) -> None:
    run = copy_of(long_job, tmp_path / "run")
    raw = bytearray((run / "p1" / "epochs.bin").read_bytes())
    raw[-8] ^= 1
    (run / "p1" / "epochs.bin").write_bytes(raw)
    with pytest.raises(FormatError, match=r"p1/epochs\.bin: offset"):
        tt.info(tt.open(run))


def checked_summary(rest: bytes) -> bytes:
    return summaries.CHECK.format(xxhash.xxh3_64_intdigest(rest)).encode() + rest


@pytest.mark.parametrize("change", [b"", b"{}", b'"epochs":9', checked_summary(b'"x":9}')])
def test_damaged_summary_does_not_count(change: bytes, long_job: Path, tmp_path: Path) -> None:
    run = copy_of(long_job, tmp_path / "run")
    for rank in run.glob("p*"):
        file = rank / "summary.json"
        kept = file.read_bytes()
        told = b'"epochs":%d' % totals.LONG
        assert told in kept
        file.write_bytes(kept.replace(told, change) if change == b'"epochs":9' else change)
    assert processes_of(run) == processes_of(long_job)


def test_merged_ranks_keep_their_summaries(
    long_job: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """And those without one get one."""
    plain = without_summaries(long_job, tmp_path / "plain")
    for number, run in enumerate((long_job, plain)):
        tt.merge([tt.open(run)], tmp_path / f"merged{number}")
    request.getfixturevalue("no_rank_may_be_opened")
    for number in range(2):
        assert processes_of(tmp_path / f"merged{number}") == processes_of(long_job)


def test_recorded_ranks_have_summaries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.setattr(totals, "LONG", 1)
    for name, value in {"RANK": "1", "WORLD_SIZE": "4", "MASTER_ADDR": "node0"}.items():
        monkeypatch.setenv(name, value)
    run = tmp_path / "run"
    assert tt.record(support.command("copy_1d", tmp_path), run, sim=True).status == 0
    read = processes_of(without_summaries(run, tmp_path / "plain"))
    request.getfixturevalue("no_rank_may_be_opened")
    assert processes_of(run) == read and read[0].rank and read[0].rank.rank == 1


def test_threads_open_a_rank_together(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of them opens it, and the others wait for it."""
    began, goes_on = threading.Event(), threading.Event()

    def slow(file: RecordFile) -> Array:
        began.set()
        goes_on.wait(10)
        return read_checked(file)

    monkeypatch.setattr(process_module, "read_checked", slow)
    process = tt.open(job).processes[0]
    with ThreadPoolExecutor(2) as pool:
        asked = [pool.submit(lambda: len(process.epochs))]
        assert began.wait(10)
        asked.append(pool.submit(lambda: len(process.epochs)))
        time.sleep(0.05)
        goes_on.set()
        assert [one.result() for one in asked] == [STEPS, STEPS]


def test_damaged_rank_is_the_same_error_each_time(job: Path, tmp_path: Path) -> None:
    run = copy_of(job, tmp_path / "run")
    (run / "p3" / "epochs.bin").write_bytes(b"no records")
    process = tt.open(run).processes[3]
    for _ in range(2):
        with pytest.raises(FormatError, match=r"epochs\.bin"):
            len(process.epochs)


def test_one_wrong_tensor_among_many_ranks(job: Path, side_by_side: None) -> None:
    report = tt.replicas(tt.open(job))
    (place,) = report.found
    assert (place.odd, place.epoch, place.names) == ([5], 3, ["layers.7.weight"])
    assert report.ranks == list(range(RANKS))


@pytest.mark.long
def test_answers_do_not_depend_on_processes(
    job: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other"
    generated_job.write(other, Job(RANKS, STEPS, TENSORS, own=1))
    ranks = [0, 4, 5, 6]

    def answers() -> list[dict[str, object]]:
        found = (
            tt.diff(tt.open(job, ranks), tt.open(other, ranks)),
            tt.replicas(tt.open(job, ranks)),
        )
        return [{**json.loads(one.to_json()), "seconds": 0} for one in found]

    alone = answers()
    for module in (diff_compare, replicas_compare):
        monkeypatch.setattr(module, "WORTH", 0)
    assert answers() == alone
    monkeypatch.setattr(states, "find_differing", lambda *_: None)
    assert answers() == alone


def test_damage_of_one_rank_is_one_error(job: Path, tmp_path: Path, side_by_side: None) -> None:
    path = tmp_path / "run"
    generated_job.write(path, Job(4, STEPS, TENSORS))
    raw = bytearray((path / "p2" / "blocks.bin").read_bytes())
    raw[64 + 8] ^= 1
    (path / "p2" / "blocks.bin").write_bytes(raw)
    with pytest.raises(FormatError, match=r"p2/blocks\.bin: offset 64: .*do not match"):
        tt.replicas(tt.open(path))


@pytest.mark.parametrize("seed", range(12))
def test_equal_records_are_left_out_rightly(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Random runs: regions that one side lists later, twice changed, unread, refused or freed."""
    random = np.random.default_rng(seed)
    for name in ("a", "b"):
        writer = Writer(tmp_path / name)
        for region in range(5):
            writer.born(region, bytes(70_000 if region == 1 else 4096))
        own = np.random.default_rng(seed if random.random() < 0.2 else [seed, ord(name)])
        for epoch in range(12):
            for region in list(writer.regions):
                if own.random() < 0.6:
                    value = int(own.integers(3)) if own.random() < 0.3 else epoch
                    writer.write(region, int(own.integers(9)), bytes([value]) * 7)
            if epoch == 7 and own.random() < 0.5:
                writer.died(3)
            kind = own.random()
            flags = ["refused"] if kind < 0.1 else ["full"] if kind < 0.2 or not epoch else []
            if kind > 0.9 and epoch:
                writer.epoch("sync", "touched", only=[0, 2])
            else:
                writer.epoch("sync", *flags)
        writer.close()

    def answer() -> dict[str, object]:
        report = tt.diff(tmp_path / "a", tmp_path / "b", every=True)
        return {**json.loads(report.to_json()), "seconds": 0}

    quick = answer()
    monkeypatch.setattr(states, "find_differing", lambda *_: None)
    assert quick == answer()
