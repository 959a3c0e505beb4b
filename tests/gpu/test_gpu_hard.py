"""On a GPU: programs that are hard to record print and end as without us, and their runs verify."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests import support
from tests.gpu.hard_programs import ENDS

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(support.gpu_name() is None, reason="needs a GPU"),
]

HERE = Path(__file__).resolve().parent
BARE = support.bare_environment(TORCHINDUCTOR_COMPILE_THREADS="4")
MODES = {
    "default": "",
    "everything": "--host-memory --arrays --host-writes --params --cpu-callstack mixed --names "
    "--timeline cupti --compress device --epoch sync,memcpy,graph",
    "inside": "--zones 256 --fill pattern:7 --timeline events --graph-stamps . "
    "--epoch sync;graph-node:. --launch-delay 50us --no-progress 60s",
    "traced": "--instrument addresses,values --instrument-way patcher --instrument-every 7 "
    "--instrument-records 1000000",
}
PROGRAMS = {
    "compiled": "torch",
    "forks": "torch",
    "graph_streams": "torch",
    "threads": "torch",
    "daemon": "torch",
    "expandable": "torch",
    "profiled": "torch",
    "tuned": "triton",
    "fault": "torch",
    "alarms": "torch",
    "cupy_pools": "cupy",
    "jax_donated": "jax",
    "leaves": "torch",
    "aborts": "torch",
    "killed": "torch",
    "killed_by_another": "torch",
    "preloaded": "torch",
}


@pytest.fixture(scope="session")
def other_preload(tmp_path_factory: pytest.TempPathFactory) -> Path:
    library = tmp_path_factory.mktemp("other") / "other.so"
    line = ["gcc", "-shared", "-fPIC", "-O2", "-o", str(library), str(HERE / "other_preload.c")]
    subprocess.run(line, check=True)
    return library


@pytest.mark.parametrize("name", PROGRAMS)
def test_hard_program(name: str, other_preload: Path, tmp_path: Path) -> None:
    if importlib.util.find_spec(PROGRAMS[name]) is None:
        pytest.skip(f"needs {PROGRAMS[name]}")
    command = [sys.executable, str(HERE / "hard_programs.py"), name]
    environment = dict(BARE)
    if name == "preloaded":
        environment["LD_PRELOAD"] = str(other_preload)
    ends = ENDS.get(name, 0)
    cache = {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "bare-cache")}
    began = time.monotonic()
    bare = support.run(command, environment | cache)
    assert bare.status == ends, bare.stderr[-3000:]
    seconds: list[float] = [time.monotonic() - began]
    wrong: list[str] = []
    for mode, options in MODES.items():
        run = tmp_path / mode
        cache = {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path / f"{mode}-cache")}
        began = time.monotonic()
        try:
            done = support.ttanalyze(
                *("record", "-q", "-o", str(run), *options.split(), "--", *command),
                environment=environment | cache,
                timeout=100,
            )
        except subprocess.TimeoutExpired as error:
            wrong.append(f"{mode}: {error}"[-3000:])
            continue
        seconds.append(time.monotonic() - began)
        expected = ends if ends >= 0 else 128 - ends
        if (done.status, done.stdout) != (expected, bare.stdout):
            wrong.append(f"{mode}: {done} instead of {bare}"[:6000])
        says = [line for line in done.stderr.splitlines() if line.startswith("ttanalyze")]
        verb = ("validate",) if mode == "traced" else ("verify", "--continue")
        verified = support.ttanalyze(*verb, run)
        # Of a context that failed, the last epochs are lost, and verify says so. A program of few
        # launches has none that is traced.
        unsure = name == "fault" or "no launch was to be traced" in verified.stderr
        if verified.status != (2 if unsure else 0):
            wrong.append(f"{mode}: verify: {verified}"[-3000:])
        line = f"{name} {mode}: {seconds[-1]:.1f} s, {verified.stdout.strip()[-200:]}"
        print("\n".join([line, *says]), file=sys.stderr, flush=True)
        shutil.rmtree(run, ignore_errors=True)
    assert not wrong, "\n".join(wrong)
