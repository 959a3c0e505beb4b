"""A tour: example programs are recorded, verified, compared and searched for a NaN."""

from __future__ import annotations

import importlib.util
import json
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from ttanalyze.errors import Error
from ttanalyze.output.files import make_folders
from ttanalyze.util import libraries
from ttanalyze.util.own_process import own_command
from ttanalyze.verbs.doctor import checks


@dataclass(frozen=True)
class Step:
    """A command of the tour.

    Attributes:
        about: What it shows, one line.
        command: Its words.
        status: Its exit status.
        seconds: How long it took.
    """

    about: str
    command: list[str]
    status: int
    seconds: float


@dataclass
class Tour:
    """The result of `demo`.

    Attributes:
        folder: Where the runs are.
        place: "GPU" or "simulator".
        torch: Whether a PyTorch program was recorded as well.
        seconds: How long the tour took.
        steps: Its commands.
    """

    folder: str
    place: str
    torch: bool
    seconds: float = 0
    steps: list[Step] = field(default_factory=list)

    def to_json(self) -> str:
        """Returns the attributes as a JSON object."""
        return json.dumps(asdict(self), indent=2)


def demo(folder: Path, sim: bool, show: Callable[[str], None]) -> Tour:
    """Records example programs and shows what each command finds.

    Args:
        folder: Where the runs go. Runs of an earlier tour are replaced.
        sim: Whether to use the simulator although there is a GPU.
        show: Called with each text to show.

    Returns:
        What was done.

    Raises:
        Error: A command did not end as it should, or the package lacks the programs.
    """
    began = time.monotonic()
    programs = libraries.demo()
    gpu = not sim and checks.check_driver()[2]
    torch = gpu and importlib.util.find_spec("torch") is not None
    make_folders(folder)
    tour = Tour(str(folder), "GPU" if gpu else "simulator", torch)
    show(f"Running on the {tour.place}{'' if gpu else ', which needs no GPU'}.\n")
    for about, words, status in _steps(folder, programs, gpu, torch):
        tour.steps.append(_run(about, [str(word) for word in words], status, show))
    tour.seconds = round(time.monotonic() - began, 2)
    return tour


Words = tuple[str | Path, ...]


def _steps(
    folder: Path, programs: Path, gpu: bool, torch: bool
) -> Iterator[tuple[str, Words, int]]:
    """Yields what each step shows, its command, and the exit status that the command has."""

    def record(name: str, options: str, *program: str | Path) -> Words:
        where = () if gpu else ("--sim",)
        return ("record", *where, *options.split(), "-f", "-o", folder / name, "--", *program)

    vecadd, stacks = programs / "vecadd", "--params --cpu-callstack auto"
    yield "Record a program that adds vectors, in 8 steps:", record("first", stacks, vecadd), 0
    yield "Is the run intact? Hash everything again:", ("verify", folder / "first"), 0
    changed = record("second", stacks, vecadd, "--perturb", "5")
    yield "Record it again, with one input value changed at step 5:", changed, 0
    compared = ("diff", folder / "first", folder / "second", "--dtype", "f32")
    yield "Where do both runs first differ, and which calls may have caused it?", compared, 1
    python = Path(sys.executable)
    nan = record("nan", "--params --epoch sync,api", python, programs / "overflow.py")
    yield "Record a program whose weights become NaN:", nan, 0
    yield "When and where did the first NaN appear, and who wrote it?", _blame(folder / "nan"), 0
    if torch:
        training = record("torch", stacks, python, programs / "torch_nan.py")
        yield "Record a training in PyTorch whose loss becomes NaN:", training, 0
        yield "When and where did its first NaN appear?", _blame(folder / "torch"), 0


def _blame(run: Path) -> Words:
    return ("blame", run, "--dtype", "f32", "--watch", "nan")


def _run(about: str, words: list[str], status: int, show: Callable[[str], None]) -> Step:
    """Shows and runs a command. Raises Error if its exit status is another one."""
    show(f"# {about}\n$ ttanalyze {shlex.join(words)}")
    began = time.monotonic()
    done = subprocess.run(
        own_command(*words),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    show(done.stdout)
    if done.returncode != status:
        raise Error(
            f"{words[0]} ended with status {done.returncode}, not {status}: {shlex.join(words)}"
        )
    return Step(about, words, status, round(time.monotonic() - began, 2))
