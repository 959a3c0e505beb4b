"""Reads files of records, one line at a time: JSON or CUTracer's text, plain or in zstd frames.

A writer that was killed leaves half a record at the end. It is left out, and `cut` says so. Any
other fault is the reader's to report.
"""

from __future__ import annotations

import io
import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import orjson

from ttanalyze.errors import Error, FormatError, system_errors
from ttanalyze.records import text
from ttanalyze.util.regular_files import open_regular

LONGEST = 1 << 26  # bytes of a line
MAGIC = b"\x28\xb5\x2f\xfd"
CHUNK = 1 << 10  # compressed bytes at a time, which hostile frames make 32 MiB of
WINDOW = 1 << 27  # bytes that a frame may make us keep


class Wrong(NamedTuple):
    """What takes the place of a record that cannot be read."""

    reason: str


class Lines:
    """The lines and records of a file.

    Attributes:
        path: The file.
        at: How many bytes of the file are read.
        read: How many bytes that is decompressed.
        text: Whether the file is a text trace. Known after the first record.
        cut: Why the end of the file is left out. None if it is not, or not reached.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.at = self.read = 0
        self.text = False
        self.cut: str | None = None

    def error(self, number: int, reason: str) -> Error:
        return FormatError(self.path, f"line {number}", reason)

    @property
    def size(self) -> int:
        """Returns the bytes of the file."""
        return os.path.getsize(self.path)

    @property
    def note(self) -> str | None:
        """What a user must know after the end: that a part is missing. Else None."""
        return self.cut and f"{self.path}: {self.cut}; the records before it are complete"

    def records(self) -> Iterator[tuple[int, Any]]:
        """Yields the value of each record or a Wrong, with the number of its line from 1."""
        lines = (pair for pair in self._lines() if pair[1].strip() or self.text)
        first = next(lines, None)
        if first is None:
            return
        self.text = first[1].startswith(text.FIRST)
        whole = itertools.chain([first], lines)
        yield from self._texts(whole) if self.text else self._objects(whole)

    def _lines(self) -> Iterator[tuple[int, bytes]]:
        with system_errors(self.path), os.fdopen(open_regular(self.path), "rb") as raw:
            frames = None
            file: BinaryIO | io.BufferedReader = raw
            if raw.peek(len(MAGIC)).startswith(MAGIC):
                frames = _Frames(self.path, raw)
                file = io.BufferedReader(frames, 1 << 18)
            number = 0
            while line := file.readline(LONGEST):
                number += 1
                self.read += len(line)
                self.at = frames.at if frames else self.read
                if len(line) == LONGEST:
                    raise self.error(number, f"longer than {LONGEST} bytes")
                yield number, line
            if frames and frames.cut:
                self.cut = f"the zstd frame at offset {frames.begin} is cut off"

    def _objects(self, lines: Iterator[tuple[int, bytes]]) -> Iterator[tuple[int, Any]]:
        for number, line in lines:
            try:
                value = orjson.loads(line)
            except orjson.JSONDecodeError as e:
                if self.path.suffix == ".clp":
                    why = "CLP archives are not read; expand it first"
                    raise Error(f"{self.path}: {why}") from None
                value = Wrong(f"not JSON: {e.msg}")
                if line.startswith(b"{") and not line.endswith(b"\n"):
                    self.cut = f"line {number} is cut off"
                    continue  # to the end, where the reason may be a frame
            yield number, value

    def _texts(self, lines: Iterator[tuple[int, bytes]]) -> Iterator[tuple[int, Any]]:
        """Yields the records of a text trace. An empty line ends each."""
        record: list[tuple[int, bytes]] = []
        for number, line in lines:
            if line in (b"\n", b"\r\n"):
                if record:
                    yield self._of_text(record)
                record = []
            elif len(record) < text.MOST_LINES:
                record.append((number, line))
            else:
                raise self.error(number, f"a record of more than {text.MOST_LINES} lines")
        if record and not self.cut:
            self.cut = f"the record at line {record[0][0]} is cut off"

    def _of_text(self, record: list[tuple[int, bytes]]) -> tuple[int, Any]:
        try:
            return record[0][0], text.parsed(record)
        except text.TextError as e:
            return e.line, Wrong(str(e))


class _Frames(io.RawIOBase):
    """The contents of zstd frames. begin: where the last frame begins. cut: it has no end."""

    def __init__(self, path: Path, file: BinaryIO) -> None:
        import zstandard

        self._zstandard = zstandard
        self._path, self._file = path, file
        self._frame: Any = None
        self._rest, self._ready = b"", memoryview(b"")
        self.at = self.begin = 0
        self.cut = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._ready:
            raw = self._rest or self._file.read(CHUNK)
            if not raw:
                self.cut = self._frame is not None
                return 0
            self._decompress(raw)
        count = min(len(buffer), len(self._ready))
        buffer[:count] = self._ready[:count]
        self._ready = self._ready[count:]
        return count

    def _decompress(self, raw: bytes) -> None:
        if self._frame is None:
            self.begin = self.at
            made = self._zstandard.ZstdDecompressor(max_window_size=WINDOW)
            self._frame = made.decompressobj()
        try:
            self._ready = memoryview(self._frame.decompress(raw))
        except self._zstandard.ZstdError as e:
            reason = str(e).rpartition("error: ")[2]
            raise FormatError(self._path, self.begin, f"not a zstd frame: {reason}") from None
        self._rest = self._frame.unused_data if self._frame.eof else b""
        self.at += len(raw) - len(self._rest)
        if self._frame.eof:
            self._frame = None
