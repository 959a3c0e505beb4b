"""Several runs or files of records as one, whose tables have a column `file` more."""

from __future__ import annotations

import glob
import os
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ttanalyze.core.rank_column import Piece
from ttanalyze.core.run_tables import TABLES, Table
from ttanalyze.errors import Error
from ttanalyze.format import open_run
from ttanalyze.format.columns import categories
from ttanalyze.format.layout import Array
from ttanalyze.format.run import Run
from ttanalyze.util.arguments import checked
from ttanalyze.util.progress import Progress
from ttanalyze.util.remote import is_url
from ttanalyze.verbs.query.execute import parts_of
from ttanalyze.verbs.query.files import RecordsFile
from ttanalyze.verbs.query.native import TracedRun
from ttanalyze.verbs.query.traces import Regions, open_file

FILE = "file"


@checked
def open_sources(
    paths: Sequence[str | os.PathLike[str]],
    regions: Regions | None = None,
    trace: bool = False,
    launch: int | None = None,
    ranks: Collection[int] | None = None,
) -> Run | RecordsFile:
    """Opens runs and files of records for queries.

    Args:
        paths: Run directories, or files. Patterns such as "traces/*.ndjson" stand for all that
            match them.
        regions: For the tables `histogram` and `ipc` of traces.
        trace: Whether the instruction traces of runs are wanted, not their other tables.
        launch: The `seq` of the only wanted launch of these traces. Default: all.
        ranks: The only wanted ranks of runs. Default: all processes.

    Returns:
        A run or a file. For several, or a pattern, an object with their tables, where the column
        `file` names the source.

    Raises:
        Error: Nothing matches a pattern, a source cannot be read, or they are of different kinds.

    Example:
        >>> source = tt.query.open_sources(["run1"])
        >>> tt.query.query(source, tt.query.Query(count=True))["count"].tolist()
        [5]
    """
    names = [name for path in paths for name in _matching(os.fspath(path))]
    if not names:
        raise Error("no runs and no files")
    opened: list[Run | RecordsFile] = []
    for name in names:
        if os.path.isfile(name):
            if ranks is not None:
                raise Error(f"{name}: --rank needs a run directory")
            opened.append(open_file(name, regions))
        else:
            run = open_run(name, ranks)
            opened.append(TracedRun(run, launch, regions) if trace else run)
    if names == [os.fspath(path) for path in paths] and len(names) == 1:
        return opened[0]
    for name, source in zip(names, opened, strict=True):
        if type(source) is not type(opened[0]):
            raise Error(f"{name}: not of the same kind as {names[0]}")
    return _Several(names, opened)


def _matching(name: str) -> list[str]:
    if is_url(name) or os.path.lexists(name) or not glob.has_magic(name):
        return [name]
    found = sorted(glob.glob(name, recursive=True))
    if not found:
        raise Error(f"{name}: no file matches")
    return found


class _Several(RecordsFile):
    def __init__(self, names: list[str], sources: Sequence[Run | RecordsFile]) -> None:
        first = sources[0]
        of_one = first.tables if isinstance(first, RecordsFile) else TABLES
        self.path, self.notes = Path(names[0]), []
        self.tables = {name: self._table(table) for name, table in of_one.items()}
        self._sources = list(zip(names, sources, strict=True))

    def __reduce__(self) -> tuple[Any, ...]:
        return _Several, tuple(zip(*self._sources, strict=True))

    @property
    def parts(self) -> Sequence[RecordsFile]:
        """A part for each process of the runs."""
        if not all(isinstance(source, Run) for _, source in self._sources):
            return [self]
        return [
            _Several([name], [part]) for name, source in self._sources for part in parts_of(source)
        ]

    def _table(self, one: Table) -> Table:
        def pieces(
            _: Any, columns: Sequence[str], ordered: bool, progress: Progress
        ) -> Iterator[Piece]:
            wanted = [column for column in columns if column != FILE] or [one.recorded[0]]
            for number, (name, source) in enumerate(self._sources):
                for piece in one.pieces(source, wanted, ordered, None):
                    yield _NamedPiece(piece, name)
                self.notes += getattr(source, "notes", [])
                if progress:
                    progress(number + 1, len(self._sources))

        order = (FILE, *one.order) if one.order else ()
        names = {"recorded": (FILE, *one.recorded), "shown": (FILE, *one.shown)}
        return replace(one, pieces=pieces, order=order, **names)


@dataclass
class _NamedPiece:
    """A piece of one source, with the column `file`."""

    piece: Piece
    name: str

    def __len__(self) -> int:
        return len(self.piece)

    def take(self, columns: Sequence[str], rows: Array | None = None) -> pd.DataFrame:
        rest = [column for column in columns if column != FILE]
        count = len(self.piece) if rows is None else len(rows)
        made = self.piece.take(rest, rows) if rest else pd.DataFrame(index=range(count))
        if FILE in columns:
            made = made.assign(**{FILE: categories(np.zeros(count, "i4"), [self.name])})
        return made[list(columns)]
