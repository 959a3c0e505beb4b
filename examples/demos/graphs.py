"""A stream captured into a graph, and epochs after each replay of it, or inside.

Records examples/graph.c with ``--epoch graph``: whatever the kernels of a replay did, the epoch
after it has. So the energy that the graph computes is in memory, epoch by epoch, as the program
printed it; and what the graph consists of is known. With ``--epoch graph-node:step`` there is an
epoch after each kernel of that name, while the graph runs: between two steps the wave has moved by
one.
"""

from __future__ import annotations

import re
import sys

import ttanalyze as tt
from examples.demos.common import options, perform, record, say, start, ttanalyze


def main() -> None:
    chosen = options(__doc__.splitlines()[0]).parse_args()
    start(chosen)
    say("Record the program, with an epoch after each launch of a graph:")
    folder, printed = record(chosen, "graphs", ["--epoch", "graph"], ["graph"])
    say("What the graph consists of:")
    ttanalyze("graph", folder, "--graph", "0")
    run = tt.open(folder)
    changes = run.digests[run.digests["changed"] > 0]
    launches = run.events[run.events["kind"] == "graph-launch"]
    region = int(run.regions.loc[run.regions["size"] == 8, "region"].iloc[0])
    say("What each replay left behind:")
    energies = []
    for epoch, seq in zip(run.epochs["epoch"], launches["seq"], strict=True):
        changed = changes.loc[changes["epoch"] == epoch, "region"].tolist()
        energies.append(int(run.read(epoch, region, dtype="u8")[0]))
        say(f"  epoch {epoch}, after call {seq}: regions {changed}, energy {energies[-1]}")
    if energies != [int(found) for found in re.findall(r"energy (\d+)", printed)]:
        sys.exit("demo: the program printed other energies")
    say()
    say("Record it with an epoch after each kernel `step`, inside the graph:")
    folder, _ = record(chosen, "graphs-inside", ["--epoch", "graph-node:^step$"], ["graph"])
    run = tt.open(folder)
    changes = run.digests[run.digests["changed"] > 0]
    inside = run.epochs[run.epochs["trigger"] == "graph-node"]
    for epoch, seq in zip(inside["epoch"], inside["seq"], strict=True):
        changed = changes.loc[changes["epoch"] == epoch, "region"].tolist()
        say(f"  epoch {epoch}, in the replay of call {seq}: regions {changed}")
    if len(inside) != 2 * len(energies):
        sys.exit("demo: two kernels of that name ran in each replay")


if __name__ == "__main__":
    perform(main)
