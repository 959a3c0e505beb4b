"""Recorded twice, a program that does the same gives the same manifest, byte for byte.

``--deterministic`` gives out the same addresses and memory full of zeros each time, and a manifest
has neither times nor process ids. A run in which one weight is changed has another one.
"""

from __future__ import annotations

import filecmp
import sys

from examples.demos.common import options, perform, record, say, start, ttanalyze


def main() -> None:
    chosen = options(__doc__.splitlines()[0]).parse_args()
    start(chosen)
    say("Record a training twice, and once more with one weight changed before step 7:")
    program = ["training", "--steps", "12"]
    runs = [record(chosen, f"training{i}", ["--deterministic"], program)[0] for i in (1, 2)]
    perturbed = record(chosen, "training3", ["--deterministic"], [*program, "--perturb", "7"])[0]
    manifests = [run / "manifest.json" for run in [*runs, perturbed]]
    same = [filecmp.cmp(manifests[0], other, shallow=False) for other in manifests[1:]]
    size = manifests[0].stat().st_size
    say(f"The first two manifests, {size} bytes: " + ("equal" if same[0] else "DIFFERENT"))
    say("That of the third: " + ("EQUAL" if same[1] else "different, as it should be"))
    if same != [True, False]:
        sys.exit("demo: that should have been otherwise")
    say()
    say("So the second run is that of the first manifest, and verify says so:")
    ttanalyze("verify", runs[1], "--manifest", manifests[0], "--quiet")


if __name__ == "__main__":
    perform(main)
