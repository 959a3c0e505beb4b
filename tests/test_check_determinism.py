"""The determinism check of `ttanalyze check`: it names the call that makes two runs differ."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests import support
from tests.support import Cli
from ttanalyze.verbs.check import session, zoom
from ttanalyze.verbs.check.determinism import confidence
from ttanalyze.verbs.check.spacing import SPACING

Check = Callable[..., Any]
STEPS = 4


@pytest.fixture
def check(cli: Cli, built: Path, tmp_path: Path) -> Check:
    """The outcome of the check for a program that varies as its mode says."""
    program = support.build_program("recorder_nondeterminism", built)

    def run(mode: str, *options: str, steps: int = STEPS) -> Any:
        out = tmp_path / "out"
        command = [str(program), mode, str(steps), str(tmp_path / "counter")]
        options = ("--sim", "-q", "--json", "--only", "determinism", "-o", str(out), *options)
        done = cli("check", *options, "--", *command)
        (outcome,) = json.loads(done.stdout)["outcomes"]
        assert done.status == {"found": 1, "clean": 0}.get(outcome["status"], 2)
        return outcome

    return run


def runs(tmp_path: Path) -> int:
    return int((tmp_path / "counter").read_text())


# By mode: kind, certainty, call or kernel, what the summary says, most runs.
CAUSES = {
    "seed": ("parameters", "confirmed", "add", "has other parameters: bytes 12 to 15 are 6", 4),
    "input": ("host input", "confirmed", "cuMemcpyHtoD_v2", "copies other data from the host", 4),
    "launches": ("launches", "confirmed", "mix", "Only one of two runs makes mix", 4),
    "order": ("order", "possible", "add", "in any order; runs differ, but not with an epoch", 4),
    "graph": ("parameters", "confirmed", "cuGraphLaunch", "in node 0 (add): bytes 12 to 15", 4),
    "graph-kernel": ("result", "possible", "cuGraphLaunch", "another result in kernel last", 7),
    "kernel": ("result", "confirmed", "last", "It varies when it is repeated alone", 6),
    "kernel-after-set": ("result", "confirmed", "last", "It varies when it is repeated alone", 6),
}


@pytest.mark.native
@pytest.mark.parametrize("mode", CAUSES)
def test_first_differing_call_is_named(mode: str, check: Check, tmp_path: Path) -> None:
    kind, certainty, name, said, most = CAUSES[mode]
    (finding,) = check(mode)["findings"]
    assert (finding["kind"], finding["certainty"]) == (kind, certainty)
    call = finding["call"]
    assert name in (call["kernel"], call["call"])
    assert said in finding["summary"]
    assert any("recorder_nondeterminism.c" in frame for frame in call["stack"])
    instruction = finding["details"].get("instruction", {}).get("text", "")
    assert instruction.startswith("st.global.u32 ") == (kind == "result")
    assert runs(tmp_path) <= most
    if kind in ("parameters", "host input", "result"):
        region = 0 if kind == "host input" else 1
        assert finding["memory"]["region"] == region
        assert finding["memory"]["count"] > 0


@pytest.mark.native
def test_launch_of_one_run_is_told_apart_by_its_call_stack(check: Check) -> None:
    """Launches of the same kernel with the same shape surround it, from another place."""
    (finding,) = check("retry")["findings"]
    assert finding["kind"] == "launches"
    assert "Only one of two runs makes add" in finding["summary"]
    assert any("in retry" in frame for frame in finding["call"]["stack"])


@pytest.mark.native
def test_a_finding_stays_if_a_closer_look_fails(check: Check) -> None:
    outcome = check("seed-then-crash")
    assert outcome["status"] == "found" and "ended with signal 6" in outcome["reason"]
    (finding,) = outcome["findings"]
    assert finding["certainty"] == "possible" and finding["call"]["kernel"] == "add"


@pytest.mark.native
@pytest.mark.parametrize(
    ("mode", "said"),
    [("allocation", "1 allocation of only one run"), ("set", "1 copy or set of only one run")],
)
def test_calls_without_effect_are_found(mode: str, said: str, check: Check) -> None:
    (finding,) = check(mode)["findings"]
    assert (finding["kind"], finding["certainty"]) == ("launches", "confirmed")
    assert said in finding["summary"]


@pytest.mark.native
@pytest.mark.parametrize(
    ("launches", "spacing"), [(500, 20), pytest.param(10**5, 500, marks=pytest.mark.long)]
)
def test_launches_without_a_wait_take_two_rounds(
    launches: int, spacing: int, check: Check, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Epochs between launches are what makes the first window short."""
    monkeypatch.setattr(session, "EPOCHS", f"sync,launch:{spacing}")
    monkeypatch.setattr(zoom, "EACH", spacing)
    monkeypatch.setattr(zoom, "EPOCHS", 4)
    (finding,) = check("many", steps=launches)["findings"]
    assert (finding["kind"], finding["certainty"]) == ("parameters", "confirmed")
    assert "bytes 12 to 15 are" in finding["summary"]
    assert finding["memory"]["count"] > 0
    assert runs(tmp_path) == 2 + 2


@pytest.mark.native
@pytest.mark.parametrize("mode", ["seed", "input", "kernel"])
def test_three_more_recordings_find_the_call_if_contents_take_too_much_space(
    mode: str, check: Check, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zoom, "LITTLE", 0)
    (finding,) = check(mode)["findings"]
    kind, certainty, name, *_ = CAUSES[mode]
    assert (finding["kind"], finding["certainty"]) == (kind, certainty)
    assert name in (finding["call"]["kernel"], finding["call"]["call"])
    traced = "instruction" in finding["details"]
    assert runs(tmp_path) - traced <= 2 + 3


@pytest.mark.parametrize(
    ("spacing", "recordings"), [(SPACING, 3), (10**7, 5)], ids=["usual", "one-epoch"]
)
def test_ten_million_launches_take_few_recordings(spacing: int, recordings: int) -> None:
    """The last one looks at one launch. Before it, each two narrow the window."""
    for culprit in (1, spacing, spacing + 1, 1_234_567, 10**7):
        first = (culprit - 1) // spacing * spacing
        window, taken = zoom.Window(first, min(first + spacing, 10**7)), 1
        while not window.single:
            match = re.fullmatch(r"launch(?::(\d+))?(?:,memcpy)?,@(\d+)-(\d+)", window.triggers)
            assert match
            every, begin, end = (int(one or 1) for one in match.groups())
            assert begin < culprit <= end
            assert (end - begin) // every <= zoom.EACH
            before = begin + (culprit - 1 - begin) // every * every
            window, taken = zoom.Window(before, before + every), taken + 1
        assert 2 * (taken - 1) + 1 <= recordings


@pytest.mark.native
@pytest.mark.long
def test_a_long_window_takes_two_recordings_more(
    check: Check, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program has one epoch, at its end; a window of two launches is small enough."""
    monkeypatch.setattr(zoom, "EACH", 7)
    monkeypatch.setattr(zoom, "EPOCHS", 4)
    (finding,) = check("seed", "--epoch", "sync,@999-999")["findings"]
    assert (finding["kind"], finding["certainty"]) == ("parameters", "confirmed")
    assert finding["call"]["kernel"] == "add"
    assert runs(tmp_path) == 2 + 2 + 2


@pytest.mark.native
def test_quick_check_makes_two_recordings(check: Check, tmp_path: Path) -> None:
    (finding,) = check("seed", "--quick")["findings"]
    assert finding["call"]["kernel"] == "add" and finding["certainty"] == "possible"
    assert runs(tmp_path) == 2


@pytest.mark.native
def test_ignored_regions_do_not_count(check: Check) -> None:
    outcome = check("seed", "--quick", "--ignore", "^region [12]$")
    assert (outcome["status"], outcome["findings"]) == ("clean", [])
    assert outcome["reason"].startswith("but for what --ignore leaves out, 2 runs agree")
    (finding,) = check("seed", "--quick", "-f", "--ignore", "^region 2$")["findings"]
    assert finding["memory"]["name"] == "region 1"


@pytest.mark.native
def test_different_exit_status_is_found(check: Check) -> None:
    (finding,) = check("crash")["findings"]
    assert finding["kind"] == "exit status"
    assert "ended with status 0 in one run and ended with signal 6 in another" in finding["summary"]


@pytest.mark.native
def test_more_runs_raise_confidence(check: Check, tmp_path: Path) -> None:
    outcome = check("clean", "--runs", "6")
    assert outcome["reason"] == "6 runs agree: less than 46 % of runs differ (95 % confidence)"
    assert runs(tmp_path) == 6
    check("clean", "--runs", "6")
    assert runs(tmp_path) == 6
    assert not (tmp_path / "out" / "again-5").exists()


@pytest.mark.native
def test_runs_repeat_until_the_time_limit(check: Check, tmp_path: Path) -> None:
    outcome = check("clean", "--for", "1")
    assert outcome["status"] == "clean"
    assert runs(tmp_path) >= 2 and outcome["seconds"] >= 1


@pytest.mark.native
def test_runs_repeat_until_one_differs(check: Check, tmp_path: Path) -> None:
    outcome = check("later-seed", "--for", "1h", "--quick")
    assert outcome["reason"] == "two runs differ, after 3 runs that agree"
    assert outcome["findings"][0]["call"]["kernel"] == "add"
    assert runs(tmp_path) == 4


@pytest.mark.native
def test_interrupted_repetition_says_how_many_runs_agree(
    check: Check, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(session: session.Session, name: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(session.Session, "forget", interrupt)
    outcome = check("clean", "--for", "1h")
    assert outcome["status"] == "not covered"
    assert outcome["reason"].startswith("3 runs agree: less than 78 % of runs differ")
    assert outcome["reason"].endswith("; interrupted")


@pytest.mark.parametrize("agreed", [1, 2, 5, 58, 59, 300, 10**4])
def test_a_larger_share_of_differing_runs_would_have_shown(agreed: int) -> None:
    match = re.search(r"less than (\S+) % of runs differ", confidence(agreed))
    assert match
    share = float(match[1]) / 100
    assert (1 - share) ** agreed <= 0.05 + 1e-9
    assert share <= 3 / agreed * 1.05  # the rule of three, and two digits
