"""PyTorch on the CPU, where it is installed: names of saved tensors, and files of torch.save."""

# mypy: disable-error-code="import-not-found,import-untyped"
from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import ttanalyze as tt
from tests.test_saved_tensors import saved_names
from tests.test_torch import Told, told
from ttanalyze.integrations import memory_names
from ttanalyze.integrations import torch as names

__all__ = ["told"]  # a fixture
torch = pytest.importorskip("torch")


@pytest.fixture
def on_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes `watch` name tensors on the CPU as well."""
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", bool)
    real = memory_names.Memory._name_torch

    def name(self: Any, tensor: Any, name: bytes, rank: int) -> bool:
        return real(self, tensor.as_subclass(on_gpu), name, rank)

    on_gpu = type("OnGpu", (torch.Tensor,), {"is_cuda": True})
    monkeypatch.setattr(memory_names.Memory, "_name_torch", name)


def attention() -> Any:
    class Attention(torch.nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.query = torch.nn.Linear(16, 16)
            self.norm = torch.nn.LayerNorm(16)

        def forward(self, x: Any) -> Any:
            return self.norm(torch.softmax(self.query(x), -1) @ x + x)

    torch.manual_seed(3)
    return torch.nn.Sequential(Attention(), torch.nn.GELU())


EXPECTED = {
    "0:saved.Softmax.result",
    *("0.norm:saved.NativeLayerNorm.input", "0.norm:saved.NativeLayerNorm.result1"),
    "0.norm:saved.NativeLayerNorm.result2",
}


def trained(watched: bool, call: Any = None) -> list[Any]:
    """Losses and weights of three steps."""
    net = attention()
    optimizer = torch.optim.AdamW(net.parameters())
    if watched:
        assert names.watch(net, optimizer).active
    x, found = torch.randn(16, 16), []
    for _ in range(3):
        optimizer.zero_grad()
        loss = (call(net, x) if call else net(x)).square().mean()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return [*found, *(p.tolist() for p in net.parameters())]


def test_pytorch_computes_the_same(told: Told, on_cpu: None) -> None:
    assert trained(True) == trained(False)
    net, x = attention(), torch.randn(16, 16)
    watch = names.watch(net)
    out = net(x)
    assert saved_names(told) >= EXPECTED
    target = torch.zeros(16, dtype=torch.long)
    loss = torch.nn.functional.cross_entropy(out, target)
    watch.name_saved("loss", loss)
    of_loss = {name for name in saved_names(told) if name.startswith("loss:")}
    assert of_loss == {
        "loss:saved.LogSoftmax.result",  # NllLoss saves the same memory
        *("loss:saved.NllLoss.target", "loss:saved.NllLoss.total_weight"),
    }
    del out, loss, target
    assert saved_names(told) == {"0.query:saved.Addmm.mat1"}  # x


def test_hooks_of_saved_tensors_do_not_run(told: Told, on_cpu: None) -> None:
    """Nor is a checkpointed forward pass computed a second time before the backward pass."""
    calls: list[int] = []

    def unpack(packed: Any) -> Any:
        calls.append(1)
        return packed[1]

    def count(net: Any, x: Any) -> Any:
        before = len(calls)
        with torch.autograd.graph.saved_tensors_hooks(lambda t: ("packed", t), unpack):
            out = net(x)
        assert len(calls) == before
        return out

    def checkpoint(net: Any, x: Any) -> Any:
        return torch.utils.checkpoint.checkpoint(net, x, use_reentrant=False)

    assert trained(True, count) == trained(False)
    assert calls and not saved_names(told)
    assert trained(True, checkpoint) == trained(False)


@pytest.mark.long
def test_compiled_module_computes_the_same(told: Told, on_cpu: None) -> None:
    def compiled(net: Any, x: Any) -> Any:
        return torch.compile(net, backend="aot_eager")(x)

    assert trained(True, compiled) == trained(False, compiled)


def test_files_of_pytorch_are_read(tmp_path: Path) -> None:
    net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Linear(16, 4))
    optimizer = torch.optim.AdamW(net.parameters())
    net(torch.ones(2, 8)).sum().backward()
    optimizer.step()
    types = ("bfloat16", "float16", "float8_e4m3fn", "int64", "bool")
    paths = tmp_path / "a.pt", tmp_path / "b.pt"
    for number, path in enumerate(paths):
        more = {name: torch.ones(6).to(getattr(torch, name))[2:] for name in types}
        torch.save({"model": net.state_dict(), "optimizer": optimizer.state_dict(), **more}, path)
        with torch.no_grad():
            net[1].weight[2, 3] += number + 1
    table = tt.torch.checkpoint_diff(*paths).set_index("tensor")
    assert {"optimizer.state.0.exp_avg", *types} <= {*table.index}
    differs = table[table["status"] != "same"]
    assert differs[["status", "different", "first"]].values.tolist() == [["different", 1, 35]]
    assert differs["max_abs"].iloc[0] == pytest.approx(1)
    assert tt.torch.checkpoint_diff(paths[0], torch.load(paths[1])).equals(table.reset_index())
