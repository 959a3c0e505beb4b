"""Programs of many ranks: which rank a process is, and which are recorded."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ttanalyze as tt
from tests import support
from tests.rundir import Writer
from ttanalyze.errors import Error, FormatError
from ttanalyze.format import manifest
from ttanalyze.format.process_info import MOST_RANKS

pytestmark = pytest.mark.native
SIM = support.simulator_environment()
TORCHRUN = {"TORCHELASTIC_RUN_ID": "job7", "RANK": "1", "LOCAL_RANK": "0", "WORLD_SIZE": "4"}
LAUNCHERS = {
    "torchrun": TORCHRUN,
    "torch.distributed": {"MASTER_ADDR": "job7", "RANK": "1", "LOCAL_RANK": "0", "WORLD_SIZE": "4"},
    "Open MPI": {
        "OMPI_COMM_WORLD_RANK": "1",
        "OMPI_COMM_WORLD_LOCAL_RANK": "0",
        "OMPI_COMM_WORLD_SIZE": "4",
        "PMIX_NAMESPACE": "job7",
    },
    "MPICH": {"PMI_RANK": "1", "MPI_LOCALRANKID": "0", "PMI_SIZE": "4", "SLURM_JOB_ID": "job7"},
    "srun": {
        "SLURM_STEP_ID": "0",
        "SLURM_PROCID": "1",
        "SLURM_LOCALID": "0",
        "SLURM_NTASKS": "4",
        "SLURM_JOB_ID": "job7",
    },
}


def record(built: Path, run: Path, job: dict[str, str], **options: str) -> support.Outcome:
    program = str(support.build_program("exit_return", built))
    return support.run([program], support.recording(SIM | job, run, **options))


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_rank_is_that_of_the_launcher(launcher: str, built: Path, run_path: Path) -> None:
    """Those of Slurm around them are of the outer job."""
    outer = {} if launcher in ("srun", "MPICH") else LAUNCHERS["srun"] | {"SLURM_PROCID": "0"}
    record(built, run_path, outer | LAUNCHERS[launcher] | {"CUDA_VISIBLE_DEVICES": "0"})
    rank = tt.open(run_path).processes[0].rank
    assert rank is not None
    assert (rank.rank, rank.local_rank, rank.world_size) == (1, 0, 4)
    assert (rank.launcher, rank.job, rank.visible_devices) == (launcher, "job7", "0")
    assert rank.node


@pytest.mark.parametrize(
    "wrong",
    [TORCHRUN | {"RANK": "4"}, TORCHRUN | {"RANK": "one"}, {"RANK": "1"}, {"SLURM_PROCID": "0"}],
)
def test_process_without_a_sound_rank_has_none(
    wrong: dict[str, str], built: Path, run_path: Path
) -> None:
    assert record(built, run_path, wrong).stderr == ""
    assert tt.open(run_path).processes[0].rank is None


def test_job_of_too_many_ranks(built: Path, run_path: Path) -> None:
    """Readers list the ranks that are missing, so a run must not make them list any number."""
    record(built, run_path, TORCHRUN | {"WORLD_SIZE": str(MOST_RANKS + 1)})
    assert tt.open(run_path).processes[0].rank is None
    shutil.rmtree(run_path)
    record(built, run_path, TORCHRUN | {"WORLD_SIZE": str(MOST_RANKS)})
    assert len(tt.open(run_path).missing_ranks) == MOST_RANKS - 1
    path = run_path / "p0" / "process.json"
    info = json.loads(path.read_bytes())
    info["rank"]["world_size"] = 1 << 40
    path.write_text(json.dumps(info))
    with pytest.raises(FormatError, match=r"rank\.world_size: more than 1,048,576 ranks"):
        tt.open(run_path)


def test_only_chosen_ranks_are_recorded(built: Path, run_path: Path) -> None:
    for rank in range(4):
        outcome = record(built, run_path, TORCHRUN | {"RANK": str(rank)}, ranks="0,2-3")
        assert (outcome.status, outcome.stderr) == (0, "")
    ranks = [process.rank.rank for process in tt.open(run_path).processes if process.rank]
    assert ranks == [0, 2, 3]
    told = support.ttanalyze("info", run_path).stdout
    assert "not recorded: 1 rank of 4 (1)" in told
    assert [line.split()[0] for line in told.splitlines()[2:5]] == ["0", "2", "3"]
    shown = json.loads(support.ttanalyze("info", "--json", run_path).stdout)
    assert shown["processes"][2]["rank"]["rank"] == 3


def test_ranks_need_a_launcher(built: Path, run_path: Path) -> None:
    outcome = record(built, run_path, {}, ranks="0")
    assert outcome.status == 0 and not run_path.exists()
    assert "not recorded: --ranks 0, and no launcher gave process" in outcome.stderr


@pytest.mark.parametrize("wrong", ["x", "4-2", "1,"])
def test_wrong_ranks_are_refused(wrong: str, run_path: Path) -> None:
    outcome = support.ttanalyze("record", "--sim", "-o", run_path, "--ranks", wrong, "true")
    assert outcome.status == 2 and outcome.stderr.count("\n") == 1
    assert "--ranks" in outcome.stderr


def test_rank_of_a_wrong_type_is_refused(tmp_path: Path) -> None:
    Writer(tmp_path / "run").close(rank={"rank": "1"})
    with pytest.raises(FormatError, match=r"rank\.rank"):
        tt.open(tmp_path / "run")


@pytest.mark.parametrize("rank", [-1, 1 << 20])
def test_rank_that_no_job_has_is_refused(rank: int, tmp_path: Path) -> None:
    Writer(tmp_path / "run").close(rank={"rank": rank})
    with pytest.raises(FormatError, match=r"rank\.rank: expected a rank below 1,048,576"):
        tt.open(tmp_path / "run")


# ---- a `record` in each rank ----


def each_rank(run: Path, *arguments: str | Path, job: str = "job7", ranks: int = 3) -> list[Any]:
    """Starts `ttanalyze record` in each rank of a job, as srun does, and waits for all."""
    command = [sys.executable, "-m", "ttanalyze", "record", "--sim", "-o", str(run), *arguments]
    started = []
    for rank in range(ranks):
        of_job = {"SLURM_PROCID": str(rank), "SLURM_NTASKS": str(ranks), "SLURM_JOB_ID": job}
        bare = support.bare_environment(**support.sanitizer_runtimes())
        environment = {**bare, **of_job, "SLURM_STEP_ID": "0"}
        started.append(
            subprocess.Popen(
                command, env=environment, cwd=support.ROOT, stderr=subprocess.PIPE, text=True
            )
        )
    said = [process.communicate()[1] for process in started]
    return [(process.returncode, text) for process, text in zip(started, said, strict=True)]


def test_ranks_share_one_run_directory(built: Path, tmp_path: Path) -> None:
    run, program = tmp_path / "new" / "run", support.build_program("exit_return", built)
    for rank, (status, said) in enumerate(each_rank(run, program)):
        assert status == tt.open(run).info["exit"]["status"]
        assert said.startswith(f"ttanalyze: rank {rank}: recorded ") and said.count("\n") == 1
    ranks = [process.rank.rank for process in tt.open(run).processes if process.rank]
    assert sorted(ranks) == [0, 1, 2]
    again = each_rank(run, program)
    assert all(status == 2 and "of an earlier job; remove it" in said for status, said in again)
    other = each_rank(run, program, job="job8")
    assert all(status == 2 and "is of another job" in said for status, said in other)
    assert sorted(p.rank.rank for p in tt.open(run).processes if p.rank) == [0, 1, 2]


# ---- one rank of a run ----


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of ranks 0 to 3, whose processes began in another order."""
    path = tmp_path_factory.mktemp("job") / "run"
    for number, rank in enumerate((2, 0, 3, 1)):
        writer = Writer(path, number)
        writer.born(0, bytes([rank]) * 4096, label="weights")
        writer.event("launch", "cuLaunchKernel", grid=[rank, 1, 1], block=[32, 1, 1])
        writer.epoch("sync", "full")
        writer.close(rank={"rank": rank, "world_size": 4, "job": "job7"})
    return path


def test_rank_selects_a_process_in_python(job: Path) -> None:
    run = tt.open(job)
    assert run.process(rank=3).index == 2 and run.process(rank=3).name == "rank 3"
    assert run.read(0, 0, rank=1)[0] == 1
    assert tt.rewind(run, 0, rank=2).process.index == 0
    assert [p.index for p in tt.open(job, ranks=[3, 0]).processes] == [1, 2]
    with pytest.raises(Error, match=r"no rank 4-5 \(there are: 0-3\)"):
        tt.open(job, ranks=[0, 4, 5])
    with pytest.raises(Error, match="not both"):
        run.process(1, rank=1)


@pytest.mark.long
def test_rank_selects_a_process_on_the_command_line(job: Path, tmp_path: Path) -> None:
    out = tmp_path / "weights.npy"
    assert support.ttanalyze("rewind", job, "--epoch", "0", "--rank", "3", "-o", out).status == 0
    assert np.load(out)[0] == 3
    told = support.ttanalyze("blame", job, "--region", "weights", "--rank", "7")
    assert told.status == 2 and told.stderr == f"ttanalyze: {job}: no rank 7 (there are: 0-3)\n"
    query = ("query", job, "--filter", 'kind == "launch"', "--format", "csv", "--no-header")
    assert support.ttanalyze(*query, "--fields", "rank,process").stdout == "2,0\n0,1\n3,2\n1,3\n"
    assert support.ttanalyze(*query, "--rank", "1,3", "--fields", "rank").stdout == "1\n3\n"
    shown = json.loads(support.ttanalyze("info", job, "--rank", "0", "--json").stdout)
    assert [process["process"] for process in shown["processes"]] == [1]


def test_ranks_are_compared_with_equal_ranks(job: Path, tmp_path: Path) -> None:
    """Whatever the order of the processes; a rank that only one run has is named."""
    other = node(tmp_path / "other", [3, 0, 1, 2])
    assert support.ttanalyze("diff", job, other, "--json").status == 1  # launches differ
    report = json.loads(support.ttanalyze("diff", job, other, "--json").stdout)
    assert report["memory_same"]
    assert [(p["process_a"], p["process_b"]) for p in report["processes"]] == [
        *((0, 3), (1, 1), (2, 0), (3, 2)),
    ]
    fewer = node(tmp_path / "fewer", [3, 0])
    assert tt.diff(job, fewer).alone_a == [0, 3]


def test_tables_begin_with_the_rank(job: Path) -> None:
    told = support.ttanalyze("query", job).stdout
    hidden = " ".join(told.partition("not shown (--fields NAME,…): ")[2].split()).split(", ")
    assert told.startswith("rank") and "process" in hidden and "rank" not in hidden


def test_names_have_the_rank(job: Path, tmp_path: Path) -> None:
    out = tmp_path / "trace.json"
    assert support.ttanalyze("trace", job, "-o", out, "--rank", "3").status == 0
    names = [
        e["args"]["name"]
        for e in json.loads(out.read_text())["traceEvents"]
        if "args" in e and "name" in e["args"]
    ]
    assert any(name.startswith("rank 3: ") for name in names)


def test_missing_process_of_a_rank(tmp_path: Path) -> None:
    """The ranks that are there can be looked at."""
    run = node(tmp_path / "run", [0, 1, 2, 3])
    shutil.rmtree(run / "p2")
    told = support.ttanalyze("info", run)
    assert told.status == 2 and told.stderr.count("\n") == 1
    assert told.stderr.endswith("copy p2 from where it was made, or choose ranks\n")
    assert tt.verify(tt.open(run, ranks=[0, 3]), tt.open(run, ranks=[0, 3]).manifest()).same
    with pytest.raises(Error, match=r"no rank 2 \(there are: 0-1, 3\)"):
        tt.open(run, ranks=[2, 3])


def test_run_without_ranks_says_so(tmp_path: Path) -> None:
    Writer(tmp_path / "run").close()
    told = support.ttanalyze("info", tmp_path / "run", "--rank", "0")
    assert told.status == 2 and "no launcher gave ranks" in told.stderr


# ---- runs of several nodes ----


def node(path: Path, ranks: list[int], job: str = "job7", status: int = 0) -> Path:
    """Writes what one node recorded."""
    for number, rank in enumerate(ranks):
        writer = Writer(path, number)
        writer.born(0, bytes([rank]) * 4096)
        writer.epoch("sync", "full")
        writer.close(rank={"rank": rank, "world_size": 4, "job": job})
    info = json.loads((path / "run.json").read_text())
    (path / "run.json").write_text(json.dumps({**info, "exit": {"status": status, "signal": None}}))
    return path


def test_merged_runs_have_the_ranks_of_all(tmp_path: Path) -> None:
    runs = [node(tmp_path / "a", [2, 0]), node(tmp_path / "b", [3, 1], status=9)]
    outcome = support.ttanalyze("merge", *runs, "-o", tmp_path / "job")
    assert outcome.status == 0 and "4 processes, 4 ranks" in outcome.stdout
    merged = tt.open(tmp_path / "job")
    assert [process.rank.rank for process in merged.processes if process.rank] == [0, 1, 2, 3]
    assert [p.info["process"] for p in merged.processes] == [0, 1, 2, 3]
    assert merged.info["exit"]["status"] == 9
    for rank in range(4):
        assert (merged.read(0, 0, process=rank) == rank).all()
    assert tt.verify(merged, merged.manifest()).same
    assert len(tt.open(runs[0]).processes) == 2  # stays as it is


def test_processes_are_compared_by_rank(tmp_path: Path) -> None:
    """Ranks get numbers in the order in which they begin. With --rank the others do not count."""
    one, two = node(tmp_path / "one", [0, 1, 2, 3]), node(tmp_path / "two", [2, 0, 3, 1])
    for path in (one, two):
        (path / "manifest.json").write_text(json.dumps(tt.open(path).manifest()))
    golden = tmp_path / "golden.json"
    golden.write_bytes((one / "manifest.json").read_bytes())
    assert (
        tt.verify(tt.open(two), golden).same and tt.verify(tt.open(two), against=tt.open(one)).same
    )
    given: tuple[list[str | Path], ...] = (["--manifest", golden], ["--against", one], [])
    for more in given:
        told = support.ttanalyze("verify", two, *more, "--rank", "3,1", "--json")
        assert told.status == 0 and json.loads(told.stdout)["processes"] == 2
    assert tt.diff(golden, tt.open(two)).same
    told = support.ttanalyze("diff", golden, two, "--rank", "3")
    assert told.status == 0, told.stdout
    fewer = node(tmp_path / "fewer", [3, 0, 1])
    (difference,) = tt.verify(tt.open(fewer), golden).differences
    assert difference.message == "rank 2 (process 2) is not in the run"


def test_recorded_manifest_has_the_rank(built: Path, run_path: Path) -> None:
    record(built, run_path, TORCHRUN)
    run = tt.open(run_path)
    text = (run_path / "manifest.json").read_text()
    assert manifest.text(run.manifest()) == text and json.loads(text)["processes"][0]["rank"] == 1


@pytest.mark.parametrize(
    ("ranks", "job", "said"),
    [([1, 3], "job7", "both have rank 1 of job job7: merge one of them"), ([1], "other", "")],
)
def test_same_rank_twice_is_refused(ranks: list[int], job: str, said: str, tmp_path: Path) -> None:
    runs = [node(tmp_path / "a", [0, 1]), node(tmp_path / "b", ranks, job)]
    outcome = support.ttanalyze("merge", *runs, "-o", tmp_path / "job")
    assert (outcome.status, said in outcome.stderr) == (2 if said else 0, True)
    assert (tmp_path / "job").exists() == (not said)


def test_merge_replaces_no_run_unasked(tmp_path: Path) -> None:
    runs = [node(tmp_path / "a", [0]), node(tmp_path / "b", [1])]
    outcome = support.ttanalyze("merge", runs[0], "-o", runs[1])
    assert outcome.status == 2 and "exists; choose another name" in outcome.stderr
    assert support.ttanalyze("merge", runs[0], "-o", runs[1], "--force").status == 0
    assert [p.rank.rank for p in tt.open(runs[1]).processes if p.rank] == [0]
    outcome = support.ttanalyze("merge", runs[1], "-o", runs[1], "--force")
    assert outcome.status == 2 and "is one of the runs" in outcome.stderr
    outcome = support.ttanalyze("merge", runs[0], runs[0], "-o", tmp_path / "twice")
    assert outcome.status == 2 and "given twice" in outcome.stderr
    assert not list(tmp_path.glob(".*"))


def test_merge_refuses_what_is_no_part_of_a_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs elsewhere, places in a run, processes that are there twice, and those that run."""
    one, two = node(tmp_path / "one", [0]), node(tmp_path / "two", [1])
    monkeypatch.chdir(tmp_path)  # where a URL would become a directory

    def said(*words: str | Path) -> str:
        outcome = support.ttanalyze("merge", *words)
        assert (outcome.status, outcome.stderr.count("\n")) == (2, 1), outcome.stderr
        return outcome.stderr.removeprefix("ttanalyze: ").rstrip()

    assert said(one, two, "-o", "s3://runs/job") == (
        "s3:/runs/job: a URL; name a directory, and upload it with `ttanalyze push`"
    )
    assert said(one, two, "-o", one / "job").endswith(
        f"is in the run {one}; name a directory outside"
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one", "two"]
    told = json.loads((one / "p0" / "process.json").read_text())
    told |= {"pid": os.getpid(), "clock": {"boot": "x", "monotonic_ns": 1, "real_ns": 1}}
    (one / "p0" / "process.json").write_text(json.dumps(told))
    assert support.ttanalyze("merge", one, two, "-o", tmp_path / "job").status == 0
    again = said(tmp_path / "job", one, "-o", tmp_path / "again")
    assert again.endswith("are the same process: merge one of them")
    told = json.loads((two / "p0" / "process.json").read_text())
    told |= {"pid": os.getpid(), "status": "running"}
    (two / "p0" / "process.json").write_text(json.dumps(told))
    assert said(one, two, "-o", tmp_path / "live") == (
        f"{two}/p0: the process still runs; merge when it has ended"
    )
