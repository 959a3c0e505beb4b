"""Changes of a recorded launch: its sizes, how its code is compiled, or other code."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

from ttanalyze.code import demangle, ptx_edit
from ttanalyze.errors import Error
from ttanalyze.format import modules
from ttanalyze.gpu.device import Device
from ttanalyze.gpu.module import Function, Module
from ttanalyze.gpu.work import Kernel
from ttanalyze.output import text
from ttanalyze.util.arguments import checked
from ttanalyze.verbs.replay import compilers
from ttanalyze.verbs.replay.plan import Plan
from ttanalyze.verbs.replay.replay import Replay

MAX_REGISTERS, OPTIMIZATION_LEVEL = 0, 7  # CU_JIT_…
MAJOR, MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_…
NO_PTX = (
    "has only machine code, which can't be compiled again or edited; build the program with PTX "
    "(nvcc -gencode arch=compute_90,code=compute_90), or give other code with --code"
)
LAUNCH_BOUNDS = re.compile(r"(\d{1,4})(?:[,/](\d{1,2}))?")
Three = tuple[int, int, int]


@checked
@dataclass(frozen=True)
class Change:
    """Changes of a launch. What is None stays as recorded.

    Attributes:
        grid: The blocks of the grid in x, y and z.
        block: The threads of a block in x, y and z.
        shared: The dynamic shared memory in bytes.
        maxregs: The maximal number of registers per thread.
        opt_level: The optimisation level of the PTX compiler.
        launch_bounds: The most threads of a block and the least blocks of a multiprocessor (0: the
            compiler's choice).
        specialize: "args", "dims" or "all": what becomes constants of the code; "none": nothing.

    Example:
        >>> tt.replay.Change(block=(128, 1, 1), maxregs=32).texts()
        ['block 128', 'at most 32 registers']
    """

    grid: Three | None = None
    block: Three | None = None
    shared: int | None = None
    maxregs: int | None = None
    opt_level: int | None = None
    launch_bounds: tuple[int, int] | None = None
    specialize: str = "none"

    @property
    def compiles(self) -> bool:
        """Whether the driver must compile PTX again."""
        given = (self.maxregs, self.opt_level, self.launch_bounds)
        return self.specialize != "none" or any(value is not None for value in given)

    def texts(self) -> list[str]:
        """Returns what is changed, in words."""
        out = []
        for name in ("grid", "block", "launch_bounds"):
            value = getattr(self, name)
            if value is not None:
                shown = ",".join(map(str, value)) if name == "launch_bounds" else text.extent(value)
                out.append(f"{name.replace('_', ' ')} {shown}")
        if self.shared is not None:
            out.append(f"{text.size(self.shared)} of dynamic shared memory")
        if self.maxregs is not None:
            out.append(f"at most {self.maxregs} registers")
        if self.opt_level is not None:
            out.append(f"optimisation level {self.opt_level}")
        if self.specialize != "none":
            out.append(f"specialized: {self.specialize}")
        return out


def recorded_image(of: Plan) -> bytes:
    """Returns the image with the code of a launch. Raises Error if it was not saved."""
    module = modules.of_kernel(of.process, of.launch.function)
    return modules.image_for(of.process, module, f"kernel {of.kernel}")


def editable(of: Plan) -> bytes:
    """Returns the newest PTX of the recorded code of a launch. Raises Error if there is none."""
    image = recorded_image(of)
    found = compilers.ptx_of(image, 1 << 16)
    if found is None:
        raise Error(f"launch {of.seq}: its code {NO_PTX}")
    return found.split(b"\0", 1)[0]


def architecture(device: Device) -> int:
    """Returns the compute capability of a device, such as 90."""
    with device.use() as calls:
        handle = calls.get("cuDeviceGet", "CUdevice", device.ordinal)
        major, minor = (
            int(calls.get("cuDeviceGetAttribute", "int", number, handle))
            for number in (MAJOR, MINOR)
        )
    return 10 * major + minor


def parse_three(value: str, what: str) -> Three:
    """Parses a size such as "128", "16x16" or "8x8x4". Raises Error for any other text."""
    parts = value.split("x")
    if not 1 <= len(parts) <= 3 or not all(p.isdecimal() and 0 < int(p) < 1 << 31 for p in parts):
        raise Error(f"{what} {value}: expected a size such as 128, 16x16 or 8x8x4")
    x, y, z = (int(part) for part in [*parts, "1", "1"][:3])
    return x, y, z


def parse_bounds(value: str) -> tuple[int, int]:
    """Parses launch bounds such as "256", "256,2" or "256/2". Raises Error for any other text."""
    found = LAUNCH_BOUNDS.fullmatch(value)
    if found is None or not 1 <= int(found[1]) <= 1024:
        raise Error(f"--launch-bounds {value}: expected T or T,B: at most 1024 threads, B blocks")
    return int(found[1]), int(found[2] or 0)


class Changer:
    """Changes a launch, any number of times.

    Args:
        replay: The launch.

    Attributes:
        replay: The launch with the loaded code.
    """

    def __init__(self, replay: Replay) -> None:
        self.replay = replay
        self._loaded: Any = None
        self._module: Module | None = None

    def apply(self, change: Change, image: bytes | None = None, name: str = "") -> Kernel:
        """Loads code if it must be another, and returns the changed launch.

        Args:
            change: What to change.
            image: Other code: PTX, a cubin or a fatbin. Default: the recorded code.
            name: Its name in errors.

        Raises:
            Error: There is no PTX to compile, no kernel that could be meant, or the launch bounds
                are less than the block.
            DriverError: The driver refuses the code.
        """
        sizes = {"grid": change.grid, "block": change.block}
        dims = sizes if change.specialize in ("dims", "all") else {}
        compiling = change.maxregs, change.opt_level, change.launch_bounds, change.specialize
        wanted = image, compiling, dims
        block = change.block or self.replay.launch.block
        if change.launch_bounds and math.prod(block) > change.launch_bounds[0]:
            threads = text.extent(block, "x")
            raise Error(f"launch bounds {change.launch_bounds[0]}: the block has {threads} threads")
        if (image is not None or change.compiles or self._loaded) and wanted != self._loaded:
            self._loaded = None
            self._load(change, image, name or "the recorded code")
            self._loaded = wanted
        return self.replay.work.changed(
            grid=change.grid, block=change.block, shared_mem=change.shared
        )

    def _load(self, change: Change, image: bytes | None, name: str) -> None:
        if image is None:
            image = recorded_image(self.replay.plan)
        if change.compiles:
            image = self._edited(change, image, name)
        if self._module is not None:
            self._module.unload()
        jit = {MAX_REGISTERS: change.maxregs, OPTIMIZATION_LEVEL: change.opt_level}
        given = {number: value for number, value in jit.items() if value is not None}
        self._module = Module(image, self.replay.device, name, given)
        function = find(self._module, self.replay.kernel)
        context = self.replay.replay_context
        context.replace(self.replay.launch.function, function, self._module)
        of = self.replay
        self.replay = Replay(of.process, of.seq, replay_context=context, known=of.plan)

    def _edited(self, change: Change, image: bytes, name: str) -> bytes:
        ptx = compilers.ptx_of(image, architecture(self.replay.device))
        if ptx is None:
            raise Error(f"{name} {NO_PTX}")
        if change.launch_bounds is None and change.specialize == "none":
            return ptx
        names = ptx_edit.kernels(ptx)
        kernel = self.replay.kernel
        kernel = kernel if kernel in names else meant(names, kernel, name)
        if change.launch_bounds is not None:
            ptx = ptx_edit.with_launch_bounds(ptx, kernel, *change.launch_bounds)
        if change.specialize != "none":
            args = change.specialize in ("args", "all")
            dims = change.specialize in ("dims", "all")
            work = self.replay.work.changed(grid=change.grid, block=change.block)
            sizes = (work.block, work.grid) if dims else (None, None)
            ptx = ptx_edit.with_constants(ptx, kernel, work.params if args else None, *sizes)
        return ptx


def find(module: Module, kernel: str) -> Function:
    """Returns the kernel that replaces the recorded one: of the same name, mangled or in the
    source, or the only one.

    Raises Error if it is ambiguous.
    """
    found = module.get(kernel)
    return found or module.function(meant(module.names, kernel, module.name))


def meant(names: list[str], kernel: str, where: str) -> str:
    """Returns the one of some mangled names that has the name of a kernel in the source, or the
    only one. Raises Error if it is ambiguous.
    """
    (wanted,) = map(demangle.short, demangle.demangle([kernel]))
    shorts = map(demangle.short, demangle.demangle(names))
    same = [name for name, one in zip(names, shorts, strict=True) if one == wanted]
    for some in (same, names):
        if len(some) == 1:
            return some[0]
    raise Error(f"{where}: no single kernel {wanted} among {', '.join(names) or 'none'}")
