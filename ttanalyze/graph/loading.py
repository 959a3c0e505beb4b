"""Stored contents of blocks into a device's memory, as fast as copies go.

Several threads read files into page-locked memory, each a piece ahead of what is being copied. What
several blocks hold is read once, and copied on the device from there on.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import threading
from dataclasses import dataclass

import numpy as np

from ttanalyze._cuda import ffi
from ttanalyze.graph.device import Device, Stream
from ttanalyze.model import contents
from ttanalyze.model.layout import BLOCK_SIZE, Array
from ttanalyze.model.process import Process

PIECE = 64  # blocks that are read and copied at once
AHEAD = 2  # pieces of a thread
THREADS = 8  # at most
NO_TIMING = 2  # CU_EVENT_DISABLE_TIMING
PORTABLE = 1  # CU_MEMHOSTREGISTER_PORTABLE
HUGE = 2 << 20  # bytes of a large page: few of them are locked in a moment


@dataclass(frozen=True)
class Blocks:
    """tt_block records, and the address that each one's contents go to (uint64)."""

    records: Array
    address: Array

    def take(self, which: Array | slice) -> Blocks:
        """Some of them."""
        return Blocks(self.records[which], self.address[which])


class Loader:
    """Loads blocks of a process onto a device. check: whether what is read has to have its digest;
    else whoever loads looks at memory.
    """

    def __init__(self, process: Process, device: Device, check: bool) -> None:
        self._process = process
        self._device = device
        self._check = check
        self._idle: list[_Reader] = []

    def load(self, blocks: Blocks) -> None:
        """Waits until all is there. Raises FormatError where a file is damaged, Error where one is
        gone.
        """
        records = blocks.records
        key = records["segment"].astype("u8") << np.uint64(48) | records["offset"]
        _, first, which = np.unique(key, return_index=True, return_inverse=True)
        self._read(blocks.take(first))
        again = np.ones(len(records), bool)
        again[first] = False
        source = blocks.address[first][which[again]]
        self._copy(blocks.take(np.flatnonzero(again)), source)

    # ---- from files ----

    def _read(self, blocks: Blocks) -> None:
        """Blocks in the order in which they lie in files."""
        pieces = -(-len(blocks.records) // PIECE)
        threads = min(THREADS, os.cpu_count() or 1, pieces)
        failed: list[BaseException] = []
        begins = iter(range(0, len(blocks.records), PIECE))
        lock = threading.Lock()

        def following() -> int | None:
            with lock:
                return None if failed else next(begins, None)

        def work() -> None:
            try:
                with self._device.use(), contents.DataFiles(self._process) as files:
                    reader = self._idle.pop() if self._idle else _Reader(self._device)
                    try:
                        while (begin := following()) is not None:
                            reader.piece(
                                files, blocks.take(slice(begin, begin + PIECE)), self._check
                            )
                    finally:
                        reader.end()
                    self._idle.append(reader)
            except BaseException as e:
                failed.append(e)

        others = [threading.Thread(target=work) for _ in range(threads - 1)]
        for thread in others:
            thread.start()
        work()
        for thread in others:
            thread.join()
        if failed:
            raise failed[0]

    # ---- on the device ----

    def _copy(self, blocks: Blocks, source: Array) -> None:
        """To each block from where its contents are already."""
        order = np.argsort(blocks.address, kind="stable")
        to, source = blocks.address[order], source[order]
        length = blocks.records["length"][order].astype("u8")
        whole = (length[:-1] == BLOCK_SIZE) & (length[1:] == BLOCK_SIZE)
        whole &= np.diff(to) == BLOCK_SIZE
        step = np.diff(source)  # modulo 2**64
        begin = 0
        with self._device.use() as driver:
            stream = ffi.cast("CUstream", self._device.copies.handle)
            while begin < len(to):
                end = begin + 1
                alike = end < len(to) and step[begin] in (0, BLOCK_SIZE)
                while alike and end < len(to) and whole[end - 1] and step[end - 1] == step[begin]:
                    end += 1
                size = int(length[begin:end].sum())
                here, there = int(to[begin]), int(source[begin])
                done = size if end - begin == 1 or step[begin] else BLOCK_SIZE
                driver.call("cuMemcpyDtoDAsync_v2", here, there, done, stream)
                while done < size:  # one block's contents over and over
                    more = min(done, size - done)
                    driver.call("cuMemcpyDtoDAsync_v2", here + done, here, more, stream)
                    done += more
                begin = end
            driver.call("cuStreamSynchronize", stream)


class _Slot:
    """Page-locked memory that is read into, and an event behind the copies from it."""

    def __init__(self, device: Device) -> None:
        size = PIECE * BLOCK_SIZE
        self._memory = mmap.mmap(-1, size + HUGE)
        with contextlib.suppress(OSError):  # kernels without large pages
            self._memory.madvise(mmap.MADV_HUGEPAGE)
        whole = np.frombuffer(self._memory, "u1")
        skip = -whole.ctypes.data % HUGE
        self.array: Array = whole[skip : skip + size]
        self.address = whole.ctypes.data + skip
        with device.use() as driver:
            here = ffi.cast("void *", self.address)
            driver.call("cuMemHostRegister_v2", here, size, PORTABLE)
            self._free = device.context.give_back(self, "cuMemHostUnregister", here)
            self.event = driver.get("cuEventCreate", "CUevent", NO_TIMING)
            self._destroy = device.context.give_back(self, "cuEventDestroy_v2", self.event)


class _Reader:
    """What one thread reads into and copies from."""

    def __init__(self, device: Device) -> None:
        self._driver = device.driver
        self._stream = Stream(device)
        self._slots = [_Slot(device) for _ in range(AHEAD)]
        self._turn = 0

    def piece(self, files: contents.DataFiles, blocks: Blocks, check: bool) -> None:
        """Reads some blocks, when what was read before into the same place is copied, and has them
        copied.
        """
        slot = self._slots[self._turn]
        self._turn = (self._turn + 1) % AHEAD
        self._driver.call("cuEventSynchronize", slot.event)
        stream = ffi.cast("CUstream", self._stream.handle)
        records, address = blocks.records, blocks.address
        offset, length = records["offset"], records["length"]
        whole = length[:-1] == BLOCK_SIZE
        on = whole & (np.diff(offset) == BLOCK_SIZE)
        on &= records["segment"][1:] == records["segment"][:-1]
        memory = slot.array.data
        for first, stop in _runs(on):
            start = first * BLOCK_SIZE
            end = (stop - 1) * BLOCK_SIZE + int(length[stop - 1])
            file = files.get(int(records["segment"][first]))
            file.fill(int(offset[first]), memory[start:end])
        if check:
            files.compare(records, slot.array)
        for first, stop in _runs(whole & (np.diff(address) == BLOCK_SIZE)):
            start = first * BLOCK_SIZE
            size = (stop - 1 - first) * BLOCK_SIZE + int(length[stop - 1])
            source = ffi.cast("void *", slot.address + start)
            to = int(address[first])
            self._driver.call("cuMemcpyHtoDAsync_v2", to, source, size, stream)
        self._driver.call("cuEventRecord", slot.event, stream)

    def end(self) -> None:
        """Waits for the copies."""
        self._stream.synchronize()


def _runs(on: Array) -> list[tuple[int, int]]:
    """Where runs of items begin and end, where `on` says of each but the first that it goes on."""
    breaks = (np.flatnonzero(~on) + 1).tolist()
    return list(zip([0, *breaks], [*breaks, len(on) + 1], strict=True))
