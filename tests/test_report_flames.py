"""The flame graphs of a report: whose work and memory they count, and how large they get."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import ttanalyze as tt
from tests.rundir import Writer
from ttanalyze.verbs.report.data import document
from ttanalyze.verbs.report.flames import tree

OUTER = ("<module>", "/opt/app/train.py", 3)


def paths(made: dict[str, Any], name: str) -> dict[str, float]:
    """The value of each node of a tree by its path."""
    texts: list[str] = []
    for i, text in enumerate(made["text"].tolist()):
        own = made["texts"][text]
        texts.append(f"{texts[made['parent'][i]]} > {own}" if i else own)
    return dict(zip(texts, made["values"][name].tolist(), strict=True))


def flames_of(run: Path) -> Any:
    (process,) = document(tt.open(run))["processes"]
    return process["flames"]


def test_launches_and_gpu_time_are_counted_by_stack(run_path: Path) -> None:
    w = Writer(run_path)
    w.function(0, "scale")
    w.function(1, "add")
    w.stack(1, [("step", "/opt/app/train.py", 12), OUTER])
    w.stack(2, [("loss", "/opt/app/loss.py", 5), OUTER])
    for stack, function, took in ((1, 0, 100), (1, 0, 50), (1, 1, 7), (2, 1, 9), (0, 1, 1)):
        seq = w.event("launch", "cuLaunchKernel", id=function, stack=stack)
        w.activity("launch", seq, 9_000, 9_000 + took)
    w.event("launch", "cuLaunchKernel", id=0, stack=2, flags=1)  # recorded into a graph
    w.close()
    work = flames_of(run_path)["work"]
    module, step = "<module> (train.py:3)", "step (train.py:12)"
    assert paths(work, "GPU time") == {
        "all": 167,
        f"all > {module}": 166,
        f"all > {module} > {step}": 157,
        f"all > {module} > {step} > scale": 150,
        f"all > {module} > {step} > add": 7,
        f"all > {module} > loss (loss.py:5)": 9,
        f"all > {module} > loss (loss.py:5) > add": 9,
        "all > no recorded stack": 1,
        "all > no recorded stack > add": 1,
    }
    assert paths(work, "launches")[f"all > {module} > {step} > scale"] == 2
    assert work["left_out"] == 0


def test_memory_is_counted_by_allocation_stack(run_path: Path) -> None:
    w = Writer(run_path)
    w.stack(1, [("load", "/opt/app/data.py", 7), OUTER])
    w.stack(2, [("step", "/opt/app/train.py", 12), OUTER])
    w.born(0, bytes(1000), stack=1)
    w.died(0)
    for region, size in ((1, 700), (2, 800)):
        w.born(region, bytes(size), stack=2)
    w.born(3, bytes(5000), kind="host", captured=False, stack=1)
    w.close()
    memory = flames_of(run_path)["memory"]
    load, step = (
        f"all > <module> (train.py:3) > {n}" for n in ("load (data.py:7)", "step (train.py:12)")
    )
    assert paths(memory, "bytes at the peak") == {
        "all": 1500,
        "all > <module> (train.py:3)": 1500,
        load: 0,
        step: 1500,
    }
    assert paths(memory, "bytes of the whole run")[load] == 1000


def test_large_trees_keep_the_heaviest_nodes() -> None:
    random = np.random.default_rng(1)
    given = [
        ([f"f{random.integers(9)}" for _ in range(random.integers(1, 12))], [float(i), 1.0])
        for i in range(3000)
    ]
    whole, small = tree(given, ["time", "count"], 1 << 20), tree(given, ["time", "count"], 200)
    assert len(small["text"]) <= 200 < len(whole["text"])
    for name in ("time", "count"):
        known, kept = paths(whole, name), paths(small, name)
        assert {path: known[path] for path in kept} == kept
        assert kept["all"] == sum(v[0 if name == "time" else 1] for _, v in given)
    assert small["left_out"] > 0
    assert (small["parent"][1:] < np.arange(1, len(small["parent"]))).all()


def test_endless_recursion_keeps_the_innermost_frames(run_path: Path) -> None:
    w = Writer(run_path)
    w.function(0, "scale")
    w.stack(1, [("deep", "/opt/app/a.py", i + 1) for i in range(300)])
    w.event("launch", "cuLaunchKernel", id=0, stack=1)
    w.close()
    found = [*paths(flames_of(run_path)["work"], "launches")]
    assert len(found) < 70
    assert found[-1].endswith("deep (a.py:1) > scale") and found[1] == "all > …"


def test_a_run_without_stacks_says_so(run_path: Path) -> None:
    w = Writer(run_path)
    w.born(0, b"some")
    w.close()
    assert not flames_of(run_path)["stacks"]
