"""Numbers in questions: sums that no 64 bits hold, NaN, division by 0, against plain Python."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.rundir import Writer
from tests.support import Cli
from ttanalyze.core.run_tables import FramePiece, Table
from ttanalyze.output import tables
from ttanalyze.util.progress import Progress
from ttanalyze.verbs.query import Query, query
from ttanalyze.verbs.query.files import RecordsFile

LARGE = (1 << 64) - 1


def rows_of(frame: pd.DataFrame, path: Path, piece: int = 7) -> RecordsFile:
    """A frame as a table `t` that comes in pieces."""

    def pieces(
        _: Any, columns: Sequence[str], ordered: bool, progress: Progress
    ) -> Iterator[FramePiece]:
        for at in range(0, max(len(frame), 1), piece):
            yield FramePiece(frame.iloc[at : at + piece].reset_index(drop=True))

    path.write_text("")
    return RecordsFile(path, {"t": Table(tuple(frame.columns), (), tuple(frame.columns), pieces)})


def numbers(seed: int, rows: int = 60) -> pd.DataFrame:
    """Columns of every kind of number, with edges of their types among them."""
    random = np.random.default_rng(seed)
    unsigned = random.integers(0, LARGE, rows, "u8", endpoint=True)
    unsigned[random.random(rows) < 0.2] = random.choice(np.array([0, 1, 1 << 63, LARGE], "u8"))
    signed = random.integers(-(1 << 63), (1 << 63) - 1, rows, "i8", endpoint=True)
    signed[random.random(rows) < 0.2] = random.choice(np.array([0, -1, -(1 << 63), (1 << 63) - 1]))
    floats = random.standard_normal(rows) * 10.0 ** random.integers(-3, 4, rows)
    floats[random.random(rows) < 0.4] = np.nan
    small = random.integers(-3, 4, rows)
    missing = pd.arrays.IntegerArray(random.integers(0, 5, rows), random.random(rows) < 0.4)
    made: pd.DataFrame = pd.DataFrame(
        {
            "row": np.arange(rows),
            "group": small % 3,
            "u": unsigned,
            "i": signed,
            "f": floats,
            "s": small,
            "m": missing,
        }
    )
    return made


def plain(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows as Python has them, None for what is missing."""
    values = {
        name: [None if value is pd.NA or value != value else value for value in column.tolist()]
        for name, column in frame.items()
    }
    rows = zip(*values.values(), strict=True)
    return [dict(zip(map(str, values), row, strict=True)) for row in rows]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("column", ["u", "i", "f", "s", "m"])
@pytest.mark.parametrize("sign", ["", "-"])
def test_limited_sort_equals_full_sort(tmp_path: Path, seed: int, column: str, sign: str) -> None:
    frame = numbers(seed)
    source = rows_of(frame, tmp_path / "t")

    def place(row: dict[str, Any]) -> tuple[bool, Any]:
        value = row[column]
        return value is None, 0 if value is None else -value if sign else value

    wanted = [row["row"] for row in sorted(plain(frame), key=place)]
    for top in (1, 5, 30, 60, 100):
        found = query(source, Query("t", sort=[sign + column], top=top))
        assert found["row"].tolist() == wanted[:top], f"seed {seed}"


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("column", ["u", "i", "f", "s", "m"])
def test_sums_means_and_shares_are_exact(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, column: str
) -> None:
    monkeypatch.setattr("ttanalyze.verbs.query.execute.HELD", 2)
    frame = numbers(seed)
    source = rows_of(frame, tmp_path / "t")
    of = [column]
    asked = Query("t", group_by=["group"], sum=of, mean=of, share=of, sort=["group"])
    found = query(source, asked)
    groups: dict[int, list[Any]] = {}
    for row in plain(frame):
        some = groups.setdefault(row["group"], [])
        some += [] if row[column] is None else [row[column]]
    every = sum(Fraction(value) for some in groups.values() for value in some)
    for row, (_, some) in zip(plain(found), sorted(groups.items()), strict=True):
        total = sum(map(Fraction, some))
        same = row[f"{column}_sum"], row[f"{column}_mean"], row[f"{column}_share"]
        wanted = total, float(total / len(some)), float(total * 100 / every)
        if column == "f":
            assert same == pytest.approx(tuple(map(float, wanted)), rel=1e-9, abs=1e-9)
        else:
            assert same == wanted, f"seed {seed}"


def test_shares_of_fractions(tmp_path: Path) -> None:
    source = rows_of(pd.DataFrame({"k": [0, 1], "f": [0.1, 0.3]}), tmp_path / "t")
    found = query(source, Query("t", group_by=["k"], share=["f"], sort=["k"]))
    assert found["f_share"].tolist() == pytest.approx([25.0, 75.0])


def test_sum_above_64_bits_can_be_written(tmp_path: Path) -> None:
    wide = pd.DataFrame({"u": np.array([LARGE, LARGE, 7], "u8")})
    found = query(rows_of(wide, tmp_path / "t"), Query("t", sum=["u"], max=["u"]))
    assert found["u_sum"].tolist() == [2 * LARGE + 7]
    assert found["u_max"].tolist() == [LARGE]
    assert json.loads("".join(tables.written(iter([found]), "json"))) == [
        {"u_sum": 2 * LARGE + 7, "u_max": LARGE}
    ]
    assert "36,893,488,147,419,103,237" in tables.frame_text(found)
    with (tmp_path / "out").open("wb") as file:
        tables.write_parquet(iter([found]), file)
    assert [int(v) for v in pd.read_parquet(tmp_path / "out")["u_sum"]] == [2 * LARGE + 7]


def test_mean_time_lies_between_its_values(cli: Cli, run_path: Path) -> None:
    w = Writer(run_path)
    for _ in range(12):
        w.event("sync", "cuCtxSynchronize", time_ns=1_800_000_000_000_000_000)
    w.close()
    out = cli("query", run_path, "--mean", "time_ns", "--sum", "time_ns", "--json").stdout
    assert json.loads(out) == [
        {"time_ns_sum": 12 * 1_800_000_000_000_000_000, "time_ns_mean": 1.8e18}
    ]


CONDITIONS = [
    "u % 2 == 1",
    "u // 3 % 7 == 2",
    "u - i > 5",
    "i * s < u",
    "u * u % 5 == 1",
    "-i > 3",
    "-u < i",
    "s // group == 1",
    "row % group == 0",
    "row / s > 2",
    "10 // s > 2",
    "f / s > 1",
    "m * 3 - row > 1",
    "row // m == 2",
    "i // -1 == 0 - i",
    "(u + 1) * 0.5 > 1e18",
    "u + u >= 18446744073709551616",
    "i // s > 4 or i % s == 1",
]


@pytest.mark.parametrize("condition", CONDITIONS)
def test_arithmetic_equals_python(tmp_path: Path, condition: str) -> None:
    """What is missing, or divided by 0, meets no comparison."""
    for seed in range(4):
        frame = numbers(seed)
        wanted = []
        for row in plain(frame):
            try:
                met = eval(condition, {}, row)
            except (TypeError, ZeroDivisionError):
                met = "or" in condition.split() and bool(row["s"])
            wanted += [row["row"]] if met else []
        found = query(rows_of(frame, tmp_path / "t"), Query("t", condition))
        assert found["row"].tolist() == wanted, f"seed {seed}"


def test_division_by_the_missing_blocks_of_a_copy(cli: Cli, run_path: Path) -> None:
    w = Writer(run_path)
    w.function(0, "step")
    w.event("copy", "cuMemcpyHtoD_v2", bytes=8)
    launch = w.event("launch", "cuLaunchKernel", id=0, grid=[1, 1, 1], block=[2, 1, 1])
    w.close()
    out = cli("query", run_path, "--filter", "seq % block_x == 0", "--fields", "seq", "--json")
    assert json.loads(out.stdout) == [{"seq": launch}]
    out = cli("query", run_path, "--filter", "(seq % block_x).isna()", "--fields", "kind", "--json")
    assert json.loads(out.stdout) == [{"kind": "copy"}]
