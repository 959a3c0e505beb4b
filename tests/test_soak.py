"""What a program makes and ends again leaves nothing behind in the recorder."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests import support

ROOM = 4 << 10  # KiB


@pytest.mark.long
@pytest.mark.native
@pytest.mark.large
def test_memory_does_not_grow_over_time(built: Path, tmp_path: Path) -> None:
    program = support.build_program("recorder_soak", built)

    def memory(rounds: int) -> int:
        """KiB of its own that the program has in the end."""
        environment = support.simulator_environment()
        recorded = support.recording(environment, tmp_path / str(rounds), epoch="none")
        done = support.run([program, "0", str(rounds)], recorded)
        found = re.fullmatch(rf"{rounds} rounds, 0 wrong, (\d+) KiB\n", done.stdout)
        assert found
        assert (done.stderr, done.status) == ("", 0)
        return int(found[1])

    assert memory(1200) < memory(50) + ROOM
