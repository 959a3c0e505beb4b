"""Under NVIDIA MPS, where several processes share one server of the GPU: programs behave as without
us, alone and side by side, and within the limits that MPS sets for memory and for processors.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import ttanalyze as tt
from tests import support
from tests.recordings import check_stored, compare

CONTROL = "nvidia-cuda-mps-control"

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.exclusive,
    pytest.mark.skipif(support.gpu_name() is None, reason="needs a GPU"),
    pytest.mark.skipif(shutil.which(CONTROL) is None, reason=f"needs {CONTROL}"),
]

BARE = support.bare_environment()
PROGRAMS = ("example-training", "example-async", "example-graph")


def tell(environment: dict[str, str], command: str) -> support.Outcome:
    """Says something to the daemon, and gives its answer."""
    return support.run(["sh", "-c", f"echo {command} | {CONTROL}"], environment, timeout=60)


@pytest.fixture(scope="module")
def mps(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The environment of clients of a daemon of ours. Settings of the GPU stay as they are."""
    folder = tmp_path_factory.mktemp("mps")
    (folder / "pipe").mkdir()
    (folder / "log").mkdir()
    environment = BARE | {
        "CUDA_MPS_PIPE_DIRECTORY": str(folder / "pipe"),
        "CUDA_MPS_LOG_DIRECTORY": str(folder / "log"),
    }
    began = support.run([CONTROL, "-d"], environment, timeout=60)
    try:
        if began.status:
            pytest.skip(f"{CONTROL} does not start: {began.stdout}{began.stderr}")
        client = support.run(support.command(PROGRAMS[0], built), environment)
        if client.status:
            pytest.skip(f"no program runs under MPS here: {client.stdout}{client.stderr}")
        assert tell(environment, "get_server_list").stdout.strip()  # so it was not run without
        yield environment
    finally:
        tell(environment, "quit")
        for _ in range(100):
            if not (folder / "pipe" / "control").exists():
                break
            time.sleep(0.1)


def check(bare: support.Outcome, recorded: support.Outcome, run: Path) -> tt.Run:
    """Checks that output and status are the same, and the run is complete."""
    assert bare.status == 0, bare.stderr
    compare("", bare, recorded)
    opened = tt.open(run)
    assert [p.status for p in opened.processes] == ["complete"]
    assert not opened.processes[0].info["losses"]
    assert len(opened.epochs) and not opened.epochs["refused"].any()
    check_stored(opened)
    report = tt.verify(opened, run / "manifest.json")
    assert report.same, report.to_json()
    info = support.ttanalyze("info", run)
    assert info.status == 0 and "complete" in info.stdout
    return opened


@pytest.mark.parametrize(
    "options",
    [{}, {"deterministic": "1"}, {"timeline": "events", "params": "1"}, {"timeline": "cupti"}],
    ids=str,
)
@pytest.mark.parametrize("name", PROGRAMS)
def test_program_runs_under_mps(
    name: str, options: dict[str, str], mps: dict[str, str], built: Path, tmp_path: Path
) -> None:
    command, run = support.command(name, built), tmp_path / "run"
    bare = support.run(command, mps)
    check(bare, support.run(command, support.recording(mps, run, **options)), run)


@pytest.mark.parametrize(
    "limits",
    [
        {"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=1G"},
        {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "10"},
    ],
    ids=["memory", "processors"],
)
@pytest.mark.parametrize("name", PROGRAMS[:2])
def test_ring_fits_the_memory_limit_of_mps(
    name: str, limits: dict[str, str], mps: dict[str, str], built: Path, tmp_path: Path
) -> None:
    """The ring takes its share of what the process may have."""
    command, run = support.command(name, built), tmp_path / "run"
    bare = support.run(command, mps | limits)
    opened = check(bare, support.run(command, support.recording(mps | limits, run)), run)
    if "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT" in limits:
        assert opened.processes[0].info["ring"]["bytes"] <= 1 << 28


@pytest.mark.parametrize("together", ["one run", "a run each"])
def test_two_mps_clients_do_not_disturb_each_other(
    together: str, mps: dict[str, str], built: Path, tmp_path: Path
) -> None:
    """Each gives what it gives alone, and so does a third that is not recorded."""
    commands = [support.command(name, built) for name in PROGRAMS[:2]]
    bare = [support.run(command, mps) for command in commands]
    runs = [tmp_path / ("run" if together == "one run" else f"run{i}") for i in range(2)]
    environments = [support.recording(mps, run) for run in runs] + [mps]
    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(support.run, [*commands, commands[0]], environments))
    assert found[2] == bare[0]
    for one, recorded in zip(bare, found[:2], strict=True):
        compare("", one, recorded)
    for run in set(runs):
        opened = tt.open(run)
        assert {p.status for p in opened.processes} == {"complete"}
        assert len(opened.processes) == (2 if together == "one run" else 1)
        assert len({p.info["pid"] for p in opened.processes}) == len(opened.processes)
        check_stored(opened)
        assert tt.verify(opened, run / "manifest.json").same


def test_killed_mps_client_leaves_a_valid_run(
    mps: dict[str, str], built: Path, tmp_path: Path
) -> None:
    """Its run is good as far as it came, and the next client works."""
    command, run = support.command("exit_sigkill", built), tmp_path / "run"
    bare = support.run(command, mps)
    compare("", bare, support.run(command, support.recording(mps, run)))
    check_stored(tt.open(run))
    command, run = support.command(PROGRAMS[0], built), tmp_path / "next"
    check(support.run(command, mps), support.run(command, support.recording(mps, run)), run)
