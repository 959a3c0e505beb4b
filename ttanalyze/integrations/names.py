"""Names the GPU memory of arrays of JAX, CuPy, PyTorch and others, so that differences are shown by
name.

    from ttanalyze.names import name

    name("params", params)  # params.dense.kernel, params.dense.bias, ...

`record --names` does it without a change of the program: before each epoch it names the arrays in
variables of the main program, and all modules and optimizers of PyTorch that run. In a program that
is not recorded nothing happens.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import sys
import sysconfig
import threading
import time
import types
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ttanalyze.integrations import torch
from ttanalyze.integrations.memory_names import OWN, Memory, framework, memory, state_only

__all__ = ["name"]

DEPTH = 8  # of containers within each other
MOST = 10_000  # items of a container
LONG, SHARE = 5e-3, 20  # a look of more seconds is followed by a pause, so many times as long
# Values of variables that are no arrays and hold none.
PLAIN = (
    *(str, bytes, int, float, complex, type, types.ModuleType, types.FunctionType),
    *(types.BuiltinFunctionType, types.MethodType, type(None)),
)
LIBRARIES = f"{sysconfig.get_path('stdlib')}/", "<"
PACKAGES = "/site-packages/", "/dist-packages/"


def name(name: str, value: Any) -> int:
    """Names the GPU memory of an array, or of all arrays in a value, from now on.

    - Dictionaries, lists, tuples and pytrees of JAX: `params.dense.kernel`, `state.opt_state.0.mu`.
    - An array of JAX on several devices: `params.w:0` and so on, by the device's id.

    The name of an array that is freed gets " (freed)" at its end.

    Args:
        name: The name, or the beginning of the names.
        value: An array of PyTorch, JAX, CuPy, or any with `__cuda_array_interface__`; or a
            container of such arrays.

    Returns:
        The number of arrays that got a new name, 0 if nothing is recorded.

    Example:
        >>> import numpy as np
        >>> tt.names.name("batch", np.zeros(4))  # not recorded
        0
    """
    told = memory()
    if told is None:
        return 0
    return sum(told.name(array, path.encode(), OWN) for path, array in _arrays(value, name, set()))


def _arrays(value: Any, path: str, seen: set[int], depth: int = DEPTH) -> Iterator[tuple[str, Any]]:
    """Yields the arrays in a value, with their names. seen: containers, each counts once."""
    if framework(value) is not None:
        yield path, value
    elif depth and not isinstance(value, PLAIN) and id(value) not in seen and len(seen) < MOST:
        seen.add(id(value))
        for key, item in _items(value):
            yield from _arrays(item, f"{path}.{key}", seen, depth - 1)


def _items(value: Any) -> list[tuple[Any, Any]]:
    """Returns what a container holds, by key, index or field."""
    if isinstance(value, (Mapping, tuple, list)):
        if len(value) > MOST:
            return []
        if isinstance(value, Mapping):
            return list(value.items())
        return list(zip(getattr(value, "_fields", range(len(value))), value, strict=False))
    return _pytree_items(value) or list(_own_fields(value).items())


def _pytree_items(value: Any) -> list[tuple[Any, Any]]:
    """Returns the leaves of a pytree of a type that the program registered with JAX."""
    if not _is_imported("jax"):
        return []
    flatten = sys.modules["jax"].tree_util.tree_flatten_with_path
    leaves, _ = flatten(value)
    return [(".".join(map(_key, path)), leaf) for path, leaf in leaves[:MOST] if path]


def _key(key: Any) -> str:
    """Returns a part of a path in a pytree as text."""
    for attribute in ("key", "idx", "name"):
        if hasattr(key, attribute):
            return str(getattr(key, attribute))
    return str(key).strip(".[]'")


def _own_fields(value: Any) -> dict[str, Any]:
    """Returns the attributes of an object whose class is the program's."""
    module = sys.modules.get(type(value).__module__)
    file = getattr(module, "__file__", None) or ""
    mine = _is_own(file) or type(value).__module__ == "__main__"
    fields = getattr(value, "__dict__", None) if mine else None
    if not isinstance(fields, dict) or len(fields) > MOST:
        return {}
    return {key: item for key, item in fields.items() if not key.startswith("_")}


@functools.lru_cache(4096)
def _is_own(file: str) -> bool:
    """Whether a file is the program's, and not of a library."""
    return bool(file) and not file.startswith(LIBRARIES) and not any(p in file for p in PACKAGES)


def begin() -> None:
    """Names memory before each epoch from now on. The recorder calls this for `record --names`, in
    the main thread.
    """
    told = memory()
    recorder = ctypes.CDLL(None)
    if told is None or not hasattr(recorder, "tt_names_wait"):
        return
    recorder.tt_names_begin.restype = recorder.tt_names_wait.restype = None
    looker = _Looker(told)
    looker.look()
    recorder.tt_names_begin()
    serve = functools.partial(looker.serve, recorder.tt_names_wait)
    threading.Thread(target=serve, name="ttanalyze names", daemon=True).start()


class _Looker:
    """Looks for arrays in the variables of the program, and for PyTorch."""

    def __init__(self, told: Memory) -> None:
        self._told = told
        self._next = 0.0
        self._watch: torch.Watch | None = None
        self._value_of = _reader()

    def serve(self, wait: Callable[[], None]) -> None:
        """Looks whenever the recorder asks for it. If it fails, the program goes on without."""
        while True:
            wait()  # without the interpreter's lock
            if time.monotonic() < self._next:
                continue
            begun = time.thread_time()
            try:
                self.look()
            except Exception as e:
                warnings.warn(f"ttanalyze --names stopped: {e!r}", stacklevel=1)
                self._watch = torch.Watch()
                self._variables = lambda: iter(())  # type: ignore[method-assign]
            spent = time.thread_time() - begun
            self._next = time.monotonic() + spent * SHARE if spent > LONG else 0.0

    def look(self) -> None:
        """Names the arrays in variables."""
        if not self._watch and _is_imported("torch") and "torch.optim.optimizer" in sys.modules:
            self._watch = torch.watch()
        self._told.forget_deleted()
        seen: set[int] = set()
        for variable, value in self._variables():
            # An object may not be complete so far.
            with contextlib.suppress(Exception):
                for path, array in _arrays(value, variable, seen):
                    if state_only() and _passes_by(array):
                        continue
                    self._told.name(array, path.encode())
                    if self._watch:
                        self._watch.name_saved(path, array)

    def _variables(self) -> Iterator[tuple[str, Any]]:
        """Yields global variables of the main program, and those of the running functions of its
        main thread, outermost first.
        """
        program = sys.modules.get("__main__")
        yield from _public(dict(vars(program)) if program else {})
        frame = sys._current_frames().get(threading.main_thread().ident or 0)
        frames = []
        while frame is not None:
            if frame.f_code.co_flags & 2 and _is_own(frame.f_code.co_filename):  # CO_NEWLOCALS
                frames.append(frame)
            frame = frame.f_back
        while frames:
            yield from _public(self._value_of(frames.pop()))


def _passes_by(array: Any) -> bool:
    """Whether a variable has a tensor of PyTorch that is computed or given, not trained."""
    return framework(array) == "torch" and not (array.requires_grad and array.is_leaf)


def _is_imported(name: str) -> bool:
    """Whether a module is there, and its import has ended."""
    module = sys.modules.get(name)
    spec = getattr(module, "__spec__", None)
    return module is not None and not getattr(spec, "_initializing", False)


def _public(values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if not key.startswith("_") and not isinstance(value, PLAIN):
            yield key, value


def _reader() -> Callable[[types.FrameType], Mapping[str, Any]]:
    """Returns a function that reads the variables of a running function without keeping them alive.

    Before Python 3.13 `f_locals` makes a dictionary that stays with the frame. Python 3.12 has a
    function of its C interface for it, older versions have none.
    """
    if sys.version_info >= (3, 13):
        return lambda frame: dict(frame.f_locals)
    if sys.version_info < (3, 12):
        return lambda frame: {}
    get = ctypes.pythonapi.PyFrame_GetVar
    get.restype, get.argtypes = ctypes.py_object, [ctypes.py_object, ctypes.py_object]

    def read(frame: types.FrameType) -> dict[str, Any]:
        found = {}
        code = frame.f_code
        for variable in (*code.co_varnames, *code.co_cellvars, *code.co_freevars):
            try:
                found[variable] = get(frame, variable)
            except NameError:  # it has no value so far
                continue
        return found

    return read
