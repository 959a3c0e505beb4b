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
from ttanalyze.code.demangle import demangle

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(support.gpu_name() is None, reason="needs a GPU"),
]
BARE = support.importing_environment()
CASE = [sys.executable, str(Path(__file__).with_name("patch_case.py"))]
LIMIT = 90  # seconds a case may take
needs_both = pytest.mark.skipif(
    not (importlib.util.find_spec("torch") and importlib.util.find_spec("triton")),
    reason="needs torch and triton",
)


def launched(run: Path) -> list[str]:
    """Mangled names."""
    process = tt.open(run).process(0)
    return sorted(process.strings.get(int(name)) or "" for name in process.functions["name"])


def run_case(run: Path, *options: str) -> support.Outcome:
    """Prints the warnings of a case."""
    command: list[str | Path] = ["record", "-o", run, "--epoch", "none", *options, "--", *CASE]
    done = support.ttanalyze(*command, environment=BARE, timeout=LIMIT)
    warnings = Counter(re.sub(r" in \S+ ", " in … ", line) for line in done.stderr.splitlines())
    for line, times in warnings.most_common(12):
        print(f"{times} x {line[:250]}")
    return done


def tell(run: Path, names: list[str], mode: int, patcher: sp.Patcher) -> int:
    """Prints what was patched; returns how many kernels were."""
    listed = json.loads((run / "p0" / "delays.json").read_text())["kernels"].values()
    late = {
        k["kernel_name"]: sum(p["on"] for p in k["instrumentation_points"].values()) for k in listed
    }
    found: dict[str, list[str | None] | str] = {}
    for path in (run / "p0" / "modules").iterdir():
        for code in patcher.codes(path.read_bytes(), 90):
            cubin = patcher.open(code)
            for kernel in cubin.kernels:
                if kernel.name in names:
                    found[kernel.name] = cubin.refusals(kernel, mode)
    whole, single, moved = Counter[str](), Counter[str](), 0
    for name in names:
        refused = found.get(name, "no machine code of it was found")
        if name not in late:
            refused = f"it was not among what was patched, {refused if name not in found else ''}"
        if isinstance(refused, str):
            whole[refused] += 1
            print("  not:", demangle([name])[0][:150], refused)
        else:
            single.update(reason for reason in refused if reason)
            moved += refused.count(None)
    print(
        f"{len(names)} kernels, {len(names) - whole.total()} patched; {moved} instructions of them",
        end=" ",
    )
    print(f"can be late, {sum(late.values())} were in {sum(map(bool, late.values()))} kernels")
    print("kernels not patched:", dict(whole))
    print("instructions that can't be late:", dict(single))
    return len(names) - whole.total()


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, str], list[str]]:
    """What the kernels give as they are, by operation, and their names."""
    run = tmp_path_factory.mktemp("plain") / "run"
    done = run_case(run)
    assert done.status == 0, done.stderr[-3000:]
    return results(done), launched(run)


def results(done: support.Outcome) -> dict[str, str]:
    return dict(line.split("\t") for line in done.stdout.splitlines())


@needs_both
@pytest.mark.parametrize(
    "delay",
    [
        ["--delay", "0", "--delay-patterns", "*"],
        ["--delay", "400"],
        ["--delay", "400", "--delay-patterns", "*", "--delay-mode", "fixed"],
        ["--delay", "2000", "--delay-mode", "cluster", "--delay-seed", "2"],
        ["--delay", "2000", "--delay-mode", "cluster_fixed", "--delay-cluster-block", "1"],
    ],
    ids=" ".join,
)
def test_patched_kernels_give_the_same_results(
    plain: tuple[dict[str, str], list[str]], delay: list[str], tmp_path: Path
) -> None:
    bare, names = plain
    run = tmp_path / "run"
    pattern = "^(" + "|".join(re.sub(r"([$.])", r"\\\1", name) for name in names) + ")$"
    done = run_case(run, *delay, "--delay-kernel", pattern)
    late = results(done)
    refused = {name: said for name, said in bare.items() if said.startswith("refused")}
    differ = {name: late.get(name) for name in bare if late.get(name) != bare[name]}
    print(
        f"{delay}: {len(bare)} operations, {len(bare) - len(differ)} same; refused anyway:", refused
    )
    print("differ:", differ, "status", done.status)
    clusters = any("cluster" in word for word in delay)
    mode = sp.CLUSTER if clusters else sp.FIXED if "400" in delay else sp.EMPTY
    patched = tell(run, names, mode, sp.build(tmp_path))
    assert (late, done.status) == (bare, 0), done.stderr[-2000:]
    assert patched >= 50
