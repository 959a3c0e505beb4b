"""What --help, man pages and the completion of a shell say of the verbs."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import ttanalyze as tt
from docs.tools import man
from tests import support
from tests.support import Cli, Outcome
from ttanalyze import options
from ttanalyze.cli import app
from ttanalyze.cli.help import GROUPS
from ttanalyze.errors import Error

pytestmark = pytest.mark.whole

VERBS = [command.callback.__name__ for command in app.registered_commands if command.callback]


@pytest.mark.parametrize("verb", VERBS)
def test_help_has_an_example_and_no_types(cli: Cli, verb: str) -> None:
    outcome = cli(verb, "--help")
    assert outcome.status == 0
    usage, _, rest = outcome.stdout.partition("\n")
    assert re.fullmatch(rf"Usage: ttanalyze {verb} \[OPTIONS\]( \[?[A-Z_]+\]?(\.\.\.)?)*", usage)
    assert f"ttanalyze {verb}" in rest.partition("Example")[2]
    assert not re.search(r"<(path|int|str|float|bool|list)|\b(TEXT|INTEGER|FLOAT|PATH)\b", rest)
    whole = ("merge", "push")  # runs as a whole
    assert "--rank" in rest or verb in whole or not re.search(r"\bRUN(_A)?\b", usage)


def test_every_verb_is_in_one_group(cli: Cli) -> None:
    names = [name for group in GROUPS.values() for name in group]
    files = {p.stem for p in (support.ROOT / "ttanalyze/cli").glob("*.py")}
    others = {"__init__", "common", "help", *(name for name in files if name.endswith("_options"))}
    assert sorted(names) == sorted(VERBS) == sorted(files - others)
    for arguments in (["--help"], ["-h"]):
        outcome = cli(*arguments)
        assert outcome.status == 0
        titles = re.findall(r"^(\w.*):$", outcome.stdout, re.M)
        assert titles[1:] == list(GROUPS) and "..." not in outcome.stdout.partition("Record")[2]
        assert all(f"\n  {verb} " in outcome.stdout for verb in VERBS)
    assert cli() == Outcome(outcome.stdout, "", 2)
    assert cli("--version") == Outcome(f"ttanalyze {tt.__version__}\n", "", 0)


def test_bash_completes_words(tmp_path: Path) -> None:
    expected = {
        "rec": "record",
        "me": "memcheck memory merge",
        "record --regions t": "touched",
        "info r": "",  # files, which bash completes itself
    }
    ttanalyze = tmp_path / "ttanalyze"
    ttanalyze.write_text(f'#!/bin/sh\nexec {sys.executable} -m ttanalyze "$@"\n')
    ttanalyze.chmod(0o755)
    script = f"""
        PATH={tmp_path}:$PATH
        eval "$(_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION=1 ttanalyze --show-completion bash)"
        complete() {{
            COMP_WORDS=(ttanalyze $1) COMP_CWORD=$2
            _ttanalyze_completion ttanalyze
            echo "${{COMPREPLY[*]}}"
        }}
    """
    script += "\n".join(f"complete '{words}' {len(words.split())}" for words in expected)
    done = subprocess.run(
        ["bash", "-ec", script], cwd=support.ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert [set(line.split()) for line in done.stdout.split("\n")[:-1]] == [
        set(words.split()) for words in expected.values()
    ]


def test_man_pages_say_what_the_help_says(cli: Cli, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "docs.tools.man", str(tmp_path)]
    subprocess.run(command, cwd=support.ROOT, check=True)
    assert {p.name for p in tmp_path.iterdir()} == {
        "ttanalyze.1",
        *(f"ttanalyze-{verb}.1" for verb in VERBS),
    }
    page = (tmp_path / "ttanalyze-record.1").read_text()
    assert "\\-\\-ring\\-bytes SIZE" in page and "Variable: TT_RING_BYTES." in page
    assert "Variable" not in man.pages()["ttanalyze-verify.1"]
    if groff := shutil.which("groff"):
        pages = sorted(map(str, tmp_path.iterdir()))
        done = subprocess.run(
            [groff, "-man", "-ww", "-Tascii", *pages], capture_output=True, text=True, check=False
        )
        assert done.stderr == ""


# ---- units ----


@pytest.mark.parametrize(
    ("value", "unit", "seconds"),
    [
        ("90", "s", 90),
        ("0.5", "s", 0.5),
        ("250ms", "s", 0.25),
        ("1.5m", "s", 90),
        ("2h", "ns", 7200),
        ("10", "ns", 1e-8),
        ("7us", "ms", 7e-6),
    ],
)
def test_times_have_units(value: str, unit: str, seconds: float) -> None:
    assert options.parse_time(value, unit) == pytest.approx(seconds)


@pytest.mark.parametrize("name", [n for n, o in options.TABLE.items() if o.metavar == "TIME"])
def test_recorder_reads_the_same_times(name: str) -> None:
    option = options.TABLE[name]
    unit = {"TIME_NS": "ns", "TIME_MS": "ms", "TIME_S": "s"}[option.kind]
    largest = options.parse_time(option.limit, unit)
    for value in (
        "0",
        "12",
        "0.5",
        "3ns",
        "4.25us",
        "20ms",
        "1h",
        "5000000h",
        "1e3",
        "2.",
        ".5",
        "1d",
    ):
        try:
            good = options.parse_time(value, unit) <= largest
        except Error:
            good = False
        if good:
            options.check(option.flag, name, value)
        else:
            with pytest.raises(Error, match=f"{option.flag} {value}: expected a time of at most"):
                options.check(option.flag, name, value)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("check --for 10q -- true", "--for 10q: expected a time, such as 20ms, 1.5s or 2m"),
        ("record --timeout 5x --sim -- true", "--timeout 5x: expected a time"),
        ("reduce -c c -t true --timeout soon", "--timeout soon: expected a time"),
        ("tune run -o x --timeout 2w", "--timeout 2w: expected a time"),
        ("race --sim --delay 2w -- true", "--delay 2w: expected a time of at most 100ms"),
    ],
)
def test_errors_name_the_units(cli: Cli, words: str, reason: str) -> None:
    outcome = cli(*words.split())
    assert (outcome.status, outcome.stdout) == (2, "")
    assert outcome.stderr.startswith(f"ttanalyze: {reason}") and outcome.stderr.count("\n") == 1
