"""On a GPU: kernels with detours and delays wherever they can be do what they did."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from collections import Counter
from pathlib import Path

import pytest

import ttanalyze as tt
from tests import sass_patcher as sp
from tests import support
from tests.recordings import record
from ttanalyze.demangle import demangle
from ttanalyze.kernels import fatbin

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(support.gpu_name() is None, reason="needs a GPU"),
]
PATH = str(Path(__file__).resolve().parent.parent.parent)
BARE = support.bare_environment(PYTHONPATH=":".join([PATH, *filter(None, sys.path)]))
CASE = [sys.executable, str(Path(__file__).with_name("patch_case.py"))]
needs_both = pytest.mark.skipif(
    not (importlib.util.find_spec("torch") and importlib.util.find_spec("triton")),
    reason="needs torch and triton",
)


def launched(run: Path) -> list[str]:
    """Mangled names."""
    process = tt.open(run).process(0)
    return sorted(process.strings.get(int(name)) or "" for name in process.functions["name"])


def tell(run: Path, names: list[str], patcher: sp.Patcher) -> dict[str, int]:
    """Prints what was patched; returns how many instructions of each kernel were moved."""
    listed = json.loads((run / "p0" / "delays.json").read_text())["kernels"].values()
    patched = {k["kernel_name"] for k in listed}
    why: dict[str, tuple[int, Counter[str]]] = {}
    for path in (run / "p0" / "modules").iterdir():
        image = path.read_bytes()
        parts = [image] if image.startswith(b"\x7fELF") else []
        parts += [e.contents for e in fatbin.entries(image) if e.architecture == 90 and e.contents]
        for part in parts:
            try:
                cubin = patcher.open(part)
            except ValueError:
                continue
            for kernel in cubin.kernels:
                if kernel.name in names:
                    why[kernel.name] = kernel.size // 16, cubin.reasons(kernel)
    moved = {}
    for name in names:
        size, reasons = why.get(name, (0, Counter()))
        moved[name] = size - reasons.total() if name in patched else 0
        print(
            f"{demangle([name])[0][:70]}: {size} instructions, {moved[name]} moved,",
            end=" ",
        )
        print(dict(reasons))
    return moved


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, list[str]]:
    """What the kernels give as they are, and their names."""
    run = tmp_path_factory.mktemp("plain") / "run"
    done = record(CASE, BARE, run, "--epoch", "none")
    assert done.status == 0, done.stderr
    return done.stdout, launched(run)


@needs_both
@pytest.mark.parametrize(
    "delay",
    [
        ["--delay", "0"],
        ["--delay", "400"],
        ["--delay", "400", "--delay-mode", "fixed", "--delay-seed", "1"],
        ["--delay", "2000", "--delay-mode", "cluster", "--delay-seed", "2"],
    ],
    ids=" ".join,
)
def test_results_stay(plain: tuple[str, list[str]], delay: list[str], tmp_path: Path) -> None:
    stdout, names = plain
    run = tmp_path / "run"
    pattern = "^(" + "|".join(re.sub(r"([$.])", r"\\\1", name) for name in names) + ")$"
    more = ["--delay-patterns", "*", "--delay-kernel", pattern]
    done = record(CASE, BARE, run, "--epoch", "none", *delay, *more)
    print(done.stderr)
    differ = sorted(set(stdout.splitlines()) ^ set(done.stdout.splitlines()))
    print(len(stdout.splitlines()), "results; those that differ:", differ)
    moved = tell(run, names, sp.build(tmp_path))
    print(len(names), "kernels,", sum(moved.values()), "instructions could be moved")
    assert (done.stdout, done.status) == (stdout, 0)
    assert sum(map(bool, moved.values())) >= 50
