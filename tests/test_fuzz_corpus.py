"""Every input that fuzzing of the parsers in C is to remember, run once under sanitizers."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests import support
from tests.fuzz import parsers

SANITIZE = ["-Wall", "-Wextra", "-Werror", "-fsanitize=address,undefined"]


@pytest.mark.parametrize("name", [t for t in parsers.TARGETS if t != "ptx"])
def test_inputs_that_are_kept(name: str, tmp_path: Path) -> None:
    run(name, tmp_path)


@pytest.mark.long
def test_ptx_that_is_kept(tmp_path: Path) -> None:
    run("ptx", tmp_path)


def run(name: str, folder: Path) -> None:
    program = parsers.build(name, folder, ["gcc"], [parsers.HERE / "replay.c"], SANITIZE)
    kept = sorted((parsers.CORPUS / name).glob("*"))
    for pattern in parsers.TARGETS[name].seeds:
        kept += sorted(support.ROOT.glob(pattern))
    assert kept
    done = subprocess.run(
        [program, *kept], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout[-200:] + done.stderr[:3000]
    assert done.stdout.splitlines() == [str(path) for path in kept]
