"""Loads stored contents of blocks into device memory.

Several threads read files into page-locked memory in C (interpose/load), without waiting for each
other. Compressed contents are read here. Contents that several blocks share are read once and then
copied on the device.
"""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ttanalyze._cuda import ffi
from ttanalyze.errors import Error
from ttanalyze.format import contents, layout
from ttanalyze.format.layout import BLOCK_SIZE, Array
from ttanalyze.format.process import Process
from ttanalyze.gpu.device import Context, Device, Stream
from ttanalyze.util import libraries

PIECE = 64  # blocks that are read and copied at once: whole large pages
THREADS = 16  # at most: each reads 4 GB/s, and the bus takes 55
BUFFERS = 2  # of each thread: one is copied while the other is filled
STREAMS = 2  # one copy begins while the other ends
CALLS = {  # of struct tt_load_driver
    "lock": "cuMemHostRegister_v2",
    "unlock": "cuMemHostUnregister",
    "create": "cuEventCreate",
    "destroy": "cuEventDestroy_v2",
    "wait": "cuEventSynchronize",
    "copy": "cuMemcpyHtoDAsync_v2",
    "record": "cuEventRecord",
}
PLAIN = layout.enum("encoding")["TT_ENCODING_PLAIN"]
READ, CHECKED, COPY, FIRST = (
    layout.dtype(f"load_{name}", ffi) for name in ("read", "block", "copy", "piece")
)


@dataclass(frozen=True)
class Blocks:
    """tt_block records, and the device address for the contents of each (uint64)."""

    records: Array
    address: Array

    def take(self, which: Array | slice) -> Blocks:
        """Returns some blocks."""
        return Blocks(layout.take(self.records, which), self.address[which])

    @staticmethod
    def joined(lists: list[Blocks]) -> Blocks:
        """Returns the blocks of one or more lists."""
        if len(lists) == 1:
            return lists[0]
        address = np.concatenate([blocks.address for blocks in lists])
        return Blocks(layout.joined([blocks.records for blocks in lists]), address)


class Loader:
    """Loads blocks of a process onto a device.

    check: whether contents must have their digest. Otherwise the caller checks memory.
    """

    def __init__(self, process: Process, device: Device, check: bool) -> None:
        self._process = process
        self._device = device
        self._check = check
        self._streams = [Stream(device) for _ in range(STREAMS)]
        self._library: Any = ffi.dlopen(str(libraries.loader()))
        self._driver = ffi.new("struct tt_load_driver *")
        for name, call in CALLS.items():
            setattr(self._driver, name, device.driver.function(call))
        self._threads = [ffi.new("struct tt_load_thread *") for _ in range(THREADS)]
        for number, thread in enumerate(self._threads):
            thread.stream = ffi.cast("CUstream", self._streams[number % STREAMS].handle)
        self._area = ffi.new("struct tt_load_area *")
        self._locking: threading.Thread | None = None
        of = device.context, self._library, self._driver, self._threads, self._area
        self._free = weakref.finalize(self, _release, os.getpid(), *of)

    def prepare(self, size: int, also: Callable[[], object]) -> None:
        """Starts to lock host memory for up to this many bytes, while the caller goes on. Then
        calls `also`, whose errors do not count: it prepares what the caller does by itself later.
        """
        pieces = size // (PIECE * BLOCK_SIZE)
        if pieces >= THREADS:
            self._locking = threading.Thread(target=self._prepare, args=(pieces, also))
            self._locking.start()

    def _prepare(self, pieces: int, also: Callable[[], object]) -> None:
        self._lock(_threads_for(pieces))
        with contextlib.suppress(Error):
            also()

    def _lock(self, threads: int) -> None:
        with self._device.use():
            size = threads * BUFFERS * PIECE * BLOCK_SIZE
            self._library.tt_load_lock(self._driver, self._area, size, threads)

    def _give_buffers(self, threads: int) -> None:
        """Gives two buffers to each thread. Raises DriverError if the driver cannot lock memory."""
        area, piece = self._area, PIECE * BLOCK_SIZE
        if self._locking is not None:
            self._locking.join()
            self._locking = None
        if area.size < threads * BUFFERS * piece:
            self._library.tt_load_unlock(self._driver, area)
            self._lock(threads)
        if area.call != ffi.NULL:
            raise self._device.driver.error(ffi.string(area.call).decode(), area.result)
        memory = ffi.cast("char *", area.memory)
        for number, thread in enumerate(self._threads[:threads]):
            for turn in range(BUFFERS):
                thread.buffers[turn].memory = memory + (number * BUFFERS + turn) * piece

    def load(self, blocks: Blocks) -> None:
        """Loads blocks and waits. Raises FormatError if a file is damaged, and Error if one is
        gone.
        """
        records = blocks.records
        if not len(records):
            return
        key = records["segment"].astype("u8") << np.uint64(48) | records["offset"]
        if (key[1:] > key[:-1]).all():  # as is usual: nothing to sort, and nothing twice
            for some in self._groups(blocks):
                self._read(some)
            return
        order = np.argsort(key, kind="stable")
        new = np.append(True, np.diff(key[order]) != 0)
        first, which = order[new], np.empty(len(key), "i8")
        which[order] = np.cumsum(new) - 1
        for some in self._groups(blocks.take(first)):
            self._read(some)
        again = np.ones(len(records), bool)
        again[first] = False
        source = blocks.address[first][which[again]]
        self._copy(blocks.take(np.flatnonzero(again)), source)

    # ---- from files ----

    def _groups(self, blocks: Blocks) -> Iterator[Blocks]:
        """Splits blocks in file order into groups that are read together: from a limited number of
        files, all plain or all compressed.
        """
        segment = blocks.records["segment"]
        found = layout.distinct(segment)
        if len(found) <= contents.OPEN_FILES and all(map(self._plain, found.tolist())):
            yield blocks
            return
        group = np.searchsorted(found, segment) // contents.OPEN_FILES * 2
        group += np.isin(segment, [number for number in found.tolist() if not self._plain(number)])
        cuts = np.flatnonzero(np.diff(group)) + 1
        for begin, end in zip([0, *cuts], [*cuts, len(group)], strict=True):
            if begin < end:
                yield blocks.take(slice(begin, end))

    def _plain(self, segment: int) -> bool:
        file = self._process.segments.get(segment)
        return file is None or file.encoding == PLAIN  # what is gone is found out by opening it

    def _read(self, blocks: Blocks) -> None:
        with contents.DataFiles(self._process) as files:
            segments = layout.distinct(blocks.records["segment"]).tolist()
            descriptors = {number: files.get(number).fd for number in segments}
            pieces = _Pieces(blocks, descriptors, self._check)
            how = self._in_c if self._plain(segments[0]) else self._in_python
            try:
                _together(_threads_for(pieces.count), *how(pieces))
            finally:
                for stream in self._streams:
                    stream.synchronize()

    def _in_c(self, pieces: _Pieces) -> tuple[Callable[[int], None], Callable[[], None]]:
        """Returns the function that each thread runs, and the one that stops all of them."""
        tables = pieces.first, pieces.reads, pieces.checked, pieces.copies
        names = "piece", "read", "block", "copy"
        casts = (
            ffi.cast(f"struct tt_load_{name} *", table.ctypes.data)
            for name, table in zip(names, tables, strict=True)
        )
        work = ffi.new("struct tt_load_work *", [self._driver, *casts, pieces.count, self._check])
        self._give_buffers(_threads_for(pieces.count))

        def load(number: int) -> None:
            thread = self._threads[number]
            with self._device.use() as driver:
                done = self._library.tt_load(work, thread)
            if done:
                return
            if thread.call != ffi.NULL:
                raise driver.error(ffi.string(thread.call).decode(), thread.result)
            with contents.DataFiles(self._process) as files:  # which says what is wrong
                self._fill(pieces, thread.piece, files, np.empty(PIECE * BLOCK_SIZE, "u1"))
            raise Error(f"{self._process.path}: contents could be read only when tried again")

        def stop() -> None:
            work.stop = 1

        return load, stop

    def _in_python(self, pieces: _Pieces) -> tuple[Callable[[int], None], Callable[[], None]]:
        """Does what _in_c does, for compressed contents."""
        numbers, lock = iter(range(pieces.count)), threading.Lock()
        stopped: list[bool] = []

        def following() -> int | None:
            with lock:
                return None if stopped else next(numbers, None)

        def load(_: int) -> None:
            buffer = np.empty(PIECE * BLOCK_SIZE, "u1")
            with self._device.use() as driver, contents.DataFiles(self._process) as files:
                while (piece := following()) is not None:
                    self._fill(pieces, piece, files, buffer)
                    for copy in pieces.of(piece, "copy", pieces.copies):
                        source = ffi.cast("void *", buffer.ctypes.data + int(copy["begin"]))
                        driver.call("cuMemcpyHtoD_v2", int(copy["to"]), source, int(copy["size"]))

        return load, lambda: stopped.append(True)

    def _fill(self, pieces: _Pieces, piece: int, files: contents.DataFiles, buffer: Array) -> None:
        """Reads a piece into a buffer (uint8)."""
        records = pieces.records[piece * PIECE : (piece + 1) * PIECE]
        for read in pieces.of(piece, "read", pieces.reads):
            begin, end = int(read["begin"]), int(read["begin"] + read["size"])
            segment = int(records["segment"][begin // BLOCK_SIZE])
            files.get(segment).fill(int(read["offset"]), buffer[begin:end].data)
        if self._check:
            files.compare(records, buffer)

    # ---- on the device ----

    def _copy(self, blocks: Blocks, source: Array) -> None:
        """Copies contents to each block from the address where they already are."""
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


def _threads_for(pieces: int) -> int:
    return min(THREADS, len(os.sched_getaffinity(0)), pieces)


def _release(
    process: int, context: Context, library: Any, driver: Any, threads: list[Any], area: Any
) -> None:
    if process == os.getpid():
        with contextlib.suppress(Error), context.use():
            for thread in threads:
                library.tt_load_release(driver, thread)
            library.tt_load_unlock(driver, area)


def _together(count: int, work: Callable[[int], None], stop: Callable[[], None]) -> None:
    """Runs work in threads, and raises the first exception of one."""
    failed: list[BaseException] = []

    def one(number: int) -> None:
        try:
            work(number)
        except BaseException as e:
            failed.append(e)
            stop()

    threads = [threading.Thread(target=one, args=(number,)) for number in range(count)]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()  # which Ctrl-C ends
    except BaseException:
        stop()
        raise
    finally:
        for thread in threads:
            if thread.ident is not None:
                thread.join()
    if failed:
        raise failed[0]


class _Pieces:
    """Blocks in pieces of PIECE that are read at once, as interpose/load/load.h declares them.

    Each block has its own place, BLOCK_SIZE apart. Blocks that are adjacent in a file or in device
    memory form one read or one copy. descriptors: of files, by segment. check: whether blocks are
    checked.
    """

    def __init__(self, blocks: Blocks, descriptors: dict[int, int], check: bool) -> None:
        self.records = records = blocks.records
        self.count = -(-len(records) // PIECE)
        length = records["length"]
        goes_on = length[:-1] == BLOCK_SIZE
        goes_on[PIECE - 1 :: PIECE] = False
        read_on = goes_on & (np.diff(records["offset"]) == BLOCK_SIZE)
        read_on &= records["segment"][1:] == records["segment"][:-1]
        copy_on = goes_on & (np.diff(blocks.address) == BLOCK_SIZE)
        reads, copies = _starts(read_on), _starts(copy_on)
        segments = np.array(sorted(descriptors))
        files = np.array([descriptors[segment] for segment in segments.tolist()])
        self.reads = _runs(READ, reads, length)
        self.reads["offset"] = records["offset"][reads]
        self.reads["file"] = files[np.searchsorted(segments, records["segment"][reads])]
        self.checked = _runs(CHECKED, np.arange(len(records) if check else 0), length)
        self.checked["digest"] = records["digest"][: len(self.checked)]
        self.copies = _runs(COPY, copies, length)
        self.copies["to"] = blocks.address[copies]
        first = np.minimum(np.arange(self.count + 1) * PIECE, len(records))
        self.first = np.zeros(len(first), FIRST)
        self.first["read"] = np.searchsorted(reads, first)
        self.first["block"] = first
        self.first["copy"] = np.searchsorted(copies, first)

    def of(self, piece: int, name: str, table: Array) -> Array:
        """Returns the entries of a piece."""
        return table[int(self.first[name][piece]) : int(self.first[name][piece + 1])]


def _starts(on: Array) -> Array:
    """Returns the blocks that begin a run. on: whether each block but the first continues a run."""
    return np.append(0, np.flatnonzero(~on) + 1)


def _runs(dtype: np.dtype[Any], starts: Array, length: Array) -> Array:
    """Returns where runs of blocks begin in a buffer, and their sizes."""
    last = np.append(starts[1:], len(length)) - 1
    out = np.zeros(len(starts), dtype)
    out["begin"] = starts % PIECE * BLOCK_SIZE
    out["size"] = last % PIECE * BLOCK_SIZE + length[last] - out["begin"]
    return out
