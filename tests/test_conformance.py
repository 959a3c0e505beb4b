"""The simulator does what the GPU did: every program prints its committed transcript."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import support
from tests.gpu import transcripts


@pytest.mark.native
@pytest.mark.parametrize("name", support.all_names())
def test_transcript(name: str, built: Path) -> None:
    outcome = support.run(support.command(name, built), support.simulator_environment())
    assert outcome.transcript() == transcripts.read(name)[1]


@pytest.mark.native
@pytest.mark.parametrize("seed", ["1", pytest.param("2", marks=pytest.mark.large)])
@pytest.mark.parametrize("name", support.all_names())
def test_transcript_holds_for_random_schedules(name: str, seed: str, built: Path) -> None:
    """Work without an order runs in a random order. No transcript depends on it."""
    environment = support.simulator_environment(TT_SIM_SCHEDULE="random", TT_SIM_SEED=seed)
    outcome = support.run(support.command(name, built), environment)
    assert outcome.transcript() == transcripts.read(name)[1]


def test_every_transcript_has_its_program() -> None:
    assert {path.stem for path in support.TRANSCRIPTS.glob("*.txt")} == set(support.all_names())
