"""What only the simulator does: faults on request, strictness, schedules, and what it lacks.

What it has in common with a real driver is in test_conformance.py.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests import support

pytestmark = pytest.mark.native


def outcome(name: str, built: Path, *arguments: str, **variables: str) -> support.Outcome:
    """Runs tests/programs/simonly_NAME.c with TT_SIM_… variables, named without that prefix."""
    program = support.build_program(f"simonly_{name}", built)
    named = {f"TT_SIM_{key.upper()}": value for key, value in variables.items()}
    return support.run([program, *arguments], support.simulator_environment(**named))


def lines(name: str, built: Path, *arguments: str, **variables: str) -> list[str]:
    """The lines that a program printed, which must have ended well."""
    done = outcome(name, built, *arguments, **variables)
    assert done.status == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def results(printed: list[str]) -> list[str]:
    """The results in the lines of a program, without the calls and without CUDA_ERROR_."""
    found = (re.search(r"(?:->|:) CUDA_(?:ERROR_)?(\w+)$", line) for line in printed)
    return [match[1] for match in found if match]


# ---- faults ----


def test_only_the_nth_allocation_fails(built: Path) -> None:
    printed = lines("allocation_fails", built, fault="oom:3")
    assert results(printed) == ["SUCCESS", "SUCCESS", "OUT_OF_MEMORY", "SUCCESS", "SUCCESS"]


def test_failed_launch_ends_its_context(built: Path) -> None:
    done = outcome("launch_fails", built, fault="launch:2")
    assert done.status == 0
    assert results(done.stdout.splitlines()) == [
        *["SUCCESS"] * 4,
        *["LAUNCH_FAILED"] * 4,
        *["SUCCESS"] * 3,
    ]
    assert "after the first: 5 6" in done.stdout
    assert "a new context: 5 6" in done.stdout
    assert "launch made to fail by TT_SIM_FAULT" in done.stderr


def test_named_module_is_refused(built: Path) -> None:
    printed = lines("module_refused", built, fault="oom:900,ptx:bump")
    assert results(printed) == ["INVALID_PTX", "INVALID_PTX", "SUCCESS"]
    assert "log: bump: refused by TT_SIM_FAULT" in printed


def test_slow_copy(built: Path) -> None:
    assert lines("slow_copy", built, fault="slow-copy:50000") == ["slow 1"]


def test_older_driver(built: Path) -> None:
    assert lines("older_driver", built, fault="version:12040") == [
        "version 12040",
        "cuMemAlloc 12040: CUDA_SUCCESS, 0, found",
        "cuMemAlloc 12050: CUDA_ERROR_INVALID_VALUE, 77, nothing",
        "cuMemcpyBatchAsync 12040: CUDA_SUCCESS, 1, nothing",
        "cuCtxCreate 12040: CUDA_SUCCESS, 0, found",
        'cuModuleLoadData(&module, ".version 9.0\\n.target sm_75\\n.address_size 64\\n")'
        " -> CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
        'cuModuleLoadData(&module, ".version 8.4\\n.target sm_75\\n.address_size 64\\n")'
        " -> CUDA_SUCCESS",
    ]


# ---- strictness ----


def test_invalid_addresses_are_refused(built: Path) -> None:
    done = outcome("strict", built)
    assert done.status == 0, done.stdout + done.stderr
    calls = [line for line in done.stdout.splitlines() if "->" in line]
    assert results(calls) == [*["INVALID_VALUE"] * 7, "SUCCESS", *["INVALID_VALUE"] * 2]
    kernels = dict(line.split(": CUDA_") for line in done.stdout.splitlines() if ": CUDA" in line)
    assert kernels == {
        "inside": "SUCCESS",
        "across the end": "ERROR_ILLEGAL_ADDRESS",
        "behind the end": "ERROR_ILLEGAL_ADDRESS",
        "freed": "ERROR_ILLEGAL_ADDRESS",
        "freed in the stream": "ERROR_ILLEGAL_ADDRESS",
        "misaligned": "ERROR_MISALIGNED_ADDRESS",
        "no address": "ERROR_ILLEGAL_ADDRESS",
        "the host's": "ERROR_ILLEGAL_ADDRESS",
        "reserved": "ERROR_ILLEGAL_ADDRESS",
        "mapped without access": "ERROR_ILLEGAL_ADDRESS",
        "mapped to be read": "ERROR_ILLEGAL_ADDRESS",
        "mapped to be written": "SUCCESS",
        "unmapped": "ERROR_ILLEGAL_ADDRESS",
    }
    faults = [line for line in done.stderr.splitlines() if "ILLEGAL_ADDRESS" in line]
    assert len(faults) == 10
    assert all("poke" in line for line in faults)
    for place in ("byte 1000 of", "byte 3 after", "byte 2 of"):
        assert f"{place} an allocation of 1001 bytes" in done.stderr


@pytest.mark.parametrize(
    ("kind", "low", "status"),
    [("device", 0, -11), ("async", 1, -11), ("reserved", 0, -11), ("managed", 0, 0)],
)
def test_host_access(kind: str, low: int, status: int, built: Path) -> None:
    done = outcome("host_access", built, kind)
    assert done.status == status
    if not support.sanitizer_runtimes():  # which have the low addresses for themselves
        assert done.stdout.splitlines()[0] == f"low address {low}"
    assert ("written" in done.stdout) == (status == 0)


def test_free_memory_is_exact(built: Path) -> None:
    total = 64 << 20
    printed = lines("memory", built, memory="64M")
    used = {
        name: total - int(free)
        for name, free in (re.findall(r"^([\w ]+): (\d+) of ", "\n".join(printed), re.M))
    }
    assert f"total {total}" in printed
    assert used == {
        "at first": 0,
        "one byte": 512,
        "513 bytes": 512 + 1024,
        "an array": 512 + 1024 + 4096,
        "all": total,
        "async": 512 + 1024 + 4096 + 1024,
        "at last": 0,
    }
    assert results(printed).count("OUT_OF_MEMORY") == 1


def test_two_simulated_devices(built: Path) -> None:
    printed = lines("two_devices", built, devices="2")
    assert results(printed) == [
        "SUCCESS",  # count
        "INVALID_DEVICE",
        "SUCCESS",  # can access
        "PEER_ACCESS_NOT_ENABLED",
        "SUCCESS",
        "PEER_ACCESS_ALREADY_ENABLED",
        "SUCCESS",  # a kernel writes there
        "INVALID_HANDLE",  # a kernel of the other context
        *["SUCCESS"] * 4,
        "ILLEGAL_ADDRESS",
        "ILLEGAL_ADDRESS",
        "SUCCESS",
    ]
    assert "copied over: 7 101 100" in printed
    assert "and back: 101 7 101 101" in printed


def test_garbage_depends_on_the_seed(built: Path) -> None:
    one, again, other = (lines("garbage", built, seed=seed) for seed in ("1", "1", "2"))
    assert one == again
    assert not set(one) & set(other)
    assert all(" 0 zeros" in line for line in one + other)
    assert len({line.split(", ")[1] for line in one}) == len(one)


# ---- schedules ----


def test_fifo_schedule_runs_in_submission_order(built: Path) -> None:
    assert lines("order", built) == ["last:" + " 9" * 8]


def test_random_schedule_reorders_unordered_work(built: Path) -> None:
    seen = {seed: lines("order", built, schedule="random", seed=seed) for seed in "1234"}
    assert len({tuple(printed) for printed in seen.values()}) == 4
    assert seen["1"] == lines("order", built, schedule="random", seed="1")
    for seed in "12":
        ordered = lines("order", built, "events", schedule="random", seed=seed)
        assert ordered == ["last:" + " 9" * 8]


def test_unordered_kernels_overlap(built: Path) -> None:
    random = {"schedule": "random", "seed": "1"}
    assert lines("overlap", built, **random) != ["mixed: 0"]
    assert lines("overlap", built, **random) == lines("overlap", built, **random)
    assert lines("overlap", built, "ordered", **random) == ["mixed: 0"]
    assert lines("overlap", built) == ["mixed: 0"]


@pytest.mark.parametrize("name", ["pipeline", "async", "graph"])
@pytest.mark.parametrize("seed", ["1", "2", "3"])
def test_ordered_programs_do_not_depend_on_the_schedule(name: str, seed: str, built: Path) -> None:
    command = support.command(f"example-{name}", built)
    fifo = support.run(command, support.simulator_environment())
    environment = support.simulator_environment(TT_SIM_SCHEDULE="random", TT_SIM_SEED=seed)
    assert support.run(command, environment).transcript() == fifo.transcript()


def test_lazy_schedule_runs_work_when_waited_for(built: Path) -> None:
    assert lines("lazy", built) == [
        "at once 0",
        "asked CUDA_ERROR_NOT_READY",
        "asked CUDA_SUCCESS",
        "then 5",
        "watched 1",
    ]


@pytest.mark.parametrize("schedule", ["fifo", "random"])
def test_kernels_set_graph_conditions(schedule: str, built: Path) -> None:
    assert lines("loops", built, schedule=schedule, seed="1") == [
        "a loop of 5, twice, and what comes after it: 10 2 0 0 0 0 0 0",
        "a loop of 4 in a loop of 3: 3 3 12 3 0 0 0 0",
        "a branch and a switch, seven times: 7 4 3 7 1 2 2 0",
        "a loop that does not begin: 0 0 0 0 0 0 0 0",
    ]


def test_concurrent_threads(built: Path) -> None:
    for seed in "123":
        done = outcome("threads", built, schedule="random", seed=seed)
        assert (done.stdout, done.stderr, done.status) == ("done\n", "", 0)


def test_many_operations_and_allocations(built: Path) -> None:
    assert lines("many", built) == ["added 10000", "wrong 0"]


# ---- what it is not ----


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("devices", "17"),
        ("devices", "two"),
        ("memory", "0"),
        ("memory", "1X"),
        ("memory", "-1"),
        ("seed", ""),
        ("schedule", "lifo"),
        ("fault", "oom"),
        ("fault", "oom:x"),
        ("fault", "oom:1,nonsense:2"),
        ("fault", "version:1"),
        ("fault", "ptx:"),
    ],
)
def test_invalid_settings_are_refused(name: str, value: str, built: Path) -> None:
    done = outcome("settings", built, **{name: value})
    assert results(done.stdout.splitlines()) == ["INVALID_VALUE"]
    expected = f"ttanalyze simulator: TT_SIM_{name.upper()}={value} makes no sense"
    assert done.stderr.splitlines() == [expected]


def test_simulator_without_devices(built: Path) -> None:
    assert results(lines("settings", built, devices="0")) == ["NO_DEVICE"]


def test_missing_calls_name_themselves(built: Path) -> None:
    done = outcome("missing_call", built)
    assert results(done.stdout.splitlines()) == [
        "NOT_INITIALIZED",
        "NOT_SUPPORTED",
        "SUCCESS",
        "NOT_SUPPORTED",
        "NOT_SUPPORTED",
    ]
    assert "the same 1" in done.stdout
    assert done.stderr.splitlines() == [
        "ttanalyze simulator: cuTexRefCreate is not supported",
        "ttanalyze simulator: cuIpcGetMemHandle is not supported",
        "ttanalyze simulator: the driver's export table 00000000-0000-0000-0000-000000000000 "
        "is not there: preload libttstatic.so, as record --sim does, or use a GPU",
    ]


def test_unreadable_images_are_refused(built: Path) -> None:
    refused = {line.split(": ")[0]: line.split(": ")[1] for line in lines("images", built)}
    unreadable = "CUDA_ERROR_NO_BINARY_FOR_GPU, CUDA_ERROR_NO_BINARY_FOR_GPU"
    assert refused.pop("as it is") == refused.pop("wrapped") == "CUDA_SUCCESS, CUDA_SUCCESS"
    assert len(refused) == 7
    assert set(refused.values()) == {unreadable}


def test_calls_after_process_exit(built: Path) -> None:
    assert lines("after_exit", built) == ["before 3", "init 0", "count 0", "late 4"]


# ---- traces ----


def test_traces_are_read_while_the_kernel_runs(built: Path) -> None:
    printed = lines("trace", built)
    assert results(printed) == ["INVALID_VALUE"]
    assert [line for line in printed if "->" not in line] == [
        "the next launch: 22 records, 0 lost",
        "the one after it: 0 records, 0 lost",
        "after a launch that failed: 0 records, 0 lost",
        "after a captured launch: 22 records, 0 lost",
        "a full ring: 79998 records, 0 lost",
        "more than it holds: 1, taken: 80042, broken: 0",
        "while it runs: states 1 and 1",
        "at its end: states 2 and 2",
    ]


def test_a_deadlock_lasts_where_that_was_asked_for(built: Path) -> None:
    printed = lines("trace", built, "deadlock", fault="deadlock:1")
    assert printed == [
        "deadlock: the third has state 2; cuStreamQuery(NULL) -> CUDA_ERROR_NOT_READY"
    ]
