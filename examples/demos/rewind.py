"""Recorded, then rewound to each epoch: memory as it was then, from a snapshot and the changes.

Records examples/vecadd.c, reads both vectors in every epoch, and adds them: the sum is to be the
one of the next epoch, bit by bit.
"""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import ttanalyze as tt
from examples.demos.common import options, perform, record, say, start, ttanalyze


def main() -> None:
    parser = options(__doc__.splitlines()[0])
    parser.add_argument("--no-delta", action="store_true", help="store a full snapshot each time")
    parser.add_argument("--ring-bytes", metavar="SIZE", help="size of the ring in device memory")
    parser.add_argument(
        "--deterministic", action="store_true", help="the same addresses and manifest each time"
    )
    parser.add_argument("--manifest-out", metavar="FILE", help="write the manifest to this file")
    chosen = parser.parse_args()
    start(chosen)
    how = ["--contents", "all"] if chosen.no_delta else []
    how += ["--deterministic"] if chosen.deterministic else []
    how += ["--ring-bytes", chosen.ring_bytes] if chosen.ring_bytes else []
    say("Record a program that adds a vector to a sum in each step, with an epoch after each:")
    run, _ = record(chosen, "rewind", how, ["vecadd"])
    if chosen.manifest_out:
        say("Write what identifies the contents of each epoch:")
        ttanalyze("manifest", run, "-o", Path(chosen.manifest_out).resolve(), "--quiet")
    say("Rewind to each epoch. The sum of both vectors is to be the sum of the next epoch:")
    recorded = tt.open(run)
    wrong = 0
    for epoch, later in itertools.pairwise(recorded.epochs["epoch"].tolist()):
        added, total = _vector(recorded, epoch, 0), _vector(recorded, epoch, 1)
        right = np.array_equal(added + total, _vector(recorded, later, 1))
        say(f"epoch {epoch}: {'right' if right else 'WRONG'}")
        wrong += not right
    if wrong:
        sys.exit("demo: the recorded memory is not that of the program")


def _vector(run: tt.Run, epoch: int, region: int) -> NDArray[np.float32]:
    return np.frombuffer(run.read(epoch, region).tobytes(), np.float32)


if __name__ == "__main__":
    perform(main)
