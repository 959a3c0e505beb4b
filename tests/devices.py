"""What recordings of programs with several devices or contexts have to hold."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

import ttanalyze as tt

WORDS = 50000
STEPS = 12


def check_devices(run: Path, count: int = 2) -> None:
    """Each named epoch is of all devices, and all their buffers are of its step."""
    opened = tt.open(run)
    epochs = opened.epochs
    devices = list(range(count))
    assert set(opened.regions["device"]) == set(devices)
    for step in range(1, STEPS + 1):
        named = epochs[epochs["label"] == f"step {step}"]
        assert sorted(named["device"]) == devices
        assert named["seq"].nunique() == 1
        assert not named["loose"].any()
        for epoch, device in zip(named["epoch"], named["device"], strict=True):
            buffers = opened.regions.query(f"size == {WORDS * 4} and device == {device}")["region"]
            assert len(buffers) == 2
            for region in buffers:
                contents = opened.read(epoch, region, dtype="u4")
                assert np.array_equal(contents, np.arange(step, step + WORDS, dtype="u4"))
    assert tt.verify(opened, run / "manifest.json").same


def check_across(run: Path, printed: str) -> None:
    """Checks recorder_two_contexts: epochs of the second context hold what the program read."""
    opened = tt.open(run)
    region = opened.regions[opened.regions["size"] == 20000].iloc[1]
    of_second = opened.epochs[opened.epochs["context"] == region["context"]]["epoch"]
    found = [int(opened.read(epoch, int(region["region"]), dtype="u4")[0]) for epoch in of_second]
    assert found == [2, *map(int, re.findall(r"second: (\d+)", printed))]
    assert tt.verify(opened, run / "manifest.json").same
