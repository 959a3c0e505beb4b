"""On a GPU with Lightning or Transformers: each step of a training is an epoch."""

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

PATH = str(Path(__file__).resolve().parent.parent.parent)
BARE = support.bare_environment(PYTHONPATH=":".join([PATH, *filter(None, sys.path)]))
LIGHTNING = """\
import torch, pytorch_lightning as lightning
from ttanalyze.trainers import lightning_callback

class Net(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)
    def training_step(self, batch, index):
        return self.layer(batch).square().mean()
    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters())

torch.manual_seed(1)
data = torch.utils.data.DataLoader(torch.randn(24, 8), batch_size=4)
trainer = lightning.Trainer(
    max_epochs=1, accumulate_grad_batches=2, accelerator="gpu", devices=1, logger=False,
    enable_checkpointing=False, enable_progress_bar=False, callbacks=[lightning_callback()],
)
trainer.fit(Net(), data)
"""
TRANSFORMERS = """\
import tempfile, torch, transformers
from ttanalyze.trainers import transformers_callback

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)
    def forward(self, x):
        return {"loss": self.layer(x).square().mean()}

torch.manual_seed(1)
arguments = transformers.TrainingArguments(
    tempfile.mkdtemp(), max_steps=3, per_device_train_batch_size=4, report_to=[],
    save_strategy="no", disable_tqdm=True,
)
data = [{"x": row} for row in torch.randn(24, 8)]
callbacks = [transformers_callback()]
transformers.Trainer(Net(), arguments, train_dataset=data, callbacks=callbacks).train()
"""


@pytest.mark.parametrize(
    ("package", "program"), [("pytorch_lightning", LIGHTNING), ("transformers", TRANSFORMERS)]
)
def test_each_step_is_an_epoch(package: str, program: str, tmp_path: Path) -> None:
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"needs {package}")
    outcome = record([sys.executable, "-c", program], BARE, tmp_path / "run", "--epoch", "api")
    assert outcome.status == 0, outcome.stderr
    assert "stopped naming" not in outcome.stderr
    run = tt.open(tmp_path / "run")
    steps = run.epochs[run.epochs["trigger"] == "api"]
    assert steps["label"].tolist() == ["step 1", "step 2", "step 3"]
    tensors = {*run.tensors(int(steps["epoch"].iloc[-1]))["tensor"]}
    assert {"layer.weight", "layer.weight.exp_avg"} <= tensors
