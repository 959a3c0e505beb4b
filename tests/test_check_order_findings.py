"""What the order check says of calls without an order, and which delays confirm it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest

from tests.rundir import TWO_STREAMS_BASE as BASE
from tests.rundir import Writer, two_streams
from ttanalyze.core.order import CAPTURING
from ttanalyze.verbs.check import order, traced_uses
from ttanalyze.verbs.check.findings import Outcome
from ttanalyze.verbs.check.session import Session, Settings
from ttanalyze.verbs.record.series import Recording


class Recorded:
    """A session with one recording. delayed: what the program prints with a delay."""

    def __init__(self, run: Path, delayed: str | None = None, again: str = "") -> None:
        self.folder = run.parent
        self.settings = Settings(("true",), quick=delayed is None)
        self.partial: Outcome | None = None
        self.names: list[str] = []
        self._run = run
        self._printed = {"plain": "", "again": again}
        self._delayed = delayed or ""

    def either(self, *names: str) -> str:
        return names[0]

    def sound(self, recording: Recording) -> Recording:
        return recording

    def plain(self, name: str = "plain", **_: Any) -> Recording:
        self.names.append(name)
        log = self.folder / f"{name}.log"
        log.write_text(self._printed.get(name, self._delayed))
        return Recording(self._run if name == "plain" else self.folder / name, 0, log, 0)


@pytest.fixture
def w(run_path: Path) -> Writer:
    """Two streams, and an allocation that both use."""
    return two_streams(run_path)


def set_(w: Writer, stream: int, at: int = 0, **members: Any) -> int:
    members = {"dst": BASE + at, "bytes": 64, "stream": stream, **members}
    return w.event("set", **members)


def copy(w: Writer, stream: int, at: int = 0, to: int = 256, **members: Any) -> int:
    members = {"src": BASE + at, "dst": BASE + to, "bytes": 64, "stream": stream, **members}
    return w.event("copy", **members)


def examined(w: Writer, **session: Any) -> tuple[Outcome, Recorded]:
    w.close()
    recorded = Recorded(w.run, **session)
    return order.examine(cast("Session", recorded)), recorded


def test_finding_names_the_bytes_and_the_calls(w: Writer) -> None:
    w.epoch("sync", "full")
    first = set_(w, 16, 64)
    second = copy(w, 17, 96)
    w.epoch("sync")
    outcome, _ = examined(w)
    (found,) = outcome.findings
    assert (outcome.status, found.kind, found.certainty) == (
        "found",
        "read after write",
        "possible",
    )
    assert found.memory is not None
    assert (found.memory.region, found.memory.first, found.memory.count) == (0, 96, 32)
    assert found.call is not None and found.call.seq == second
    assert found.details["other"]["seq"] == first and found.details["streams"] == [16, 17]
    assert found.details["missing"] == f"stream 17 does not wait for stream 16 after call {first}"
    assert found.step == "epoch 1"
    assert f"seq.between({first}, {second}) and process == 0" in found.command


def test_finding_after_the_last_epoch_has_no_epoch(w: Writer) -> None:
    w.epoch("sync", "full")
    set_(w, 16)
    copy(w, 17)
    assert examined(w)[0].findings[0].step is None


def test_streams_with_equal_numbers_are_told_apart(w: Writer) -> None:
    """Each thread, and each context, has a stream with this number."""
    first = set_(w, 2, thread=1)
    copy(w, 2, thread=2)
    w.event("sync", stream=0)
    other = set_(w, 16, 0)
    copy(w, 16, context=1)
    outcome, _ = examined(w)
    assert [found.details["missing"] for found in outcome.findings] == [
        f"stream 2 of thread 2 does not wait for stream 2 of thread 1 after call {first}",
        f"stream 16 of context 1 does not wait for stream 16 of context 0 after call {other}",
    ]


def test_only_so_many_findings_are_listed(w: Writer) -> None:
    for number in range(order.LISTED + 1):
        set_(w, 16, stack=number + 1)
        copy(w, 17, to=256 + number, bytes=1, stack=number + 101)
        w.event("sync", stream=0)
    outcome, _ = examined(w)
    assert len(outcome.findings) == order.LISTED
    assert outcome.reason == "1 more pair not listed"


def test_launches_with_unknown_accesses_are_counted(w: Writer) -> None:
    """Those that failed, or only became nodes of a graph, did not run."""
    w.function(0, "k")
    w.event("launch", "cuLaunchKernel", id=0, stream=16)
    w.event("launch", "cuLaunchKernel", id=0, stream=17, result=1)
    w.event("launch", "cuLaunchKernel", id=0, stream=17, flags=CAPTURING)
    copy(w, 17)
    outcome, _ = examined(w)
    assert (outcome.status, outcome.launches, outcome.findings) == ("not covered", 0, [])
    assert outcome.reason.startswith("unknown accesses of 1 launch")


def test_work_in_one_stream_has_an_order(w: Writer) -> None:
    set_(w, 16)
    copy(w, 16)
    outcome, _ = examined(w)
    assert (outcome.status, outcome.reason) == ("clean", "all work is in one stream")


def test_three_streams_without_shared_memory_are_clean(w: Writer) -> None:
    for stream in (16, 17, 18):
        set_(w, stream, 64 * (stream - 16))
    outcome, _ = examined(w)
    assert (outcome.status, outcome.reason) == ("clean", "")


# ---- delays ----


def test_progress_counts_the_recordings_with_delays_and_with_a_trace() -> None:
    assert order.recordings(Settings(("true",))).more == 2 + order.TRIED + traced_uses.MOST
    assert order.recordings(Settings(("true",), quick=True)).more == 0


def test_delays_of_the_legacy_stream_count_calls_of_all_threads(w: Writer) -> None:
    set_(w, 1, 128, thread=1)
    w.event("sync", stream=0)
    set_(w, 1, thread=2)
    copy(w, 17)
    outcome, _ = examined(w, delayed="other")
    written = json.loads(Path(outcome.findings[-1].details["delays"]).read_text())
    assert list(written["launches"]) == ["1:1"]


def test_delay_that_changes_the_output_confirms_a_finding(w: Writer, tmp_path: Path) -> None:
    set_(w, 17)
    set_(w, 16, 128, context=1)
    set_(w, 16, 128)
    w.event("sync", stream=0)
    first = set_(w, 16)
    copy(w, 17)
    outcome, session = examined(w, delayed="other")
    found = outcome.findings[-1]
    assert found.certainty == "confirmed" and session.partial is outcome
    assert found.summary.endswith(f" A delay of call {first} changes the result.")
    written = json.loads(Path(found.details["delays"]).read_text())
    call = {"stream": 16, "number": 1, "delay": 100_000_000, "on": True, "where": "stream"}
    assert (written["launches"], written["kernels"]) == ({"16:1": call}, {})


def test_few_delays_are_tried(w: Writer) -> None:
    for number in range(order.TRIED + 2):
        set_(w, 16, stack=number + 1)
        copy(w, 17, stack=number + 101)
        w.event("sync", stream=0)
    outcome, session = examined(w, delayed="")
    assert session.names == ["plain", "again", *(f"order-{n + 1}" for n in range(order.TRIED))]
    assert {found.certainty for found in outcome.findings} == {"possible"}


def test_nothing_is_delayed_if_runs_differ_anyway(w: Writer) -> None:
    set_(w, 16)
    copy(w, 17)
    outcome, session = examined(w, delayed="other", again="another")
    assert session.names == ["plain", "again"]
    assert outcome.reason == "no delay was tried, as runs differ without any"
    assert outcome.findings[0].certainty == "possible"


def test_writes_of_values_are_not_delayed(w: Writer) -> None:
    w.event("mem-op", "cuStreamWriteValue32_v2", dst=BASE, bytes=4, stream=16)
    copy(w, 17)
    outcome, session = examined(w, delayed="other")
    assert session.names == ["plain"] and outcome.findings[0].certainty == "possible"
