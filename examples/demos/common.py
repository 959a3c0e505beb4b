"""What the demos share: their options, how a command is shown and run, and how a run is recorded.

Each demo is run from the repository's folder, as ``python -m examples.demos.NAME``; on the
simulator with ``--sim``, else on a GPU.
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from ttanalyze.errors import Error
from ttanalyze.util import libraries

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path("examples") / "build"


def options(about: str) -> argparse.ArgumentParser:
    """The options that every demo has; a demo adds its own."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--sim", action="store_true", help="on the simulator, not on a GPU")
    parser.add_argument(
        "--out", type=Path, default=Path("demo"), metavar="FOLDER", help="for runs (default: demo)"
    )
    return parser


def perform(main: Callable[[], None]) -> None:
    """Runs a demo; what prevents it is said in one line."""
    try:
        main()
    except (Error, OSError, subprocess.CalledProcessError) as e:
        sys.exit(f"demo: {e}")


def start(chosen: argparse.Namespace) -> None:
    """Makes the folder of the runs, and builds the examples."""
    libraries.shim()
    (ROOT / chosen.out).mkdir(parents=True, exist_ok=True)
    subprocess.run(["make", "-s", "-C", "examples"], cwd=ROOT, check=True)


def say(line: str = "") -> None:
    """A line for who watches."""
    print(line, flush=True)


def ttanalyze(*arguments: str | Path, expected: int = 0) -> str:
    """Shows and runs a command, and gives what it printed; ends the demo where its status is not
    as expected.
    """
    words = [str(word).removeprefix(f"{ROOT}/") for word in arguments]
    say(f"$ ttanalyze {shlex.join(words)}")
    command = [sys.executable, "-m", "ttanalyze", *words]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    say(done.stdout)
    if done.returncode != expected:
        sys.exit(f"demo: that should have ended with status {expected}, not {done.returncode}")
    return done.stdout


def record(
    chosen: argparse.Namespace, name: str, how: list[str], program: list[str]
) -> tuple[Path, str]:
    """Records a program of the examples: its name and arguments. Gives the folder of the run, and
    what the program printed.
    """
    run = chosen.out / name
    where = ["--sim"] if chosen.sim else []
    to = ["--force", "-o", str(run), "--", str(BUILD / program[0]), *program[1:]]
    return ROOT / run, ttanalyze("record", *where, *how, *to)
