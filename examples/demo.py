"""The tour that `make demo` takes: record, verify, record again, and find where the two part.

Uses a GPU where one works, else the simulator. Every command is shown as it would be typed.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

from ttanalyze import doctor, paths

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = "examples/build/vecadd"
PERTURBED_STEP = 5
ASKED = ["--params", "--cpu-callstack", "auto"]  # with them more can be said of who did it


def say(line: str = "") -> None:
    print(line, flush=True)


def run(*arguments: str, expected: int = 0) -> None:
    """Shows and runs a ttanalyze command; ends the demo where its status is not as expected."""
    say(f"$ ttanalyze {shlex.join(arguments)}")
    done = subprocess.run([sys.executable, "-m", "ttanalyze", *arguments], cwd=ROOT, check=False)
    say()
    if done.returncode != expected:
        sys.exit(f"demo: that should have ended with status {expected}, not {done.returncode}")


def main() -> None:
    paths.shim()
    (ROOT / "demo").mkdir(exist_ok=True)
    gpu = doctor.check_driver()[2]
    where = [] if gpu else ["--sim"]
    say("Running on " + ("the GPU." if gpu else "the simulator: there is no GPU that works here."))
    say()
    say("Record a program that adds vectors, eight steps with a wait after each:")
    run("record", *where, *ASKED, "--force", "-o", "demo/first", "--", PROGRAM)
    say("Hash all that was recorded again, and compare it with the manifest:")
    run("verify", "demo/first")
    say(f"Record it again, with one input element changed before step {PERTURBED_STEP}:")
    perturb = ["--perturb", str(PERTURBED_STEP)]
    run("record", *where, *ASKED, "--force", "-o", "demo/second", "--", PROGRAM, *perturb)
    say("Where do the two part, and what could have made them?")
    run("diff", "demo/first", "demo/second", "--dtype", "f32", expected=1)
    say("The runs are in demo/first and demo/second. To look into them:")
    say("  .venv/bin/ttanalyze info demo/first")
    say("  .venv/bin/python -c 'import ttanalyze as tt; print(tt.open(\"demo/first\").epochs)'")


if __name__ == "__main__":
    main()
