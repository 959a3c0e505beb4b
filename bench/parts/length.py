"""info, query, trace and diff on runs of more and more launches, in 512 MiB of memory.

The runs are made by bench/generated.py: an epoch for every thousand launches. Each verb runs as a
process of its own with --max-memory, whose private memory is looked at fifty times a second, and
as many at once as there are processors. Runs grow by factors of ten while time and disk suffice for
the next.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from bench import generated
from bench.bed import MIB, ROOT, Bed, ProgramError, Result, last_line, say
from bench.figures import Figure, Quantity

LAUNCHES = 1000  # of each epoch
REGIONS, CHANGED, CONTENTS = 100, 2, 64
MEMORY = 512 * MIB
EVENT = 128  # bytes
SLOWER = 12  # times the time of a tenth, at most, as far as is planned for
VERBS: dict[str, list[str]] = {
    "info": ["info", "A"],
    "query": ["query", "A", "--group-by", "short", "--count", "--sum", "bytes", "-q"],
    "trace": ["trace", "A", "--format", "perfetto", "-o", "/dev/null", "-q"],
    "diff": ["diff", "A", "B", "-q"],
}


def measure(bed: Bed) -> Result:
    """data: by the number of launches: seconds, private bytes, bytes in the temporary file."""
    result = Result(data={"launches": {}})
    taken = 0.0
    for count in (1_000, 10_000) if bed.quick else (10**n for n in range(5, 9)):
        room = shutil.disk_usage(bed.out).free > 5 * EVENT * count
        if result.failed or not room or (not bed.quick and taken * SLOWER > bed.left):
            break
        began = time.monotonic()
        result.attempt(partial(_take, bed, result, count))
        taken = time.monotonic() - began
    if len(result.data["launches"]) > 1:
        result.figures = _figures(result.data["launches"])
    return result


def _take(bed: Bed, result: Result, count: int) -> None:
    epochs = count // LAUNCHES
    write = partial(
        generated.write,
        regions=REGIONS,
        epochs=epochs,
        changed=CHANGED,
        size=CONTENTS,
        launches=LAUNCHES,
    )
    workers = min(len(VERBS), os.cpu_count() or 1)
    altered = partial(write, altered=epochs * 3 // 5, missing=[count // 2])
    with bed.run_folder() as a, bed.run_folder() as b, ThreadPoolExecutor(workers) as pool:
        with ProcessPoolExecutor(1, get_context("fork")) as other:
            written = other.submit(altered, b)
            write(a)
            written.result()
        size = (a / "p0" / "events.bin").stat().st_size
        samples: dict[str, dict[str, float]] = {}
        found = {"events_bytes": size, "verbs": samples}
        result.data["launches"][str(count)] = found
        for name, words in reversed(VERBS.items()):  # those that take longest first
            add = partial(_add, bed, samples, name, words, (a, b))
            pool.submit(result.attempt, add)
    found["verbs"] = {name: samples[name] for name in VERBS if name in samples}


def _add(
    bed: Bed, samples: dict[str, Any], name: str, words: list[str], runs: tuple[Path, Path]
) -> None:
    samples[name] = found = _run(words, runs, bed.bare(TMPDIR=str(bed.out)), bed.left)
    say(f"{name}: " + ", ".join(f"{what} {value:,.1f}" for what, value in found.items()))


def _run(
    words: list[str], runs: tuple[Path, Path], environment: dict[str, str], limit: float
) -> dict[str, float]:
    """Seconds by the clock and of the processor, and the most private memory and spilled bytes."""
    places = dict(zip("AB", map(str, runs), strict=True))
    command = [sys.executable, "-m", "ttanalyze", *(places.get(word, word) for word in words)]
    began = time.monotonic()
    private = spilled = 0
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            [*command, "--max-memory", str(MEMORY)],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=said,
        )
        while not (ended := os.wait4(process.pid, os.WNOHANG))[0]:
            private = max(private, _private(process.pid))
            spilled = max(spilled, _spilled(process.pid))
            time.sleep(0.02)
            if time.monotonic() - began > limit:
                process.kill()
                process.wait()
                raise ProgramError(f"{words[0]}: no end within {limit:.0f} s")
        process.returncode = os.waitstatus_to_exitcode(ended[1])
        said.seek(0)
        if process.returncode != (words[0] == "diff"):
            raise ProgramError(f"{words[0]}: {last_line(said.read().decode())}")
    busy = ended[2].ru_utime + ended[2].ru_stime
    seconds = time.monotonic() - began
    return {"seconds": seconds, "busy": busy, "private": private, "spilled": spilled}


def _private(pid: int) -> int:
    """Bytes in memory that are in no file; 0 of a process that is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        return next((int(at.split()[1]) << 10 for at in lines if at.startswith("RssAnon")), 0)
    except OSError:
        return 0


def _spilled(pid: int) -> int:
    """Bytes that the process's files without a name take on the disk."""
    total = 0
    try:
        for at in Path(f"/proc/{pid}/fd").iterdir():
            found = at.stat()
            total += found.st_blocks * 512 if found.st_nlink == 0 else 0
    except OSError:
        pass
    return total


def _figures(launches: dict[str, Any]) -> list[Figure]:
    counts = sorted(map(int, launches))
    of = {count: launches[str(count)]["verbs"] for count in counts}
    whole = [count for count in counts if of[count].keys() == VERBS.keys()]
    last, before = whole[-1], whole[-2]
    slopes = {name: of[last][name]["busy"] / of[before][name]["busy"] for name in VERBS}
    worst = max(slopes, key=lambda name: slopes[name])
    ours = [Quantity(name, of[last][name]["busy"], "s") for name in VERBS]
    note = f"{last:,} launches, against {before:,}"
    private = {name: sample["private"] / MIB for name, sample in of[counts[-1]].items()}
    memory = [Quantity(name, value, "MiB") for name, value in private.items()]
    return [
        Figure("length-time", slopes[worst], ours, note=note),
        Figure("length-memory", max(private.values()), memory, note=f"{counts[-1]:,} launches"),
    ]
