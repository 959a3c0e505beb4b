"""Runs a program under the recorder.

The program gets our standard streams, terminal and process group. Signals that are sent to us are
passed on, and we end as the program ended. A recording needs nothing of this: the variables can be
set by hand.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import math
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, BinaryIO

import orjson

from ttanalyze import options
from ttanalyze.disassembly import tools
from ttanalyze.errors import Error, system_error, system_errors
from ttanalyze.output import text
from ttanalyze.output.files import directory, make_folders, replace_in
from ttanalyze.util import libraries
from ttanalyze.util.remote import SCHEME
from ttanalyze.verbs.record import program, totals
from ttanalyze.verbs.record.shared import NAME, Job, recorded_ranks
from ttanalyze.verbs.record.time_limit import LOOK_SECONDS, TimeLimit

FORWARDED = {
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGTERM,
    signal.SIGUSR1,
    signal.SIGUSR2,
}
ENDING = {signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM}
LOCK_SECONDS = 5
LIMITS = ("TT_TIMEOUT", "TT_KERNEL_TIMEOUT", "TT_NO_PROGRESS")
TIMED_OUT = 124  # exit status, as of timeout(1)


@dataclass(frozen=True)
class Recorded:
    """The result of a recording.

    Attributes:
        out: The run directory.
        status: The exit status of the program, 128 + N if signal N ended it, 124 if the time limit
            did.
        signal: The signal that ended the program, else None.
        interrupted: The signal that asked ttanalyze to end, else None.
        processes: The number of recorded processes.
        epochs: The number of epochs.
        launches: The number of replayable launches.
        bytes: The size of the run directory in bytes.
        warnings: The number of warnings that `info` lists.
        incomplete: What is missing in the recording, None if nothing is.
        seconds: The duration in seconds.
        hang: The kind of the hang that ended the program, as in ttanalyze.traces.hangs. None if
            there was none, or nothing is known of warps.
        rank: The rank of the job that was recorded, whose processes these are. None if `record`
            itself is no rank.
    """

    out: Path
    status: int
    signal: int | None
    interrupted: int | None
    processes: int
    epochs: int
    launches: int
    bytes: int
    warnings: int
    incomplete: str | None
    seconds: float
    hang: str | None = None
    rank: int | None = None

    def to_json(self) -> str:
        """Returns the attributes as a JSON object in one line."""
        return orjson.dumps({**asdict(self), "out": str(self.out)}).decode()

    def line(self, program: str) -> str:
        """Returns the result in one line for a screen.

        Args:
            program: The name of the program.
        """
        lead = "" if self.rank is None else f"rank {self.rank}: "
        if not self.processes:
            return f"{lead}nothing recorded: no CUDA context of {program} was seen"
        of = f" of {self.processes} processes" if self.processes > 1 else ""
        amount = text.count(self.epochs, "epoch")
        if self.launches:
            amount += (
                f" and {text.count(self.launches, 'replayable launch', 'replayable launches')}"
            )
        line = f"{lead}recorded {amount}{of}, {text.size(self.bytes)}, in {self.out}"
        if self.warnings:
            line += f"; {text.count(self.warnings, 'warning')}: ttanalyze info {self.out}"
        return line


def record(
    argv: Sequence[str],
    out: Path | None = None,
    variables: Mapping[str, str] | None = None,
    *,
    sim: bool = False,
    force: bool = False,
    share: bool = False,
    warn: Callable[[str], None] | None = None,
    output: BinaryIO | None = None,
) -> Recorded:
    """Runs a program under the recorder and waits for it.

    Args:
        argv: The program and its arguments.
        out: The run directory. Default: TT_OUT, else a name made of the program's.
        variables: Variables of the recorder such as {"TT_EPOCH": "launch:10"}. The page of
            `ttanalyze record` lists them.
        sim: Whether to use the simulator in place of a GPU.
        force: Whether to replace an existing run directory.
        share: Whether this process, if it is a rank of a job, shares the directory with the others.
        warn: Called with one line if something may keep the recorder out of the program, or if the
            time limit ended it.
        output: A file for the standard output and error of the program. If given, its standard
            input is empty.

    Returns:
        The result of the recording.

    Raises:
        Error: The program cannot be run, or the recording cannot begin. The program was not run.

    Example:
        >>> done = tt.record(["true"], sim=True)
        >>> done.status, done.processes
        (0, 0)
    """
    path = program.find(argv[0])
    obstacle = program.obstacle(argv[0], path)
    shim = libraries.shim()
    simulator = libraries.simulator() if sim else None
    if simulator is None and not driver_loads():
        raise Error("no GPU driver (libcuda.so.1) found; add --sim to use the simulator")
    job = Job.of(os.environ) if share else None
    given = os.environ.get("TT_OUT")
    out = out or (Path(given) if given else default_out(argv[0], job=job))
    require_here(out)
    out = out.absolute()
    if job is None:
        make_way(out, force)
    elif force:
        raise Error(f"--force: all ranks of the job record to {out}; remove it before")
    else:
        job.join(out)
    if obstacle and warn:
        closed = sim or obstacle == program.PRIVILEGED
        only = "nothing will be recorded" if closed else "only the driver can let the recorder in"
        warn(f"{argv[0]} {obstacle}, so LD_PRELOAD does not reach it: {only}")
    began = time.monotonic()
    with contextlib.ExitStack() as stack:
        environment = launch_environment(
            os.environ | (variables or {}),
            preload=stack.enter_context(without(str(shim), " :")),
            simulator=stack.enter_context(without(str(simulator), " :;")) if simulator else None,
        )
        environment["TT_OUT"] = str(out)
        if delays := environment.get("TT_DELAY_LOAD"):  # wherever the program goes from here
            environment["TT_DELAY_LOAD"] = os.path.abspath(delays)
            if found := tools.find("nvdisasm"):
                environment.setdefault("TT_NVDISASM", str(found[0]))
        if not sim and needs_sanitizer(environment) and (library := sanitizer_library()):
            environment.setdefault("TT_INSTRUMENT_LIBRARY", library)
        if environment.get("TT_INSTRUMENT_LIBRARY") and needs_sanitizer(environment):
            environment["CUDA_MODULE_LOADING"] = "EAGER"  # what is loaded later is not changed
        limit = options.parse_time(environment.get("TT_TIMEOUT") or "0")
        status, late, interrupted = run(path, argv, environment, limit, output, warn)
    seconds = time.monotonic() - began
    died = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
    code = 128 + died if died is not None else os.WEXITSTATUS(status)
    limited = any(environment.get(name) for name in LIMITS)
    if late or (limited and totals.timed_out(out)):
        code = TIMED_OUT
    ending = {"status": code, "signal": died, "seconds": round(seconds, 6)}
    ours = out if job is None else recorded_ranks(out).get(job.rank, out / NAME)
    over = [(totals.folder_of(out, one), one) for one in totals.contents(out)]
    mine = [of for of in over if ours in (out, of[0])]
    totals.keep_summaries(mine)  # before run.json says that the run is over
    info = note(out, {"exit": job.worst(out, ending) if job else ending}, warn)
    listed = [
        one for one in totals.processes(info) if job is None or totals.folder_of(out, one) == ours
    ]
    sums, processes = (
        totals.sums(ours),
        [(one, totals.flags(totals.folder_of(out, one))) for one in listed],
    )
    warnings = sum(totals.warnings(out, *process) for process in processes)
    incomplete = totals.incomplete(processes, sums[0])
    rank = None if job is None else job.rank
    hang = _hang(ours) if code else None
    return Recorded(out, code, died, interrupted, *sums, warnings, incomplete, seconds, hang, rank)


# ---- before ----


def driver_loads() -> bool:
    """Returns whether a program would find libcuda.so.1."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


def needs_sanitizer(environment: Mapping[str, str]) -> bool:
    """Whether NVIDIA's Sanitizer API is to record instructions, if it is there."""
    kinds = environment.get("TT_INSTRUMENT", "").split(",")
    way = environment.get("TT_INSTRUMENT_WAY", "auto")
    return kinds != [""] and way != "patcher" and (way == "sanitizer" or "count" not in kinds)


SANITIZER = "nvidia-cuda-sanitizer-api"
OLDEST_SANITIZER = (13, 5)  # older ones end programs whose kernels access memory in other ways


def sanitizer_library() -> str:
    """Returns the path of libsanitizer-public.so in its Python package.

    "": the package is missing or too old.
    """
    with contextlib.suppress(metadata.PackageNotFoundError, ValueError):
        version = tuple(map(int, metadata.version(SANITIZER).split(".")[:2]))
        for file in metadata.files(SANITIZER) or ():
            if file.name == "libsanitizer-public.so" and version >= OLDEST_SANITIZER:
                return str(file.locate())
    return ""


def default_out(program: str, ending: str = ".tt", job: Job | None = None) -> Path:
    """Returns PROGRAM.tt in the current directory, or PROGRAM-2.tt and so on if it exists.

    The ranks of a job share the first.
    """
    name = os.path.basename(program) or "run"
    out = Path(f"{name}{ending}")
    number = 2
    while job is None and os.path.lexists(out):
        out = Path(f"{name}-{number}{ending}")
        number += 1
    return out


def make_way(out: Path, force: bool) -> None:
    """Removes the run directory at out and makes the folders above it.

    Raises Error if something else is there, or out is a URL.
    """
    require_here(out)
    parent = out.parent
    make_folders(parent)
    if not os.access(parent, os.W_OK | os.X_OK):
        raise Error(f"{out}: {parent} is not writable")
    try:
        mode = out.lstat().st_mode
    except FileNotFoundError:
        return
    except OSError as e:
        raise system_error(out, e) from None
    with system_errors(out):
        if stat.S_ISDIR(mode) and not os.listdir(out):
            out.rmdir()
            return
        if not force:
            raise Error(f"{out} exists; choose another name, or replace it with --force")
        if not stat.S_ISDIR(mode) or not _is_run(out):
            raise Error(f"{out} exists and is not a run directory; choose another name")
        shutil.rmtree(out)


def _is_run(folder: Path) -> bool:
    first = folder / "p0"
    if (folder / "run.json").is_file() or (first / "epochs.bin").is_file():
        return True
    if os.listdir(folder) != ["p0"] or not first.is_dir() or first.is_symlink():
        return False
    # The recorder ended as it began: it makes strings.bin first.
    return not os.listdir(first) or (first / "strings.bin").is_file()


def require_here(out: Path) -> None:
    """Raises Error if out is a URL, which an absolute path no longer shows."""
    if SCHEME.match(str(out)):
        raise Error(f"{out}: a URL; name a directory, and upload it with `ttanalyze push`")


@contextlib.contextmanager
def without(path: str, separators: str) -> Iterator[str]:
    """Yields a name of path without these characters, which separate items of its variable."""
    if not set(path) & set(separators):
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="ttanalyze-") as folder:
        link = os.path.join(folder, os.path.basename(path))
        if set(link) & set(separators):
            raise Error(f"{path}: the path has one of {separators!r}; set TMPDIR to another folder")
        os.symlink(path, link)
        yield link


def launch_environment(
    environment: Mapping[str, str], preload: str, simulator: str | None
) -> dict[str, str]:
    """Returns the environment with the recorder (and the simulator) in front."""
    out = dict(environment)
    entry = out.get("TT_ENTRY") or "auto"
    if entry in ("auto", "preload"):
        out["LD_PRELOAD"] = ":".join(filter(None, [preload, out.get("LD_PRELOAD")]))
    if entry != "preload":
        out["CUDA_INJECTION64_PATH"] = preload
    # One that is named there keeps its place: the recorder goes along with it.
    out["NVTX_INJECTION64_PATH"] = out.get("NVTX_INJECTION64_PATH") or preload
    if simulator is not None:
        static = os.path.join(simulator, libraries.STATIC_RUNTIME)
        out["LD_PRELOAD"] = ":".join(filter(None, [out.get("LD_PRELOAD"), static]))
        out["LD_LIBRARY_PATH"] = ":".join(filter(None, [simulator, out.get("LD_LIBRARY_PATH")]))
    return out


# ---- meanwhile ----


def run(
    program: str,
    argv: Sequence[str],
    environment: Mapping[str, str],
    seconds: float = 0,
    output: BinaryIO | None = None,
    warn: Callable[[str], None] | None = None,
) -> tuple[int, bool, int | None]:
    """Runs the program to its end.

    Returns its wait status, whether it was ended from here, and the signal that asked us to end.
    seconds: the time limit, 0 for none. The recorder ends recorded processes, and the rest is ended
    from here, which warn is told.
    """

    def tell() -> None:
        if warn:
            warn(f"{argv[0]}: ended by its time limit of {seconds:.10g} s")

    signal.signal(
        signal.SIGCHLD, signal.SIG_DFL
    )  # where it is ignored there is nothing to wait for
    watched = FORWARDED | {signal.SIGCHLD}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    interrupted: int | None = None
    try:
        child = spawn(program, argv, environment, mask, output)
        limit = TimeLimit(seconds or math.inf, child, Path(environment.get("TT_OUT", "")), tell)
        while True:
            # Another thread of this process may take the signal that the program has ended.
            info = signal.sigtimedwait(watched, min(LOOK_SECONDS, limit.wait()))
            if info is not None and info.si_signo in ENDING:
                interrupted = info.si_signo
            pid, status = os.waitpid(child, os.WNOHANG)
            if pid == child:
                limit.finish()
                return status, limit.enforced, interrupted
            limit.look()
            if info is not None and info.si_signo in FORWARDED and info.si_code <= 0:
                # From a process. What the terminal sends, it sends to the program as well.
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child, info.si_signo)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def spawn(
    program: str,
    argv: Sequence[str],
    environment: Mapping[str, str],
    mask: set[Any],
    output: BinaryIO | None,
) -> int:
    """Starts the program with this signal mask and returns its process id."""

    def start(path: str, words: Sequence[str]) -> int:
        # By fork: posix_spawn leaves signals ignored in the program that the C library uses.
        child = subprocess.Popen(
            list(words),
            executable=path,
            env=environment,
            stdin=None if output is None else subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            close_fds=False,
            preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_SETMASK, mask),
        )
        child.returncode = 0  # it is waited for by its number
        return child.pid

    try:
        return start(program, argv)
    except OSError as e:
        if e.errno == errno.ENOEXEC:  # a script without a first line, which shells run themselves
            return start("/bin/sh", ["/bin/sh", program, *argv[1:]])
        raise Error(f"{argv[0]}: {e.strerror}") from None


# ---- after ----


def note(
    out: Path, members: Mapping[str, Any], warn: Callable[[str], None] | None = None
) -> dict[str, Any]:
    """Adds members to run.json, as its last ones. Children of the program may still run.

    Returns the contents of run.json, {} if there is none. warn: called with one line if it cannot
    be written.
    """
    path = out / "run.json"
    info: dict[str, Any] = {}
    try:
        with contextlib.suppress(orjson.JSONDecodeError), _locked(out) as folder:
            info = orjson.loads(path.read_bytes())
            kept = {name: value for name, value in info.items() if name not in members}
            replace_in(folder, "run.json", orjson.dumps({**kept, **members}))
    except PermissionError as e:
        if warn:
            warn(f"{path}: cannot add {', '.join(members)}: {e.strerror}")
    except OSError:
        pass
    return info


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[int]:
    """Holds the lock of run.json, unless it is busy for too long. Yields a descriptor of the run
    directory.
    """
    with directory(path) as folder:
        until = time.monotonic() + LOCK_SECONDS
        while True:
            try:
                fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.002)
        yield folder


def _hang(out: Path) -> str | None:
    """Returns the kind of the first hang of a run whose warps are known."""
    info = totals.contents(out)
    if not any(report.get("launches") for one in info for report in one.get("incidents", [])):
        return None
    from ttanalyze.format import open_run
    from ttanalyze.traces.hangs import hangs

    with contextlib.suppress(Error):
        return next((hang.kind for hang in hangs(open_run(out))), None)
    return None


def say(line: str) -> None:
    """Prints one line on stderr, if it is open."""
    with contextlib.suppress(OSError):
        print(f"ttanalyze: {text.printable(line)}", file=sys.stderr, flush=True)
