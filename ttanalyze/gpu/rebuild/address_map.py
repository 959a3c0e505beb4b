"""Maps recorded memory to present addresses: the old ones if they are free, else others.

Invariant: memory that was adjacent stays adjacent, so one difference per piece translates all
addresses in it.
"""

from __future__ import annotations

import bisect
import contextlib
import os
import weakref
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import numpy as np
import xxhash

from ttanalyze._cuda import ffi
from ttanalyze.errors import Error
from ttanalyze.format import contents, layout
from ttanalyze.format.layout import BLOCK_SIZE, Array
from ttanalyze.format.process import Process
from ttanalyze.gpu.device import Context, Device
from ttanalyze.gpu.digests import SIMULATOR, ZEROS, Digests, HelperKernels
from ttanalyze.gpu.driver import DriverError
from ttanalyze.gpu.loading import Blocks, Loader
from ttanalyze.gpu.memory import DeviceBuffer, copy_in, copy_out
from ttanalyze.gpu.module import Module
from ttanalyze.gpu.rebuild.dependency_graph import REGION
from ttanalyze.gpu.rebuild.epochs import known_of
from ttanalyze.gpu.rebuild.steps import cut

DEVICE_LOCATION, PINNED, READ_WRITE = 1, 1, 3  # CU_MEM_…
# Bytes of addresses around those that are needed: drivers place small ranges where they like.
AROUND = (1 << 30, 1 << 40)
BLOCK_BYTES = np.uint64(BLOCK_SIZE)
NOT_FOUND = 500  # CUDA_ERROR_…
LARGE = 16 << 20  # bytes of a region that is not filled before it is read
ALIGNMENT = 512  # that addresses of memory keep


class Reserved:
    """Reserved addresses, freed when nothing uses them. Raises DriverError or Error if the driver
    does not give these addresses.
    """

    def __init__(self, device: Device, base: int, size: int) -> None:
        self.base, self.size = base, size
        with device.use() as driver:
            doing = f"{size:,} bytes at {base:#x}"
            call, kind = "cuMemAddressReserve", "CUdeviceptr"
            found = int(driver.get(call, kind, size, 0, base, 0, doing=doing))
            self._free = device.context.give_back(self, "cuMemAddressFree", found, size)
        if found != base:
            self._free()
            raise Error(f"{doing}: the driver gives {found:#x} instead")

    def holds(self, base: int, size: int) -> bool:
        return self.base <= base and base + size <= self.base + self.size


def reserve(device: Device, base: int, size: int) -> Reserved:
    """Reserves addresses that contain [base, base + size). Raises Error with the driver's
    reason.
    """
    said: list[str] = []
    for around in (1, *AROUND):
        begin, end = base // around * around, -(-(base + size) // around) * around
        try:
            if begin:
                return Reserved(device, begin, end - begin)
        except Error as e:
            said.append(str(e))
    raise Error("; ".join(said))


class Mapped:
    """Memory at reserved addresses, freed when nothing uses it. Raises DriverError if memory
    is short.
    """

    def __init__(self, device: Device, within: Reserved, base: int, size: int) -> None:
        self._within = within
        context = device.context
        location = ffi.new("CUmemAllocationProp *")
        location.type = PINNED
        location.location.type, location.location.id = DEVICE_LOCATION, device.ordinal
        access = ffi.new("CUmemAccessDesc *")
        access.location, access.flags = location.location, READ_WRITE
        self._given: list[Any] = []  # what is made last is given back first
        with device.use() as driver:
            try:
                kind = "CUmemGenericAllocationHandle"
                memory = driver.get("cuMemCreate", kind, size, location, 0)
                self._given.append(context.give_back(self, "cuMemRelease", memory))
                driver.call("cuMemMap", base, size, 0, memory, 0)
                self._given.append(context.give_back(self, "cuMemUnmap", base, size))
                driver.call("cuMemSetAccess", base, size, access, 1)
                self._given.append(weakref.finalize(self, _settle, context, os.getpid()))
            except Error:
                while self._given:
                    self._given.pop()()
                raise


def _settle(context: Context, process: int) -> None:
    """Waits for work that may use memory before it is unmapped. The driver does not wait."""
    with contextlib.suppress(Error):
        if process == os.getpid():
            context.check_no_capture("wait")
            with context.use() as driver:
                driver.result("cuCtxSynchronize")


def granularity(device: Device) -> int:
    """Returns the unit in bytes of addresses and sizes of mapped memory."""
    props = ffi.new("CUmemAllocationProp *")
    props.type = PINNED
    props.location.type, props.location.id = DEVICE_LOCATION, device.ordinal
    with device.use() as driver:
        return int(driver.get("cuMemGetAllocationGranularity", "size_t", props, 0))


@dataclass(frozen=True)
class Piece:
    """Recorded addresses [begin, end), now `delta` higher."""

    begin: int
    end: int
    delta: int


@dataclass(frozen=True)
class Finding:
    """The comparison of a region with an epoch.

    digest, expected: of present and of recorded memory. differ: the blocks that differ. blocks:
    their number. first_block: the first of them. new: its initial contents are unknown, because it
    was allocated within the span without being zeroed.
    """

    region: int
    label: str | None
    size: int
    digest: int
    expected: int
    differ: Array
    new: bool

    @property
    def blocks(self) -> int:
        return len(self.differ)

    @property
    def first_block(self) -> int | None:
        return int(self.differ[0]) if len(self.differ) else None

    @property
    def same(self) -> bool:
        return not self.blocks


@dataclass(frozen=True)
class State:
    """The contents of regions in an epoch.

    records: by row, the tt_block records of each. unknown: the ids of live regions that no epoch
    has captured yet.
    """

    epoch: int
    records: dict[int, Array]
    unknown: list[int]

    @classmethod
    def of_epoch(cls, process: Process, epoch: int, rows: Iterable[int]) -> State:
        """Returns the state of some regions, by row. Raises Error if contents of the epoch are
        gone.
        """
        found, lost = contents.snapshot_all(process, epoch)
        ids = process.regions.id
        wanted = [(row, int(ids[row])) for row in rows]
        records = {row: found[number] for row, number in wanted if number in found}
        for row, number in wanted:
            if row in records:
                contents.require_stored(process, epoch, number, records[row])
        gone = set(lost)
        return cls(epoch, records, [number for _, number in wanted if number in gone])


def _merged(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Returns runs of memory without a gap, in order."""
    runs: list[tuple[int, int]] = []
    for begin, end in sorted(spans):
        if runs and begin <= runs[-1][1]:
            runs[-1] = runs[-1][0], max(runs[-1][1], end)
        else:
            runs.append((begin, end))
    return runs


class AddressMap:
    """The memory of some regions of a process, by row. Regions may have replaced others.

    refused: the driver's reason why memory is at other addresses, None if it is not.
    """

    def __init__(
        self, device: Device, process: Process, rows: Iterable[int], alone: bool | None = None
    ) -> None:
        """Allocates the memory. Raises Error if there is not enough.

        alone: whether to run no kernels of the toolkit; None: only if they save time.
        """
        self.device = device
        self._process = process
        self._rows = dict.fromkeys(rows)
        self._birth = process.regions.birth
        self._held: list[Any] = []
        self._reserved: list[Reserved] = []
        self.refused: str | None = None
        self._pieces: list[Piece] = []
        self._allocate([row for row in self._rows if self._ordinary(row)])
        self._variables: dict[int, int] = {}  # by row, where they are
        self._initial: dict[int, Array] = {}  # and what they held when their module was loaded
        self.kernels = HelperKernels(device)
        self._digests = Digests(self.kernels, alone)
        self._loader = Loader(process, device, check=self._digests.here)
        self._restored = False
        size = sum(piece.end - piece.begin for piece in self._pieces)
        self._loader.prepare(size, lambda: self._digests.here or self.kernels.digest)

    def _ordinary(self, row: int) -> bool:
        kind, flags = self._birth["kind"][row], self._process.regions.flags[row]
        return bool(
            kind != REGION["global"] and flags & layout.CAPTURED and self._birth["size"][row]
        )

    def _allocate(self, rows: list[int]) -> None:
        runs = _merged([self._bounds(row) for row in rows])
        if not runs:
            return
        unit = granularity(self.device)
        at = 0
        while at < len(runs):
            base, end, until = runs[at][0] // unit * unit, runs[at][1], at + 1
            while until < len(runs) and runs[until][0] // unit * unit <= -(-end // unit) * unit:
                end = max(end, runs[until][1])
                until += 1
            self._take(base, -(-end // unit) * unit - base, runs[at:until])
            at = until

    def _take(self, base: int, size: int, runs: list[tuple[int, int]]) -> None:
        """Allocates memory for runs within [base, base + size)."""
        try:
            self._held.append(Mapped(self.device, self._reservation(base, size), base, size))
            self._pieces += [Piece(begin, end, 0) for begin, end in runs]
            return
        except Error as e:
            self.refused = self.refused or str(e)
        for begin, end in runs:
            skip = begin % ALIGNMENT
            try:
                buffer = DeviceBuffer(end - begin + ALIGNMENT, self.device)
            except DriverError as e:
                raise Error(f"not enough memory for the recorded regions: {e}") from None
            self._held.append(buffer)
            to = -(-buffer.address // ALIGNMENT) * ALIGNMENT + skip
            to -= ALIGNMENT if to + end - begin > buffer.address + buffer.size else 0
            self._pieces.append(Piece(begin, end, to - begin))

    def _reservation(self, base: int, size: int) -> Reserved:
        for known in self._reserved:
            if known.holds(base, size):
                return known
        self._reserved.append(reserve(self.device, base, size))
        return self._reserved[-1]

    def _bounds(self, row: int) -> tuple[int, int]:
        begin = int(self._birth["base"][row])
        return begin, begin + int(self._birth["size"][row])

    def add_module(self, number: int, module: Module, lacking: bool = False) -> None:
        """Adds the variables of a loaded module, at the addresses that the driver chose.

        lacking: whether it may lack recorded variables, which are then not mapped. Otherwise that
        is an error.
        """
        for row in self._rows:
            birth = self._birth[row]
            if birth["kind"] == REGION["global"] and int(birth["module"]) == number:
                name = self._process.strings.get(int(birth["label"])) or "?"
                try:
                    where, size = module.variable(name)
                except DriverError as e:
                    if not lacking or e.result != NOT_FOUND:
                        raise
                    self._variables.pop(row, None)
                    continue
                if size != int(birth["size"]):
                    recorded = int(birth["size"])
                    raise Error(f"variable {name} has {size} bytes, and had {recorded}")
                self._variables[row] = where
                self._initial[row] = np.empty(size, "u1")
                copy_out(self.device, self._initial[row], where)

    @property
    def moved(self) -> list[int]:
        """The ids of regions at other addresses than recorded."""
        return [int(self._birth["id"][row]) for row in self._rows if self._delta(row)]

    @property
    def deterministic(self) -> bool:
        """Whether the recorded addresses are free in any process."""
        return bool(self._process.info.get("deterministic"))

    @property
    def moved_variables(self) -> list[int]:
        """The ids of those that are variables of modules, whose addresses the driver chooses."""
        return [int(self._birth["id"][row]) for row in self._variables if self._delta(row)]

    def _delta(self, row: int) -> int:
        if row in self._variables:
            return self._variables[row] - int(self._birth["base"][row])
        return (self._shift(int(self._birth["base"][row])) or 0) if self._ordinary(row) else 0

    def _shift(self, address: int) -> int | None:
        at = bisect.bisect_right(self._pieces, address, key=lambda piece: piece.begin) - 1
        if at >= 0 and address <= self._pieces[at].end:  # one that points behind it too
            return self._pieces[at].delta
        return None

    def translate(self, address: int, row: int | None) -> int:
        """Returns the present address of something. row: the region that it was in. Addresses that
        were not recorded stay unchanged.
        """
        if row is not None and row in self._variables:
            return address + self._delta(row)
        return address + (self._shift(address) or 0)

    # ---- contents ----

    @property
    def simulated(self) -> bool:
        """Whether the device is the simulator."""
        return self.device.name == SIMULATOR

    @property
    def quiet(self) -> bool:
        """Whether no kernels of the toolkit run, by request or because they save no time."""
        return self._digests.here

    def now(self, row: int) -> int:
        """Returns the present address of a region."""
        return int(self._birth["base"][row]) + self._delta(row)

    def has(self, row: int) -> bool:
        """Returns whether a region is mapped."""
        return row in self._variables or (row in self._rows and self._ordinary(row))

    def restore(self, state: State, unknown: int = 0) -> None:
        """Sets memory to its contents in an epoch. Regions without recorded contents are filled
        with a byte, variables with the values of their module.

        Blocks with the right contents stay unchanged. Raises FormatError if contents are damaged.
        """
        self.device.synchronize()
        rows = [row for row in self._rows if row in state.records and self.has(row)]
        fresh = not self._restored
        self._clear(state, fresh, unknown)
        self._restored = True
        for row, data in self._initial.items():
            if row not in state.records:
                copy_in(self.device, self._variables[row], data)
        blocks = []
        there = dict(zip(rows, repeat(None))) if fresh else self.digests(rows)
        for row in rows:
            records = state.records[row]
            address = np.uint64(self.now(row)) + records["block"].astype("u8") * BLOCK_BYTES
            known = there[row]
            if known is None:  # zeros, but for variables
                same = (records["digest"] == ZEROS) & (row not in self._variables)
            else:
                same = records["digest"] == known
            of = Blocks(records, address)
            blocks.append(of.take(np.flatnonzero(~same)) if same.any() else of)
        if blocks:
            self._loader.load(Blocks.joined(blocks))
        if not self._digests.here:  # what was read was not checked
            self._check(state, rows)

    def _clear(self, state: State, fresh: bool, unknown: int) -> None:
        """Fills regions without contents with a byte, and unwritten memory with zeros."""
        with self.device.use() as driver:
            whole = self._read_whole(state) if fresh else []
            for p in self._pieces if fresh else []:
                if not any(begin <= p.begin and p.end <= end for begin, end in whole):
                    driver.call("cuMemsetD8_v2", p.begin + p.delta, 0, p.end - p.begin)
            for row in self._rows:
                if row not in state.records and self._ordinary(row):
                    size = int(self._birth["size"][row])
                    driver.call("cuMemsetD8_v2", self.now(row), unknown, size)
            driver.call("cuCtxSynchronize")

    def _read_whole(self, state: State) -> list[tuple[int, int]]:
        """Returns the spans of large regions that are read from files to the last byte."""
        spans = []
        for row, records in state.records.items():
            begin, end = self._bounds(row)
            if row in self._rows and self._ordinary(row) and end - begin >= LARGE:
                read = records["length"][records["digest"] != ZEROS].sum(dtype="u8")
                spans += [(begin, end)] if read == end - begin else []
        return _merged(spans)

    def _check(self, state: State, rows: list[int]) -> None:
        """Raises FormatError if memory differs from the epoch, because files are damaged."""
        for row, digests in self.digests(rows).items():
            wrong = state.records[row][digests != state.records[row]["digest"]]
            if len(wrong):
                data = np.empty(int(wrong["length"].sum(dtype="u8")), "u1")
                contents.read_blocks(self._process, wrong, data)
                number = int(self._birth["id"][row])
                raise Error(f"region {number} does not hold the bytes that were copied to it")

    def compare(self, state: State, before: State) -> list[Finding]:
        """Compares each mapped region with its contents in an epoch, if they are known. before: the
        restored state.
        """
        self.device.synchronize()
        regions, known = self._process.regions, known_of(self._process, before.epoch, state.epoch)
        out = []
        rows = [row for row in state.records if self.has(row)]
        for row, digests in self.digests(rows).items():
            expected = state.records[row]["digest"]
            differ = np.flatnonzero(digests != expected)
            digest, wanted = (
                xxhash.xxh3_64_intdigest(np.ascontiguousarray(d).data) for d in (digests, expected)
            )
            label = self._process.strings.get(int(regions.label[row]))
            number, size = int(regions.id[row]), int(regions.size[row])
            if len(differ) and known is not None and number not in known:
                continue
            zeros = self._birth["kind"][row] == REGION["arena"] and self._came(row, before.epoch)
            new = row not in before.records and not zeros
            out.append(Finding(number, label, size, digest, wanted, differ, new))
        return out

    def _came(self, row: int, epoch: int) -> bool:
        """Returns whether a region was allocated after an epoch."""
        return int(self._birth["seq"][row]) > cut(self._process, epoch)

    def digests(self, rows: Iterable[int]) -> dict[int, Array]:
        """Returns by row the digest of each block of some regions as they are now."""
        wanted = list(rows)
        spans = [(self.now(row), int(self._birth["size"][row])) for row in wanted]
        return dict(zip(wanted, self._digests.of_memory(spans), strict=True))
