"""Delays between calls: what is correct stays so, what is not shows, and what was late is known."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import pytest

import ttanalyze as tt
from tests import support
from tests.support import Cli, Outcome
from ttanalyze.core import delays
from ttanalyze.verbs.diff import diff
from ttanalyze.verbs.query import Query, query

pytestmark = pytest.mark.native
SIM = support.simulator_environment()
NS = "1500000"
SEEDS = range(4)


@pytest.fixture(scope="module")
def examples(built: Path) -> Path:
    return support.build_examples(built / "examples")


def record(run: Path, command: Sequence[str | Path], **options: str | int | Path) -> Outcome:
    given: dict[str, str | int | Path] = {"launch_delay": NS, **options}
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


def test_delays_reveal_a_missing_wait(handoffs: Handoffs, examples: Path) -> None:
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


def test_seed_selects_the_delayed_calls(handoffs: Handoffs, examples: Path, tmp_path: Path) -> None:
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


def test_delayed_work_starts_later(handoffs: Handoffs, examples: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    record(run, [examples / "handoff", "--fixed"], timeline="events", launch_delay_mode="stream")
    rows = query(tt.open(run), Query(filter="kind == 'launch'", fields=["delayed", "queue_time"]))
    late = rows[rows["delayed"].notna()]["queue_time"]
    assert len(late) and late.min() >= pd.Timedelta(int(NS))


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
def test_delays_do_not_change_results(command: list[str], examples: Path, tmp_path: Path) -> None:
    program = [str(examples / command[0]), *command[1:]]
    bare = support.run(program, SIM)
    assert record(tmp_path / "run", program, launch_delay=200000, delay_seed=7) == bare
    run = tt.open(tmp_path / "run")
    assert tt.verify(run, tmp_path / "run" / "manifest.json").same
    rows = query(run, Query(filter="delayed.notna()", fields=["seq", "flags", "delayed"]))
    assert len(rows)
    assert {c.get("seq") for c in delays.of_run(run).launches.values()} == set(rows["seq"])
    captured = rows[rows["flags"] & 1 != 0]
    assert set(captured["delayed"]) <= {"call"}


@pytest.mark.parametrize(
    "name",
    ["context_teardown", "exit_handler", "host_functions", "graph_capture", "fork_child_after"],
)
def test_delays_do_not_change_the_exit(name: str, built: Path, tmp_path: Path) -> None:
    """Also with delays under way."""
    command = support.command(name, built)
    bare = support.run(command, SIM)
    recorded = record(tmp_path / "run", list(command), launch_delay=20_000_000)
    assert (recorded.stdout, recorded.status) == (bare.stdout, bare.status)


def test_delays_of_a_killed_program_are_unknown(built: Path, tmp_path: Path) -> None:
    """It is not known, and the program's status stays."""
    command = ["--launch-delay", "1000", "--", *support.command("exit_sigkill", built)]
    dumped, run = tmp_path / "late.json", tmp_path / "run"
    options = ["record", "--sim", "-q", "-o", str(run), "--delay-dump", str(dumped)]
    outcome = support.ttanalyze(*options, *command, environment=SIM)
    assert outcome.status == 137 and not dumped.exists()
    said = f"ttanalyze: cannot write {dumped}: {run}: killed before its delays were written"
    assert said in outcome.stderr.splitlines()


# ---- as a file ----


def config(folder: Path, **members: object) -> Path:
    """A file of a configuration, of these members besides those that it must have."""
    folder.mkdir(exist_ok=True)
    path = folder / "delays.json"
    whole = {"version": "1.0", "delay_ns": 10, "kernels": {}, **members}
    path.write_text(json.dumps(whole))
    return path


def test_recorded_delays_can_be_repeated(
    handoffs: Handoffs, examples: Path, tmp_path: Path, cli: Cli
) -> None:
    """All of it, or a part."""
    run = handoffs[0, False][0]
    found = delays.of_run(run)
    assert cli("validate", run / "p0" / "delays.json").status == 0
    late = delayed(run)
    assert {c["seq"]: c["where"] for c in found.launches.values()} == {
        seq: {"call": "host", "call and stream": "both"}.get(how, how) for seq, how in late.items()
    }
    kernels = {c.get("kernel_name") for c in found.launches.values()}
    assert kernels == {"make_values", "use_values", None}
    assert found.count_on() == (0, len(late))
    assert f"delayed  {len(late)} calls, 0 instructions in kernels" in cli("info", run).stdout

    dumped = tmp_path / "dumped.json"
    dumped.write_text(found.to_json())
    arguments = [
        "record",
        "--sim",
        "-q",
        "-o",
        str(tmp_path / "again"),
        "--delay-load",
        os.path.relpath(dumped, support.ROOT),
    ]
    again = tmp_path / "again.json"
    handoff = examples / "handoff"
    program = ("sh", "-c", 'cd / && exec "$0"', handoff)
    outcome = support.ttanalyze(*arguments, "--delay-dump", again, "--", *program, environment=SIM)
    assert outcome == handoffs[0, False][1]
    assert delayed(tmp_path / "again") == late
    assert delays.read(again).launches == found.launches

    for call in found.launches.values():
        call["on"] = call.get("kernel_name") == "make_values" and call["where"] != "host"
    dumped.write_text(found.to_json())
    outcome = record(tmp_path / "part", [handoff], launch_delay=0, delay_load=dumped)
    assert outcome.stdout == handoffs[0, False][1].stdout
    part = delayed(tmp_path / "part")
    assert part == {c["seq"]: late[c["seq"]] for c in found.launches.values() if c["on"]} != {}


POINT = {"pc": 16, "sass": "LDG", "delay": 5, "on": True}
KERNEL = {"kernel_name": "k", "kernel_checksum": "0123456789abcdef"}


def test_invalid_delay_file_delays_nothing(examples: Path, tmp_path: Path) -> None:
    path = config(tmp_path, colour=1)
    program = [str(examples / "handoff"), "--steps", "1", "--size", "10"]
    outcome = record(tmp_path / "run", program, launch_delay=0, delay_load=path)
    assert outcome.status == 0
    said = [line for line in outcome.stderr.splitlines() if "no delays: " in line]
    assert len(said) == 1 and f"{path}: offset " in said[0] and "unknown member" in said[0]
    assert tt.open(tmp_path / "run").processes[0].info["warnings"] == [
        said[0].removeprefix("ttanalyze: ")
    ]


def test_delays_for_missing_code(examples: Path, tmp_path: Path) -> None:
    points = {"16": POINT, "32": POINT | {"pc": 32, "on": False}}
    path = config(tmp_path, kernels={"k": KERNEL | {"instrumentation_points": points}})
    program = [str(examples / "handoff"), "--steps", "1", "--size", "10"]
    outcome = record(tmp_path / "run", program, launch_delay=0, delay_load=path)
    assert (
        "1 delays in 1 kernels were not inserted, because their code was not loaded, or was "
        "different: k" in outcome.stderr
    )


# ---- mistakes ----


def test_invalid_delay_options_are_refused(cli: Cli, examples: Path, tmp_path: Path) -> None:
    for option, value, why in (
        ("--launch-delay", "1w", "expected a time of at most 1s, such as 500us"),
        ("--launch-delay", "1000000001", "at most 1s, such as 500us, 20ms, 1.5s or 2m"),
        ("--delay", "101ms", "expected a time of at most 100ms"),
        ("--delay-mode", "slow", "expected random, fixed, cluster or cluster_fixed"),
        (
            "--delay-patterns",
            "bar,",
            "expected mnemonics with commas between them, such as UTMALDG,SYNCS, or *",
        ),
        ("--delay-kernel", "(", "Unmatched ( or \\("),
        ("--launch-delay-mode", "never", "expected both, stream or host"),
        ("--delay-seed", "x", "expected a whole number"),
    ):
        refused = cli("record", "--sim", option, value, "--", "true")
        assert refused.status == 2
        assert f"{option} {value}: " in refused.stderr and why in refused.stderr
    for given, why in (
        (("--delay", "3", "--delay-min", "5"), "--delay-min can't be more than --delay"),
        (("--delay-min", "5"), "--delay-min needs --delay or --delay-load"),
        (("--delay-patterns", "BAR"), "--delay-patterns needs --delay: nothing would be delayed"),
        (("--delay-seed", "1"), "--delay-seed needs --delay or --launch-delay"),
        (("--delay-dump", tmp_path / "late"), "--delay-dump needs --delay or --launch-delay or"),
        (
            ("--delay-load", config(tmp_path), "--launch-delay", "9"),
            "--delay-load needs --launch-delay 0: the file has all delays",
        ),
        (("--delay-load", tmp_path / "none"), "No such file"),
        (("--delay-load", config(tmp_path / "other", version="2.0")), "version:"),
    ):
        refused = cli("record", "--sim", *given, "--", "true")
        assert refused.status == 2 and why in refused.stderr, refused.stderr
    outcome = record(tmp_path / "run", [examples / "handoff"], launch_delay="1e6")
    assert "TT_LAUNCH_DELAY=1e6: expected" in outcome.stderr and outcome.status == 0
