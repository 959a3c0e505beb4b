"""`ttanalyze check`: the frame of all checks, on programs that differ from run to run."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import ttanalyze as tt
from tests import support
from tests.check import corpus
from tests.support import Cli, Outcome
from ttanalyze.errors import Error
from ttanalyze.verbs.check import check as run_checks
from ttanalyze.verbs.check import findings, order, session, spacing
from ttanalyze.verbs.check.check import ALL
from ttanalyze.verbs.check.sarif import sarif_text
from ttanalyze.verbs.check.session import Plan, Session, Settings

Check = Callable[..., Outcome]
NO_ALLOCATION = """
import ctypes, sys
cuda, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
cuda.cuInit(0)
cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0)
cuda.cuCtxSynchronize()
sys.exit(5)
"""


@pytest.fixture
def varies(built: Path, tmp_path: Path) -> Callable[..., list[str]]:
    """The command of a program that does the same in each run, or not, by its mode."""
    program = support.build_program("recorder_nondeterminism", built)

    def command(mode: str, steps: int = 4) -> list[str]:
        return [str(program), mode, str(steps), str(tmp_path / "counter")]

    return command


@pytest.fixture
def check(cli: Cli, tmp_path: Path) -> Check:
    """`ttanalyze check` on the simulator, in the folder "out"."""

    def run(command: list[str], *options: str) -> Outcome:
        given = ("--sim", "--only", "determinism", "-o", tmp_path / "out", *options)
        return cli("check", *given, "--", *command)

    return run


def report(outcome: Outcome) -> Any:
    return json.loads(outcome.stdout)


@pytest.mark.native
def test_deterministic_program_is_clean(
    check: Check, varies: Callable[..., list[str]], tmp_path: Path
) -> None:
    outcome = check(varies("clean"))
    assert outcome.status == 0
    assert "determinism  clean" in outcome.stdout and "100 %  100 %" in outcome.stdout
    said = outcome.stderr.splitlines()
    assert "runs the program" in said[0] and str(tmp_path / "out") in said[0]
    assert "to go, about" in said[1]
    assert len((tmp_path / "out" / "log").read_text().splitlines()) == len(said)


@pytest.mark.native
def test_all_checks_share_recordings(
    check: Check, varies: Callable[..., list[str]], tmp_path: Path
) -> None:
    outcome = check(varies("clean"), "--only", "bounds,determinism,order,uninitialized,values")
    assert outcome.status == 0
    assert "runs the program 7 times" in outcome.stderr
    assert (tmp_path / "counter").read_text() == "7\n"


def test_checks_look_at_recordings_while_the_next_one_is_made(
    varies: Callable[..., list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    examine, waited = order.examine, list[bool]()

    def patient(session: Session) -> findings.Outcome:
        until = time.monotonic() + 60
        while not (found := session.finished("values")) and time.monotonic() < until:
            time.sleep(0.01)
        waited.append(found is not None)
        return examine(session)

    monkeypatch.setattr(order, "examine", patient)
    done = run_checks(Settings(tuple(varies("clean")), sim=True), tmp_path / "out")
    assert [one.status for one in done.outcomes] == [findings.CLEAN] * 5
    assert waited == [True] and (tmp_path / "counter").read_text() == "7\n"


@pytest.mark.native
def test_second_call_reuses_recordings(
    check: Check, varies: Callable[..., list[str]], tmp_path: Path
) -> None:
    command = varies("clean")
    first = report(check(command, "--json", "-q"))
    count = (tmp_path / "counter").read_text()
    again = report(check(command, "--json", "-q"))
    assert (tmp_path / "counter").read_text() == count
    for one in (*again["outcomes"], *first["outcomes"]):
        assert one.pop("seconds") >= 0
    assert again["outcomes"] == first["outcomes"]
    refused = check([*command[:2], "5", command[3]], "-q")
    assert refused.status == 2 and "--force replaces it" in refused.stderr
    assert check([*command[:2], "5", command[3]], "-q", "--force").status == 0


@pytest.mark.native
def test_runs_at_once_give_the_same_results(cli: Cli, built: Path, tmp_path: Path) -> None:
    program = support.build_program("recorder_uninitialized", built)
    found = []
    for jobs in ("1", "4"):
        folder = ("-o", tmp_path / jobs, "--json", "--jobs", jobs)
        given = ("--sim", "--only", "uninitialized", *folder)
        (outcome,) = report(cli("check", *given, "--", program, "computes"))["outcomes"]
        found.append([(one["kind"], one["call"], one["memory"]) for one in outcome["findings"]])
    assert found[0] == found[1] and found[0][0][0] == "uninitialized"


@pytest.mark.native
def test_a_run_that_fails_beside_others_is_made_again_alone(
    check: Check, built: Path, tmp_path: Path
) -> None:
    """The program ends with status 3 if it runs already."""
    program = support.build_program("recorder_uninitialized", built)
    lock = tmp_path / "lock"
    line = f"mkdir {lock} || exit 3; {program} clean; sleep 1; rmdir {lock}"
    outcome = check(["sh", "-c", line], "--jobs", "2", "--json")
    assert outcome.status == 0
    assert "failed beside other runs; recorded again alone" in outcome.stderr
    assert report(outcome)["runs"] == 2


def test_runs_at_once_cannot_be_restored(check: Check) -> None:
    outcome = check(["true"], "--jobs", "2", "--before", "true")
    assert outcome.status == 2 and "omit --jobs" in outcome.stderr


@pytest.mark.native
def test_epochs_that_cost_much_are_fewer(
    check: Check, built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The recording with zones tells what epochs cost."""
    monkeypatch.setattr(spacing, "COST", 0)
    monkeypatch.setattr(spacing, "ALLOWANCE", 1e-9)
    command = support.command("recorder_many_waits", built)
    outcome = check(command, "--only", "bounds,determinism", "--json")
    assert [one["status"] for one in report(outcome)["outcomes"]] == ["clean", "clean"]
    assert f"--epoch launch:{400 // spacing.LEAST}" in outcome.stderr
    counts = {name: len(tt.open(tmp_path / "out" / name).epochs) for name in ("zones", "plain")}
    assert counts["zones"] >= 400 and counts["plain"] == spacing.LEAST
    zoned = tt.open(tmp_path / "out" / "zones").processes
    monkeypatch.setattr(spacing, "ALLOWANCE", 1e6)
    assert spacing.affordable(zoned) is None
    monkeypatch.setattr(spacing, "BYTE", 1e6)
    assert spacing.affordable(zoned), "those epochs read zones alone, others all memory"
    monkeypatch.setattr(spacing, "ALLOWANCE", 1e-9)
    resumed = check(command, "--only", "bounds,determinism", "--json")
    assert resumed.status == 0 and "recorded" not in resumed.stderr


@pytest.mark.native
@pytest.mark.parametrize(
    ("mode", "why"),
    [
        ("fails", "ended with status 4"),
        ("memory", "ran out of GPU memory and ended with status 3"),
    ],
)
def test_a_program_that_fails_is_not_clean(
    check: Check, varies: Callable[..., list[str]], mode: str, why: str
) -> None:
    outcome = check(varies(mode), "-q")
    assert outcome.status == 2
    assert "failed" in outcome.stdout and why in outcome.stdout


@pytest.mark.native
@pytest.mark.parametrize("more", ["", "--fixed"])
def test_a_program_that_fails_says_so_beside_what_was_found(
    cli: Cli, tmp_path: Path, more: str
) -> None:
    faults = corpus.build(tmp_path)
    options = ("--sim", "--quick", "--json", "--only", "bounds", "-o", tmp_path / "out")
    outcome = cli("check", *options, "--", "sh", "-c", f"{faults} end_4 {more}; exit 3")
    (bounds,) = report(outcome)["outcomes"]
    assert bounds["status"] == ("failed" if more else "found")
    assert "the program ended with status 3; see " in bounds["reason"]


@pytest.mark.native
def test_a_program_that_fails_before_its_allocations_says_so(cli: Cli, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(NO_ALLOCATION)
    options = ("--sim", "--json", "--only", "bounds", "-o", tmp_path / "out")
    outcome = cli("check", *options, "--", sys.executable, program)
    (bounds,) = report(outcome)["outcomes"]
    assert (outcome.status, bounds["status"]) == (2, "not covered")
    assert "no allocation has zones; the program ended with status 5; see " in bounds["reason"]


@pytest.mark.native
def test_a_program_that_hangs_is_not_clean(
    check: Check, varies: Callable[..., list[str]], tmp_path: Path
) -> None:
    (tmp_path / "counter").write_text("1")
    outcome = check(varies("hang"), "-q", "--timeout", "1")
    assert outcome.status == 2
    assert "did not end within 1 s" in outcome.stdout


@pytest.mark.native
def test_a_run_that_hangs_is_ended_without_a_timeout(
    varies: Callable[..., list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "LEAST", 2)
    monkeypatch.setattr(session, "PATIENCE", 1)
    settings = Settings(tuple(varies("hang")), sim=True)
    (finding,) = run_checks(settings, tmp_path / "out", ["determinism"]).findings
    assert "did not end in time in another" in finding.summary


@pytest.mark.native
def test_a_program_without_gpu_work_is_not_covered(check: Check) -> None:
    outcome = check(["true"], "--json", "-q")
    assert outcome.status == 2
    assert {one["status"] for one in report(outcome)["outcomes"]} == {findings.NOT_COVERED}


@pytest.mark.native
def test_a_program_that_fails_before_its_gpu_work_says_how_it_ended(check: Check) -> None:
    outcome = check(["sh", "-c", "exit 3"], "-q", "--only", "bounds,order")
    assert outcome.status == 2
    assert outcome.stdout.count("failed") == 2
    assert outcome.stdout.count("the program ended with status 3") == 1, "both for one reason"


@pytest.mark.native
def test_before_command_restores_program_input(
    check: Check, varies: Callable[..., list[str]], tmp_path: Path
) -> None:
    restore = ("--before", f"rm -f {tmp_path / 'counter'}")
    assert check(varies("seed"), "-q", *restore).status == 0
    outcome = check(varies("seed"), "-q", "-f", "--before", "exit 3")
    assert outcome.status == 2 and "--before exit 3: ended with status 3" in outcome.stdout


@pytest.mark.long
@pytest.mark.native
def test_a_folder_is_used_by_one_check_at_a_time(
    varies: Callable[..., list[str]], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    command = ["--sim", "-q", "--only", "bounds", "-o", str(out), "--", *varies("nothing")]
    settings = Settings(tuple(varies("nothing")), sim=True)
    other = Session(settings, out)
    for options in ([], ["--force"]):
        done = support.ttanalyze("check", *options, *command)
        assert (done.status, done.stdout) == (2, "")
        assert f"{out}: another check uses it; wait for it, or choose another -o" in done.stderr
        assert (out / "check.json").exists()
    other.close()
    done = support.ttanalyze("check", *command)
    assert done.status == 0, done.stderr


def test_interrupted_check_resumes(varies: Callable[..., list[str]], tmp_path: Path) -> None:
    """The second run hangs until SIGTERM; the next call makes only this recording again."""
    options = ["--sim", "-q", "--only", "determinism", "-o", str(tmp_path / "out")]
    command = ["check", *options, "--", *varies("hang")]
    environment = support.bare_environment(**support.sanitizer_runtimes())
    with subprocess.Popen(
        [sys.executable, "-m", "ttanalyze", *command],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        until = time.monotonic() + 300
        while not (tmp_path / "out" / "again" / "p0").exists():
            assert time.monotonic() < until
            time.sleep(0.02)
        child.send_signal(signal.SIGTERM)
        stdout, _ = child.communicate(timeout=300)
    assert child.returncode == 2
    assert "interrupted; the same command" in stdout
    (tmp_path / "counter").write_text("0")
    assert support.ttanalyze(*command).status == 0
    assert (tmp_path / "counter").read_text() == "1\n"
    log = (tmp_path / "out" / "log").read_text()
    assert re.search(r"program 1 time, about \d+\.\d s \(1 recording of an earlier call", log)


def test_check_exit_statuses() -> None:
    def status(*statuses: str, strict: bool = False, interrupted: bool = False) -> int:
        outcomes = [findings.Outcome("x", one) for one in statuses]
        told = findings.CheckReport([], "", outcomes, 0, interrupted, 0)
        return told.exit_status(strict)

    assert status("clean", "not covered") == 0
    assert status("clean", "not covered", strict=True) == 2
    assert status("not covered") == 2
    assert status("clean", "failed") == 2
    assert status("found", "failed", "not covered", strict=True) == 1
    assert status("clean", interrupted=True) == 2
    assert status("found", interrupted=True) == 1


def _valid_sarif(written: str) -> Any:
    """The log, if it follows the official schema of SARIF 2.1.0."""
    log = json.loads(written)
    assert pytest.importorskip("sarif_kit.validate").validation_errors(log) == []
    return log


@pytest.mark.native
def test_sarif_follows_its_schema(
    check: Check, varies: Callable[..., list[str]], tmp_path: Path
) -> None:
    log = tmp_path / "log.sarif"
    assert check(varies("seed"), "-q", "--quick", "--sarif", str(log)).status == 1
    (run,) = _valid_sarif(log.read_text())["runs"]
    (result,) = run["results"]
    assert result["ruleId"] in {rule["id"] for rule in run["tool"]["driver"]["rules"]}
    place = result["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"].startswith("file:///")
    assert place["region"]["startLine"] > 0


@pytest.mark.parametrize("line", ["/src/train.cu:40", None])
def test_sarif_has_the_place_of_the_instruction(line: str | None) -> None:
    told = {"number": 7, "machine": True, "text": "STG.E [R2], R0", "line": line, "count": 1}
    told |= {"block": [0, 0, 0], "thread": [3, 0, 0]}
    where, stack = "train.py:12 in step", ["/src/train.py:12 in step"]
    call = findings.Call(0, 5, "launch", "cuLaunchKernel", "_Z3addv", 0, where, stack)
    found = findings.Finding("guard", "x", "confirmed", "s", call, details={"instruction": told})
    outcome = findings.Outcome("guard", "found", findings=[found])
    log = sarif_text(findings.CheckReport([], "", [outcome], 1, False, 0))
    (run,) = _valid_sarif(log)["runs"]
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == ["guard"]
    (result,) = run["results"]
    places = [
        one.get("physicalLocation", {}).get("region", {}).get("startLine")
        for one in result["locations"] + result["relatedLocations"]
    ]
    assert places == ([40, 12] if line else [12, None])
    at = (result["locations"] + result["relatedLocations"])[0 if line else 1]
    assert at["message"]["text"].startswith("STG.E [R2], R0 (pc 0x70)")
    assert at["logicalLocations"] == [{"fullyQualifiedName": "_Z3addv", "kind": "function"}]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("--only", "nothing", "--", "true"), "unknown check 'nothing'; expected"),
        (("--runs", "1", "--", "true"), "--runs 1: expected at least 2"),
        (("--for", "x", "--", "true"), "--for x: expected a time"),
        (("--for", "1m", "--only", "order", "--", "true"), "add determinism to --only"),
        (("--runs", "9", "--only", "order", "--", "true"), "--runs is for the determinism check"),
        (("--ignore", "(", "--", "true"), "--ignore (: "),
        (("--", "./no-such-program"), "./no-such-program: not found"),
        (("-o", "/", "--", "true"), "/ exists; choose another folder"),
    ],
)
def test_invalid_arguments_are_errors(
    options: tuple[str, ...], why: str, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    outcome = cli("check", "--sim", *options)
    assert outcome.status == 2 and why in outcome.stderr and outcome.stderr.count("\n") == 1


@pytest.mark.native
def test_values_are_not_clean_if_contents_were_not_stored(built: Path, tmp_path: Path) -> None:
    command = support.command("example-vecadd", built)
    command += ["--size", "300000", "--steps", "2"]
    options = ["--sim", "--json", "-q", "--only", "values", "-o", str(tmp_path / "out")]
    environment = support.bare_environment(**support.sanitizer_runtimes(), TT_MAX_DISK="8M")
    outcome = support.ttanalyze("check", *options, "--", *command, environment=environment)
    (found,) = report(outcome)["outcomes"]
    assert outcome.status == 2
    assert found["status"] == "not covered"
    assert "--max-disk allows 8.0 MiB" in found["reason"]
    assert found["launches"] < 1


class Partial:
    """A check that finds something, and does not look at everything."""

    NAME, DESCRIPTION = "values", "partial"

    def __init__(self, raised: type[BaseException] | None) -> None:
        self.raised = raised

    def recordings(self, settings: Settings) -> Plan:
        return Plan(())

    def examine(self, session: Session) -> findings.Outcome:
        memory = findings.Memory(0, "mask", 4)
        found = findings.Finding("values", "computed", findings.POSSIBLE, "It is.", memory=memory)
        outcome = findings.Outcome("values", findings.NOT_COVERED, "a part", findings=[found])
        if self.raised is not None:
            outcome.status, session.partial = findings.FOUND, outcome
            raise self.raised("it broke")
        return outcome


@pytest.mark.parametrize(
    ("raised", "status"),
    [(None, "not covered"), (Error, "failed"), (KeyboardInterrupt, "not covered")],
)
def test_partial_search_is_not_clean_if_its_findings_are_ignored(
    raised: type[BaseException] | None,
    status: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(ALL, "values", Partial(raised))
    for ignore, expected in (((), "found"), (("mask",), status)):
        settings = Settings(("true",), ignore=ignore, sim=True)
        (outcome,) = run_checks(settings, tmp_path / expected, ["values"]).outcomes
        assert (outcome.status, bool(outcome.findings)) == (expected, not ignore)
