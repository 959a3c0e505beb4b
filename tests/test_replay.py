"""Recorded launches, alone and again."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import support
from tests.support import simulator_environment

pytestmark = pytest.mark.native
EVERY = {"epoch": "launch:1", "deterministic": "1", "params": "1"}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("built")


@pytest.fixture(scope="module")
def recorded(built: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Runs of examples, with an epoch after every launch."""
    out = {}
    for name in ("async", "managed", "globals"):
        out[name] = tmp_path_factory.mktemp(name) / "run"
        command = support.command(f"example-{name}", built)
        done = support.run(command, support.recording(simulator_environment(), out[name], **EVERY))
        assert done.status == 0, done.stderr
    return out


def all_launches(run: Path) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "tests.replay_launches", str(run)]
    done = support.run(command, simulator_environment(), cwd=support.ROOT)
    assert (done.stderr, done.status) == ("", 0)
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_every_launch_alone(recorded: dict[str, Path]) -> None:
    """Each leaves what it left when it was recorded, on memory at its old addresses."""
    found = all_launches(recorded["async"])
    assert len(found) > 4
    for launch in found[1:]:
        assert launch["checked"] and launch["restored"]
        assert launch["differ"] == launch["moved"] == []
        assert len(launch["runs"]) == 2 and min(launch["runs"]) > 0


def test_refusals_say_why(recorded: dict[str, Path]) -> None:
    first, *others = all_launches(recorded["managed"])
    assert "no epoch has what memory was before it" in first["refused"]
    assert all("to which the host may have written" in other["refused"] for other in others)


def test_variables(recorded: dict[str, Path]) -> None:
    """Variables of modules are where the driver puts them."""
    found = [launch for launch in all_launches(recorded["globals"]) if "refused" not in launch]
    assert found and all(launch["differ"] == [] for launch in found)
