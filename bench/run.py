"""What recording costs and how fast capture is, every figure beside what it competes with.

    python bench/run.py [--only NAME…] [--quick] [--sim] [--json FILE] [--out DIR]

Parts: kernels, drain, launches, training, memory, growth, toolkit, examples. On a GPU where one
works, else on the simulator, whose times say nothing about a GPU's and are not judged. A part
that fails or lacks a tool says so, and the others go on. Prints a table; --json also writes all
that was measured, from which `python bench/report.py FILE` makes docs/performance.md.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench import figures, machine
from bench.bed import ROOT, Bed, ProgramError, Result, SkipError
from ttanalyze import doctor
from ttanalyze.errors import Error

PARTS = ("kernels", "drain", "launches", "training", "memory", "growth", "toolkit", "examples")
FORMAT = "ttanalyze-bench"


def measure(name: str, bed: Bed) -> dict[str, Any]:
    """One part: status ok, skipped or failed, why, seconds, figures, data."""
    began = time.monotonic()
    why, status = None, "ok"
    result = Result([], {})
    try:
        result = importlib.import_module(f"bench.parts.{name}").measure(bed)
    except SkipError as e:
        status, why = "skipped", str(e)
    except (ProgramError, Error, OSError) as e:
        status, why = "failed", str(e)
    except Exception as e:  # the figures of the other parts must not be lost
        status, why = "failed", f"{type(e).__name__}: {e}"
    return {
        "status": status,
        "why": why,
        "seconds": round(time.monotonic() - began, 1),
        "figures": figures.to_json(result.figures),
        "data": result.data,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, metavar="NAME")
    parser.add_argument("--quick", action="store_true", help="small sizes, few repetitions")
    parser.add_argument("--sim", action="store_true", help="on the simulator")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what was measured")
    parser.add_argument("--out", type=Path, metavar="DIR", help="where runs are recorded to")
    options = parser.parse_args()
    build = ROOT / "build" / "bench"
    sim = options.sim or not doctor.check_driver()[2]
    bed = Bed(sim, options.quick, (options.out or build / "runs").absolute(), build / "programs")
    bed.out.mkdir(parents=True, exist_ok=True)
    if sim and not options.sim:
        say("no GPU works here")
    say(f"on {'the simulator: times are its own' if sim else 'the GPU'}, runs in {bed.out}")

    parts: dict[str, Any] = {}
    for name in PARTS:
        if name not in options.only:
            continue
        parts[name] = part = measure(name, bed)
        words = [f"{name}: {part['status']}, {part['seconds']} s", *filter(None, [part["why"]])]
        say(": ".join(words))
        results = {
            "format": FORMAT,
            "version": 1,
            "simulator": sim,
            "quick": options.quick,
            "machine": machine.describe(bed),
            "parts": parts,
        }
        if options.json:  # after each part, so that a machine that goes away leaves what there is
            options.json.write_text(json.dumps(results, indent=1) + "\n")
    found = [f for part in parts.values() for f in part["figures"]]
    rows = figures.figure_rows(figures.from_json(found), not sim)
    pairs = zip(rows[1:], figures.TARGETS, strict=True)
    kept = [row for row, target in pairs if target.part in parts]
    if kept:
        print(figures.table([rows[0], *kept]))
    if "examples" in parts and parts["examples"]["status"] == "ok":
        print()
        print(figures.table(parts["examples"]["data"]["rows"]))
    return 1 if any(part["status"] == "failed" for part in parts.values()) else 0


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
