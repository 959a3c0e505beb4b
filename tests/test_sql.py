"""Questions in SQL, and saved queries."""

from __future__ import annotations

import json
import os
import signal
import threading
from pathlib import Path

import pytest

import ttanalyze as tt
from tests.rundir import Writer
from tests.support import Cli


def test_answers_are_those_of_query(cli: Cli, small: Writer, run_path: Path) -> None:
    """Tables are joined, and whole numbers stay whole where values are missing."""
    run = tt.open(run_path)
    counted = tt.query(run, table="regions", group_by=["kind"], sum=["size"], sort=["kind"])
    statement = "SELECT kind, sum(size) AS size FROM regions GROUP BY kind ORDER BY kind"
    assert tt.sql(run, statement).values.tolist() == counted[["kind", "size_sum"]].values.tolist()
    joined = tt.sql(
        run, "SELECT e.seq, r.size FROM events AS e LEFT JOIN regions AS r ON r.seq = e.seq"
    )
    sizes = dict(zip(run.regions["seq"], run.regions["size"], strict=True))
    assert joined["seq"].tolist() == run.events["seq"].tolist()
    assert joined["size"].dtype == "Int64" and joined["size"].isna().any()
    kept = joined.dropna()
    assert kept["size"].tolist() == [sizes[seq] for seq in kept["seq"]]
    text = cli("query", run_path, "--sql", "SELECT max(epoch) AS last FROM epochs", "--json")
    assert json.loads(text.stdout) == [{"last": int(run.epochs["epoch"].max())}]


def test_digests_are_hexadecimal(small: Writer, run_path: Path) -> None:
    run = tt.open(run_path)
    found = tt.sql(run, "SELECT digest FROM digests")["digest"].tolist()
    assert found == [f"{digest:016x}" for digest in tt.query(run, table="digests")["digest"]]


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("SELECT absent FROM regions", "no such column: absent; regions has process, region, kind"),
        ("SELECT 1 FROM nowhere", "no such table: nowhere; there are events, activities"),
        ("DELETE FROM regions", "only SELECT is possible"),
        ("ATTACH 'other.db' AS other", "only SELECT is possible"),
        ("SELECT name FROM sqlite_master", "only SELECT is possible"),
        ("SELECT 1; SELECT 2", "You can only execute one statement at a time."),
        ("SELECT e.seq, r.seq FROM events AS e, regions AS r", "two columns of the result"),
        ("SELECT abs(-9223372036854775808)", "integer overflow"),
        ("", "incomplete input"),
    ],
)
def test_wrong_statements_are_one_line(
    statement: str, said: str, cli: Cli, small: Writer, run_path: Path
) -> None:
    outcome = cli("query", run_path, "--sql", statement)
    assert (outcome.status, outcome.stdout) == (2, "")
    assert outcome.stderr.startswith(f"ttanalyze: --sql: {said}")
    assert outcome.stderr.count("\n") == 1


def test_sql_excludes_other_questions(cli: Cli, small: Writer, run_path: Path) -> None:
    outcome = cli("query", run_path, "--sql", "SELECT 1", "--filter", "seq > 1")
    assert outcome.stderr == "ttanalyze: --filter: cannot be combined with --sql\n"


def test_interrupted_question_ends(small: Writer, run_path: Path) -> None:
    endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT max(x) FROM n"
    interrupt = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
    interrupt.start()
    with pytest.raises(KeyboardInterrupt):
        tt.sql(tt.open(run_path), endless)
    interrupt.join()


@pytest.fixture
def saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path / "config" / "ttanalyze" / "queries.json"


def test_saved_query_is_asked_again(cli: Cli, small: Writer, run_path: Path, saved: Path) -> None:
    """With further options; also one in SQL."""
    options = ("--table", "regions", "--filter", "size > 0", "--group-by", "kind", "--count")
    first = cli("query", run_path, *options, "--save", "kinds", "--json")
    assert first.status == 0 and "--use kinds" in first.stderr
    assert cli("query", run_path, "--use", "kinds", "--json").stdout == first.stdout
    again = cli("query", run_path, "--use", "kinds", "--filter", "size < 0", "--json")
    assert (again.status, json.loads(again.stdout)) == (0, [])
    cli("query", run_path, "--sql", "SELECT count(*) AS n FROM events", "--save", "calls")
    answer = json.loads(cli("query", run_path, "--use", "calls", "--json").stdout)
    assert answer == [{"n": len(tt.open(run_path).events)}]
    assert list(json.loads(saved.read_text())) == ["kinds", "calls"]


def test_wrong_saved_options_are_one_line(
    cli: Cli, small: Writer, run_path: Path, saved: Path
) -> None:
    unknown = cli("query", run_path, "--use", "none")
    assert unknown.status == 2 and "--use none: no saved query of this name" in unknown.stderr
    assert "--save empty: no options to save" in cli("query", run_path, "--save", "empty").stderr
    saved.parent.mkdir(parents=True)
    for content in ("[1]", "{", '{"a": [1]}', '{"a": 1}'):
        saved.write_text(content)
        outcome = cli("query", run_path, "--use", "a")
        assert outcome.status == 2 and f"{saved}: not a file of saved queries" in outcome.stderr
        assert outcome.stderr.count("\n") == 1
