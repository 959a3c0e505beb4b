"""Stored contents of blocks into a device's memory, as fast as copies go.

Several threads read files into a few places of page-locked memory, each the one whose copy was
begun first. What several blocks hold is read once, and copied on the device from there on.

Locking memory takes longer than reading into it, so there is little of it, and each place is made
when a thread first needs it, while others read already. Between two calls that let other threads
run there is as little Python as can be: what is read and copied is found out for many at once.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import queue
import threading
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ttanalyze._cuda import ffi
from ttanalyze.errors import Error
from ttanalyze.graph.device import Device, Stream
from ttanalyze.model import contents
from ttanalyze.model.layout import BLOCK_SIZE, Array
from ttanalyze.model.process import Process

PIECE = 32  # blocks that are read and copied at once: a large page
BATCH = 128 * PIECE  # of which it is found out at once how
THREADS = 10  # at most
COPIED = 2  # places besides those that threads read into
STREAMS = 2  # one copy begins while the other ends
NO_TIMING = 2  # CU_EVENT_DISABLE_TIMING
PORTABLE = 1  # CU_MEMHOSTREGISTER_PORTABLE
HUGE = 2 << 20  # bytes of a large page: few of them are locked in a moment
Run = tuple[int, int, int]  # of blocks: where it begins and ends in a piece, and the first's number


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
        self._streams = [Stream(device) for _ in range(STREAMS)]
        self._slots: queue.SimpleQueue[_Slot] = queue.SimpleQueue()  # the first copy first
        self._made = 0
        self._lock = threading.Lock()

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
        threads = min(THREADS, os.cpu_count() or 1, -(-len(blocks.records) // PIECE))
        failed: list[BaseException] = []
        pieces = _pieces(blocks)

        def following() -> _Piece | None:
            with self._lock:
                return None if failed else next(pieces, None)

        def work() -> None:
            try:
                with self._device.use(), contents.DataFiles(self._process) as files:
                    while (piece := following()) is not None:
                        slot = self._slot(threads + COPIED)
                        try:
                            self._load(slot, files, piece)
                        finally:
                            self._slots.put(slot)
            except BaseException as e:
                failed.append(e)

        others = [threading.Thread(target=work) for _ in range(threads - 1)]
        for thread in others:
            thread.start()
        work()
        for thread in others:
            thread.join()
        for stream in self._streams:
            stream.synchronize()
        if failed:
            raise failed[0]

    def _slot(self, most: int) -> _Slot:
        """One that nobody reads into."""
        with self._lock:
            number = self._made
            self._made += number < most
        if number >= most:
            return self._slots.get()
        try:
            return _Slot(self._device, self._streams[number % STREAMS])
        except Error:
            with self._lock:
                self._made -= 1
            raise

    def _load(self, slot: _Slot, files: contents.DataFiles, piece: _Piece) -> None:
        """Reads a piece, when what was read before into the same place is copied, and has it
        copied.
        """
        slot.wait()
        records, memory = piece.blocks.records, slot.memory
        for begin, end, first in piece.reads:
            file = files.get(int(records["segment"][first]))
            file.fill(int(records["offset"][first]), memory[begin:end])
        if self._check:
            files.compare(records, slot.array)
        address = piece.blocks.address
        slot.copy([(begin, end, int(address[first])) for begin, end, first in piece.copies])

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


@dataclass(frozen=True)
class _Piece:
    """Blocks that are read at once, and which of them lie one behind the other: in a file, and in
    the device's memory.
    """

    blocks: Blocks
    reads: list[Run]
    copies: list[Run]


def _pieces(blocks: Blocks) -> Iterator[_Piece]:
    for begin in range(0, len(blocks.records), BATCH):
        some = blocks.take(slice(begin, begin + BATCH))
        offset, length = some.records["offset"], some.records["length"]
        on = length[:-1] == BLOCK_SIZE
        on &= np.arange(1, len(length)) % PIECE != 0
        same = on & (np.diff(offset) == BLOCK_SIZE)
        same &= some.records["segment"][1:] == some.records["segment"][:-1]
        reads = _runs(same, length)
        copies = _runs(on & (np.diff(some.address) == BLOCK_SIZE), length)
        for at, pair in enumerate(zip(reads, copies, strict=True)):
            yield _Piece(some.take(slice(at * PIECE, (at + 1) * PIECE)), *pair)


def _runs(on: Array, length: Array) -> list[list[Run]]:
    """By piece, the runs of blocks, where `on` says of each but the first that it goes on."""
    first = np.append(0, np.flatnonzero(~on) + 1)
    last = np.append(first[1:], len(length)) - 1
    begin = first % PIECE * BLOCK_SIZE
    end = last % PIECE * BLOCK_SIZE + length[last]
    out: list[list[Run]] = [[] for _ in range(-(-len(length) // PIECE))]
    columns = (column.tolist() for column in (first // PIECE, begin, end, first % PIECE))
    for piece, *run in zip(*columns, strict=True):
        out[piece].append((run[0], run[1], run[2]))
    return out


class _Slot:
    """Page-locked memory that is read into, and an event behind the copies from it."""

    def __init__(self, device: Device, stream: Stream) -> None:
        size = PIECE * BLOCK_SIZE
        self._map = mmap.mmap(-1, size + HUGE)
        with contextlib.suppress(OSError):  # kernels without large pages
            self._map.madvise(mmap.MADV_HUGEPAGE)
        whole = np.frombuffer(self._map, "u1")
        skip = -whole.ctypes.data % HUGE
        self.array: Array = whole[skip : skip + size]
        self.memory = self.array.data
        self._address = whole.ctypes.data + skip
        self._driver = device.driver
        self._stream = ffi.cast("CUstream", stream.handle)
        with device.use() as driver:
            here = ffi.cast("void *", self._address)
            driver.call("cuMemHostRegister_v2", here, size, PORTABLE)
            self._free = device.context.give_back(self, "cuMemHostUnregister", here)
            self._event = driver.get("cuEventCreate", "CUevent", NO_TIMING)
            self._destroy = device.context.give_back(self, "cuEventDestroy_v2", self._event)

    def wait(self) -> None:
        """Until it is copied."""
        self._driver.call("cuEventSynchronize", self._event)

    def copy(self, parts: list[tuple[int, int, int]]) -> None:
        """Has parts of it copied, each from where it begins and ends to an address."""
        for begin, end, to in parts:
            source = ffi.cast("void *", self._address + begin)
            self._driver.call("cuMemcpyHtoDAsync_v2", to, source, end - begin, self._stream)
        self._driver.call("cuEventRecord", self._event, self._stream)
