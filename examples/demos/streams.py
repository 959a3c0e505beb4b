"""Work in many streams, with an epoch after each launch: whole where captures are waited for.

Records examples/streams.c, and looks at each buffer in every epoch. All elements of a buffer are
to have the one value that the last write before the epoch gave it, counted in the order of calls.
With ``--deps region`` and ``device`` that is so; with ``--no-deps`` nothing waits for a capture,
nor a capture for anything, and what it reads while others write is torn.
"""

from __future__ import annotations

import os
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import numpy as np
import xxhash

import ttanalyze as tt
from examples.demos.common import options, record, say, start

BLOCK = 65536
STAMP = 2654435761
SHOWN = 5


@dataclass
class Findings:
    """What check() saw in a run."""

    epochs: int = 0  # that have contents
    looked: int = 0  # at a buffer in an epoch
    wrong: list[tuple[int, int, str]] = field(default_factory=list)  # epoch, region, how


def turned(value: int, rounds: int) -> int:
    """What the kernels make of a value."""
    for _ in range(rounds):
        value = (value * 1664525 + 1013904223) % 2**32
    return value


@cache
def digest(size: int, value: int) -> int:
    """The digest of a region of so many bytes, in which each word has this value."""
    block = np.full(min(size, BLOCK) // 4, value, "<u4").tobytes()
    digests = [xxhash.xxh3_64_intdigest(block)] * (size // BLOCK)
    if size % BLOCK or not digests:
        digests.append(xxhash.xxh3_64_intdigest(block[: size % BLOCK]))
    return xxhash.xxh3_64_intdigest(np.array(digests, "<u8").tobytes())


def writes(run: tt.Run) -> Iterator[tuple[int, int, int]]:
    """The writes of the program in the order of calls: seq, region, what every word is after it."""
    process = run.processes[0]
    regions = [row for row in run.regions.itertuples() if row.captured]
    at: dict[int, list[tuple[int, float, int]]] = {}
    for row in regions:
        end = float("inf") if np.isnan(float(row.death_seq)) else float(row.death_seq)
        at.setdefault(int(row.base), []).append((int(row.seq), end, int(row.region)))

    def region(address: int, seq: int) -> int:
        return next(id_ for born, died, id_ in at[address] if born < seq < died)

    values: dict[int, int] = {}
    count = 0
    for event in process.events[np.isin(process.events["kind"], [1, 4, 5])]:  # launch, copy, set
        seq, given = int(event["seq"]), process.params(event)
        if int(event["kind"]) == 4 and int(event["dst"]) not in at:
            continue  # to the host
        count += 1
        stamp = count * STAMP % 2**32
        if int(event["kind"]) == 5:
            to, value = region(int(event["dst"]), seq), stamp
        elif int(event["kind"]) == 4:
            to, value = region(int(event["dst"]), seq), values[region(int(event["src"]), seq)]
        elif len(given) == struct.calcsize("<QiIi"):
            data, _, own, rounds = struct.unpack("<QiIi", given)
            assert own == stamp, "a write that is not in the run"
            to = region(data, seq)
            value = (turned(values[to], rounds) + stamp) % 2**32
        else:
            data, a, b, _, own, rounds = struct.unpack("<QQQiIi", given)
            assert own == stamp, "a write that is not in the run"
            to = region(data, seq)
            both = values[region(a, seq)] ^ values[region(b, seq)]
            value = (turned(both, rounds) + stamp) % 2**32
        values[to] = value
        yield seq, to, value


def check(run: tt.Run) -> Findings:
    """Looks at every buffer in every epoch. Needs a run with parameters (`--params`)."""
    found = Findings()
    sizes = dict(zip(run.regions["region"], run.regions["size"], strict=True))
    past: dict[int, list[int]] = {}  # values of a region, the last one last
    recorded: dict[int, int] = {}
    digests = {epoch: rows for epoch, rows in run.digests.groupby("epoch")}
    coming = writes(run)
    next_write = next(coming, None)
    for epoch in run.epochs.itertuples():
        while next_write and next_write[0] <= epoch.seq:
            past.setdefault(next_write[1], []).append(next_write[2])
            next_write = next(coming, None)
        if epoch.refused or epoch.dropped:
            continue
        found.epochs += 1
        changed = digests.get(epoch.epoch)
        if changed is not None:
            recorded.update(zip(changed["region"], changed["digest"].map(int), strict=True))
        alive = run.regions[
            (run.regions["seq"] <= epoch.seq)
            & ~(run.regions["death_seq"].fillna(2**62) <= epoch.seq)
            & run.regions["region"].isin(past.keys())
        ]
        for region in alive["region"]:
            found.looked += 1
            if recorded[region] != digest(sizes[region], past[region][-1]):
                how = describe(run.read(epoch.epoch, region, dtype="u4"), past[region])
                found.wrong.append((epoch.epoch, region, how))
    return found


def describe(words: np.ndarray, past: list[int]) -> str:
    """What is wrong with a buffer that should have the last of its past values everywhere."""
    parts = []
    for value, count in zip(*np.unique(words, return_counts=True), strict=True):
        if value == past[-1]:
            age = "as it should be"
        elif value in past:
            age = f"{past[::-1].index(value)} writes old"
        else:
            age = "of a write that comes later, or of none"
        parts.append(f"{100 * count / len(words):.0f} % {age}")
    return ("torn: " if len(parts) > 1 else "whole, but ") + ", ".join(parts[:3])


def show(found: Findings) -> None:
    """Says what was found."""
    torn = sum(how.startswith("torn") for _, _, how in found.wrong)
    say(
        f"{found.epochs} epochs, {found.looked} looks at a buffer: {torn} torn, "
        f"{len(found.wrong) - torn} whole but of another time"
    )
    for epoch, region, how in found.wrong[:SHOWN]:
        say(f"  epoch {epoch}, region {region}: {how}")
    if len(found.wrong) > SHOWN:
        say(f"  and {len(found.wrong) - SHOWN} more")


def main() -> None:
    parser = options(__doc__.splitlines()[0])
    parser.add_argument("--deps", choices=["region", "device"], help="only this way")
    parser.add_argument("--no-deps", action="store_true", help="only without any order")
    parser.add_argument("--regions", choices=["touched", "all"], default="all")
    parser.add_argument("--check", type=Path, metavar="RUN", help="only look at a recorded run")
    parser.add_argument("program", nargs="*", help="arguments of examples/streams.c, after --")
    chosen = parser.parse_args()
    if chosen.check:
        found = check(tt.open(chosen.check))
        show(found)
        sys.exit(bool(found.wrong))
    start(chosen)
    if chosen.sim:  # else it does one thing after the other, and what is not ordered never shows
        os.environ.setdefault("TT_SIM_SCHEDULE", "random")
    asked = ["off"] if chosen.no_deps else [chosen.deps] if chosen.deps else []
    for deps in asked or ["region", "device", "off"]:
        how = ["--epoch", "launch", "--params", "--regions", chosen.regions, "--deps", deps]
        run, _ = record(chosen, f"streams-{deps}", how, ["streams", *chosen.program])
        found = check(tt.open(run))
        show(found)
        say()
        if found.wrong and deps != "off":
            sys.exit("demo: nothing should be torn there")


if __name__ == "__main__":
    main()
