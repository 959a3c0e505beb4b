"""Runs queries: rows of a table, or aggregates of groups of rows.

Tables are read in pieces. Of each piece only a part stays in memory: the best rows of a sorted
query, or one row per group.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from ttanalyze.core.rank_column import Piece
from ttanalyze.core.run_tables import TABLES, FramePiece, Table
from ttanalyze.errors import Error
from ttanalyze.format.layout import Array
from ttanalyze.format.run import Run
from ttanalyze.output.tables import join
from ttanalyze.output.times import as_timedeltas
from ttanalyze.util.arguments import bind, checked
from ttanalyze.util.parallel import address_of, each
from ttanalyze.util.progress import Progress
from ttanalyze.util.remote import Url
from ttanalyze.verbs.query.expression import Expression, Numbers, column_value, is_list
from ttanalyze.verbs.query.files import RecordsFile
from ttanalyze.verbs.query.native import TRACE_TABLES, TracedRun

WORTH = 1 << 28  # bytes of a table in files for which processes of their own are worth it
HELD = 1 << 19  # rows of pieces that are held before they are reduced
Source = Run | RecordsFile
AGGREGATES = ("sum", "share", "mean", "min", "max")
OF_SUMS = ("sum", "share", "mean")


@checked
@dataclass(frozen=True)
class Query:
    """A query over one table.

    Without `group_by`, `count` and aggregates the result is rows of the table. Otherwise it is one
    row per group with the columns `group_by`, `count`, and `COLUMN_sum`, `COLUMN_mean` and so on.

    Attributes:
        table: The name of the table, a key of TABLES.
        filter: A condition such as "kind == 'launch' and gpu_time > 1e6", or several that must all
            hold. "kind=launch;gpu_time>1e6" says the same. Default: all rows.
        group_by: The columns whose values form the groups.
        count: Whether to count the rows of each group.
        sum, mean, min, max: The columns to aggregate.
        share: The columns whose sum is given in percent of the sum over all groups.
        sort: Columns of the result. A leading "-" sorts in descending order.
        top: The maximal number of rows. Default: all.
        tail: The same, for the last rows.
        fields: The columns of the result. Default: all.
    """

    table: str = "events"
    filter: str | Sequence[str] | None = None
    group_by: Sequence[str] = ()
    count: bool = False
    sum: Sequence[str] = ()
    share: Sequence[str] = ()
    mean: Sequence[str] = ()
    min: Sequence[str] = ()
    max: Sequence[str] = ()
    sort: Sequence[str] = ()
    top: int | None = None
    fields: Sequence[str] = ()
    tail: int | None = None

    @property
    def aggregates(self) -> list[tuple[str, str]]:
        """Function and column of each aggregate except `count`."""
        return [(what, column) for what in AGGREGATES for column in getattr(self, what)]

    @property
    def grouped(self) -> bool:
        return bool(self.group_by or self.count or self.aggregates)


def query(
    run: Source,
    wanted: Query | None = None,
    progress: Progress = None,
    cluster: str | None = None,
    **options: Any,
) -> pd.DataFrame:
    """Runs a query and returns the whole result.

    Args:
        run: A run, or a file from `open_file`.
        wanted: The query. Default: all rows of `events`.
        progress: Called with the finished and the total number of rows.
        cluster: The address of a dask scheduler whose workers read the processes of runs. Default:
            that of DASK_SCHEDULER_ADDRESS, else this machine.
        options: Attributes of `Query`, in place of those of `wanted`.

    Returns:
        The result, one row per row or group. Its times are timedelta64[ns], as those of `run`;
        expressions compare nanoseconds.

    Raises:
        Error: The query names an unknown table or column, or an expression is wrong.
        FormatError: A file does not follow the format.

    Example:
        >>> tt.query(tt.open("run1"), filter="kind == 'launch'", group_by=["kernel"], count=True)
          kernel  count
        0  scale      2
    """
    for name in options:
        if name not in Query.__dataclass_fields__:
            names = ", ".join(Query.__dataclass_fields__)
            raise Error(f"{name}: no such option; a query has: {names}")
    bind(Query, (), options)
    return join(list(stream(run, replace(wanted or Query(), **options), progress, (), cluster)))


@checked
def stream(
    run: Source,
    wanted: Query,
    progress: Progress = None,
    default: Sequence[str] = (),
    cluster: str | None = None,
) -> Iterator[pd.DataFrame]:
    """Runs a query and returns the result in pieces, so that it need not fit into memory.

    Args:
        run: A run, or a file from `open_file`.
        wanted: The query.
        progress: Called with the finished and the total number of rows.
        default: The columns of rows if the query has no `fields`. Default: all recorded columns.
        cluster: As of `query`.

    Yields:
        DataFrames, at least one, with the columns that `query` returns.

    Raises:
        Error: As `query`. Unknown tables and columns are found before the first piece.

    Example:
        >>> wanted = tt.query.Query(filter="kind=launch", fields=("seq", "kernel"))
        >>> [len(part) for part in tt.query.stream(tt.open("run1"), wanted)]
        [2]
    """
    return map(as_timedeltas, result_pieces(run, wanted, progress, default, cluster))


def result_pieces(
    run: Source,
    wanted: Query,
    progress: Progress = None,
    default: Sequence[str] = (),
    cluster: str | None = None,
) -> Iterator[pd.DataFrame]:
    """Does what `stream` does, with times as whole nanoseconds."""
    if isinstance(run, Run) and wanted.table in TRACE_TABLES:
        run = TracedRun(run)
    tables = run.tables if isinstance(run, RecordsFile) else TABLES
    if wanted.table not in tables:
        names = ", ".join((*tables, *(TRACE_TABLES if isinstance(run, Run) else ())))
        raise Error(f"--table {wanted.table}: must be one of {names}")
    table = tables[wanted.table]
    for option, rows in (("--top", wanted.top), ("--tail", wanted.tail)):
        if rows is not None and rows < 0:
            raise Error(f"{option} {rows}: expected a number of rows")
    if wanted.top is not None and wanted.tail is not None:
        raise Error("--tail cannot be combined with --top or --head")
    condition = _condition(wanted, table)
    if wanted.grouped:
        _check_groups(wanted)
    for option in ("group_by", "fields", *AGGREGATES):
        _check(
            f"--{option.replace('_', '-')}", getattr(wanted, option), table.columns, wanted.table
        )
    address, parts = address_of(cluster), parts_of(run)
    if len(parts) < 2 or (address is None and not (wanted.grouped and _large(run, wanted.table))):
        if wanted.grouped:
            return _groups(wanted, [_reduced(run, table, wanted, condition, progress)])
        return _rows(run, table, wanted, condition, progress, default)
    work = partial(_of_part, wanted, tuple(default))
    found = each(work, parts, True, progress, address)
    if wanted.grouped:
        return _groups(wanted, found)
    whole = replace(table, pieces=lambda *_: map(FramePiece, found))
    return _rows(run, whole, wanted, None, None, default)


def _large(run: Source, table: str) -> bool:
    """Returns whether processes of their own are worth it for a table of a run on this machine."""
    if not isinstance(run, Run) or isinstance(run.path, Url):
        return False
    files = (process.path / f"{table}.bin" for process in run.processes)
    return sum(file.stat().st_size for file in files if file.is_file()) > WORTH


def parts_of(run: Source) -> Sequence[Source]:
    """Returns the parts of runs that workers can look at, one for each process."""
    if isinstance(run, Run):
        return [run.part([process]) for process in run.processes]
    return run.parts


def _of_part(wanted: Query, default: Sequence[str], run: Source) -> pd.DataFrame:
    """Returns what a part adds to the answer: its rows, or a row per group."""
    if isinstance(run, Run) and wanted.table in TRACE_TABLES:
        run = TracedRun(run)
    table = (run.tables if isinstance(run, RecordsFile) else TABLES)[wanted.table]
    condition = _condition(wanted, table)
    if wanted.grouped:
        return _reduced(run, table, wanted, condition, None)
    order = [*map(_bare, wanted.sort), *(table.order if wanted.sort else ())]
    columns = [*(wanted.fields or default or table.recorded), *order]
    part = replace(wanted, fields=list(dict.fromkeys(columns)))
    return join(list(_rows(run, table, part, condition, None, ())))


def _condition(wanted: Query, table: Table) -> Expression | None:
    conditions = [wanted.filter] if isinstance(wanted.filter, str) else wanted.filter
    if not conditions:
        return None
    return Expression(conditions, table.columns, wanted.table, "--filter")


def _check(option: str, columns: Iterable[str], known: Sequence[str], where: str) -> None:
    for column in columns:
        if column not in known:
            raise Error(f"{option} {column}: no such column; {where} has: {', '.join(known)}")


def _filtered(
    run: Source,
    table: Table,
    columns: Iterable[str],
    condition: Expression | None,
    ordered: bool,
    progress: Progress,
) -> Iterator[tuple[Piece, Array | None]]:
    """Yields pieces with these columns, and the rows that fulfil the condition, None for all."""
    named = (condition.columns or list(table.recorded[:1])) if condition else []
    for piece in table.pieces(run, list(dict.fromkeys([*columns, *named])), ordered, progress):
        if condition is None:
            yield piece, None
        else:
            frame = piece.take(named)
            yield piece, np.flatnonzero(condition.rows(frame))


# ---- rows ----


def _rows(
    run: Source,
    table: Table,
    wanted: Query,
    condition: Expression | None,
    progress: Progress,
    default: Sequence[str],
) -> Iterator[pd.DataFrame]:
    fields = list(dict.fromkeys(wanted.fields or default or table.recorded))
    _check("--sort", map(_bare, wanted.sort), table.columns, wanted.table)
    if not wanted.sort:
        pieces = _filtered(run, table, fields, condition, True, progress)
        return (
            _first(pieces, fields, wanted.top)
            if wanted.tail is None
            else _last(pieces, fields, wanted.tail)
        )
    by = [*wanted.sort, *table.order]
    columns = list(dict.fromkeys([*fields, *map(_bare, by)]))
    pieces = _filtered(run, table, columns, condition, False, progress)
    return iter([_tail(_best(pieces, columns, by, wanted.top), wanted.tail)[fields]])


def _bare(column: str) -> str:
    """Returns the name of a sort column without its sign."""
    return column.removeprefix("-")


def _first(
    pieces: Iterator[tuple[Piece, Array | None]], fields: list[str], top: int | None
) -> Iterator[pd.DataFrame]:
    given = 0
    for piece, rows in pieces:
        if top is not None:
            rows = (np.arange(len(piece)) if rows is None else rows)[: top - given]
        count = len(piece) if rows is None else len(rows)
        if count or not given:  # an answer without rows has columns still
            yield piece.take(fields, rows).reset_index(drop=True)
        given += count
        if top is not None and given >= top:
            break


def _last(
    pieces: Iterator[tuple[Piece, Array | None]], fields: list[str], tail: int
) -> Iterator[pd.DataFrame]:
    held: list[pd.DataFrame] = []
    count = 0
    for piece, rows in pieces:
        some = piece.take(fields, rows)
        held.append(_tail(some, tail))
        count += len(held[-1])
        while len(held) > 1 and count - len(held[0]) >= tail:
            count -= len(held.pop(0))
    yield _tail(join(held), tail)


def _tail(frame: pd.DataFrame, tail: int | None) -> pd.DataFrame:
    if tail is None:
        return frame
    return frame.iloc[max(len(frame) - tail, 0) :].reset_index(drop=True)


def _best(
    pieces: Iterator[tuple[Piece, Array | None]],
    columns: list[str],
    order: Sequence[str],
    top: int | None,
) -> pd.DataFrame:
    held: list[pd.DataFrame] = []
    count = 0
    for piece, rows in pieces:
        if top is not None:
            rows = _candidates(piece, rows, order[0], top)
        some = piece.take(columns, rows)
        if len(some) or not held:
            held.append(some)
            count += len(some)
        if top is not None and count > max(HELD, 4 * top):
            held = [ordered(join(held), order).iloc[:top]]
            count = len(held[0])
    return ordered(join(held), order).iloc[:top].reset_index(drop=True)


def _candidates(piece: Piece, rows: Array | None, by: str, top: int) -> Array | None:
    """Returns the rows that can be among the first `top` by a column, all if that is unknown."""
    count = len(piece) if rows is None else len(rows)
    if count <= top:
        return rows
    name = _bare(by)
    keys = column_value(piece.take([name], rows)[name])
    if not isinstance(keys, Numbers) or not top:
        return rows
    present = keys.present
    known = keys.values[present]
    if len(known) < top:  # what is missing comes last, but it comes
        return rows
    position = len(known) - top if by.startswith("-") else top - 1
    border = np.partition(known, position)[position]
    kept = present & (keys.values >= border if by.startswith("-") else keys.values <= border)
    return np.flatnonzero(kept) if rows is None else rows[kept]


def _check_values(frame: pd.DataFrame, columns: Iterable[str]) -> None:
    """Raises Error for columns that have no order and no sum."""
    for column in columns:
        if len(frame) and is_list(frame[column]):
            raise Error(f"{column} is a list: it cannot be sorted, grouped or aggregated")


def ordered(frame: pd.DataFrame, order: Sequence[str]) -> pd.DataFrame:
    """Sorts rows by columns. A column with "-" sorts in descending order."""
    _check_values(frame, map(_bare, order))
    for name in reversed(order):
        column = frame[_bare(name)]
        if isinstance(column.dtype, pd.CategoricalDtype):  # else by their first appearance
            column = column.cat.set_categories(sorted(column.cat.categories), ordered=True)
        column = column.reset_index(drop=True)
        by = column.sort_values(ascending=not name.startswith("-"), kind="stable")
        frame = frame.iloc[by.index.to_numpy()]
    return frame


# ---- groups ----


def _answer(wanted: Query) -> list[str]:
    """Returns the columns of an answer with groups."""
    figures = [f"{column}_{what}" for what, column in wanted.aggregates]
    count = wanted.count or not figures
    return [*dict.fromkeys(wanted.group_by), *(["count"] if count else []), *figures]


def _check_groups(wanted: Query) -> None:
    for option, names in (("--sort", wanted.sort), ("--fields", wanted.fields)):
        _check(option, map(_bare, names), _answer(wanted), "the answer")


def _reduced(
    run: Source, table: Table, wanted: Query, condition: Expression | None, progress: Progress
) -> pd.DataFrame:
    """Returns one row per group of a source, with all that _combined needs."""
    keys, figures = list(dict.fromkeys(wanted.group_by)), wanted.aggregates
    columns = list(dict.fromkeys([*keys, *(column for _, column in figures)]))
    columns = columns or list(table.recorded[:1])  # rows without columns have no count
    held: list[pd.DataFrame] = []
    rows = 0
    for piece, some in _filtered(run, table, columns, condition, False, progress):
        part = _part(piece.take(columns, some), keys, figures)
        if len(part) or not held:
            held.append(part)
            rows += len(part)
        if rows > HELD:
            held = [_combined(held, keys)]
            rows = len(held[0])
    return _combined(held, keys)


def _groups(wanted: Query, parts: list[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    """Yields the answer, from one row per group of each part."""
    keys, answer = list(dict.fromkeys(wanted.group_by)), _answer(wanted)
    parts = [part for part in parts if len(part)] or parts[:1]
    whole = _combined(parts, keys) if len(parts) > 1 else parts[0]
    for what, column in wanted.aggregates:
        if what in OF_SUMS:
            sums = _sums(whole, column)
            if what == "sum":
                whole[f"{column}_sum"] = _integers(sums) if f"{column}_high" in whole else sums
            elif what == "mean":
                whole[f"{column}_mean"] = _ratios(sums, whole[f"{column}_n"].tolist())
            else:
                every = sum(sums)
                whole[f"{column}_share"] = _ratios([100 * s for s in sums], [every] * len(sums))
    by = [*(["-count"] if "count" in answer else [f"-{answer[len(keys)]}"]), *keys]
    whole = ordered(whole, wanted.sort or by).iloc[: wanted.top]
    whole = whole[list(wanted.fields or answer)].reset_index(drop=True)
    return iter([_tail(whole, wanted.tail)])


def _part(piece: pd.DataFrame, keys: list[str], figures: list[tuple[str, str]]) -> pd.DataFrame:
    """Returns one row per group of a piece, with all that _combined needs."""
    _check_values(piece, [*keys, *(column for _, column in figures)])
    numbers = {}
    for what, column in figures:
        if isinstance(piece[column].dtype, pd.CategoricalDtype):
            raise Error(f"{column} is text: sum, min, max and mean need a numeric column")
        values = piece[column]
        numbers[column] = values.astype("i8") if values.dtype == bool else values
        if what in OF_SUMS and not pd.api.types.is_float_dtype(values.dtype):
            numbers |= _halves(column, numbers[column])
    by = [piece[key] for key in keys] or [pd.Series(np.zeros(len(piece), "u1"), piece.index)]
    made: dict[str, pd.Series] = {}
    whole = pd.DataFrame(numbers, index=piece.index)
    groups = whole.groupby(by, observed=True, sort=False, dropna=False)
    made["count"] = groups.size()
    for what, column in figures:
        if what in OF_SUMS:
            whole_numbers = f"{column}_high" in numbers
            for part in (f"{column}_high", f"{column}_low") if whole_numbers else (column,):
                made[part if whole_numbers else f"{column}_sum"] = groups[part].sum()
        if what == "mean":
            made[f"{column}_n"] = groups[column].count()
        if what in ("min", "max"):
            made[f"{column}_{what}"] = getattr(groups[column], what)()
    table: pd.DataFrame = pd.DataFrame(made)
    table = table.rename_axis(keys).reset_index() if keys else _one(table)
    return table


def _halves(column: str, values: pd.Series) -> dict[str, pd.Series]:
    """Splits integers into high * 2**32 + low, whose sums do not overflow."""
    numbers = column_value(values)
    assert isinstance(numbers, Numbers)
    bits = numbers.values.dtype.type(32)
    low = numbers.values & numbers.values.dtype.type(0xFFFFFFFF)
    parts = {"high": numbers.values >> bits, "low": low}
    return {f"{column}_{n}": pd.Series(v.astype("i8"), values.index) for n, v in parts.items()}


def _sums(whole: pd.DataFrame, column: str) -> list[Any]:
    """Returns the sum of each group, exact for integers."""
    if f"{column}_high" not in whole:
        return list(whole[f"{column}_sum"])
    pairs = zip(whole[f"{column}_high"].tolist(), whole[f"{column}_low"].tolist(), strict=True)
    return [(high << 32) + low for high, low in pairs]


def _integers(values: list[int]) -> Any:
    """Returns integers as a column of a type that holds them all."""
    low, high = min(values, default=0), max(values, default=0)
    if low >= -1 << 63 and high < 1 << 64:
        return np.array(values, "i8" if high < 1 << 63 else "u8" if low >= 0 else "object")
    return np.array(values, "object")


def _ratios(above: list[Any], below: list[Any]) -> Any:
    """Returns quotients, rounded once, missing for a division by 0."""
    pairs = zip(above, below, strict=True)
    return pd.array([a / b if b else pd.NA for a, b in pairs], "Float64")


def _one(part: pd.DataFrame) -> pd.DataFrame:
    """Returns the row of the only group, even if there are no rows."""
    if not len(part):
        sums = ("_sum", "_high", "_low", "_n")
        zero = {c: 0 if c == "count" or c.endswith(sums) else pd.NA for c in part.columns}
        part = pd.DataFrame([zero]).astype("Int64")
    return part.reset_index(drop=True)


def _combined(parts: list[pd.DataFrame], keys: list[str]) -> pd.DataFrame:
    """Combines the rows of several pieces into one per group."""
    whole = join(parts)
    how = {c: c.rpartition("_")[2] for c in whole.columns if c not in keys}
    by = [whole[key] for key in keys] or [pd.Series(np.zeros(len(whole), "u1"))]
    groups = whole[list(how)].groupby(by, observed=True, sort=False, dropna=False)
    made = {c: getattr(groups[c], w if w in ("min", "max") else "sum")() for c, w in how.items()}
    combined: pd.DataFrame = pd.DataFrame(made)
    combined = combined.rename_axis(keys or None).reset_index(drop=not keys)
    return combined


# ---- pieces ----
