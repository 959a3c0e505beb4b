"""Block digests of present device memory, computed on the device, or on the host for the
simulator.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import xxhash

from ttanalyze.format import layout
from ttanalyze.format.layout import BLOCK_SIZE, Array
from ttanalyze.gpu.device import Device
from ttanalyze.gpu.memory import DeviceBuffer, copy_out
from ttanalyze.gpu.module import Function, Module
from ttanalyze.gpu.work import Kernel

KERNELS = Path(__file__).with_name("replay_digest.ptx")
SIMULATOR = "ttanalyze simulator"
THREADS, PER_PROCESSOR = 128, 8  # of the kernel: TT_DIGEST_… of kernels.h
PROCESSORS = 16  # CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
PIECE = 512 * BLOCK_SIZE  # read back at once
DIGEST = 8  # bytes
ZEROS = xxhash.xxh3_64_intdigest(bytes(BLOCK_SIZE))  # of a whole block


class HelperKernels:
    """The kernels of the toolkit on a device. processors: the number of its multiprocessors."""

    def __init__(self, device: Device) -> None:
        self.device = device
        with device.use() as driver:
            handle = driver.get("cuDeviceGet", "CUdevice", device.ordinal)
            self.processors = int(driver.get("cuDeviceGetAttribute", "int", PROCESSORS, handle))

    @functools.cached_property
    def module(self) -> Module:
        return Module(KERNELS.read_bytes(), self.device, KERNELS.name, lasting=False)

    @functools.cached_property
    def digest(self) -> Function:
        return self.module.function("tt_replay_digest")

    @functools.cached_property
    def spin(self) -> Function:
        return self.module.function("tt_replay_spin")

    def work(self, kernel: Function, grid: int, block: int, shared: int, *words: int) -> Kernel:
        """Returns a launch with 8-byte parameters, whose layout the driver need not tell."""
        params = np.array(words, "u8").tobytes()
        return Kernel(kernel, (grid, 1, 1), (block, 1, 1), shared, params, keeps=(kernel,))


class Digests:
    """Computes digests of device memory. here: on the host."""

    def __init__(self, kernels: HelperKernels, here: bool | None = None) -> None:
        self._kernels = kernels
        self.device = kernels.device
        self.here = self.device.name == SIMULATOR if here is None else here

    def of_memory(self, spans: Sequence[tuple[int, int]]) -> list[Array]:
        """Returns the digest of each block of each span (address and size in bytes). Waits for all
        work in the context.
        """
        self.device.synchronize()
        if self.here:
            return [self._read(*span) for span in spans]
        counts = [layout.blocks_of(size) for _, size in spans]
        out: Array = np.empty(sum(counts), "u8")
        if not len(out):
            return [out[:0] for _ in spans]
        with DeviceBuffer(out.nbytes, self.device) as buffer:
            to = buffer.address
            for (address, size), count in zip(spans, counts, strict=True):
                if count:
                    self._submit(address, size, to, count)
                to += DIGEST * count
            self.device.stream.synchronize()
            copy_out(self.device, out, buffer.address)
        return np.split(out, np.cumsum(counts)[:-1])

    def _submit(self, address: int, size: int, to: int, count: int) -> None:
        grid = min(count, self._kernels.processors * PER_PROCESSOR)
        work = self._kernels.work(self._kernels.digest, grid, THREADS, 0, address, size, to)
        work.submit(self.device, self.device.stream.handle)

    def _read(self, address: int, size: int) -> Array:
        buffer = np.empty(min(size, PIECE), "u1")
        out = []
        for at in range(0, size, PIECE):
            data = buffer[: min(PIECE, size - at)]
            copy_out(self.device, data, address + at)
            blocks = (data[i : i + BLOCK_SIZE] for i in range(0, len(data), BLOCK_SIZE))
            out += [xxhash.xxh3_64_intdigest(block.data) for block in blocks]
        return np.array(out, "u8")
