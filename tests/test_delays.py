"""Delays between calls: what is correct stays so, what is not shows, and what was late is known."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

import ttanalyze as tt
from tests import support
from tests.support import Cli, Outcome
from ttanalyze.diff import diff
from ttanalyze.query import Query, query

pytestmark = pytest.mark.native
SIM = support.simulator_environment()
NS = "1500000"
SEEDS = range(4)


@pytest.fixture(scope="module")
def examples(built: Path) -> Path:
    return support.build_examples(built / "examples")


def record(run: Path, command: Sequence[str | Path], **options: str | int) -> Outcome:
    given = {"launch_delay": NS, **options}
    environment = support.recording(SIM, run, **{k: str(v) for k, v in given.items()})
    return support.run(command, environment)


def delayed(run: Path) -> dict[int, str]:
    """What was late, by call."""
    rows = query(tt.open(run), Query(filter="delayed.notna()", fields=["seq", "delayed"]))
    return dict(zip(rows["seq"], rows["delayed"], strict=True))


@pytest.fixture(scope="module")
def handoffs(
    examples: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[tuple[int, bool], tuple[Path, Outcome]]:
    """Runs of `handoff` by seed and whether it waits for the event."""
    out = {}
    for seed in SEEDS:
        for fixed in (False, True):
            run = tmp_path_factory.mktemp("handoff") / "run"
            command = [str(examples / "handoff"), *(["--fixed"] if fixed else [])]
            out[seed, fixed] = run, record(run, command, delay_seed=seed)
    return out


Handoffs = dict[tuple[int, bool], tuple[Path, Outcome]]


def test_a_missing_wait_shows(handoffs: Handoffs, examples: Path) -> None:
    right = support.run([examples / "handoff"], SIM)
    assert support.run([examples / "handoff", "--fixed"], SIM) == right
    assert {outcome.stdout for (_, fixed), (_, outcome) in handoffs.items() if fixed} == {
        right.stdout
    }
    wrong = [o.stdout for (_, fixed), (_, o) in handoffs.items() if not fixed]
    assert sum(stdout != right.stdout for stdout in wrong) >= 2
    report = diff(handoffs[0, False][0], handoffs[0, True][0])
    assert not report.memory_same
    same = diff(handoffs[1, True][0], handoffs[0, True][0])
    assert same.same


def test_which_calls_are_late(handoffs: Handoffs, examples: Path, tmp_path: Path) -> None:
    """Those that submit work, about half of them; the same for the same seed."""
    late = delayed(handoffs[0, True][0])
    assert late != delayed(handoffs[1, True][0])
    record(tmp_path / "again", [examples / "handoff", "--fixed"], delay_seed=0)
    assert delayed(tmp_path / "again") == late
    events = tt.open(handoffs[0, True][0]).events.set_index("seq")
    assert set(events.loc[list(late)]["kind"]) <= {"launch", "copy", "set"}
    submitted = events["kind"].isin(["launch", "copy", "set"]).sum()
    assert submitted / 4 < len(late) < submitted
    assert set(late.values()) == {"call", "stream", "call and stream"}
    for mode, what in (("host", "call"), ("stream", "stream")):
        run = tmp_path / mode
        record(run, [examples / "handoff", "--fixed"], launch_delay_mode=mode)
        assert set(delayed(run).values()) == {what}
        assert set(delayed(run)) <= set(late)


def test_late_work_is_late(handoffs: Handoffs, examples: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    record(run, [examples / "handoff", "--fixed"], timeline="events", launch_delay_mode="stream")
    rows = query(tt.open(run), Query(filter="kind == 'launch'", fields=["delayed", "queue_time"]))
    late = rows[rows["delayed"].notna()]["queue_time"]
    assert len(late) and late.min() >= int(NS)


@pytest.mark.parametrize(
    "command",
    [
        ["graph"],
        ["streams", "--host", "--graphs", "--steps", "60"],
        ["async"],
        ["managed"],
        ["pipeline"],
    ],
    ids=lambda command: command[0],
)
def test_nothing_changes(command: list[str], examples: Path, tmp_path: Path) -> None:
    program = [str(examples / command[0]), *command[1:]]
    bare = support.run(program, SIM)
    assert record(tmp_path / "run", program, launch_delay=200000, delay_seed=7) == bare
    run = tt.open(tmp_path / "run")
    assert tt.verify.verify(run, tmp_path / "run" / "manifest.json").same
    rows = query(run, Query(filter="delayed.notna()", fields=["flags", "delayed"]))
    assert len(rows)
    captured = rows[rows["flags"] & 1 != 0]
    assert set(captured["delayed"]) <= {"call"}


@pytest.mark.parametrize(
    "name",
    ["context_teardown", "exit_handler", "host_functions", "graph_capture", "fork_child_after"],
)
def test_programs_end_as_ever(name: str, built: Path, tmp_path: Path) -> None:
    """Also with delays under way."""
    command = support.command(name, built)
    bare = support.run(command, SIM)
    recorded = record(tmp_path / "run", list(command), launch_delay=20_000_000)
    assert (recorded.stdout, recorded.status) == (bare.stdout, bare.status)


def test_what_makes_no_sense(cli: Cli, examples: Path, tmp_path: Path) -> None:
    for option, value, why in (
        ("--launch-delay", "1s", "nanoseconds are expected, at most a second"),
        ("--launch-delay", "1000000001", "nanoseconds are expected, at most a second"),
        ("--launch-delay-mode", "never", "both, stream or host is expected"),
        ("--delay-seed", "x", "a whole number is expected"),
    ):
        refused = cli("record", "--sim", option, value, "--", "true")
        assert refused.status == 2
        assert f"{option} {value}: {why}" in refused.stderr
    outcome = record(tmp_path / "run", [examples / "handoff"], launch_delay="1e6")
    assert "TT_LAUNCH_DELAY=1e6: expected" in outcome.stderr and outcome.status == 0
