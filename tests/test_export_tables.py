"""`ttanalyze export --sqlite` and `--parquet`: all tables, with what their columns mean."""

from __future__ import annotations

import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import ttanalyze as tt
from tests import support
from tests.rundir import Writer
from tests.support import Cli
from ttanalyze.core.meanings import meanings
from ttanalyze.core.run_tables import TABLES
from ttanalyze.output.times import as_nanoseconds
from ttanalyze.verbs.query import Query, query


def ask(database: Path, question: str) -> list[Any]:
    with closing(sqlite3.connect(database)) as connection:
        return connection.execute(question).fetchall()


@pytest.fixture
def database(cli: Cli, small: Writer, run_path: Path, tmp_path: Path) -> Path:
    path = tmp_path / "run.db"
    outcome = cli("export", run_path, "--sqlite", path)
    assert (outcome.status, outcome.stderr) == (0, "")
    return path


def test_sqlite_answers_as_query_does(database: Path, run_path: Path) -> None:
    run = tt.open(run_path)
    for name, table in TABLES.items():
        columns = [c for c in table.columns if c != "stack_text"]
        expected = as_nanoseconds(query(run, Query(name, fields=columns)))
        listed = ", ".join(f'"{c}"' for c in columns)
        found = ask(database, f"SELECT {listed} FROM {name}")
        assert len(found) == len(expected)
        for i, column in enumerate(columns):
            values = expected[column].astype("object")
            wanted = values.where(values.notna(), None).tolist()
            if column in ("digest", "image"):
                wanted = [f"{value:016x}" for value in wanted]
            assert [row[i] for row in found] == wanted, (name, column)


def test_calls_join_their_stacks(cli: Cli, run_path: Path, tmp_path: Path) -> None:
    w = Writer(run_path)
    w.stack(1, [("step", "/opt/train.py", 12), ("<module>", "/opt/train.py", 40)])
    w.function(0, "scale")
    seq = w.event("launch", "cuLaunchKernel", id=0, stack=1)
    w.activity("launch", seq, 100, 350, "scale")
    w.close()
    path = tmp_path / "run.db"
    assert cli("export", run_path, "--sqlite", path).status == 0
    question = (
        "SELECT short, gpu_time, function, line FROM events JOIN stacks USING (process, stack)"
    )
    assert ask(path, f"{question} ORDER BY depth") == [
        ("scale", 250, "step", 12),
        ("scale", 250, "<module>", 40),
    ]


def test_large_numbers_survive_sqlite(cli: Cli, run_path: Path, tmp_path: Path) -> None:
    w = Writer(run_path)
    w.event("copy", "cuMemcpyHtoD_v2", dst=(1 << 64) - 2, src=(1 << 63) - 1)
    w.close()
    path = tmp_path / "run.db"
    assert cli("export", run_path, "--sqlite", path).status == 0
    assert ask(path, "SELECT dst, src FROM events") == [("0xfffffffffffffffe", (1 << 63) - 1)]


def test_parquet_files_hold_the_tables(
    cli: Cli, small: Writer, run_path: Path, tmp_path: Path
) -> None:
    pytest.importorskip("pyarrow")
    folder = tmp_path / "tables"
    for _ in range(2):  # a second export replaces the first
        outcome = cli("export", run_path, "--parquet", folder, "--json")
        assert outcome.status == 0, outcome.stderr
    rows = json.loads(outcome.stdout)["rows"]
    assert {path.name for path in folder.iterdir()} == {f"{name}.parquet" for name in rows}
    run = tt.open(run_path)
    for name in TABLES:
        assert (
            len(pd.read_parquet(folder / f"{name}.parquet"))
            == rows[name]
            == len(query(run, Query(name)))
        )


def test_every_column_has_a_meaning(database: Path) -> None:
    said = ask(database, 'SELECT "table", "column", meaning FROM columns')
    there = {
        (table, row[1]) for table in TABLES for row in ask(database, f"PRAGMA table_info({table})")
    }
    assert {(table, column) for table, column, _ in said} == there
    assert all(meaning for _, _, meaning in said)


def test_the_page_of_tables_documents_every_column() -> None:
    page = (support.ROOT / "docs" / "reference" / "tables.md").read_text()
    for table in TABLES:
        for column, meaning in meanings(table).items():
            assert re.search(rf"`{column}`|… `", page), (table, column)
            assert meaning, (table, column)


def test_empty_run_has_empty_tables(cli: Cli, run_path: Path, tmp_path: Path) -> None:
    Writer(run_path).close()
    path = tmp_path / "run.db"
    assert cli("export", run_path, "--sqlite", path).status == 0
    assert {name: ask(path, f"SELECT count(*) FROM {name}") for name in TABLES} == {
        name: [(0,)] for name in TABLES
    }


def test_wrong_use_is_one_line(cli: Cli, small: Writer, run_path: Path, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("kept")
    for arguments, said in (
        ((), "needs -o DIR for a launch, or --sqlite FILE or --parquet DIR"),
        (("--sqlite", tmp_path), "is a directory"),
        (("--sqlite", "/dev/null"), "not a regular file"),
        (("--sqlite", file, "--launch", "3"), "leave out --launch"),
        (("--parquet", file), "not a directory"),
        (("--parquet", tmp_path / "no" / "folder"), "does not exist"),
    ):
        outcome = cli("export", run_path, *arguments)
        assert outcome.status == 2
        assert said in outcome.stderr and outcome.stderr.count("\n") == 1
    assert file.read_text() == "kept"


def test_failed_export_leaves_the_old_file(
    cli: Cli, small: Writer, run_path: Path, tmp_path: Path
) -> None:
    path = tmp_path / "run.db"
    path.write_text("kept")
    events = small.path / "events.bin"
    raw = bytearray(events.read_bytes())
    raw[-40] ^= 1
    events.write_bytes(raw)
    assert cli("export", run_path, "--sqlite", path).status == 2
    assert path.read_text() == "kept"
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []
