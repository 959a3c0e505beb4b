"""Every input that fuzzing of the parsers in C is to remember, run once under sanitizers, and a
few inputs of the fuzzer of the readers.
"""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests import support
from tests.fuzz import parsers

SANITIZE = ["-Wall", "-Wextra", "-Werror", "-fsanitize=address,undefined"]


@pytest.mark.sampled
@pytest.mark.parametrize("name", [t for t in parsers.TARGETS if t != "ptx"])
def test_kept_inputs_pass(name: str, tmp_path: Path) -> None:
    run(name, tmp_path)


@pytest.mark.long
def test_kept_ptx_passes(tmp_path: Path) -> None:
    run("ptx", tmp_path)


@pytest.mark.long
def test_reader_fuzzer_finds_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.fuzz.readers", "--jobs", "1", "--inputs", "400"]
    command += ["--seconds", "600", "--recorded", str(tmp_path / "runs")]
    done = subprocess.run(command, cwd=support.ROOT, capture_output=True, text=True)
    assert done.stdout == "readers  400 inputs with seed 1: 0 failures\n", done.stderr


@pytest.mark.sampled
def test_sections_without_bytes_are_not_read(tmp_path: Path) -> None:
    """Such a section has no bytes in the file, and its offset may be anything."""
    whole = (support.ROOT / "tests/data/sass/linked_90.cubin").read_bytes()
    first, count = int.from_bytes(whole[0x28:0x30], "little"), whole[0x3C]
    more = []
    for number, way in itertools.product(range(1, count), (0, 11, 22)):
        header = first + 64 * number
        changed = bytearray(whole)
        changed[15] = way  # what is recorded: see cubin.c
        changed[header + 4 : header + 8] = (8).to_bytes(4, "little")  # SHT_NOBITS
        changed[header + 24 : header + 32] = (1 << 40).to_bytes(8, "little")
        more.append(tmp_path / f"{number}-{way}.cubin")
        more[-1].write_bytes(changed)
    run("cubin", tmp_path, more)


def run(name: str, folder: Path, more: Sequence[Path] = ()) -> None:
    program = parsers.build(name, folder, ["gcc"], [parsers.HERE / "replay.c"], SANITIZE)
    kept = [*more, *sorted((parsers.CORPUS / name).glob("*"))]
    for pattern in parsers.TARGETS[name].seeds:
        kept += sorted(support.ROOT.glob(pattern))
    assert kept
    done = subprocess.run(
        [program, *kept], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout[-200:] + done.stderr[:3000]
    assert done.stdout.splitlines() == [str(path) for path in kept]
