"""Reads files of a run directory: headers, records, JSON.

Each function raises FormatError for contents that the format does not allow, and Error if the
system refuses. Mapped files are read-only.
"""

from __future__ import annotations

import errno
import mmap
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import orjson
import xxhash

from ttanalyze.errors import Error, FormatError, system_error, system_errors
from ttanalyze.format import layout
from ttanalyze.format.digest import checks_of
from ttanalyze.format.layout import HEADER_SIZE, Array
from ttanalyze.util.regular_files import open_regular
from ttanalyze.util.remote import RemoteFile, Url

KINDS = {
    "events.bin": (layout.enum("file_kind")["TT_FILE_EVENTS"], layout.EVENT),
    "regions.bin": (layout.enum("file_kind")["TT_FILE_REGIONS"], layout.REGION),
    "epochs.bin": (layout.enum("file_kind")["TT_FILE_EPOCHS"], layout.EPOCH),
    "digests.bin": (layout.enum("file_kind")["TT_FILE_DIGESTS"], layout.DIGEST),
    "blocks.bin": (layout.enum("file_kind")["TT_FILE_BLOCKS"], layout.BLOCK),
    "functions.bin": (layout.enum("file_kind")["TT_FILE_FUNCTIONS"], layout.FUNCTION),
    "modules.bin": (layout.enum("file_kind")["TT_FILE_MODULES"], layout.MODULE),
    "strings.bin": (layout.enum("file_kind")["TT_FILE_STRINGS"], np.dtype("u1")),
    "frames.bin": (layout.enum("file_kind")["TT_FILE_FRAMES"], layout.FRAME),
    "labels.bin": (layout.enum("file_kind")["TT_FILE_LABELS"], layout.LABEL),
    "graphs.bin": (layout.enum("file_kind")["TT_FILE_GRAPHS"], layout.GRAPH_RECORD),
    "graphdata.bin": (layout.enum("file_kind")["TT_FILE_GRAPH_DATA"], np.dtype("u1")),
    "params.bin": (layout.enum("file_kind")["TT_FILE_PARAMS"], np.dtype("u1")),
    "launches.bin": (layout.enum("file_kind")["TT_FILE_LAUNCHES"], layout.LAUNCH),
    "trace.bin": (layout.enum("file_kind")["TT_FILE_TRACE"], np.dtype("u1")),
    "traced.bin": (layout.enum("file_kind")["TT_FILE_TRACED"], layout.TRACED),
    "tensormaps.bin": (layout.enum("file_kind")["TT_FILE_TENSOR_MAPS"], layout.TENSOR_MAP),
    "timeline.bin": (layout.enum("file_kind")["TT_FILE_TIMELINE"], layout.ACTIVITY),
}
PIECE = 1 << 16  # records read at a time
TEXT_PIECE = 1 << 24  # bytes
SUM_PIECE = 1 << 22  # bytes
HOLE = 1 << 30  # bytes of zeros that no process leaves in a file
DATA_KIND = (layout.enum("file_kind")["TT_FILE_DATA"], np.dtype("u1"))


OLDEST = 1  # format version that can be read


def check_version(path: Path | str | os.PathLike[str], at: int | str, version: object) -> None:
    """Raises FormatError with file and place if a version cannot be read."""
    if not isinstance(version, int):
        raise FormatError(path, at, "no version")
    if version > layout.VERSION:
        this = f"this one reads up to {layout.VERSION}"
        raise FormatError(path, at, f"made by a newer ttanalyze (format {version}; {this})")
    if version < OLDEST:
        raise FormatError(path, at, f"format version {version} does not exist")


class Reader:
    """An open file that is read at given offsets. Close it or use it in a `with` block.

    All bytes of runs are read here or through a map of the descriptor. A file elsewhere has none.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._remote = RemoteFile(path) if isinstance(path, Url) else None
        self.fd = -1 if self._remote else open_regular(path)

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
        self.fd = -1

    @property
    def size(self) -> int:
        return self._remote.size if self._remote else os.fstat(self.fd).st_size

    def _some(self, offset: int, out: memoryview) -> int:
        if self._remote:
            return self._remote.into(offset, out)
        with system_errors(self.path):
            return os.preadv(self.fd, [out], offset)

    def into(self, offset: int, out: memoryview) -> None:
        """Fills out with bytes from offset on."""
        done = 0
        while done < len(out):
            n = self._some(offset + done, out[done : done + (1 << 30)])
            if n == 0:
                raise FormatError(self.path, offset + done, "the file ends too early")
            done += n

    def bytes(self, offset: int, length: int) -> bytearray:
        """Returns exactly these bytes."""
        out = bytearray(length)
        self.into(offset, memoryview(out))
        return out

    def text(self, offset: int, length: int) -> bytearray:
        """Returns bytes of text, which has no zeros. A file of absurd size is mostly a hole, so
        this stops early.
        """
        out = bytearray()
        for at in range(offset, offset + length, TEXT_PIECE):
            piece = self.bytes(at, min(TEXT_PIECE, offset + length - at))
            if b"\0" in piece:
                raise FormatError(self.path, at + piece.index(b"\0"), "a zero byte in a string")
            out += piece
        return out


@dataclass
class ExpectedFile:
    """What process.json says of a file of an ended process.

    size: bytes. check: XXH3-64 of the bytes, None if unknown. good: the file was checked.
    """

    size: int
    check: int | None
    good: bool = False


class Records(Protocol):
    """Records that slices are taken of: an array, or what reads them then."""

    def __len__(self) -> int: ...

    def __getitem__(self, which: slice) -> Array: ...


class _Slices:
    def __init__(self, file: RecordFile) -> None:
        self._file = file

    def __len__(self) -> int:
        return self._file.count

    def __getitem__(self, which: slice) -> Array:
        first, last, _ = which.indices(len(self))
        return self._file.read(first, max(last - first, 0))


class RecordFile:
    """A binary file of a run with a valid header. Offsets count from the beginning of the file.

    size: its bytes when it was opened; later records are not seen. ending: what an ended process
    said of the file. Its size is compared at once, its bytes before the first read. It keeps no
    descriptor.
    """

    def __init__(
        self,
        path: Path,
        kind: int,
        dtype: np.dtype[Any],
        index: int = 0,
        ending: ExpectedFile | None = None,
    ) -> None:
        self.path = path
        self.dtype = dtype
        self._ending = ending
        with Reader(path) as file:
            self.size = file.size
            header = file.bytes(0, min(self.size, HEADER_SIZE))
        self.encoding = self._check_header(bytes(header), kind, index)
        if ending and self.size != ending.size:
            offset = min(self.size, ending.size)
            there, written = (self._amount(size) for size in (self.size, ending.size))
            what = "cut short: " if self.size < ending.size else "too long: "
            raise FormatError(path, offset, f"{what}{there} where the process wrote {written}")

    def _amount(self, size: int) -> str:
        count, rest = divmod(size - HEADER_SIZE, self.dtype.itemsize)
        if rest or self.dtype.itemsize == 1:
            return f"{size:,} bytes"
        return f"{count:,} records"

    def check(self) -> None:
        """Raises FormatError if the bytes are not those that the process wrote. The first call
        reads all of them.
        """
        if not isinstance(self.path, Url):  # elsewhere only what is needed is read
            self.check_whole()

    def check_whole(self) -> None:
        """The same, also of a file elsewhere."""
        ending = self._ending
        if ending is None or ending.good or ending.check is None:
            return
        state, piece = xxhash.xxh3_64(), memoryview(bytearray(SUM_PIECE))
        with Reader(self.path) as file:
            if file.fd >= 0:
                self._check_holes(file)
            for at in range(0, self.size, SUM_PIECE):
                some = piece[: self.size - at]
                file.into(at, some)
                state.update(some)
        if state.intdigest() != ending.check:
            reason = f"{self._amount(self.size)}, not the bytes that the process wrote"
            raise FormatError(self.path, f"offsets 0 to {self.size}", reason)
        ending.good = True

    def _check_holes(self, file: Reader) -> None:
        """Refuses a file of absurd size, which would take forever to read."""
        end = 0
        while end < self.size:
            try:
                begin = os.lseek(file.fd, end, os.SEEK_HOLE)
                end = os.lseek(file.fd, begin, os.SEEK_DATA) if begin < self.size else self.size
            except OSError as e:
                if e.errno != errno.ENXIO:  # ENXIO: the hole goes to the file's end
                    return
                end = self.size
            if end - begin > HOLE:
                raise FormatError(self.path, begin, f"a hole of {end - begin:,} bytes")

    def _check_header(self, raw: bytes, kind: int, index: int) -> int:
        """Checks the header and returns the encoding."""
        if len(raw) < HEADER_SIZE:
            raise FormatError(
                self.path, len(raw), f"cut short: the header takes {HEADER_SIZE} bytes"
            )
        header = np.frombuffer(raw, layout.HEADER)[0]
        if raw[: len(layout.MAGIC)] != layout.MAGIC:
            raise FormatError(self.path, 0, "not a file of a ttanalyze run")
        check_version(self.path, _field_offset("version"), int(header["version"]))
        end = _field_offset("check")
        if xxhash.xxh3_64_intdigest(raw[:end]) != int(header["check"]):
            raise FormatError(self.path, end, "the header does not match its check")
        wanted = {
            "kind": kind,
            "header_size": HEADER_SIZE,
            "record_size": self.dtype.itemsize,
            "index": index,
        }
        for field, value in wanted.items():
            if int(header[field]) != value:
                reason = f"{field.replace('_', ' ')} {int(header[field])}, expected {value}"
                raise FormatError(self.path, _field_offset(field), reason)
        encoding = int(header["encoding"])
        if encoding not in (layout.enum("encoding").values() if kind == DATA_KIND[0] else (0,)):
            raise FormatError(self.path, _field_offset("encoding"), f"unknown encoding {encoding}")
        return encoding

    @property
    def count(self) -> int:
        """The number of whole records."""
        return (self.size - HEADER_SIZE) // self.dtype.itemsize

    @property
    def torn(self) -> bool:
        """Whether an unfinished record follows the last whole one."""
        return (self.size - HEADER_SIZE) % self.dtype.itemsize != 0

    def read(self, first: int, count: int) -> Array:
        """Reads records first to first + count - 1 into memory."""
        out = np.empty(count, self.dtype)
        self.read_into(first, out)
        return out

    def read_into(self, first: int, out: Array) -> None:
        """Fills out, a contiguous array, with records from first on."""
        self.check()
        with Reader(self.path) as file:
            file.into(self.offset_of(first), out.view("u1").data)

    def take(self, records: Array) -> Array:
        """Reads records by number into memory. Records near one another are read together."""
        whole = np.dtype((np.void, self.dtype.itemsize))  # which numpy copies as one
        if not len(records):
            return np.empty(0, self.dtype)
        first, last = int(records.min()), int(records.max()) + 1
        if last - first <= 4 * len(records):
            out = self.read(first, last - first).view(whole)[records - records.dtype.type(first)]
        elif isinstance(self.path, Url):
            out = np.concatenate([self.read(int(at), 1) for at in records]).view(whole)
        else:
            out = self._mapped().view(whole)[records]
        return np.asarray(out.view(self.dtype))

    def skip_hole(self, record: int) -> int:
        """Returns the first record from this one on that is not in a hole."""
        if isinstance(self.path, Url):
            return record
        with Reader(self.path) as file:
            try:
                at = os.lseek(file.fd, self.offset_of(record), os.SEEK_DATA)
            except OSError as e:
                return self.count if e.errno == errno.ENXIO else record
        return (at - HEADER_SIZE) // self.dtype.itemsize

    def map(self) -> Records:
        """Maps all whole records read-only. Those of a file elsewhere are read by the slice."""
        return _Slices(self) if isinstance(self.path, Url) else self._mapped()

    def _mapped(self) -> Array:
        self.check()
        if not self.count:
            return np.empty(0, self.dtype)
        with Reader(self.path) as file:
            try:
                mapped = mmap.mmap(file.fd, self.size, prot=mmap.PROT_READ)
            except (OSError, ValueError) as e:
                raise Error(f"{self.path}: cannot be mapped: {e}") from None
        return np.frombuffer(mapped, self.dtype, self.count, HEADER_SIZE)

    def offset_of(self, record: int, field: str | None = None) -> int:
        """Returns the file offset of a record, or of a field of it."""
        within = self.dtype.fields[field][1] if field and self.dtype.fields else 0
        return HEADER_SIZE + int(record) * self.dtype.itemsize + int(within)

    def error(self, record: int, field: str | None, reason: str) -> FormatError:
        return FormatError(self.path, self.offset_of(record, field), reason)


def _field_offset(field: str) -> int:
    assert layout.HEADER.fields is not None
    return int(layout.HEADER.fields[field][1])


class Folder:
    """The record files of a process."""

    def __init__(self, path: Path, endings: dict[str, ExpectedFile]) -> None:
        """endings: what an ended process said of its files, by name."""
        self.path = path
        self._endings = endings

    def open(self, name: str) -> RecordFile | None:
        """Opens a record file by name. Returns None if it does not exist, as after an early
        kill.
        """
        path, ending = self.path / name, self._endings.get(name)
        if begun(path, self.path / "epochs.bin"):
            return RecordFile(path, *KINDS[name], ending=ending)
        if ending:
            raise FormatError(path, 0, "missing, and the process wrote it")
        return None

    def check(self) -> None:
        """Raises FormatError if a file is not as the process wrote it. Reads all files."""
        for name in KINDS:
            file = self.open(name)
            if file:
                file.check_whole()


def begun(path: Path, epochs: Path) -> bool:
    """Returns whether a file exists and has a header, or must have one.

    If a process is killed while it creates its files, some are missing. In older runs they may be
    empty, if epochs.bin is too.
    """
    try:
        return path.stat().st_size > 0 or (path != epochs and begun(epochs, epochs))
    except FileNotFoundError:
        return False
    except OSError as e:
        raise system_error(path, e) from None


def read_checked(file: RecordFile) -> Array:
    """Reads all records into memory. Raises FormatError for the first that does not match its
    `check`.

    It reads piece by piece, so a file of any size takes no more memory than its valid records.
    """
    pieces = [np.empty(0, file.dtype)]
    for at in range(0, file.count, PIECE):
        records = file.read(at, min(PIECE, file.count - at))
        check_records(file, at, records)
        pieces.append(records)
    return np.concatenate(pieces) if len(pieces) != 2 else pieces[1]


def check_records(file: RecordFile, first: int, records: Array, used: Array | None = None) -> None:
    """Raises FormatError for the first used record that does not match its `check`.

    first: the number of records[0]. A record that does not match is read once more, because the
    process may have been writing it.
    """
    bad = checks_of(records) != records["check"]
    for i in np.flatnonzero(bad if used is None else bad & used).tolist():
        records[i] = file.read(first + i, 1)[0]
        if checks_of(records[i : i + 1])[0] != records["check"][i]:
            raise file.error(first + i, None, "the record does not match its check")


def check_values(file: RecordFile, records: Array, field: str, allowed: list[int]) -> None:
    """Raises FormatError for the first record whose field has a value that is not allowed."""
    bad = ~np.isin(records[field], np.array(allowed, records[field].dtype))
    if bad.any():
        i = int(bad.argmax())
        raise file.error(i, field, f"unknown {field} {int(records[field][i])}")


def require(file: RecordFile, good: Array, field: str, reason: str, first: int = 0) -> None:
    """Raises FormatError for the first record that is not good. first: the number of the record of
    good[0].
    """
    if not good.all():
        raise file.error(first + int(good.argmin()), field, reason)


def read_json(path: Path) -> dict[str, Any]:
    """Returns the JSON object in a file."""
    return parsed_json(path, read_text(path))


def read_text(path: Path) -> bytearray:
    """Returns the bytes of a file of text."""
    with Reader(path) as file:
        return file.text(0, file.size)


def parsed_json(path: Path, text: bytearray) -> dict[str, Any]:
    """Returns the JSON object in the text of a file."""
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError as e:
        at = len(text.decode(errors="replace")[: e.pos].encode())
        raise FormatError(path, at, f"not JSON: {e.msg.partition(':')[0]}") from None
    if not isinstance(value, dict):
        raise FormatError(path, 0, "not a JSON object")
    return value


def expect(path: Path, where: str, value: dict[str, Any], /, **kinds: Any) -> None:
    """Checks the types of members of a JSON object, if they exist.

    kinds: int, str, bool, list or dict, or a tuple of one of them and None for a member that may be
    null.
    """
    for key, kind in kinds.items():
        item = value.get(key)
        one, nullable = kind if isinstance(kind, tuple) else (kind, 0)
        good = isinstance(item, one) and not (one is int and isinstance(item, bool))
        if key in value and not good and not (item is None and nullable is None):
            or_null = " or null" if nullable is None else ""
            raise FormatError(path, f"{where}{key}", f"expected {_named(one)}{or_null}")


def expect_list(path: Path, where: str, value: dict[str, Any], key: str, kind: Any) -> None:
    """Checks that a member, if it exists, is a list of items of one type."""
    items = value.get(key, [])
    if not isinstance(items, list) or not all(isinstance(item, kind) for item in items):
        raise FormatError(path, f"{where}{key}", f"expected a list, each item {_named(kind)}")


def _named(kind: Any) -> str:
    names = {int: "a whole number", str: "a string", bool: "true or false", dict: "an object"}
    return names.get(kind, "a list" if kind is list else "another value")
