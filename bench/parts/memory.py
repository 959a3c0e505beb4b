"""What memory the recorder takes: of the host over a million launches, of the device at rest.

Host: the resident memory of a program that launches for long with many allocations alive, bare
and recorded, with an epoch every now and then; the difference is the recorder's. Device: what
another process sees to be free, while a program that holds memory waits, bare and recorded.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import IO

from bench.bed import (
    GIB,
    MIB,
    PROGRAMS,
    Bed,
    Command,
    ProgramError,
    Result,
    by_turns,
    last_line,
    median,
    process_of,
)
from bench.figures import Figure, Quantity

Marks = list[dict[str, float]]
KINDS = ("resident", "anonymous", "file", "shared")


def measure(bed: Bed) -> Result:
    result = Result()
    result.attempt(partial(host, bed, result))
    if not bed.sim:  # the simulator's device memory is each process's own
        result.attempt(partial(device, bed, result))
    return result


# ---- host ----


def host(bed: Bed, result: Result) -> None:
    launches, live = bed.pick((1_000_000, 10_000), (200_000, 2_000), (20_000, 200))
    command: Command = [bed.program("soak"), "--launches", str(launches), "--live", str(live)]
    command = [*command, "--every", str(launches // 100)]
    ways: dict[str, Callable[[], Marks]] = {
        "bare": partial(_soak, bed, command, None),
        "recorded": partial(_soak, bed, command, "sync"),
    }
    samples = by_turns(bed, bed.pick(3, 1, 1), ways)
    marks: Marks = []
    for i, mark in enumerate(samples["bare"][0]):
        row = {"launches": mark["launches"]}
        for kind in KINDS:
            sides = {
                name: median([sample[i][kind] for sample in them]) for name, them in samples.items()
            }
            row[kind] = (sides["recorded"] - sides["bare"]) / MIB
        marks.append(row)
    pinned = bed.answer(
        [bed.program("fetch"), "--bytes", str(64 * MIB), "--copies", "1"], bed.bare()
    )
    counted = pinned["resident"] >= pinned["pinned"] // 2
    buffers = Quantity("pinned buffers", pinned["drain_buffers"] / MIB, "MiB")
    most = max(marks, key=lambda row: row["resident"])
    # By then as many event slots are mapped as ever will be at a time.
    filled = next(row for row in marks if row["launches"] >= launches * 3 // 10)
    value = most["resident"] - (buffers.value if counted else 0)
    ours = [Quantity(kind, most[kind], "MiB") for kind in KINDS[1:]]
    words = f"{launches:,} launches, {live:,} allocations"
    if bed.sim:
        words += "; with the ring, which is host memory on the simulator"
    grown = marks[-1]["resident"] - filled["resident"]
    result.figures += [
        Figure("host-memory", value, ours, [buffers] if counted else [], words),
        Figure("host-growth", grown, note=f"from {filled['launches']:,} launches to {launches:,}"),
    ]
    result.data |= {"launches": launches, "live": live, "host_MiB": marks, "pinned": pinned}


def _soak(bed: Bed, command: Command, epoch: str | None) -> Marks:
    if epoch is None:
        marks: Marks = bed.answer(command, bed.bare())
        return marks
    with bed.run_folder() as run:
        marks = bed.answer(command, bed.recorded(run, {"epoch": epoch}))
        process_of(run)
    return marks


# ---- device ----


def device(bed: Bed, result: Result) -> None:
    sizes = bed.pick([(1024, 8 * MIB), (64, GIB)], [(1024, 8 * MIB)], [(1, MIB)])
    rows = []
    with _free_memory(bed) as free:
        for regions, size in sizes:
            command: Command = [bed.program("churn"), "--hold", "1", "--steps", "3"]
            command = [*command, "--permille", "1"]
            command = [*command, "--regions", str(regions), "--bytes", str(size)]
            bare = _held(command, bed.bare(), free)
            with bed.run_folder() as run:
                recorded = _held(command, bed.recorded(run, {}), free)
                ring = process_of(run).info["ring"]
            on_device = ring["bytes"] if ring["memory"] == "device" else 0
            extra = recorded - bare - on_device
            tracked = regions * size
            rows.append({"tracked": tracked, "ring": on_device, "besides": extra})
    first, *others = rows
    ours = [Quantity("besides the ring", first["besides"] / MIB, "MiB")]
    ours.append(Quantity("tracked", first["tracked"] / GIB, "GiB"))
    for row in others:
        of_more = 100 * row["besides"] / row["tracked"]
        ours.append(Quantity(f"of {row['tracked'] // GIB} GiB", of_more, "%"))
    share = 100 * first["besides"] / first["tracked"]
    result.figures.append(Figure("device-memory", share, ours))
    result.data["device"] = rows


@contextlib.contextmanager
def _free_memory(bed: Bed) -> Iterator[Callable[[], int]]:
    """A function that tells how much device memory is free, from a process beside the others."""
    command = [sys.executable, str(PROGRAMS / "free_memory.py")]
    with _started(command, bed.bare()) as (write, read):

        def ask() -> int:
            write.write("\n")
            write.flush()
            return int(_line(read, "free_memory.py"))

        yield ask


def _held(command: Command, environment: Mapping[str, str], free: Callable[[], int]) -> int:
    """Bytes of device memory that a program takes which waits twice: for "ready" and "done"."""
    before = free()
    with _started([str(word) for word in command], environment) as (write, read):
        for word in ("ready", "done"):
            line = _line(read, "churn")
            if line != word:
                raise ProgramError(f"churn: {line[:100]!r} is not {word!r}")
            if word == "done":
                after = free()
            write.write("\n")
            write.flush()
        read.read()
    return before - after


@contextlib.contextmanager
def _started(
    command: list[str], environment: Mapping[str, str]
) -> Iterator[tuple[IO[str], IO[str]]]:
    """A program's input and output; it gets to its end afterwards. Raises where it fails."""
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, env=dict(environment), stdin=pipe, stdout=pipe, stderr=pipe, text=True
    ) as process:
        assert process.stdin and process.stdout and process.stderr
        try:
            yield process.stdin, process.stdout
            process.stdin.close()
            problem = process.stderr.read()
            if process.wait(60):
                raise ProgramError(f"{command[0]}: {last_line(problem)}")
        finally:
            if process.poll() is None:
                process.kill()


def _line(read: IO[str], name: str) -> str:
    line = read.readline()
    if not line:
        raise ProgramError(f"{name}: ended too early")
    return line.strip()
