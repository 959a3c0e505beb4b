"""`--cpu-callstack pytorch`: stacks of PyTorch's CapturedTraceback, where it can be asked."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import ttanalyze as tt
from tests import support
from ttanalyze.core import stacks

pytestmark = pytest.mark.native
SIM = support.simulator_environment()

STAND_IN = """\
import sys, traceback
calls = []
during = lambda: None
class CapturedTraceback:
    '''As torch.utils._traceback has it.'''
    def __init__(self, frame):
        self.tb = [(f.f_code.co_filename, line, f.f_code.co_name + ' by torch')
                   for f, line in traceback.walk_stack(frame)]
    @staticmethod
    def extract(*, script=False, cpp=False, skip=0):
        calls.append(1)
        during()
        return CapturedTraceback(sys._getframe(1))
    def summary(self):
        return traceback.StackSummary.from_list(
            [traceback.FrameSummary(*frame, lookup_line=False) for frame in reversed(self.tb)])
"""
BEGIN = """\
import ctypes
with_lock, without = ctypes.PyDLL("libcuda.so.1"), ctypes.CDLL("libcuda.so.1")
context, p = ctypes.c_void_p(), ctypes.c_uint64()
assert without.cuInit(0) == 0
assert without.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert without.cuCtxSetCurrent(context) == 0
assert without.cuMemAlloc_v2(ctypes.byref(p), ctypes.c_size_t(4096)) == 0
def fill(cu):
    return cu.cuMemsetD8_v2(p, ctypes.c_ubyte(1), ctypes.c_size_t(4096))
"""
Stack = tuple[str, list[tuple[str, int]]]


def recorded(text: str, folder: Path, python: str = sys.executable, **options: str) -> list[Stack]:
    """Runs BEGIN and text with a stand-in for PyTorch: source and frames of each set of memory."""
    package = folder / "torch" / "utils"
    package.mkdir(parents=True)
    for part in (package.parent, package):
        (part / "__init__.py").touch()
    (package / "_traceback.py").write_text(STAND_IN)
    (folder / "script.py").write_text(BEGIN + text)
    environment = support.recording(SIM, folder / "run", cpu_callstack="pytorch", **options)
    outcome = support.run([python, str(folder / "script.py")], environment)
    assert (outcome.status, outcome.stdout, outcome.stderr) == (0, "", "")
    return sets(folder / "run")


def sets(path: Path) -> list[Stack]:
    run = tt.open(path)
    assert run.warnings == []
    process = run.processes[0]
    numbers = process.events["stack"][process.events["kind"] == 5].tolist()
    return [
        (stacks.source(process, n), [(name, line) for name, _, line in process.stack(n)])
        for n in numbers
    ]


IMPORT = "import torch.utils._traceback as t\n"


@pytest.mark.parametrize("python", support.pythons())
def test_torch_is_asked_by_threads_with_the_lock(python: str, tmp_path: Path) -> None:
    text = f"{IMPORT}for cu in (with_lock, with_lock, without):\n    assert fill(cu) == 0\n"
    found = recorded(text, tmp_path, python)
    by_torch = ("pytorch", [("fill by torch", 9), ("<module> by torch", 12)])
    assert found == [by_torch, by_torch, ("python", [("fill", 9), ("<module>", 12)])]
    numbers = tt.open(tmp_path / "run").events["stack"]
    assert len(set(numbers[numbers > 0][-3:])) == 2  # equal stacks are stored once


def test_torch_is_not_imported_for_a_stack(tmp_path: Path) -> None:
    text = "import sys\nassert fill(with_lock) == 0\nassert 'torch' not in sys.modules\n"
    assert recorded(text, tmp_path) == [("python", [("fill", 9), ("<module>", 11)])]


@pytest.mark.parametrize(
    "broken",
    ["t.during = lambda: 1 / 0", "del t.CapturedTraceback", "t.CapturedTraceback.summary = None"],
)
def test_failure_of_torch_leaves_the_other_way(broken: str, tmp_path: Path) -> None:
    found = recorded(f"{IMPORT}{broken}\nassert fill(with_lock) == 0\n", tmp_path)
    assert found == [("python", [("fill", 9), ("<module>", 12)])]


def test_interrupt_reaches_the_program(tmp_path: Path) -> None:
    """A signal's handler may run within PyTorch's code."""
    text = f"""{IMPORT}import os, signal
t.during = lambda: (os.kill(os.getpid(), signal.SIGINT), len(calls))
calls = []
try:
    assert fill(with_lock) == 0
    for _ in range(100):
        calls.append(1)
except KeyboardInterrupt:
    t.during = lambda: None
    assert len(calls) < 100
    assert fill(with_lock) == 0
else:
    raise SystemExit("no interrupt")
"""
    found = recorded(text, tmp_path)
    assert [source for source, _ in found] == ["python", "pytorch"]


def test_calls_within_torch_are_recorded(tmp_path: Path) -> None:
    """Objects that a garbage collection frees there may own device memory."""
    text = f"{IMPORT}t.during = lambda: len(t.calls) < 2 and fill(with_lock)\nfill(with_lock)\n"
    inner, outer = recorded(text, tmp_path)
    names = [name.split(".")[-1] for name, _ in inner[1]]
    assert (inner[0], names) == ("python", ["fill", "<lambda>", "extract", "fill", "<module>"])
    assert outer[0] == "pytorch"


@pytest.mark.parametrize("python", support.pythons())
def test_calls_at_the_end_of_the_interpreter(python: str, tmp_path: Path) -> None:
    text = f"""{IMPORT}import atexit
atexit.register(fill, with_lock)
class Owner:
    def __del__(self, fill=fill, with_lock=with_lock):
        fill(with_lock)
t.owner = Owner()
kept = [Owner()]
kept.append(kept)
fill(with_lock)
"""
    sources = [source for source, _ in recorded(text, tmp_path, python)]
    assert len(sources) >= 3 and sources[:2] == ["pytorch", "pytorch"]


def test_epochs_and_threads_beside_torch(tmp_path: Path) -> None:
    """Torch's code gives up the lock now and then, also while another thread cuts epochs."""
    text = f"""{IMPORT}import threading, time
t.during = lambda: time.sleep(0.0002)
def work(cu):
    assert without.cuCtxSetCurrent(context) == 0
    for _ in range(50):
        fill(cu)
        cu.cuCtxSynchronize()
threads = [threading.Thread(target=work, args=(cu,)) for cu in (with_lock, without, with_lock)]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""
    found = recorded(text, tmp_path, epoch="sync,launch:3")
    sources = [source for source, _ in found]
    assert (sources.count("pytorch"), sources.count("python")) == (100, 50)


def test_real_torch(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "script.py").write_text(BEGIN + "import torch\nassert fill(with_lock) == 0\n")
    environment = support.recording(SIM, tmp_path / "run", cpu_callstack="pytorch")
    support.run([sys.executable, str(tmp_path / "script.py")], environment)
    (stack,) = sets(tmp_path / "run")
    assert stack == ("pytorch", [("fill", 9), ("<module>", 11)])
