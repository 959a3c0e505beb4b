"""Builds and runs the programs in tests/programs and examples, on the simulator or on a GPU.

Used by the tests and by ``python -m tests.gpu.transcripts``; needs gcc and make, and nothing that
is not in the standard library.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from tests import forked

ROOT = Path(__file__).resolve().parent.parent
PROGRAMS = ROOT / "tests" / "programs"
EXAMPLES = ROOT / "examples"
TRANSCRIPTS = ROOT / "tests" / "data" / "transcripts"
LIBRARIES = Path(os.environ.get("TT_LIB", ROOT / "ttanalyze" / "lib")).absolute()
SHIM = LIBRARIES / "libttshim.so"
SIMULATOR = LIBRARIES / "sim" / "libcuda.so.1"

# Not run with the others: libraries, programs for one machine only, and drivers of our own parts.
NOT_ORDINARY = ("simonly_", "store_", "recorder_")

# The examples whose output is always the same: name, and the arguments that make it so.
EXAMPLE_ARGUMENTS: dict[str, list[str]] = {
    "vecadd": [],
    "pipeline": [],
    "scribble": [],
    "race": ["--fixed"],
    "training": [],
    "async": [],
    "vmm": [],
    "globals": [],
    "managed": [],
    "graph": [],
    "streams": [],
    "patching": ["--kernel-patch"],
}
# Recorded with these options, so that a wait that is bound to be in vain is short.
RECORDING_OPTIONS = {
    "graph_held_back": {"stall_ms": "300"},
    "out_of_memory": {"stall_ms": "300000"},  # the simulator fills a whole device slowly
}
RUNTIME_NAMES = ("vecadd", "pipeline", "scribble", "race", "graph")


@dataclass(frozen=True)
class Outcome:
    """What a program did: its output, and its exit status (-N for signal N)."""

    stdout: str
    stderr: str
    status: int

    def transcript(self) -> str:
        """Output and status without the lines that depend on the machine (those with ``~``)."""
        lines = self.stdout.splitlines(keepends=True)
        same = "".join(line for line in lines if not line.startswith("~ "))
        ending = f"[signal {-self.status}]" if self.status < 0 else f"[exit {self.status}]"
        return same + ending + "\n"


Cli = Callable[..., Outcome]  # runs a command line


def program_names() -> list[str]:
    """The test programs that run on the simulator and, unchanged, on a GPU."""
    names = (path.stem for path in sorted(PROGRAMS.glob("*.c")))
    return [n for n in names if not n.startswith(NOT_ORDINARY) and not n.endswith("_lib")]


def all_names() -> list[str]:
    """The test programs, and the examples as example-NAME."""
    return program_names() + [f"example-{name}" for name in EXAMPLE_ARGUMENTS]


def command(name: str, where: Path) -> list[str]:
    """How to run one of all_names(); it is built in the folder where, unless it is there."""
    if not name.startswith("example-"):
        return [str(build_program(name, where))]
    name = name.removeprefix("example-")
    return [str(build_examples(where / "examples") / name), *EXAMPLE_ARGUMENTS[name]]


@contextmanager
def sole_maker(of: Path) -> Iterator[None]:
    """Other processes that want to make a file wait meanwhile, and then find it there."""
    of.parent.mkdir(parents=True, exist_ok=True)
    with open(of.with_name(f".{of.name}.lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def build_program(name: str, where: Path) -> Path:
    """Compiles tests/programs/NAME.c into the folder where; NAME_lib.c becomes its library.

    The program is linked against the simulator's libcuda.so.1, of which it keeps only the name:
    what it finds at run time is up to the library path.
    """
    program = where / name
    if not program.exists():
        with sole_maker(program):
            if not program.exists():
                _compile_program(name, program)
    return program


def _compile_program(name: str, program: Path) -> None:
    where = program.parent
    compile_line = ["gcc", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1", "-g", "-pthread"]
    compile_line.append(f"-I{ROOT / 'interpose' / 'include'}")
    own: list[str] = []
    if (PROGRAMS / f"{name}_lib.c").exists():
        library, source = where / f"lib{name}.so", PROGRAMS / f"{name}_lib.c"
        driver = ["-Wl,--as-needed", str(SIMULATOR)]
        _run([*compile_line, "-shared", "-fPIC", "-o", str(library), str(source), *driver])
        own = [str(library), f"-Wl,-rpath,{where}"]
    unfinished = where / f".{name}.{os.getpid()}"
    compile_line += ["-o", str(unfinished), str(PROGRAMS / f"{name}.c")]
    _run([*compile_line, "-Wl,--as-needed", *own, str(SIMULATOR), "-ldl"])
    unfinished.rename(program)


def build_embedding(source: Path, program: Path) -> Path:
    """Compiles a program that uses what examples share, and embeds files next to its source."""
    with sole_maker(program):
        if not program.exists():
            line = ["gcc", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1", "-g"]
            line += [f"-I{ROOT / 'interpose' / 'include'}", f"-I{EXAMPLES}"]
            _run([*line, "-o", str(program), str(source), str(SIMULATOR)], source.parent)
    return program


@cache
def build_examples(where: Path) -> Path:
    """Builds the examples on the driver API into the folder where, and returns it."""
    with sole_maker(where):
        _run(["make", "-s", "-C", str(EXAMPLES), f"BUILD={where}", f"LIBCUDA={SIMULATOR}"])
    return where


def build_runtime_examples(where: Path) -> Path:
    """Builds the runtime-API versions with nvcc into where/runtime, and returns that."""
    with sole_maker(where):
        _run(["make", "-s", "-C", str(EXAMPLES), f"BUILD={where}", "runtime"])
    return where / "runtime"


def build_races(where: Path) -> Path:
    """Builds the programs with planted races with nvcc into where/races, and returns that."""
    with sole_maker(where):
        _run(["make", "-s", "-j3", "-C", str(EXAMPLES), f"BUILD={where}", "races"])
    return where / "races"


def build_cuda(source: Path, target: Path, *options: str) -> Path:
    """Builds a program with nvcc, of the path or of the usual toolkit, and returns target."""
    nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    _run([nvcc, *options, "-o", str(target), str(source)])
    return target


@cache
def pythons() -> list[str]:
    """Interpreters whose frames can be read, one of each version: this one, the path's, pyenv's."""
    minors = range(10, 16)
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    named = [shutil.which(f"python3.{minor}{free}") for minor in minors for free in ("", "t")]
    candidates = [sys.executable, *filter(None, named), *map(str, pyenv.glob("3.1*/bin/python"))]
    script = "import ctypes, sys, sysconfig as s; "
    script += "print(sys.version_info[1], s.get_config_var('Py_GIL_DISABLED') or 0)"
    found: dict[tuple[int, ...], str] = {}
    for candidate in candidates:
        said = subprocess.run(
            [candidate, "-c", script], capture_output=True, text=True, check=False
        )
        if said.returncode == 0:
            minor, free = map(int, said.stdout.split())
            if minor in minors:
                found.setdefault((minor, free), candidate)
    return [found[version] for version in sorted(found)]


def _run(command: list[str], folder: Path | None = None) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}\n{done.stdout}{done.stderr}")


def simulator_environment(**more: str) -> dict[str, str]:
    """The environment in which programs find the simulator."""
    return bare_environment(LD_LIBRARY_PATH=str(SIMULATOR.parent), **sanitizer_runtimes(), **more)


@cache
def sanitizer_runtimes() -> dict[str, str]:
    """What programs need in their environment where the libraries were built with sanitizers."""
    if not SIMULATOR.exists():
        return {}
    content = SIMULATOR.read_bytes()
    runtimes = []
    for name in ("libasan.so", "libubsan.so"):
        if name.encode() in content:
            command = ["gcc", f"-print-file-name={name}"]
            found = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            runtimes.append(str(Path(found.strip()).resolve()))
    if not runtimes:
        return {}
    # What a program leaves behind and which signals it handles is its own business; the recorder
    # comes before the runtimes.
    options = [
        "detect_leaks",
        "verify_asan_link_order",
        "handle_segv",
        "handle_sigbus",
        "handle_sigfpe",
    ]
    return {
        "LD_PRELOAD": ":".join(runtimes),
        "ASAN_OPTIONS": ":".join(f"{option}=0" for option in options),
        "UBSAN_OPTIONS": "print_stacktrace=1",
    }


def bare_environment(**more: str) -> dict[str, str]:
    """This process's environment without anything of ours, and with what more says. A recording
    has its contents even where the disk is nearly full.
    """
    ours = ("TT_", "LD_PRELOAD", "LD_LIBRARY_PATH", "CUDA_INJECTION64_PATH", "NVTX_INJECTION")
    kept = {k: v for k, v in os.environ.items() if not k.startswith(ours) or k == "TT_LIB"}
    return kept | {"TT_MAX_DISK": "off"} | more


def importing_environment(**more: str) -> dict[str, str]:
    """The same for a Python program, which imports what this process can, and the project."""
    return bare_environment(PYTHONPATH=":".join([str(ROOT), *filter(None, sys.path)]), **more)


def recording(environment: dict[str, str], run: Path, **options: str) -> dict[str, str]:
    """environment, with a recording to the folder run; options are TT_ variables without TT_."""
    named = {f"TT_{name.upper()}": value for name, value in options.items()}
    preload = ":".join(filter(None, [str(SHIM), environment.get("LD_PRELOAD")]))
    return environment | {"LD_PRELOAD": preload, "TT_OUT": str(run)} | named


def run(
    command: Sequence[str | Path],
    environment: dict[str, str],
    *,
    cwd: Path | None = None,
    timeout: float = 120,
) -> Outcome:
    """Runs a program to its end."""
    words = [str(word) for word in command]
    with subprocess.Popen(
        words,
        env=environment,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as process:
        try:
            output, errors = process.communicate(timeout=timeout)
        except BaseException as error:
            os.killpg(process.pid, signal.SIGKILL)
            if isinstance(error, subprocess.TimeoutExpired):
                raise forked.TimeLimit(words, timeout, *process.communicate()) from None
            raise
    return Outcome(output, errors, process.returncode)


PROGRESS = re.compile(r"^ttanalyze: [^\n]* after \d+ s\n", re.M)


def ttanalyze(
    *arguments: str | Path, environment: dict[str, str] | None = None, timeout: float = 300
) -> Outcome:
    """Runs the command line, as ``python -m ttanalyze``. Lines of progress, which a slow machine
    brings forth, are left out of its standard error.
    """
    words = [str(word) for word in arguments]
    if environment is None:
        environment = bare_environment(**sanitizer_runtimes())  # it loads one of the libraries
    if "LD_PRELOAD" in environment:  # the recorder, or a sanitizer
        command = [sys.executable, "-m", "ttanalyze", *words]
        done = run(command, environment, cwd=ROOT, timeout=timeout)
    else:
        done = Outcome(*forked.run("ttanalyze", words, environment, timeout))
    return replace(done, stderr=PROGRESS.sub("", done.stderr))


@cache
def gpu_name() -> str | None:
    """The name of the first GPU of this machine, or None without one."""
    tool = shutil.which("nvidia-smi")
    if not tool:
        return None
    done = run([tool, "--query-gpu=name", "--format=csv,noheader"], dict(os.environ))
    names = done.stdout.splitlines() if done.status == 0 else []
    return names[0].strip() if names else None


@cache
def gpus() -> tuple[str, ...]:
    """The GPUs that programs see, as CUDA_VISIBLE_DEVICES names them when this is first called."""
    if gpu_name() is None:
        return ()
    listed = run(["nvidia-smi", "-L"], dict(os.environ)).stdout
    uuids = re.findall(r"^GPU \d+: .*\(UUID: (GPU-[^)]+)\)", listed, re.M)
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is None:
        return tuple(uuids)
    of_number = dict(enumerate(uuids))
    names = (of_number.get(int(n)) if n.isdigit() else n for n in named.split(","))
    return tuple(filter(None, names))


def uses_context(name: str) -> bool:
    """Whether a test program makes a context current, and so leaves a run when it is recorded."""
    return name not in (
        "no_driver",
        "no_device_use",
        "context_none",
        "dlsym_lookups",
        "proc_address_table",
    )
