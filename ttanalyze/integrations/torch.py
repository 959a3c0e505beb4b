"""Tells the recorder the names of PyTorch tensors, so that differences are shown by name.

    import ttanalyze.torch

    ttanalyze.torch.watch(model, optimizer)

Needs PyTorch 2.1 or newer. This module does not import PyTorch; it uses only the hooks of the given
objects. In a program that is not recorded it does nothing.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import sys
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Any

__all__ = ["Watch", "watch"]

Label = Callable[[int, int, "bytes | None", "bytes | None"], int]  # address, bytes, name, type

# What wrappers add to the names of parameters, and those that hold the model as `module`.
WRAPPED = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")
WRAPPERS = ("DistributedDataParallel", "DataParallel", "FullyShardedDataParallel")
TYPES = {
    "half": "f16",
    "bfloat16": "bf16",
    "float8_e4m3fn": "e4m3",
    "float8_e5m2": "e5m2",
    "complex64": "c64",
    "complex128": "c128",
    "bool": "bool",
    **{f"float{n}": f"f{n}" for n in (16, 32, 64)},
    **{f"int{n}": f"i{n}" for n in (8, 16, 32, 64)},
    **{f"uint{n}": f"u{n}" for n in (8, 16, 32, 64)},
}
FREED = b" (freed)"
# What PyTorch raises where it is asked for what something does not have, or not so far.
NOT_NOW = (RuntimeError, NotImplementedError, ValueError)
DEPTH = 8  # of tuples and dictionaries within each other


def watch(
    model: Any,
    optimizer: Any = None,
    *,
    activations: bool = True,
    gradients: bool = True,
    name: str = "",
) -> Watch:
    """Names the GPU memory of a model from now on.

    - Parameters and buffers: `layers.3.mlp.weight`.
    - Outputs of modules: `layers.3.mlp:output`.
    - Gradients: the name with `.grad` at the end.
    - State of the optimizer: `layers.3.mlp.weight.exp_avg`.

    Only modules that exist now are watched.

    Args:
        model: A `torch.nn.Module`.
        optimizer: A `torch.optim.Optimizer`.
        activations: Whether to name outputs of modules.
        gradients: Whether to name gradients.
        name: A prefix for all names; a dot follows it.
    """
    found = Watch()
    memory = _memory()
    if memory is not None:
        hooks = _Hooks(memory, found, name)
        _Hook(found, hooks.add, bool)(model, optimizer, activations, gradients)
    return found


class Watch:
    """The result of `watch`. Names stay after it is removed or its `with` block ends."""

    def __init__(self) -> None:
        self.handles: list[Any] = []  # of hooks

    @property
    def active(self) -> bool:
        """Whether it still names memory: the program is recorded, and `remove` was not called."""
        return bool(self.handles)

    def remove(self) -> None:
        """Removes all hooks."""
        while self.handles:
            self.handles.pop().remove()

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


@functools.cache
def _memory() -> _Memory | None:
    """Returns the recorder of this process, None if there is none."""
    try:
        label = ctypes.CDLL(None).tt_label_range
    except AttributeError:
        return None
    label.argtypes = [ctypes.c_uint64, ctypes.c_uint64, ctypes.c_char_p, ctypes.c_char_p]
    label.restype = ctypes.c_int
    return _Memory(label)


class _Storage:
    """The memory of tensors while it is alive.

    parts: by address and bytes, the name, the type, and whether the name stays.
    """

    __slots__ = ("capturing", "parts", "ref")

    def __init__(self, capturing: bool) -> None:
        self.ref: Any = None
        self.capturing = capturing  # into a graph, which uses it whenever it is launched
        self.parts: dict[tuple[int, int], tuple[bytes, bytes | None, bool]] = {}


class _Memory:
    """The names that the recorder was told.

    Memory keeps its first name while it is alive, so a module that returns its input does not
    rename it. Parameters, gradients and states of the optimizer always get their names. The name of
    freed memory says so, until the memory is used again.
    """

    def __init__(self, label: Label) -> None:
        self._label = label
        self._storages: dict[int, _Storage] = {}
        self._types: dict[Any, bytes | None] = {}

    def name(self, tensor: Any, name: bytes, stays: bool) -> bool:
        """Names the memory of a tensor, from its first to its last item. Returns False if nothing
        changed.
        """
        if not tensor.is_cuda:
            return False
        try:
            storage = tensor.untyped_storage()
            if storage.device.type == "meta":  # of a fake tensor: to ask where it is warns
                return False
            base: int = storage.data_ptr()
            address: int = tensor.data_ptr() if base else 0
            size = _extent(tensor) if address else 0
        except NOT_NOW:  # it has no memory of its own
            return False
        if not size:
            return False
        known = self._storages.get(base)
        if known is None or known.ref() is not storage:
            known = self._new(base, storage)
        there = known.parts.get((address, size))
        if there is not None and (there[2] or not stays):
            return False
        if there is None and not stays and _covered(known, address, size):
            return False
        kind = self._type(tensor.dtype)
        known.parts[address, size] = (name, kind, stays)
        self._label(address, size, name, kind)
        return True

    def _new(self, base: int, storage: Any) -> _Storage:
        torch = sys.modules.get("torch")
        capturing = torch is not None and bool(torch.cuda.is_current_stream_capturing())
        made = _Storage(capturing)
        made.ref = weakref.ref(storage, functools.partial(self._gone, base))
        self._storages[base] = made
        return made

    def _gone(self, base: int, ref: Any) -> None:
        """Notes that a storage was freed."""
        known = self._storages.get(base)
        if known is None or known.ref is not ref:
            return
        del self._storages[base]
        if not known.capturing:
            for (address, size), (name, kind, _) in list(known.parts.items()):
                self._label(address, size, name + FREED, kind)

    def _type(self, dtype: Any) -> bytes | None:
        if dtype not in self._types:
            found = TYPES.get(str(dtype).removeprefix("torch."))
            self._types[dtype] = None if found is None else found.encode()
        return self._types[dtype]


def _covered(storage: _Storage, address: int, size: int) -> bool:
    end = address + size
    return any(a <= address and end <= a + n for a, n in list(storage.parts))


def _extent(tensor: Any) -> int:
    """Returns the number of bytes from a tensor's first to its last item, including gaps."""
    size: int = tensor.element_size()
    count: int = tensor.numel()
    if not count or tensor.is_contiguous():
        return count * size
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    last: int = sum((length - 1) * step for length, step in steps)
    return (last + 1) * size


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

    def __init__(self, memory: _Memory, watch: Watch, name: str) -> None:
        self._memory = memory
        self._watch = watch
        self._prefix = f"{name}." if name else ""
        self._tensors: list[tuple[Any, bytes]] = []  # weakly
        self._names: dict[int, tuple[Any, bytes]] = {}  # of parameters, by id
        self._states: dict[tuple[bytes, str], bytes] = {}
        self._optimizer: Callable[[], Any] = bool  # weakly
        torch = sys.modules.get("torch")
        compiling = getattr(getattr(torch, "compiler", None), "is_compiling", bool)
        tracing = getattr(getattr(torch, "jit", None), "is_tracing", bool)
        self._compiling: Callable[[], bool] = lambda: compiling() or tracing()

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
        moved = self._hook(self._moved)
        self._keep(model.register_forward_pre_hook, moved)
        for path, module in model.named_modules() if activations else ():
            module_path = self._path(path, wrapped)
            name = (
                f"{module_path}:output"
                if path and module_path != self._prefix
                else f"{module_path}output"
            ).encode()
            hook = self._hook(self._output, name, gradients)
            self._keep(module.register_forward_hook, hook)
        if optimizer is not None:
            self._optimizer = weakref.ref(optimizer)
            if hasattr(optimizer, "register_step_post_hook"):
                self._keep(optimizer.register_step_post_hook, moved)
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
        """Names memory that may have moved: parameters, buffers, the state of the optimizer."""
        for ref, name in self._tensors:
            tensor = ref()
            if tensor is not None:
                self._memory.name(_local(tensor), name, True)
        optimizer = self._optimizer()
        for tensor, state in optimizer.state.items() if optimizer else ():
            ref, tensor_name = self._names.get(id(tensor), (bool, b""))
            if ref() is not tensor or not isinstance(state, Mapping):
                continue
            for key, value in state.items():
                if hasattr(value, "untyped_storage"):
                    self._memory.name(_local(value), self._state(tensor_name, key), True)

    def _state(self, tensor_name: bytes, key: str) -> bytes:
        name = self._states.get((tensor_name, key))
        if name is None:
            name = self._states[tensor_name, key] = tensor_name + f".{key}".encode()
        return name

    def _gradient(self, name: bytes, tensor: Any) -> None:
        if tensor.grad is not None:
            self._memory.name(_local(tensor.grad), name, True)

    def _output(self, name: bytes, gradients: bool, *given: Any) -> None:
        """Names the output of a module, as its hook. given: module, arguments, output."""
        for path, tensor in _tensors_in(given[-1], name, DEPTH):
            new = self._memory.name(_local(tensor), path, False)
            if new and gradients and tensor.requires_grad and not tensor.is_leaf:
                tensor.register_hook(self._hook(self._output_gradient, path + b".grad"))

    def _output_gradient(self, name: bytes, gradient: Any) -> None:
        self._memory.name(_local(gradient), name, False)


def _local(tensor: Any) -> Any:
    """Returns the local part of a distributed tensor."""
    return getattr(tensor, "_local_tensor", tensor)


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
