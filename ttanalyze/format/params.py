"""params.bin: parameters of launches, and other data that records refer to."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
import xxhash

from ttanalyze.errors import FormatError
from ttanalyze.format.files import RecordFile, Records
from ttanalyze.format.layout import HEADER_SIZE, constant

UNIT = 16  # bytes that places are counted in
HEAD = constant("TT_PIECE_HEAD")  # bytes before each piece: its check


class Params:
    """The params.bin of one process. file: None if it does not exist."""

    def __init__(self, folder: Path, file: RecordFile | None) -> None:
        self.path = folder / "params.bin"
        self._file = file

    @functools.cached_property
    def _bytes(self) -> Records:
        return self._file.map() if self._file else np.empty(0, "u1")

    def piece(self, position: int, size: int, what: str) -> bytes:
        """Returns `size` bytes at a position, b"" if the position is 0.

        Raises FormatError if they are not in the file or do not match their check. what: their name
        in errors.
        """
        if not position:
            return b""
        check = position * UNIT - HEADER_SIZE
        begin, end = check + HEAD, check + HEAD + size
        if not 0 <= check <= end <= len(self._bytes):
            raise FormatError(self.path, check + HEADER_SIZE, f"{what} do not lie in it")
        piece = self._bytes[begin:end].tobytes()
        if xxhash.xxh3_64_intdigest(piece) != int(self._bytes[check:begin].view("<u8")[0]):
            raise FormatError(self.path, check + HEADER_SIZE, f"{what} do not match their check")
        return piece
