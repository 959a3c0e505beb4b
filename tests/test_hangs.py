"""Programs that hang or crash: what was in flight, who submitted it, and the last whole epoch are
told, on standard error and in the run; and each ends as it would without us.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import ttanalyze as tt
from tests import hanging, support
from tests.hanging import check_whole, in_some_limit, report
from tests.rundir import Writer
from ttanalyze.errors import FormatError

pytestmark = pytest.mark.native
SIM = support.simulator_environment()
Hang = Callable[..., support.Outcome]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Where to record to."""
    return tmp_path / "run"


@pytest.fixture
def hang(built: Path, run: Path) -> Hang:
    """Runs recorder_hangs in one of its ways, as hanging.hang does."""
    program = str(support.build_program("recorder_hangs", built))

    def start(how: str, number: int = 0, after: float = 0.2, **options: str) -> support.Outcome:
        environment = support.recording(SIM, run, **options)
        return hanging.hang([program, how], environment, number, after)

    return start


def incident(run: Path) -> dict[str, Any]:
    (found,) = tt.open(run).processes[0].info["incidents"]
    assert isinstance(found, dict)
    return found


# ---- signals ----


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT])
def test_signal_during_a_hang_is_reported(number: signal.Signals, hang: Hang, run: Path) -> None:
    outcome = hang("spin", number)
    assert outcome.status == -number
    assert outcome.stdout == "hangs\n"
    assert report(outcome) == [
        f"ended by signal {int(number)} ({number.name}), with work in flight",
        "  stream 16: 3 calls, the first spin<<<4, 32>>> (call 15, AGO)",
        "  no call stacks: --cpu-callstack auto records them",
        "  the main thread is in cuStreamSynchronize",
        "  last complete epoch: 0 (call 13, AGO)",
    ]
    check_whole(run, "signal", f"signal {int(number)}")
    told = incident(run)
    assert (told["reason"], told["call"], told["answered"]) == (f"signal {int(number)}", None, True)
    (stream,) = told["in_flight"]
    assert (stream["context"], stream["stream"], stream["count"]) == (0, 16, 3)
    calls = stream["calls"]
    assert [(c["seq"], c["kind"], c["kernel"]) for c in calls] == [
        (15, "launch", "spin"), (16, "launch", "add"), (17, "launch", "add")
    ]  # fmt: skip
    assert calls[0]["grid"] == [4, 1, 1]
    assert calls[0]["block"] == [32, 1, 1]
    assert calls[0]["submitted_ns"] < told["time_ns"]
    assert [thread["call"] for thread in told["threads"]] == ["cuStreamSynchronize"]


def test_signal_without_work_in_flight_is_reported(hang: Hang, run: Path) -> None:
    outcome = hang("idle", signal.SIGTERM)
    assert outcome.status == -signal.SIGTERM
    assert report(outcome) == [
        "ended by signal 15 (SIGTERM), nothing in flight",
        "  last complete epoch: 0 (call 13, AGO)",
    ]
    check_whole(run, "signal", "signal 15")
    assert incident(run)["in_flight"] == []


@pytest.mark.parametrize(("how", "number"), [("abort", signal.SIGABRT), ("segv", signal.SIGSEGV)])
def test_host_crash_is_reported(how: str, number: signal.Signals, hang: Hang, run: Path) -> None:
    outcome = hang(how)
    assert outcome.status == -number
    first, second, *_, last = report(outcome)
    assert first.startswith(f"ended by signal {int(number)} ({number.name}), with work in flight")
    assert second == "  stream 16: spin<<<4, 32>>> (call 14, AGO)"
    assert last == "  last complete epoch: 0 (call 13, AGO)"
    check_whole(run, "signal", f"signal {int(number)}")


@pytest.mark.parametrize("how", ["release", "reset", "dump"])
def test_signal_while_the_recorder_waits(how: str, hang: Hang, run: Path) -> None:
    """The thread that takes the signal is the one that captures."""
    outcome = hang(how, signal.SIGTERM)
    assert outcome.status == -signal.SIGTERM
    assert report(outcome)[0].startswith("ended by signal 15 (SIGTERM), with work in flight")
    check_whole(run, "signal", "signal 15")


def test_handler_of_the_program_runs(hang: Hang, run: Path) -> None:
    """It lets the kernel go, and the program ends in order: nothing is reported."""
    outcome = hang("handler", signal.SIGTERM)
    assert outcome == support.Outcome("hangs\nlet go\n", "", 3)
    assert tt.open(run).processes[0].status == "complete"
    assert tt.open(run).processes[0].info["incidents"] == []


@pytest.mark.long
@pytest.mark.parametrize("options", [{}, {"epoch": "sync,launch:50", "cpu_callstack": "backtrace"}])
def test_report_while_streams_and_events_are_destroyed(
    options: dict[str, str], built: Path, tmp_path: Path
) -> None:
    """The report never asks the driver about destroyed objects."""
    command = [str(support.build_program("recorder_hangs", built)), "threads"]
    for i in range(8):
        run = tmp_path / str(i)
        environment = support.recording(SIM, run, **options)
        outcome = hanging.hang(command, environment, signal.SIGTERM, after=i / 50)
        assert outcome.status == -signal.SIGTERM
        check_whole(run, "signal", "signal 15")
        assert report(outcome)[0].startswith("ended by signal 15 (SIGTERM)")
        assert len(report(outcome)) < 60


# ---- what is in flight ----


def test_program_events_show_completed_work(hang: Hang) -> None:
    assert report(hang("event", signal.SIGTERM))[1] == (
        "  stream 16: 2 calls, the first spin<<<4, 32>>> (call 17, AGO)"
    )


def test_timeline_shows_completed_work(hang: Hang) -> None:
    first = "  stream 16: {} calls, the first {} (call {}, AGO)"
    assert report(hang("queue", signal.SIGTERM))[1] == first.format(4, "fill<<<16, 64>>>", 14)
    timed = report(hang("queue", signal.SIGTERM, timeline="events"))
    assert timed[1] == first.format(2, "spin<<<4, 32>>>", 16)


def test_report_names_the_stream_waited_for(hang: Hang, run: Path) -> None:
    lines = report(hang("behind", signal.SIGTERM))
    assert lines[1:3] == [
        "  stream 16: spin<<<4, 32>>> (call 14, AGO)",
        "  stream 17: 2 calls, the first add<<<16, 64>>> (call 17, AGO), waits for stream 16",
    ]
    assert incident(run)["in_flight"][1]["behind"] == {"context": 0, "stream": 16}
    assert incident(run)["in_flight"][1]["calls"][1]["bytes"] == 4


def test_report_of_many_streams(hang: Hang, run: Path) -> None:
    lines = report(hang("streams", signal.SIGTERM))
    assert len(lines) < 16
    assert "  and work in 92 more streams" in lines
    told = incident(run)
    assert told["streams"] == 100
    assert len(told["in_flight"]) == 64


def test_report_of_a_full_launch_queue(hang: Hang, run: Path) -> None:
    lines = report(hang("launches", signal.SIGTERM, after=1))
    assert re.fullmatch(r"  stream 16: \d{3,} calls, the first spin<<<.*", lines[1])
    assert "  the main thread is in cuLaunchKernel" in lines
    assert len(incident(run)["in_flight"][0]["calls"]) == 8


@pytest.mark.long
def test_report_of_very_many_calls(hang: Hang, run: Path) -> None:
    line = report(hang("many calls", signal.SIGTERM, after=1, epoch="none"))[1]
    assert re.match(r"  stream 16: 65\d{3} or more calls, the first known add<<<1, 64>>> ", line)
    assert incident(run)["in_flight"][0]["more"]
    told = support.ttanalyze("info", run).stdout
    assert re.search(r"stream 16: 65,\d{3} or more calls, the first known add<<<", told)


def test_report_of_an_old_call(hang: Hang, run: Path) -> None:
    """The last call of a thread, 70 000 calls of another ago."""
    lines = report(hang("long ago", signal.SIGTERM, epoch="none"))
    assert lines[1] == "  stream 16: cuStreamWaitValue32_v2 (call 14, AGO)"
    assert len(incident(run)["in_flight"]) == 1


@pytest.mark.parametrize(
    ("how", "kind", "first"),
    [
        ("graph", "graph-launch", "cuGraphLaunch (call 19, AGO)"),
        ("value", "mem-op", "2 calls, the first cuStreamWaitValue32_v2 (call 14, AGO)"),
        ("cpp", "launch", "outer::(anonymous namespace)::inner<...><<<4, 32>>> (call 14, AGO)"),
    ],
)
def test_report_of_copies_and_sets(how: str, kind: str, first: str, hang: Hang, run: Path) -> None:
    assert report(hang(how, signal.SIGTERM))[1] == f"  stream 16: {first}"
    (stream,) = incident(run)["in_flight"]
    assert stream["calls"][0]["kind"] == kind


def test_report_of_a_per_thread_stream(hang: Hang) -> None:
    line = report(hang("thread", signal.SIGTERM))[1]
    assert re.match(r"  default stream of thread \d+: spin<<<4, 32>>> ", line)


def test_report_without_recorded_calls(hang: Hang, run: Path) -> None:
    assert report(hang("spin", signal.SIGTERM, events="0"))[1:3] == [
        "  stream 16: work of unrecorded calls",
        "  calls are not recorded (--no-events)",
    ]
    check_whole(run, "signal", "signal 15")


@pytest.mark.long
def test_epoch_behind_a_hang_is_cancelled(hang: Hang, run: Path) -> None:
    """It is given up; those before it are in the run."""
    outcome = hang("spin", signal.SIGTERM, epoch="launch", stall_ms="500")
    assert outcome.status == -signal.SIGTERM
    lines = report(outcome)
    assert "  stream 16: 3 calls, the first spin<<<4, 32>>> (call 15, AGO)" in lines
    assert re.fullmatch(r"  last complete epoch: [12] \(call 1\d, AGO\)", lines[-1])
    check_whole(run, "signal", "signal 15")


@pytest.mark.long
def test_flight_recorder_saves_epochs_before_a_hang(hang: Hang, run: Path) -> None:
    """Epochs in the ring from before the hang go into the run."""
    hang("value", signal.SIGTERM, epoch="launch", overwrite="drop-oldest", stall_ms="500")
    check_whole(run, "signal", "signal 15")
    opened = tt.open(run)
    assert not opened.epochs["dropped"].any()
    before = opened.epochs[~opened.epochs["refused"]]
    assert len(before) >= 2


@pytest.mark.long
def test_exit_behind_a_hang_prints_no_report(hang: Hang, run: Path) -> None:
    """No signal, no report; the last epoch would come after work that never ends."""
    outcome = hang("exit", stall_ms="300")
    assert (outcome.stdout, outcome.status) == ("hangs\n", 0)
    assert "ended by" not in outcome.stderr
    check_whole(run, "complete", None)


# ---- who ----

PYTHON = """
import ctypes, sys

cuda = ctypes.CDLL("libcuda.so.1")
PTX = b'''.version 6.3
.target sm_70
.address_size 64
.visible .entry spin() { LOOP: bra LOOP; }
'''

def step(kernel):
    cuda.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, None, None, None)

def main():
    context, module, kernel = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    cuda.cuInit(0)
    cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
    cuda.cuCtxSetCurrent(context)
    cuda.cuModuleLoadData(ctypes.byref(module), PTX)
    cuda.cuModuleGetFunction(ctypes.byref(kernel), module, b"spin")
    step(kernel)
    print("hangs", flush=True)
    cuda.cuCtxSynchronize()

main()
"""


# A kernel of a library that is loaded before there is a context, so that no call of the program
# tells the recorder that it may need something in that context.
LIBRARY = {
    "cuCtxSetCurrent(context)": "cuLibraryLoadData(ctypes.byref(module), PTX, *[None] * 6)",
    "cuModuleLoadData(ctypes.byref(module), PTX)": "cuCtxSetCurrent(context)",
    "cuModuleGetFunction": "cuLibraryGetKernel",
}


@pytest.mark.parametrize("changes", [{}, LIBRARY], ids=["module", "library"])
@in_some_limit(0.3, 3, 20)
def test_exit_behind_a_hang_without_any_wait(
    limit: float, changes: dict[str, str], run: Path, tmp_path: Path
) -> None:
    source = PYTHON.replace("cuda.cuCtxSynchronize()", "pass")
    for old, new in changes.items():
        source = source.replace(old, new)
    (tmp_path / "hanging.py").write_text(source)
    environment = support.recording(SIM, run, stall_ms=f"{limit}s")
    outcome = support.run([sys.executable, str(tmp_path / "hanging.py")], environment)
    assert (outcome.stdout, outcome.status) == ("hangs\n", 0)
    assert report(outcome)[-1] == "work of the program did not end: the last epoch is missing"
    (process,) = tt.open(run).processes
    assert process.status == "complete"
    assert process.info["losses"] == ["work of the program did not end: the last epoch is missing"]


def test_report_has_python_lines(run: Path, tmp_path: Path) -> None:
    script = tmp_path / "hanging.py"
    script.write_text(PYTHON)
    environment = support.recording(SIM, run, cpu_callstack="python")
    outcome = hanging.hang([sys.executable, str(script)], environment, signal.SIGTERM)
    assert report(outcome) == [
        "ended by signal 15 (SIGTERM), with work in flight",
        "  default stream: spin<<<1, 1>>> (call 2, AGO)",
        "      step (hanging.py:12)",
        "      main (hanging.py:21)",
        "      <module> (hanging.py:25)",
        "  the main thread is in cuCtxSynchronize",
        "      main (hanging.py:23)",
        "      <module> (hanging.py:25)",
        "  no epoch is complete",
    ]
    told = support.ttanalyze("info", run)
    assert "crash report  signal 15, with work in flight\n" in told.stdout
    assert "              step (hanging.py:12)\n" in told.stdout
    assert "the main thread was in cuCtxSynchronize\n" in told.stdout
    summary = json.loads(support.ttanalyze("info", run, "--json").stdout)["processes"][0]
    (call,) = summary["incidents"][0]["in_flight"][0]["calls"]
    assert call["name"] == "spin"
    assert call["frames"] == [
        "step (hanging.py:12)", "main (hanging.py:21)", "<module> (hanging.py:25)"
    ]  # fmt: skip
    assert summary["last_epoch"] is None


@pytest.mark.long
def test_info_demangles_kernel_names(hang: Hang, run: Path) -> None:
    hang("cpp", signal.SIGTERM, cpu_callstack="backtrace")
    told = support.ttanalyze("info", run).stdout
    assert "outer::(anonymous namespace)::inner<<<4, 32>>> (call 14, " in told
    assert "last epoch    0 (sync, call 13)\n" in told
    summary = json.loads(support.ttanalyze("info", run, "--json").stdout)["processes"][0]
    (call,) = summary["incidents"][0]["in_flight"][0]["calls"]
    assert call["name"] == "void outer::(anonymous namespace)::inner<float>(float*)"
    assert any("recorder_hangs.c:" in frame for frame in call["frames"])
    assert summary["last_epoch"] == {"epoch": 0, "trigger": "sync", "seq": 13}


# ---- lost contexts ----


@pytest.mark.parametrize("epoch", ["sync", "none"])
def test_lost_context_is_reported_once(epoch: str, built: Path, run: Path) -> None:
    """Reported once, with all that may have done it; the program is told as without us."""
    command = [str(support.build_program("recorder_hangs", built)), "fault"]
    bare = support.run(command, SIM)
    assert "cuStreamSynchronize(first) -> CUDA_ERROR_ILLEGAL_ADDRESS\n" in bare.stdout
    outcome = support.run(command, support.recording(SIM, run, epoch=epoch))
    assert (outcome.stdout, outcome.status) == (bare.stdout, bare.status)
    lines = report(outcome)
    assert sum("the context is lost" in line for line in lines) == 1
    error = re.compile("CUDA_ERROR_ILLEGAL_ADDRESS from cu.*: the context is lost, with this work")
    assert any(map(error.match, lines))
    assert "  stream 16: 2 calls, the first poke<<<1, 1>>> (call 17, AGO)" in lines
    assert "    then add<<<16, 64>>> (call 18, AGO)" in lines
    assert "  stream 17: add<<<16, 64>>> (call 16, AGO)" in lines
    assert not any("fill" in line for line in lines)
    process = tt.open(run).processes[0]
    assert process.status == ("failed" if epoch == "sync" else "complete")
    assert incident(run)["reason"] == "CUDA_ERROR_ILLEGAL_ADDRESS"
    streams = incident(run)["in_flight"]
    assert {call["kernel"] for s in streams for call in s["calls"]} == {"poke", "add"}
    assert (
        "crash report  CUDA_ERROR_ILLEGAL_ADDRESS from cu" in support.ttanalyze("info", run).stdout
    )


def test_out_of_memory_is_no_lost_context(built: Path, run: Path) -> None:
    command = support.command("out_of_memory", built)
    outcome = support.run(command, support.recording(SIM, run))
    assert "CUDA_ERROR" not in outcome.stderr
    assert tt.open(run).processes[0].info["incidents"] == []


def test_abort_after_a_reported_error_prints_no_second_report(built: Path, run: Path) -> None:
    """What was said of the error is not said again when the program aborts because of it."""
    command = [str(support.build_program("recorder_hangs", built)), "fault", "abort"]
    outcome = support.run(command, support.recording(SIM, run, epoch="none"))
    assert outcome.status == -signal.SIGABRT
    assert report(outcome)[0].startswith(
        "CUDA_ERROR_ILLEGAL_ADDRESS from cuStreamSynchronize (call "
    )
    assert not any(line.startswith("ended by") for line in report(outcome))
    assert tt.open(run).processes[0].status == "signal"
    assert incident(run)["call"] == "cuStreamSynchronize"


# ---- the time limit ----


LIMITS = (2, 8, 32)  # seconds; the program comes to its hang within one of them


@in_some_limit(*LIMITS)
def test_time_limit_ends_a_hang(limit: float, hang: Hang, run: Path) -> None:
    outcome = hang("spin", timeout=str(limit))
    assert outcome.status == -signal.SIGTERM
    lines, why = report(outcome), f"its time limit of {limit} s"
    assert lines[0] == f"ended by {why}, with work in flight"
    assert lines[1].startswith("  stream 16: 3 calls, the first spin<<<4, 32>>>")
    check_whole(run, "timeout", why)
    assert incident(run)["reason"] == why
    assert f"ended by {why}" in support.ttanalyze("info", run).stdout


@in_some_limit(*LIMITS)
def test_time_limit_runs_the_programs_handler(limit: float, hang: Hang, run: Path) -> None:
    outcome = hang("handler", timeout=str(limit))
    assert (outcome.stdout, outcome.status) == ("hangs\nlet go\n", 3)
    assert report(outcome)[0] == f"ended by its time limit of {limit} s, with work in flight"
    check_whole(run, "timeout", f"its time limit of {limit} s")


def test_time_limit_that_is_not_reached(built: Path, run: Path) -> None:
    command = support.command("loop_progress", built)
    bare = support.run(command, SIM)
    assert support.run(command, support.recording(SIM, run, timeout="1000")) == bare
    assert tt.open(run).processes[0].status == "complete"


@in_some_limit(*LIMITS)
def test_record_with_a_timeout(limit: float, built: Path, run: Path) -> None:
    program = str(support.build_program("recorder_hangs", built))
    arguments = ("record", "--sim", "--timeout", str(limit), "-o", run, "--", program, "spin")
    outcome = support.ttanalyze(*arguments, environment=SIM)
    assert outcome.status == 124
    assert f"ended by its time limit of {limit} s, with work in flight" in outcome.stderr
    assert f"in {run}" in outcome.stderr.splitlines()[-1]
    ending = json.loads((run / "run.json").read_text())["exit"]
    assert (ending["status"], ending["signal"]) == (124, signal.SIGTERM)


@pytest.mark.long
@in_some_limit(*LIMITS)
def test_record_timeout_ends_unrecorded_children(limit: float, built: Path, run: Path) -> None:
    """The recorder comes first; what does not end with its process is ended then."""
    program = str(support.build_program("recorder_hangs", built))
    arguments = ("record", "--sim", "--timeout", str(limit), "-o", run, "--", "sh", "-c")
    outcome = support.ttanalyze(*arguments, f"{program} spin; sleep 60", environment=SIM)
    assert outcome.status == 124
    assert report(outcome)[0] == f"ended by its time limit of {limit} s, with work in flight"
    assert report(outcome)[-2] == f"sh: ended by its time limit of {limit} s"
    check_whole(run, "timeout", f"its time limit of {limit} s")


# ---- where and how it is told ----


def test_closed_standard_error(built: Path, run: Path) -> None:
    program = support.build_program("recorder_hangs", built)
    command = ["sh", "-c", f"exec {program} abort 2>&-"]
    assert support.run(command, support.recording(SIM, run)).status == -signal.SIGABRT
    check_whole(run, "signal", "signal 6")
    assert len(incident(run)["in_flight"]) == 1


def test_failed_recording_prints_no_report(built: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    program = str(support.build_program("recorder_hangs", built))
    environment = support.recording(SIM, tmp_path / "file" / "run")
    outcome = support.run([program, "abort"], environment)
    assert outcome.status == -signal.SIGABRT
    assert len(report(outcome)) == 1
    assert report(outcome)[0].startswith("recording stopped: ")


def test_crash_report_is_written_first(hang: Hang, run: Path) -> None:
    """Whoever kills a program that is slow to end loses no report."""
    hang("spin", signal.SIGTERM)
    info = json.loads((run / "p0" / "process.json").read_text())
    assert info["incidents"][0]["in_flight"]
    assert sorted(os.listdir(run)) == ["manifest.json", "p0", "run.json"]


@pytest.mark.parametrize(
    ("incidents", "what"),
    [
        ({}, "incidents: expected a list"),
        ([{}], r"incidents\[0\].reason: it is missing"),
        ([{"reason": 3}], r"incidents\[0\].reason: expected a string"),
        (
            [{"reason": "x", "in_flight": [3]}],
            r"in_flight: expected a list, each item an object",
        ),
        ([{"reason": "x", "in_flight": [{"context": 0}]}], r"in_flight\[0\].stream: it is missing"),
        (
            [{"reason": "x", "in_flight": [{"context": 0, "stream": 1, "calls": [{"seq": 1}]}]}],
            r"calls\[0\].kind: it is missing",
        ),
        (
            [{"reason": "x", "threads": [{"thread": "1", "call": "f"}]}],
            r"threads\[0\].thread: expected a whole",
        ),
    ],
)
def test_damaged_crash_reports_are_errors(
    small: Writer, run_path: Path, incidents: Any, what: str
) -> None:
    path = run_path / "p0" / "process.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"incidents": incidents}))
    with pytest.raises(FormatError, match=what):
        tt.open(run_path)


def test_escape_sequences_in_reports_are_not_printed(small: Writer, run_path: Path) -> None:
    call = {
        "seq": 1,
        "kind": "launch",
        "call": "\x1b[31m",
        "kernel": "\x1b[2J",
        "grid": [],
        "stack": 99,
    }
    stream = {"context": 0, "stream": 2, "count": 1, "calls": [call]}
    found = {"reason": "\x1b[1m", "in_flight": [stream], "threads": [{"thread": 7, "call": "\x07"}]}
    path = run_path / "p0" / "process.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"incidents": [found]}))
    outcome = support.ttanalyze("info", run_path)
    assert outcome.status == 0
    assert "default stream of thread unknown" in outcome.stdout
    assert not set(outcome.stdout) & {"\x1b", "\x07"}
