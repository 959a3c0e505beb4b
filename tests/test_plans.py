"""What it takes to do recorded work again, and why it can't be: in runs that are written by hand.

tests/test_random_plans.py compares plans of random runs with a model.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

import ttanalyze as tt
from tests.rundir import Writer
from ttanalyze.errors import Error
from ttanalyze.gpu.rebuild.dependency_graph import span
from ttanalyze.gpu.rebuild.steps import Upload
from ttanalyze.verbs.replay.plan import Plan, plan

BASE, HOST, HOST_DST = 0x7F0000000000, 0x5000, 8


class Run:
    """Two regions of 1,024 bytes, the second of some kind, and an epoch; then what a test adds."""

    def __init__(self, path: Path, kind: str = "device") -> None:
        self.path, self.w = path, Writer(path)
        self.w.function(0, "add", param_bytes=8, param_count=1)
        self.w.function(1, "tick", param_bytes=0, param_count=0)
        self.w.born(0, bytes(1024), base=BASE)
        self.w.born(1, bytes(1024), kind, base=BASE + 0x1000)
        self.w.epoch("sync", "full")

    def launch(self, *words: int) -> int:
        raw = struct.pack(f"<{len(words)}Q", *words)
        given: dict[str, Any] = {"id": 0 if words else 1}
        if words:
            given |= {"params": self.w.piece(raw), "params_size": len(raw)}
        return self.w.event("launch", "cuLaunchKernel", **given)

    def upload(self, to: int) -> int:
        return self.w.event("copy", "cuMemcpyHtoD_v2", dst=to, src=HOST, bytes=16)

    def rows(self, to: int, source: int, **members: Any) -> int:
        """A copy of four rows of 16 bytes, which begin 100 bytes behind each other."""
        given = {"grid": (16, 4, 1), "block": (100, 100, 0)} | members
        return self.w.event("copy", "cuMemcpy2D_v2", dst=to, src=source, bytes=64, **given)

    def plan(self, seq: int) -> Plan:
        options = {"TT_PARAMS": "1"}
        self.w.close(options=options, counters={"events": self.w.seq, "events_lost": 0})
        return plan(tt.open(self.path).process(0), seq)


def upload_of(made: Plan) -> Upload:
    (found,) = (step.what for step in made.span.steps if isinstance(step.what, Upload))
    return found


@pytest.mark.parametrize("how", ["launch", "copy"])
def test_earlier_launch_may_not_read_host_written_memory(run_path: Path, how: str) -> None:
    run = Run(run_path, "managed")
    if how == "launch":
        first = run.launch(BASE + 0x1000)
    else:
        first = run.w.event("copy", "cuMemcpyDtoD_v2", dst=BASE, src=BASE + 0x1000, bytes=8)
    seq = run.launch(BASE)
    with pytest.raises(Error, match=f"call {first} before launch {seq} reads region 1, to which"):
        run.plan(seq)


def test_reused_managed_address_is_ordinary_memory(run_path: Path) -> None:
    run = Run(run_path, "managed")
    run.w.died(1)
    run.w.born(2, bytes(1024), base=BASE + 0x1000)
    assert run.plan(run.launch(BASE + 0x1000)).before == 0


def test_stream_wait_value_changes_no_memory(run_path: Path) -> None:
    run = Run(run_path)
    seq = run.launch(BASE)
    run.w.event("mem-op", "cuStreamWaitValue32_v2", src=HOST)
    run.w.epoch("sync")
    assert run.plan(seq).after == 1


def test_rows_copied_to_the_host_need_no_contents(run_path: Path) -> None:
    run = Run(run_path)
    run.rows(HOST, BASE, flags=HOST_DST, grid=(0, 0, 0))
    assert run.plan(run.launch(BASE)).prepare == []


def test_row_copies_overwrite_host_copies(run_path: Path) -> None:
    """Though they lie further behind than the copy has bytes; what is between them stays."""
    run = Run(run_path)
    run.upload(BASE + 300)
    seq = run.launch(BASE)
    rows = run.rows(BASE, BASE + 0x1000)
    run.w.epoch("sync")
    with pytest.raises(Error, match=rf"call {rows} \(cuMemcpy2D_v2\) wrote there before epoch"):
        run.plan(seq)


def test_rows_of_unknown_pitch_may_overwrite(run_path: Path) -> None:
    run = Run(run_path)
    run.upload(BASE + 300)
    seq = run.launch(BASE + 0x1000)
    rows = run.rows(BASE, BASE + 0x1000, grid=(0, 0, 0))
    run.w.epoch("sync")
    assert upload_of(run.plan(seq)).doubt == f"cuMemcpy2D_v2 (call {rows}) writes there"


@pytest.mark.parametrize(("offset", "refused"), [(12, True), (16, False)])
def test_stream_write_values_overwrite_host_copies(
    run_path: Path, offset: int, refused: bool
) -> None:
    run = Run(run_path)
    run.upload(BASE)
    seq = run.launch(BASE + 0x1000)
    run.w.event("mem-op", "cuStreamWriteValue32_v2", dst=BASE + offset, shared=4)
    run.w.epoch("sync")
    if refused:
        with pytest.raises(Error, match="wrote there before epoch 1"):
            run.plan(seq)
    else:
        assert upload_of(run.plan(seq)).doubt == ""


def test_possible_overwrites_are_reported(run_path: Path) -> None:
    run = Run(run_path)
    run.upload(BASE)
    seq = run.launch(BASE + 0x1000)
    other = run.launch()
    run.w.epoch("sync")
    assert upload_of(run.plan(seq)).doubt == f"tick (call {other}) may write there"


def test_host_copies_are_missing_from_epochs_that_skip_the_region(run_path: Path) -> None:
    run = Run(run_path)
    run.upload(BASE)
    seq = run.launch(BASE + 0x1000)
    run.w.epoch("sync", "touched", only=[1])
    run.w.epoch("sync", "touched", only=[0])
    made = run.plan(seq)
    assert (made.after, upload_of(made).epoch) == (1, 2)
    assert [step.seq for step in span(made.process, 0, 2).steps] == [seq - 1, seq]
