"""Changes parameters of graph nodes between replays, and shows those of each replay.

Records examples/patching.c with ``--epoch graph``. The graph is instantiated once; the value that
its set writes, the destination of its copy and, with ``--kernel-patch``, the factor of its kernel
change every few replays. The parameters that the run has of each launch are compared with what
the launch left in memory.
"""

from __future__ import annotations

import struct
import sys

import numpy as np

import ttanalyze as tt
from examples.demos.common import options, perform, record, say, start, ttanalyze


def main() -> None:
    parser = options(__doc__.splitlines()[0])
    parser.add_argument("--iterations", type=int, default=12, metavar="N", help="replays")
    parser.add_argument("--toggle-every", type=int, default=4, metavar="N", help="a change each N")
    parser.add_argument("--kernel-patch", action="store_true", help="change the kernel's too")
    chosen = parser.parse_args()
    start(chosen)
    program = ["patching", "--iterations", str(chosen.iterations)]
    program += ["--toggle-every", str(chosen.toggle_every)]
    say("Record the program, with an epoch after each launch of a graph:")
    folder, _ = record(
        chosen,
        "patching",
        ["--epoch", "graph", "--params"],
        [*program, *["--kernel-patch"] * chosen.kernel_patch],
    )
    run = tt.open(folder)
    launches = run.events[run.events["kind"] == "graph-launch"]
    say("What each replay was given, and whether memory is as that says:")
    for epoch, seq in zip(run.epochs["epoch"], launches["seq"], strict=True):
        nodes = run.graph_nodes(0, seq).set_index("kind")
        value = int(nodes.loc["set", "src"])
        factor = struct.unpack("<QQiI", nodes.loc["kernel", "params"])[3]
        slot = nodes.loc["copy", "regions"][0]
        found = run.read(epoch, slot, dtype="u4")
        right = np.array_equal(found, np.arange(len(found), dtype="u4") + value * factor)
        say(
            f"  epoch {epoch}, call {seq}: set {value}, factor {factor}, copy to region {slot}: "
            + ("as it is in memory" if right else "NOT as it is in memory")
        )
        if not right:
            sys.exit("demo: the parameters are not those that the replay had")
    say()
    say("The graph as the first replay found it, and the last:")
    for seq in launches["seq"].iloc[[0, -1]]:
        ttanalyze("graph", folder, "--graph", "0", "--at", str(seq))


if __name__ == "__main__":
    perform(main)
