"""The patcher for tests: built as a library of its own, and called through ctypes."""

from __future__ import annotations

import ctypes
import os
import shlex
import struct
import subprocess
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SOURCES = (
    "sass/cubin.c",
    "sass/code.c",
    "sass/patch.c",
    "sass/rebuild.c",
    "sass/fatbin.c",
    "sass/blocks.c",
    "sass/trace_code.c",
    "sass/trace_choose.c",
    "sass/trace_plan.c",
    "sass/trace_levels.c",
    "sass/trace_pieces.c",
    "sass/trace_beats.c",
    "sass/trace_loops.c",
    "sass/trace_counts.c",
    "sass/trace_spill.c",
    "sass/trace_values.c",
    "sass/trace_registers.c",
    "sass/trace_image.c",
    "track/image.c",
)
EMPTY, FIXED, RANDOM, CLUSTER, CLUSTER_FIXED = range(5)
EVERY = 2**64 - 1
VISIT = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
TEXT, POINTER, SIZE = ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t
NUMBER = ctypes.c_int
SIGNATURES: dict[str, tuple[Any, list[Any]]] = {  # what each gives and takes
    "open": (POINTER, [TEXT, SIZE, POINTER]),
    "close": (NUMBER, [POINTER]),
    "architecture": (NUMBER, [POINTER]),
    "kernels": (SIZE, [POINTER]),
    "kernel": (TEXT, [POINTER, SIZE, POINTER]),
    "refused": (TEXT, [POINTER, SIZE, NUMBER, POINTER]),
    "patch": (POINTER, [POINTER, SIZE, POINTER, SIZE, POINTER, POINTER]),
    "trace": (POINTER, [POINTER, SIZE, *3 * [ctypes.c_uint], POINTER, POINTER]),
    "traced_image": (
        POINTER,
        [POINTER, SIZE, ctypes.c_uint, ctypes.c_uint64, ctypes.c_uint, *4 * [POINTER]],
    ),
    "registers": (ctypes.c_bool, [ctypes.c_uint64, ctypes.c_uint64, *3 * [POINTER]]),
    "fatbin": (POINTER, [POINTER, SIZE, POINTER, SIZE, POINTER]),
    "codes": (NUMBER, [TEXT, SIZE, ctypes.c_uint, VISIT]),
}


class Point(ctypes.Structure):
    _fields_ = (
        ("offset", ctypes.c_uint32),
        ("mode", ctypes.c_int),
        ("ns", ctypes.c_uint32),
        ("min_ns", ctypes.c_uint32),
        ("seed", ctypes.c_uint32),
        ("block", ctypes.c_uint32),
    )


class Patch(ctypes.Structure):
    _fields_ = (
        ("points", ctypes.POINTER(Point)),
        ("count", ctypes.c_size_t),
        ("everywhere", ctypes.c_bool),
        ("refused", ctypes.c_char_p),
        ("refused_at", ctypes.c_uint32),
        ("moved", ctypes.c_uint32),
    )


@dataclass(frozen=True)
class Traced:
    """code: (low, high) of each instruction, if any was possible; why not, by old instruction."""

    code: list[tuple[int, int]]
    registers: int
    points: int
    refused: list[str | None]


@dataclass(frozen=True)
class TracedImage:
    """offset: of the additional parameter; slots: by instruction, as in trace_code.h."""

    image: bytes
    parameters: int
    offset: int
    registers: int
    points: int
    slot_count: int
    stride: int
    copies: int
    slots: list[int]


@dataclass(frozen=True)
class Kernel:
    """code: its place in the image; size in bytes."""

    index: int
    name: str
    code: int
    size: int
    cluster: int


@dataclass(frozen=True)
class Patched:
    """image: None where nothing was patched. refused and moved by kernel."""

    image: bytes | None
    refused: list[str | None]
    refused_at: list[int]
    moved: list[int]


def build(folder: Path) -> Patcher:
    """Compiles the patcher with CC and CFLAGS."""
    made = folder / "libsass.so"
    command = [
        *shlex.split(os.environ.get("CC", "cc")),
        *("-std=gnu11", "-D_GNU_SOURCE=", "-O2", "-g", "-fPIC", "-shared", "-fvisibility=hidden"),
        *("-Wall", "-Wextra", "-Werror"),
        *shlex.split(os.environ.get("CFLAGS", "")),
        *(f"-I{ROOT / 'interpose'}", f"-I{ROOT / 'interpose' / 'include'}"),
        *(str(ROOT / "interpose" / name) for name in SOURCES),
        *(str(ROOT / "tests" / "sass_harness.c"), "-o", str(made)),
    ]
    subprocess.run(command, check=True)
    return Patcher(made)


class Patcher:
    def __init__(self, library: Path) -> None:
        lib = ctypes.CDLL(str(library))
        for name, (gives, takes) in SIGNATURES.items():
            function = getattr(lib, f"harness_{name}")
            function.restype, function.argtypes = gives, takes
        self._lib = lib
        self._free = ctypes.CDLL(None).free
        self._free.argtypes = [ctypes.c_void_p]

    def open(self, image: bytes) -> Cubin:
        """Raises ValueError with the reason where it can't be read."""
        wrong = ctypes.c_char_p()
        handle = self._lib.harness_open(image, len(image), ctypes.byref(wrong))
        if not handle:
            raise ValueError((wrong.value or b"").decode())
        return Cubin(self, handle, image)

    def fatbin(self, image: bytes, *capabilities: int) -> bytes | None:
        """A fatbin with what such devices take patched everywhere; None where nothing is."""
        array, size = (ctypes.c_uint * len(capabilities))(*capabilities), ctypes.c_uint64()
        out = self._lib.harness_fatbin(
            image, len(image), array, len(capabilities), ctypes.byref(size)
        )
        made = ctypes.string_at(out, size.value) if out else None
        self._free(out)
        return made

    def registers(self, low: int, high: int) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
        """The general and the uniform ones of an instruction, None where it is unknown."""
        general, uniform = (ctypes.c_uint8 * 256)(), (ctypes.c_uint8 * 64)()
        numbers = (ctypes.c_uint * 2)()
        known = self._lib.harness_registers(low, high, general, uniform, numbers)
        return (tuple(general[: numbers[0]]), tuple(uniform[: numbers[1]])) if known else None

    def codes(self, image: bytes, capability: int) -> list[bytes]:
        """The cubins that such a device takes of a module."""
        if image.startswith(b"\x7fELF"):
            return [image]
        found: list[bytes] = []

        def visit(code: int, size: int, _: int) -> None:
            found.append(ctypes.string_at(code, size))

        self._lib.harness_codes(image, len(image), capability, VISIT(visit))
        return found


class Cubin:
    def __init__(self, patcher: Patcher, handle: int, image: bytes) -> None:
        self._lib, self._free = patcher._lib, patcher._free
        self._handle, self.image = handle, image
        self.architecture: int = self._lib.harness_architecture(handle)
        self.kernels = [self._kernel(i) for i in range(self._lib.harness_kernels(handle))]

    def __del__(self) -> None:
        self._lib.harness_close(self._handle)

    def _kernel(self, index: int) -> Kernel:
        numbers = (ctypes.c_uint64 * 3)()
        name = self._lib.harness_kernel(self._handle, index, numbers).decode()
        return Kernel(index, name, *numbers)

    def refusals(self, kernel: Kernel, mode: int = EMPTY) -> list[str | None] | str:
        """Why there can be no delay, by instruction, or for the whole kernel."""
        reasons = (ctypes.c_char_p * (kernel.size // 16 + 1))()
        wrong = self._lib.harness_refused(self._handle, kernel.index, mode, reasons)
        if wrong:
            return str(wrong.decode())
        return [r.decode() if r else None for r in reasons[: kernel.size // 16]]

    def reasons(self, kernel: Kernel, mode: int = EMPTY) -> Counter[str]:
        refusals = self.refusals(kernel, mode)
        if isinstance(refusals, str):
            return Counter([refusals])
        return Counter(reason for reason in refusals if reason)

    def trace(self, kernel: Kernel, registers: int, kinds: int, parameter: int = 0x310) -> Traced:
        """Its code with code that records at every instruction."""
        numbers, count = (ctypes.c_uint64 * 3)(), kernel.size // 16
        reasons = (ctypes.c_char_p * count)()
        out = self._lib.harness_trace(
            self._handle, kernel.index, registers, parameter, kinds, reasons, numbers
        )
        code = ctypes.string_at(out, numbers[0] * 16) if out else b""
        self._free(out)
        refused = [r.decode() if r else None for r in reasons]
        return Traced(list(struct.iter_unpack("<QQ", code)), numbers[1], numbers[2], refused)

    def traced_image(
        self, kernel: Kernel, kinds: int, variables: int = 0, threads: int = 128
    ) -> TracedImage:
        """With code that records at every instruction; ValueError says why there is none."""
        numbers, slots = (ctypes.c_uint64 * 7)(), (ctypes.c_uint32 * (kernel.size // 16))()
        wrong, size = ctypes.c_char_p(), ctypes.c_uint64()
        told = ctypes.byref(wrong), numbers, slots, ctypes.byref(size)
        out = self._lib.harness_traced_image(
            self._handle, kernel.index, kinds, variables, threads, *told
        )
        if not out:
            raise ValueError((wrong.value or b"").decode())
        image = ctypes.string_at(out, size.value)
        self._free(out)
        parameters, offset, registers, points, count, stride, copies = numbers
        made = parameters, offset, registers, points, count, stride, copies
        return TracedImage(image, *made, list(slots))

    def patch(self, kernel: Kernel | None = None, points: Sequence[Point] = ()) -> Patched:
        """Of one kernel or all of them, at these points or everywhere."""
        patches = (Patch * max(len(self.kernels), 1))()
        array, size = (Point * max(len(points), 1))(*points), ctypes.c_size_t()
        index = EVERY if kernel is None else kernel.index
        out = self._lib.harness_patch(
            self._handle, index, array, len(points), patches, ctypes.byref(size)
        )
        image = ctypes.string_at(out, size.value) if out else None
        self._free(out)
        done = patches[: len(self.kernels)]
        return Patched(
            image,
            [p.refused.decode() if p.refused else None for p in done],
            [p.refused_at for p in done],
            [p.moved for p in done],
        )
