"""Runs PTX text on the simulator's interpreter, built for the tests alone."""

from __future__ import annotations

import functools
import hashlib
import os
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import cffi
import numpy as np
import numpy.typing as npt

from tests import support

ROOT = Path(__file__).resolve().parent.parent
SIM = ROOT / "interpose" / "sim"
STATUS = [
    "ok",
    "bad address",
    "misaligned",
    "trap",
    "assert",
    "unsupported",
    "timeout",
    "illegal instruction",
]
HEADER = ".version 6.3\n.target sm_70\n.address_size 64\n"
DECLARATIONS = """
typedef struct ptx_module ptx_module;
typedef struct ptx_function ptx_function;
typedef struct ptx_global ptx_global;
struct ptx_param { size_t offset, size; };
typedef struct {
	const char *name;
	size_t param_count, param_bytes;
	const struct ptx_param *params;
	unsigned registers, shared_bytes, local_bytes, max_threads;
	unsigned cluster[3];
} ptx_function_info;
typedef struct { void *place_global; void *user; } ptx_loader;
typedef struct {
	unsigned grid[3], block[3], cluster[3];
	unsigned dynamic_shared;
	const void *params;
	bool cooperative;
	uint64_t schedule_seed, first, count;
	void *translate, *describe, *set_condition, *user;
	uint64_t budget;
	const void *trace;
	bool deadlocks;
	void *pause;
} ptx_launch_config;
ptx_module *ptx_load(const char *text, const ptx_loader *loader, char *error, size_t size);
void ptx_unload(ptx_module *m);
const ptx_function *ptx_find_function(const ptx_module *m, const char *name);
size_t ptx_function_count(const ptx_module *m);
const ptx_function *ptx_function_at(const ptx_module *m, size_t index);
const ptx_function_info *ptx_info(const ptx_function *f);
bool ptx_find_global(const ptx_module *m, const char *name, uint64_t *address, size_t *size);
int ptx_launch(const ptx_function *f, const ptx_launch_config *config, char *error, size_t size);
void *harness_new(void);
void harness_free(void *h);
uint64_t harness_alloc(void *h, size_t size, bool readonly);
void *harness_translate(void *user, uint64_t address, size_t size, bool write);
uint64_t harness_place(void *user, const ptx_global *g);
int fesetround(int mode);
int fegetround(void);
int harness_launch_twice(const ptx_function *f, const ptx_launch_config *config);
"""

Array = npt.NDArray[Any]


class PtxError(Exception):
    """A load or launch that failed; status is one of STATUS, or "load"."""

    def __init__(self, status: str, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status
        self.message = message


WARNINGS = ["-Wall", "-Wextra", "-Werror"]


def sanitizers() -> list[str]:
    """Flags for a run under sanitizers: where the process itself was started for them."""
    names = os.environ.get("TT_SANITIZE", "")
    if names and "asan" in os.environ.get("LD_PRELOAD", ""):
        return ["-O1", "-g", f"-fsanitize={names}", "-fno-sanitize-recover=all"]
    return ["-O2"]


@functools.cache
def library() -> tuple[Any, Any]:
    """The interpreter as (ffi, library), compiled where no process has done that."""
    sources = [*sorted((SIM / "ptx").glob("*.c")), ROOT / "tests" / "ptx_harness.c"]
    command = ["gcc", "-std=gnu11", *sanitizers(), *WARNINGS, "-fPIC", "-shared"]
    command += [
        f"-I{SIM.parent}",
        f"-I{SIM.parent / 'include'}",
        *map(str, sources),
        "-lm",
        "-lpthread",
    ]
    of = hashlib.sha256(" ".join(command).encode())
    for path in [*sources, *sorted((SIM / "ptx").glob("*.h"))]:
        of.update(path.read_bytes())
    target = ROOT / "build" / "tests" / f"ptx-{of.hexdigest()[:16]}" / "libptx.so"
    with support.sole_maker(target):
        if not target.exists():
            unfinished = target.with_suffix(".unfinished")
            subprocess.run([*command, "-o", str(unfinished)], check=True)
            unfinished.rename(target)
    ffi = cffi.FFI()
    ffi.cdef(DECLARATIONS)
    return ffi, ffi.dlopen(str(target))


class Machine:
    """Device memory and the modules loaded into it."""

    def __init__(self) -> None:
        self.ffi, self.lib = library()
        self.memory = self.ffi.gc(self.lib.harness_new(), self.lib.harness_free)
        self.error = self.ffi.new("char[512]")

    def alloc(self, size: int, readonly: bool = False) -> int:
        """Address of size zeroed bytes."""
        return int(self.lib.harness_alloc(self.memory, size, readonly))

    def view(self, address: int, size: int, dtype: Any = np.uint8) -> Array:
        """The bytes at address as an array of dtype that shares them."""
        host = self.lib.harness_translate(self.memory, address, size, False)
        assert host != self.ffi.NULL
        return np.frombuffer(self.ffi.buffer(host, size), dtype=dtype)

    def put(self, data: Array) -> int:
        """Address of a copy of data."""
        address = self.alloc(max(data.nbytes, 1))
        if data.nbytes:
            self.view(address, data.nbytes)[:] = np.frombuffer(data.tobytes(), np.uint8)
        return address

    def load(self, text: str | bytes) -> Module:
        return Module(self, text)


class Module:
    """A loaded module."""

    def __init__(self, machine: Machine, text: str | bytes) -> None:
        self.machine = machine
        ffi, lib = machine.ffi, machine.lib
        loader = ffi.new("ptx_loader *")
        loader.place_global = ffi.cast("void *", ffi.addressof(lib, "harness_place"))
        loader.user = machine.memory
        raw = text.encode() if isinstance(text, str) else text
        handle = lib.ptx_load(raw, loader, machine.error, 512)
        if handle == ffi.NULL:
            raise PtxError("load", ffi.string(machine.error).decode())
        self.handle = ffi.gc(handle, lib.ptx_unload)

    def info(self, name: str) -> Any:
        return self.machine.lib.ptx_info(self.function(name))

    def function(self, name: str) -> Any:
        f = self.machine.lib.ptx_find_function(self.handle, name.encode())
        if f == self.machine.ffi.NULL:
            raise KeyError(name)
        return f

    def functions(self) -> list[str]:
        lib, ffi = self.machine.lib, self.machine.ffi
        return [
            ffi.string(lib.ptx_info(lib.ptx_function_at(self.handle, i)).name).decode()
            for i in range(lib.ptx_function_count(self.handle))
        ]

    def variable(self, name: str) -> tuple[int, int]:
        """Address and size of a module variable."""
        ffi = self.machine.ffi
        address, size = ffi.new("uint64_t *"), ffi.new("size_t *")
        if not self.machine.lib.ptx_find_global(self.handle, name.encode(), address, size):
            raise KeyError(name)
        return int(address[0]), int(size[0])

    def launch(
        self,
        name: str,
        *arguments: Any,
        grid: Sequence[int] = (1, 1, 1),
        block: Sequence[int] = (32, 1, 1),
        shared: int = 0,
        seed: int = 0,
        cooperative: bool = False,
        budget: int = 0,
        twice: bool = False,
        trace: bytes = b"",
        pause: Callable[[], None] = lambda: None,
    ) -> None:
        """Runs a kernel; an int argument is 8 bytes unless the parameter is of 4, arrays and
        numpy scalars go as their bytes. trace is a struct tt_sim_trace; pause is called where
        the host may look at the records. Raises PtxError."""
        ffi, lib = self.machine.ffi, self.machine.lib
        f = self.function(name)
        info = lib.ptx_info(f)
        assert len(arguments) == info.param_count
        raw = bytearray(info.param_bytes)
        for i, a in enumerate(arguments):
            p = info.params[i]
            data = a.to_bytes(p.size, "little", signed=a < 0) if isinstance(a, int) else a.tobytes()
            assert len(data) == p.size
            raw[p.offset : p.offset + p.size] = data
        params = ffi.from_buffer(raw)
        config = ffi.new("ptx_launch_config *")
        config.grid = ([*list(grid), 1, 1])[:3]
        config.block = ([*list(block), 1, 1])[:3]
        config.cluster = [1, 1, 1]
        config.dynamic_shared = shared
        config.params = params
        config.cooperative = cooperative
        config.schedule_seed = seed
        config.translate = ffi.cast("void *", ffi.addressof(lib, "harness_translate"))
        config.user = self.machine.memory
        config.budget = budget
        paused = ffi.callback("void(bool)", lambda wait: pause())
        config.pause = ffi.cast("void *", paused)
        config.trace = ffi.from_buffer(trace) if trace else ffi.NULL
        if twice:
            status = lib.harness_launch_twice(f, config)
        else:
            status = lib.ptx_launch(f, config, self.machine.error, 512)
        if status:
            raise PtxError(STATUS[status], ffi.string(self.machine.error).decode())
