"""Checksums and source lines of the kernels of a run, from the module images that it saved."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ttanalyze.code import lines
from ttanalyze.code.checksums import checksums
from ttanalyze.errors import MissingFileError
from ttanalyze.format import modules
from ttanalyze.format.process import Process

LARGEST = 1 << 28  # bytes of an image; the recorder saves much smaller ones only


class Checksums:
    """Checksums of kernels. The images of a process are read at its first use."""

    def __init__(
        self, read: Callable[[bytes, Sequence[str]], list[str | None]] = checksums
    ) -> None:
        self._read = read
        self._known: dict[int, dict[int, str | None]] = {}

    def get(self, process: Process, function: int) -> str | None:
        """Returns the checksum of a kernel by its number, None if its code is unknown.

        Raises FormatError if an image is not the one that was saved.
        """
        if process.index not in self._known:
            self._known[process.index] = self._of_process(process)
        return self._known[process.index].get(function)

    def _of_process(self, process: Process) -> dict[int, str | None]:
        out: dict[int, str | None] = {}
        functions, modules = process.functions, process.modules
        images = dict(zip(modules["id"].tolist(), modules["image"].tolist(), strict=True))
        of = np.array([images.get(m, 0) for m in functions["module"].tolist()], "u8")
        for image in dict.fromkeys(of.tolist()):
            mine = functions[of == image]
            names = [process.strings.get(int(name)) or "" for name in mine["name"]]
            contents = image_of(process, image) if image else None
            found = self._read(contents, names) if contents else [None] * len(names)
            out.update(zip(mine["id"].tolist(), found, strict=True))
        return out


class Sources(Checksums):
    """Where kernels begin in their source, as FILE:LINE."""

    def __init__(self) -> None:
        super().__init__(lines.sources)


def image_of(process: Process, image: int) -> bytes | None:
    """Returns a saved image by its digest, None if it was not saved."""
    try:
        if modules.path_of(process, image).stat().st_size > LARGEST:
            return None
        return modules.read(process, image)
    except (FileNotFoundError, MissingFileError):
        return None
