"""`ttanalyze demo` records its programs and finds what is wrong with them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import ttanalyze as tt
from docs.tools import screenshot
from tests import support
from tests.support import Cli

pytestmark = [pytest.mark.native, pytest.mark.large]


def test_tour_finds_what_was_changed(tmp_path: Path) -> None:
    words = ("demo", "--sim", "-o", tmp_path / "a" / "tour")
    told = support.ttanalyze(*words)
    assert told.status == 0 and told.stdout.startswith("Running on the simulator")
    assert "first diverges in epoch 5, region 0 at byte 131072" in told.stdout
    assert re.search(r"call 24, stream 1: square <<<1, 64>>>", told.stdout)
    assert len(tt.open(tmp_path / "a" / "tour" / "first").epochs) == 8
    short = re.sub(r"/\S*/(?=vecadd|python|overflow\.py)", "", told.stdout)
    now = screenshot.svg(screenshot.chosen(short.replace(f"{tmp_path}/a/tour", "demo")))
    assert screenshot.texts(now) == screenshot.texts(screenshot.TARGET.read_text())
    again = support.ttanalyze(*words, "--json")
    tour = json.loads(again.stdout)
    assert [step["command"][0] for step in tour["steps"]] == [
        *("record", "verify", "record", "diff", "record", "blame"),
    ]
    assert [step["status"] for step in tour["steps"]] == [0, 0, 0, 1, 0, 0]
    assert tour["place"] == "simulator" and not tour["torch"]


def test_tour_names_what_stands_in_its_way(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    outcome = cli("demo", "--sim", "-o", tmp_path / "file" / "tour")
    assert (outcome.status, outcome.stderr) == (
        2,
        f"ttanalyze: {tmp_path}/file/tour: Not a directory\n",
    )
    monkeypatch.setenv("TT_LIB", str(tmp_path))
    outcome = cli("demo", "--sim", "-o", tmp_path / "tour")
    assert outcome.status == 2 and "demo/vecadd: missing; build the project" in outcome.stderr
    assert not (tmp_path / "tour").exists()


def test_tour_works_beside_a_clone_that_was_not_built(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`pip install .` and then `ttanalyze demo`, as the first page says, both in the clone."""
    (tmp_path / "ttanalyze").mkdir()
    for name in ("__init__.py", "__main__.py"):
        (tmp_path / "ttanalyze" / name).write_text("raise ImportError('not built')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    outcome = cli("demo", "--sim", "-o", "tour")
    assert outcome.status == 0, outcome.stderr
