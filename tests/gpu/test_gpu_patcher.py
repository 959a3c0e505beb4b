"""On a GPU: the patcher's traces are those of NVIDIA's Sanitizer API, and change no result."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import ttanalyze as tt
from tests import support
from tests.test_instrument import KIND, records
from ttanalyze.format import layout
from ttanalyze.verbs.record.run import sanitizer_library

HERE = Path(__file__).resolve().parent
BARE = support.bare_environment()
KERNELS = (
    *("copy", "vectors", "gather", "reduction", "histogram", "product", "softmax", "globals"),
    *("divergent", "crowded", "dynamic", "together"),
)
KINDS = (
    *("count", "opcode", "addresses", "values", "heartbeat", "values,heartbeat"),
    "count,opcode,addresses,heartbeat",
)
Found = Counter[tuple[int, ...]]
ARENA_END = 1 << 46  # of deterministic memory
VARIABLES_ALIGN = 256  # bytes

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif("H" not in (support.gpu_name() or ""), reason="needs a GPU of sm_90"),
]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    target = tmp_path_factory.mktemp("kernels") / "kernels"
    command = [nvcc, "-O3", "-arch=sm_90", "-o", target, HERE / "patcher_kernels.cu"]
    subprocess.run([*map(str, command)], check=True)
    return target


def lines(text: str) -> list[str]:
    """Without the times."""
    return [line.rsplit(" ", 1)[0] for line in text.splitlines()]


def trace(run: Path, command: list[Path | str], way: str, *options: str) -> support.Outcome:
    given: list[str | Path] = ["instrument", "-q", "--way", way, *options, "-o", run, "--"]
    return support.ttanalyze(*given, *command, environment=BARE)


def accesses(run: Path) -> dict[int, Found]:
    """Of each launch: instruction, block, warp, lanes and their addresses. Variables of modules are
    not at the same addresses each time.
    """
    found: dict[int, Found] = {}
    for part in tt.open(run).trace_records(kinds=["addresses"]):
        addresses = part.addresses()
        for head, every in zip(part.heads, addresses, strict=True):
            mask = int(head["mask"])
            given = (int(a) for lane, a in enumerate(every) if mask >> lane & 1)
            at = (a % VARIABLES_ALIGN if a > ARENA_END else a for a in given)
            key = (int(head["instruction"]), int(head["block_x"]), int(head["warp"]), mask, *at)
            found.setdefault(int(head["launch"]), Counter())[key] += 1
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_traced_kernels_give_the_same_results(kind: str, program: Path, tmp_path: Path) -> None:
    bare = support.run([program, "all", "16"], BARE)
    done = trace(tmp_path / "run", [program, "all", "16"], "patcher", "--kind", kind)
    assert (done.status, lines(done.stdout)) == (0, lines(bare.stdout)), done.stderr
    refused = tt.open(tmp_path / "run").processes[0].traced["refused"]
    full = ["crowded"] if "heartbeat" in kind else []  # heartbeats need registers of their own
    assert full == [
        kernel
        for kernel, why in zip(KERNELS, refused, strict=True)
        if layout.REFUSED_TRACES[why] != "none"
    ]


def test_counts_are_those_of_the_records(program: Path, tmp_path: Path) -> None:
    """Kernels that wait for each other repeat loops differently often."""
    for kernel in ("vectors", "reduction", "softmax", "globals", "divergent", "crowded"):
        run = tmp_path / kernel
        command: list[Path | str] = [program, kernel, "4", "1", "8192"]
        assert trace(run, command, "patcher", "--kind", "count,opcode").status == 0
        found = list(records(run))
        warps = Counter(one.line for one in found if one.kind == KIND["opcode"])
        counts = {one.line: one.numbers[0] for one in found if one.kind == KIND["count"]}
        assert warps and {i: counts[i] for i in warps} == warps


@pytest.mark.parametrize("kernel", ["copy", "vectors"])
def test_values_are_those_of_memory(kernel: str, program: Path, tmp_path: Path) -> None:
    """What the program puts there: see main() of patcher_kernels.cu."""
    word, given = 1, []
    for _ in range(8192):
        word = (word * 1664525 + 1013904223) % 2**32
        given.append(word)
    command: list[Path | str] = [program, kernel, "4", "1", "8192"]
    assert trace(tmp_path / "run", command, "patcher", "--kind", "values").status == 0
    found: dict[int, tuple[int, ...]] = {}
    for part in tt.open(tmp_path / "run").trace_records(kinds=["values"]):
        for at, values in zip(part.addresses(), part.values(), strict=True):
            found |= zip(at.tolist(), map(tuple, values.T.tolist()), strict=True)
    size = 1 if kernel == "copy" else 4
    loaded = [tuple(given[i : i + size]) for i in range(0, len(given), size)]
    stored = loaded if size == 1 else [(d, c, b, (a + 1) % 2**32) for a, b, c, d in loaded]
    seen = [found[at] for at in sorted(found)]
    halves = seen[: len(loaded)], seen[len(loaded) :]
    assert halves in ((loaded, stored), (stored, loaded))


@pytest.mark.skipif(not sanitizer_library(), reason="nvidia-cuda-sanitizer-api >= 13.5")
@pytest.mark.parametrize("kernel", KERNELS)
def test_addresses_are_those_of_the_sanitizer_api(
    kernel: str, program: Path, tmp_path: Path
) -> None:
    words = {"dynamic": "49152", "product": "65536"}.get(kernel, "8192")
    command: list[Path | str] = [program, kernel, "4", "1", words]
    given = ("--kind", "addresses", "--deterministic")
    for way in ("patcher", "sanitizer"):
        assert trace(tmp_path / way, command, way, *given).status == 0
    ours, theirs = accesses(tmp_path / "patcher"), accesses(tmp_path / "sanitizer")
    if kernel == "together":  # it waits in loops
        assert {key[0] for key in ours[0]} == {key[0] for key in theirs[0]}
    else:
        assert ours == theirs


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="needs triton")
@pytest.mark.parametrize("script", ["triton_case.py", "train_adamw.py"])
def test_triton_and_torch_compute_the_same(script: str, tmp_path: Path) -> None:
    command: list[str | Path] = [sys.executable, HERE / script]
    bare = support.run(command, BARE)
    done = trace(tmp_path / "run", command, "patcher", "--kind", "count")
    assert (done.status, done.stdout) == (0, bare.stdout), done.stderr
    refused = Counter(int(r) for r in tt.open(tmp_path / "run").processes[0].traced["refused"])
    assert refused[layout.REFUSED_TRACES.index("none")] > 0
