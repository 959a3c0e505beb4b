"""Structure-aware fuzzing of everything that reads run directories: `make fuzz`.

Each input is a run, written by tests or recorded on the simulator, with one to three changes (a
bit, a member, records gone, doubled, swapped or put in, a file cut off, a JSON value), given to one
verb. What may come of it: an answer, or one line on standard error and status 2. An exception, more
than one line, more than SLOWEST seconds or more than MEMORY is a failure. Where the run was
complete and checks were not made right again, the answer has to be that of the run before the
change, or say what is wrong: another one with the same status is a silent loss. JSON has no check,
so this does not hold where that was changed.

The same seed and number make the same input again: `--seed S --only N`, with the same recorded
runs, which stay in their folder.
"""

from __future__ import annotations

import argparse
import difflib
import functools
import json
import multiprocessing
import os
import random
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tests import forked, rundir, support
from tests.trace_writer import chunk
from ttanalyze.cli import run_command
from ttanalyze.format import layout
from ttanalyze.format.files import KINDS
from ttanalyze.verbs.report import html

SLOWEST = 20  # seconds
MEMORY = 6 << 30  # bytes of address space
ROOM = 1 << 30  # bytes that all workers' runs fit into
EPOCHS = 6
# Programs, and how they are recorded.
RECORDED = {
    "globals": {"compress": "3", "replayable": "1"},
    "graph": {"compress": "device", "replayable": "1", "timeline": "cupti"},
    "streams": {"compress": "device", "replayable": "1"},
    "tensor_maps": {"instrument": "opcode,registers,values,tma,count"},
}
ONE_LINE = re.compile(r"[^\n]+\n")
INFO = "p0/process.json"
PASSING = re.compile(r"\d+\.\d+ s\b|\S+ \S+ on disk|\"bytes_on_disk\": \d+")  # no part of an answer
WARNING = "files end in records that no epoch committed"
INTERESTING = [0, 1, 2, 3, 7, 8, 63, 64, 127, 255, 256, 65535, 65536, 2**31 - 1, 2**31, 2**32 - 1]
INTERESTING += [2**32, 2**48, 2**63 - 1, 2**63, 2**64 - 1]
JSON_VALUES: list[Any] = [
    None,
    True,
    0,
    -1,
    1,
    2**31,
    2**63,
    2**64,
    1e300,
    "",
    "x",
    [],
    {},
    [1],
    "é\x1b",
]
SHARES = {"memory": 1, "report": 1, "diff": 2, "trace": 2}  # of the inputs: these take long
SHARE = 6  # of another command, and of a file with more than a header
TABLES = ["events", "activities", "epochs", "regions", "labels", "functions", "modules", "allocs"]
TABLES += ["traced", "trace", "nodes", "tma"]
QUIET = ("info", "manifest", "memcheck")


def commands(run: str, out: str) -> list[list[str]]:
    """What is asked of a run."""
    whole = f"{run}.whole"  # the same without changes
    some = [
        ["info", run],
        ["info", run, "--json"],
        ["verify", run],
        ["verify", run, "--manifest", f"{run}.manifest"],
        ["manifest", run],
        ["diff", whole, run],
        ["diff", run, whole, "--all"],
        ["memory", run],
        ["memory", run, "--at", "end", "--json"],
        ["events", run],
        ["events", run, "--format", "csv"],
        ["trace", run, "-o", f"{out}/trace.json"],
        ["trace", run, "--format", "perfetto", "-o", f"{out}/trace.pftrace"],
        ["graph", run],
        ["graph", run, "--graph", "0", "--json"],
        ["graph", run, "--dot"],
        ["blame", run, "-r", "0", "--offset", "65536", "--count", "9"],
        ["blame", run, "-r", "1", "--watch", "changed"],
        ["blame", run, "-r", "0", "--element", "20000", "--dtype", "f32", "--watch", "nan"],
        ["rewind", run, "-e", "1", "-r", "1", "-o", f"{out}/memory.bin"],
        ["rewind", run, "-e", "3", "--summary", "--dtype", "u8"],
        ["report", run, "-o", f"{out}/report.html"],
        ["export", run, "--kernel", ".", "-o", f"{out}/export", "--force"],
        ["stats", run],
        ["breakdown", run],
        ["collectives", run],
        ["compare", whole, run],
        ["memcheck", run],
        ["race", "--exact", run],
        ["query", run, "--table", "trace", "--format", "cutracer", "-o", f"{out}/trace.ndjson"],
    ]
    some += [["query", run, "--table", t, "--format", "csv"] for t in TABLES]
    return [[*line, "-q"] if line[0] not in QUIET else line for line in some]


@dataclass
class Base:
    """A run to change: its files as they are, and what each command says of it.

    no_endings: its process.json without the ends and checks of its files.
    """

    path: Path
    complete: bool
    files: dict[str, bytes]
    no_endings: bytes
    answers: dict[int, tuple[int, str]] = field(default_factory=dict)


@dataclass
class Failure:
    """What an input did that it must not."""

    number: int
    changes: list[str]
    command: list[str]
    what: str


def record(folder: Path) -> None:
    """Records examples on the simulator, with all that a run may hold."""
    draft = Path(f"{folder}.{os.getpid()}")
    draft.mkdir(parents=True)
    simulator = support.simulator_environment()
    built = support.build_examples(draft / "examples")
    support.build_program("tensor_maps", built)
    for name, options in RECORDED.items():
        options = {"epoch": "sync", "cpu_callstack": "mixed", **options}
        done = support.run([built / name], support.recording(simulator, draft / name, **options))
        if done.status or done.stderr:
            raise SystemExit(f"{name}: {done.stderr}")
    shutil.rmtree(built)
    draft.rename(folder)


def base_of(path: Path, complete: bool, no_endings: bytes) -> Base:
    shutil.copytree(path, f"{path}.whole")
    files = {str(p.relative_to(path)): p.read_bytes() for p in path.rglob("*") if p.is_file()}
    return Base(path, complete, files, no_endings)


def make_bases(folder: Path, recorded: Path) -> list[Base]:
    bases = []
    for i, complete in enumerate([True, False] * 2):
        path = folder / f"base{i}"
        if i < 2:
            writer = rundir.small_run(path)
        else:
            writer = rundir.busy_run(path, seed=i, epochs=EPOCHS, every=3)
        if not complete:
            writer.close("running")
        no_endings = (path / INFO).read_bytes()
        if complete:
            rundir.tell_endings(path)
        status = run(["manifest", str(path), "-o", f"{path}.manifest"])[0]
        if status and complete:
            raise SystemExit(f"{path}: no manifest")
        if not complete:
            shutil.copy(f"{folder}/base{i - 1}.manifest", f"{path}.manifest")
        bases.append(base_of(path, complete, no_endings))
    for name in RECORDED:
        path = folder / name
        shutil.copytree(recorded / name, path)
        shutil.copy(path / "manifest.json", f"{path}.manifest")
        info = json.loads((path / INFO).read_bytes())
        bases.append(base_of(path, True, json.dumps({**info, "files": {}}).encode()))
    return bases


def take_output() -> None:
    """From here on what this process prints can be had back by `printed`."""
    for descriptor in (1, 2):
        file = os.memfd_create(f"output{descriptor}")
        os.dup2(file, descriptor)
        os.close(file)


def printed(descriptor: int) -> str:
    text = os.pread(descriptor, os.fstat(descriptor).st_size, 0).decode(errors="replace")
    os.ftruncate(descriptor, 0)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return text


def run(command: list[str]) -> tuple[int, str, str]:
    """Status, standard output and standard error of a command line, in this process."""
    try:
        status = run_command(command)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        out, err = printed(1), printed(2)
    return status, out, err


# ---- changes ----


def change_bytes(data: bytearray, pick: random.Random, dtype: np.dtype[Any]) -> str:
    behind = layout.HEADER_SIZE if pick.random() < 0.9 and len(data) > layout.HEADER_SIZE else 0
    at = pick.randrange(behind, len(data))
    data[at] ^= 1 << pick.randrange(8)
    return f"bit of byte {at}"


def change_member(data: bytearray, pick: random.Random, dtype: np.dtype[Any]) -> str:
    """A member of a record gets an interesting value, or that of another record."""
    count = (len(data) - layout.HEADER_SIZE) // dtype.itemsize
    if count < 1 or dtype.fields is None:
        return change_bytes(data, pick, dtype)
    name = pick.choice([n for n in dtype.names or () if n != "check"])
    index, other = pick.randrange(count), pick.randrange(count)
    records = np.frombuffer(data, dtype, count, layout.HEADER_SIZE).copy()
    if pick.random() < 0.3:
        records[name][index] = records[name][other]
    else:
        member = records[name][index : index + 1]
        bits = 8 * member.dtype.itemsize
        value = pick.choice(INTERESTING) + pick.randrange(-1, 2)
        if member.dtype.kind in "ui":
            low = value % (1 << bits)
            signed = low - (1 << bits) if member.dtype.kind == "i" and low >> (bits - 1) else low
            member[...] = signed
    data[layout.HEADER_SIZE : layout.HEADER_SIZE + records.nbytes] = records.tobytes()
    return f"{name} of record {index}"


def change_records(data: bytearray, pick: random.Random, dtype: np.dtype[Any]) -> str:
    """Records are taken away, doubled or swapped."""
    count = (len(data) - layout.HEADER_SIZE) // dtype.itemsize
    if count < 2:
        return change_bytes(data, pick, dtype)
    size, start = dtype.itemsize, layout.HEADER_SIZE
    a, b = sorted(pick.sample(range(count), 2))
    first = bytes(data[start + a * size : start + (a + 1) * size])
    second = bytes(data[start + b * size : start + (b + 1) * size])
    how = pick.choice(["gone", "doubled", "swapped", "inserted"])
    if how == "gone":
        del data[start + a * size : start + b * size]
    elif how == "doubled":
        data[start + b * size : start + b * size] = first
    elif how == "swapped":
        data[start + a * size : start + (a + 1) * size] = second
        data[start + b * size : start + (b + 1) * size] = first
    else:
        at = pick.randrange(len(data) + 1)
        data[at:at] = bytes(pick.choice([1, size, 160]))
    return f"records {a} and {b} {how}"


def change_length(data: bytearray, pick: random.Random, dtype: np.dtype[Any]) -> str:
    length = pick.randrange(len(data) + 1)
    if pick.random() < 0.5 and len(data) > layout.HEADER_SIZE:
        length -= (length - layout.HEADER_SIZE) % dtype.itemsize
    del data[max(length, 0) :]
    return f"cut off at {length}"


CHANGES: list[Callable[[bytearray, random.Random, np.dtype[Any]], str]] = [
    change_bytes,
    change_member,
    change_member,
    change_records,
    change_length,
]


def change_json(text: bytes, pick: random.Random) -> tuple[bytes, str]:
    """One value anywhere in a document becomes another, or goes."""

    def some_key(value: Any) -> Any:
        return pick.choice(list(value) if isinstance(value, dict) else range(len(value)))

    document = json.loads(text)
    parent, key = document, some_key(document)
    while parent[key] and isinstance(parent[key], dict | list) and pick.random() < 0.7:
        parent = parent[key]
        key = some_key(parent)
    if pick.random() < 0.2:
        del parent[key]
        return json.dumps(document).encode(), f"{key} gone"
    parent[key] = pick.choice(JSON_VALUES)
    return json.dumps(document).encode(), f"{key} = {parent[key]!r}"


def change(base: Base, pick: random.Random, sealed: bool) -> tuple[dict[str, bytes], list[str]]:
    """Damages files, and returns their names and what changed."""
    changed = {INFO: base.no_endings} if sealed else {}
    notes = []
    names = sorted(base.files)
    shares = [SHARE if len(base.files[name]) > layout.HEADER_SIZE else 1 for name in names]
    for _ in range(pick.choice([1, 1, 1, 2, 3])):
        name = pick.choices(names, shares)[0]
        data = changed.get(name, base.files[name])
        file = Path(name).name
        if file.endswith(".json"):
            new, note = change_json(data, pick)
        elif not data:
            continue
        else:
            dtype = KINDS[file][1] if file in KINDS else np.dtype("u1")
            raw = bytearray(data)
            note = pick.choice(CHANGES)(raw, pick, dtype)
            new = bytes(raw)
        changed[name] = new
        notes.append(f"{name}: {note}")
    if sealed and {"p0/epochs.bin", "p0/digests.bin", "p0/blocks.bin"} & set(changed):
        seal_spans(base, changed)
    return changed, notes


def seal_spans(base: Base, changed: dict[str, bytes]) -> None:
    """Makes the checks right that epochs have of their digests and blocks."""
    raw = bytearray(changed.get("p0/epochs.bin", base.files["p0/epochs.bin"]))
    count = max(0, len(raw) - layout.HEADER_SIZE) // layout.EPOCH.itemsize
    epochs = np.frombuffer(raw, layout.EPOCH, count, min(len(raw), layout.HEADER_SIZE))
    for kind, dtype in (("digests", layout.DIGEST), ("blocks", layout.BLOCK)):
        name = f"p0/{kind}.bin"
        records = changed.get(name, base.files[name])[layout.HEADER_SIZE :]
        for epoch in epochs:
            first = int(epoch[f"{kind}_first"]) * dtype.itemsize
            size = int(epoch[f"{kind}_count"]) * dtype.itemsize
            epoch[f"{kind}_check"] = rundir.digest(records[first : first + size])
    changed["p0/epochs.bin"] = bytes(raw)


def seal_chunks(data: bytes) -> bytes:
    """Makes the checks of an instruction trace right."""
    out, at = data[: layout.HEADER_SIZE], layout.HEADER_SIZE
    while at + layout.TRACE_CHUNK.itemsize <= len(data):
        head = np.frombuffer(data, layout.TRACE_CHUNK, 1, at)[0]
        at += layout.TRACE_CHUNK.itemsize
        raw = data[at : at + int(head["bytes"])]
        out, at = out + chunk(raw, int(head["records"])), at + len(raw)
    return out + data[at:]


def write(base: Base, changed: dict[str, bytes], sealed: bool) -> None:
    for name, data in changed.items():
        path = base.path / name
        path.write_bytes(seal_chunks(data) if sealed and path.name == "trace.bin" else data)
        if sealed and path.name in KINDS and len(data) >= layout.HEADER_SIZE:
            rundir.reseal_header(path)
            if "check" in (KINDS[path.name][1].names or ()):
                rundir.reseal_records(path)


def restore(base: Base, changed: dict[str, bytes]) -> None:
    for name in changed:
        (base.path / name).write_bytes(base.files[name])


# ---- inputs ----


def too_slow(*_: object) -> None:
    raise TimeoutError(f"more than {SLOWEST} s")


def judge(command: list[str], before: tuple[int, str] | None) -> str | None:
    """Gives a command to a changed run; what is wrong with what came of it. before: the answer
    that is right.
    """
    signal.alarm(SLOWEST)
    try:
        status, out, err = run(command)
    except BaseException:
        return traceback.format_exc()
    finally:
        signal.alarm(0)
    if status not in (0, 1, 2):
        return f"status {status}: {err}"
    if status == 2 and not out and not ONE_LINE.fullmatch(err):
        return f"not one line: {err!r}"
    if err == "ttanalyze: out of memory\n":
        return f"more than {MEMORY} bytes of address space"
    exact = "csv" in command  # names in files are as they are: only a terminal acts on them
    if "\x1b" in (err if exact else out + err):
        return f"an escape sequence: {out + err!r}"
    if before is None or status > before[0] or (status == 2 and not out) or WARNING in out:
        return None
    old, new = (PASSING.sub("", text).splitlines() for text in (before[1], out))
    if status == before[0] and old == new:
        return None
    other = [line for line in difflib.unified_diff(old, new, lineterm="", n=0) if line[0] in "+-"]
    return "\n".join(
        [f"SILENT LOSS: {command[0]}, status {before[0]} and now {status}", *other[2:22]]
    )


def one(bases: list[Base], folder: Path, seed: int, number: int) -> Failure | None:
    pick = random.Random(f"{seed}:{number}")
    base = pick.choice(bases)
    sealed = pick.random() < 0.6
    lines = commands(str(base.path), str(folder))
    shares = [SHARES.get(line[0], SHARE) for line in lines]
    which = pick.choices(range(len(lines)), shares)[0]
    changed, notes = change(base, pick, sealed)
    before = None
    if base.complete and not sealed and not any(name.endswith(".json") for name in changed):
        if which not in base.answers:
            base.answers[which] = run(lines[which])[:2]
        before = base.answers[which]
    write(base, changed, sealed)
    try:
        what = judge(lines[which], before)
    finally:
        restore(base, changed)
    return Failure(number, notes, lines[which], what) if what else None


def keep_what_never_changes() -> None:
    """Has made once what a process makes once, however many verbs it is given."""
    forked.build_commands_once()
    html._library = functools.cache(html._library)
    html._template = functools.cache(html._template)


def worker(seed: int, numbers: range, seconds: float, recorded: Path, results: Any) -> None:
    take_output()
    keep_what_never_changes()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    signal.signal(signal.SIGALRM, too_slow)
    memory = Path("/dev/shm")
    place = memory if memory.is_dir() and shutil.disk_usage(memory).free > ROOM else None
    end = time.monotonic() + seconds
    done = 0
    try:
        with tempfile.TemporaryDirectory(dir=place) as name:
            folder = Path(name)
            bases = make_bases(folder, recorded)
            for number in numbers:
                if time.monotonic() > end:
                    break
                failure = one(bases, folder, seed, number)
                done += 1
                if failure:
                    results.put(failure)
    except BaseException:
        results.put(Failure(done, ["none"], ["the fuzzer itself"], traceback.format_exc()))
    results.put(done)


def kind_of(failure: Failure) -> str:
    lines = failure.what.strip().splitlines()
    return lines[-1 if lines[0].startswith("Traceback") else 0][:150]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--inputs", type=int, default=1 << 40, help="at most so many a worker")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--recorded", type=Path, default=support.ROOT / "build" / "fuzz" / "runs")
    parser.add_argument("--only", type=int, help="this input alone")
    parser.add_argument("--failures", type=Path, help="a file for all failures, one a line as JSON")
    given = parser.parse_args()
    if not given.recorded.exists():
        record(given.recorded)
    results: Any = multiprocessing.Queue()
    if given.only is not None:
        ranges = [range(given.only, given.only + 1)]
    else:
        ranges = [range(j, given.inputs * given.jobs, given.jobs) for j in range(given.jobs)]
    workers = [
        multiprocessing.Process(
            target=worker, args=(given.seed, r, given.seconds, given.recorded, results)
        )
        for r in ranges
    ]
    for w in workers:
        w.start()
    done, failures, running = 0, [], len(workers)
    while running:
        result = results.get()
        if isinstance(result, Failure):
            failures.append(result)
        else:
            done += result
            running -= 1
    for w in workers:
        w.join()
    if given.failures:
        given.failures.write_text("".join(f"{json.dumps(asdict(f))}\n" for f in failures))
    kinds = Counter(map(kind_of, failures))
    shown: set[str] = set()
    for f in sorted(failures, key=lambda f: f.number):
        kind = kind_of(f)
        if kind not in shown:
            shown.add(kind)
            print(f"input {f.number} ({kinds[kind]} like it): {'; '.join(f.changes)}")
            print(f"  {' '.join(f.command)}\n  {f.what.strip()[-1500:]}\n")
    print(f"readers  {done:,} inputs with seed {given.seed}: {len(failures):,} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
