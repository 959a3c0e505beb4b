"""ttanalyze.torch: which names tensors get, and that nothing else happens.

What it uses of PyTorch is stood for by tests.torch_standin; PyTorch itself is in tests/gpu.
"""

from __future__ import annotations

import copy
import json
import pickle
import subprocess
import sys
import types
import weakref
from collections import namedtuple
from pathlib import Path
from typing import Any

import pytest

import ttanalyze as tt
import ttanalyze.integrations.torch as names
from tests import support
from tests.torch_standin import Memory, Module, Optimizer, Storage, Tensor, model, parameter
from ttanalyze.integrations import memory_names

SIM = support.simulator_environment()
BASE = 1 << 40


class Told:
    """Stands for the recorder: what every byte is called."""

    def __init__(self) -> None:
        self.parts: dict[tuple[int, int], tuple[str, str | None]] = {}
        self.calls = 0

    def label(self, address: int, size: int, name: bytes | None, kind: bytes | None) -> int:
        self.calls += 1
        for place in [p for p in self.parts if p[0] < address + size and address < p[0] + p[1]]:
            del self.parts[place]
        if name is not None:
            self.parts[address, size] = name.decode(), None if kind is None else kind.decode()
        return 0

    def __call__(self, tensor: Tensor) -> str | None:
        """What a tensor's first byte is called."""
        at = tensor.data_ptr()
        found = [name for (a, n), (name, _) in self.parts.items() if a <= at < a + n]
        return found[0] if found else None

    @property
    def names(self) -> set[str]:
        return {name for name, _ in self.parts.values()}


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Told:
    made = Told()
    memory = memory_names.Memory(made.label)
    monkeypatch.setattr(names, "memory", lambda: memory)
    return made


@pytest.fixture
def memory() -> Memory:
    places = iter(range(BASE, BASE << 1, 1 << 30))
    return Memory(lambda size: next(places))


def trained(net: Module, memory: Memory, optimizer: Optimizer) -> Any:
    """One step; gives what the model gave."""
    out = net(Tensor(memory, 8))
    for _, p in net.named_parameters():
        p.accumulate(Tensor(memory, *p.shape))
    optimizer.step()
    return out


# ---- names ----


def test_training_step_names_its_tensors(told: Told, memory: Memory) -> None:
    net = model(memory)
    weights = [p for _, p in net.named_parameters()]
    optimizer = Optimizer(weights)
    with names.watch(net, optimizer) as watch:
        assert watch.active
        assert told.names == {"layers.0.weight", "layers.1.weight"}
        out = trained(net, memory, optimizer)
        assert told(out["logits"]) == "layers.1:output"  # and not layers:output, nor output.logits
        assert told(out["x"][0]) == "output.x.0"
        assert [told(p.grad) for p in weights if p.grad] == [
            *("layers.0.weight.grad", "layers.1.weight.grad")
        ]
        assert told(optimizer.state[weights[0]]["momentum"]) == "layers.0.weight.momentum"
        assert set(told.parts[weights[0].data_ptr(), 64 * 64 * 4]) == {"layers.0.weight", "f32"}
    assert not watch.active
    calls = told.calls
    del out
    assert told.calls == calls + 2  # what was freed is told of
    trained(net, memory, optimizer)
    assert "layers.0.weight.grad" not in told.names  # which has another place by now
    for module in (net, *(m for _, m in net.named_modules())):
        assert module.before == module.after == []


def test_gradients_of_module_outputs_are_named(told: Told, memory: Memory) -> None:
    net = model(memory)
    names.watch(net)
    out = net(Tensor(memory, 8))["logits"]
    (hook,) = out.hooks  # one, though three modules gave it
    gradient = Tensor(memory, 8)
    assert hook(gradient) is None
    assert told(gradient) == "layers.1:output.grad"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, {"layers.0.weight", "layers.0.weight.grad", "layers.1:output", "output.x.0"}),
        ({"activations": False}, {"layers.0.weight", "layers.0.weight.grad"}),
        ({"gradients": False}, {"layers.0.weight", "layers.1:output", "output.x.0"}),
        ({"name": "a.b", "activations": False, "gradients": False}, {"a.b.layers.0.weight"}),
    ],
)
def test_excluded_tensors_have_no_name(
    told: Told, memory: Memory, options: dict[str, Any], expected: set[str]
) -> None:
    net = model(memory)
    names.watch(net, **options)
    out = trained(net, memory, Optimizer([]))
    assert {name for name in told.names if "1.weight" not in name and "freed" not in name} == (
        expected
    )
    assert bool(out["logits"].hooks) == (not options)


def test_freed_tensor_is_marked_until_reuse(told: Told, memory: Memory) -> None:
    net = Module(lambda x: Tensor(memory, 100), weight=parameter(memory, 4))
    names.watch(net)
    out = net(None)
    place = out.data_ptr()
    del out
    assert told.parts[place, 400] == ("output (freed)", "f32")
    again = net(None)
    assert again.data_ptr() == place
    assert told.parts[place, 400] == ("output", "f32")


def test_late_free_does_not_hide_a_live_tensor(told: Told, memory: Memory) -> None:
    """As where two threads are at work: the news of a death comes late."""
    net = Module(lambda x: Tensor(memory, 100))
    names.watch(net)
    first = net(None)
    storage, first.storage = first.storage, Storage(memory, 4)
    memory.give(storage.place, storage.size)
    second = net(None)
    assert second.data_ptr() == storage.place
    storage.place = 0
    del storage
    assert told(second) == "output"


def test_names_are_sent_once(told: Told, memory: Memory) -> None:
    net = model(memory)
    optimizer = Optimizer([p for _, p in net.named_parameters()])
    names.watch(net, optimizer)
    kept = trained(net, memory, optimizer)
    before = told.calls
    optimizer.step()
    net.before[0](net, ())
    assert told.calls == before
    assert kept


def test_moved_parameters_are_renamed(told: Told, memory: Memory) -> None:
    net = Module(weight=parameter(memory, 16), table=Tensor(memory, 3, dtype="torch.bfloat16"))
    for tensor in net.members.values():
        tensor.is_cuda = False  # not on the GPU yet
    names.watch(net)
    assert told.names == set()
    for tensor in net.members.values():
        tensor.is_cuda = True
    net(None)
    assert told.names == {"weight", "table"}
    old = net.members["weight"].data_ptr()
    net.members["weight"].storage = Storage(memory, 64)
    net(None)
    assert told.parts[old, 64] == ("weight (freed)", "f32")
    assert told(net.members["weight"]) == "weight"
    assert told.parts[net.members["table"].data_ptr(), 6] == ("table", "bf16")


def test_shared_parameter_keeps_its_first_name(told: Told, memory: Memory) -> None:
    shared = parameter(memory, 16)
    names.watch(Module(embed=Module(weight=shared), head=Module(weight=shared)))
    assert told.names == {"embed.weight"}


def test_passed_through_tensors_keep_their_name(told: Told, memory: Memory) -> None:
    """Modules that give on what they were given, or a view of it, or a parameter."""
    weight = parameter(memory, 16)
    view = Tensor(memory, 2, storage=weight.storage, offset=4)
    inner = Module(lambda x: Tensor(memory, 16))
    part = Module(lambda x: Tensor(memory, 2, storage=x.storage, offset=1))
    net = Module(lambda x: (part(inner(x)), weight, view), w=weight, inner=inner, part=part)
    names.watch(net)
    out = net(None)
    assert told.names == {"w", "inner:output"}
    assert told(out[0]) == "inner:output"


def test_non_contiguous_tensors(told: Told, memory: Memory) -> None:
    storage = Storage(memory, 4096)
    column = Tensor(memory, 8, 3, storage=storage, offset=2, stride=(16, 1))
    empty = Tensor(memory, 0, 3, storage=Storage(memory, 4), stride=(5, 1))
    net = Module(lambda x: [column, empty])
    names.watch(net)
    net(None)
    assert told.parts == {(storage.place + 8, (7 * 16 + 3) * 4): ("output.0", "f32")}


def test_outputs_in_tuples_and_dictionaries(told: Told, memory: Memory) -> None:
    class Fake(Tensor):
        def data_ptr(self) -> int:
            raise RuntimeError("no data")

    pair = namedtuple("pair", ["hidden", "cell"])
    made = {key: Tensor(memory, 4, dtype="torch.int3") for key in "abcd"}

    class Unusual(Tensor):
        def __torch_dispatch__(self) -> None: ...

    unreal, fake, meta = Fake(memory, 4), Unusual(memory, 4), Tensor(memory, 4)
    fake.storage.device.type = "meta"
    meta.storage.place, memory.free = 0, {}
    on_host = Tensor(memory, 4)
    on_host.is_cuda = False
    out = {
        "state": pair(made["a"], made["b"]),
        "more": [made["c"], None, {"deep": (made["d"],)}, "text", 3],
        "none": [unreal, fake, meta, on_host],
    }
    net = Module(lambda x: out)
    names.watch(net)
    net(None)
    assert told.names == {
        *("output.state.hidden", "output.state.cell", "output.more.0", "output.more.2.deep.0")
    }
    assert {kind for _, kind in told.parts.values()} == {None}  # of a type that is not known
    loop: list[Any] = [made["a"]]
    loop.append(loop)
    net.work = lambda x: loop
    net(None)


def test_wrapper_modules_are_left_out_of_names(told: Told, memory: Memory) -> None:
    class DistributedDataParallel(Module):
        pass

    inner = Module(weight=parameter(memory, 4), module=Module(bias=parameter(memory, 4)))
    compiled = Module(inner, _orig_mod=inner)
    net = DistributedDataParallel(compiled, module=compiled)
    names.watch(net, activations=False)
    assert told.names == {"weight", "module.bias"}
    told.parts.clear()
    own = Module(lambda x: Tensor(memory, 4))
    names.watch(DistributedDataParallel(own, module=own))
    assert told(own(None)) == "output"


def test_distributed_tensor_names_its_local_part(told: Told, memory: Memory) -> None:
    class Distributed(Tensor):
        _local_tensor = local = Tensor(memory, 4)
        requires_grad = True

    whole, local = Distributed(memory, 64), Distributed.local
    names.watch(Module(weight=whole))
    assert [*told.parts] == [(local.data_ptr(), 16)]


# ---- nothing else happens ----


def test_failing_hook_removes_all_hooks(told: Told, memory: Memory) -> None:
    net = model(memory)
    watch = names.watch(net)

    class Odd(Tensor):
        def is_contiguous(self) -> bool:
            raise LookupError("odd")

    with pytest.warns(UserWarning, match=r"stopped naming tensors: LookupError\('odd'\)"):
        out = net(Odd(memory, 4))
    assert out["logits"].shape == (4,)
    assert not watch.active
    net(Odd(memory, 4))  # no hook is left


def test_copied_and_pickled_modules_have_no_active_hooks(told: Told, memory: Memory) -> None:
    net = Module(print)
    names.watch(net)
    (hook,) = net.after
    for other in (copy.deepcopy(hook), copy.copy(hook), pickle.loads(pickle.dumps(hook))):
        assert other(net, (), Tensor(memory, 4)) is None
    assert told.names == set()
    assert b"ttanalyze" not in pickle.dumps(hook)


def test_hooks_are_inactive_during_compilation(
    told: Told, memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiling = True
    torch = types.ModuleType("torch")
    torch.compiler = types.SimpleNamespace(is_compiling=lambda: compiling)  # type: ignore[attr-defined]
    torch.cuda = types.SimpleNamespace(  # type: ignore[attr-defined]
        is_current_stream_capturing=lambda: False
    )
    monkeypatch.setitem(sys.modules, "torch", torch)
    net = model(memory)
    names.watch(net)
    net(Tensor(memory, 4))
    assert told.names == set()
    compiling = False
    net(Tensor(memory, 4))
    assert "layers.0.weight" in told.names


def test_tensors_of_a_cuda_graph_keep_their_names(
    told: Told, memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = types.ModuleType("torch")
    torch.cuda = types.SimpleNamespace(  # type: ignore[attr-defined]
        is_current_stream_capturing=lambda: True
    )
    monkeypatch.setitem(sys.modules, "torch", torch)
    net = Module(lambda x: Tensor(memory, 4))
    names.watch(net)
    net(None)
    assert told.names == {"output"}


def test_named_models_are_freed_as_usual(told: Told, memory: Memory) -> None:
    """Without a run of the garbage collector, and their memory with them."""
    net = model(memory)
    optimizer = Optimizer([p for _, p in net.named_parameters()])
    watch = names.watch(net, optimizer)
    trained(net, memory, optimizer)
    model_ref, optimizer_ref = weakref.ref(net), weakref.ref(optimizer)
    place = next(iter(optimizer.parameters)).data_ptr()
    del net
    assert model_ref() is None
    del optimizer
    assert optimizer_ref() is None
    assert told.parts[place, 64 * 64 * 4][0] == "layers.0.weight (freed)"
    watch.remove()


def test_hooks_without_a_recording(memory: Memory) -> None:
    net = model(memory)
    watch = names.watch(net, Optimizer([]))
    assert not watch.active
    assert net.before == net.after == []
    code = "import sys, ttanalyze.torch, ttanalyze; print('torch' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=support.ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"


# ---- a recorded training ----


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two trainings; in the second an item of a gradient is another."""
    folder = tmp_path_factory.mktemp("training")
    for name, arguments in (("good", []), ("bad", ["layers.1.weight"])):
        command = [sys.executable, "-m", "tests.torch_standin", *arguments]
        environment = support.recording(SIM, folder / name, deterministic="1")
        outcome = support.run(command, environment, cwd=support.ROOT)
        assert (outcome.status, outcome.stdout, outcome.stderr) == (0, "", "")
    return folder / "good", folder / "bad"


@pytest.mark.native
def test_diff_names_the_tensor(runs: tuple[Path, Path]) -> None:
    outcome = support.ttanalyze("diff", *runs)
    assert outcome.status == 1
    first = outcome.stdout.splitlines()[0]
    assert "memory first diverges in epoch 2, layers.1.weight.grad [17] (region " in first
    assert "index 17: 2.5 in A, 4.0 in B" in outcome.stdout
    found = json.loads(support.ttanalyze("diff", *runs, "--json").stdout)
    divergence = found["processes"][0]["divergences"][0]
    assert divergence["tensor"] == "layers.1.weight.grad"
    assert (divergence["tensor_offset"], divergence["tensor_element"]) == (17 * 4 + 2, 17)
    assert divergence["tensor_values"]["count"] == divergence["tensor_count"] == 1


@pytest.mark.native
def test_verify_names_the_tensor(runs: tuple[Path, Path]) -> None:
    outcome = support.ttanalyze("verify", runs[1], "--against", runs[0])
    assert outcome.status == 1
    assert "tensor   layers.1.weight.grad [17]" in outcome.stdout
    said = json.loads(support.ttanalyze("verify", runs[1], "--against", runs[0], "--json").stdout)
    difference = said["differences"][0]
    assert (difference["tensor"], difference["tensor_element"]) == ("layers.1.weight.grad", 17)


@pytest.mark.native
def test_blame_shows_a_tensor_over_time(runs: tuple[Path, Path], tmp_path: Path) -> None:
    run = tt.open(runs[1])
    tensors = run.tensors(2)["tensor"].tolist()
    assert {"layers.0.weight", "layers.1.weight.grad", "layers.1.weight.momentum"} < {*tensors}
    assert "layers.1:output (freed)" in tensors
    blamed = support.ttanalyze("blame", runs[1], "-r", "layers.1.weight.grad", "--element", "17")
    assert "layers.1.weight.grad, f32 [17] (region 0 from byte " in blamed.stdout
    assert "2.5 → 4.0" in blamed.stdout or "→ 4.0" in blamed.stdout
    watched = support.ttanalyze("blame", runs[1], "--watch", "==4", "--dtype", "f32")
    assert "from layers.1.weight.grad [17] on" in watched.stdout
    rewound = support.ttanalyze(
        *("rewind", runs[1], "-e", "2", "-r", "layers.1.weight.grad", "--summary")
    )
    assert "layers.1.weight.grad  f32   4,096  2.5    4" in rewound.stdout
