"""On a GPU: delays in one block of each cluster, and delay files of CUTracer."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

import ttanalyze as tt
from tests import support
from tests.cutracer_delays import cutracers, cutracers_checksum
from ttanalyze.disassembly.images import codes
from ttanalyze.format import modules

NVCC = shutil.which("nvcc", path="/usr/local/cuda/bin") or shutil.which("nvcc")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(support.gpu_name() is None or NVCC is None, reason="needs a GPU and nvcc"),
]
DELAY = 20000  # ns, before each of 16 stores
SEEDS = range(1, 7)  # of them some delay the store
LATE = 16 * DELAY / 8


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("clusters") / "cluster_times"
    source = Path(__file__).with_name("cluster_times.cu")
    subprocess.run([str(NVCC), "-O2", "-arch=sm_90", "-o", made, source], check=True)
    return made


def times(program: Path, run: Path, *options: object) -> list[int]:
    given = ("record", "-f", "-o", run, "--epoch", "none", *map(str, options))
    done = support.ttanalyze(*map(str, given), "--", str(program), timeout=100)
    assert done.status == 0, done.stderr
    return [int(word) for word in done.stdout.split()]


@pytest.mark.parametrize("mode", ["cluster", "cluster_fixed"])
@pytest.mark.parametrize("block", [None, 0, 2])
def test_one_block_of_each_cluster_is_delayed(
    mode: str, block: int | None, program: Path, tmp_path: Path
) -> None:
    asked = ["--delay", DELAY, "--delay-mode", mode, "--delay-patterns", "STG"]
    asked += [] if block is None else ["--delay-cluster-block", block]
    found = [times(program, tmp_path / "run", *asked, "--delay-seed", seed) for seed in SEEDS]
    print(mode, block, found)
    late = [{rank for rank in range(4) if spent[rank] > LATE} for spent in found]
    assert all(len(ranks) <= 1 for ranks in late) and any(late)
    chosen = set().union(*late)
    assert chosen == ({block} if block is not None else chosen)
    if mode == "cluster_fixed":
        slow = [max(spent) for spent, ranks in zip(found, late, strict=True) if ranks]
        assert all(16 * DELAY * 0.8 < spent < 16 * DELAY * 2 for spent in slow)


@pytest.mark.parametrize("by", ["checksum", "instructions"])
def test_file_of_cutracer_delays_the_same(by: str, program: Path, tmp_path: Path) -> None:
    asked = ["--delay", DELAY, "--delay-mode", "fixed", "--delay-patterns", "STG"]
    dump = tmp_path / "ours.json"
    for seed in SEEDS:
        spent = times(program, tmp_path / "run", *asked, "--delay-seed", seed, "--delay-dump", dump)
        if min(spent) > LATE:
            break
    text = cutracers(json.loads(dump.read_text()))
    if by == "checksum":
        theirs = json.loads(text.replace('"sass": "', '"sass": "NO'))
        process = tt.open(tmp_path / "run").process(0)
        cubin = codes(modules.read(process, int(process.modules["image"][-1])), 90)[0].cubin
        assert cubin is not None
        for kernel in theirs["kernels"].values():
            kernel["kernel_checksum"] = cutracers_checksum(cubin, kernel["kernel_name"], True)
        text = json.dumps(theirs)
    file = tmp_path / "theirs.json"
    file.write_text(text)
    load = ["--delay-load", file, "--delay-mode", "fixed"]
    again = times(program, tmp_path / "run", *load)
    print(spent, again)
    assert min(again) > LATE
