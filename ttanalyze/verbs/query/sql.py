"""Questions in SQL, answered by SQLite from the tables and columns that a question names.

https://www.sqlite.org/lang_select.html describes its SELECT.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from typing import Any

import numpy as np
import pandas as pd

from ttanalyze.core.run_tables import TABLES, Table
from ttanalyze.errors import Error
from ttanalyze.format.run import Run
from ttanalyze.util.arguments import checked
from ttanalyze.util.progress import Progress
from ttanalyze.verbs.query.execute import Query, Source, result_pieces
from ttanalyze.verbs.query.files import RecordsFile
from ttanalyze.verbs.query.native import TracedRun
from ttanalyze.verbs.query.trace_columns import integers, texts

HASHES = {"digest", "image"}
SIGNED = 1 << 63
STEPS = 1 << 16  # of SQLite, after which Ctrl-C is looked for
READS = (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE)


@checked
def sql(run: Source, statement: str, progress: Progress = None) -> pd.DataFrame:
    """Answers a SELECT statement over the tables of a run.

    Only the columns that the statement names are read, to a temporary database. Digests are text
    of 16 hexadecimal digits, and whole numbers of 2**63 or more are text such as
    "0xffffffffffffffff". All times are nanoseconds.

    Args:
        run: A run, or a file from `open_file`.
        statement: One SELECT, with any tables of `query`. Names with a hyphen need quotes.
        progress: Called with the finished and the total number of rows of a table.

    Returns:
        The result.

    Raises:
        Error: The statement is wrong, or is no SELECT.
        FormatError: A file does not follow the format.

    Example:
        >>> tt.sql(tt.open("run1"), "SELECT kind, count(*) AS n FROM events GROUP BY kind")
             kind  n
        0   alloc  1
        1   epoch  2
        2  launch  2
    """
    needed = _needed(statement, _tables(run))
    with closing(sqlite3.connect("")) as database:  # in a temporary file if it is large
        for table, columns in needed.items():
            pieces = result_pieces(run, Query(table, fields=columns), progress)
            for number, piece in enumerate(pieces):
                insert(database, table, piece, number)
        return _answer(database, statement)


def _tables(run: Source) -> Mapping[str, Table]:
    if isinstance(run, RecordsFile):
        return run.tables
    return {**TABLES, **TracedRun(run).tables} if isinstance(run, Run) else TABLES


def _needed(statement: str, tables: Mapping[str, Table]) -> dict[str, list[str]]:
    """Returns the columns that a statement reads, by table."""
    columns = {name: list(table.columns) for name, table in tables.items()}
    read: dict[str, set[str]] = {}

    def allowed(action: int, table: str | None, column: str | None, *_: str | None) -> int:
        if action == sqlite3.SQLITE_READ and table in columns:
            read.setdefault(str(table), set()).add(str(column))
        inside = action == sqlite3.SQLITE_READ and not str(table).startswith("sqlite_")
        return sqlite3.SQLITE_OK if inside or action in READS else sqlite3.SQLITE_DENY

    with closing(sqlite3.connect(":memory:")) as database:
        for name, its in columns.items():
            database.execute(f'CREATE TABLE "{name}" ({_listed(its)})')
        database.set_authorizer(allowed)
        try:
            database.execute(f"EXPLAIN {statement}")
        except (sqlite3.Error, sqlite3.Warning, ValueError) as e:
            raise Error(f"--sql: {_explained(str(e), statement, columns)}") from None
    # Of count(*) SQLite names no column.
    return {
        name: [column for column in columns[name] if column in read[name]] or columns[name][:1]
        for name in columns
        if name in read
    }


def _explained(said: str, statement: str, columns: Mapping[str, Sequence[str]]) -> str:
    if said.startswith("no such table"):
        return f"{said}; there are {', '.join(columns)}"
    if said.startswith("no such column"):
        named = [name for name in columns if re.search(rf"\b{name}\b", statement, re.IGNORECASE)]
        return "; ".join((said, *(f"{name} has {', '.join(columns[name])}" for name in named)))
    if "authorized" in said or "prohibited" in said:
        return "only SELECT is possible"
    return said


def _listed(columns: Iterable[str]) -> str:
    return ", ".join(f'"{column}"' for column in columns)


def _answer(database: sqlite3.Connection, statement: str) -> pd.DataFrame:
    database.set_progress_handler(lambda: None, STEPS)  # Python's signal handlers run here
    try:
        cursor = database.execute(statement)
        names = [column for column, *_ in cursor.description]
        rows = cursor.fetchall()
    except sqlite3.Error as e:
        if str(e) == "interrupted":
            raise KeyboardInterrupt from None
        raise Error(f"--sql: {e}") from None
    twice = [name for i, name in enumerate(names) if name in names[:i]]
    if twice:
        raise Error(f"--sql: two columns of the result are named {twice[0]}: name one with AS")
    values = zip(*rows, strict=True) if rows else [()] * len(names)
    made = {name: _column(column) for name, column in zip(names, values, strict=True)}
    return pd.DataFrame(made, index=range(len(rows)))


def _column(values: Sequence[Any]) -> Any:
    kinds = {type(value) for value in values} - {type(None)}
    if kinds == {int}:
        return integers(values) if None in values else np.array(values, "i8")
    if kinds and kinds <= {int, float}:
        return np.array([np.nan if value is None else value for value in values], "f8")
    return texts([None if value is None else str(value) for value in values])


def insert(database: sqlite3.Connection, table: str, piece: pd.DataFrame, number: int) -> int:
    """Adds the rows of a piece and returns how many. The first piece makes the table."""
    if number == 0:
        kinds = [f'"{name}" {_affinity(piece[name])}' for name in piece.columns]
        database.execute(f'CREATE TABLE "{table}" ({", ".join(kinds)})')
    places = ", ".join("?" * len(piece.columns))
    columns = [_values(piece[name]) for name in piece.columns]
    database.executemany(f'INSERT INTO "{table}" VALUES ({places})', zip(*columns, strict=True))
    return len(piece)


def _affinity(column: Any) -> str:
    if column.name in HASHES or not pd.api.types.is_numeric_dtype(column.dtype):
        return "TEXT"
    return "REAL" if pd.api.types.is_float_dtype(column.dtype) else "INTEGER"


def _values(column: Any) -> list[Any]:
    """Returns the values of a column as SQLite takes them."""
    if isinstance(column.dtype, pd.CategoricalDtype):
        names = np.array([*map(str, column.cat.categories), None], object)
        return names[column.cat.codes.to_numpy()].tolist()
    missing = column.isna()
    if missing.any():
        column = column.astype("object").where(~missing, None)
    values: list[Any] = column.tolist()
    if column.name in HASHES:
        return [f"{value:016x}" for value in values]
    if column.dtype == np.uint64 and len(values) and column.max() >= SIGNED:
        return [f"{value:#x}" if value >= SIGNED else value for value in values]
    return [str(value) if isinstance(value, (list, np.ndarray)) else value for value in values]
