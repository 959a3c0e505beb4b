"""Callbacks for Lightning and Hugging Face: epochs at steps, and that nothing else happens.

Both packages are stood for by classes that call hooks as they do. Where the real ones are
installed, their trainings on the CPU are recorded as well.
"""

from __future__ import annotations

import importlib.util
import pickle
import sys
import types
from pathlib import Path
from typing import Any

import pytest

import ttanalyze as tt
from tests import support
from tests.torch_standin import Memory, Optimizer, model
from tests.trainer_programs import LIGHTNING, TRANSFORMERS
from ttanalyze.errors import Error
from ttanalyze.integrations import trainers


class Callback:
    """A base class that has every hook."""

    def on_exception(self) -> None: ...


@pytest.fixture
def cut(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The labels of epochs."""
    labels: list[str] = []
    monkeypatch.setattr(trainers, "cut_epoch", labels.append)
    for name, base in (("lightning.pytorch", "Callback"), ("transformers", "TrainerCallback")):
        module = types.ModuleType(name)
        setattr(module, base, Callback)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setitem(sys.modules, "lightning", types.ModuleType("lightning"))
    return labels


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Model, optimizer and options of each watch; None for each that was removed."""
    calls: list[Any] = []

    def watch(*given: Any, **options: bool) -> Any:
        calls.append((*given, options))
        return types.SimpleNamespace(remove=lambda: calls.append(None))

    monkeypatch.setattr(trainers, "watch", watch)
    return calls


def fit(callback: Any, steps: list[int], optimizers: list[Any], first: int = 0) -> None:
    """As Lightning does; steps: the finished optimizer steps after each batch."""
    trainer = types.SimpleNamespace(global_step=first, optimizers=optimizers)
    callback.on_train_start(trainer, "model")
    for number, step in enumerate(steps):
        trainer.global_step = step
        callback.on_train_batch_end(trainer, "model", None, None, number)
    callback.on_train_end(trainer, "model")


def train(callback: Any, steps: int, optimizer: Any) -> None:
    """As Hugging Face does."""
    state = types.SimpleNamespace(global_step=0)
    callback.on_train_begin("args", state, "control", model="model", optimizer=optimizer)
    for step in range(1, steps + 1):
        state.global_step = step
        assert callback.on_step_end("args", state, "control", model="model") is None
    callback.on_train_end("args", state, "control", model="model")


def test_each_step_is_an_epoch(cut: list[str], watched: list[Any]) -> None:
    callback = tt.trainers.lightning_callback()
    assert isinstance(callback, Callback)
    fit(callback, [0, 1, 1, 2], ["adam"])  # two batches a step
    assert cut == ["step 1", "step 2"]
    assert watched == [("model", "adam", {}), None]
    train(tt.trainers.transformers_callback(), 3, None)
    assert cut[2:] == ["step 1", "step 2", "step 3"]
    assert watched[2:] == [("model", None, {}), None]


def test_every_nth_step_is_an_epoch(cut: list[str], watched: list[Any]) -> None:
    train(tt.trainers.transformers_callback(every=4, names=False), 9, None)
    fit(tt.trainers.lightning_callback(every=10, names=False), [20, 21, 30], [], first=20)
    assert cut == ["step 4", "step 8", "step 30"]  # a resumed training has no step 20
    assert not watched


def test_all_optimizers_are_named(cut: list[str], watched: list[Any]) -> None:
    fit(tt.trainers.lightning_callback(), [], ["generator", "critic"])
    states_only = {"activations": False, "gradients": False}
    assert watched == [("model", "generator", {}), ("model", "critic", states_only), None, None]
    wrapped = types.SimpleNamespace(optimizer="adam")
    train(tt.trainers.transformers_callback(), 0, wrapped)
    assert watched[4:] == [("model", "adam", {}), None]


@pytest.mark.parametrize("make", ["lightning_callback", "transformers_callback"])
def test_callbacks_can_be_pickled(make: str, cut: list[str], watched: list[Any]) -> None:
    """As Lightning does for processes that it starts."""
    callback = getattr(tt.trainers, make)(every=2, names=False)
    copy = pickle.loads(pickle.dumps(callback))
    (fit(copy, [1, 2], []) if "lightning" in make else train(copy, 2, None))
    assert cut == ["step 2"]


def test_errors_name_the_package_or_the_option(
    cut: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Error, match="every=0: expected a number of steps, 1 or more"):
        tt.trainers.transformers_callback(every=0)
    monkeypatch.setitem(sys.modules, "lightning.pytorch", None)
    monkeypatch.setitem(sys.modules, "pytorch_lightning", None)
    with pytest.raises(Error, match="package lightning is not installed: pip install lightning"):
        tt.trainers.lightning_callback()


def test_unrecorded_training_goes_on() -> None:
    assert tt.control.cut_epoch("step 1") is False
    steps = trainers._Lightning(tt.trainers.lightning_callback, 1, True)
    places = iter(range(1 << 40, 1 << 41, 1 << 30))
    net = model(Memory(lambda size: next(places)))
    trainer = types.SimpleNamespace(global_step=0, optimizers=[Optimizer([])])
    steps.on_train_start(trainer, net)
    assert net.before == net.after == []


PROGRAM = """
import types
from ttanalyze.gpu import DeviceBuffer
from ttanalyze.integrations.trainers import _Transformers
buffer, state = DeviceBuffer(64), types.SimpleNamespace(global_step=0)
steps = _Transformers(None, 2, False)
with buffer.device.use():
    steps.on_train_begin(None, state, None)
    for state.global_step in range(1, 5):
        buffer.write(bytes([state.global_step]) * 64)
        steps.on_step_end(None, state, None)
"""


@pytest.mark.native
def test_recorded_epochs_have_the_names_of_steps(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROGRAM]
    recorded = support.recording(support.simulator_environment(), tmp_path / "run", epoch="api")
    outcome = support.run(command, recorded, cwd=support.ROOT)
    assert (outcome.status, outcome.stderr) == (0, "")
    epochs = tt.open(tmp_path / "run").epochs
    of_steps = epochs[epochs["trigger"] == "api"]
    assert of_steps["label"].tolist() == ["step 2", "step 4"]


CONTEXT = """
from ttanalyze.gpu import DeviceBuffer
buffer = DeviceBuffer(64)
current = buffer.device.use()
current.__enter__()
"""


@pytest.mark.native
@pytest.mark.long
@pytest.mark.parametrize(
    ("package", "program"), [("pytorch_lightning", LIGHTNING), ("transformers", TRANSFORMERS)]
)
def test_real_trainers_cut_epochs_on_the_cpu(package: str, program: str, tmp_path: Path) -> None:
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"needs {package}")
    environment = support.simulator_environment()
    recorded = support.recording(environment, tmp_path / "run", epoch="api")
    recorded["PYTHONPATH"] = str(support.ROOT)
    command = [sys.executable, "-c", CONTEXT + program]
    outcome = support.run(command, recorded, cwd=tmp_path)
    assert outcome.status == 0, outcome.stderr
    assert "ttanalyze" not in outcome.stderr
    epochs = tt.open(tmp_path / "run").epochs
    of_steps = epochs[epochs["trigger"] == "api"]
    assert of_steps["label"].tolist() == ["step 1", "step 2", "step 3"]
