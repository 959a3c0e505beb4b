"""traced.bin and trace.bin: launches whose instructions were traced, and the records of these.

A record is one execution of an instruction by a warp. Chunks of records are mapped and read one
after the other, so a trace of any size takes the memory of one chunk.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import xxhash

from ttanalyze.errors import Error, FormatError
from ttanalyze.format import layout
from ttanalyze.format.files import Folder, Records, check_values, read_checked, require
from ttanalyze.format.layout import HEADER_SIZE, Array

KIND = {name: number for number, name in enumerate(layout.TRACE_KINDS) if name}
END = KIND["end"]
LANES = 32
EVERY_LANE = 0xFFFFFFFF
UNIT = 8  # bytes that sizes of records are counted in
HEAD = layout.TRACE_RECORD.itemsize // UNIT
ROW = LANES * 4 // UNIT  # 4 bytes for each lane
STRIDED = layout.constant("TT_TRACEF_STRIDED")
CHUNK_HEAD = layout.TRACE_CHUNK.itemsize
CHUNK_MAX = layout.constant("TT_TRACE_CHUNK_MAX")
MAGIC = layout.constant("TT_TRACE_MAGIC")
LEAPS = 6  # a leap goes over 2 ** LEAPS records
FIXED = {"opcode": 0, "tma": 5, "count": 2, "end": 2}  # units of payload
BOX = 1 << 20  # elements that a tensor copy has at most: those of 4 bits, in all shared memory
MAP_UNITS = 16  # of a tensor map, which a tensor copy may have at its end
WITH_ADDRESSES = (KIND["addresses"], KIND["values"])
TMA = np.dtype(
    [("descriptor", "<u8"), ("barrier", "<u8"), ("coordinates", "<i4", 5), ("blocks", "<u4")]
)
SUMMARY = np.dtype([("records", "<u8"), ("lost", "<u8"), ("complete", "?")])


@dataclass(frozen=True)
class TraceRecords:
    """Records of a chunk of an instruction trace, in the order of the file.

    Every method returns an array with one item per record. What a record has for lanes that did
    not execute the instruction is 0.

    Attributes:
        heads: The records without payload. Members: `launch`, `instruction`, `mask`, `block_x`,
            `block_y`, `block_z`, `warp`, `clock`; docs/format.md describes them.
        numbers: The position of each record among all records of the process.
        units: The chunk in units of 8 bytes.
        places: Where each record begins in the chunk, in units.
        begin: Where the records of the chunk begin in trace.bin, in bytes.

    Example:
        >>> records = next(tt.open("traced").trace_records(0, kinds=["addresses"]))
        >>> of_block = records.take(records.heads["block_x"] == 3)
        >>> of_block.addresses().shape, bool(of_block.lanes.all())
        ((24, 32), True)
    """

    heads: Array
    numbers: Array
    units: Array
    places: Array
    begin: int

    def __len__(self) -> int:
        return len(self.heads)

    def take(self, which: Array) -> TraceRecords:
        """Returns some of the records.

        Args:
            which: Their indices, or whether each is wanted.
        """
        places = self.places[which]
        some = layout.take(self.heads, which), self.numbers[which]
        return TraceRecords(*some, self.units, places, self.begin)

    def of_kind(self, *kinds: str) -> TraceRecords:
        """Returns the records of some kinds.

        Args:
            kinds: The names, such as `addresses`.

        Raises:
            Error: There is no such kind.
        """
        return self.take(np.isin(self.kinds, [kind_number(kind) for kind in kinds]))

    @property
    def kinds(self) -> Array:
        """Returns the kind of each record as a number: see docs/format.md#tracebin."""
        return np.asarray(self.heads["tag"] & 0xFF, "u1")

    @property
    def lanes(self) -> Array:
        """Returns whether each lane executed the instruction: (n, 32)."""
        bits = np.unpackbits(np.ascontiguousarray(self.heads["mask"]).view("u1"), bitorder="little")
        return bits.reshape(-1, LANES).view(bool)

    @property
    def strided(self) -> Array:
        """Returns whether the addresses of each record are stored as base and stride."""
        return np.asarray(self.heads["tag"] >> 8 & STRIDED != 0)

    def addresses(self) -> Array:
        """Returns the address of each lane: (n, 32) uint64.

        Raises:
            Error: A record has no addresses.
        """
        self._require(WITH_ADDRESSES, "addresses")
        strided = self.strided
        if strided.all():
            out = self._strided(self.places, self.heads["stride"])
        else:
            out = np.empty((len(self), LANES), "u8")
            out[strided] = self._strided(self.places[strided], self.heads["stride"][strided])
            out[~strided] = self._payload(self.places[~strided], LANES)
        if (self.heads["mask"] != EVERY_LANE).any():
            out *= self.lanes
        return out

    def _strided(self, places: Array, stride: Array) -> Array:
        lanes = np.arange(LANES, dtype="i8")
        offsets = stride.astype("i8")[:, None] * lanes
        offsets += self.units[places + HEAD].view("i8")[:, None]
        return offsets.view("u8")

    @property
    def words(self) -> Array:
        """Returns how many words of 4 bytes each lane of a record of `values` has, else 0."""
        rest = self.sizes - np.where(self.strided, 1, LANES)
        return np.where(self.kinds == KIND["values"], rest // ROW, 0)

    def values(self, words: int | None = None) -> Array:
        """Returns what each lane read or wrote: (n, words, 32) uint32.

        Args:
            words: The number of words. Missing ones are 0. Default: the most of a record.

        Raises:
            Error: A record has no values.
        """
        self._require((KIND["values"],), "values")
        counts = self.words
        return self._rows(counts, np.where(self.strided, 1, LANES), words)

    def registers(self, count: int | None = None) -> Array:
        """Returns the values of general registers: (n, count, 32) uint32.

        Args:
            count: The number of registers. Missing ones are 0. Default: the most of a record.

        Raises:
            Error: A record has no registers.
        """
        self._require((KIND["registers"],), "registers")
        return self._rows(self.sizes // ROW, np.zeros(len(self), "i8"), count)

    def uniform_registers(self) -> Array:
        """Returns the values of uniform registers: (n, count) uint32. Missing ones are 0.

        Raises:
            Error: A record has no registers.
        """
        self._require((KIND["registers"],), "registers")
        counts = self.sizes % ROW
        out = np.zeros((len(self), int(counts.max(initial=0))), "u8")
        for count in layout.distinct(counts).tolist():
            of = np.flatnonzero(counts == count)
            begin = self.places[of] + self.sizes[of] - count
            out[of, :count] = self._payload(begin, count)
        return out.view("u4")

    def tma(self) -> Array:
        """Returns `descriptor`, `barrier`, `coordinates` (5) and `blocks`, a mask.

        Raises:
            Error: A record has no tensor copy.
        """
        self._require((KIND["tma"],), "tensor copy")
        return self._payload(self.places, FIXED["tma"]).view(TMA)[:, 0]

    def tensor_maps(self) -> Array:
        """Returns the tensor maps of tensor copies: (n, 16) uint64, 0 for copies without one.

        Raises:
            Error: A record has no tensor copy.
        """
        self._require((KIND["tma"],), "tensor copy")
        out = np.zeros((len(self), MAP_UNITS), "u8")
        have = np.flatnonzero(self.sizes > FIXED["tma"])
        out[have] = self._payload(self.places[have] + FIXED["tma"], MAP_UNITS)
        return out

    def counts(self) -> Array:
        """Returns the two numbers of records `count` (executions by warps and by threads) and `end`
        (records, lost ones): (n, 2) uint64.

        Raises:
            Error: A record has no counts.
        """
        self._require((KIND["count"], END), "counts")
        return self._payload(self.places, 2)

    def offset(self, record: int) -> int:
        """Returns where a record begins in trace.bin.

        Args:
            record: Its index among these records.
        """
        return self.begin + int(self.places[record]) * UNIT

    @property
    def sizes(self) -> Array:
        """Returns the size of each payload in units."""
        return (self.heads["tag"] >> 16).astype("i8") - HEAD

    def _require(self, kinds: Collection[int], what: str) -> None:
        bad = ~np.isin(self.kinds, [*kinds])
        if bad.any():
            kind = layout.TRACE_KINDS[int(self.kinds[bad][0])]
            raise Error(f"a record of kind {kind} has no {what}")

    def _payload(self, places: Array, count: int) -> Array:
        return np.asarray(self.units[(places + HEAD)[:, None] + np.arange(count)])

    def _rows(self, counts: Array, before: Array, most: int | None) -> Array:
        """Returns rows of 32 values. counts: of rows. before: units of payload before them."""
        most = int(counts.max(initial=0)) if most is None else most
        counts = np.minimum(counts, most)
        out = np.zeros((len(counts), most, LANES), "u4")
        for count in layout.distinct(counts).tolist():
            of = np.flatnonzero(counts == count)
            found = self._payload(self.places[of] + before[of], count * ROW)
            out[of, :count] = found.view("u4").reshape(len(of), count, LANES)
        if (self.heads["mask"] != EVERY_LANE).any():
            out *= self.lanes[:, None]
        return out


class InstructionTrace:
    """The trace of one process. launches: its tt_traced records."""

    def __init__(self, folder: Folder, in_order: bool) -> None:
        """in_order: whether the process ended in order, so that its last chunk is whole."""
        self._file = folder.open("trace.bin")  # before traced.bin, which may only be ahead
        self._in_order = in_order
        self._folder = folder
        self._seen: dict[int, tuple[int, int, int, int]] = {}  # chunks: end, records, launches
        self.launches = _traced(folder)

    def records(
        self,
        launch: int | None = None,
        kinds: Collection[str] = (),
        instructions: Collection[int] | None = None,
    ) -> Iterator[TraceRecords]:
        """Yields the wanted records of each chunk that has any. See Process.trace_records."""
        wanted = [kind_number(kind) for kind in kinds]
        if instructions is not None:
            some = np.array([*instructions], "i8")
        for records in self.chunks(launch):
            which = np.ones(len(records), bool)
            if launch is not None:
                which &= records.heads["launch"] == launch
            if wanted:
                which &= np.isin(records.kinds, wanted)
            if instructions is not None:
                which &= np.isin(records.heads["instruction"].astype("i8"), some)
            if which.all():
                yield records
            elif which.any():
                yield records.take(np.flatnonzero(which))

    @functools.cached_property
    def summary(self) -> Array:
        """Reads the whole trace: `records`, `lost` and `complete` of each launch.

        `records` counts those before the `end`. `lost` is 0 without an `end`.
        """
        out = np.zeros(len(self.launches), SUMMARY)
        for records in self.chunks():
            launches, ends = records.heads["launch"], records.kinds == END
            here = np.flatnonzero(ends)
            for i, (told, lost) in zip(here, records.take(here).counts().tolist(), strict=True):
                launch = int(launches[i])
                before = int(np.count_nonzero(launches[:i] == launch))
                before += int(out["records"][launch])
                if out["complete"][launch] or told != before:
                    reason = f"launch {launch} ends with {before} records, expected {told}"
                    raise self._error(records.offset(int(i)), reason)
                out["lost"][launch], out["complete"][launch] = lost, True
            counts = np.bincount(launches[~ends], minlength=len(out))
            out["records"] += counts.astype("u8")
        return out

    @functools.cached_property
    def tensor_maps(self) -> dict[bytes, Any]:
        """Returns tt_tensor_map records by the bytes of their maps."""
        file = self._folder.open("tensormaps.bin")
        if file is None:
            return {}
        maps = read_checked(file)
        check_values(file, maps, "rank", [*range(1, 6)])
        check_values(file, maps, "mode", [0, layout.constant("TT_TENSOR_IM2COL")])
        lines = np.ceil(maps["box"] / np.maximum(maps["steps"], 1)).clip(1)
        fits = (maps["mode"] != 0) | (lines.prod(axis=1) <= BOX)
        require(file, fits, "box", "a box that no shared memory has room for")
        return {one["map"].tobytes(): one for one in maps}

    @property
    def size(self) -> int:
        """Returns the bytes of trace.bin."""
        return self._file.size if self._file else 0

    def chunks(self, launch: int | None = None) -> Iterator[TraceRecords]:
        """Yields the records of each chunk, without known ones that lack the launch."""
        if self._file is None or not self._file.count:
            return
        contents, at, number = self._file.map(), 0, 0
        while True:
            end, count, low, high = self._seen.get(at, (0, 0, 0, 0))
            if end and launch is not None and not low <= launch <= high:
                at, number = end, number + count
                continue
            bounds = (at + CHUNK_HEAD, end, count) if end else self._bounds(contents, at)
            if bounds is None:
                break
            records = self._chunk(contents, bounds, number, checked=bool(end))
            of = records.heads["launch"] if len(records) else np.zeros(1, "u4")
            self._seen[at] = bounds[1], len(records), int(of.min()), int(of.max())
            at, number = bounds[1], number + len(records)
            yield records

    def _chunk(
        self, contents: Records, bounds: tuple[int, int, int], number: int, checked: bool
    ) -> TraceRecords:
        begin, end, count = bounds
        units = contents[begin:end].view("<u8")
        places = _places(units)
        offset = begin + HEADER_SIZE
        if len(places) and places[-1] + HEAD > len(units):
            reason = "the record does not fit the chunk"
            raise self._error(offset + int(places[-1]) * UNIT, reason)
        heads = units[places[:, None] + np.arange(HEAD)].view(layout.TRACE_RECORD)[:, 0]
        numbers = np.arange(number, number + len(places))
        records = TraceRecords(heads, numbers, units, places, offset)
        if not checked:
            self._check(records, count)
        return records

    def _bounds(self, contents: Records, at: int) -> tuple[int, int, int] | None:
        """Returns begin and end of the records of the chunk at a position, and their number.

        None at the end, or if only an incomplete chunk is left.
        """
        left = len(contents) - at
        fault, last = "the file ends within a chunk", True
        if not left:
            return None
        if left >= CHUNK_HEAD:
            head = contents[at : at + CHUNK_HEAD].view(layout.TRACE_CHUNK)[0]
            size, begin = int(head["bytes"]), at + CHUNK_HEAD
            whole = head.tobytes()[: CHUNK_HEAD - UNIT]
            if xxhash.xxh3_64_intdigest(whole) != int(head["head_check"]):
                fault, last = "the chunk does not match its check", left <= CHUNK_HEAD + CHUNK_MAX
            elif int(head["magic"]) != MAGIC or size > CHUNK_MAX or size % UNIT:
                fault, last = "not a chunk of records", False
            elif size <= left - CHUNK_HEAD:
                end = begin + size
                if xxhash.xxh3_64_intdigest(contents[begin:end].data) == int(head["check"]):
                    return begin, end, int(head["records"])
                fault, last = "the records do not match their check", end == len(contents)
        if self._in_order or not last:
            raise self._error(at + HEADER_SIZE, fault)
        return None

    def _error(self, offset: int, reason: str) -> FormatError:
        assert self._file is not None
        return FormatError(self._file.path, offset, reason)

    def _check(self, records: TraceRecords, count: int) -> None:
        kinds, sizes = records.kinds, records.sizes
        fit = np.zeros(len(records), bool)
        for name, kind in KIND.items():
            of = kinds == kind
            rest = sizes[of] - np.where(records.strided[of], 1, LANES)
            if name == "addresses":
                fit[of] = rest == 0
            elif name == "values":
                fit[of] = (rest > 0) & (rest % ROW == 0)
            else:
                fit[of] = sizes[of] == FIXED[name] if name in FIXED else sizes[of] >= 0
            if name == "tma":
                fit[of] |= sizes[of] == FIXED[name] + MAP_UNITS
        end = int(records.places[-1] + HEAD + sizes[-1]) if len(records) else 0
        for good, reason in (
            (np.isin(kinds, [*KIND.values()]), "unknown kind of a record"),
            (fit, "the size of a record does not fit its kind"),
            (records.heads["launch"] < len(self.launches), "a launch that traced.bin lacks"),
        ):
            if not good.all():
                raise self._error(records.offset(int(good.argmin())), reason)
        if end != len(records.units) or len(records) != count:
            filled = "" if end == len(records.units) else " that do not fill it"
            reason = f"the chunk has {len(records)} records{filled}, expected {count}"
            raise self._error(records.begin, reason)


def kind_number(name: str) -> int:
    """Returns the number of a kind of records. Raises Error if there is no such kind."""
    if name not in KIND:
        raise Error(f"no kind {name} of trace records: there are {', '.join(KIND)}")
    return KIND[name]


def _traced(folder: Folder) -> Array:
    file = folder.open("traced.bin")
    if file is None:
        return np.empty(0, layout.TRACED)
    records = read_checked(file)
    check_values(file, records, "refused", [*layout.enum("trace_refused").values()])
    return records


def _places(units: Array) -> Array:
    """Returns where the records of a chunk begin, in units. Sizes are not checked yet.

    Each unit is read as if a record began there, and leaps over many records are made of shorter
    ones for all units at once.
    """
    count = len(units)
    sizes = np.maximum(units >> np.uint64(16) & np.uint64(0xFFFF), np.uint64(HEAD)).astype("i4")
    leap = np.append(np.minimum(np.arange(count, dtype="i4") + sizes, count), np.int32(count))
    leaps = [leap]
    for _ in range(LEAPS):
        leaps.append(leaps[-1][leaps[-1]])
    far, at, found = leaps.pop(), 0, []
    while at < count:
        found.append(at)
        at = int(far[at])
    places = np.array(found, "i4")
    for leap in reversed(leaps):
        places = np.stack([places, leap[places]], axis=1).reshape(-1)
    return places[places < count].astype("i8")
