"""Writes of the host to page-locked memory that an asynchronous copy still has to read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import ttanalyze as tt
from tests import support
from tests.check import corpus
from tests.support import Cli
from ttanalyze.core.unordered import find_unordered

WAITS = ["stream-sync", "context-sync", "event-sync", "event-query", "stream-query"]
WAITS += ["stream-in-between"]
OTHERS = ["download", "kernel", "function", "function-tells", "value-tells", "wait-for-value"]
TOO_EARLY = ["nothing", "other-stream-sync", "event-before", "registered", "large", "loop"]
COPIED = 65536  # bytes: a block


def recorded(built: Path, path: Path, how: str, **options: str) -> tuple[pd.DataFrame, Any]:
    """The changes that the recorder saw, and the process."""
    program = support.build_program("recorder_host_writes", built)
    given = {"params": "1", "host_writes": "1", "contents": "none"} | options
    environment = support.recording(support.simulator_environment(), path, **given)
    outcome = support.run([program, how], environment)
    assert (outcome.stdout, outcome.status) == ("done\n", 0), outcome
    run = tt.open(path)
    return run.events.query("kind == 'source-change'"), run.processes[0]


@pytest.mark.native
@pytest.mark.parametrize("how", TOO_EARLY)
def test_a_write_before_the_copy_is_complete_is_found(
    built: Path, tmp_path: Path, how: str
) -> None:
    changes, process = recorded(built, tmp_path / "run", how)
    (found,) = find_unordered(process)
    assert found.sure and process.call(found.first.call.event.call) == "cuMemcpyHtoDAsync_v2"
    assert found.times == len(changes) and set(changes["thread"]) == {found.first.call.event.thread}
    assert len(changes) == (99 if how == "loop" else 1)


@pytest.mark.native
@pytest.mark.parametrize("how", [*WAITS, "pageable", "gone", "threads"])
def test_a_write_after_a_wait_is_not_found(built: Path, tmp_path: Path, how: str) -> None:
    _, process = recorded(built, tmp_path / "run", how, epoch="none")
    assert not find_unordered(process, every=True)


@pytest.mark.native
@pytest.mark.parametrize("how", OTHERS)
def test_what_others_may_have_written_or_told_is_a_guess(
    built: Path, tmp_path: Path, how: str
) -> None:
    changes, process = recorded(built, tmp_path / "run", how)
    assert not find_unordered(process)
    found = find_unordered(process, every=True)
    assert len(found) == len(changes) == 1 and not found[0].sure


@pytest.mark.native
def test_without_the_option_nothing_is_watched(built: Path, tmp_path: Path) -> None:
    changes, _ = recorded(built, tmp_path / "run", "nothing", host_writes="0")
    assert changes.empty


# ---- as a check ----


def checked(cli: Cli, program: Path, folder: Path, *arguments: str) -> Any:
    given = ("--sim", "--only", "order", "--json", "-q", "-o", folder)
    outcome = json.loads(cli("check", *given, "--", program, *arguments).stdout)["outcomes"][0]
    assert outcome["status"] == "found", outcome["reason"]
    (found,) = outcome["findings"]
    assert found["kind"] == "host write after read" and found["certainty"] == "confirmed"
    return found


def test_what_the_copy_brought_confirms_a_finding(cli: Cli, built: Path, tmp_path: Path) -> None:
    program = support.build_program("recorder_host_writes", built)
    found = checked(cli, program, tmp_path / "out", "nothing")
    assert found["call"]["call"] == "cuMemcpyHtoDAsync_v2"
    assert found["details"]["brought"] and found["details"]["times"] == 1
    assert found["memory"]["count"] == COPIED
    assert not list((tmp_path / "out").glob("order-*"))


def test_what_a_later_copy_brought_confirms_nothing(cli: Cli, tmp_path: Path) -> None:
    """The last copy is in order, and brings what the host wrote after the first. A delay of the
    host confirms the finding.
    """
    program = corpus.build(tmp_path)
    found = checked(cli, program, tmp_path / "out", "staging_reused")
    assert not found["details"]["brought"] and found["details"]["times"] == 5
    assert found["summary"].endswith("changes the result.")
