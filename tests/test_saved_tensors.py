"""Names of tensors that modules save for the backward pass. Nodes of autograd are stood for; those
of PyTorch are in test_real_torch.py.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Iterable
from typing import Any

import pytest

from tests.test_torch import Told, memory, told
from tests.torch_standin import Memory, Module, Tensor, parameter
from ttanalyze.integrations import memory_names
from ttanalyze.integrations import torch as names

__all__ = ["memory", "told"]  # fixtures


class Node:
    """What makes a tensor: it saves tensors, and follows the nodes of others."""

    numbers = 0

    def __init__(self, saved: Tensor | None, before: Iterable[Any]) -> None:
        self.number, Node.numbers = Node.numbers, Node.numbers + 1
        self.next_functions = tuple((tensor.grad_fn, 0) for tensor in before)
        self.saved = saved

    def _sequence_nr(self) -> int:
        return self.number


class SinBackward0(Node):
    @property
    def _raw_saved_self(self) -> Any:
        if self.saved is None:
            raise RuntimeError("freed")
        return types.SimpleNamespace(data=self.saved)


class CatBackward0(Node):
    @property
    def _raw_saved_tensors(self) -> Any:
        packed = types.SimpleNamespace(data=("of a hook", self.saved))
        return types.SimpleNamespace(data=self.saved), packed


class Made(Tensor):
    """A tensor that a node made."""

    is_leaf, requires_grad = False, True
    grad_fn: Node

    def __init__(self, memory: Memory, kind: type[Node], *before: Any, saves: bool = True) -> None:
        super().__init__(memory, 4)
        self.grad_fn = kind(Tensor(memory, 4) if saves else None, before)


@pytest.fixture
def grad(monkeypatch: pytest.MonkeyPatch) -> types.SimpleNamespace:
    """Autograd of a PyTorch; enabled says whether it makes nodes."""
    here = types.SimpleNamespace
    made = here(enabled=True)
    torch = types.ModuleType("torch")
    saved = here(SavedTensor=type("SavedTensor", (), {"data": None}))
    torch.__dict__.update(
        _C=here(_autograd=saved),
        autograd=here(_get_sequence_nr=lambda: Node.numbers),
        cuda=here(is_current_stream_capturing=bool),
        is_grad_enabled=lambda: made.enabled,
    )
    monkeypatch.setitem(sys.modules, "torch", torch)
    return made


def saved_names(told: Told) -> set[str]:
    return {name for name in told.names if "saved" in name and "freed" not in name}


def test_nodes_belong_to_the_innermost_module(
    told: Told, memory: Memory, grad: types.SimpleNamespace
) -> None:
    """Those before a call are found through its argument, those outside belong to no module."""
    kept: list[Made] = []

    def sin(*before: Any, **options: bool) -> Made:
        kept.append(Made(memory, SinBackward0, *before, **options))
        return kept[-1]

    inner = Module(lambda x: [sin(sin(x))], weight=parameter(memory, 4))
    outer = Module(lambda x: Made(memory, CatBackward0, *inner(sin(x)), x), inner=inner)
    names.watch(outer)
    kept.append(outer(sin()))
    assert saved_names(told) == {
        *("inner:saved.Sin.self", "inner:saved.Sin2.self", "saved.Sin.self", "saved.Cat.0")
    }
    told.parts.clear()
    inner.work = lambda x: [sin(sin(x, saves=False))]  # its node is freed
    inner(sin())
    assert saved_names(told) == {"inner:saved.Sin2.self"}
    told.parts.clear()
    grad.enabled = False
    outer(sin())
    assert not saved_names(told)


def test_variables_lead_to_nodes_outside_of_modules(
    told: Told, memory: Memory, grad: types.SimpleNamespace
) -> None:
    """Once, and not to those of modules, also of one that ran before another."""
    nets = [Module(lambda x: Made(memory, SinBackward0, x)) for _ in range(2)]
    watches = [names.watch(net, name=name) for net, name in zip(nets, "ab", strict=True)]
    x = Made(memory, SinBackward0, saves=False)
    made = [net(x) for net in nets]
    loss = Made(memory, CatBackward0, *made)
    watches[0].name_saved("loss", loss)
    assert saved_names(told) == {"a.saved.Sin.self", "b.saved.Sin.self", "loss:saved.Cat.0"}
    told.parts.clear()
    watches[0].name_saved("other", loss)
    watches[1].remove()
    watches[1].name_saved("removed", loss)
    watches[0].name_saved("leaf", Tensor(memory, 4))
    assert not saved_names(told)


def test_call_after_a_failed_one_has_its_names(
    told: Told, memory: Memory, grad: types.SimpleNamespace
) -> None:
    def fail(x: Any) -> Any:
        raise LookupError

    kept = []
    inner = Module(fail)

    def work(x: Any) -> Any:
        try:
            inner(x)
        except LookupError:
            kept.append(Made(memory, SinBackward0))
        return kept[-1]

    outer = Module(work, inner=inner)
    names.watch(outer)
    outer(None)
    assert saved_names(told) == {"saved.Sin.self"}


def test_other_names_replace_those_of_saved_tensors(
    told: Told, memory: Memory, grad: types.SimpleNamespace
) -> None:
    net = Module(lambda x: Made(memory, SinBackward0))
    names.watch(net)
    made = net(None)
    saved = made.grad_fn.saved
    assert saved is not None and told(saved) == "saved.Sin.self"
    recorder: memory_names.Memory = vars(names)["memory"]()
    assert recorder.name(saved, b"inputs") and told(saved) == "inputs"
    assert not recorder.name(saved, b"late", memory_names.SAVED)
