"""Writes all tables of a run to an SQLite database or to Parquet files.

A table more, `columns`, says what each column means.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pandas as pd

from ttanalyze.core.meanings import meanings
from ttanalyze.core.run_tables import TABLES
from ttanalyze.errors import Error, system_errors
from ttanalyze.format.run import Run
from ttanalyze.output.files import replacing
from ttanalyze.output.tables import load_parquet, write_parquet
from ttanalyze.util.arguments import checked
from ttanalyze.util.progress import Progress, tell
from ttanalyze.verbs.query import Query
from ttanalyze.verbs.query.execute import result_pieces
from ttanalyze.verbs.query.sql import insert

REPEATED = {"stack_text"}  # columns that another table has: `stacks`
REFERENCE = "columns"


@checked
def export_sqlite(
    run: Run, path: str | os.PathLike[str], progress: Progress = None
) -> dict[str, int]:
    """Writes the tables of a run to a new SQLite database.

    Digests are text of 16 hexadecimal digits. SQLite has no whole numbers of 2**63 or more: these
    become text such as "0xffffffffffffffff".

    Args:
        run: The run.
        path: The file, which is replaced.
        progress: Called with the finished and the total number of tables.

    Returns:
        The number of rows of each table.

    Raises:
        Error: The file cannot be written.
        FormatError: A file of the run does not follow the format.

    Example:
        >>> tt.export.export_sqlite(tt.open("run1"), "run1.db")["events"]
        5
    """
    path = Path(path)
    if path.exists() and not path.is_file():
        raise Error(f"{path}: not a regular file; a database needs one")
    counts = {}
    try:
        with replacing(path) as file, closing(sqlite3.connect(file.name)) as database:
            database.execute("PRAGMA journal_mode = OFF")
            database.execute("PRAGMA synchronous = OFF")
            for name, pieces in _tables(run, progress):
                counts[name] = sum(
                    insert(database, name, piece, i) for i, piece in enumerate(pieces)
                )
            database.commit()
    except sqlite3.Error as e:
        raise Error(f"{path}: {e}") from None
    return counts


@checked
def export_parquet(
    run: Run, folder: str | os.PathLike[str], progress: Progress = None
) -> dict[str, int]:
    """Writes the tables of a run as Parquet files, TABLE.parquet each.

    This needs the extra [scale].

    Args:
        run: The run.
        folder: The folder, which is made if it does not exist. Files of these names are replaced.
        progress: Called with the finished and the total number of tables.

    Returns:
        The number of rows of each table.

    Raises:
        Error: pyarrow is missing, or a file cannot be written.
        FormatError: A file of the run does not follow the format.

    Example:
        >>> tt.export.export_parquet(tt.open("run1"), "tables")["events"]
        5
    """
    load_parquet("--parquet")
    folder = Path(folder)
    with system_errors(folder):
        folder.mkdir(exist_ok=True)
    counts = {}
    for name, pieces in _tables(run, progress):
        counted = _Counted(pieces)
        with replacing(folder / f"{name}.parquet") as file:
            write_parquet(iter(counted), file)
        counts[name] = counted.rows
    return counts


def _tables(run: Run, progress: Progress) -> Iterator[tuple[str, Iterator[pd.DataFrame]]]:
    """Yields the name and the pieces of each table."""
    rows = []
    for i, (name, table) in enumerate(TABLES.items()):
        columns = [c for c in table.columns if c not in REPEATED]
        said = meanings(name)
        rows += [(name, column, said[column]) for column in columns]
        yield name, result_pieces(run, Query(name, fields=columns))
        tell(progress, i + 1, len(TABLES))
    yield REFERENCE, iter([pd.DataFrame(rows, columns=["table", "column", "meaning"], dtype="str")])


class _Counted:
    """Counts the rows of pieces."""

    def __init__(self, pieces: Iterator[pd.DataFrame]) -> None:
        self._pieces = pieces
        self.rows = 0

    def __iter__(self) -> Iterator[pd.DataFrame]:
        for piece in self._pieces:
            self.rows += len(piece)
            yield piece
