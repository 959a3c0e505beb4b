"""strings.bin: texts by offset."""

from __future__ import annotations

import xxhash

from ttanalyze.errors import FormatError
from ttanalyze.format.files import Folder, Reader
from ttanalyze.format.layout import HEADER_SIZE, NO_ID, constant

HEAD = constant("TT_TEXT_HEAD")  # bytes before a text: its length and its check


class Strings:
    """The texts of one process. Each is read once. The file may grow meanwhile."""

    def __init__(self, folder: Folder) -> None:
        self.path = folder.path / "strings.bin"
        self._file = folder.open("strings.bin")
        self._known: dict[int, str] = {}

    def get(self, offset: int) -> str | None:
        """Returns the text at an offset, None for "no text". Raises FormatError if no text begins
        there.
        """
        offset = int(offset)  # columns give fixed-size numbers, which wrap
        if offset == NO_ID:
            return None
        if offset not in self._known:
            self._known[offset] = self._read(offset)
        return self._known[offset]

    def _read(self, offset: int) -> str:
        if self._file is None:
            raise FormatError(self.path, offset, "the file is missing")
        self._file.check()
        with Reader(self.path) as file:
            room = file.size - offset - HEAD
            if offset < HEADER_SIZE or room < 0:
                raise FormatError(self.path, offset, "no string begins here")
            head = file.bytes(offset, HEAD)
            length, check = (int.from_bytes(head[at : at + 4], "little") for at in (0, 4))
            if length > room:
                raise FormatError(self.path, offset, f"a string of {length} bytes does not fit")
            text = file.text(offset + HEAD, length)
        if xxhash.xxh3_64_intdigest(text) & 0xFFFFFFFF != check:
            raise FormatError(self.path, offset, "the string does not match its check")
        try:
            return text.decode()
        except UnicodeDecodeError as e:
            raise FormatError(self.path, offset + HEAD + e.start, "not UTF-8") from None
