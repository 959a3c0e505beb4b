"""Races between streams: found where a wait is missing, named, and not where nothing is missing."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import ttanalyze as tt
from tests import support
from tests.rundir import Writer
from tests.support import Cli, Outcome
from ttanalyze.cli import run_command
from ttanalyze.core.order import calls_between, unordered
from ttanalyze.verbs.race import Settings
from ttanalyze.verbs.race.instructions import counterpart
from ttanalyze.verbs.race.search import Race


@dataclass(frozen=True)
class Searched:
    folder: Path
    outcome: Outcome
    report: dict[str, Any]


@pytest.fixture(scope="module")
def searched(built: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[bool, Searched]:
    """`ttanalyze race` of a program that forgets to wait, and of one that waits."""
    examples = support.build_examples(built / "examples")
    out = {}
    for fixed in (False, True):
        folder = tmp_path_factory.mktemp("race") / "search"
        command = [str(examples / "handoff"), *(["--fixed"] if fixed else [])]
        runs = "2" if fixed else "10"
        options = ["--sim", "-o", str(folder), "--runs", runs, "--launch-delay", "1500000"]
        command += ["--steps", "3"]
        surroundings = support.bare_environment(TT_DELAY="7", TT_LAUNCH_DELAY="7")
        outcome = support.ttanalyze("race", *options, "--", *command, environment=surroundings)
        assert not fixed or outcome.stderr == ""
        report = json.loads((folder / "report.json").read_text())
        out[fixed] = Searched(folder, outcome, report)
    return out


@pytest.mark.native
@pytest.mark.large
def test_race_finds_a_missing_wait(searched: dict[bool, Searched]) -> None:
    found = searched[False]
    assert found.outcome.status == 1
    finding = found.report["findings"][0]
    pair = finding["pairs"][0]
    kernels = [pair[which]["kernel"] for which in ("first", "second")]
    assert kernels == ["make_values", "use_values"]
    assert pair["first"]["delayed"] and not pair["second"]["delayed"]
    late = finding["late"]
    assert finding["reduced"] and len(late) == 1 < finding["before"]
    assert late[0]["kernel"] == "make_values" and late[0]["where"] != "host"
    assert pair["region"] == 0  # the values, not the sums, which differ
    assert finding["diff"]["processes"][0]["divergences"][0]["region_a"] == 1
    assert "stream 17 does not wait for stream 16" in found.outcome.stdout
    assert "make_values (call " in found.outcome.stdout
    assert f"minimal    1 delay of {finding['before']}" in found.outcome.stdout
    assert f"record --sim --delay-load {finding['delays']} -- " in found.outcome.stdout
    assert Path(finding["run"]).is_dir() and Path(finding["delays"]).is_file()


@pytest.mark.native
@pytest.mark.large
def test_race_prints_a_finding_before_it_reduces(searched: dict[bool, Searched]) -> None:
    """The pair is known from the first run that differs; the likely delay is tried first."""
    found = searched[False]
    finding = found.report["findings"][0]
    early = found.outcome.stderr
    assert f"looking for the fewest of {finding['before']} delays" in early
    assert "stream 17 does not wait for stream 16" in early and "minimal" not in early
    assert 0 < finding["tests"] <= 5


@pytest.mark.native
@pytest.mark.large
def test_search_directory_is_private(searched: dict[bool, Searched]) -> None:
    for path in (folder := searched[False].folder, *folder.iterdir()):
        assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600), path


@pytest.mark.native
@pytest.mark.large
def test_race_finds_nothing_in_a_correct_program(searched: dict[bool, Searched]) -> None:
    right = searched[True]
    assert right.outcome.status == 0
    assert right.outcome.stdout.startswith("nothing found: 2 runs with delays gave the same result")
    assert not right.report["found"] and right.report["runs"] == 2
    assert [path.name for path in right.folder.glob("seed-*")] == []


@pytest.mark.native
@pytest.mark.large
def test_interrupted_search_resumes(searched: dict[bool, Searched], cli: Cli) -> None:
    """What was recorded is not recorded again; other options need another folder."""
    found = searched[False]
    before = (found.folder / "reference" / "run.json").stat().st_mtime_ns
    program = found.report["command"]
    options = ["--sim", "-q", "--no-reduce", "-o", found.folder, "--runs", "10"]
    options += ["--launch-delay", "1500000"]
    again = cli("race", *options, "--json", "--", *program)
    assert again.status == 1
    report = json.loads(again.stdout)
    assert [f["seed"] for f in report["findings"]] == [f["seed"] for f in found.report["findings"]]
    assert (found.folder / "reference" / "run.json").stat().st_mtime_ns == before
    seed = report["findings"][0]["seed"]
    (found.folder / f"seed-{seed}.status").write_text("")  # killed while it was written
    anew = json.loads(cli("race", *options, "--json", "--", *program).stdout)["findings"][0]
    assert anew["seed"] == seed and anew["pairs"]
    state = found.folder / "race.json"
    whole = state.read_text()
    state.write_text(whole.replace('"same": [', '"same": 5, "more": ['))
    damaged = cli("race", *options, "--", *program)
    assert damaged.status == 2 and f"{state}: same: expected a list" in damaged.stderr
    state.write_text(whole)
    other = cli("race", *options[:-1], "9", "--", *program)
    assert other.status == 2 and "has a search with other options" in other.stderr


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--delay", "x", "--", "true"], "--delay x: expected a time of at most 100ms"),
        (["--delay", "0", "--launch-delay", "0", "--", "true"], "nothing would be delayed"),
        (["--runs", "0", "--", "true"], "--runs 0: expected a number from 1"),
        (["--seed", "-1", "--", "true"], "--seed -1: expected a number from 0"),
        (["--", "no-such-program"], "no-such-program"),
        (["-o", "/", "--", "true"], "exists"),
        (["--tolerance", "1", "--dtype", "f99", "--", "true"], "f99"),
    ],
)
def test_invalid_arguments_are_errors(
    arguments: list[str], why: str, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    outcome = cli("race", "--sim", "-q", *arguments)
    assert outcome.status == 2 and outcome.stdout == ""
    assert why in outcome.stderr and outcome.stderr.count("\n") == 1


def test_failed_search_can_be_replaced(cli: Cli, tmp_path: Path) -> None:
    """Another one takes its folder; what the program said is kept."""
    asked = ("race", "--sim", "-q", "-o", tmp_path / "search", "--")
    assert "not found" in cli(*asked, "./no-such-program").stderr
    assert not (tmp_path / "search").exists()
    refused = cli(*asked, "sh", "-c", "echo no such option").stderr
    log = Path(refused.rstrip().rpartition(" in ")[2])
    assert "nothing recorded" in refused and log.read_text() == "no such option\n"


@pytest.mark.native
@pytest.mark.large
def test_failing_program_is_no_race(cli: Cli, built: Path, tmp_path: Path) -> None:
    """That is no difference."""
    program = support.command("exit_sigkill", built)
    asked = (
        "race",
        "--sim",
        "-q",
        "-o",
        tmp_path / "search",
        "--runs",
        "1",
        "--delay",
        "5",
        "--keep",
    )
    outcome = cli(*asked, "--", *program)
    assert outcome.status == 0, outcome.stdout
    assert "note: runs without delays end with status 137" in outcome.stdout


def test_force_replaces_only_searches(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    assert run_command(["race", "--sim", "-f", "-o", str(tmp_path), "--", "true"]) == 2
    assert (tmp_path / "file").read_text() == "mine"


# ---- what orders calls ----


def ordered(writer: Writer, path: Path, first: int, second: int) -> bool:
    writer.close()
    calls = calls_between(tt.open(path).processes[0], 0, second)
    by_seq = {call.event.seq: call for call in calls}
    return not unordered(by_seq[first], by_seq[second])


@pytest.mark.parametrize(
    ("between", "expected"),
    [
        ([], False),
        ([("event-record", 16, 7), ("event-wait", 17, 7)], True),
        ([("event-record", 16, 7), ("event-wait", 17, 8)], False),
        ([("event-wait", 17, 7), ("event-record", 16, 7)], False),
        ([("event-record", 16, 7), ("event-wait", 18, 7)], False),
        (
            [
                ("event-record", 16, 7),
                ("event-wait", 18, 7),
                ("event-record", 18, 8),
                ("event-wait", 17, 8),
            ],
            True,
        ),
        ([("sync", 16, 0)], True),
        ([("sync", 17, 0)], False),
        ([("sync", 0, 0)], True),
        ([("event-record", 16, 7), ("sync", 0, 7)], True),
        ([("event-record", 17, 7), ("sync", 0, 7)], False),
        ([("launch", 1, 0)], True),
        ([("launch", 18, 0)], False),
    ],
    ids=str,
)
@pytest.mark.parametrize("free", [False, True], ids=["blocking", "non-blocking"])
def test_happens_before_follows_streams_and_waits(
    between: list[tuple[str, int, int]], expected: bool, free: bool, run_path: Path
) -> None:
    """Launches in streams 16 and 17; the legacy default stream orders those that wait for it."""
    writer = Writer(run_path)
    for stream in (16, 17, 18):
        writer.event("stream-create", stream=stream, bytes=int(free))
    first = writer.event("launch", stream=16)
    for kind, stream, handle in between:
        writer.event(kind, stream=stream, src=handle)
    second = writer.event("launch", stream=17)
    if free and between == [("launch", 1, 0)]:
        expected = False
    assert ordered(writer, run_path, first, second) == expected


@pytest.mark.parametrize("before", [0, 1])
def test_wait_before_the_first_call_orders_calls(before: int, run_path: Path) -> None:
    """Only calls from the second launch on are asked for; the wait for the value is earlier."""
    writer = Writer(run_path)
    for stream in (16, 17, *range(20, 20 + before)):
        writer.event("stream-create", stream=stream, bytes=1)
    writer.event("mem-op", "cuStreamWaitValue32_v2", src=5, stream=17)
    after = writer.event("launch", stream=18)
    first = writer.event("launch", stream=16)
    writer.event("mem-op", "cuStreamWriteValue32_v2", dst=5, stream=16)
    second = writer.event("launch", stream=17)
    writer.close()
    calls = calls_between(tt.open(run_path).processes[0], after, second)
    by_seq = {call.event.seq: call for call in calls}
    assert first in by_seq and not unordered(by_seq[first], by_seq[second])


# ---- within kernels ----


def rows(*texts: str) -> list[dict[str, Any]]:
    return [{"pc": 16 * i, "sass": text} for i, text in enumerate(texts)]


@pytest.mark.parametrize(
    ("code", "late", "other"),
    [
        (["STS [R0], R1 ;", "IADD3 R1, R1, 1, RZ ;", "LDS R2, [R3] ;"], 0, 2),
        (["STS [R0], R1 ;", "BAR.SYNC 0x0 ;", "LDS R2, [R3] ;"], 0, 2),
        (["LDS R2, [R3] ;", "STS [R0], R1 ;", "BAR.SYNC 0x0 ;"], 1, 0),
        (["LDS R2, [R3] ;", "LDG.E R4, [R6] ;", "@P0 STS.64 [R0], R1 ;"], 0, 2),
        (["SYNCS.ARRIVE.TRANS64 RZ, [UR9] ;", "UBLKCP.S.G [UR8], [UR6] ;", "LDS R2, [R3] ;"], 0, 2),
        (["STG.E [R2], R3 ;", "LDS R2, [R3] ;", "LDG.E R4, [R6] ;"], 0, 2),
        (["STS [R0], R1 ;", "LD.E.STRONG.SYS R13, [R6] ;"], 0, 1),
        (["STS [R0], R1 ;", "EXIT ;"], 0, None),
        (["EXIT ;"], 0, None),
        (["", "NOP"], 64, None),
    ],
)
def test_calls_unordered_with_an_instruction(code: list[str], late: int, other: int | None) -> None:
    found = counterpart(rows(*code), 16 * late)
    assert (found and found["pc"]) == (None if other is None else 16 * other)


def test_search_tries_several_kernel_delays(tmp_path: Path) -> None:
    """What hides a race may take longer than any one delay."""
    search = Race(Settings(command=("true",), delay=10_000), tmp_path / "search")
    given = [search.variables(seed)["TT_DELAY"] for seed in range(1, 5)]
    assert given == ["10000", "100000", "10000", "100000"]
