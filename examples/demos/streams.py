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
from numpy.typing import NDArray

import ttanalyze as tt
from examples.demos.common import options, perform, record, say, start
from ttanalyze.errors import Error

BLOCK = 65536
STAMP = 2654435761
SHOWN = 5
LAUNCH, GRAPH_LAUNCH, COPY, SET = 1, 3, 4, 5  # kinds of events
WRITES = LAUNCH, GRAPH_LAUNCH, COPY, SET
LOOSE, WITHOUT_CONTENTS = 4, 8 | 16  # flags of an epoch; without are refused and dropped ones


@dataclass(frozen=True)
class Wrong:
    """A buffer in an epoch that has not the contents it should have."""

    epoch: int
    region: int
    torn: bool  # it has more than one value, and else the one of another time
    loose: bool  # the epoch says of itself that it may be torn
    how: str  # said of the first few only


@dataclass
class Findings:
    """What check() saw in a run."""

    epochs: int = 0  # that have contents
    looked: int = 0  # at a buffer in an epoch
    wrong: list[Wrong] = field(default_factory=list)

    @property
    def torn(self) -> int:
        return sum(wrong.torn for wrong in self.wrong)


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
    if Path(process.info["argv"][0]).name != "streams":
        raise Error(f"{run.path} is no recording of examples/streams")
    regions = run.regions[run.regions["captured"]]
    ends = regions["death_seq"].fillna(np.iinfo("i8").max)
    at: dict[int, list[tuple[int, int, int]]] = {}
    for base, *life in zip(regions["base"], regions["seq"], ends, regions["region"], strict=True):
        at.setdefault(base, []).append((life[0], life[1], life[2]))

    def region(address: int, seq: int) -> int:
        return next(number for born, died, number in at[address] if born < seq < died)

    values: dict[int, int] = {}
    count = 0
    for event in process.events[np.isin(process.events["kind"], WRITES)]:
        seq, kind, given = int(event["seq"]), int(event["kind"]), process.params(event)
        if kind == COPY and int(event["dst"]) not in at:
            continue  # to the host
        if kind == GRAPH_LAUNCH:
            given = process.graphs.data(process.graphs.nodes(int(event["id"]), seq)[0])
        count += 1
        stamp = count * STAMP % 2**32
        if kind == SET:
            to, value = region(int(event["dst"]), seq), stamp
        elif kind == COPY:
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
    process, regions = run.processes[0], run.regions
    sizes = dict(zip(regions["region"], regions["size"], strict=True))
    born = regions["seq"].to_numpy("i8")
    died = regions["death_seq"].fillna(np.iinfo("i8").max).to_numpy("i8")
    past: dict[int, list[int]] = {}  # values of a region, the last one last
    recorded: dict[int, int] = {}
    coming = writes(run)
    next_write = next(coming, None)
    for epoch, seq in enumerate(process.epochs["seq"].tolist()):
        while next_write and next_write[0] <= seq:
            past.setdefault(next_write[1], []).append(next_write[2])
            next_write = next(coming, None)
        if process.epochs["flags"][epoch] & WITHOUT_CONTENTS:
            continue
        found.epochs += 1
        changed = process.digests(epoch, epoch + 1)
        recorded.update(zip(changed["region"].tolist(), changed["digest"].tolist(), strict=True))
        alive = regions["region"].to_numpy()[(born <= seq) & (died > seq)]
        for region in filter(past.__contains__, alive.tolist()):
            found.looked += 1
            if recorded[region] == digest(sizes[region], past[region][-1]):
                continue
            words = run.read(epoch, region, dtype="u4")
            torn = bool((words != words[0]).any())
            how = describe(words, past[region]) if len(found.wrong) < SHOWN else ""
            loose = bool(process.epochs["flags"][epoch] & LOOSE)
            found.wrong.append(Wrong(epoch, region, torn, loose, how))
    return found


def describe(words: NDArray[np.uint32], past: list[int]) -> str:
    """What is in a buffer that should have the last of its past values everywhere."""
    parts = []
    for value, count in zip(*np.unique(words, return_counts=True), strict=True):
        if value == past[-1]:
            age = "as it should be"
        elif value in past:
            ago = past[::-1].index(value)
            age = f"{ago} write{'s' * (ago > 1)} old"
        else:
            age = "of a write that comes later, or of none"
        parts.append(f"{100 * count / len(words):.1f} % {age}")
    return ", ".join(parts[:3])


def show(found: Findings) -> None:
    """Says what was found."""
    say(
        f"{found.epochs} epochs, {found.looked} looks at a buffer: {found.torn} torn, "
        f"{len(found.wrong) - found.torn} whole but of another time"
    )
    for wrong in found.wrong[:SHOWN]:
        say(f"  epoch {wrong.epoch}, region {wrong.region}: {wrong.how}")
    if len(found.wrong) > SHOWN:
        say(f"  and {len(found.wrong) - SHOWN} more")


def main() -> None:
    parser = options(__doc__.splitlines()[0])
    parser.add_argument(
        *("--deps",), nargs="?", const="region", choices=["region", "device"], help="only this way"
    )
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
        how = ["--epoch", "launch,graph", "--params", "--regions", chosen.regions, "--deps", deps]
        run, _ = record(chosen, f"streams-{deps}", how, ["streams", *chosen.program])
        found = check(tt.open(run))
        show(found)
        say()
        if deps != "off" and any(not wrong.loose for wrong in found.wrong):
            sys.exit("demo: nothing should be torn there")


if __name__ == "__main__":
    perform(main)
