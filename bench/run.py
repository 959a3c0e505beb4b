"""What recording costs and how fast capture is, every figure beside what it competes with.

    python bench/run.py [--parts NAME,NAME…] [--quick] [--sim] [--out FILE] [--runs DIR]
                        [--seconds N]

On a GPU where one works, else on the simulator, whose times say nothing about a GPU's and are not
judged. A part that fails, takes too long or lacks a tool says so, and the others go on. Prints a
table and writes all that was measured to FILE, to which parts measured earlier on the same machine
still belong. `python bench/report.py FILE` makes docs/performance.md from it.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench import figures, machine
from bench.bed import ROOT, Bed, ProgramError, Result, SkipError, say
from ttanalyze.errors import Error
from ttanalyze.verbs.doctor import checks

# What each part may take, in seconds.
PARTS = {
    "kernels": 60,
    "coder": 60,
    "drain": 80,
    "launches": 40,
    "stacks": 40,
    "training": 200,
    "llama": 330,
    "budget": 60,
    "bounds": 150,
    "check": 240,
    "traces": 420,
    "memory": 50,
    "growth": 130,
    "toolkit": 40,
    "diff": 60,
    "length": 120,
    "rewind": 40,
    "patching": 20,
    "replay": 60,
    "race": 120,
    "programs": 540,
    "examples": 40,
}
FORMAT = {"format": "ttanalyze-bench", "version": 1}
RESULTS = ROOT / "build" / "bench" / "results.json"


def measure(name: str, bed: Bed, limit: float | None = None) -> dict[str, Any]:
    """One part: date, status ok, skipped or failed, why, seconds, figures, data.

    limit: seconds that it may take; default: those of PARTS.
    """
    began = time.monotonic()
    why, status = None, "ok"
    result = Result()
    try:
        part = importlib.import_module(f"bench.parts.{name}")
        result = part.measure(dataclasses.replace(bed, deadline=began + (limit or PARTS[name])))
        if result.failed:
            status, why = "failed", "; ".join(result.failed)
    except SkipError as e:
        status, why = "skipped", str(e)
    except (ProgramError, Error, OSError) as e:
        status, why = "failed", str(e)
    except Exception as e:  # the figures of the other parts must not be lost
        status, why = "failed", f"{type(e).__name__}: {e}"
    return {
        "date": machine.today(),
        "status": status,
        "why": why,
        "seconds": round(time.monotonic() - began, 1),
        "figures": figures.to_json(result.figures),
        "data": result.data,
    }


def earlier(path: Path, head: dict[str, Any]) -> dict[str, Any]:
    """The parts of a results file that were measured under the same head, by name."""
    try:
        said = json.loads(path.read_text())
        if _same_place(said) == _same_place(head):
            return {name: part for name, part in said["parts"].items() if name in PARTS}
    except (OSError, ValueError, LookupError, AttributeError):
        pass
    return {}


def _same_place(head: dict[str, Any]) -> list[Any]:
    """All that must agree. Not the memory: a virtual machine's may grow with its use."""
    machine = {key: value for key, value in head["machine"].items() if key != "memory"}
    return [machine, *(head[key] for key in ("format", "version", "simulator", "quick"))]


def names(text: str) -> list[str]:
    """The parts named in "a,b", in the order they are measured in."""
    wanted = text.split(",")
    unknown = sorted(set(wanted) - set(PARTS))
    if unknown:
        raise argparse.ArgumentTypeError(f"no part {unknown[0]!r}; there are {', '.join(PARTS)}")
    return [name for name in PARTS if name in wanted]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "--parts", type=names, default=list(PARTS), metavar="NAME,…", help=", ".join(PARTS)
    )
    parser.add_argument("--quick", action="store_true", help="small sizes, few repetitions")
    parser.add_argument("--sim", action="store_true", help="on the simulator")
    parser.add_argument("--out", type=Path, default=RESULTS, metavar="FILE", help="the results")
    parser.add_argument(
        "--runs",
        type=Path,
        default=ROOT / "build" / "bench" / "runs",
        metavar="DIR",
        help="where runs are recorded to, that is, the file system that is measured",
    )
    parser.add_argument(
        "--seconds", type=float, metavar="N", help="what each part may take, for larger sizes"
    )
    options = parser.parse_args(arguments)
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # what is installed has its bytecode
    sim = options.sim or not checks.check_driver()[2]
    runs = options.runs.absolute()
    bed = Bed(sim, options.quick, runs, ROOT / "build" / "bench" / "programs")
    runs.mkdir(parents=True, exist_ok=True)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    if sim and not options.sim:
        say("no GPU works here")
    say(f"on {'the simulator: times are its own' if sim else 'the GPU'}, runs in {runs}")

    head = {**FORMAT, "simulator": sim, "quick": options.quick, "machine": machine.describe(bed)}
    parts = earlier(options.out, head)
    for name in options.parts:
        parts[name] = part = measure(name, bed, options.seconds)
        words = [f"{name}: {part['status']}, {part['seconds']} s", *filter(None, [part["why"]])]
        say(": ".join(words))
        # After each part, so that a machine that goes away leaves what there is.
        options.out.write_text(json.dumps({**head, "parts": parts}, indent=1) + "\n")

    done = {name: parts[name] for name in options.parts}
    found = [figure for part in done.values() for figure in part["figures"]]
    rows = figures.figure_rows(figures.from_json(found), not sim, done)
    if len(rows) > 1:
        print(figures.table(rows))
    for name in ("programs", "examples"):
        if done.get(name, {}).get("data", {}).get("rows"):
            print()
            print(figures.table(done[name]["data"]["rows"]))
    say(f"results in {options.out}")
    return 1 if any(part["status"] == "failed" for part in done.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
