"""On a GPU: page-locked memory of the host in epochs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import support
from tests.host_memory import check_arrays, check_host_memory

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(support.gpu_name() is None, reason="needs a GPU"),
]
BARE = support.bare_environment()


@pytest.mark.parametrize("more", [{}, {"deps": "region"}, {"contents": "all"}])
def test_host_memory_is_captured_on_request(
    more: dict[str, str], built: Path, tmp_path: Path
) -> None:
    command = [str(support.build_program("recorder_host_memory", built))]
    done = support.run(command, support.recording(BARE, tmp_path / "run", host_memory="1", **more))
    assert (done.stdout, done.stderr, done.status) == ("3 3 3\n", "", 0)
    check_host_memory(tmp_path / "run")


@pytest.mark.parametrize("more", [{}, {"regions": "touched"}])
def test_arrays_are_captured_on_request(more: dict[str, str], built: Path, tmp_path: Path) -> None:
    command = [str(support.build_program("recorder_arrays", built))]
    done = support.run(command, support.recording(BARE, tmp_path / "run", arrays="1", **more))
    assert (done.stdout, done.stderr, done.status) == ("done\n", "", 0)
    check_arrays(tmp_path / "run")
