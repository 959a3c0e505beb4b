"""What becomes of epochs when the ring is small: each policy, read back from the run."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import ttanalyze as tt
from tests import support
from tests.hanging import in_some_limit
from tests.recordings import LARGE, LARGE_BLOCK, check_stored, fills, large_contents, random_floats

pytestmark = pytest.mark.native
SIM = support.simulator_environment()
ELEMENTS = 50000  # two regions of 200,000 bytes: a snapshot takes about 400 KB
STEPS = 12


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return tmp_path / "run"


def vecadd(built: Path) -> list[str]:
    sizes = ["--size", str(ELEMENTS), "--steps", str(STEPS)]
    return [*support.command("example-vecadd", built), *sizes]


def record(command: list[str], run: Path, **options: str) -> tt.Run:
    bare = support.run(command, SIM)
    outcome = support.run(command, support.recording(SIM, run, epoch="launch", **options))
    assert (outcome.stdout, outcome.status) == (bare.stdout, 0)
    opened = tt.open(run)
    if readable(opened):  # else there is nothing to compare
        assert tt.verify(opened, run / "manifest.json").same
    return opened


def sums() -> list[np.typing.NDArray[np.float32]]:
    """The sum after each step."""
    a, total = random_floats(ELEMENTS, 1), random_floats(ELEMENTS, 2)
    out = []
    for _ in range(STEPS):
        total = a + total
        out.append(total)
    return out


def readable(run: tt.Run) -> list[int]:
    epochs = run.epochs[run.epochs["regions"] > 0]  # the program's last has freed them all
    return [int(n) for n in epochs.loc[~epochs["dropped"] & ~epochs["refused"], "epoch"]]


def check_contents(run: tt.Run) -> None:
    """Every epoch that is left has what the program had then."""
    expected = sums()
    launches = run.events.loc[run.events["kind"] == "launch", "seq"].sort_values().to_numpy()
    assert len(launches) == STEPS
    for epoch in readable(run):
        step = int(np.searchsorted(launches, int(run.epochs["seq"].iloc[epoch]), "right")) - 1
        state = expected[step]
        np.testing.assert_array_equal(run.read(epoch, 1, dtype="f4"), state)
        np.testing.assert_array_equal(run.read(epoch, 0, dtype="f4"), random_floats(ELEMENTS, 1))


@pytest.mark.parametrize("ring", ["256K", "512K", "1M"])
def test_backpressure_loses_nothing(ring: str, built: Path, run: Path) -> None:
    """Also where a snapshot is larger than the ring."""
    opened = record(vecadd(built), run, ring_bytes=ring)
    assert not opened.epochs[["refused", "dropped", "gap"]].any(axis=None)
    assert len(readable(opened)) >= STEPS
    check_contents(opened)


def test_fail_refuses_what_does_not_fit(built: Path, run: Path) -> None:
    opened = record(vecadd(built), run, ring_bytes="256K", overwrite="fail")
    assert readable(opened) == []
    assert opened.epochs["refused"].sum() == STEPS
    assert opened.processes[0].info["counters"]["epochs_refused"] == STEPS
    with pytest.raises(tt.Error, match="epoch 3 was refused"):
        opened.read(3, 1)


@pytest.mark.parametrize("snapshot_every", ["0", "3", "64"])
def test_drop_oldest_keeps_the_newest(snapshot_every: str, built: Path, run: Path) -> None:
    options = {"ring_bytes": "1M", "overwrite": "drop-oldest", "snapshot_every": snapshot_every}
    opened = record(vecadd(built), run, **options)
    kept = readable(opened)
    assert 1 <= len(kept) < len(opened.epochs)
    assert kept == list(range(kept[0], kept[-1] + 1))
    assert (
        opened.epochs.loc[kept[-1], "seq"]
        >= opened.events.loc[opened.events["kind"] == "launch", "seq"].max()
    )
    assert opened.epochs.loc[kept[0], "full"]
    dropped = int(opened.epochs["dropped"].sum())
    assert opened.processes[0].info["counters"]["epochs_dropped"] == dropped
    check_contents(opened)
    with pytest.raises(tt.Error, match="epoch 0 was overwritten in the ring"):
        opened.read(0, 1)


def test_drop_oldest_drops_nothing_while_there_is_room(built: Path, run: Path) -> None:
    opened = record(vecadd(built), run, ring_bytes="64M", overwrite="drop-oldest")
    assert not opened.epochs["dropped"].any()
    assert len(readable(opened)) >= STEPS
    check_contents(opened)


def test_flight_recorder_keeps_the_requested_epochs(built: Path, run: Path) -> None:
    options = {"overwrite": "drop-oldest", "retain": "4", "snapshot_every": "2"}
    opened = record(vecadd(built), run, ring_bytes="64M", **options)
    assert 4 <= len(readable(opened)) < 6
    check_contents(opened)


def test_ring_smaller_than_a_snapshot_gets_a_warning(built: Path, run: Path) -> None:
    opened = record(vecadd(built), run, ring_bytes="256K", overwrite="drop-oldest")
    assert readable(opened) == []
    assert any("smaller than a snapshot" in w for w in opened.processes[0].info["warnings"])


def test_signal_writes_the_ring_to_disk(built: Path, run: Path) -> None:
    command = [*support.command("loop_progress", built), "1000000"]
    environment = support.recording(SIM, run, overwrite="drop-oldest", ring_bytes="1M")
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        for _ in range(30):
            process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    assert process.returncode == -signal.SIGTERM
    opened = tt.open(run)
    assert readable(opened)
    assert tt.verify(opened, run / "manifest.json").same


@pytest.mark.parametrize("overwrite", ["backpressure", "drop-oldest", "fail"])
@in_some_limit(0.5, 5, 20)
def test_blocked_capture_is_cancelled(limit: float, overwrite: str, built: Path, run: Path) -> None:
    """Nothing waits for it for long, and what comes after it is captured."""
    command = support.command("graph_held_back", built)
    bare = support.run(command, SIM)
    options = {"stall_ms": f"{limit}s", "overwrite": overwrite}
    outcome = support.run(command, support.recording(SIM, run, **options))
    assert (outcome.stdout, outcome.status) == (bare.stdout, 0)
    assert "was cancelled: it waited" in outcome.stderr or "did not end" in outcome.stderr
    opened = tt.open(run)
    assert opened.processes[0].info["status"] == "complete"
    assert tt.verify(opened, run / "manifest.json").same
    last = int(opened.epochs.loc[opened.epochs["trigger"] == "sync", "epoch"].max())
    assert opened.epochs["refused"].any() and not opened.epochs.loc[last, "refused"]
    sizes = opened.regions.loc[opened.regions["kind"] == "device"]
    assert set(opened.read(last, int(sizes["region"].iloc[0])).tolist()) == {3}


@in_some_limit(0.2, 2, 20)
def test_cancelled_epoch_leaves_a_gap(limit: float, built: Path, run: Path) -> None:
    """The next one is whole, and says that it holds more than its own changes."""
    command = [str(support.build_program("recorder_blocked_graph", built)), "off"]
    bare = support.run(command, SIM)
    outcome = support.run(command, support.recording(SIM, run, stall_ms=f"{limit}s"))
    assert (outcome.stdout, outcome.status) == (bare.stdout, 0)
    epochs = tt.open(run).epochs
    assert epochs["refused"].tolist()[:3] == [False, True, False]
    assert epochs["gap"].tolist()[:4] == [False, False, True, False]
    assert epochs["full"].tolist()[:4] == [True, False, True, False]


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "arguments", "stall_ms"),
    [("recorder_blocked_graph", ["off"], "200"), ("recorder_unmap_while_blocked", [], "5000")],
)
def test_streams_go_on_where_the_device_takes_no_cancellation(
    name: str, arguments: list[str], stall_ms: str, built: Path, run: Path
) -> None:
    """It is behind the capture, in the one queue for all streams with a priority. That capture
    still reads the memory, beside other work.
    """
    command = [str(support.build_program(name, built)), *arguments]
    environment = support.simulator_environment(TT_SIM_FAULT="one-queue:1")
    bare = support.run(command, environment)
    outcome = support.run(command, support.recording(environment, run, stall_ms=stall_ms))
    assert (outcome.stdout, outcome.status) == (bare.stdout, 0), outcome.stderr
    assert "the device did not take a cancellation" in outcome.stderr
    epochs = tt.open(run).epochs
    assert epochs["loose"].tolist()[:3] == [False, True, False]
    assert epochs["full"].tolist()[:3] == [True, False, True]
    check_stored(tt.open(run))


@in_some_limit(0.2, 2, 20)
def test_process_exit_with_a_blocked_capture(limit: float, built: Path, run: Path) -> None:
    """What the ring held before that is stored."""
    command = [str(support.build_program("recorder_blocked_graph", built)), "end"]
    environment = support.recording(SIM, run, stall_ms=f"{limit}s", overwrite="drop-oldest")
    outcome = support.run(command, environment)
    assert outcome.status == 0
    assert "work of the program did not end: the last epoch is missing" in outcome.stderr
    opened = tt.open(run)
    assert len(opened.epochs) == 1 and opened.epochs["full"].iloc[0]
    check_stored(opened)


DUMPS = """
import ctypes, os, signal
driver = ctypes.CDLL("libcuda.so.1")
shim = ctypes.CDLL(None)
p, context = ctypes.c_uint64(), ctypes.c_void_p()
assert driver.cuInit(0) == 0
assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert driver.cuCtxSetCurrent(context) == 0
assert driver.cuMemAlloc_v2(ctypes.byref(p), ctypes.c_size_t(100000)) == 0
for value in range(5):
    assert driver.cuMemsetD8_v2(p, ctypes.c_ubyte(value + 1), ctypes.c_size_t(100000)) == 0
    assert driver.cuCtxSynchronize() == 0
    if value == 2:
        assert shim.tt_dump() == 0
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_dump_is_on_disk_at_once(run: Path) -> None:
    environment = support.recording(SIM, run, overwrite="drop-oldest")
    outcome = support.run([sys.executable, "-c", DUMPS], environment)
    assert outcome.status == -signal.SIGKILL, outcome.stderr
    opened = tt.open(run)
    assert opened.epochs["epoch"].tolist() == [0, 1, 2]
    for epoch in range(3):
        assert set(opened.read(epoch, 0).tolist()) == {epoch + 1}


# ---- a ring that is empty ----


@pytest.mark.parametrize("overwrite", ["drop-oldest", "fail", "backpressure"])
def test_snapshot_larger_than_the_rest_of_the_ring(overwrite: str, run: Path) -> None:
    """Where it fits into an empty ring, it is captured."""
    options = {"ring_bytes": "1M", "snapshot_every": "1", "overwrite": overwrite}
    steps = ["1,400000,1", "1,400000,2", "1,0,3", "1,0,4"]
    if overwrite == "fail":  # so that the ring is empty
        steps = [word for step in steps for word in (step, "drain")]
    outcome = support.run(fills(*steps), support.recording(SIM, run, **options))
    assert (outcome.stdout, outcome.stderr, outcome.status) == ("", "", 0)
    opened = tt.open(run)
    assert tt.verify(opened, run / "manifest.json").same
    assert not opened.epochs["refused"].any()
    assert opened.epochs["epoch"].tolist() == [0, 1, 2, 3]
    for region in (0, 1):
        assert set(opened.read(3, region).tolist()) == {4}


# ---- epochs that are larger than the drain's buffers ----


@pytest.mark.parametrize(
    ("options", "files"),
    [({}, 4), ({"ring_bytes": "64M"}, 4), ({"deterministic": "1"}, 1), ({"ring_bytes": "2M"}, 1)],
)
def test_large_epochs_are_complete(
    options: dict[str, str], files: int, built: Path, run: Path
) -> None:
    """They come in several copies and are written side by side; every byte is where it was.

    Where the files have to be the same each time, and where the ring takes only small parts,
    one file does.
    """
    command = [str(support.build_program("recorder_large_epochs", built))]
    bare = support.run(command, SIM)
    assert support.run(command, support.recording(SIM, run, **options)) == bare
    opened = tt.open(run)
    assert tt.verify(opened, run / "manifest.json").same
    for epoch, expected in enumerate(large_contents()):
        assert np.array_equal(opened.read(epoch, 0, dtype="u8"), expected)
    stored = opened.epochs["bytes_stored"].tolist()
    assert stored[:3] == [LARGE, LARGE, LARGE // 2 + 2 * LARGE_BLOCK]
    assert len(list((run / "p0").glob("data-*.bin"))) == files
