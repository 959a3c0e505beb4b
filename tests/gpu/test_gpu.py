"""On a GPU: programs and frameworks behave as without us, and their runs hold what happened.

Each framework program is tested where its framework is installed; its output is compared with
that of the same program unrecorded on the same machine.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

import ttanalyze as tt
from tests import entries, replay, support
from tests.devices import check_across
from tests.gpu import transcripts
from tests.recordings import check_run, compare, epoch_after_copy, record
from tests.test_deps import check_fills

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(support.gpu_name() is None, reason="needs a GPU"),
]

HERE = Path(__file__).resolve().parent
BARE = support.bare_environment()
FRAMEWORKS = {
    "train_adamw": "torch",
    "train_graphs": "torch",
    "cupy_case": "cupy",
    "jax_case": "jax",
    "triton_case": "triton",
}
# These look at how much memory the device has left, and so need it to themselves.
EXCLUSIVE = ("memory_info", "out_of_memory")
NAMES = [
    pytest.param(name, marks=pytest.mark.exclusive) if name in EXCLUSIVE else name
    for name in support.all_names()
]
needs_nvcc = pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")


@pytest.fixture(scope="session")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the examples on the runtime API."""
    return support.build_runtime_examples(tmp_path_factory.mktemp("runtime"))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Where to record to."""
    return tmp_path / "run"


def check_recording(command: list[str], run: Path, timeout: float = 600, **options: str) -> tt.Run:
    """Runs a program bare and recorded; the recording must show its launches and verify."""
    environment = support.bare_environment()
    bare = support.run(command, environment, timeout=timeout)
    assert bare.status == 0, bare.stderr
    recorded = support.run(command, support.recording(environment, run, **options), timeout=timeout)
    assert recorded.stdout == bare.stdout
    assert recorded.status == 0
    opened = tt.open(run)
    assert set(opened.events["kind"]) & {"launch", "graph-launch"}
    report = tt.verify(opened, run / "manifest.json")
    assert report.same, report.to_json()
    return opened


@pytest.mark.parametrize(
    "options",
    [{"timeline": "events", "graph_stamps": ".", "no_progress": "60s"}, {"timeline": "cupti"}],
)
def test_long_capture_is_not_disturbed(options: dict[str, str], built: Path, run: Path) -> None:
    command = [str(support.build_program("recorder_long_capture", built)), "1500"]
    check_recording(command, run, 600, **options)


@pytest.mark.parametrize("deps", ["region", "device"])
@pytest.mark.parametrize("regions", ["touched", "all"])
def test_no_epoch_of_concurrent_streams_is_torn(
    deps: str, regions: str, built: Path, run: Path
) -> None:
    """Eight buffers of 4 MiB, each filled in its own stream, with an epoch at each launch."""
    command = [
        str(support.build_program("recorder_independent_streams", built)),
        "8",
        "1000000",
        "6",
    ]
    options = {"epoch": "launch", "params": "1", "regions": regions, "deps": deps}
    opened = check_recording(command, run, 600, **options)
    assert check_fills(run) > 300
    assert not opened.epochs["loose"].any()


@pytest.mark.parametrize("deps", ["region", "device"])
@pytest.mark.parametrize("regions", ["touched", "all"])
@pytest.mark.parametrize("name", ["graph_updates", "graph_children", "graph_library"])
def test_recorded_graph_nodes_reproduce_each_launch(
    name: str, regions: str, deps: str, built: Path, run: Path
) -> None:
    """Each launch is done again from the record; memory must be the same after each."""
    options = {"epoch": "graph", "regions": regions, "deps": deps}
    opened = check_recording(support.command(name, built), run, 600, **options)
    assert replay.check(opened) >= 3
    assert opened.functions["checksum"].notna().all()
    assert not opened.warnings


def framework(name: str, *arguments: str) -> list[str]:
    """How to run a framework program, which is skipped where the framework is missing."""
    if importlib.util.find_spec(FRAMEWORKS[name]) is None:
        pytest.skip(f"needs {FRAMEWORKS[name]}")
    return [sys.executable, str(HERE / f"{name}.py"), *arguments]


def test_call_stacks_of_a_training_loop(run: Path) -> None:
    """Forward and optimiser in Python's functions; backward runs in a thread without any."""
    opened = check_recording(framework("train_adamw"), run, cpu_callstack="auto")
    process = opened.processes[0]
    assert not any("can't be read" in line for line in opened.warnings)
    stacks = [process.stack(n) for n in process.events[process.events["kind"] == 1]["stack"]]
    assert all(stacks)
    functions = [[function for function, _, _ in stack] for stack in stacks]
    files = [{Path(file).name for _, file, _ in stack} for stack in stacks]
    python = [i for i, own in enumerate(files) if "train_adamw.py" in own]
    assert len(python) > 100
    assert {files[i] & {"adamw.py", "optimizer.py"} != set() for i in python} == {True, False}
    assert any(functions[i][0] == "Linear.forward" for i in python)
    native = set(range(len(stacks))) - set(python)
    assert any(any("libtorch_cuda.so" in name for name in files[i]) for i in native)


# ---- test programs and examples ----


@pytest.mark.parametrize("name", NAMES)
def test_transcript(name: str, built: Path) -> None:
    outcome = support.run(support.command(name, built), BARE)
    assert outcome.transcript() == transcripts.read(name)[1]


@pytest.mark.parametrize("name", NAMES)
def test_recording_does_not_change_program_behaviour(name: str, built: Path, run: Path) -> None:
    command = support.command(name, built)
    bare = support.run(command, BARE)
    options = support.RECORDING_OPTIONS.get(name, {})
    compare(name, bare, support.run(command, support.recording(BARE, run, **options)))
    check_run(name, run)


def test_exactly_the_calls_of_the_table_are_wrapped(built: Path, run: Path) -> None:
    program = support.build_program("recorder_entry_points", built)
    bare = entries.answers(program, BARE)
    reached = entries.check(bare, entries.answers(program, support.recording(BARE, run)))
    assert {"cuMemAlloc_v2", "cuLaunchKernel", "cuLaunchKernel_ptsz"} < reached
    assert not run.exists()


@needs_nvcc
@pytest.mark.parametrize("linkage", ["static", "shared"])
@pytest.mark.parametrize("name", support.RUNTIME_NAMES)
def test_runtime_example(name: str, linkage: str, runtime: Path, built: Path, run: Path) -> None:
    arguments = support.EXAMPLE_ARGUMENTS[name]
    command = [str(runtime / f"{name}-{linkage}"), *arguments]
    opened = check_recording(command, run)
    driver_api = support.run(support.command(f"example-{name}", built), BARE)
    assert support.run(command, BARE).stdout == driver_api.stdout
    launches = opened.events[opened.events["kind"] == "launch"]
    assert launches["kernel"].notna().all()


def test_race_example_is_recorded_for_any_outcome(built: Path, run: Path) -> None:
    program = support.command("example-race", built)[0]
    outcome = support.run([program], support.recording(BARE, run))
    assert outcome.status == 0
    assert outcome.stdout.count("step ") == 4
    assert support.ttanalyze("verify", run, "--manifest", run / "manifest.json").status == 0


def test_work_in_one_context_changes_memory_of_another(built: Path, run: Path) -> None:
    command = [str(support.build_program("recorder_two_contexts", built))]
    bare = support.run(command, BARE)
    assert support.run(command, support.recording(BARE, run)) == bare
    check_across(run, bare.stdout)


# ---- frameworks ----


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_framework_results_and_memory_are_recorded(name: str, run: Path) -> None:
    opened = check_recording(framework(name), run)
    assert len(opened.processes) == 1
    assert not opened.processes[0].info["unknown_calls"]


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_framework_with_an_epoch_at_every_launch(name: str, run: Path) -> None:
    opened = check_recording(framework(name), run, epoch="launch", regions="touched")
    assert len(opened.epochs) > 0


def test_twice_the_steps_give_twice_the_launches(run: Path) -> None:
    """Twice the steps are twice the launches: none is missed once training is under way."""
    counts = []
    for steps in (4, 8, 12):
        folder = run.with_name(f"run{steps}")
        opened = check_recording(framework("train_adamw", "--steps", str(steps)), folder)
        counts.append(int((opened.events["kind"] == "launch").sum()))
    assert counts[2] - counts[1] == counts[1] - counts[0] > 0


def test_verify_finds_a_perturbed_training_run(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    assert record(framework("train_adamw"), BARE, one, "--deterministic").status == 0
    perturbed = framework("train_adamw", "--perturb", "6")
    assert record(perturbed, BARE, two, "--deterministic").status == 0
    found = support.ttanalyze(
        "verify", two, "--manifest", one / "manifest.json", "--against", one, "--json"
    )
    assert found.status == 1
    first = json.loads(found.stdout)["differences"][0]
    assert first["epoch"] > 0
    before = tt.open(one).read(first["epoch"], first["region"])
    after = tt.open(two).read(first["epoch"], first["region"])
    assert first["first_byte"] == np.flatnonzero(before != after)[0]


# ---- determinism, tampering ----


@pytest.mark.parametrize("name", support.EXAMPLE_ARGUMENTS)
def test_deterministic_recordings_are_identical(name: str, built: Path, tmp_path: Path) -> None:
    texts = []
    for i in range(2):
        folder = tmp_path / str(i)
        outcome = record(support.command(f"example-{name}", built), BARE, folder, "--deterministic")
        assert outcome.status == 0
        texts.append((folder / "manifest.json").read_bytes())
    assert texts[0] == texts[1]


@needs_nvcc
@pytest.mark.parametrize("linkage", ["static", "shared"])
@pytest.mark.parametrize("name", support.RUNTIME_NAMES)
def test_deterministic_runtime_recordings_are_identical(
    name: str, linkage: str, runtime: Path, tmp_path: Path
) -> None:
    texts = []
    for i in range(2):
        folder = tmp_path / str(i)
        command = [str(runtime / f"{name}-{linkage}"), *support.EXAMPLE_ARGUMENTS[name]]
        assert record(command, BARE, folder, "--deterministic").status == 0
        texts.append((folder / "manifest.json").read_bytes())
    assert texts[0] == texts[1]


def test_verify_finds_a_tampered_run(built: Path, run: Path) -> None:
    assert record(support.command("example-vecadd", built), BARE, run).status == 0
    tampered = support.ttanalyze(
        "verify", run, "--manifest", run / "manifest.json", "--tamper", "3,1,70001", "--json"
    )
    assert tampered.status == 1
    first = json.loads(tampered.stdout)["differences"][0]
    assert (first["epoch"], first["region"], first["first_byte"]) == (3, 1, 70001)


def test_verify_names_the_perturbed_step(built: Path, tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    command = support.command("example-vecadd", built)
    record(command, BARE, one, "--deterministic")
    record([*command, "--perturb", "5"], BARE, two, "--deterministic")
    found = support.ttanalyze(
        "verify", two, "--manifest", one / "manifest.json", "--against", one, "--json"
    )
    assert found.status == 1
    first = json.loads(found.stdout)["differences"][0]
    assert (first["epoch"], first["region"]) == (epoch_after_copy(tt.open(two), 2), 0)
    assert 131072 <= first["first_byte"] < 131076


# ---- large memory ----


def test_large_allocation_stores_only_touched_blocks(run: Path) -> None:
    """Only the touched blocks of a large allocation are stored."""
    if importlib.util.find_spec("torch") is None:
        pytest.skip("needs torch")
    code = (
        "import torch\n"
        "x = torch.zeros(6 << 30, dtype=torch.uint8, device='cuda')\n"
        "torch.cuda.synchronize()\n"
        "x[5 << 30] = 7\n"
        "torch.cuda.synchronize()\n"
        "print(int(x[5 << 30]))\n"
    )
    opened = check_recording([sys.executable, "-c", code], run)
    large = opened.regions[opened.regions["size"] >= 6 << 30]
    assert len(large) == 1
    region = int(large["region"].iloc[0])
    last = len(opened.epochs) - 1
    assert opened.read(last, region, start=5 << 30, stop=(5 << 30) + 2).tolist() == [7, 0]
    assert int(opened.epochs["bytes_stored"].sum()) < 1 << 30
