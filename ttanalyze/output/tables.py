"""Writes tables: aligned text, CSV, JSON, lines of JSON, Parquet."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from typing import Any, BinaryIO

import numpy as np
import orjson
import pandas as pd

from ttanalyze.errors import Error
from ttanalyze.output import text
from ttanalyze.output.times import as_nanoseconds

FORMATS = ("table", "csv", "json", "ndjson", "parquet")
SHOWN = 50  # rows of a text table, unless more are asked for
OBJECTS = 1 << 12  # rows that are made to JSON at a time
ADDRESSES = {
    *("base", "dst", "src", "digest", "image", "active_mask", "desc_addr", "func_addr"),
    "tma_global_address",
}
LANES = {"addrs"}  # lists of addresses, one for each lane
PARTS = 4  # of such a list that a table for a screen has
IDS = (
    "process thread region epoch function module context device stream graph node parent id born "
    "died segment result flags"
)
UNGROUPED = {*IDS.split()}  # numbers that are names


def cells(column: Any) -> list[str]:
    """Returns the values of a column as text: grouped digits, hexadecimal addresses, "-" for
    missing values.
    """
    name, missing = str(column.name), column.isna().tolist()
    if column.dtype == bool:
        shown = ["yes" if value else "no" for value in column.tolist()]
    elif not pd.api.types.is_numeric_dtype(column.dtype):
        values = column.tolist()
        if name in LANES:
            values = [_lanes_text(v) if isinstance(v, np.ndarray) else v for v in values]
        shown = [f"{v:,}" if isinstance(v, int) else str(_as_text(v)) for v in values]
    elif pd.api.types.is_float_dtype(column.dtype):
        numbers = column.to_numpy("f8", na_value=0.0).tolist()
        shown = [f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}" for value in numbers]
    elif name in ADDRESSES:
        shown = ["" if gone else f"{value:#x}" for value, gone in zip(column, missing, strict=True)]
    else:
        grouping = "" if name in UNGROUPED else ","
        values = zip(column.tolist(), missing, strict=True)
        shown = ["" if gone else format(value, grouping) for value, gone in values]
    return ["-" if gone else value for value, gone in zip(shown, missing, strict=True)]


def _as_text(value: Any) -> Any:
    """Returns a list as JSON, other values unchanged."""
    if isinstance(value, np.ndarray):
        return orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY).decode()
    return value


def _lanes_text(addresses: Any) -> str:
    """Returns what lanes access: those with equal distances as `0x7f00 +4 x32`.

    0 is a lane that accesses nothing, or the beginning of shared memory.
    """
    used, shown = addresses[addresses != 0].tolist(), 0
    out: list[str] = []
    if (
        len(used) > 1
        and len(used) == len(addresses) - 1
        and not addresses[0]
        and used[1] == 2 * used[0]
    ):
        used = [0, *used]
    while shown < len(used) and len(out) < PARTS:
        step = used[shown + 1] - used[shown] if shown + 1 < len(used) else 0
        end = shown + 1
        while end < len(used) and used[end] - used[end - 1] == step:
            end += 1
        count = end - shown if end - shown > 2 or not step else 1  # two always have one distance
        distance = f" {step:+d}" if step and count > 1 else ""
        out.append(f"{used[shown]:#x}{distance}" + (f" x{count}" if count > 1 else ""))
        shown += count
    return ", ".join(out) + (f" and {len(used) - shown} more" if shown < len(used) else "")


def frame_text(frame: pd.DataFrame, width: int = 0) -> str:
    """Returns a table for a screen. width: of the screen in characters, 0 for no limit."""
    columns = [[str(name), *cells(frame[name])] for name in frame.columns]
    kinds = [frame[name].dtype for name in frame.columns]
    numbers = {i for i, kind in enumerate(kinds) if pd.api.types.is_numeric_dtype(kind)}
    return text.table([list(row) for row in zip(*columns, strict=True)], numbers, width)


def table_text(
    pieces: Iterator[pd.DataFrame], most: int | None, width: int = 0, header: bool = True
) -> str:
    """Returns the first rows of a table for a screen, and the number of rows if there are more."""
    shown: list[pd.DataFrame] = []
    rows = given = 0
    for piece in pieces:
        room = len(piece) if most is None else most - given
        if room > 0 or not shown:
            shown.append(piece.iloc[:room])
            given += len(shown[-1])
        rows += len(piece)
    frame = join(shown)
    if not len(frame):
        return "no rows"
    out = frame_text(frame, width)
    out = out if header else out.partition("\n")[2]
    if rows > given:
        out += f"\n… and {rows - given:,} more rows (--top N shows N, --format csv all)"
    return out


def join(pieces: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Returns tables as one. Their categories may differ."""
    if len(pieces) == 1:
        return pieces[0].reset_index(drop=True)
    for column in pieces[0].columns:
        kinds: list[Any] = [piece[column].dtype for piece in pieces]
        if isinstance(kinds[0], pd.CategoricalDtype) and any(k != kinds[0] for k in kinds):
            names = dict.fromkeys(name for kind in kinds for name in kind.categories)
            index = pd.Index(list(names), dtype="object")
            pieces = [p.assign(**{column: p[column].cat.set_categories(index)}) for p in pieces]
    return pd.concat(pieces, ignore_index=True)


def as_records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Returns one dictionary per row, for JSON: None for missing values, times in nanoseconds."""
    frame = as_nanoseconds(frame)
    return frame.astype("object").where(~frame.isna(), None).to_dict("records")


def written(pieces: Iterator[pd.DataFrame], form: str, header: bool = True) -> Iterator[str]:
    """Yields a table as csv, json (a list of objects) or ndjson (an object per line), in pieces."""
    makers: dict[str, Callable[[Iterator[pd.DataFrame]], Iterator[str]]] = {
        "csv": lambda pieces: _csv(pieces, header),
        "json": _json,
        "ndjson": _ndjson,
    }
    return makers[form](pieces)


def _csv(pieces: Iterator[pd.DataFrame], header: bool) -> Iterator[str]:
    for i, piece in enumerate(pieces):
        listed = [name for name in piece.columns if piece[name].dtype == object]
        piece = piece.assign(**{name: piece[name].map(_as_text) for name in listed})
        yield piece.to_csv(index=False, header=header and i == 0)


def _ndjson(pieces: Iterator[pd.DataFrame]) -> Iterator[str]:
    for rows in _objects(pieces):
        yield b"\n".join(rows).decode() + "\n"


def _json(pieces: Iterator[pd.DataFrame]) -> Iterator[str]:
    lead = "[\n"
    for rows in _objects(pieces):
        yield lead + b",\n".join(rows).decode()
        lead = ",\n"
    yield "[]\n" if lead == "[\n" else "\n]\n"


def _objects(pieces: Iterator[pd.DataFrame]) -> Iterator[list[bytes]]:
    """Yields rows as JSON objects, some at a time. Missing values are null."""
    for piece in pieces:
        names = [str(name) for name in piece.columns]
        for at in range(0, len(piece), OBJECTS):
            some = piece.iloc[at : at + OBJECTS]
            columns = []
            for name in some.columns:
                values = some[name].astype("object")
                values = values.where(~some[name].isna(), None).tolist()
                if some[name].dtype == object:
                    values = [_large(value) for value in values]
                columns.append(values)
            rows = zip(*columns, strict=True)
            numpy = orjson.OPT_SERIALIZE_NUMPY
            yield [orjson.dumps(dict(zip(names, row, strict=True)), option=numpy) for row in rows]


def _large(value: Any) -> Any:
    """Returns an integer of more than 64 bits for JSON."""
    return orjson.Fragment(str(value)) if isinstance(value, int) else value


def write_parquet(pieces: Iterator[pd.DataFrame], file: BinaryIO) -> None:
    """Writes a table as a Parquet file. Raises Error if pyarrow is missing."""
    pyarrow, parquet = load_parquet()
    writer = None
    try:
        for piece in pieces:
            for name in piece.columns:  # dictionaries would have to be the same in all pieces
                if isinstance(piece[name].dtype, pd.CategoricalDtype):
                    piece = piece.assign(**{name: piece[name].astype("string")})
                elif piece[name].dtype == object:  # whole numbers of more than 64 bits, or lists
                    wide = [Decimal(v) if isinstance(v, int) else _as_text(v) for v in piece[name]]
                    kind = "object" if any(isinstance(v, Decimal) for v in wide) else "string"
                    piece = piece.assign(**{name: pd.Series(wide, piece.index, kind)})
            made = pyarrow.Table.from_pandas(piece, preserve_index=False)
            writer = writer or parquet.ParquetWriter(file, made.schema)
            writer.write_table(made.cast(writer.schema))
    finally:
        if writer is not None:
            writer.close()


def load_parquet(option: str = "--format parquet") -> tuple[Any, Any]:
    """Returns the modules that write Parquet. Raises Error if they are missing."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise Error(f"{option} needs pyarrow: pip install 'ttanalyze[scale]'") from None
    return pyarrow, pyarrow.parquet
