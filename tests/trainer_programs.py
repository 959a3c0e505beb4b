"""Trainings with the real Lightning and Transformers, of three steps, on a GPU or without one."""

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
    max_epochs=1, accumulate_grad_batches=2, accelerator="auto", devices=1, logger=False,
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
