"""What every part of the benchmark stands on: where things are, how programs are built and run.

Programs run with an environment that has nothing of ours in it but what is asked for, and are
compared by turns: every repetition runs each of them once, in an order that moves on, so that a
machine that becomes slower or faster does so for all.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from bench.figures import Figure
from ttanalyze.errors import Error
from ttanalyze.format.process import Process
from ttanalyze.util import libraries

ROOT = Path(__file__).resolve().parent.parent
PROGRAMS = ROOT / "bench" / "programs"
OURS = ("TT_", "LD_PRELOAD", "CUDA_INJECTION64_PATH", "BENCH_")
MIB, GIB = 1 << 20, 1 << 30

T = TypeVar("T")
Command = Sequence[str | Path]


class SkipError(Exception):
    """A part can't be measured here; the text says what is missing."""


class ProgramError(Exception):
    """A program that was measured failed."""


@dataclass
class Result:
    """What a part measured: its figures, all else as JSON, and what of it failed."""

    figures: list[Figure] = field(default_factory=list)
    data: dict[str, Any] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)

    def attempt(self, measure: Callable[[], None]) -> None:
        """A piece of the part. Where it fails, the others still count."""
        try:
            measure()
        except (ProgramError, Error, OSError) as e:
            self.failed.append(str(e))
        except Exception as e:  # whatever it is, it must not take the other pieces along
            self.failed.append(f"{type(e).__name__}: {e}")


@dataclass(frozen=True)
class Bed:
    """sim: on the simulator. quick: as little as shows that it works. out: where runs go, that
    is the file system that is measured. build: where programs go. deadline: by time.monotonic(),
    when what is being measured has to be through.
    """

    sim: bool
    quick: bool
    out: Path
    build: Path
    deadline: float = float("inf")

    def pick(self, full: T, quick: T, sim: T) -> T:
        """One of three sizes."""
        return sim if self.sim else quick if self.quick else full

    @property
    def left(self) -> float:
        """Seconds to the deadline."""
        return self.deadline - time.monotonic()

    # ---- programs ----

    def program(self, name: str, *parts: str) -> Path:
        """bench/programs/NAME.c, built with parts of interpose/. Linked against a library of which
        only the name is kept.
        """
        target = self.build / name
        sources = [PROGRAMS / f"{name}.c", PROGRAMS / "program.h", PROGRAMS / "work.ptx"]
        folders = [ROOT / "interpose" / "include", ROOT / "examples", PROGRAMS, ROOT / "interpose"]
        own = [str(ROOT / "interpose" / part) for part in parts]
        link = [*own, str(libraries.simulator() / "libcuda.so.1"), "-ldl"]
        return self._compile(target, sources, folders, link)

    def library(self, name: str, folders: Sequence[Path] = (), link: Sequence[str] = ()) -> Path:
        """bench/programs/NAME.c as a library to preload or inject."""
        target = self.build / f"lib{name}.so"
        flags = ["-shared", "-fPIC", *link]
        return self._compile(target, [PROGRAMS / f"{name}.c"], folders, flags)

    def _compile(
        self, target: Path, sources: list[Path], folders: Sequence[Path], flags: list[str]
    ) -> Path:
        if target.exists() and all(
            source.stat().st_mtime < target.stat().st_mtime for source in sources
        ):
            return target
        target.parent.mkdir(parents=True, exist_ok=True)
        include = [f"-I{folder}" for folder in folders]
        command = ["gcc", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O2", *include]
        done = subprocess.run(
            [*command, "-o", str(target), str(sources[0]), *flags],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise ProgramError(f"{sources[0].name}: gcc: {last_line(done.stderr)}")
        return target

    # ---- environments ----

    def bare(self, **more: str) -> dict[str, str]:
        """This process's environment without the recorder, with `more` added."""
        environment = {k: v for k, v in os.environ.items() if not k.startswith(OURS)}
        if self.sim:
            environment["LD_LIBRARY_PATH"] = str(libraries.simulator())
        return environment | more

    def recorded(
        self, run: Path, options: Mapping[str, str], before: Sequence[Path] = ()
    ) -> dict[str, str]:
        """The same with the recorder. options: TT_ variables, without TT_ and in any case.

        before: libraries to preload in front of it.
        """
        named = {f"TT_{name.upper()}": value for name, value in options.items()}
        preload = ":".join(str(p) for p in [*before, libraries.shim()])
        return self.bare(LD_PRELOAD=preload, TT_OUT=str(run), **named)

    def let_in(self, run: Path, entry: str, options: Mapping[str, str]) -> dict[str, str]:
        """The same with the recorder that the driver loads. entry: "stubs" or "cupti"."""
        environment = self.recorded(run, {"entry": entry, **options})
        environment["CUDA_INJECTION64_PATH"] = environment.pop("LD_PRELOAD")
        return environment

    @contextlib.contextmanager
    def run_folder(self) -> Iterator[Path]:
        """A place for a run, gone afterwards."""
        folder = self.out / f"run-{os.getpid()}-{time.monotonic_ns()}"
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    # ---- running ----

    def run(
        self,
        command: Command,
        environment: Mapping[str, str],
        timeout: float = 120,
        feed: str | None = None,
    ) -> str:
        """Runs a program and gives its output. Raises ProgramError where it fails or hangs."""
        name = Path(command[0]).name
        timeout = min(timeout, self.left)
        if timeout <= 0:
            raise ProgramError(f"{name}: no time left for it")
        try:
            done = subprocess.run(
                [str(word) for word in command],
                env=dict(environment),
                input=feed,
                stdin=subprocess.DEVNULL if feed is None else None,
                capture_output=True,
                text=True,
                timeout=timeout,
                cwd=ROOT,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise ProgramError(f"{name}: no end within {timeout:.0f} s") from None
        except OSError as e:
            raise ProgramError(f"{name}: {e.strerror}") from None
        if done.returncode:
            raise ProgramError(f"{name}: status {done.returncode}: {last_line(done.stderr)}")
        return done.stdout

    def answer(self, command: Command, environment: Mapping[str, str], timeout: float = 120) -> Any:
        """The JSON that a program prints."""
        return parse(self.run(command, environment, timeout), Path(command[0]).name)

    def sanitized(self, tool: str, command: Command, timeout: float) -> Any:
        """The same under a tool of compute-sanitizer. Raises ProgramError where that is missing."""
        line = [*self.sanitizer(tool), *command]
        return parse(self.run(line, self.bare(), timeout), "compute-sanitizer")

    def sanitizer(self, tool: str) -> Command:
        """What runs a command under a tool of compute-sanitizer. Raises ProgramError likewise."""
        places = ("compute-sanitizer", "/usr/local/cuda/bin/compute-sanitizer")
        found = next(filter(None, map(shutil.which, places)), None)
        if self.sim or not found:
            raise ProgramError("no compute-sanitizer here")
        return [found, "--tool", tool, "--print-limit", "1"]


def parse(text: str, name: str) -> Any:
    """The JSON of a program's output, which may be the last line of it that is JSON."""
    for candidate in (text, *reversed(text.splitlines())):
        with contextlib.suppress(ValueError):
            return json.loads(candidate)
    raise ProgramError(f"{name}: no JSON in its output: {last_line(text)}")


def say(line: str) -> None:
    """To the person who waits, while the part goes on."""
    print(line, file=sys.stderr, flush=True)


def last_line(text: str) -> str:
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return lines[-1][:300] if lines else "no word why"


def by_turns(bed: Bed, repeat: int, ways: Mapping[str, Callable[[], T]]) -> dict[str, list[T]]:
    """The results of each way, one per repetition. Who comes first moves on every time.

    Where the time that is left is not enough for another repetition, there are fewer of them. One
    in which the time ends does not count.
    """
    names = list(ways)
    out: dict[str, list[T]] = {name: [] for name in names}
    longest = 0.0
    for i in range(repeat):
        if i and bed.left < longest * 1.2:
            break
        began = time.monotonic()
        try:
            for name in names[i % len(names) :] + names[: i % len(names)]:
                out[name].append(ways[name]())
        except ProgramError:
            if i and bed.left <= 0:
                break
            raise
        longest = max(longest, time.monotonic() - began)
    whole = min(map(len, out.values()))
    return {name: of[:whole] for name, of in out.items()}


def median(values: Sequence[float]) -> float:
    return float(statistics.median(values))


def process_of(run: Path) -> Process:
    """The one process of a run. Raises ProgramError where it did not record to its end."""
    process = Process(run / "p0", 0)
    status = process.info.get("status")
    if status != "complete":
        raise ProgramError(f"the recording is {status}: {process.info.get('reason')}")
    return process


def torch_python(bed: Bed) -> str:
    """A Python that has PyTorch. Raises SkipError where there is none, or no GPU for it."""
    if bed.sim:
        raise SkipError("PyTorch needs a GPU")
    if importlib.util.find_spec("torch") is None:
        raise SkipError("no PyTorch here")
    return sys.executable
