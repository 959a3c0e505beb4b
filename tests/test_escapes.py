"""What a run calls things, however it is meant: nothing of it acts on a terminal or a page."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from tests import rundir, support
from tests.rundir import Writer
from tests.support import Cli
from ttanalyze.output import text
from ttanalyze.verbs.export.write import _code

HOSTILE = "\x1b]0;owned\x07 \x9b2J \u202e <script>alert(1)</script>"
BAD = "\x1b\x07\x9b\u202e"
VERBS = (
    ("info",),
    ("memory",),
    ("memory", "--json"),
    ("blame", "-r", "0"),
    ("blame", "-r", "0", "--json"),
    ("verify", "--tamper", "0,0,1"),
    ("query", "--table", "regions"),
    ("query", "--table", "regions", "--format", "json"),
    ("query", "--table", "functions", "--format", "ndjson"),
    ("events",),
    ("graph",),
    ("manifest",),
)


@pytest.fixture
def hostile(run_path: Path) -> Path:
    """A run in which all that has a name has this one."""
    w = Writer(run_path)
    w.module(0, HOSTILE)
    w.function(0, HOSTILE)
    w.stack(1, [(HOSTILE, f"/{HOSTILE}", 1)])
    w.born(0, bytes(64), label=HOSTILE)
    w.name(0, 0, 64, HOSTILE, HOSTILE)
    w.event("launch", "cuLaunchKernel", id=0, grid=[1, 1, 1], block=[1, 1, 1], stack=1)
    w.write(0, 0, b"!")
    w.epoch("api", "full", label=HOSTILE)
    w.graph([{"function": 0, "grid": [1, 1, 1], "block": [1, 1, 1]}])
    w.warnings.append(HOSTILE)
    w.close(argv=[HOSTILE], devices=[{"ordinal": 0, "name": HOSTILE, "memory": 1}])
    rundir.edit(w.path / "events.bin", 0, stack=1)
    rundir.reseal_records(w.path / "events.bin")
    return run_path


def test_escape_sequences_of_a_run_are_not_printed(hostile: Path, cli: Cli) -> None:
    said = ""
    for verb, *words in VERBS:
        outcome = cli(verb, hostile, *words)
        assert outcome.status in (0, 1), (verb, outcome)
        said += outcome.stdout
        for printed in (outcome.stdout, outcome.stderr):
            assert not set(BAD) & set(printed), (verb, printed)
    assert "owned" in said


def test_json_keeps_the_original_text(hostile: Path, cli: Cli) -> None:
    rows = json.loads(cli("query", hostile, "--table", "regions", "--format", "json").stdout)
    assert rows[0]["label"] == HOSTILE


def test_csv_is_exact_except_on_a_terminal(hostile: Path, cli: Cli) -> None:
    words = ("query", "--table", "regions", "--format", "csv", "--fields", "label")
    assert HOSTILE in cli(words[0], hostile, *words[1:]).stdout
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "ttanalyze", words[0], str(hostile), *words[1:]]
    with subprocess.Popen(command, stdout=theirs, cwd=support.ROOT) as done:
        assert done.wait(60) == 0
    printed = os.read(ours, 65536).decode()
    os.close(ours)
    os.close(theirs)
    assert "owned" in printed and not set(BAD) & set(printed)


def test_escape_sequences_in_errors_are_removed(tmp_path: Path, cli: Cli) -> None:
    outcome = cli("info", tmp_path / HOSTILE.replace("/", ""))
    assert outcome.status == 2 and not set(BAD) & set(outcome.stderr)
    assert outcome.stderr.count("\n") == 1


def test_own_colours_are_kept() -> None:
    red = text.coloured("word", "red", True)
    assert text.screened(red + "\x1b[2J\x1b[8m", True) == red + r"\u001b[2J\u001b[8m"
    assert "\x1b" not in text.screened(red, False)
    assert json.loads(text.screened('"\U000e0001\x85é"', False)) == "\U000e0001\x85é"


def test_names_are_escaped_in_exported_pages() -> None:
    assert _code("a`b|c\n<i>") == r"`a\x60b\|c\n<i>`"


def test_report_is_escaped(hostile: Path, cli: Cli, tmp_path: Path) -> None:
    pytest.importorskip("plotly")
    page = tmp_path / "page.html"
    assert cli("report", hostile, "-o", page).status == 0
    assert "<script>alert(1)" not in page.read_text()
