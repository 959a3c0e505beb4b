"""How fast captured memory leaves the device: to the host, and to files.

The program changes all of its memory between epochs, with contents that nothing dedups or
compresses, so that every byte is moved and written. The rate is the bytes of the run's epochs over
the time from the first cut to the last commit, both as the run itself says. To the host: the same
with large writes that go nowhere, against one large copy to pinned memory. To files: against dd
and fio, which write as many bytes to the same file system.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from bench.bed import MIB, Bed, Command, ProgramError, Result, by_turns, median, process_of
from bench.figures import Figure, Quantity

PEER_BLOCK = 4 * MIB


def measure(bed: Bed) -> Result:
    step = bed.pick(256 * MIB, 256 * MIB, 4 * MIB)
    steps = bed.pick(16, 8, 4)
    total = step * steps
    churn: Command = [bed.program("churn"), "--bytes", str(step), "--steps", str(steps)]
    fetch: Command = [bed.program("fetch"), "--bytes", str(step), "--copies", str(steps)]
    repeat = bed.pick(3, 1, 2)

    to_host = by_turns(
        bed.pick(5, 3, 2),
        {"copy": partial(_copy, bed, fetch), "drain": partial(_drain, bed, churn, to_disk=False)},
    )
    writers: dict[str, Callable[[], dict[str, float]]] = {
        "drain": partial(_drain, bed, churn, to_disk=True),
        "dd": partial(_dd, bed, total, direct=False),
    }
    missing = []
    if _takes_direct(bed):
        writers["dd direct"] = partial(_dd, bed, total, direct=True)
    else:
        missing.append("no O_DIRECT on this file system")
    if shutil.which("fio"):
        writers["fio"] = partial(_fio, bed, total, direct=False)
        writers["fio direct"] = partial(_fio, bed, total, direct=True)
    else:
        missing.append("no fio here")
    _dd(bed, total, direct=False)  # so that no one is the first to use this much memory
    to_file = by_turns(repeat, writers)

    host = {name: _rate(them) for name, them in to_host.items()}
    file = {name: _rate(them) for name, them in to_file.items()}
    best = max((name for name in file if name != "drain"), key=lambda name: file[name])
    wall = median([sample["wall_GBps"] for sample in to_file["drain"]])
    figures = [
        Figure(
            "drain-host",
            host["drain"] / host["copy"],
            [Quantity("drain", host["drain"], "GB/s")],
            [Quantity("cuMemcpyDtoHAsync to pinned", host["copy"], "GB/s")],
        ),
        Figure(
            "drain-file",
            file["drain"] / file[best],
            [Quantity("drain", file["drain"], "GB/s"), Quantity("whole program", wall, "GB/s")],
            [Quantity(name, rate, "GB/s") for name, rate in file.items() if name != "drain"],
            "; ".join(missing) or None,
        ),
    ]
    samples = {"to_host": to_host, "to_file": to_file}
    return Result(figures, {"bytes": total, "host_GBps": host, "file_GBps": file, **samples})


def _rate(samples: list[dict[str, float]]) -> float:
    return median([sample["GBps"] for sample in samples])


def _copy(bed: Bed, command: Command) -> dict[str, float]:
    said = bed.answer(command, bed.bare())
    return {"GBps": said["bytes"] / said["elapsed_ns"]}


def _drain(bed: Bed, command: Command, to_disk: bool) -> dict[str, float]:
    """Raises ProgramError where less than all was stored, or where writes did not go nowhere."""
    before = [] if to_disk else [bed.library("nodisk")]
    with bed.run_folder() as run:
        os.sync()
        began = time.perf_counter_ns()
        said = bed.answer(command, bed.recorded(run, {}, before))
        wall = time.perf_counter_ns() - began
        process = process_of(run)
        epochs = process.epochs
        stored = int(epochs["bytes_stored"].sum())
        elapsed = int(epochs["done_ns"].max() - epochs["time_ns"].min())
        on_disk = sum(p.stat().st_blocks * 512 for p in process.path.glob("data-*.bin"))
    if stored < said["dirty_bytes"] * (len(epochs) - 1):
        raise ProgramError(f"of {said['dirty_bytes']} bytes an epoch too few were stored")
    if not to_disk and on_disk > stored // 8:
        raise ProgramError("the recorder's writes reached the disk: it uses another call now")
    return {"GBps": stored / elapsed, "wall_GBps": stored / wall, "epochs": len(epochs)}


def _takes_direct(bed: Bed) -> bool:
    try:
        _dd(bed, PEER_BLOCK, direct=True)
    except ProgramError:
        return False
    return True


def _dd(bed: Bed, total: int, direct: bool) -> dict[str, float]:
    target = bed.out / "dd.tmp"
    os.sync()
    command = ["dd", "if=/dev/zero", f"of={target}", f"bs={PEER_BLOCK}"]
    command.append(f"count={max(1, total // PEER_BLOCK)}")
    try:
        began = time.perf_counter_ns()
        bed.run([*command, *(["oflag=direct"] if direct else [])], os.environ)
        elapsed = time.perf_counter_ns() - began
    finally:
        target.unlink(missing_ok=True)
    return {"GBps": max(total, PEER_BLOCK) / elapsed}


def _fio(bed: Bed, total: int, direct: bool) -> dict[str, float]:
    target = bed.out / "fio.tmp"
    os.sync()
    command = ["fio", "--name=peer", f"--filename={target}", "--rw=write", f"--bs={PEER_BLOCK}"]
    command += [f"--size={total}", "--output-format=json", f"--direct={int(direct)}"]
    command += ["--ioengine=libaio", "--iodepth=8"] if direct else ["--ioengine=psync"]
    try:
        said: Any = json.loads(bed.run(command, os.environ))
    finally:
        target.unlink(missing_ok=True)
    return {"GBps": said["jobs"][0]["write"]["bw_bytes"] / 1e9}
