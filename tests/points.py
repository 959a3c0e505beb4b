"""What a recording of shim_points has to hold, on the simulator and on a GPU."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import ttanalyze as tt

N = 40000
# Of each launch: the kernel's name, and what its buffer holds after it.
CHAIN = [("fill", 0), ("add", 1), ("add", 3)]
BRANCH = [("fill", 100), ("add", 101)]
BASES = [1000, 2000, 3000, 4000, 4000]


def check_points(run: Path) -> None:
    """An epoch after each kernel of each replay, with what its buffer holds then."""
    opened = tt.open(run)
    epochs = opened.epochs
    points = epochs[epochs["trigger"] == "graph-node"]
    assert not points["refused"].any()
    assert not points["loose"].any()
    launches = sorted(points["seq"].unique())
    assert len(launches) == len(BASES)
    index = np.arange(N, dtype="u4")
    a, b, c = opened.regions.query(f"size == {N * 4}")["region"].iloc[:3]
    for seq, base in zip(launches, BASES, strict=True):
        of_launch = points[points["seq"] == seq]
        assert sorted(of_launch["label"]) == ["add", "add", "add", "fill", "fill"]
        seen: dict[int, list[int]] = {a: [], b: [], c: []}
        for epoch in of_launch["epoch"]:
            for region, values in seen.items():
                contents = opened.read(epoch, region, dtype="u4")
                assert np.array_equal(contents - contents[0], index) or not contents.any()
                if not values or values[-1] != int(contents[0]):
                    values.append(int(contents[0]))
        assert seen[a][-2:] == [base, base + 1]
        assert seen[b][-2:] == [base + 100, base + 101]
        assert seen[c][-1] == base + 3
    assert tt.verify.verify(opened, run / "manifest.json").same
