"""On a GPU: contents that the device codes are those that it had, and take less room."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

import ttanalyze as tt
from tests import support
from tests.recordings import record

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(support.gpu_name() is None, reason="needs a GPU"),
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch"),
]

BARE = support.bare_environment()
PROGRAM = """
import torch
torch.manual_seed(3)
size = 1 << 22
normal = torch.randn(size)
kinds = [normal.bfloat16(), normal, normal.bfloat16().relu(), normal.bfloat16().float()]
kinds += [torch.arange(size), torch.randint(0, 256, (size,), dtype=torch.uint8)]
kinds = [kind.cuda() for kind in kinds]
torch.cuda.synchronize()
for _ in range(3):
    for kind in kinds:
        kind += 1
    torch.cuda.synchronize()
"""


def test_coded_contents_are_those_of_a_plain_run(tmp_path: Path) -> None:
    runs = {}
    for how in ("off", "device"):
        options = ["--deterministic", "--compress", how]
        done = record([sys.executable, "-c", PROGRAM], BARE, tmp_path / how, *options)
        assert done.status == 0, done.stderr
        runs[how] = tt.open(tmp_path / how)
    manifest = tmp_path / "off" / "manifest.json"
    assert tt.verify(runs["device"], manifest, against=runs["off"]).same
    stored = {how: int(run.epochs["bytes_stored"].sum()) for how, run in runs.items()}
    assert stored["device"] < 0.8 * stored["off"]
    outcome = support.ttanalyze("diff", tmp_path / "off", tmp_path / "device")
    assert outcome.status == 0, outcome
