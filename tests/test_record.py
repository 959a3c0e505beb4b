"""Recording on the simulator: programs behave as without us, and the run holds what happened."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import numpy as np
import pytest

import ttanalyze as tt
from tests import support
from tests.recordings import (
    check_run,
    compare,
    epoch_after_copy,
    random_floats,
    record,
    wait_for_epochs,
)

pytestmark = pytest.mark.native
SIM = support.simulator_environment()


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Where to record to."""
    return tmp_path / "run"


# ---- first do no harm ----


@pytest.mark.parametrize("name", support.all_names())
def test_recording_does_not_change_program_behaviour(name: str, built: Path, run: Path) -> None:
    command = support.command(name, built)
    bare = support.run(command, SIM)
    options = support.RECORDING_OPTIONS.get(name, {})
    compare(name, bare, support.run(command, support.recording(SIM, run, **options)))
    check_run(name, run)


@pytest.mark.parametrize(
    "options",
    [
        {"epoch": "launch"},
        {"epoch": "memcpy,launch:3", "regions": "touched"},
        {"epoch": "kernel:.*", "snapshot_every": "2"},
        {"deterministic": "1"},
        {"deps": "off", "events": "0"},
        {"ring_bytes": "256K"},
        {"ring_bytes": "256K", "overwrite": "drop-oldest"},
        {"ring_bytes": "256K", "overwrite": "fail"},
        {"compress": "3", "epoch": "launch"},
        {"cpu_callstack": "backtrace", "params": "1"},
    ],
    ids=lambda options: ",".join(f"{k}={v}" for k, v in options.items()),
)
@pytest.mark.parametrize(
    "name",
    ["async_alloc", "copy_1d", "graph_capture", "module_globals", "stream_nonblocking", "vmm_remap",
     "stream_per_thread", "threads_own_streams", "managed_memory", "out_of_memory", "fault_trap",
     "context_two", "pointer_attributes", "memory_info", "graph_capture_threads", "pools"],
)  # fmt: skip
def test_no_option_changes_program_behaviour(
    name: str, options: dict[str, str], built: Path, run: Path
) -> None:
    command = support.command(name, built)
    bare = support.run(command, SIM)
    compare(name, bare, support.run(command, support.recording(SIM, run, **options)))
    check_run(name, run)


def test_region_ends_with_a_successful_free(built: Path, run: Path) -> None:
    """Whichever context is current, if any. What the driver refuses to free is a new region."""
    command = support.command("free_elsewhere", built)
    support.run(command, support.recording(SIM, run))
    opened = tt.open(run)
    frees = opened.events[opened.events["kind"] == "free"]
    assert list(opened.regions["death_seq"].sort_values()) == list(frees["seq"])
    captured = opened.regions[opened.regions["captured"]]
    assert list(captured["died"]) == [1, 2, 3, 1, 3]  # freed, refused, hidden, unmapped, refused
    refused = [captured["region"].iloc[i] for i in (1, 1, 4)]
    begins = [bytes(opened.read(epoch, r))[:3] for epoch, r in enumerate(refused)]
    assert begins == [b"\2\2\2", b"\4\2\2", b"\5\5\2"]


def test_last_epoch_holds_work_that_nobody_waited_for(built: Path, run: Path) -> None:
    """What it left is in a last epoch."""
    support.run(support.command("exit_without_wait", built), support.recording(SIM, run))
    opened = tt.open(run)
    assert list(opened.epochs["trigger"]) == ["final"]
    assert set(bytes(opened.read(0, 0))) == {7}


def test_lazy_kernel_loading(built: Path, run: Path) -> None:
    """The recorder's own are loaded before the first epoch: that may wait for all that runs."""
    driver = SIM | {"TT_SIM_FAULT": "lazy:1"}
    command = support.command("first_wait_while_held", built)
    bare = support.run(command, driver)
    assert bare.status == 0
    assert support.run(command, support.recording(driver, run), timeout=60) == bare
    assert tt.open(run).epochs["trigger"][0] == "sync"


def test_no_ring_without_epochs(built: Path, run: Path) -> None:
    command = support.command("exit_without_wait", built)
    support.run(command, support.recording(SIM, run, epoch="none"))
    assert tt.open(run).processes[0].info["ring"] == {"bytes": 0, "memory": "none"}


def test_no_recording_without_an_output_directory(built: Path, tmp_path: Path) -> None:
    command = support.command("loop_progress", built)
    bare = support.run(command, SIM, cwd=tmp_path)
    preloaded = support.recording(SIM, Path("run"))
    del preloaded["TT_OUT"]
    assert support.run(command, preloaded, cwd=tmp_path) == bare
    assert not list(tmp_path.iterdir())


def test_unusable_output_directory_is_reported_once(built: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    command = support.command("loop_progress", built)
    bare = support.run(command, SIM)
    recorded = support.run(command, support.recording(SIM, tmp_path / "file" / "run"))
    compare("loop_progress", bare, recorded)
    assert recorded.stderr.count("\n") == 1
    assert str(tmp_path / "file" / "run") in recorded.stderr


def test_invalid_option_is_reported_once(built: Path, run: Path) -> None:
    command = support.command("loop_progress", built)
    bare = support.run(command, SIM)
    recorded = support.run(command, support.recording(SIM, run, epoch="sometimes"))
    compare("loop_progress", bare, recorded)
    assert recorded.stderr.count("\n") == 1
    assert "TT_EPOCH" in recorded.stderr


@pytest.mark.skipif(support.gpu_name() is not None, reason="there is a driver here")
def test_missing_driver_is_left_to_the_program(built: Path, run: Path) -> None:
    command = support.command("dlopen_only", built)
    nowhere = support.bare_environment(**support.sanitizer_runtimes())
    bare = support.run(command, nowhere)
    assert bare.status == 1
    compare("dlopen_only", bare, support.run(command, support.recording(nowhere, run)))
    assert not run.exists()


# ---- how processes end ----


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_signal_while_recording(number: signal.Signals, built: Path, run: Path) -> None:
    command = [*support.command("loop_progress", built), "1000000"]
    with subprocess.Popen(
        command, env=support.recording(SIM, run), stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        lines = [process.stdout.readline() for _ in range(4)]
        if number == signal.SIGKILL:
            wait_for_epochs(run, 3)
        process.send_signal(number)
        process.communicate(timeout=60)
    assert process.returncode == -number
    assert lines[3].startswith("step 4: ")
    opened = tt.open(run)
    status = opened.processes[0].info["status"]
    assert len(opened.epochs) >= 3  # no epoch that was on disk is lost
    if number != signal.SIGKILL:
        assert status == "signal"
        assert len(opened.epochs) >= 4
    report = tt.verify(opened, opened.manifest())
    assert report.same, report.to_json()


def test_killed_program_leaves_its_epochs(built: Path, run: Path) -> None:
    command = [*support.command("loop_progress", built), "1000000"]
    with subprocess.Popen(
        command, env=support.recording(SIM, run), stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        lines = [process.stdout.readline() for _ in range(20)]
        wait_for_epochs(run, 10)
        process.kill()
        lines += process.stdout.readlines()
    opened = tt.open(run)
    assert opened.processes[0].info["status"] == "running"
    assert len(opened.epochs) >= 10
    for epoch, line in zip(opened.epochs["epoch"], lines, strict=False):
        first = int(opened.read(int(epoch), 0, dtype="u4")[0])
        assert line == f"step {epoch + 1}: {first}\n"


def test_relative_output_directory_ignores_chdir(built: Path, tmp_path: Path) -> None:
    command = support.command("change_directory", built)
    (tmp_path / "here").mkdir()
    environment = support.recording(SIM, Path("here/run"))
    assert support.run(command, environment, cwd=tmp_path).status == 0
    check_run("change_directory", tmp_path / "here" / "run")


def test_children_without_the_driver_leave_no_files(built: Path, run: Path) -> None:
    command = support.command("spawn_child", built)
    support.run(command, support.recording(SIM, run))
    assert [p.info["argv"][0] for p in tt.open(run).processes] == command


# ---- what the run holds ----


def test_epochs_hold_every_step_of_vecadd(built: Path, run: Path) -> None:
    command = support.command("example-vecadd", built)
    assert support.run([*command, "--size", "20000"], support.recording(SIM, run)).status == 0
    opened = tt.open(run)
    assert list(opened.regions["size"]) == [80000, 80000]
    assert list(opened.regions["kind"]) == ["device", "device"]
    steps = opened.epochs[opened.epochs["trigger"] == "sync"]["epoch"].to_numpy()
    launches = opened.events[opened.events["kind"] == "launch"]
    assert list(launches["kernel"]) == ["add"] * 8
    assert len(steps) >= 8
    a, total = random_floats(20000, 1), random_floats(20000, 2)
    for seq in launches["seq"]:
        total = a + total
        epoch = int(opened.epochs.loc[opened.epochs["seq"] > seq, "epoch"].min())
        np.testing.assert_array_equal(opened.read(epoch, 0, dtype="f4"), a)
        np.testing.assert_array_equal(opened.read(epoch, 1, dtype="f4"), total)


@pytest.mark.parametrize(
    ("name", "kind", "label"),
    [
        ("async", "async", None),
        ("vmm", "vmm", None),
        ("managed", "managed", None),
        ("globals", "global", "histogram"),
        ("globals", "global", "seen"),
        ("globals", "global", "limits"),
        ("pipeline", "host", None),
    ],
)
def test_regions_have_their_kind(
    name: str, kind: str, label: str | None, built: Path, run: Path
) -> None:
    support.run(support.command(f"example-{name}", built), support.recording(SIM, run))
    regions = tt.open(run).regions
    found = regions[regions["kind"] == kind]
    if label is not None:
        found = found[found["label"] == label]
    assert len(found) > 0
    assert set(found["captured"]) == {kind != "host"}


def test_globals_are_captured(built: Path, run: Path) -> None:
    outcome = support.run(support.command("example-globals", built), support.recording(SIM, run))
    opened = tt.open(run)
    ids = dict(zip(opened.regions["label"], opened.regions["region"], strict=True))
    last = int(opened.epochs.loc[opened.epochs["trigger"] == "sync", "epoch"].max())
    histogram = opened.read(last, ids["histogram"], dtype="u4")
    (seen,) = opened.read(last, ids["seen"], dtype="u8")
    printed = " ".join(map(str, histogram))
    assert f"globals: seen {seen}, histogram {printed}\n" in outcome.stdout


def test_out_of_bounds_write_is_in_the_run(built: Path, run: Path) -> None:
    size = 10000
    support.run(support.command("example-scribble", built), support.recording(SIM, run))
    opened = tt.open(run)
    masses = random_floats(4 * size, 1)[size : 2 * size]
    seq = opened.events.loc[opened.events["kernel"] == "advance_unchecked", "seq"].min()
    epoch = int(opened.epochs.loc[opened.epochs["seq"] > seq, "epoch"].min())
    found = opened.read(epoch, 0, dtype="f4")[size : 2 * size]
    assert np.flatnonzero(found != masses).max() == 239


def test_freed_region_stays_readable(built: Path, run: Path) -> None:
    support.run(support.command("alloc_reuse", built), support.recording(SIM, run))
    opened = tt.open(run)
    regions = opened.regions[opened.regions["kind"] == "device"]
    assert len(regions) == 12
    assert regions["died"].notna().sum() >= 11
    assert list(regions["size"]) == [4000 * (i % 4 + 1) for i in range(12)]
    for region, born in zip(regions["region"], regions["born"], strict=True):
        words = opened.read(int(born), int(region), dtype="u4")
        assert words[1] == words[0] + 1


def test_all_sizes_are_captured(built: Path, run: Path) -> None:
    support.run(support.command("alloc_sizes", built), support.recording(SIM, run, epoch="memcpy"))
    opened = tt.open(run)
    sizes = [1, 2, 3, 255, 256, 257, 4095, 65535, 65536, 65537, 1048575, 3145729]
    assert list(opened.regions["size"]) == sizes
    last = len(opened.epochs) - 1
    until = (opened.regions["died"].fillna(last + 1) - 1).clip(upper=last)
    for region, size, epoch in zip(opened.regions["region"], sizes, until, strict=True):
        contents = opened.read(int(epoch), int(region))
        assert len(contents) == size
        state = (region * 2654435761 + 1) & 0xFFFFFFFF
        state = (state * 1664525 + 1013904223) & 0xFFFFFFFF
        assert contents[0] == state >> 24


# ---- epochs ----


def triggers(run: Path) -> list[str]:
    epochs = tt.open(run).epochs
    return list(epochs.loc[epochs["trigger"] != "final", "trigger"])


@pytest.mark.parametrize(
    ("epoch", "expected"),
    [
        ("launch", ["launch"] * 8),
        ("launch:3", ["launch"] * 2),
        ("kernel:^add$", ["kernel-before", "kernel-after"] * 8),
        ("kernel:^other$", []),
        ("memcpy", ["copy"] * 3),
        ("launch,@3-5", ["launch"] * 3),
        ("launch:2,@3-6", ["launch"] * 2),
        ("@2-3;kernel:^add$", ["kernel-before", "kernel-after"] * 2),
        ("memcpy,sync,@0-0", ["copy"] * 2),
        ("launch,@9-9", []),
        ("none", []),
        ("api", []),
    ],
)
def test_triggers(epoch: str, expected: list[str], built: Path, run: Path) -> None:
    command = [*support.command("example-vecadd", built), "--size", "5000"]
    support.run(command, support.recording(SIM, run, epoch=epoch))
    assert triggers(run) == expected


def test_triggers_combine(built: Path, run: Path) -> None:
    command = [*support.command("example-vecadd", built), "--size", "5000", "--steps", "2"]
    support.run(command, support.recording(SIM, run, epoch="sync,launch:2"))
    assert triggers(run) == ["sync", "launch"]


def test_snapshot_interval_is_followed(built: Path, run: Path) -> None:
    command = [*support.command("example-vecadd", built), "--size", "5000"]
    support.run(command, support.recording(SIM, run, epoch="launch", snapshot_every="3"))
    epochs = tt.open(run).epochs
    assert list(epochs.loc[epochs["trigger"] == "launch", "full"]) == [True, False, False] * 2 + [
        True,
        False,
    ]


def test_deltas_store_only_changed_blocks(built: Path, run: Path) -> None:
    command = support.command("example-vecadd", built)
    support.run(command, support.recording(SIM, run, epoch="launch"))
    epochs = tt.open(run).epochs
    later = epochs[(epochs["trigger"] == "launch") & ~epochs["full"]]
    assert set(later["changed_regions"]) == {1}
    assert set(later["bytes_changed"]) == {65536 * 4}
    assert set(later["bytes_read"]) == {2 * 65536 * 4}


# ---- record and verify ----


def test_record_passes_the_exit_status_through(built: Path, tmp_path: Path) -> None:
    expected = {
        "exit_exit": 7,
        "exit_sigterm": 143,
        "exit_sigkill": 137,
        "exit_abort": 134,
        "no_driver": 0,
    }
    for name, status in expected.items():
        outcome = record(support.command(name, built), SIM, tmp_path / name, "--sim")
        assert outcome.status == status, name


def test_record_verify_and_tamper(built: Path, run: Path) -> None:
    assert record(support.command("example-vecadd", built), SIM, run, "--sim").status == 0
    manifest = run / "manifest.json"
    assert support.ttanalyze("verify", run, "--manifest", manifest).status == 0
    tampered = support.ttanalyze(
        "verify", run, "--manifest", manifest, "--tamper", "3,1,70001", "--json"
    )
    assert tampered.status == 1
    first = json.loads(tampered.stdout)["differences"][0]
    assert (first["epoch"], first["region"], first["first_byte"]) == (3, 1, 70001)


def test_verify_names_the_perturbed_step(built: Path, tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    command = support.command("example-vecadd", built)
    record(command, SIM, one, "--sim", "--deterministic")
    record([*command, "--perturb", "5"], SIM, two, "--sim", "--deterministic")
    found = support.ttanalyze(
        "verify", two, "--manifest", one / "manifest.json", "--against", one, "--json"
    )
    assert found.status == 1
    first = json.loads(found.stdout)["differences"][0]
    expected = epoch_after_copy(tt.open(two), 2)
    assert (first["epoch"], first["region"]) == (expected, 0)
    offset = 65536 // 2 * 4
    before = tt.open(one).read(expected, 0)
    after = tt.open(two).read(expected, 0)
    assert first["first_byte"] == np.flatnonzero(before != after)[0]
    assert offset <= first["first_byte"] < offset + 4


@pytest.mark.parametrize("name", support.EXAMPLE_ARGUMENTS)
def test_deterministic_recordings_are_identical(name: str, built: Path, tmp_path: Path) -> None:
    texts = []
    for i in range(2):
        environment = support.recording(SIM, tmp_path / str(i), deterministic="1")
        support.run(support.command(f"example-{name}", built), environment)
        texts.append((tmp_path / str(i) / "manifest.json").read_bytes())
    assert texts[0] == texts[1]
    assert json.loads(texts[0])["processes"][0]["epochs"]


def test_random_schedule_shows_the_race(built: Path, tmp_path: Path) -> None:
    program = Path(support.command("example-race", built)[0])
    for seed in ("1", "2"):
        environment = SIM | {"TT_SIM_SCHEDULE": "random", "TT_SIM_SEED": seed}
        support.run([program], support.recording(environment, tmp_path / seed, deterministic="1"))
    found = support.ttanalyze(
        "verify", tmp_path / "2", "--manifest", tmp_path / "1" / "manifest.json"
    )
    assert found.status == 1


def test_two_processes_of_one_run(built: Path, run: Path) -> None:
    command = [*support.command("loop_progress", built), "20"]
    environment = support.recording(SIM, run)
    started = [
        subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) for _ in range(3)
    ]
    assert [process.wait(timeout=60) for process in started] == [0, 0, 0]
    opened = tt.open(run)
    assert {p.info["pid"] for p in opened.processes} == {process.pid for process in started}
    assert set(opened.epochs.groupby("process").size() >= 20) == {True}
    assert support.ttanalyze("verify", run, "--manifest", run / "manifest.json").status == 0
