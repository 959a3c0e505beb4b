"""Writes memory contents in a file format that a few lines of C can read.

A file is a sequence of pieces: four 64-bit integers, then data. The integers are the index of the
region, an offset in it, the number of bytes that the piece covers, and the number of data bytes,
which repeat over the piece.
"""

from __future__ import annotations

import struct
from typing import BinaryIO

import numpy as np

from ttanalyze.format.layout import Array

PAGE = 4096  # bytes that are looked at for a pattern of 8
WORD = 8
MOST = 1 << 20  # bytes that follow at most
HEAD = struct.Struct("<4Q")


class Pieces:
    """Writes a file of pieces."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._region, self._at, self._size = -1, 0, 0
        self._data = bytearray()
        self._repeats = False

    def add(self, region: int, offset: int, contents: Array, sparse: bool = False) -> None:
        """Adds contents (uint8) at an offset of a region. Calls come by region and offset.

        sparse: whether to leave out pages of zeros.
        """
        whole = len(contents) // PAGE
        words = np.ascontiguousarray(contents[: whole * PAGE]).view("u8").reshape(-1, PAGE // WORD)
        same = (words == words[:, :1]).all(axis=1)
        for page in range(whole):
            part = contents[page * PAGE : (page + 1) * PAGE]
            if not (sparse and same[page] and not words[page, 0]):
                self._page(region, offset + page * PAGE, part, bool(same[page]))
        if len(contents) % PAGE:
            self._page(region, offset + whole * PAGE, contents[whole * PAGE :], False)

    def _page(self, region: int, offset: int, page: Array, repeats: bool) -> None:
        data = (page[:WORD] if repeats else page).tobytes()
        follows = region == self._region and offset == self._at + self._size
        follows &= repeats == self._repeats
        if not follows or (data != self._data if repeats else len(self._data) >= MOST):
            self.flush()
            self._region, self._at, self._repeats = region, offset, repeats
        if not (repeats and self._size):
            self._data += data
        self._size += len(page)

    def flush(self) -> None:
        """Writes the added contents."""
        if self._size:
            self._file.write(HEAD.pack(self._region, self._at, self._size, len(self._data)))
            self._file.write(self._data)
        self._size = 0
        self._data.clear()
