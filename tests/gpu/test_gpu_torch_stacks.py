"""On a GPU: `--cpu-callstack pytorch` with the real PyTorch."""

from __future__ import annotations

import collections
import importlib.util
import sys
from pathlib import Path

import pytest

import ttanalyze as tt
from tests import support
from ttanalyze.core import stacks

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(support.gpu_name() is None, reason="needs a GPU"),
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs PyTorch"),
]
BARE = support.bare_environment()
SCRIPT = """\
import ctypes, torch
with_lock = ctypes.PyDLL("libcuda.so.1")
def fill(t):
    size = ctypes.c_size_t(t.numel())
    assert with_lock.cuMemsetD8_v2(ctypes.c_uint64(t.data_ptr()), ctypes.c_ubyte(3), size) == 0
def step(model, x):
    loss = model(x).square().mean()
    loss.backward()
    return loss.item()
torch.manual_seed(1)
model, x = torch.nn.Linear(64, 64).cuda(), torch.randn(8, 64).cuda()
marks = torch.empty(4096, dtype=torch.uint8, device="cuda")
for _ in range(3):
    print(step(model, x))
    fill(marks)
print(int(marks.sum()))
"""


def test_torch_is_asked_where_the_thread_has_the_lock(tmp_path: Path) -> None:
    """PyTorch's operators release it, so their stacks are read from memory."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    run = tmp_path / "run"
    environment = support.recording(BARE, run, cpu_callstack="pytorch")
    done = support.run([sys.executable, str(script)], environment)
    assert done.status == 0 and done.stdout.endswith(f"{3 * 4096}\n"), done
    process = tt.open(run).processes[0]
    found = collections.Counter(
        (stacks.source(process, n), tuple((name, line) for name, _, line in process.stack(n)))
        for n in process.events["stack"].tolist()
        if n
    )
    print(collections.Counter(source for source, _ in found.elements()))
    assert found["pytorch", (("fill", 5), ("<module>", 15))] == 3
    operators = {stack for source, stack in found if source == "python"}
    assert any({"Linear.forward", "step"} <= {name for name, _ in stack} for stack in operators)
    launches = process.events[process.events["kind"] == 1]
    assert len(launches) > 10 and (launches["stack"] > 0).all()
