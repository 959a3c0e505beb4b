"""Records what the test programs print: ``python -m tests.gpu.transcripts [--write] [NAME…]``.

On a machine with a GPU (``--sim`` for the simulator) runs every program in tests/programs and
every example, compares its output with tests/data/transcripts/NAME.txt and, with ``--write``,
replaces the file. A program whose output differs between two runs is reported and not written.
The first line of each file says where it was recorded.
"""

from __future__ import annotations

import argparse
import difflib
import subprocess
import sys
import tempfile
from pathlib import Path

from tests import support

SOURCE = "# recorded on: "
SIMULATOR = "the simulator"


def read(name: str) -> tuple[str, str]:
    """The committed transcript of a program: where it was recorded, and the text."""
    first, _, text = (support.TRANSCRIPTS / f"{name}.txt").read_text().partition("\n")
    if not first.startswith(SOURCE):
        raise ValueError(f"{name}.txt: line 1: does not say where it was recorded")
    return first.removeprefix(SOURCE), text


def observe(name: str, where: Path, environment: dict[str, str]) -> tuple[str, bool]:
    """A program's transcript, and whether a second run gave the same."""
    command = support.command(name, where)
    once, again = (support.run(command, environment).transcript() for _ in range(2))
    return once, once == again


def check(name: str, machine: str, found: str, write: bool) -> bool:
    """Compares what a program printed with its file, or writes it. Returns whether all is well."""
    path = support.TRANSCRIPTS / f"{name}.txt"
    source, before = read(name) if path.exists() else ("", "")
    # What a GPU was seen to do stays named so where the simulator does the same.
    if write and (before != found or (source != machine and machine != SIMULATOR)):
        path.write_text(f"{SOURCE}{machine}\n{found}")
    if before == found:
        return True
    print(f"{name}: {'rewritten' if write else 'differs'}")
    lines = before.splitlines(True), found.splitlines(True)
    sys.stdout.writelines(difflib.unified_diff(*lines, "file", machine))
    return write


def main() -> int:
    parser = argparse.ArgumentParser(description="Compares or records transcripts.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="programs; all of them by default")
    parser.add_argument("--write", action="store_true", help="replace the files")
    parser.add_argument("--sim", action="store_true", help="on the simulator, not on the GPU")
    options = parser.parse_args()
    machine = SIMULATOR if options.sim else support.gpu_name()
    if machine is None:
        parser.error("no GPU here: say --sim for the simulator")
    if not support.SIMULATOR.exists():
        parser.error(f"{support.SIMULATOR}: missing: build the project first")
    environment = support.simulator_environment() if options.sim else support.bare_environment()
    support.TRANSCRIPTS.mkdir(parents=True, exist_ok=True)
    good = True
    with tempfile.TemporaryDirectory() as folder:
        for name in options.names or support.all_names():
            try:
                found, stable = observe(name, Path(folder), environment)
            except (RuntimeError, subprocess.TimeoutExpired) as error:
                print(f"{name}: {error}")
                good = False
                continue
            if not stable:
                print(f"{name}: not the same twice")
            good = stable and check(name, machine, found, options.write) and good
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
