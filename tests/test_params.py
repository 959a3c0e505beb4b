"""Parameters of launches, recorded where that was asked for."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

import ttanalyze as tt
from tests import support
from tests.recordings import check_run, compare

pytestmark = pytest.mark.native
VALUES = struct.Struct("<QBxHIQfxxxxdIII")  # the parameters of launch_extra's kernel
SIM = support.simulator_environment()


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Where to record to."""
    return tmp_path / "run"


def launches(run: Path) -> Iterator[tuple[str, bytes]]:
    """Kernel and parameters, in order."""
    process = tt.open(run).processes[0]
    names = tt.open(run).events["kernel"]
    for event, name in zip(process.events, names, strict=True):
        if isinstance(name, str):
            yield name, process.params(event)


def test_each_launch_has_its_parameters(built: Path, run: Path) -> None:
    """vecadd(out, a, b, n): out = a + b, then b += out, by turns on two buffers."""
    command = support.command("example-vecadd", built)
    bare = support.run(command, SIM)
    assert support.run(command, support.recording(SIM, run, params="1")) == bare
    bases = set(tt.open(run).regions["base"])
    seen = [struct.unpack("<QQQI", params) for _, params in launches(run)]
    assert len(seen) == 8
    for *pointers, count in seen:
        assert set(pointers) <= bases
        assert count == 65536


def test_parameters_in_a_packed_buffer(built: Path, run: Path) -> None:
    command = support.command("launch_extra", built)
    bare = support.run(command, SIM)
    assert support.run(command, support.recording(SIM, run, params="1")) == bare
    packed, listed, *_ = [params for _, params in launches(run) if params]
    assert VALUES.unpack_from(packed) == VALUES.unpack_from(listed)
    assert VALUES.unpack_from(listed)[1:] == (1, 2, 3, 4 << 40, 5.5, 6.25, 7, 8, 9)


@pytest.mark.parametrize("name", ["threads_shared_stream", "launch_bad", "launch_3d"])
def test_recording_parameters_does_not_change_program_behaviour(
    name: str, built: Path, run: Path
) -> None:
    command = support.command(name, built)
    bare = support.run(command, SIM)
    compare(name, bare, support.run(command, support.recording(SIM, run, params="1")))
    check_run(name, run)


def test_no_parameters_by_default(built: Path, run: Path) -> None:
    support.run(support.command("example-vecadd", built), support.recording(SIM, run))
    assert not (run / "p0" / "params.bin").exists()
    assert {params for _, params in launches(run)} == {b""}


def test_parameters_need_events(built: Path, run: Path) -> None:
    command = support.command("example-vecadd", built)
    outcome = support.run(command, support.recording(SIM, run, params="1", events="0"))
    reason = "TT_PARAMS=1 needs TT_EVENTS=1: parameters belong to recorded launches"
    assert outcome.status == 0
    assert reason in outcome.stderr
    refused = support.ttanalyze("record", "--sim", "--params", "--no-events", "--", "true")
    assert refused.status == 2
    assert "--params needs --events" in refused.stderr
