"""What waits for a capture, and that it reads what was there whatever waits."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

import ttanalyze as tt
from tests import support

pytestmark = pytest.mark.native
SIM = support.simulator_environment()
WAITED = 128


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Where to record to."""
    return tmp_path / "run"


def check_fills(run: Path) -> int:
    """In every epoch each buffer holds what the last launch before it wrote. Gives how many times
    one was looked at.
    """
    opened = tt.open(run)
    process = opened.processes[0]
    launches = process.events[process.events["params"] != 0]
    given = [struct.unpack("<QII", process.params(event)) for event in launches]
    regions = opened.regions.set_index("base")["region"]
    looked = 0
    for epoch, seq, refused in zip(
        opened.epochs["epoch"], opened.epochs["seq"], opened.epochs["refused"], strict=True
    ):
        assert not refused
        last = {
            base: (count, value)
            for (base, count, value), own in zip(given, launches["seq"], strict=True)
            if own <= seq
        }
        for base, (count, value) in last.items():
            contents = opened.read(epoch, regions[base], dtype="u4")
            expected = np.arange(value, value + count, dtype="u4")
            assert np.array_equal(contents, expected), (epoch, base)
            looked += 1
    return looked


def record(command: list[str], environment: dict[str, str], run: Path, **options: str) -> tt.Run:
    bare = support.run(command, environment)
    recorded = support.recording(environment, run, params="1", epoch="launch", **options)
    assert support.run(command, recorded) == bare
    assert tt.verify(tt.open(run), run / "manifest.json").same
    return tt.open(run)


def test_waiting_launches_are_flagged(built: Path, run: Path) -> None:
    """Of which capture and, where launches wait for those of what they name, of which region."""
    command = [str(support.build_program("recorder_independent_streams", built))]
    opened = record(command, support.simulator_environment(), run, regions="touched")
    process = opened.processes[0]
    launches = process.events[process.events["params"] != 0]
    waited = launches[launches["flags"] & WAITED != 0]
    assert 0 < len(waited) < len(launches)
    bases = set(opened.regions["base"])
    for event in waited[waited["dst"] != 0]:
        assert event["dst"] in bases
        assert struct.unpack("<QII", process.params(event))[0] == event["dst"]
    assert (waited["dst"] != 0).any()
    epochs = process.epochs
    assert (epochs["captured_ns"] >= epochs["time_ns"]).all()
    assert (epochs["captured_ns"] <= epochs["done_ns"]).all()


def test_no_launch_waits_without_deps(built: Path, run: Path) -> None:
    command = [str(support.build_program("recorder_independent_streams", built))]
    environment = support.recording(SIM, run, params="1", epoch="launch", deps="off")
    support.run(command, environment)
    assert not (tt.open(run).processes[0].events["flags"] & WAITED).any()


@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.large) for n in (1, 2))])
@pytest.mark.parametrize("options", [{"deps": "region"}, {"deps": "device"}, {}])
@pytest.mark.parametrize("regions", ["touched", "all"])
def test_no_epoch_is_torn(
    seed: int, options: dict[str, str], regions: str, built: Path, run: Path
) -> None:
    environment = support.simulator_environment(TT_SIM_SCHEDULE="random", TT_SIM_SEED=str(seed))
    command = [str(support.build_program("recorder_independent_streams", built))]
    opened = record(command, environment, run, regions=regions, **options)
    assert check_fills(run) > 50
    assert not opened.epochs["loose"].any()
    used = opened.processes[0].info["options"]["TT_DEPS"]
    assert used == options.get("deps", "region" if regions == "touched" else "device")
