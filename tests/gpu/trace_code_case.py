"""Runs a kernel with and without recording code, and prints what came out as JSON.

trace_code_case.py CUBIN LIBRARY KERNEL [KIND…]: a cubin of patch_kernels.cu, and the patcher as it
was built. Kinds are numbers of enum tt_trace_kind.
"""

from __future__ import annotations

import ctypes
import json
import struct
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from tests import sass_patcher as sp

PARAMETER = struct.Struct("<5Q2I3Q6I")  # struct tt_trace_param
ITEMS, RING, NO_BLOCK = 4096, 1 << 24, 2**64 - 1
OPCODE, REGISTERS, ADDRESSES, VALUES, TMA, COUNT = range(1, 7)
CONTROL = 128  # bytes of struct tt_trace_ring
COUNTS, THREADS = 1 << 21, 2**32 - 1  # bytes for counts; of a count, the threads
RECORD = struct.Struct("<5I3HhI")  # struct tt_trace_record
cuda = ctypes.CDLL("libcuda.so.1")


def call(name: str, *arguments: Any) -> None:
    if result := getattr(cuda, name)(*arguments):
        raise SystemExit(f"{name}: {result}")


def allocate(size: int) -> int:
    at = ctypes.c_uint64()
    call("cuMemAlloc_v2", ctypes.byref(at), ctypes.c_size_t(size))
    call("cuMemsetD8_v2", at, 0, ctypes.c_size_t(size))
    return at.value


def put(at: int, data: bytes) -> None:
    call("cuMemcpyHtoD_v2", ctypes.c_uint64(at), data, ctypes.c_size_t(len(data)))


def get(at: int, size: int) -> bytes:
    data = ctypes.create_string_buffer(size)
    call("cuMemcpyDtoH_v2", data, ctypes.c_uint64(at), ctypes.c_size_t(size))
    return data.raw


def launch(image: bytes, name: str, values: list[Any]) -> None:
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    call("cuModuleLoadData", ctypes.byref(module), image)
    call("cuModuleGetFunction", ctypes.byref(function), module, name.encode())
    array = (ctypes.c_void_p * len(values))(*(ctypes.addressof(v) for v in values))
    call("cuLaunchKernel", function, 4, 1, 1, 128, 1, 1, 0, None, array, None)
    call("cuCtxSynchronize")
    call("cuModuleUnload", module)


class Memory:
    """What kernels read and write, and what their recording code writes."""

    def __init__(self) -> None:
        self.input, self.output = allocate(4 * ITEMS), allocate(4 * ITEMS)
        put(self.input, struct.pack(f"<{ITEMS}f", *(i % 251 / 7 for i in range(ITEMS))))
        self.ring, self.base, self.counts = allocate(CONTROL), allocate(2 * RING), allocate(COUNTS)

    def run(self, image: bytes, name: str, traced: sp.TracedImage | None = None) -> bytes:
        for at, size in ((self.output, 4 * ITEMS), (self.ring, CONTROL), (self.counts, COUNTS)):
            put(at, bytes(size))
        put(self.ring, struct.pack("<5Q", 0, 0, 0, 0, self.base))
        put(self.base, bytes(2 * RING))
        values: list[Any] = [
            ctypes.c_uint64(self.input),
            ctypes.c_uint64(self.output),
            ctypes.c_int(ITEMS),
        ]
        if traced is not None:
            memory = self.ring, self.base, RING, self.counts, 0, 7, 0
            counts = traced.copies, traced.stride, 1, 0
            parts = *memory, 0, NO_BLOCK, 0, 0, 0, *counts
            values.append(ctypes.create_string_buffer(PARAMETER.pack(*parts)))
        launch(image, name, values)
        return get(self.output, 4 * ITEMS)

    def records(self) -> tuple[list[tuple[Any, ...]], int]:
        """Each with its addresses; and how many were lost."""
        head, _, lost, _ = struct.unpack_from("<4Q", get(self.ring, 64))
        data, at, found = get(self.base, min(head, RING)), 0, []
        while at < len(data):
            record = RECORD.unpack_from(data, at)
            tag, mask, stride = record[0], record[3], record[8]
            if not tag:
                raise SystemExit(f"no tag at {at} of {head}")
            addresses: list[int] = []
            lanes = [lane for lane in range(32) if mask >> lane & 1]
            if tag & 0xFF == ADDRESSES and tag >> 8 & 1:
                (base,) = struct.unpack_from("<Q", data, at + 32)
                addresses = [base + stride * lane for lane in lanes]
            elif tag & 0xFF == ADDRESSES:
                every = struct.unpack_from("<32Q", data, at + 32)
                addresses = [every[lane] for lane in lanes]
            found.append((record[2], mask, record[4], record[7], addresses))
            at += (tag >> 16) * 8
        return found, lost

    def counted(self, traced: sp.TracedImage) -> dict[int, list[int]]:
        """Executions by warps and by threads, by instruction."""
        size = traced.copies * traced.stride
        every = struct.unpack(f"<{size}Q", get(self.counts, 8 * size))
        slots = [every[i :: traced.stride] for i in range(traced.slot_count)]
        sums = [[sum(n >> 32 for n in slot), sum(n & THREADS for n in slot)] for slot in slots]
        by = {i: sums[slot - 1] for i, slot in enumerate(traced.slots) if slot}
        return {i: numbers for i, numbers in by.items() if any(numbers)}


def told(memory: Memory, cubin: sp.Cubin, kernel: sp.Kernel) -> dict[str, Any]:
    plain = memory.run(cubin.image, kernel.name)
    said: dict[str, Any] = {"kernel": kernel.name, "same": {}, "lost": 0}
    counter = allocate(4)
    every = [COUNT, OPCODE, REGISTERS, ADDRESSES, VALUES, *([TMA] if kernel.name == "bulk" else [])]
    kinds = [int(kind) for kind in sys.argv[4:]] or every
    for kind in kinds:
        print(f"{kernel.name}, kind {kind}", file=sys.stderr, flush=True)
        traced = cubin.traced_image(kernel, 1 << kind, counter)
        said["same"][kind] = memory.run(traced.image, kernel.name, traced) == plain
        if kind == COUNT:
            said["counted"] = memory.counted(traced)
            continue
        records, lost = memory.records()
        said["lost"] += lost
        if kind == OPCODE:
            warps = Counter(record[0] for record in records)
            threads = Counter[int]()
            for record in records:
                threads[record[0]] += record[1].bit_count()
            said["recorded"] = {i: [warps[i], threads[i]] for i in sorted(warps)}
            said["places"] = len({(record[2], record[3]) for record in records})
        elif kind == ADDRESSES:
            begin = {"input": memory.input, "output": memory.output}
            for name, at in begin.items():
                flat = sorted(a - at for r in records for a in r[4] if 0 <= a - at < 4 * ITEMS)
                said[name] = flat if kernel.name == "scale" else len(flat)
    return said


def main() -> None:
    context, device = ctypes.c_void_p(), ctypes.c_int()
    call("cuInit", 0)
    call("cuDeviceGet", ctypes.byref(device), 0)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    call("cuCtxSetCurrent", context)
    cubin = sp.Patcher(Path(sys.argv[2])).open(Path(sys.argv[1]).read_bytes())
    (kernel,) = (k for k in cubin.kernels if k.name == sys.argv[3])
    try:
        print(json.dumps(told(Memory(), cubin, kernel)), flush=True)
    except ValueError as e:
        print(json.dumps({"kernel": kernel.name, "refused": str(e)}), flush=True)


if __name__ == "__main__":
    main()
