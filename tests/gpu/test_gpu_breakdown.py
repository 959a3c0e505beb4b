"""On a GPU: the breakdown of a run has the figures of a torch.profiler trace of the same steps.

CUPTI has one user at a time. So the program makes the same steps twice: the recorder times the
first ones, torch.profiler those after them.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ttanalyze as tt
from tests import support
from tests.gpu.device_lock import on_gpus
from tests.recordings import record
from ttanalyze.core.intervals import Intervals
from ttanalyze.output.times import as_nanoseconds

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(support.gpu_name() is None, reason="needs a GPU"),
]

HERE = Path(__file__).resolve().parent
STEPS = 6


def profiled(trace: Path) -> dict[str, float]:
    """What Holistic Trace Analysis adds up of a trace: a kernel is communication if its name begins
    with nccl, memory if it is a copy or a set, else computing.
    """
    events: list[dict[str, Any]] = json.loads(trace.read_text())["traceEvents"]
    kinds = {"kernel": "compute", "gpu_memcpy": "memory", "gpu_memset": "memory"}
    found: dict[str, list[tuple[float, float]]] = {"compute": [], "memory": [], "nccl": []}
    for event in events:
        kind = kinds.get(event.get("cat", ""))
        if kind is not None and event.get("ph") == "X":
            kind = "nccl" if event["name"].startswith("nccl") else kind
            found[kind].append((1000 * event["ts"], 1000 * (event["ts"] + event["dur"])))
    sets = {
        kind: Intervals.of(*np.array(times or np.empty((0, 2))).reshape(-1, 2).T)
        for kind, times in found.items()
    }
    busy = sets["compute"].union(sets["nccl"])
    work = busy.union(sets["memory"])
    span = int(work.ends[-1] - work.begins[0])
    sums = {kind: _sum(one) for kind, one in sets.items()}
    return {
        "total": span,
        "compute": sums["compute"],
        "other work": _sum(work) - sums["compute"],
        "idle": span - _sum(work),
    }


def _sum(times: Intervals) -> int:
    return int((times.ends - times.begins).sum())


@pytest.mark.exclusive  # what else runs there makes the second half slower than the first
@pytest.mark.parametrize("ranks", [on_gpus(1), on_gpus(2), on_gpus(4)])
def test_figures_are_those_of_a_profiler(ranks: int, tmp_path: Path) -> None:
    """Within 2 % of the whole time: what the temporal breakdown of Holistic Trace Analysis has. The
    two are of one program, one after the other, as only one can use CUPTI. How long a kernel of
    NCCL waits for the other rank is not the same in both.
    """
    pytest.importorskip("torch")
    path = tmp_path / "run"
    command = [sys.executable, str(HERE / "breakdown_case.py"), str(tmp_path), str(ranks)]
    options = ["--timeline", "cupti", "--contents", "none", "--epoch", "nvtx:^never$"]
    done = record(command, support.bare_environment(), path, *options)
    assert done.status == 0, done.stderr
    found = tt.breakdown(tt.open(path))
    assert found.steps["step"].tolist() == [f"step {i}" for i in range(STEPS)] * ranks
    for rank, (_, ours) in enumerate(as_nanoseconds(found.ranks).iterrows()):
        theirs = profiled(tmp_path / f"rank{rank}.json")
        other = int(ours["exposed_communication"] + ours["exposed_memory"])
        figures = {"compute": ours["compute"], "other work": other, "idle": ours["idle"]}
        # The pause after the last step is in neither.
        print({name: (int(value), int(theirs[name])) for name, value in figures.items()})
        for name, value in figures.items():
            shares = value / ours["total"], theirs[name] / theirs["total"]
            assert abs(shares[0] - shares[1]) < 0.02, (name, shares)
        assert (ours["communication"] > 0) == (ranks > 1)
