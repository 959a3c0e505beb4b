"""Data files: the contents of blocks, plain or compressed.

docs/format.md describes compressed contents. Frames follow RFC 8878 (Zstandard).
"""

from __future__ import annotations

from pathlib import Path

from ttanalyze._format import ffi
from ttanalyze.errors import FormatError
from ttanalyze.format import layout
from ttanalyze.format.files import Reader
from ttanalyze.format.layout import BLOCK_SIZE
from ttanalyze.util import libraries

PREFIX = 4  # bytes of the size before compressed contents
ENCODINGS = layout.enum("encoding")


class DataReader(Reader):
    """An open data file. plain: its contents are not compressed."""

    def __init__(self, path: Path, encoding: int) -> None:
        super().__init__(path)
        self.plain = encoding == ENCODINGS["TT_ENCODING_PLAIN"]
        self._planes = encoding == ENCODINGS["TT_ENCODING_PLANES"]

    def __enter__(self) -> DataReader:
        return self

    def fill(self, offset: int, out: memoryview) -> None:
        """Fills out with the contents of blocks that lie BLOCK_SIZE apart, from offset on."""
        if self.plain:
            self.into(offset, out)
            return
        for at in range(0, len(out), BLOCK_SIZE):
            length = min(BLOCK_SIZE, len(out) - at)
            out[at : at + length] = self.contents(offset + at, length)

    def contents(self, offset: int, length: int) -> bytes | bytearray | memoryview:
        """Returns the contents of a block of `length` bytes at an offset.

        Raises FormatError if there are no such contents.
        """
        if self.plain:
            return self.bytes(offset, length)
        raw = memoryview(self.bytes(offset, min(PREFIX + length, self.size - offset)))
        size = int.from_bytes(raw[:PREFIX], "little")
        if size > len(raw) - PREFIX:
            raise FormatError(self.path, offset, f"size {size}, expected at most {length}")
        stored = raw[PREFIX : PREFIX + size]
        if size == length:
            return stored
        return (self._unpacked if self._planes else self._inflated)(offset, stored, length)

    def _unpacked(self, offset: int, code: memoryview, length: int) -> bytearray:
        out = bytearray(length)
        source, to = ffi.from_buffer("uint8_t[]", code), ffi.from_buffer("uint8_t[]", out)
        why = libraries.toolkit().tt_unpack(source, len(code), to, length)
        if why != ffi.NULL:
            raise FormatError(self.path, offset, f"not bit planes: {ffi.string(why).decode()}")
        return out

    def _inflated(self, offset: int, frame: memoryview, length: int) -> bytes:
        import zstandard

        try:
            if zstandard.frame_content_size(frame) != length:
                raise FormatError(self.path, offset, f"not a zstd frame of {length} bytes")
            contents: bytes = zstandard.ZstdDecompressor().decompress(frame)
        except zstandard.ZstdError as e:
            raise FormatError(self.path, offset, f"not a zstd frame: {e}") from None
        if len(contents) != length:
            raise FormatError(self.path, offset, f"not a zstd frame of {length} bytes")
        return contents
