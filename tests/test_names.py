"""Names of memory that programs do not name themselves: `record --names`, `ttanalyze.names.name`,
and `ttanalyze.torch.watch` without a model.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import ttanalyze as tt
from tests import support, torch_standin
from tests.test_torch import BASE, Told, trained
from tests.torch_standin import SEGMENT, Memory, Module, Optimizer, Tensor, model, parameter
from ttanalyze.integrations import memory_names, names, torch

PYTHONS = support.pythons()


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Told:
    made = Told()
    memory = memory_names.Memory(made.label)
    for module in (names, torch):
        monkeypatch.setattr(module, "memory", lambda: memory)
    for name, module in torch_standin.as_torch().items():
        monkeypatch.setitem(sys.modules, name, module)
    return made


@pytest.fixture
def memory() -> Memory:
    places = iter(range(BASE, BASE << 1, 1 << 30))
    return Memory(lambda size: next(places))


def recorded(out: Path, *program: str, **options: str) -> Any:
    """The names of a recorded program, in order."""
    environment = support.recording(support.simulator_environment(), out, **options)
    outcome = support.run(list(program), environment, cwd=support.ROOT)
    assert (outcome.status, outcome.stderr) == (0, "")
    return tt.query(tt.open(out), table="labels")


# ---- record --names ----


@pytest.mark.native
def test_training_has_the_names_that_watch_gives(tmp_path: Path) -> None:
    """In the same epochs; --names also says which memory was freed at the end."""
    program = [sys.executable, "-m", "tests.torch_standin"]
    watched = recorded(tmp_path / "watched", *program)
    found = recorded(tmp_path / "found", *program, "--unwatched", names="1")
    columns = ["region", "offset", "bytes", "tensor", "type", "epoch"]
    expected = watched[columns].values.tolist()
    assert found[columns].values.tolist()[: len(expected)] == expected and len(expected) > 40
    assert found["tensor"][len(expected) :].str.endswith("(freed)").all()


@pytest.mark.native
@pytest.mark.parametrize("python", PYTHONS)
def test_arrays_in_variables_have_names_in_each_epoch(python: str, tmp_path: Path) -> None:
    """Also those that a step replaces; variables of functions from Python 3.12 on."""
    table = recorded(tmp_path / "run", python, "-m", "tests.names_standin", names="1")
    run = tt.open(tmp_path / "run")
    expected = {"params.dense.kernel", "params.split:0", "params.split:1", "counts", "state.mu"}
    script = "import sys; print(sys.version_info >= (3, 12))"
    if subprocess.check_output([python, "-c", script]) == b"True\n":
        expected.add("local.bias")
    places = set()
    for epoch in range(4):
        parts = run.tensors(epoch)
        assert {t for t in parts["tensor"] if "freed" not in t} == expected
        places.add(int(parts["offset"][parts["tensor"] == "params.dense.kernel"].iloc[0]))
    assert len(places) == 2  # by turns
    assert {*table["type"].dropna()} == {"f32", "i32"}


@pytest.mark.native
def test_program_without_python_has_no_names(built: Path, tmp_path: Path) -> None:
    command = support.command("copy_1d", built)
    assert recorded(tmp_path / "run", *command, names="1").empty


def test_too_old_python_is_said(tmp_path: Path) -> None:
    old = Path.home() / ".pyenv/versions/3.9.18/bin/python3"
    if not old.exists():
        pytest.skip("needs Python 3.9")
    program = "import ctypes, time\nimport tests.torch_standin as s\n"
    program += (
        "s.driver_memory(ctypes.CDLL('libcuda.so.1'))[0].take(8)\ntime.sleep(0)\nprint('done')"
    )
    environment = support.recording(
        support.simulator_environment(), tmp_path / "run", names="1", PYTHONPATH=str(support.ROOT)
    )
    done = subprocess.run(
        [old, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout == "done\n" and "--names: ImportError('needs Python 3.10')" in done.stderr


# ---- watch() ----


def test_all_modules_and_optimizers_are_watched(told: Told, memory: Memory) -> None:
    """The first with parameters has plain names, others those with their class."""
    first, second = model(memory), model(memory)
    optimizer = Optimizer([*first.parameters(), *second.parameters()])
    with torch.watch() as watch:
        assert watch.active and not told.names
        loss = Module(lambda x: Tensor(memory, 1))
        kept = [trained(first, memory, optimizer), trained(second, memory, optimizer), loss(None)]
        assert {"layers.0.weight", "layers.0.weight.grad", "layers.1:output"} <= told.names
        assert {"layers.0.weight.momentum", "Module.layers.0.weight.momentum"} <= told.names
        assert {"Module.layers.1.weight", "Module2.output"} <= told.names
    assert not torch_standin.GLOBAL_BEFORE and not torch_standin.GLOBAL_STEPPED
    for module in (*first.modules(), *second.modules(), loss):
        assert module.before == module.after == []
    assert kept


def test_module_in_a_later_one_is_watched_once(told: Told, memory: Memory) -> None:
    inner = Module(lambda x: x, weight=parameter(memory, 4))
    outer = Module(lambda x: inner(x), encoder=inner, bias=parameter(memory, 2))
    with torch.watch():
        inner(None)
        assert told.names == {"weight"}
        outer(None)
        assert told.names == {"weight", "Module.bias"}  # names stay
        assert len(inner.after) == 1


# ---- name() ----


def array(memory: Memory, count: int) -> Any:
    from tests.names_standin import JaxArray

    return JaxArray(memory, count)


class Pair(tuple[Any, ...]):
    _fields = ("mu", "nu")


def test_containers_have_paths(told: Told, memory: Memory) -> None:
    inner = {"w": Tensor(memory, 4), "no": 3, "again": None}
    inner["again"] = inner
    value = [inner, Pair((Tensor(memory, 2), "text")), (Tensor(memory, 1),)]
    assert names.name("p", value) == 3
    assert told.names == {"p.0.w", "p.1.mu", "p.2.0"}
    assert names.name("p", value) == 0  # nothing new
    assert names.name("q", value) == 0  # names stay
    del value, inner


def test_nothing_happens_where_nothing_is_recorded(memory: Memory) -> None:
    assert names.name("p", [Tensor(memory, 4)]) == 0


def test_strange_arrays_have_no_name(told: Told, memory: Memory) -> None:
    def about(**changed: Any) -> Any:
        given = {"data": (BASE, False), "shape": (4, 2), "typestr": "<f4", "strides": None}
        kind = type("Array", (), {"__cuda_array_interface__": given | changed, "dtype": "float32"})
        return kind()

    assert names.name("empty", about(shape=(0, 4))) == 0
    assert names.name("nowhere", about(data=(0, False))) == 0
    scalar = about(shape=())
    assert names.name("scalar", scalar) == 1
    assert told.parts[BASE, 4] == ("scalar", "f32")
    kept = about(data=(BASE + 64, False), strides=(-8, 4))
    assert names.name("backwards", kept) == 1
    assert told.parts[BASE + 64 - 24, 32][0] == "backwards"
    assert names.name("p", SimpleNamespace(x=3)) == 0


# ---- record --regions named ----

TRAINS = """
import ctypes, sys
from tests.torch_standin import Optimizer, Tensor, as_torch, driver_memory, model
cuda = ctypes.CDLL("libcuda.so.1")
memory, check = driver_memory(cuda)
sys.modules |= as_torch()
net = model(memory)
optimizer = Optimizer(list(net.parameters()))
batch = Tensor(memory, 512, 512)  # fills a segment; gradients get another one
for step in range(4):
    out = net(Tensor(memory, 64))["logits"]
    for p in net.parameters():
        p.accumulate(Tensor(memory, 64, 64))
    optimizer.step()
    check(cuda.cuMemsetD8_v2(ctypes.c_uint64(batch.data_ptr()), step, ctypes.c_size_t(1 << 20)))
    check(cuda.cuCtxSynchronize())
"""


@pytest.mark.native
def test_regions_named_reads_state_alone(tmp_path: Path) -> None:
    """Activations and batches get no names, and their allocations are read only in snapshots."""
    runs = {}
    for regions in ("all", "named"):
        path = tmp_path / regions
        table = recorded(path, sys.executable, "-c", TRAINS, regions=regions, names="1")
        runs[regions] = tt.open(path), set(table["tensor"].str.removesuffix(" (freed)"))
    every, state = (names for _, names in runs.values())
    assert "batch" in every and any(name.endswith("output") for name in every)
    assert state == {n for n in every if n not in {"batch", "out"} and "output" not in n}
    assert {"layers.0.weight", "layers.0.weight.grad", "layers.0.weight.momentum"} <= state
    read = {name: set(run.epochs["bytes_read"][1:4]) for name, (run, _) in runs.items()}
    assert read == {"all": {3 * SEGMENT}, "named": {2 * SEGMENT}}
    assert runs["named"][0].epochs["touched"][1:4].all()


@pytest.mark.native
def test_regions_named_without_names_is_said(built: Path, tmp_path: Path) -> None:
    command = [str(word) for word in support.command("example-training", built)]
    environment = support.recording(support.simulator_environment(), tmp_path / "run")
    done = support.run(command, environment | {"TT_REGIONS": "named"})
    assert done.status == 0
    assert "--regions named: no allocation had a name" in done.stderr
    assert tt.open(tmp_path / "run").process(0).info["options"]["TT_NAMES"] == "1"
