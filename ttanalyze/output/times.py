"""Times in tables: timedeltas in Python, whole nanoseconds in queries, on the screen and in files.

A column whose name ends in `_ns` has whole nanoseconds everywhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import pandas as pd

UNITLESS = re.compile(r"(gpu_(begin|end|time)|(wait|queue)_time|time)(_(sum|mean|min|max))?")
MISSING = -1 << 63  # NaT
MOST = 1 << 63


def as_timedeltas(frame: pd.DataFrame, names: Iterable[str] | None = None) -> pd.DataFrame:
    """Returns a table with times as timedelta64[ns].

    names: the columns with nanoseconds. Default: those whose names say a time and no unit. A column
    with numbers of more than 64 bits stays as it is.
    """
    wanted = filter(UNITLESS.fullmatch, frame.columns) if names is None else names
    made = {name: _timedeltas(frame[name]) for name in wanted if name in frame}
    return frame.assign(**made) if made else frame


def _timedeltas(column: Any) -> Any:
    if not len(column):
        return pd.Series([], column.index, "m8[ns]")
    if pd.api.types.is_float_dtype(column.dtype):
        column = column.round()
    known = column.dropna()
    if len(known) and not -MOST < known.min() <= known.max() < MOST:
        return column
    whole = column.astype("Int64").to_numpy("i8", na_value=MISSING)
    return pd.Series(whole.view("m8[ns]"), column.index)


def as_nanoseconds(frame: pd.DataFrame) -> pd.DataFrame:
    """Returns a table with timedeltas as whole nanoseconds."""
    timed = frame.select_dtypes("timedelta")
    return frame.assign(**{name: _nanoseconds(timed[name]) for name in timed.columns})


def _nanoseconds(column: Any) -> Any:
    return pd.Series(column.to_numpy("m8[ns]").view("i8"), column.index, "Int64").mask(
        column.isna()
    )
