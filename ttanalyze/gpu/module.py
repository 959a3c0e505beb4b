"""Module and Function: loaded code and its kernels."""

from __future__ import annotations

import difflib
import functools
import itertools
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ttanalyze._cuda import ffi
from ttanalyze.code import demangle
from ttanalyze.errors import Error, system_errors
from ttanalyze.gpu import arguments
from ttanalyze.gpu.device import Context, Device
from ttanalyze.gpu.driver import EndedError

LOG_BUFFER, LOG_SIZE = 5, 6  # CU_JIT_ERROR_LOG_BUFFER and …_SIZE_BYTES
LOG_BYTES = 8192
STATIC_SHARED, MAX_DYNAMIC_SHARED = 1, 8  # CU_FUNC_ATTRIBUTE_…
NUMBERS = itertools.count()  # of modules
FREE_SHARED = 48 << 10  # bytes of shared memory that a kernel may have without asking


class Module:
    """Loaded code. `Module.load` reads a file.

    Args:
        image: PTX, a cubin or a fatbin.
        device: The device. Default: the first one.
        name: The name in error messages.
        jit: Options of the PTX compiler: CUjit_option and number.
        lasting: Whether the code stays loaded as long as its Device object. If false, it is
            unloaded when nothing uses it.

    Raises:
        DriverError: The driver refuses the code.

    Example:
        >>> device = tt.graph.Device(0, tt.graph.simulator())
        >>> (image,) = Path("work/p0/modules").iterdir()
        >>> module = tt.graph.Module.load(image, device)
        >>> module.names, module.function("add").layout
        (['add'], [(0, 8), (8, 8), (16, 8), (24, 4)])
    """

    def __init__(
        self,
        image: bytes,
        device: Device | None = None,
        name: str = "a module",
        jit: Mapping[int, int] | None = None,
        lasting: bool = True,
    ) -> None:
        self.name = name
        self.device = device or Device.default()
        self._image = ffi.from_buffer(image + b"\0")  # PTX ends where a zero is
        log = ffi.new("char[]", LOG_BYTES)
        given = {LOG_BUFFER: log, LOG_SIZE: LOG_BYTES, **(jit or {})}
        options = ffi.new("CUjit_option[]", list(given))
        values = ffi.new("void *[]", [ffi.cast("void *", value) for value in given.values()])
        out = ffi.new("CUmodule *")
        with self.device.use() as driver:
            what = "cuModuleLoadDataEx"
            result = driver.result(what, out, self._image, len(given), options, values)
            if result:
                said = ffi.string(log).decode(errors="replace").split("\n")
                lines = [line.strip() for line in said if line.strip()]
                more = f": {lines[0]}" if lines else ""
                raise driver.error(what, result, f"loading {name}{more}")
        self.handle = out[0]
        self._unload = self.device.context.give_back(self, "cuModuleUnload", self.handle)
        self._number = next(NUMBERS)
        self.device.context.modules[self._number] = self
        if lasting:
            self.device.modules.append(self)

    @classmethod
    def load(cls, source: bytes | str | os.PathLike[str], device: Device | None = None) -> Module:
        """Loads code.

        Args:
            source: A path, or the bytes of PTX, a cubin or a fatbin.
            device: The device. Default: the first one.

        Raises:
            Error: The file cannot be read.
            DriverError: The driver refuses the code.
        """
        if isinstance(source, (bytes, bytearray, memoryview)):
            return cls(bytes(source), device)
        path = Path(source)
        with system_errors(path):
            image = path.read_bytes()
        return cls(image, device, str(path))

    def __repr__(self) -> str:
        return f"<Module {self.name}>"

    @functools.cached_property
    def names(self) -> list[str]:
        """The mangled names of the kernels, [] if the driver is older than 12.4."""
        with self.device.use() as driver:
            if not driver.has("cuModuleEnumerateFunctions"):
                return []
            count = driver.get("cuModuleGetFunctionCount", "unsigned int", self.handle)
            out = ffi.new("CUfunction[]", count)
            if count:
                driver.call("cuModuleEnumerateFunctions", out, count, self.handle)
            return [_name(self.device.context, out[i]) for i in range(count)]

    def function(self, name: str) -> Function:
        """Returns a kernel by its name.

        Args:
            name: The mangled name, or the name in the source if only one kernel has it.

        Raises:
            Error: No kernel or several kernels have this name. The message has similar names.
        """
        return find([self], name)

    def variable(self, name: str) -> tuple[int, int]:
        """Returns the address and the size in bytes of a `__device__` or `__constant__` variable.

        Args:
            name: The mangled name.

        Raises:
            DriverError: The module has no such variable.
        """
        address, size = ffi.new("CUdeviceptr *"), ffi.new("size_t *")
        with self.device.use() as driver:
            self._check()
            doing = f"variable {name} of {self.name}"
            driver.call(
                "cuModuleGetGlobal_v2", address, size, self.handle, name.encode(), doing=doing
            )
        return int(address[0]), int(size[0])

    def get(self, name: str) -> Function | None:
        """Returns a kernel by its mangled name, None if the module has no such kernel.

        Args:
            name: The mangled name.
        """
        out = ffi.new("CUfunction *")
        with self.device.use() as driver:
            self._check()
            if driver.result("cuModuleGetFunction", out, self.handle, name.encode()):
                return None
        return Function(self.device, out[0], name, self)

    def _check(self) -> None:
        if not self._unload.alive:
            raise EndedError(f"{self.name} was unloaded")

    def unload(self) -> None:
        """Unloads the code. Graphs that use it must not be launched any more."""
        self._unload()
        self.device.context.modules.pop(self._number, None)
        self.device.modules = [other for other in self.device.modules if other is not self]


def find(modules: Iterable[Module], name: str | Function) -> Function:
    """Finds a kernel by its name in some modules. A Function is returned as it is.

    Raises Error if none or several kernels have this name.
    """
    if isinstance(name, Function):
        return name
    if not isinstance(name, str):
        raise Error(f"no kernel {name!r}: give its name or a Function")
    among = list(modules)
    for module in among:
        found = module.get(name)
        if found is not None:
            return found
    if not among:
        raise Error(f"no kernel {name}: no module is loaded here; Module.load(…) loads one")
    mangled = {known: module for module in among for known in module.names}
    texts = dict(zip(mangled, demangle.demangle(list(mangled)), strict=True))
    same = [k for k, full in texts.items() if _is_called(full, name)]
    if len(same) == 1:
        found = mangled[same[0]].get(same[0])
        if found is not None:
            return found
    if same:
        raise Error(f"several kernels are named {name}; choose one: {', '.join(sorted(same))}")
    close = difflib.get_close_matches(name, [*mangled, *texts.values()], 3, 0.5)
    close += [k for k in mangled if name.lower() in k.lower() and k not in close][: 3 - len(close)]
    hint = f": perhaps {' or '.join(dict.fromkeys(close))}" if close else ""
    if not close and mangled:
        more = ", …" if len(mangled) > 6 else ""
        hint = f": there are {', '.join(sorted(mangled)[:6])}{more}"
    raise Error(f"no kernel {name} in {' or '.join(m.name for m in among[:3])}{hint}")


def _is_called(full: str, name: str) -> bool:
    """Returns whether a demangled name is a kernel's name in the source, with or without template
    arguments.
    """
    return name in (full, demangle.short(full)) or f" {name}(" in f" {full}"


class Function:
    """A kernel. `Module.function` finds one.

    Args:
        device: The device.
        handle: The CUfunction.
        name: The mangled name.
        module: The module, None if another library loaded it.

    Example:
        >>> device = tt.graph.Device(0, tt.graph.simulator())
        >>> (image,) = Path("work/p0/modules").iterdir()
        >>> function = tt.graph.Module.load(image, device).function("add")
        >>> len(function.layout), len(function.pack((0, 0, 0, 64)))
        (4, 2)
    """

    def __init__(self, device: Device, handle: Any, name: str, module: Module | None) -> None:
        self.device = device
        self.handle = handle
        self.name = name
        self.module = module

    @classmethod
    def wrap(cls, device: Device, handle: Any) -> Function:
        """Wraps a kernel that another library loaded.

        Args:
            device: The device.
            handle: The CUfunction, or a CUkernel cast to one.
        """
        return cls(device, handle, _name(device.context, handle), None)

    def __repr__(self) -> str:
        return f"<Function {self.name}>"

    @functools.cached_property
    def layout(self) -> list[tuple[int, int]] | None:
        """Offset and size in bytes of each parameter, None if the driver is older than 12.4."""
        return self.layout_within(None)

    def layout_within(self, total: int | None) -> list[tuple[int, int]] | None:
        """Returns offset and size in bytes of each parameter, None if the driver is older than
        12.4.

        Without `total`, the last question to the driver fails on purpose. Tools that watch a
        program report that as an error.

        Args:
            total: The size of all parameters in bytes, if known.
        """
        offset, size = ffi.new("size_t *"), ffi.new("size_t *")
        out: list[tuple[int, int]] = []
        end = 0
        with self.device.use() as driver:
            if not driver.has("cuFuncGetParamInfo"):
                return None
            while total is None or end < total:
                if driver.result("cuFuncGetParamInfo", self.handle, len(out), offset, size):
                    break
                out.append((int(offset[0]), int(size[0])))
                end = sum(out[-1])
        return out

    def pack(self, args: Sequence[Any]) -> tuple[bytes, list[Any]]:
        """Converts arguments to the bytes of the kernel's parameters.

        Args:
            args: One argument per parameter.

        Returns:
            The bytes, and the objects that must live while the kernel may run.

        Raises:
            Error: The number of arguments is wrong, or an argument does not fit.
        """
        return arguments.pack(self.name, self.layout, args)

    def attribute(self, number: int) -> int:
        """Returns an attribute of the kernel.

        Args:
            number: The CUfunction_attribute.
        """
        with self.device.use() as driver:
            return int(driver.get("cuFuncGetAttribute", "int", number, self.handle))

    def allow_shared(self, dynamic: int) -> None:
        """Raises the limit of dynamic shared memory, if a launch needs more than the default.

        Args:
            dynamic: The dynamic shared memory of the launch in bytes.

        Raises:
            DriverError: The device has less.
        """
        if dynamic + self.attribute(STATIC_SHARED) <= FREE_SHARED:
            return
        if self.attribute(MAX_DYNAMIC_SHARED) < dynamic:
            doing = f"{dynamic:,} bytes of shared memory for {self.name}"
            with self.device.use() as driver:
                which = MAX_DYNAMIC_SHARED
                driver.call("cuFuncSetAttribute", self.handle, which, dynamic, doing=doing)


def _name(context: Context, handle: Any) -> str:
    """Returns the name of a CUfunction or a CUkernel."""
    for call, kind in (("cuFuncGetName", "CUfunction"), ("cuKernelGetName", "CUkernel")):
        out = ffi.new("char **")
        with context.use() as driver:
            given = ffi.cast(kind, handle)
            if driver.has(call) and not driver.result(call, out, given) and out[0] != ffi.NULL:
                return str(ffi.string(out[0]).decode(errors="replace"))
    return "?"
