"""Tells the recorder the names of PyTorch tensors, so that differences are shown by name.

    import ttanalyze.torch

    ttanalyze.torch.watch(model, optimizer)

`record --names` calls `watch()` in the program, which watches all modules that run.

Needs PyTorch 2.1 or newer. This module does not import PyTorch; it uses only the hooks of the given
objects. In a program that is not recorded it does nothing.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ttanalyze.integrations.autograd import SavedTensors
from ttanalyze.integrations.memory_names import NOT_NOW, OWN, PASSING, Memory, memory, state_only
from ttanalyze.util.arguments import checked

if TYPE_CHECKING:
    import pandas as pd

    from ttanalyze.format.run import Run

__all__ = ["Watch", "checkpoint_diff", "watch"]

# What wrappers add to the names of parameters, and those that hold the model as `module`.
WRAPPED = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")
WRAPPERS = ("DistributedDataParallel", "DataParallel", "FullyShardedDataParallel")
DEPTH = 8  # of tuples and dictionaries within each other


def watch(
    model: Any = None,
    optimizer: Any = None,
    *,
    activations: bool = True,
    gradients: bool = True,
    name: str = "",
) -> Watch:
    """Names the GPU memory of a model from now on.

    - Parameters and buffers: `layers.3.mlp.weight`.
    - Outputs of modules: `layers.3.mlp:output`.
    - What modules save for the backward pass: `layers.3.mlp:saved.Gelu.self`.
    - Gradients: the name with `.grad` at the end.
    - State of the optimizer: `layers.3.mlp.weight.exp_avg`.

    Only modules that the model has now are watched.

    Args:
        model: A `torch.nn.Module`. Default: each module that runs and is no part of another, from
            its next call on. Names of the first that has parameters begin with `name` alone, those
            of others also with the class, such as `Discriminator.conv.weight`.
        optimizer: A `torch.optim.Optimizer`. Without a model: each, from its next step on.
        activations: Whether to name outputs of modules, and what they save for the backward pass.
            `record --regions named` reads memory with names, so with it they get none.
        gradients: Whether to name gradients.
        name: A prefix for all names; a dot follows it.

    Example:
        >>> with tt.torch.watch() as watch:
        ...     watch.active  # nothing records this process
        False
    """
    found = Watch()
    told = memory()
    if told is None:
        return found
    activations = activations and not state_only()
    saved = SavedTensors(told)
    found._saved = saved if activations else None
    if model is None:
        _Hook(found, _Everything(told, found, name, (activations, gradients), saved).add, bool)()
    else:
        hooks = _Hooks(told, found, name, saved)
        _Hook(found, hooks.add, bool)(model, optimizer, activations, gradients)
    return found


@checked
def checkpoint_diff(
    a: Mapping[str, Any] | str | os.PathLike[str],
    b: Mapping[str, Any] | str | os.PathLike[str],
    run: Run | None = None,
) -> pd.DataFrame:
    """Compares two checkpoints tensor by tensor, and finds their contents in a recording.

    A path such as `state_dict.module.layers.0.weight` fits the recorded name `layers.0.weight`.
    Nothing in a file runs, and PyTorch is not needed to read it.

    Args:
        a: A file of `torch.save` or safetensors, or a state dictionary.
        b: The other.
        run: A recording of the program that made them, with names of tensors.

    Returns:
        One row per tensor.

    Columns:
        tensor: its path in the checkpoint
        type, shape, items: type and shape, in `a` if it is there, and the number of items
        status: `same`, `different`, `only in a`, `only in b`, or `other type or shape`
        different, first: the number of items whose bytes differ, and the index of the first of them
            in the flat tensor
        max_abs, max_rel: the largest absolute and relative difference of finite items
        epoch_a, epoch_b: only with `run`: the last epoch in which the tensor's memory is as in `a`,
            and the first epoch from there on in which it is as in `b`; missing if there is none

    Raises:
        Error: A file cannot be read.

    Example:
        >>> import numpy as np
        >>> a, b = ({"w": np.array([1, x], "f4")} for x in (2, 3))
        >>> tt.torch.checkpoint_diff(a, b)[["tensor", "status", "different", "first", "max_abs"]]
          tensor     status  different  first  max_abs
        0      w  different          1      1      1.0
    """
    from ttanalyze.integrations import checkpoints

    return checkpoints.compare(a, b, run)


class Watch:
    """The result of `watch`. Names stay after it is removed or its `with` block ends.

    Example:
        >>> watch = tt.torch.watch()
        >>> watch.active  # nothing records this process
        False
        >>> watch.remove()
    """

    def __init__(self) -> None:
        self.handles: list[Any] = []  # of hooks
        self._saved: SavedTensors | None = None

    @property
    def active(self) -> bool:
        """Whether it still names memory: the program is recorded, and `remove` was not called."""
        return bool(self.handles)

    def name_saved(self, variable: str, tensor: Any) -> None:
        """Names what code outside of modules saved for the backward pass of a tensor, such as a
        loss: `loss:saved.NllLoss.self`. `record --names` does it for variables before each epoch.

        Args:
            variable: The name of the tensor.
            tensor: A tensor that the main thread computed.
        """
        if self._saved is not None and self.active:
            self._saved.behind(variable, tensor)

    def remove(self) -> None:
        """Removes all hooks."""
        while self.handles:
            self.handles.pop().remove()

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


class _Hook:
    """A hook of a model or an optimizer. If it fails, the program goes on.

    A copy, also one from a file, does nothing and needs nothing of this package.
    """

    def __init__(self, watch: Watch, work: Callable[..., None], compiling: Callable[[], bool]):
        self._watch = watch
        self._work = work
        self._compiling = compiling

    def __call__(self, *given: Any) -> None:
        if self._compiling():  # then it is traced, and not called for what it does
            return
        try:
            self._work(*given)
        except Exception as e:
            self._watch.remove()
            warnings.warn(f"ttanalyze.torch stopped naming tensors: {e!r}", stacklevel=2)

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (contextlib.nullcontext(), "__exit__")  # takes anything, gives None


class _Hooks:
    """The hooks of one `watch`. They hold no references to models."""

    def __init__(self, memory: Memory, watch: Watch, name: str, saved: SavedTensors) -> None:
        self._memory = memory
        self._watch = watch
        self._saved = saved
        self._prefix = f"{name}." if name else ""
        self._tensors: list[tuple[Any, bytes]] = []  # weakly
        self._names: dict[int, tuple[Any, bytes]] = {}  # of parameters, by id
        self._states: dict[tuple[bytes, str], bytes] = {}
        self._optimizer: Callable[[], Any] = bool  # weakly
        self._compiling = _compiling()

    def _hook(self, work: Callable[..., None], *given: Any) -> _Hook:
        return _Hook(self._watch, functools.partial(work, *given), self._compiling)

    def add(self, model: Any, optimizer: Any, activations: bool, gradients: bool) -> None:
        """Names existing memory, and adds the hooks."""
        wrapped = type(model).__name__ in WRAPPERS
        for path, tensor in (*model.named_parameters(), *model.named_buffers()):
            name = self._path(path, wrapped).encode()
            self._tensors.append((weakref.ref(tensor), name))
            self._names.setdefault(id(tensor), self._tensors[-1])
            if gradients and tensor.requires_grad:
                hook = self._hook(self._gradient, name + b".grad")
                self._keep(tensor.register_post_accumulate_grad_hook, hook)
        moved, stepped = self._hook(self._moved), self._hook(self.name_state)
        self._keep(model.register_forward_pre_hook, moved)
        for path, module in model.named_modules() if activations else ():
            inside = self._path(path, wrapped)
            if path and inside != self._prefix:
                inside += ":"
            saved = f"{inside}saved."
            if self._saved.readable:
                self._keep(module.register_forward_pre_hook, self._hook(self._saved.begin, saved))
            hook = self._hook(self._output, f"{inside}output".encode(), saved, gradients)
            self._keep(module.register_forward_hook, hook)
        if optimizer is not None:
            if hasattr(optimizer, "register_step_post_hook"):
                self._keep(optimizer.register_step_post_hook, stepped)
            else:
                self._optimizer = weakref.ref(optimizer)
            stepped(optimizer)
        moved()

    def _keep(self, register: Callable[[_Hook], Any], hook: _Hook) -> None:
        with contextlib.suppress(*NOT_NOW):  # scripted modules take no hooks
            self._watch.handles.append(register(hook))

    def _path(self, path: str, wrapped: bool) -> str:
        """Returns the name of a module without the parts of wrappers. wrapped: the model is in a
        wrapper.
        """
        parts = [part for part in path.split(".") if part not in WRAPPED]
        if wrapped and parts and parts[0] == "module":
            del parts[0]
        return self._prefix + ".".join(parts)

    def _moved(self, *_: Any) -> None:
        """Names memory that may have moved: parameters, buffers, and the state of an optimizer
        that does not tell of its steps.
        """
        for ref, name in self._tensors:
            tensor = ref()
            if tensor is not None:
                self._memory.name(tensor, name, OWN)
        optimizer = self._optimizer()
        if optimizer:
            self.name_state(optimizer)

    def name_state(self, optimizer: Any, *_: Any) -> None:
        """Names the state that an optimizer has of the model's parameters."""
        for tensor, state in optimizer.state.items():
            ref, tensor_name = self._names.get(id(tensor), (bool, b""))
            if ref() is not tensor or not isinstance(state, Mapping):
                continue
            for key, value in state.items():
                if hasattr(value, "untyped_storage"):
                    self._memory.name(value, self._state(tensor_name, key), OWN)

    def _state(self, tensor_name: bytes, key: str) -> bytes:
        name = self._states.get((tensor_name, key))
        if name is None:
            name = self._states[tensor_name, key] = tensor_name + f".{key}".encode()
        return name

    def _gradient(self, name: bytes, tensor: Any) -> None:
        if tensor.grad is not None:
            self._memory.name(tensor.grad, name, OWN)

    def _output(self, name: bytes, saved: str, gradients: bool, *given: Any) -> None:
        """Names the output of a module, and what it saved, as its hook. given: module, arguments,
        output.
        """
        outputs = list(_tensors_in(given[-1], name, DEPTH))
        for path, tensor in outputs:
            new = self._memory.name(tensor, path, PASSING)
            if new and gradients and tensor.requires_grad and not tensor.is_leaf:
                tensor.register_hook(self._hook(self._output_gradient, path + b".grad"))
        self._saved.end(saved, (tensor for _, tensor in outputs))

    def _output_gradient(self, name: bytes, gradient: Any) -> None:
        self._memory.name(gradient, name, PASSING)


class _Everything:
    """The hooks of a `watch` of all modules and optimizers. They hold no references to models."""

    def __init__(
        self,
        memory: Memory,
        watch: Watch,
        name: str,
        wanted: tuple[bool, bool],
        saved: SavedTensors,
    ) -> None:
        self._memory = memory
        self._watch = watch
        self._name = name
        self._wanted = wanted  # activations, gradients
        self._saved = saved
        self._parts: Any = weakref.WeakSet()  # modules that are watched, and their parts
        self._roots: list[tuple[Any, Watch, _Hooks]] = []  # weakly
        self._names: set[str] = set()

    def add(self) -> None:
        """Adds the hooks. PyTorch is imported already."""
        torch = sys.modules["torch"]
        called, stepped = (
            _Hook(self._watch, work, _compiling()) for work in (self._called, self._stepped)
        )
        register = torch.nn.modules.module.register_module_forward_pre_hook
        self._watch.handles.append(register(called))
        optimizers = sys.modules["torch.optim.optimizer"]  # torch.optim has no such attribute
        self._watch.handles.append(optimizers.register_optimizer_step_post_hook(stepped))
        self._watch.handles.append(self)

    def _called(self, module: Any, *_: Any) -> None:
        """Watches a module that is part of no other so far, before it runs."""
        if module in self._parts:
            return
        parts = list(module.modules())
        self._roots = [root for root in self._roots if root[0]() is not None]
        for inner in [root for root in self._roots if any(root[0]() is part for part in parts)]:
            self._roots.remove(inner)
            inner[1].remove()
        self._parts.update(parts)
        found = Watch()
        hooks = _Hooks(self._memory, found, self._prefix(module), self._saved)
        self._roots.append((weakref.ref(module), found, hooks))
        hooks.add(module, None, *self._wanted)

    def _prefix(self, module: Any) -> str:
        """Returns the beginning of the names of a module: nothing more for the first model."""
        kind = type(module).__name__
        if next(iter(module.parameters()), None) is not None and "" not in self._names:
            kind = ""
        found, number = kind, 1
        while found in self._names:
            number += 1
            found = f"{kind}{number}"
        self._names.add(found)
        return ".".join(filter(None, (self._name, found)))

    def _stepped(self, optimizer: Any, *_: Any) -> None:
        for root in self._roots:
            root[2].name_state(optimizer)

    def remove(self) -> None:
        """Removes the hooks of the modules."""
        while self._roots:
            self._roots.pop()[1].remove()


def _compiling() -> Callable[[], bool]:
    """Returns a function that says whether PyTorch traces what runs; hooks do nothing then."""
    torch = sys.modules.get("torch")
    compiling = getattr(getattr(torch, "compiler", None), "is_compiling", bool)
    tracing = getattr(getattr(torch, "_C", None), "_is_tracing", bool)
    return lambda: compiling() or tracing()


def _tensors_in(value: Any, name: bytes, depth: int) -> Iterator[tuple[bytes, Any]]:
    """Yields the tensors in the output of a module, named by index or key."""
    if hasattr(value, "untyped_storage"):
        yield name, value
    elif depth:
        items: Any = ()
        if isinstance(value, Mapping):
            items = value.items()
        elif isinstance(value, tuple | list):
            items = zip(getattr(value, "_fields", range(len(value))), value, strict=False)
        for key, item in items:
            yield from _tensors_in(item, name + f".{key}".encode(), depth - 1)
