"""A run verified, then one in which a single element was corrupted, found and marked in a trace.

Records examples/vecadd.c twice, the second time with one input element changed before a step, and
compares the second run with the first one's manifest: verify names the epoch, the region and the
byte. Its report goes into the trace of the run.
"""

from __future__ import annotations

import json
import sys

import ttanalyze as tt
from examples.demos.common import ROOT, options, perform, record, say, start, ttanalyze


def main() -> None:
    parser = options(__doc__.splitlines()[0])
    parser.add_argument("--step", type=int, default=5, metavar="N", help="corrupt before step N")
    chosen = parser.parse_args()
    start(chosen)
    report, trace = chosen.out / "verify-report.json", chosen.out / "verify-trace.json"
    say("Record a program, and verify that what was stored is what was there:")
    good, _ = record(chosen, "good", ["--deterministic"], ["vecadd"])
    ttanalyze("verify", good, "--quiet")
    say("A byte that changed on the disk would be noticed:")
    ttanalyze("verify", good, "--quiet", "--tamper", "3,0,4096", expected=1)
    say(f"Record it again, and corrupt one element before step {chosen.step}:")
    program = ["vecadd", "--perturb", str(chosen.step)]
    bad, _ = record(chosen, "corrupt", ["--deterministic"], program)
    against = ["--against", good, "--out", report, "--quiet"]
    ttanalyze("verify", bad, *against, expected=1)
    say("The report goes into a trace, for ui.perfetto.dev:")
    ttanalyze("trace", bad, "--annotate", report, "-o", trace, "--quiet")

    first = json.loads((ROOT / report).read_text())["differences"][0]
    ours, theirs = (tt.open(run).read(first["epoch"], first["region"]) for run in (bad, good))
    found = int((ours != theirs).nonzero()[0][0])
    say(f"First corrupt byte in memory: {found} of region {first['region']}")
    marks = [e for e in json.loads((ROOT / trace).read_text())["traceEvents"] if is_mark(e)]
    say(f"Marks in the trace: {len(marks)}")
    if found != first["first_byte"] or not marks:
        sys.exit("demo: that is not what verify found")


def is_mark(event: dict[str, object]) -> bool:
    return event.get("ph") == "i" and "differ" in str(event.get("name"))


if __name__ == "__main__":
    perform(main)
