"""`ttanalyze record` as a launcher: whatever the program, it runs as it would without us.

The recorder itself is not the matter here: an empty library stands in for it.
"""

from __future__ import annotations

import errno
import json
import os
import pty
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import ttanalyze as tt
from tests import forked, support
from tests.hanging import in_some_limit
from tests.rundir import Writer, small_run
from tests.support import Outcome
from ttanalyze.errors import Error
from ttanalyze.verbs.record import program
from ttanalyze.verbs.record import run as record

Record = Callable[..., Outcome]


@pytest.fixture(scope="session")
def stand_ins(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of libraries that do nothing."""
    folder = tmp_path_factory.mktemp("lib")
    (folder / "sim").mkdir()
    (folder / "empty.c").write_text("int tt_empty;\n")
    for name in ("libttshim.so", "sim/libcuda.so.1", "sim/libttstatic.so"):
        command = ["gcc", "-shared", "-fPIC", "-o", str(folder / name), str(folder / "empty.c")]
        subprocess.run(command, check=True)
    (folder / "libttload.so").symlink_to(support.LIBRARIES / "libttload.so")
    return folder


@pytest.fixture
def environment(stand_ins: Path) -> dict[str, str]:
    return support.bare_environment(TT_LIB=str(stand_ins), PYTHONPATH=str(support.ROOT))


@pytest.fixture
def recorded(environment: dict[str, str], tmp_path: Path) -> Record:
    """Runs `ttanalyze record --sim` in tmp_path."""

    def run(*arguments: str | Path, stdin: str = "", **variables: str) -> Outcome:
        words = ["record", "--sim", *map(str, arguments)]
        if not stdin:
            return Outcome(*forked.run("ttanalyze", words, environment | variables, 60, tmp_path))
        done = subprocess.run(
            [sys.executable, "-m", "ttanalyze", *words],
            env=environment | variables,
            cwd=tmp_path,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return Outcome(done.stdout, done.stderr, done.returncode)

    return run


# ---- how it ends ----


@pytest.mark.sampled
@pytest.mark.parametrize("status", [0, 1, 2, 77, 255])
def test_exit_status_is_passed_on(recorded: Record, status: int) -> None:
    assert recorded("--", "sh", "-c", f"exit {status}").status == status


@pytest.mark.sampled
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM, signal.SIGINT])
def test_signal_gives_status_128_plus_its_number(recorded: Record, number: signal.Signals) -> None:
    assert recorded("--", "sh", "-c", f"kill -{int(number)} $$").status == 128 + number


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("no-such-program", "no-such-program: not found in PATH; check its name, or give its path"),
        ("./nothing", "./nothing: not found; check its path"),
        ("plain", "plain: not found in PATH; for the one in this directory use ./plain"),
        ("./plain", "./plain: not executable; chmod +x ./plain, or put its interpreter in front"),
        ("./folder", "./folder: is a directory; name the program in it"),
        ("", "the empty name: not found in PATH; check its name, or give its path"),
        ("./broken", "./broken: its interpreter /no/such/interpreter is missing"),
        ("./bare", "./bare: its interpreter (none) is missing"),
        ("./garbage", "./garbage: neither a program of this system nor a script"),
        ("./other", "./other: a 32-bit program for another machine; the recorder is for this"),
        ("./short", "./short: a damaged program file"),
        ("./alien", "./alien: its loader /no/such/ld.so is missing; it was built for another"),
        (
            "./musl",
            "./musl: built for musl; the recorder, like the driver, needs the GNU C library",
        ),
    ],
)
def test_program_that_can_not_be_run(
    recorded: Record, tmp_path: Path, program: str, reason: str
) -> None:
    """Said in one line before anything is run, with the status of a usage error."""
    loader = tmp_path / "ld-musl-x86_64.so.1"
    loader.write_bytes(b"")
    files = {
        "broken": b"#!/no/such/interpreter\n",
        "bare": b"#!\n",
        "garbage": b"\x7fBEL\0\0",
        "other": b"\x7fELF\x01\x01\x01".ljust(52, b"\0"),
        "short": elf("/lib64/ld-linux.so")[:100],
        "alien": elf("/no/such/ld.so"),
        "musl": elf(str(loader)),
    }
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
        (tmp_path / name).chmod(0o755)
    (tmp_path / "plain").write_text("")
    (tmp_path / "folder").mkdir()
    before = sorted(tmp_path.iterdir())
    outcome = recorded("--", program)
    assert outcome.status == 2
    assert outcome.stdout == ""
    assert outcome.stderr.startswith(f"ttanalyze: {reason}")
    assert outcome.stderr.count("\n") == 1
    assert sorted(tmp_path.iterdir()) == before


def elf(loader: str) -> bytes:
    """The beginning of a program of this machine that asks for a loader; it does not run."""
    with open("/proc/self/exe", "rb") as file:
        head = bytearray(file.read(64))
    name = os.fsencode(loader) + b"\0"
    head[32:40] = (64).to_bytes(8, "little")  # the program headers follow, one of them
    head[54:58] = (56).to_bytes(2, "little") + (1).to_bytes(2, "little")
    kind = (3).to_bytes(4, "little") + bytes(4)
    return bytes(head) + kind + struct.pack("<QQQQQQ", 120, 0, 0, len(name), len(name), 1) + name


def test_static_program_gets_a_warning(recorded: Record, tmp_path: Path) -> None:
    (tmp_path / "program.c").write_text("int main(void) { return 5; }\n")
    command = ["gcc", "-static", "-o", "program", "program.c"]
    subprocess.run(command, check=True, cwd=tmp_path)
    outcome = recorded("--", "./program")
    assert outcome.status == 5
    assert outcome.stderr.splitlines() == [
        "ttanalyze: ./program is statically linked, so LD_PRELOAD does not reach it: "
        "nothing will be recorded",
        "ttanalyze: nothing recorded: no CUDA context of ./program was seen",
    ]


def test_privileged_program_gets_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(shutil.copy(shutil.which("true") or "/bin/true", tmp_path / "program"))
    assert program.obstacle("program", path) is None
    os.chmod(path, 0o4755)
    assert program.obstacle("program", path) is None  # it is ours already
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert program.obstacle("program", path) == "runs with privileges of its own"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes programs of other users")
def test_privileged_program_is_not_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stand_ins: Path
) -> None:
    path = shutil.copy(shutil.which("true") or "/bin/true", tmp_path / "program")
    os.chown(path, 65534, 65534)
    os.chmod(path, 0o4755)
    monkeypatch.setattr(record, "driver_loads", lambda: True)
    monkeypatch.setenv("TT_LIB", str(stand_ins))
    said: list[str] = []
    outcome = record.record([str(path)], tmp_path / "run", warn=said.append)
    assert (outcome.status, outcome.processes) == (0, 0)
    assert said == [
        f"{path} runs with privileges of its own, so LD_PRELOAD does not reach it: "
        "nothing will be recorded"
    ]


def test_script_without_a_shebang(recorded: Record, tmp_path: Path) -> None:
    (tmp_path / "script").write_text("echo ran $1\n")
    (tmp_path / "script").chmod(0o755)
    assert recorded("--", "./script", "well").stdout == "ran well\n"


# ---- what it gets ----


def test_standard_streams_and_arguments_are_passed_on(recorded: Record) -> None:
    outcome = recorded(
        "-q", "--", "sh", "-c", 'cat; echo "$@" >&2', "sh", "--sim", "-o", "a b", stdin="in\n"
    )
    assert outcome.stdout == "in\n"
    assert outcome.stderr == "--sim -o a b\n"


def test_double_dash_is_optional(recorded: Record) -> None:
    assert recorded("-q", "echo", "-o", "--help").stdout == "-o --help\n"


def test_environment_is_passed_on(recorded: Record, stand_ins: Path, tmp_path: Path) -> None:
    outcome = recorded(
        *("-o", "out", "--epoch", "launch:3,kernel:a,b", "--ring-bytes", "1G", "--deps", "off"),
        *("--deterministic", "--retain", "7", "--", "env"),
        LD_PRELOAD="libdl.so.2",
        LD_LIBRARY_PATH="/lib",
        TT_VERBOSE="0",
    )
    seen = dict(line.split("=", 1) for line in outcome.stdout.splitlines() if "=" in line)
    runtime = f"{stand_ins}/sim/libttstatic.so"
    assert seen["LD_PRELOAD"] == f"{stand_ins}/libttshim.so:libdl.so.2:{runtime}"
    assert seen["CUDA_INJECTION64_PATH"] == f"{stand_ins}/libttshim.so"
    assert seen["LD_LIBRARY_PATH"] == f"{stand_ins}/sim:/lib"
    assert {k: v for k, v in seen.items() if k.startswith("TT_")} == {
        "TT_LIB": str(stand_ins),
        "TT_OUT": str(tmp_path / "out"),
        "TT_EPOCH": "launch:3,kernel:a,b",
        "TT_RING_BYTES": "1G",
        "TT_DEPS": "off",
        "TT_DETERMINISTIC": "1",
        "TT_RETAIN": "7",
        "TT_VERBOSE": "0",
        "TT_MAX_DISK": "off",
    }


def test_library_path_with_spaces_and_colons(
    stand_ins: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    """LD_PRELOAD can't hold such a path, so the program is given another name of the file."""
    odd = tmp_path / "my: lib"
    shutil.copytree(stand_ins, odd)
    program = 'import os; print(*map(os.path.realpath, os.environ["LD_PRELOAD"].split(":")))\n'
    program += 'print(os.path.realpath(os.environ["LD_LIBRARY_PATH"]))\n'
    command = [sys.executable, "-m", "ttanalyze", "record", "--sim", "-q", "-o", f"{tmp_path}/out"]
    done = subprocess.run(
        [*command, "--", sys.executable, "-c", program],
        env=environment | {"TT_LIB": str(odd)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == f"{odd}/libttshim.so {odd}/sim/libttstatic.so\n{odd}/sim\n"
    assert done.stderr == ""


def test_signal_dispositions_are_inherited(recorded: Record) -> None:
    """Neither what Python ignores nor what the launcher waits for stays with the program."""
    command = ["grep", "-E", "^Sig(Blk|Ign)", "/proc/self/status"]
    bare = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert recorded("-q", "--", *command).stdout == bare


@pytest.mark.sampled
@pytest.mark.parametrize("redirection", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-", "2>/dev/full"])
def test_closed_streams_stay_closed(
    environment: dict[str, str], tmp_path: Path, redirection: str
) -> None:
    """And what we could not say about it does not change how it ends."""
    program = "readlink /proc/self/fd/0 /proc/self/fd/1 /proc/self/fd/2 > $HOME/streams; exit 7"
    launcher = [sys.executable, "-m", "ttanalyze", "record", "--sim", "--"]
    seen = []
    for command in ([], launcher):
        line = f"{shlex.join([*command, 'sh', '-c', program])} {redirection}"
        done = subprocess.run(
            ["bash", "-c", line],
            env=environment | {"HOME": str(tmp_path)},
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,
        )
        assert done.returncode == 7
        seen.append((tmp_path / "streams").read_text())
    assert seen[0] == seen[1]


# ---- signals to us ----

WAITER = """
import signal, sys
awaited = {signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGINT}
signal.pthread_sigmask(signal.SIG_BLOCK, awaited)
print("ready", flush=True)
got = [signal.sigwait(awaited)]
more = signal.sigtimedwait(awaited, 0.3)
print(*map(int, got + ([more.si_signo] if more else [])), flush=True)
"""


@pytest.mark.sampled
@pytest.mark.parametrize(
    "number", [signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGINT], ids=str
)
def test_signals_are_passed_on(
    environment: dict[str, str], tmp_path: Path, number: signal.Signals
) -> None:
    command = [sys.executable, "-m", "ttanalyze", "record", "--sim", "--", sys.executable, "-c"]
    with subprocess.Popen(
        [*command, WAITER], env=environment, cwd=tmp_path, stdout=subprocess.PIPE, text=True
    ) as launcher:
        assert launcher.stdout is not None
        assert launcher.stdout.readline() == "ready\n"
        launcher.send_signal(number)
        assert launcher.stdout.read() == f"{int(number)}\n"
        assert launcher.wait(60) == 0


def test_terminal_interrupt_arrives_once(environment: dict[str, str], tmp_path: Path) -> None:
    command = [sys.executable, "-m", "ttanalyze", "record", "--sim", "-q", "--"]
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(tmp_path)
        os.execve(sys.executable, [*command, sys.executable, "-c", WAITER], environment)
    seen = b""
    while b"ready\r\n" not in seen:
        seen += os.read(terminal, 100)
    os.write(terminal, b"\x03")
    until = time.monotonic() + 60
    while not seen.rstrip().endswith(b"2") and time.monotonic() < until:
        try:
            seen += os.read(terminal, 100)
        except OSError:  # the terminal is gone with its last process
            break
    assert seen.split() == [b"ready", b"^C2"]  # the terminal shows what was typed
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    os.close(terminal)


# ---- the time limit ----

IMPATIENT = """
import sys
from ttanalyze.cli import main
from ttanalyze.verbs.record import time_limit
time_limit.GRACE_SECONDS = 0.3
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize(
    ("before", "number"), [("", signal.SIGTERM), ("trap '' TERM; ", signal.SIGKILL)]
)
def test_timeout_without_a_recorder(
    environment: dict[str, str], tmp_path: Path, before: str, number: signal.Signals
) -> None:
    """Nothing of it is recorded: the launcher ends it; 124 as by timeout(1)."""
    shell = ["sh", "-c", before + 'exec "$0" "$@"']  # the program ignores what its parent did
    options = ["record", "--sim", "--timeout", "0.3", "--json", "--", "sleep", "60"]
    done = subprocess.run(
        [*shell, sys.executable, "-c", IMPATIENT, *options],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 124
    said, told = done.stderr.splitlines()
    assert said == "ttanalyze: sleep: ended by its time limit of 0.3 s"
    assert json.loads(told)["signal"] == number


@in_some_limit(1, 4, 16)  # the shell has begun the child before one of them
def test_timeout_ends_child_processes(limit: float, recorded: Record) -> None:
    command = ("sh", "-c", "sleep 60 & echo $!; wait")
    outcome = recorded("-f", "--timeout", str(limit), "--", *command)
    assert outcome.status == 124
    told = f"ttanalyze: sh: ended by its time limit of {limit} s"
    assert outcome.stderr.splitlines()[0] == told
    state = Path(f"/proc/{int(outcome.stdout)}/stat")
    assert not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z"


def test_timeout_that_is_not_reached(recorded: Record) -> None:
    assert recorded("-q", "--timeout", "60.5", "--", "sh", "-c", "exit 5").status == 5


def test_invalid_timeout_is_refused(recorded: Record) -> None:
    for value in ("soon", "-1", "1e3", "", ".5"):
        outcome = recorded(f"--timeout={value}", "--", "true")
        assert outcome.status == 2
        assert outcome.stderr.count("\n") == 1


# ---- where it goes ----


def test_empty_recording_leaves_no_files(recorded: Record, tmp_path: Path) -> None:
    outcome = recorded("--", "true")
    assert outcome.stderr == "ttanalyze: nothing recorded: no CUDA context of true was seen\n"
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def recorder(tmp_path: Path) -> list[str]:
    """A program that leaves a run where it is told to, as the real recorder would."""
    small_run(tmp_path / "prepared")
    return ["sh", "-c", f'cp -r {tmp_path}/prepared "$TT_OUT"; exit ${{1:-0}}', "sh"]


def test_closing_line_and_exit_status(
    recorded: Record, recorder: list[str], tmp_path: Path
) -> None:
    outcome = recorded("-o", "out", "--", *recorder, "3")
    assert outcome.status == 3
    assert outcome.stderr.startswith("ttanalyze: recorded 5 epochs, 5")
    assert outcome.stderr.endswith(f"KiB, in {tmp_path}/out\n")
    text = (tmp_path / "out" / "run.json").read_text()
    info = json.loads(text)
    assert info["exit"]["status"] == 3
    assert info["exit"]["signal"] is None
    assert ',"exit":{"status":3' in text
    assert list(info)[-1] == "exit"
    before = json.loads((tmp_path / "prepared" / "run.json").read_text())
    assert {k: v for k, v in info.items() if k != "exit"} == before


def test_run_of_another_user_lacks_the_exit_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(errno.EPERM, "the directory belongs to another user")

    small_run(tmp_path / "run")
    monkeypatch.setattr(record, "replace_in", refuse)
    said: list[str] = []
    assert record.note(tmp_path / "run", {"exit": {"status": 0}}, said.append)["processes"]
    assert said == [
        f"{tmp_path}/run/run.json: cannot add exit: the directory belongs to another user"
    ]
    assert record.note(tmp_path / "nothing", {"exit": {"status": 0}}, said.append) == {}
    assert len(said) == 1


def test_closing_line_counts_the_warnings_of_info(recorded: Record, tmp_path: Path) -> None:
    w = Writer(tmp_path / "prepared")
    w.epoch("sync", "refused", "loose")
    w.epoch("sync", "loose")
    w.warnings.append("beware")
    w.close("failed", reason="disk full", counters={"events": 2, "events_lost": 1})
    copy = ("cp", "-r", "prepared", "out")
    outcome = recorded("-o", "out", "--", *copy)
    warnings = tt.open(tmp_path / "out").warnings
    assert len(warnings) == 5
    assert outcome.stderr.endswith(f"; 5 warnings: ttanalyze info {tmp_path}/out\n")


COMPLETE: dict[str, Any] = {"warnings": ["a smaller ring"], "losses": []}


@pytest.mark.parametrize(
    ("flags", "status", "members", "reason"),
    [
        ((), "complete", COMPLETE, None),
        ((), "failed", {"reason": "disk full"}, "failed: disk full"),
        ((), "signal", {"reason": "SIGTERM"}, "signal: SIGTERM"),
        ((), "running", {}, "the process was killed, or still runs"),
        (("refused",), "complete", {}, "1 refused epoch"),
        (("dropped",), "complete", {}, "1 dropped epoch"),
        (("loose",), "complete", {}, "1 loose epoch"),
        ((), "complete", {"losses": ["times were lost"]}, "times were lost"),
        ((), "complete", {"counters": {"events_lost": 2}}, "2 lost calls"),
    ],
)
def test_require_complete_refuses_lost_data(
    flags: tuple[str, ...],
    status: str,
    members: dict[str, Any],
    reason: str | None,
    recorded: Record,
    tmp_path: Path,
) -> None:
    w = Writer(tmp_path / "prepared")
    w.epoch("sync", *flags)
    w.close(status, **members)
    copy = ("sh", "-c", "cp -r prepared out; exit 5")
    outcome = recorded("-q", "-o", "out", "--require-complete", "--", *copy)
    said = f"ttanalyze: {tmp_path}/out: not complete: {reason}\n"
    assert (outcome.status, outcome.stderr) == ((2, said) if reason else (5, ""))


def test_require_complete_refuses_an_empty_recording(recorded: Record, tmp_path: Path) -> None:
    outcome = recorded("-q", "-o", "out", "--require-complete", "--", "true")
    assert outcome.status == 2
    assert outcome.stderr.endswith("/out: not complete: no process was recorded\n")
    (tmp_path / "prepared" / "p0").mkdir(parents=True)
    (tmp_path / "prepared" / "p0" / "epochs.bin").touch()
    outcome = recorded("-q", "-o", "out", "--require-complete", "--", "cp", "-r", "prepared", "out")
    assert outcome.status == 2
    assert outcome.stderr.endswith(": a process was killed before run.json listed it\n")


def test_default_names_are_numbered(recorded: Record, recorder: list[str], tmp_path: Path) -> None:
    for _ in range(3):
        assert recorded("-q", "--", *recorder).stderr == ""
    names = sorted(p.name for p in tmp_path.iterdir())
    assert names == ["prepared", "sh-2.tt", "sh-3.tt", "sh.tt"]


def test_run_is_replaced_only_with_force(
    recorded: Record, recorder: list[str], tmp_path: Path
) -> None:
    assert recorded("-o", "out", "--", *recorder).status == 0
    (tmp_path / "out" / "old").write_text("")
    again = recorded("-o", "out", "--", *recorder)
    assert again.status == 2
    assert again.stderr == (
        f"ttanalyze: {tmp_path}/out exists; choose another name, or replace it with --force\n"
    )
    assert (tmp_path / "out" / "old").exists()
    assert recorded("-o", "out", "--force", "--", *recorder).status == 0
    assert not (tmp_path / "out" / "old").exists()


@pytest.mark.parametrize("kind", ["file", "folder", "link"])
def test_other_directories_are_never_replaced(recorded: Record, tmp_path: Path, kind: str) -> None:
    out, other = tmp_path / "out", tmp_path / "other"
    other.mkdir()
    (other / "thesis.txt").write_text("years of work")
    if kind == "file":
        out.write_text("years of work")
    elif kind == "folder":
        other.rename(out)
    else:
        out.symlink_to(other)
    outcome = recorded("-o", "out", "--force", "--", "true")
    assert outcome.status == 2
    assert "exists and is not a run directory; choose another name" in outcome.stderr
    left = [p.read_text() for p in tmp_path.rglob("*") if p.is_file()]
    assert left == ["years of work"] * len(left)
    assert left


@pytest.mark.parametrize("made", [(), ("strings.bin",), ("strings.bin", "digests.bin")])
def test_run_that_only_began_is_replaced(
    recorded: Record, tmp_path: Path, made: tuple[str, ...]
) -> None:
    """A signal ended the program while the recorder made its first files."""
    (tmp_path / "out" / "p0").mkdir(parents=True)
    for name in made:
        (tmp_path / "out" / "p0" / name).write_bytes(b"")
    assert recorded("-o", "out", "--force", "--", "true").status == 0
    assert not (tmp_path / "out").exists()


def test_empty_directory_is_used(recorded: Record, recorder: list[str], tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    assert recorded("-o", "out", "--", *recorder).status == 0
    assert (tmp_path / "out" / "run.json").exists()


def test_unusable_output_path_is_refused(recorded: Record, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    outcome = recorded("-o", "file/such/out", "--", "touch", "ran")
    assert outcome.status == 2
    assert outcome.stderr == f"ttanalyze: {tmp_path}/file/such: Not a directory\n"
    outcome = recorded("-o", "file/out", "--", "touch", "ran")
    assert outcome.stderr == f"ttanalyze: {tmp_path}/file: Not a directory\n"
    assert not (tmp_path / "ran").exists()


def test_parents_of_the_run_are_made(recorded: Record, recorder: list[str], tmp_path: Path) -> None:
    assert recorded("-o", "no/such/out", "--", *recorder).status == 0
    assert (tmp_path / "no" / "such" / "out" / "run.json").exists()


# ---- before it begins ----


def test_missing_driver_is_explained(
    monkeypatch: pytest.MonkeyPatch, stand_ins: Path, tmp_path: Path
) -> None:
    monkeypatch.setattr(record, "driver_loads", lambda: False)
    monkeypatch.setenv("TT_LIB", str(stand_ins))
    with pytest.raises(Error, match=r"no GPU driver \(libcuda.so.1\) found; add --sim"):
        record.record(["true"], tmp_path / "out")


@pytest.mark.parametrize("missing", ["libttshim.so", "sim/libcuda.so.1"])
def test_missing_recorder_libraries_are_explained(
    recorded: Record, stand_ins: Path, tmp_path: Path, missing: str
) -> None:
    shutil.copytree(stand_ins, tmp_path / "lib")
    (tmp_path / "lib" / missing).unlink()
    outcome = recorded("--", "touch", "ran", TT_LIB=str(tmp_path / "lib"))
    assert outcome.status == 2
    assert outcome.stderr == (
        f"ttanalyze: {tmp_path}/lib/{missing}: missing; build the project first "
        "(make build, or pip install .)\n"
    )
    assert [p.name for p in tmp_path.iterdir()] == ["lib"]


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--epoch", "sometimes"], "--epoch sometimes: 'sometimes': expected sync, launch"),
        (["--epoch", "launch:0"], "--epoch launch:0: launch:N needs a count from 1"),
        (["--epoch", "launch:x"], "launch:N needs a count from 1"),
        (["--epoch", "kernel:"], "kernel:REGEX needs an expression"),
        (["--epoch", "sync,kernel:a(b"], "kernel:a(b: Unmatched ( or \\("),
        (["--epoch", ""], "--epoch: expected a value"),
        (["--regions", "some"], "--regions some: expected all, touched, named or zones"),
        (["--overwrite", "x"], "expected backpressure, drop-oldest or fail"),
        (["--ring-bytes", "big"], "expected a size of at least 256K, such as 256M or 2G"),
        (["--ring-bytes", "5"], "--ring-bytes 5: expected a size of at least 256K"),
        (["--ring-bytes", "99999999999T"], "expected a size"),
        (["--snapshot-every", "-1"], "--snapshot-every -1: expected a whole number"),
        (["--retain", "4294967296"], "--retain 4294967296: expected a whole number"),
        (["--stall-ms", "1.5d"], "--stall-ms 1.5d: expected a time of at most"),
        (
            ["--deterministic", "--overwrite", "fail"],
            "--deterministic needs --overwrite backpressure",
        ),
    ],
)
def test_options_are_checked_before_the_program_runs(
    recorded: Record, tmp_path: Path, arguments: list[str], reason: str
) -> None:
    outcome = recorded(*arguments, "--", "touch", "ran")
    assert outcome.status == 2
    assert reason in outcome.stderr
    assert outcome.stderr.startswith("ttanalyze: ")
    assert outcome.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_variables_are_checked_like_options(recorded: Record) -> None:
    outcome = recorded("--", "true", TT_RING_BYTES="big")
    assert outcome.status == 2
    assert outcome.stderr.startswith("ttanalyze: TT_RING_BYTES=big: expected a size")


def test_summary_as_json(tmp_path: Path, built: Path) -> None:
    """On standard error, as the program's output is its own."""
    program = support.command("example-vecadd", built)
    outcome = support.ttanalyze("record", "--sim", "--json", "-o", tmp_path / "run", "--", *program)
    said = json.loads(outcome.stderr)
    assert outcome.stdout.startswith("vecadd: ")
    assert (said["out"], said["status"], said["epochs"]) == (str(tmp_path / "run"), 0, 8)
    nothing = ("--epoch", "graph-node:no_such", "--replayable", "--kernel", "no_such")
    record = ("record", "--sim", "--json", "-o", str(tmp_path / "none"), *nothing, "--", *program)
    said = json.loads(support.ttanalyze(*record).stderr)
    assert (said["epochs"], said["launches"], said["warnings"]) == (0, 0, 2)
    assert len(tt.open(tmp_path / "none").warnings) == 2
    path = support.ttanalyze("shim").stdout.strip()
    assert json.loads(support.ttanalyze("shim", "--json").stdout) == {"shim": path}


def test_program_exit_is_seen_with_other_threads() -> None:
    """One of which may take the signal that tells of it."""
    script = """
import os, threading, time
from ttanalyze.verbs.record import run as record
threading.Thread(target=time.sleep, args=(100,), daemon=True).start()
def late(*given, spawn=record.spawn):
    child = spawn(*given)
    time.sleep(0.2)
    return child
record.spawn = late
print(record.run("/bin/true", ["true"], dict(os.environ)))
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "(0, False, None)\n"
