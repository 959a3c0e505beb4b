"""On a GPU: instruction tables of what ran, and the delays that a race needs."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import pytest

import ttanalyze as tt
from tests import support
from ttanalyze.disassembly import tools
from ttanalyze.disassembly.find import find_tables

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(support.gpu_name() is None, reason="needs a GPU"),
    pytest.mark.skipif(not tools.find("nvdisasm"), reason="needs nvdisasm"),
]

HERE = Path(__file__).resolve().parent
SOURCE = (HERE / "missing_barrier.cu").read_text().splitlines()


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With code for this GPU and for others."""
    target = tmp_path_factory.mktemp("missing_barrier") / "missing_barrier"
    some = ["-gencode", "arch=compute_80,code=sm_80", "-gencode", "arch=compute_90,code=sm_90"]
    more = ["-gencode", "arch=compute_120,code=[sm_120,compute_120]"]
    return support.build_cuda(HERE / "missing_barrier.cu", target, "-lineinfo", *some, *more)


def recorded(run: Path, *words: str | Path) -> support.Outcome:
    """record -o RUN WORDS…"""
    return support.ttanalyze("record", "-q", "--force", "-o", run, *map(str, words))


def capability(run: Path) -> int:
    (device,) = tt.open(run).processes[0].info["devices"]
    found: int = device["capability"]
    return found


def test_sass_shows_the_code_that_ran(program: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert recorded(run, "--", program).stdout == "0 wrong\n"
    (table,) = find_tables(run, "6turnedP")
    assert table.architecture // 10 == capability(run) // 10
    (same,) = find_tables(program, "6turnedP", capability(run))
    assert same.code_checksum == table.code_checksum and same.instructions == table.instructions
    barrier = next(row for row in table.instructions if row["opcode"] == "BAR")
    assert "__syncthreads" in SOURCE[barrier["line"] - 1]
    assert (run / "sass" / f"{table.kernel_checksum}.json").exists()
    launched = support.ttanalyze("events", run).stdout.splitlines()[0]
    assert json.loads(launched)["kernel_checksum"] == table.kernel_checksum


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="needs triton")
def test_triton_kernels_have_python_source_lines(tmp_path: Path) -> None:
    run = tmp_path / "run"
    script = HERE / "triton_case.py"
    outcome = recorded(run, "--", sys.executable, script)
    assert outcome.status == 0, outcome.stderr
    frame = tt.sass(run)
    lines = frame[frame["file"].fillna("").str.endswith("triton_case.py")]
    assert len(lines) > 10
    source = script.read_text().splitlines()
    loads = lines[(lines["opcode"] == "LDG") & lines["inlined_at"].map(len).eq(0)]
    assert any("tl.load" in source[line - 1] for line in loads["line"])


def test_reduce_finds_the_delay_that_shows_the_race(program: Path, tmp_path: Path) -> None:
    for seed in range(1, 21):
        run = tmp_path / f"seed{seed}"
        delays = ("--delay", "300000", "--delay-seed", str(seed), "--epoch", "none")
        if recorded(run, *delays, "--", program, "race").status == 1:
            break
    else:
        pytest.fail("no delays made the race show")
    record = [sys.executable, "-m", "ttanalyze", "record", "-q", "--force", "--epoch", "none"]
    words = [*record, "-o", str(tmp_path / "try"), "--delay-load", "{config}", "--"]
    test = " ".join([*words, str(program), "race"])
    report = tmp_path / "report.json"
    asked = ("reduce", "--config", run / "p0" / "delays.json", "--test", test, "-o", report)
    outcome = support.ttanalyze(*map(str, asked), "--confidence", "3", "-q")
    assert outcome.status == 0, outcome.stderr
    made = json.loads(report.read_text())
    assert made["status"] in ("reduced", "flaky") and len(made["essential"]) < made["points"]
    for place in made["essential"]:
        assert place["kernel"].startswith("turned_early(")
        assert "tile[threadIdx.x] = " in SOURCE[place["line"] - 1], place
