"""How fast captured memory leaves the device: to the host, and to files.

The program changes all of its memory between epochs, with contents that nothing dedups or
compresses, so that every byte is moved and written. The rate is the bytes of all epochs but the
first over the time from the first commit to the last, both as the run itself says. To the host:
the same with large writes that go nowhere, against one large copy to pinned memory. To files:
against dd and fio, which write as many bytes to the same file system; and once more until all
is on the disk, the drain with the time that sync takes after the program's end, dd and fio with
an fsync.
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
SYNCED = ", synced"

Sample = dict[str, float]


def measure(bed: Bed) -> Result:
    step = bed.pick(256 * MIB, 256 * MIB, 4 * MIB)
    steps = bed.pick(16, 8, 4)
    churn: Command = [bed.program("churn"), "--bytes", str(step), "--steps", str(steps)]
    result = Result(data={"bytes": step * steps})
    result.attempt(partial(to_host, bed, result, churn, step, steps))
    result.attempt(partial(to_file, bed, result, churn, step * steps))
    return result


def to_host(bed: Bed, result: Result, churn: Command, step: int, steps: int) -> None:
    fetch: Command = [bed.program("fetch"), "--bytes", str(step), "--copies", str(steps)]
    ways = {"copy": partial(_copy, bed, fetch), "drain": partial(_drain, bed, churn, to_disk=False)}
    samples = by_turns(bed, bed.pick(5, 3, 2), ways)
    rates = {name: _median(them, "GBps") for name, them in samples.items()}
    result.figures.append(
        Figure(
            "drain-host",
            rates["drain"] / rates["copy"],
            [Quantity("drain", rates["drain"], "GB/s")],
            [Quantity("cuMemcpyDtoHAsync to pinned", rates["copy"], "GB/s")],
        )
    )
    result.data |= {"host_GBps": rates, "to_host": samples}


def to_file(bed: Bed, result: Result, churn: Command, total: int) -> None:
    writers, missing = _writers(bed, total)
    _dd(bed, total)  # so that no one is the first to use this much memory
    writers["drain"] = partial(_drain, bed, churn, to_disk=True)
    samples = by_turns(bed, bed.pick(5, 1, 2), writers)
    rates = {name: _median(them, "GBps") for name, them in samples.items()}
    on_disk = _median(samples["drain"], "disk_GBps")
    note = "; ".join(missing) or None
    result.figures += [
        _against("drain-file", rates["drain"], rates, synced=False, note=note),
        _against("drain-disk", on_disk, rates, synced=True, note=note),
    ]
    whole = _median(samples["drain"], "wall_GBps")
    rates |= {"drain, synced": on_disk, "drain, the whole program": whole}
    result.data |= {"file_GBps": rates, "to_file": samples}


def _writers(bed: Bed, total: int) -> tuple[dict[str, Callable[[], Sample]], list[str]]:
    """What writes `total` bytes to a file, by name, and what there is not. SYNCED: to the disk."""
    direct = [False]
    missing = []
    if _takes_direct(bed):
        direct.append(True)
    else:
        missing.append("no O_DIRECT on this file system")
    tools = {"dd": _dd}
    if shutil.which("fio"):
        tools["fio"] = _fio
    else:
        missing.append("no fio here")
    return {
        f"{tool}{' direct' if d else ''}{SYNCED if synced else ''}": partial(
            write, bed, total, direct=d, synced=synced
        )
        for tool, write in tools.items()
        for d in direct
        for synced in (False, True)
    }, missing


def _against(
    target: str, rate: float, file: dict[str, float], synced: bool, note: str | None
) -> Figure:
    """The drain's rate over that of the fastest writer."""
    peers = {n: r for n, r in file.items() if n != "drain" and n.endswith(SYNCED) == synced}
    ours = [Quantity("drain", rate, "GB/s")]
    theirs = [Quantity(name, r, "GB/s") for name, r in peers.items()]
    return Figure(target, rate / max(peers.values()), ours, theirs, note)


def _median(samples: list[Sample], key: str) -> float:
    return median([sample[key] for sample in samples])


def _copy(bed: Bed, command: Command) -> Sample:
    said = bed.answer(command, bed.bare())
    return {"GBps": said["bytes"] / said["elapsed_ns"]}


def _drain(bed: Bed, command: Command, to_disk: bool) -> Sample:
    """Raises ProgramError where less than all was stored, or where writes did not go nowhere."""
    before = [] if to_disk else [bed.library("nodisk")]
    with bed.run_folder() as run:
        os.sync()
        began = time.monotonic_ns()
        said = bed.answer(command, bed.recorded(run, {}, before))
        ended = time.monotonic_ns()
        if to_disk:
            os.sync()
        synced = time.monotonic_ns()
        process = process_of(run)
        epochs = process.epochs
        stored = int(epochs["bytes_stored"].sum())
        first, last = int(epochs["done_ns"].min()), int(epochs["done_ns"].max())
        later = stored - int(epochs["bytes_stored"][0])
        on_disk = sum(p.stat().st_blocks * 512 for p in process.path.glob("data-*.bin"))
    if stored < said["dirty_bytes"] * (len(epochs) - 1):
        raise ProgramError(f"of {said['dirty_bytes']} bytes an epoch too few were stored")
    if not to_disk and on_disk > stored // 8:
        raise ProgramError("the recorder's writes reached the disk: it uses another call now")
    return {
        "GBps": later / (last - first),
        "disk_GBps": stored / (synced - int(epochs["time_ns"].min())),
        "wall_GBps": stored / (ended - began),
        "epochs": len(epochs),
    }


def _takes_direct(bed: Bed) -> bool:
    try:
        _dd(bed, PEER_BLOCK, direct=True)
    except ProgramError:
        return False
    return True


def _dd(bed: Bed, total: int, direct: bool = False, synced: bool = False) -> Sample:
    target = bed.out / "dd.tmp"
    command = ["dd", "if=/dev/zero", f"of={target}", f"bs={PEER_BLOCK}"]
    command.append(f"count={max(1, total // PEER_BLOCK)}")
    command += ["oflag=direct"] if direct else []
    command += ["conv=fsync"] if synced else []
    os.sync()
    try:
        began = time.monotonic_ns()
        bed.run(command, os.environ)
        elapsed = time.monotonic_ns() - began
    finally:
        target.unlink(missing_ok=True)
    return {"GBps": max(total, PEER_BLOCK) / elapsed}


def _fio(bed: Bed, total: int, direct: bool = False, synced: bool = False) -> Sample:
    target = bed.out / "fio.tmp"
    command = ["fio", "--name=peer", f"--filename={target}", "--rw=write", f"--bs={PEER_BLOCK}"]
    command += [f"--size={total}", "--output-format=json", f"--direct={int(direct)}"]
    command += ["--ioengine=libaio", "--iodepth=8"] if direct else ["--ioengine=psync"]
    command += ["--end_fsync=1"] if synced else []
    os.sync()
    try:
        said: Any = json.loads(bed.run(command, os.environ))
    finally:
        target.unlink(missing_ok=True)
    return {"GBps": said["jobs"][0]["write"]["bw_bytes"] / 1e9}
