"""The command line: what each verb prints, and how it puts errors."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import shlex
import shutil
import signal
import subprocess
import sys
import venv
from pathlib import Path

import pytest

import ttanalyze as tt
from tests import support
from tests.rundir import Writer
from tests.support import Cli, Outcome
from ttanalyze.verbs.doctor import checks

# ---- errors ----


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["frobnicate"], "No such command 'frobnicate'"),
        (["verify"], "Missing argument 'RUN'"),
        (["verify", "RUN", "--nonsense"], "No such option"),
        (
            ["verify", "RUN", "--epochs", "x"],
            "--epochs x: expected a number or a range such as 2-5",
        ),
        (["verify", "RUN", "--epochs", "5-2"], "--epochs 5-2: the range is empty"),
        (["verify", "RUN", "--epochs", "-"], "--epochs -: expected a number or a range"),
        (["verify", "RUN", "--epochs", "9-"], "no epochs 9 to"),
        (["verify", "RUN", "--regions", "a"], "no region or tensor 'a' in"),
        (["verify", "RUN", "--regions", "0-4000000000"], "more than 1000000 numbers"),
        (["verify", "RUN", "--regions", "5-"], "expected numbers such as 0,4-6"),
        (["verify", "RUN", "--regions", "55"], "no region 55 in"),
        (["verify", "RUN", "--tamper", "1,2"], "--tamper 1,2: expected EPOCH,REGION,OFFSET"),
        (["verify", "RUN", "--tamper", "0,0,999999"], "tamper: no byte 999999 in region 0"),
        (["verify", "RUN", "--manifest", "nothing.json"], "nothing.json: No such file"),
        (["verify", "RUN", "--manifest", "RUN"], "not a regular file"),
        (["verify", "RUN", "--manifest", "RUN/run.json"], "expected 'ttanalyze-manifest'"),
        (["verify", "RUN", "--against", "nothing"], "nothing: No such file or directory"),
        (["verify", "RUN", "--out", "no/such/report.json"], "report.json: directory /"),
        (["verify", "RUN", "--out", "RUN"], "is a directory; name a file in it"),
        (["verify", "RUN", "--out", "/proc/report.json"], "/proc/report.json: "),
        (["verify", "nothing"], "nothing: No such file or directory"),
        (["info", "nothing"], "nothing: No such file or directory"),
        (["info", "RUN/run.json"], "run.json: Not a directory"),
        (["info", "EMPTY"], "not a run directory: it has no run.json"),
        (["manifest", "EMPTY"], "not a run directory"),
        (["manifest", "RUN", "-o", "/"], "/: is a directory"),
        (["manifest", "RUN", "-o", "RUN/run.json/x"], "run.json/x: directory"),
        (["manifest", "RUN", "-o", "/dev/full"], "/dev/full: No space left on device"),
        (["record"], "Missing argument"),
        (["record", "--no-such", "--", "true"], "No such option"),
    ],
)
def test_errors_are_one_line_and_status_2(
    cli: Cli,
    small: Writer,
    run_path: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    reason: str,
) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path)
    places = {"RUN": str(run_path), "EMPTY": str(tmp_path / "empty")}
    words = [re.sub("RUN|EMPTY", lambda m: places[m[0]], a) for a in arguments]
    outcome = cli(*words)
    assert outcome.status == 2
    assert outcome.stdout == ""
    assert outcome.stderr.startswith("ttanalyze: ")
    assert outcome.stderr.count("\n") == 1
    assert reason in outcome.stderr


@pytest.mark.parametrize("verb", ["info", "verify", "manifest", "query", "memory"])
def test_damaged_run_gives_a_one_line_error(
    cli: Cli, small: Writer, run_path: Path, verb: str
) -> None:
    path = small.path / "epochs.bin"
    raw = bytearray(path.read_bytes())
    raw[64 + 160 + 20] ^= 1
    path.write_bytes(raw)
    outcome = cli(verb, run_path)
    assert outcome == Outcome(
        "", f"ttanalyze: {path}: offset 224: the record does not match its check\n", 2
    )


def test_damaged_manifest_gives_a_one_line_error(cli: Cli, small: Writer, run_path: Path) -> None:
    path = run_path / "manifest.json"
    assert cli("manifest", run_path, "-o", path).status == 0
    whole = path.read_text()
    assert cli("verify", run_path).status == 0
    for text, reason in (
        ("", "offset 0: not JSON"),
        (whole[:300], "offset 300: not JSON"),
        (re.sub('"version":.', '"version":99', whole), "version: made by a newer ttanalyze"),
        (whole.replace('"block_size":65536', '"block_size":1'), "block_size: expected 65536"),
    ):
        path.write_text(text)
        outcome = cli("verify", run_path)
        assert (outcome.status, outcome.stdout) == (2, "")
        assert outcome.stderr.startswith(f"ttanalyze: {path}: {reason}")
        assert outcome.stderr.count("\n") == 1


def test_escape_sequences_in_names_are_not_printed(cli: Cli, run_path: Path) -> None:
    w = Writer(run_path)
    w.born(0, b"abc", label="\x1b]0;owned\x07")
    w.epoch("sync", "full")
    w.warnings.append("beware\n\x1b[31m")
    w.close(argv=["./a\x1b[2J", "\n"])
    for outcome in (cli("info", run_path), cli("verify", run_path, "--tamper", "0,0,1")):
        assert "\x1b" not in outcome.stdout
        assert outcome.status in (0, 1)


def test_no_traceback_is_printed(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "run.json")
    outcome = support.ttanalyze("info", tmp_path)
    assert outcome.status == 2
    assert outcome.stderr == f"ttanalyze: {tmp_path}/run.json: not a regular file\n"


@pytest.mark.parametrize("when", ["verifying", "writing"])
def test_interrupt_exits_130_and_leaves_no_partial_file(
    small: Writer, run_path: Path, tmp_path: Path, when: str
) -> None:
    """Interrupted in the midst of something long, which a call that waits stands for."""
    place = {"verifying": "ttanalyze.verbs.verify.verify", "writing": "pathlib.Path.replace"}[when]
    report = tmp_path / "report.json"
    program = (
        "import pathlib, sys, time, ttanalyze.verbs.verify\n"
        "from ttanalyze import __main__\n"
        "def waiting(*a, **k):\n    print('ready', flush=True); time.sleep(60)\n"
        f"{place} = waiting\n"
        f"sys.argv[1:] = ['verify', {str(run_path)!r}, '--out', {str(report)!r}]\n"
        "__main__.main()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=support.ROOT,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        status = process.wait(60)
        assert (128 - status if status < 0 else status) == 130  # as a shell has it
        assert process.stderr.read() == ""
    assert [p.name for p in tmp_path.iterdir()] == ["run"]


def test_interrupt_during_import_prints_no_traceback(tmp_path: Path) -> None:
    """While modules are imported: here the first one of the command line, which waits."""
    (tmp_path / "typer.py").write_text("import time; print('ready', flush=True); time.sleep(60)\n")
    with subprocess.Popen(
        [sys.executable, "-m", "ttanalyze", "info", "run"],
        env=os.environ | {"PYTHONPATH": f"{tmp_path}:{support.ROOT}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == -signal.SIGINT
        assert process.stderr.read() == ""


PRINTING: list[list[str]] = [
    ["--help"],
    ["shim"],
    ["doctor"],
    ["verify", "RUN", "--json"],
    ["manifest", "RUN"],
    ["query", "RUN", "--format", "ndjson"],
    ["memory", "RUN"],
]
FULL = (">/dev/full", 2, "ttanalyze: standard output: No space left on device\n")
NOWHERE = [
    (">&-", 2, "ttanalyze: standard output: Bad file descriptor\n"),
    FULL,
    ("| true", 141, ""),
]
ELSEWHERE = [
    (">&- 2>&-", 2, ""),
    ("<&- >/dev/null", 0, ""),
    ("2>&- >/dev/null", 0, ""),
    ("2>/dev/full >/dev/null", 0, ""),
]


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("arguments", "redirection", "status", "said"),
    [(words, *FULL) for words in PRINTING]
    + [(words, *case) for words in ([], ["info", "RUN"], ["query", "RUN"]) for case in NOWHERE]
    + [(["info", "RUN"], *case) for case in ELSEWHERE],
)
def test_closed_standard_streams(
    small: Writer,
    run_path: Path,
    arguments: list[str],
    redirection: str,
    status: int,
    said: str,
) -> None:
    words = [str(run_path) if word == "RUN" else word for word in arguments]
    command = shlex.join([sys.executable, "-m", "ttanalyze", *words])
    done = subprocess.run(
        ["bash", "-c", f"{command} {redirection}; exit ${{PIPESTATUS[0]}}"],
        capture_output=True,
        text=True,
        cwd=support.ROOT,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("", said)
    assert done.returncode == (status if arguments else 2)


def test_unprintable_error_sets_the_exit_status(tmp_path: Path) -> None:
    for redirection in ("2>&-", "2>/dev/full"):
        command = f"{sys.executable} -m ttanalyze info {tmp_path} {redirection}"
        assert subprocess.run(["bash", "-c", command], cwd=support.ROOT).returncode == 2


def test_closed_pipe_ends_output_quietly(run_path: Path) -> None:
    w = Writer(run_path)
    for region in range(3000):
        w.born(region, b"x")
    w.epoch("sync", "full")
    w.close()
    command = f"{sys.executable} -m ttanalyze manifest {run_path} | head -c 1"
    done = subprocess.run(
        ["bash", "-c", f"{command}; exit ${{PIPESTATUS[0]}}"],
        capture_output=True,
        text=True,
        cwd=support.ROOT,
        check=False,
    )
    assert done.stdout == "{"
    assert done.stderr == ""
    assert done.returncode == 141


# ---- imports ----


def test_heavy_modules_are_imported_late() -> None:
    program = "import sys, ttanalyze.cli; print(*sys.modules)"
    began = sum(os.times()[:4])
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert sum(os.times()[:4]) - began < 2  # of processors, its own and those of children
    assert not {"numpy", "pandas", "orjson", "rich", "cffi"} & set(done.stdout.split())


# ---- what is printed ----


def test_info_fits_on_one_screen(cli: Cli, small: Writer, run_path: Path) -> None:
    text = cli("info", run_path).stdout
    lines = text.splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 130
    for expected in (
        "./app --fast",
        "pid 1000, recording complete",
        "options  epoch=sync\n",
        "CUDA 13.0",
        "0: Test Device, 1.0 GiB",
        "5 (sync 1, kernel-after 1, launch 1, api 1, final 1); full 2",
        "4 captured (device 2, global 1, async 1), 384.1 KiB; 1 not captured (host 1)",
        "15 recorded, 2 kernels, 1 module",
        "nothing",
        "no warnings",
    ):
        assert expected in text


def test_info_as_json(cli: Cli, small: Writer, run_path: Path) -> None:
    summary = json.loads(cli("info", run_path, "--json").stdout)
    (process,) = summary["processes"]
    assert process["epochs"] == 5
    assert process["regions_captured"] == {"device": 2, "global": 1, "async": 1}
    assert process["epoch_flags"]["full"] == 2
    assert summary["warnings"] == []


def test_info_of_many_processes_and_warnings(cli: Cli, run_path: Path) -> None:
    for index in range(20):
        w = Writer(run_path, index)
        w.epoch("sync", "refused")
        w.close("failed", reason="disk full")
    text = cli("info", run_path).stdout
    assert "process 7\n" in text
    assert "process 8\n" not in text
    assert "… and 12 more processes" in text
    assert "warning: process 0: the recording ended early (failed): disk full" in text
    assert "more warnings" in text


def test_info_of_unfinished_recordings(cli: Cli, tmp_path: Path) -> None:
    killed = Writer(tmp_path / "killed")
    killed.born(0, b"abc")
    killed.epoch("sync", "full")
    counters = {"events": 0, "events_lost": 0}
    killed.close("running", ring={"bytes": 0, "memory": "none"}, counters=counters)
    text = cli("info", tmp_path / "killed").stdout
    for expected in (
        "pid 1000, killed, or still running\n",
        "ring     none\n",
        "calls    2 recorded, 0 kernels, 0 modules\n",
        "warning: it was killed or still runs: 1 epoch committed so far\n",
    ):
        assert expected in text
    segfault = Writer(tmp_path / "segfault")
    segfault.epoch("sync", "refused")
    segfault.close("signal", reason="signal 11", counters={"events": 1, "events_lost": 1})
    text = cli("info", tmp_path / "segfault").stdout
    for expected in (
        "pid 1000, recorded until it ended by signal 11\n",
        "lost     1 event, 1 epoch refused\n",
        "warning: 1 epoch was refused: it has no contents\n",
        "warning: 1 event was lost\n",
    ):
        assert expected in text
    failed = Writer(tmp_path / "failed")
    failed.close("failed", reason="disk full")
    assert "pid 1000, recording stopped early: disk full\n" in cli("info", failed.run).stdout


def test_verify_of_a_failed_recording(cli: Cli, tmp_path: Path) -> None:
    """Neither the same nor different, whether something was recorded or nothing."""
    w = Writer(tmp_path / "run")
    w.close("failed", reason="disk full")
    outcome = cli("verify", w.run)
    assert (outcome.status, outcome.stdout) == (2, "")
    assert "nothing to compare" in outcome.stderr and "disk full" in outcome.stderr
    w.born(0, b"a")
    w.epoch("sync", "full")
    w.close("failed", reason="disk full")
    outcome = cli("verify", w.run)
    assert outcome.status == 2
    assert outcome.stdout.startswith("unknown: ")
    assert "all compared memory is the same, but " in outcome.stdout
    assert json.loads(cli("verify", w.run, "--json").stdout)["same"] is False


def test_verify_says_how_to_see_the_bytes(cli: Cli, tmp_path: Path) -> None:
    for name in ("a", "b"):
        w = Writer(tmp_path / name)
        w.born(0, name.encode())
        w.epoch("sync", "full")
        w.close()
    assert cli("manifest", tmp_path / "b", "-o", tmp_path / "b.json").status == 0
    hint = "to see where: --against RUN, the run of the manifest\n"
    outcome = cli("verify", tmp_path / "a", "--manifest", tmp_path / "b.json")
    assert outcome.status == 1
    assert hint in outcome.stdout
    outcome = cli("verify", tmp_path / "a", "--against", tmp_path / "b")
    assert outcome.status == 1
    assert hint not in outcome.stdout
    assert "1 differs, at offset 0\n" in outcome.stdout


def test_info_of_a_process_killed_early(cli: Cli, run_path: Path) -> None:
    (run_path / "p0").mkdir(parents=True)
    outcome = cli("info", run_path)
    assert outcome.status == 0
    assert "it was killed or still runs: no epoch committed so far" in outcome.stdout


def test_manifest_on_the_screen_and_in_a_file(
    cli: Cli, small: Writer, run_path: Path, tmp_path: Path
) -> None:
    printed = cli("manifest", run_path).stdout
    assert json.loads(printed) == tt.open(run_path).manifest()
    path = tmp_path / "golden.json"
    assert cli("manifest", run_path, "-o", path) == Outcome("", "", 0)
    assert path.read_text() == printed
    assert cli("verify", run_path, "--manifest", path).status == 0


def test_output_links_and_devices_are_kept(
    cli: Cli, small: Writer, run_path: Path, tmp_path: Path
) -> None:
    """A link stays a link, and a device a device; a file is replaced as a whole."""
    link, file = tmp_path / "link.json", tmp_path / "file.json"
    file.write_text("old")
    link.symlink_to(file)
    assert cli("verify", run_path, "-q", "--out", link).status == 0
    assert link.is_symlink()
    assert json.loads(file.read_text())["same"]
    null = tmp_path / "null"
    null.symlink_to("/dev/null")
    assert cli("manifest", run_path, "-o", null) == Outcome("", "", 0)
    assert null.is_char_device()
    printed = support.ttanalyze("manifest", run_path, "-o", "/dev/stdout")
    assert printed == Outcome(cli("manifest", run_path).stdout, "", 0)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file.json", "link.json", "null", "run"]


def test_verify_reports_equal_runs(cli: Cli, small: Writer, run_path: Path) -> None:
    outcome = cli("verify", run_path)
    assert outcome.status == 0
    assert outcome.stdout.startswith(f"same: {run_path} and the digests recorded in {run_path}\n")
    assert "13 region-epochs compared (5 epochs, 4 regions)" in outcome.stdout


def test_verify_reports_the_location(
    cli: Cli, small: Writer, run_path: Path, tmp_path: Path
) -> None:
    report = tmp_path / "report.json"
    arguments = ["verify", run_path, "--tamper", "0,0,70001", "--continue", "--out", report]
    outcome = cli(*arguments)
    assert outcome.status == 1
    for expected in (
        "different: ",
        "region 0 differs in epoch 0",
        "device 'weights', 196,708 bytes at 0x7f0000000000, made by cuMemAlloc_v2 "
        "(call 2, thread 4711)",
        "1 differs, at offset 70001",
        "0x00011170  expected",
        "1 region-epoch differ",
    ):
        assert expected in outcome.stdout
    written = json.loads(report.read_text())
    assert written["differences"][0]["first_byte"] == 70001
    printed = json.loads(cli(*arguments, "--json").stdout)
    assert printed["differences"] == written["differences"]


def test_verify_part_of_a_run(cli: Cli, small: Writer, run_path: Path) -> None:
    outcome = cli("verify", run_path, "--epochs", "3-", "--regions", "1,7-8", "--json")
    report = json.loads(outcome.stdout)
    assert report["same"]
    assert report["region_epochs"] == 6
    assert report["epochs"] == 2


def test_verify_lists_a_hundred_differences_and_counts_all(cli: Cli, tmp_path: Path) -> None:
    for name in ("a", "b"):
        w = Writer(tmp_path / name)
        for region in range(150):
            w.born(region, name.encode() * 10)
        w.epoch("sync", "full")
        w.close()
    outcome = cli("verify", tmp_path / "a", "--against", tmp_path / "b", "--continue")
    assert outcome.status == 1
    assert "… and 50 more differences" in outcome.stdout
    assert "150 region-epochs differ" in outcome.stdout
    assert outcome.stdout.count("10 differ, from offset 0 to 9") == 100


@pytest.mark.long
def test_colours_only_on_a_terminal(
    cli: Cli, small: Writer, run_path: Path, tmp_path: Path
) -> None:
    assert "\x1b" not in cli("verify", run_path, "--tamper", "0,0,5").stdout
    w = Writer(tmp_path / "warned")
    w.epoch("sync", "refused")
    w.close()
    bare = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "TERM")}
    for arguments, coloured in (
        (f"verify {run_path} --tamper 0,0,5", "\x1b[31mdifferent\x1b[0m"),
        (f"info {tmp_path}/warned", "\x1b[33mwarning: "),
        ("doctor", "\x1b[32mok"),
    ):
        # Without the bar of what takes a while, which is no colour and moves the cursor.
        command = f"{sys.executable} -m ttanalyze {arguments} 2>/dev/null"
        for variables in ({"TERM": "xterm"}, {"TERM": "dumb"}, {"TERM": "xterm", "NO_COLOR": "1"}):
            done = subprocess.run(
                ["script", "-qec", command, "/dev/null"],
                env=bare | variables,
                cwd=support.ROOT,
                capture_output=True,
                text=True,
                check=False,
            )
            assert (coloured in done.stdout) == (variables == {"TERM": "xterm"})
            assert ("\x1b" in done.stdout) == (variables == {"TERM": "xterm"})


# ---- progress ----

SLOW = """
import sys, time
import rich.console, rich.progress
import ttanalyze.verbs.doctor.checks, ttanalyze.verbs.verify
from ttanalyze import cli
from ttanalyze.cli import common
from ttanalyze.format import Run
common.PROGRESS_AFTER = common.PROGRESS_LINE_AFTER = 0.1
def slowly(quick):
    def slow(*arguments, **options):
        progress = options.get("progress") or next(filter(callable, arguments), None)
        for done in range(4):
            if progress:
                progress(done, 4)
            time.sleep(0.15)
        return quick(*arguments, **options)
    return slow
ttanalyze.verbs.verify.verify = slowly(ttanalyze.verbs.verify.verify)
ttanalyze.verbs.doctor.checks.doctor = slowly(ttanalyze.verbs.doctor.checks.doctor)
Run.manifest = slowly(Run.manifest)
sys.exit(cli.run_command(sys.argv[1:]))
"""


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("verb", "word"),
    [("verify", "verifying"), ("manifest", "reading digests"), ("doctor", "checking")],
)
@pytest.mark.parametrize("to", ["terminal", "file"])
def test_progress_is_shown(
    small: Writer, run_path: Path, tmp_path: Path, verb: str, word: str, to: str
) -> None:
    """Where something takes a while, on stderr: a bar on a terminal, lines in a log."""
    arguments = [verb] if verb == "doctor" else [verb, str(run_path)]
    shown = errors_of(arguments, tmp_path / "errors" if to == "file" else None)
    if to == "file":
        assert re.match(rf"ttanalyze: {word}: (\d+ % )?after 0 s\n", shown)
        assert all(line.startswith(f"ttanalyze: {word}: ") for line in shown.splitlines())
    else:
        assert word in shown
        assert re.search(r"\b(25|50|75)%", shown) or verb == "doctor"
    if verb != "doctor":
        quietly = tmp_path / "quietly" if to == "file" else None
        assert errors_of([*arguments, "--quiet"], quietly) == ""


def errors_of(arguments: list[str], to: Path | None) -> str:
    """What a command that takes its time writes to stderr: to a file, or else to a terminal."""
    if to is not None:
        terminal, errors = -1, os.open(to, os.O_WRONLY | os.O_CREAT)
    else:
        terminal, errors = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-c", SLOW, *arguments],
        cwd=support.ROOT,
        env=os.environ | {"TERM": "xterm", "COLUMNS": "80"},
        stdout=subprocess.PIPE,
        stderr=errors,
        text=True,
    ) as process:
        os.close(errors)
        seen = b""
        with contextlib.suppress(OSError):  # the terminal is gone with its last process
            while to is None and (piece := os.read(terminal, 65536)):
                seen += piece
        out, _ = process.communicate()
    assert process.returncode == 0
    assert out
    assert "\x1b" not in out
    if to is not None:
        return to.read_text()
    os.close(terminal)
    return seen.decode()


# ---- doctor ----


def test_doctor_names_what_is_missing_and_what_to_do(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TT_LIB", str(tmp_path))
    outcome = cli("doctor")
    assert outcome.status == 2
    assert f"fail  recorder       {tmp_path}/libttshim.so: missing" in outcome.stdout
    assert "→ make build, or install the package again" in outcome.stdout
    assert outcome.stdout.endswith("\nnot ready to record\n")


def test_doctor_without_a_writable_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    check = checks.check_disk(tmp_path)
    assert (check.status, check.found) == ("fail", f"{tmp_path} is not writable")
    assert check.advice


@pytest.mark.parametrize(
    ("manager", "commands"),
    [
        ("apt-get", ("apt-get install binutils", "apt-get install libzstd1")),
        ("dnf", ("dnf install binutils", "dnf install libzstd")),
        (None, ("install the system's package binutils", "install the system's package libzstd1")),
    ],
)
def test_doctor_gives_the_command_that_installs(
    manager: str | None, commands: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if manager:
        (tmp_path / manager).write_text("")
        (tmp_path / manager).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("ctypes.CDLL", lambda _: os.stat("/none"))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    found = (checks.check_addr2line(), checks.check_zstd())
    assert [check.status for check in found] == ["warn", "warn"]
    assert tuple(check.advice for check in found) == commands
    monkeypatch.setattr(os, "geteuid", lambda: 1)
    assert checks.check_addr2line().advice == (f"sudo {commands[0]}" if manager else commands[0])


def test_doctor_warns_of_too_little_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(total=100 << 30, free=9 << 30)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    disk = checks.check_disk(tmp_path)
    assert disk.status == "warn" and "below 10.0 GiB epochs have digests" in disk.found
    monkeypatch.setattr(checks, "LEAST_MEMORY", 1 << 60)
    memory = checks.check_memory()
    assert memory.status == "warn" and "--ring-bytes 64M" in str(memory.advice)


def test_doctor_accepts_the_simulator() -> None:
    outcome = support.ttanalyze("doctor", "--json")
    diagnosis = json.loads(outcome.stdout)
    assert outcome.status == 0, outcome.stdout
    assert diagnosis["simulator"] is True
    assert diagnosis["fit"] is True
    statuses = {check["name"]: check["status"] for check in diagnosis["checks"]}
    assert statuses["recorder"] == "ok"
    assert statuses["simulator"] == "ok"
    assert all(check["advice"] for check in diagnosis["checks"] if check["status"] != "ok")


def test_doctor_works_with_packages_on_a_path(tmp_path: Path) -> None:
    """Its own process needs none of the packages that only PYTHONPATH leads to."""
    environment = support.importing_environment()
    venv.create(tmp_path, symlinks=True)
    command = [str(tmp_path / "bin" / "python"), "-m", "ttanalyze", "doctor", "--json"]
    outcome = support.run(command, environment)
    assert outcome.status == 0, outcome.stdout + outcome.stderr
    assert json.loads(outcome.stdout)["fit"] is True


def test_shim_prints_a_library(cli: Cli) -> None:
    outcome = cli("shim")
    assert outcome.status == 0
    assert Path(outcome.stdout.strip()).read_bytes()[:4] == b"\x7fELF"


def test_option_names_are_not_taken_from_metavars() -> None:
    """Some versions of typer take `--table TABLE`, not spelled out, for an option --TABLE."""
    folder = support.ROOT / "ttanalyze" / "cli"
    sources = "".join(path.read_text() for path in folder.glob("*.py"))
    option = r'(\w+): [\w\[\] |]+ = Option\(\s*(?:"[^"]*"|[^",]+),\s*metavar="(\w+)"'
    implied = re.findall(option, sources)
    assert len(implied) > 10
    assert [name for name, metavar in implied if name.upper() == metavar] == []
