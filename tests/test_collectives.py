"""Collectives of NCCL: read from what its ranges and kernels say, and matched across ranks."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import ttanalyze as tt
from tests import support
from tests.rundir import Writer
from tests.test_breakdown import NCCL, Timed
from ttanalyze.core.clocks import clocks
from ttanalyze.errors import Error

COMMUNICATOR, NONE = 0xABCDEF0123, 0xFFFFFFFF
MEBI = 1 << 20


class Rank(Timed):
    """A rank that calls NCCL as PyTorch does."""

    def __init__(self, run: Path, rank: int) -> None:
        super().__init__(run, rank)
        self.function(7, NCCL)
        self.function(8, "gemm")

    def said(self, name: str, members: bytes, time: int) -> int:
        """A range of NCCL begins."""
        raw = np.frombuffer(members.ljust(32, b"\0"), "<u4")
        return self.event(
            "range-push",
            id=self.string(name),
            dst=self.string("NCCL"),
            time_ns=time,
            bytes=int(raw[:2].view("<u8")[0]),
            grid=[7, 0, len(members)],
            block=raw[2:5].tolist(),
            cluster=raw[5:8].tolist(),
        )

    def reduce(
        self,
        time: int,
        size: int = MEBI,
        operation: int = 0,
        ended: int | None = None,
        name: str = "AllReduce",
        left: bool = True,
    ) -> None:
        """A call, its kernel, and the return. ended: when the kernel ended; None: unknown."""
        words = np.array([COMMUNICATOR, size], "<u8").tobytes()
        rest = np.array([operation, 0], "<i4").tobytes() if name != "AllGather" else b""
        self.said(f"nccl{name}", words + rest, time)
        seq = self.event("launch", "cuLaunchKernel", id=7, time_ns=time + 1, grid=[1, 1, 1])
        if ended is not None:
            self.activity("launch", seq, time + 10, ended, NCCL, device=0)
        if left:
            self.event("range-pop", dst=self.string("NCCL"), id=self.string(f"nccl{name}"))


def with_memory(run: Path, rank: int, *sizes: int) -> Rank:
    """A rank with regions of zeros, after its first epoch."""
    writer = Rank(run, rank)
    for region, size in enumerate(sizes):
        writer.born(region, bytes(size))
    writer.epoch("sync", "full")
    return writer


def test_calls_are_rows(tmp_path: Path) -> None:
    writer = Rank(tmp_path / "run", 0)
    writer.reduce(1000, ended=1500, operation=4)
    writer.reduce(2000, 4096, name="AllGather")
    writer.said("ncclSend", np.array([COMMUNICATOR, 64, 3], "<u8").tobytes(), 3000)
    writer.event("launch", "cuLaunchKernel", id=8)  # of the program
    writer.close()
    rows = tt.open(tmp_path / "run").collectives
    assert rows["operation"].tolist() == ["AllReduce", "AllGather", "Send"]
    assert rows["number"].tolist() == [0, 1, 0] and rows["bytes"].tolist() == [MEBI, 4096, 64]
    assert set(rows["communicator"]) == {hex(COMMUNICATOR)}
    assert rows["reduction"].tolist()[:1] == ["avg"] and rows["type"].tolist()[:1] == ["f32"]
    assert rows["peer"].tolist()[2] == 3 and rows["gpu_time"][0] == pd.Timedelta(490)
    shown = support.ttanalyze("query", tmp_path / "run", "--table", "collectives", "--json").stdout
    assert len(json.loads(shown)) == 3


def test_kernels_without_ranges_are_rows(tmp_path: Path) -> None:
    writer = Rank(tmp_path / "run", 0)
    for _ in range(2):
        writer.event("launch", "cuLaunchKernel", id=7)
    writer.close()
    rows = tt.open(tmp_path / "run").collectives
    assert rows["operation"].tolist() == ["AllReduce"] * 2 and rows["number"].tolist() == [0, 1]
    assert rows["communicator"].isna().all() and rows["seq"].isna().all()


@pytest.mark.parametrize(
    ("kernel", "operation", "items"),
    [
        (NCCL, "AllReduce", "f32"),
        ("_Z46ncclDevKernel_ReduceScatter_Sum_f8e4m3_RING_LL24ncclDev", "ReduceScatter", "f8e4m3"),
        (
            "_Z43ncclSymkDevKernel_AllReduce_AGxLL_R_sum_f3222ncclSymkDevWorkArgs4K",
            "AllReduce",
            "f32",
        ),
        ("_Z30ncclSymkDevKernel_AllGather_ST22ncclSymkDevWorkArgs4K", "AllGather", None),
        ("_Z38ncclKernel_AllReduce_RING_LL_Sum_floatP11ncclDevCommm", "AllReduce", None),
        ("_Z31ncclDevKernel_Broadcast_RING_LL24ncclDev", "Broadcast", None),
        ("_Z21ncclDevKernel_Generic24ncclDev", "other", None),
    ],
)
def test_kernels_say_what_they_do(
    kernel: str, operation: str, items: str | None, tmp_path: Path
) -> None:
    writer = Rank(tmp_path / "run", 0)
    writer.function(9, kernel)
    writer.event("launch", "cuLaunchKernel", id=9)
    writer.close()
    (row,) = tt.open(tmp_path / "run").collectives.to_dict("records")
    assert row["operation"] == operation
    assert row["type"] == items or (items is None and row["type"] != row["type"])


def test_one_kernel_does_the_work_of_a_group(tmp_path: Path) -> None:
    writer = Rank(tmp_path / "run", 0)
    words = np.array([COMMUNICATOR, 64, 0], "<u8").tobytes()
    for _ in range(3):
        writer.said("ncclAllReduce", words, 1000)
        writer.event("range-pop", dst=writer.string("NCCL"))
    seq = writer.event("launch", "cuLaunchKernel", id=7)
    writer.close()
    assert tt.open(tmp_path / "run").collectives["launch"].tolist() == [seq] * 3


# ---- recorded ----


def recorded(built: Path, run: Path, *arguments: str) -> tt.Run:
    """Two ranks with NVTX and kernels as PyTorch and NCCL have them; an epoch after each sum."""
    program = str(support.build_program("recorder_nccl", built))
    for rank in range(2):
        job = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "here"}
        options = {"epoch": "nvtx:^ncclAllReduce", "contents": "none", "timeline": "cupti"}
        environment = support.recording(support.simulator_environment() | job, run, **options)
        outcome = support.run([program, *arguments], environment)
        assert outcome.status == 0, outcome.stdout + outcome.stderr
    return tt.open(run)


@pytest.mark.native
def test_recorded_collectives_are_checked(built: Path, run_path: Path) -> None:
    run = recorded(built, run_path, "9")
    rows = run.collectives
    assert rows["operation"].tolist() == ["AllReduce"] * 18
    assert set(rows["bytes"]) == {160 << 10} and set(rows["type"]) == {"f32"}
    assert rows["end_seq"].notna().all() and rows["launch"].notna().all()
    report = tt.collectives(run)
    assert report.same and (report.matched, report.checked) == (9, 3)
    assert set(tt.breakdown(run).steps["step"]) >= {f"step {number}" for number in range(9)}


@pytest.mark.native
def test_wrong_result_of_a_recorded_collective_is_found(built: Path, run_path: Path) -> None:
    (wrong,) = tt.collectives(recorded(built, run_path, "9", "7", "1")).wrong
    assert (wrong.number, wrong.region, wrong.block, wrong.groups) == (7, 0, 0, [[0], [1]])


# ---- across ranks ----


def job(path: Path, late: int = 2) -> list[Rank]:
    """Three ranks with four all-reduces each, of which one rank comes late to each."""
    ranks = [Rank(path, rank) for rank in range(3)]
    for number in range(4):
        for rank, writer in enumerate(ranks):
            begin = 10_000 * (number + 1) + (500 if rank == late else 0)
            writer.reduce(begin, ended=10_000 * (number + 1) + 2000)
    return ranks


def test_stragglers_are_named(tmp_path: Path) -> None:
    for rank, writer in enumerate(job(tmp_path / "run")):
        writer.end(rank, 3)
    report = tt.collectives(tt.open(tmp_path / "run"))
    assert report.same and report.matched == 4
    assert report.ranks["last"].tolist() == [0, 0, 4]
    assert report.ranks["late_mean"].astype("i8").tolist() == [0, 0, 500]
    told = support.ttanalyze("collectives", tmp_path / "run")
    assert told.status == 0 and "all collectives fit; 4 matched across ranks" in told.stdout


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"size": 64}, "rank 1: AllReduce of 64 B, f32, sum"),
        ({"operation": 2}, "rank 1: AllReduce of 1.0 MiB, f32, max"),
        ({"name": "ReduceScatter"}, "rank 1: ReduceScatter of 1.0 MiB"),
    ],
)
def test_mismatched_collectives_are_found(wrong: dict[str, int], said: str, tmp_path: Path) -> None:
    for rank, writer in enumerate(job(tmp_path / "run")):
        writer.reduce(90_000, **(wrong if rank == 1 else {}))  # type: ignore[arg-type]
        writer.end(rank, 3)
    told = support.ttanalyze("collectives", tmp_path / "run")
    assert told.status == 1 and "collective 4" in told.stdout and said in told.stdout
    assert "ranks 0, 2: AllReduce of 1.0 MiB" in told.stdout


def test_hang_says_who_is_in_which_collective(tmp_path: Path) -> None:
    """Rank 1 never calls the fifth one; rank 0 is in the call, rank 2 in the kernel."""
    for rank, writer in enumerate(job(tmp_path / "run")):
        more = {}
        if rank != 1:
            writer.reduce(90_000, left=rank != 0)
            call = {"seq": writer.seq - 1, "kind": "launch", "call": "cuLaunchKernel"}
            stream = {"context": 0, "stream": 1, "count": 1, "calls": [call]}
            if rank == 2:
                more = {"incidents": [{"reason": "timeout", "in_flight": [stream], "threads": []}]}
        place = {"rank": rank, "world_size": 3, "node": "n", "job": "j"}
        writer.close(status="signal", reason="timeout", rank=place, **more)
    report = tt.collectives(tt.open(tmp_path / "run"))
    (one,) = report.open
    assert (one.number, one.inside, one.left, one.missing) == (4, [0, 2], [], [1])
    told = support.ttanalyze("collectives", tmp_path / "run").stdout
    assert "ranks 0, 2 are in it; rank 1 did not call it (the last was AllReduce 3)" in told


def test_output_that_differs_on_a_rank_is_found(tmp_path: Path) -> None:
    """Rank 2 has a wrong element after the fourth all-reduce; NCCL's own memory always differs."""
    run = tmp_path / "run"
    for rank in range(3):
        writer = Rank(run, rank)
        for region in (0, 1):
            writer.born(region, bytes(4096))
        writer.name(0, 0, 4096, "grad", "f32")
        writer.epoch("sync", "full")
        for number in range(5):
            writer.reduce(1000 * number, 4096)
            data = np.random.default_rng(number).integers(0, 99, 4096, "u1")
            data[5] += rank == 2 and number == 3
            writer.write(0, 0, data.tobytes())
            writer.write(1, 0, bytes([rank + 1]) * (number + 1))
            writer.epoch("nvtx")
        writer.end(rank, 3)
    report = tt.collectives(tt.open(run))
    (wrong,) = report.wrong
    assert (wrong.number, wrong.names, wrong.groups) == (3, ["grad"], [[0, 1], [2]])
    assert report.checked == 5 and not report.same


def test_output_is_checked_where_other_calls_wrote_too(tmp_path: Path) -> None:
    """Reused memory that agreed a few times is no output; memory that always agreed is."""
    run = tmp_path / "run"
    for rank in range(2):
        writer = with_memory(run, rank, 4096, 4096)
        for number in range(8):
            writer.event("launch", "cuLaunchKernel", grid=[1, 1, 1], block=[32, 1, 1])
            writer.reduce(1000 * number, 4096)
            data = np.random.default_rng(number).integers(0, 99, 4096, "u1")
            writer.write(1, 0, (data + (rank if number > 3 else 0)).tobytes())
            data[5] += rank == 1 and number == 7
            writer.write(0, 0, data.tobytes())
            writer.epoch("nvtx")
        writer.end(rank, 2)
    report = tt.collectives(tt.open(run))
    assert [(one.number, one.region) for one in report.wrong] == [(7, 0)]
    assert report.checked == 3


def test_memory_of_nccl_is_no_output(tmp_path: Path) -> None:
    """A block of it was the same on both ranks, and then is not. The output always is; the ranks
    allocated the two in another order.
    """
    run, size = tmp_path / "run", 4 << 16
    for rank in range(2):
        writer = Rank(run, rank)
        output, own = (0, 1) if rank else (1, 0)
        for region in (0, 1):
            writer.born(region, bytes(size if region == output else size // 2))
        writer.epoch("sync", "full")
        for number in range(9):
            writer.event("launch", "cuLaunchKernel", grid=[1, 1, 1], block=[32, 1, 1])
            writer.reduce(1000 * number, size)
            writer.write(output, 0, np.random.default_rng(number).bytes(size))
            writer.write(own, 0, bytes([number, rank if number > 6 else 0]))
            writer.epoch("nvtx")
        writer.end(rank, 2)
    report = tt.collectives(tt.open(run))
    assert report.same and report.checked == 4


def test_outputs_of_one_size_are_told_apart_by_label(tmp_path: Path) -> None:
    """The ranks allocate two gradients in another order. Rank 1 has a wrong element of one."""
    run, size = tmp_path / "run", 1 << 16
    for rank in range(2):
        writer = Rank(run, rank)
        named = {"a": rank, "b": 1 - rank}
        for name, region in sorted(named.items(), key=lambda one: one[1]):
            writer.born(region, bytes(size), label=name)
        writer.epoch("sync", "full")
        for number in range(12):
            writer.reduce(1000 * number, size)
            data = bytearray(np.random.default_rng(number).bytes(size))
            data[5] ^= rank == 1 and number == 9
            writer.write(named["ab"[number % 2]], 0, bytes(data))
            writer.epoch("nvtx")
        writer.end(rank, 2)
    report = tt.collectives(tt.open(run))
    assert [(one.number, one.region) for one in report.wrong] == [(9, 1)]


def test_output_that_one_rank_lacks_is_found(tmp_path: Path) -> None:
    """Rank 1 keeps what it had, so that its epoch has no change there."""
    run = tmp_path / "run"
    for rank in range(2):
        writer = with_memory(run, rank, 4096)
        for number in range(8):
            writer.event("launch", "cuLaunchKernel", grid=[1, 1, 1], block=[32, 1, 1])
            writer.reduce(1000 * number, 4096)
            if not (rank == 1 and number == 6):
                writer.write(
                    0, 0, np.random.default_rng(number).integers(0, 99, 4096, "u1").tobytes()
                )
            writer.epoch("nvtx")
        writer.end(rank, 2)
    report = tt.collectives(tt.open(run))
    assert [(one.number, one.groups) for one in report.wrong] == [(6, [[0], [1]])]


def test_copy_that_is_reduced_leaves_a_wrong_output(tmp_path: Path) -> None:
    """Rank 1 reduces a copy once. Both ranks always have the same activations, which are larger."""
    run, size = tmp_path / "run", 4 << 16
    for rank in range(2):
        writer = Rank(run, rank)
        for region in (0, 1):
            writer.born(region, bytes(2 * size))
        for number in range(9):
            writer.event("launch", "cuLaunchKernel", grid=[1, 1, 1], block=[32, 1, 1])
            writer.write(1, 0, np.random.default_rng(number).bytes(2 * size))
            writer.reduce(1000 * number, size)
            copy = rank == 1 and number == 7
            writer.write(0, size * copy, np.random.default_rng(100 + number).bytes(size))
            if copy:
                writer.write(0, 0, np.random.default_rng(200).bytes(size))
            writer.epoch("nvtx")
        writer.end(rank, 2)
    report = tt.collectives(tt.open(run))
    assert [(one.number, one.region, one.block) for one in report.wrong] == [
        (7, 0, block) for block in range(4)
    ]
    assert report.checked == 3
    assert any(note.startswith("5 outputs not compared: no memory") for note in report.notes)
    assert any(
        note.startswith("1 output not compared: an epoch right after") for note in report.notes
    )


@pytest.mark.parametrize("flag", ["loose", "dropped", "refused"])
def test_epoch_that_may_be_torn_is_not_compared(flag: str, tmp_path: Path) -> None:
    """What rank 1 holds in such an epoch is no evidence."""
    run = tmp_path / "run"
    for rank in range(2):
        writer = with_memory(run, rank, 4096)
        for number in range(9):
            writer.event("launch", "cuLaunchKernel", grid=[1, 1, 1], block=[32, 1, 1])
            writer.reduce(1000 * number, 4096)
            torn = rank == 1 and number == 7
            writer.write(0, 0, np.random.default_rng(number + 50 * torn).bytes(4096))
            writer.epoch("nvtx", *[flag] * torn)
        writer.end(rank, 2)
    report = tt.collectives(tt.open(run))
    assert report.same and report.checked == 3
    assert "1 output not compared: an epoch is loose, refused or dropped" in report.notes


def test_full_epoch_makes_no_output(tmp_path: Path) -> None:
    """It lists memory that did not change. NCCL's own is the same until then, and differs later."""
    run = tmp_path / "run"
    for rank in range(2):
        writer = with_memory(run, rank, 4096, 4096)
        for number in range(4):
            writer.reduce(1000 * number, 4096)
            writer.write(0, 0, np.random.default_rng(number).bytes(4096))
            if number > 1:
                writer.write(1, 0, bytes([rank + 1]) * number)
            writer.epoch("nvtx", *["full"] * (number == 1))
        writer.end(rank, 2)
    report = tt.collectives(tt.open(run))
    assert report.same and report.checked == 4


def test_memory_without_a_counterpart_is_said(tmp_path: Path) -> None:
    run = tmp_path / "run"
    for rank in range(2):
        writer = with_memory(run, rank, 4096, 8192 if rank else 4096)
        for number in range(2):
            writer.reduce(1000 * number, 4096)
            for region in (0, 1):
                writer.write(region, 0, np.random.default_rng(number).bytes(4096))
            writer.epoch("nvtx")
        writer.end(rank, 2)
    report = tt.collectives(tt.open(run))
    assert report.same and report.checked == 2
    assert any(note.startswith("2 outputs compared only in") for note in report.notes)


def test_clocks_of_two_hosts_are_related_by_collectives(tmp_path: Path) -> None:
    """The second host booted 7 seconds later, and its wall clock is wrong."""
    run, behind = tmp_path / "run", 7_000_000_000
    random = np.random.default_rng(1)
    for rank in range(2):
        writer = Rank(run, rank)
        for number in range(20):
            end = behind + 1_000_000 * (number + 1) + int(random.integers(0, 100)) - rank * behind
            writer.reduce(end - 500, ended=end)
        place = {"rank": rank, "world_size": 2, "node": f"n{rank}", "job": "j"}
        clock = {"boot": f"boot{rank}", "monotonic_ns": 0, "real_ns": rank * 10**9}
        writer.close(rank=place, clock=clock)
    first, second = clocks(tt.open(run).processes).values()
    assert (first.offset_ns, first.error_ns) == (0, 0)
    assert abs(second.offset_ns - behind) < 100 and second.error_ns in range(200)
    with open(tmp_path / "trace.json", "wb") as file:
        traced = tt.trace(tt.open(run), file)
    assert traced.clock_error_ns == second.error_ns
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    ends = [e["ts"] + e["dur"] for e in events if e.get("ph") == "X" and "ncclDev" in e["name"]]
    assert max(ends) - min(ends) < 20_000  # microseconds: 7 s without the common clock
    notes = tt.collectives(tt.open(run)).notes
    assert any("related by collectives, to" in note for note in notes)


def test_bad_input_is_one_line(tmp_path: Path) -> None:
    Writer(tmp_path / "bare").close()
    with pytest.raises(Error, match="no call and no kernel of NCCL"):
        tt.collectives(tt.open(tmp_path / "bare"))
    writers = job(tmp_path / "run")
    for rank, writer in enumerate(writers):
        writer.end(rank, 4)
    assert "not recorded: rank 3" in tt.collectives(tt.open(tmp_path / "run")).notes
