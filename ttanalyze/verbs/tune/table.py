"""The CSV file of tried configurations. Each line is appended as a whole, so the file is
always valid.
"""

from __future__ import annotations

import csv
import errno
import io
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ttanalyze.errors import Error, FormatError, system_errors
from ttanalyze.output import text
from ttanalyze.output.files import private
from ttanalyze.verbs.tune.space import NAMES, Configuration

OF = ("launch", "kernel", "device")
RESULTS = ("median_ms", "min_ms", "spread_ms", "verified", "error")
COLUMNS = (*OF, *NAMES, *RESULTS)
HEAD = ",".join(COLUMNS).encode()
NO_TABLE = "not a table of configurations"


@dataclass(frozen=True)
class Row:
    """The result of one configuration.

    Attributes:
        configuration: The configuration.
        median_ms, min_ms: The median and the shortest time of a launch in milliseconds, None if it
            was not measured.
        spread_ms: The time between the first and the third quartile in milliseconds.
        verified: Whether the launch left the recorded memory. If not, it was not measured.
        error: Why the configuration failed, else "".
    """

    configuration: Configuration
    median_ms: float | None = None
    min_ms: float | None = None
    spread_ms: float | None = None
    verified: bool = False
    error: str = ""

    @property
    def good(self) -> bool:
        """Whether the configuration is verified and measured."""
        return self.verified and self.median_ms is not None

    def cells(self) -> dict[str, str]:
        times = {name: getattr(self, name) for name in RESULTS[:3]}
        return {
            **self.configuration.cells(),
            **{name: "" if time is None else f"{time:.6f}" for name, time in times.items()},
            "verified": "yes" if self.verified else "no",
            "error": self.error,
        }

    def as_dict(self) -> dict[str, Any]:
        return {**vars(self.configuration), **{name: getattr(self, name) for name in RESULTS}}


class Table:
    """A file of results. It is made if it does not exist.

    Args:
        path: The file.
        launch: A digest of the launch and of everything that a result depends on.
        kernel: The mangled name of the kernel.
        device: The name of the device.

    Attributes:
        path: The file.
        rows: The results in the file.

    Raises:
        Error: The file belongs to another launch, kernel or device.
        FormatError: The file is no table of configurations.
    """

    def __init__(self, path: Path, launch: str, kernel: str, device: str) -> None:
        self.path = path
        self._of = dict(zip(OF, (launch, kernel, device), strict=True))
        self.rows: list[Row] = []
        if path.exists() and not (path.is_file() or path.is_char_device()):
            raise Error(f"{path}: not a regular file")
        with system_errors(path):
            content = path.read_bytes() if path.is_file() else b""
            whole = content[: content.rfind(b"\n") + 1]
            if whole:
                self._read(whole)
            elif not HEAD.startswith(content):
                raise FormatError(path, "line 1", NO_TABLE)
            if len(whole) < len(content):  # an interrupted line is none
                os.truncate(path, len(whole))
        if not whole:
            self._write(COLUMNS)

    def _read(self, content: bytes) -> None:
        lines = csv.reader(io.StringIO(content.decode(errors="replace"), newline=""))
        try:
            if tuple(next(lines)) != COLUMNS:
                raise FormatError(self.path, "line 1", NO_TABLE)
            for values in lines:
                if tuple(values) != COLUMNS:  # as where two began at once
                    self.rows.append(self._row(values, lines.line_num))
        except csv.Error as e:
            raise FormatError(self.path, f"line {lines.line_num}", str(e)) from None

    def _row(self, values: list[str], line: int) -> Row:
        try:
            cells = dict(zip(COLUMNS, values, strict=True))
            times = {name: _time(cells[name]) for name in RESULTS[:3]}
            made = Configuration.of_cells(cells)
        except (ValueError, KeyError, Error):
            raise FormatError(self.path, f"line {line}", "not a configuration") from None
        for name, value in self._of.items():
            if cells[name] != value:
                found = text.printable(cells[name])
                how = ", or of other --flush-l2, --dtype, --tolerance" * (name == "launch")
                raise Error(f"{self.path}: of another {name} ({found}){how}; choose another file")
        return Row(made, **times, verified=cells["verified"] == "yes", error=cells["error"])

    def add(self, row: Row) -> None:
        """Appends a result to the file.

        Args:
            row: The result.

        Raises:
            Error: The file cannot be written.
        """
        self.rows.append(row)
        cells = self._of | row.cells()
        self._write([cells[name] for name in COLUMNS])

    def _write(self, values: Any) -> None:
        line = io.StringIO(newline="")
        csv.writer(line, lineterminator="\n").writerow(values)
        with system_errors(self.path):
            file = private(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
            try:
                data = line.getvalue().encode()
                written = os.write(file, data)
                if written < len(data):
                    os.ftruncate(file, os.fstat(file).st_size - written)
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            finally:
                os.close(file)


def _time(cell: str) -> float | None:
    """Returns the time in a cell, None if it is empty. Raises ValueError for any other text."""
    if not cell:
        return None
    time = float(cell)
    if not (math.isfinite(time) and time >= 0):
        raise ValueError(cell)
    return time
