"""Callbacks for trainers: an epoch after each step of a training, with the number of the step.

    from ttanalyze.trainers import lightning_callback, transformers_callback

    lightning.Trainer(callbacks=[lightning_callback()])
    transformers.Trainer(model, callbacks=[transformers_callback(every=10)])

Record the program with `--epoch api`. In a program that is not recorded the callbacks do nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any

from ttanalyze.errors import Error
from ttanalyze.integrations.control import cut_epoch
from ttanalyze.integrations.torch import Watch, watch

__all__ = ["lightning_callback", "transformers_callback"]


class _Steps:
    """Cuts epochs at steps. A step may take several batches, whose gradients are accumulated."""

    def __init__(self, make: Callable[[int, bool], Any], every: int, names: bool) -> None:
        self._made = make, (every, names)
        self._every, self._names = every, names
        self._watches: list[Watch] = []
        self._last = 0

    def __reduce__(self) -> Any:  # the class is made at run time, and hooks stay with their process
        return self._made

    def _begin(self, model: Any, optimizers: Iterable[Any], step: int) -> None:
        self._end()
        self._last = step
        if self._names:
            first, *others = [*optimizers, None]
            self._watches = [watch(model, first)]
            for optimizer in others[:-1]:
                self._watches.append(watch(model, optimizer, activations=False, gradients=False))

    def _done(self, step: int) -> None:
        if step > self._last and step % self._every == 0:
            cut_epoch(f"step {step}")
        self._last = step

    def _end(self) -> None:
        while self._watches:
            self._watches.pop().remove()


class _Lightning(_Steps):
    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        self._begin(pl_module, trainer.optimizers, trainer.global_step)

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        self._done(trainer.global_step)

    def on_train_end(self, *_: Any) -> None:
        self._end()


class _Transformers(_Steps):
    def on_train_begin(
        self, args: Any, state: Any, control: Any, model: Any = None, **given: Any
    ) -> None:
        optimizer = given.get("optimizer")
        optimizer = getattr(optimizer, "optimizer", optimizer)  # Accelerate wraps it
        self._begin(model, [] if optimizer is None else [optimizer], state.global_step)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._done(state.global_step)

    def on_train_end(self, *_: Any, **given: Any) -> None:
        self._end()


def _base(modules: Iterable[str], name: str) -> type:
    for module in modules:
        try:
            found: type = getattr(import_module(module), name)
        except ImportError:
            continue
        return found
    package = next(iter(modules)).partition(".")[0]
    raise Error(f"the package {package} is not installed: pip install {package}")


def _callback(of: type[_Steps], base: type, make: Any, every: int, names: bool) -> Any:
    if every < 1:
        raise Error(f"every={every}: expected a number of steps, 1 or more")
    return type("StepEpochs", (of, base), {})(make, every, names)


def lightning_callback(every: int = 1, names: bool = True) -> Any:
    """Makes a callback for a `lightning.Trainer`.

    Args:
        every: The number of optimizer steps from one epoch to the next.
        names: Whether to name the tensors of the model and of its optimizers, as
            `ttanalyze.torch.watch` does.

    Returns:
        A `lightning.pytorch.Callback`, or one of `pytorch_lightning`.

    Raises:
        Error: Lightning is not installed, or `every` is less than 1.

    Example:
        >>> callback = tt.trainers.lightning_callback(every=10)  # Trainer(callbacks=[callback])
    """
    base = _base(("lightning.pytorch", "pytorch_lightning"), "Callback")
    return _callback(_Lightning, base, lightning_callback, every, names)


def transformers_callback(every: int = 1, names: bool = True) -> Any:
    """Makes a callback for a `transformers.Trainer` of Hugging Face.

    Args:
        every: The number of optimizer steps from one epoch to the next.
        names: Whether to name the tensors of the model and of its optimizer, as
            `ttanalyze.torch.watch` does.

    Returns:
        A `transformers.TrainerCallback`.

    Raises:
        Error: Transformers is not installed, or `every` is less than 1.

    Example:
        >>> callback = tt.trainers.transformers_callback()  # Trainer(..., callbacks=[callback])
    """
    base = _base(("transformers",), "TrainerCallback")
    return _callback(_Transformers, base, transformers_callback, every, names)
