"""Programs of others, bare and recorded: is what they do the same, and what does recording cost?

    python bench/wild.py PROGRAMS [--list FILE] [--out FILE] [--failures FILE] [--keep DIR]
        [--runs DIR] [--only REGEX] [--part I/N] [--side N] [--limit S] [--seconds S] [--sim]

PROGRAMS holds SUITE/NAME/NAME for each entry of the list (bench/wild.json says which commits of
which public repositories these are), built by whoever runs this, with the files that it reads. Each
program is run three times bare, which tells what its output varies in by itself, and recorded with
default options, twice with --deterministic, and with --replayable, in turns. A run is checked with
`verify` and removed; two deterministic runs are compared with each other. A line of JSON for each
program goes to FILE as soon as it is through, and what went wrong to the file of failures. Then
what there is left of the time goes into runs of one program at a time.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
OURS = ("TT_", "LD_PRELOAD", "CUDA_INJECTION64_PATH")
MODES = {"default": (), "deterministic": ("--deterministic",), "replayable": ("--replayable",)}
# Bare runs stand before, between and after recorded ones, so that all meet the same neighbours.
TURNS = ("bare", "bare", "default", "deterministic", "bare", "deterministic", "replayable")
GIB = 1 << 30
RUN_BYTES = 4 * GIB
KEPT_BYTES, KEPT_RUNS = 4 << 20, 3
SHOWN_CHARACTERS = 6000
PROCESS_FACTS = (
    "status",
    "reason",
    "epochs",
    "epoch_flags",
    "bytes_read",
    "bytes_stored",
    "kernels",
    "events",
    "events_lost",
    "regions_captured",
    "regions_not_captured",
    "replayable",
    "unknown_calls",
    "incidents",
)

NUMBER = re.compile(
    r"0x[0-9a-fA-F]+|[-+]?(?:\d[\d,]*\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|\b(?:nan|inf)\b"
)
# A line that says how long something took, or how fast it was.
MEASURED = re.compile(
    r"(?i)\b(?:[mnu\u00b5]?s|[mnu]?secs?|milliseconds?|microseconds?|seconds?|it/s|\w*time\w*|"
    r"elapsed|took|[kmgt]i?b(?:ytes)?/s(?:ec)?|\w*flops?(?:/s)?|bandwidth|throughput|speed\w*|"
    r"fps|performance|perf|latency|rate|cycles?|clocks?|duration|overhead|tok/s|mfu)\b|/s(?:ec)?\b"
)


@dataclass(frozen=True)
class Program:
    """An entry of the list, and the folder that it is run in."""

    suite: str
    name: str
    command: tuple[str, ...]
    folder: Path
    env: dict[str, str]
    status: int  # what it ends with

    @property
    def label(self) -> str:
        return f"{self.suite}/{self.name}"


@dataclass
class Outcome:
    """What a run of a program came to; seconds are the program's own."""

    status: int | None
    seconds: float
    texts: dict[str, list[str]] = field(default_factory=dict)  # of standard output, error, files
    messages: list[str] = field(default_factory=list)  # the recorder's
    stopped: str | None = None  # why we ended it


@dataclass(frozen=True)
class Bench:
    """Where and how programs are run."""

    runs: Path
    limit: float
    sim: bool
    max_disk: bool
    deadline: float
    keep: Path | None


def program_list(file: Path, programs: Path) -> list[Program]:
    entries = json.loads(file.read_text())["programs"]
    found = []
    for entry in entries:
        folder = programs / entry["suite"] / entry["name"]
        command = entry.get("command") or [f"./{entry['name']}", *entry["args"]]
        found.append(
            Program(
                entry["suite"],
                entry["name"],
                tuple(command),
                folder,
                entry.get("env", {}),
                entry.get("status", 0),
            )
        )
    return found


def ttanalyze(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "ttanalyze", *map(str, arguments)]


def bare_environment(extra: dict[str, str]) -> dict[str, str]:
    env = {k: v for k, v in os.environ.items() if not k.startswith(OURS)}
    return {**env, **extra}


def folder_bytes(folder: Path) -> int:
    total = 0
    for path, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.stat(os.path.join(path, name)).st_blocks * 512
    return total


def stamps(folder: Path) -> dict[str, tuple[int, int]]:
    """When files below a folder were last written to, and how large they are."""
    found = {}
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):
            if path.is_file() and "__pycache__" not in path.parts:
                stat = path.stat()
                found[str(path.relative_to(folder))] = (stat.st_mtime_ns, stat.st_size)
    return found


def run(command: Sequence[str], program: Program, bench: Bench, out: Path | None) -> Outcome:
    """Run a command in the program's folder, in a session of its own, ended at the limit."""
    before = stamps(program.folder)
    stopped = None
    with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
        began = time.perf_counter()
        child = subprocess.Popen(
            command,
            cwd=program.folder,
            env=bare_environment(
                {**program.env, "PYTHONPATH": os.pathsep.join([str(ROOT), *python_path()])}
            ),
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
        )
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(0.1 if out else bench.limit)
                break
            if time.perf_counter() - began > bench.limit:
                stopped = f"ran longer than {bench.limit:.0f} s"
            elif out and not bench.max_disk and folder_bytes(out) > RUN_BYTES:
                stopped = f"recorded more than {RUN_BYTES // GIB} GiB"
            if stopped:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)
                child.wait()
                break
        seconds = time.perf_counter() - began
        stdout.seek(0)
        stderr.seek(0)
        said = stdout.read().decode("latin-1").splitlines()
        complained = stderr.read().decode("latin-1").splitlines()
    outcome = Outcome(child.returncode, seconds, stopped=stopped)
    outcome.messages = [line for line in complained if line.startswith("ttanalyze")]
    outcome.texts["standard output"] = said
    outcome.texts["standard error"] = [x for x in complained if not x.startswith("ttanalyze")]
    for name, stamp in stamps(program.folder).items():
        if before.get(name) != stamp:
            with contextlib.suppress(OSError):
                digest = hashlib.sha256((program.folder / name).read_bytes()).hexdigest()
                outcome.texts[name] = [digest]
    return outcome


def python_path() -> list[str]:
    return [p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p]


def shape(line: str) -> str:
    """A line but for its numbers, and how far apart things stand in it."""
    return " ".join(NUMBER.sub("#", line).split())


def compare(bare: Sequence[Outcome], recorded: Outcome) -> tuple[str, list[str]]:
    """How a recorded run's outcome relates to those of bare runs, and the lines that differ.

    same: as one of them; varies: but for what differs between bare ones, too, and times; numbers:
    but for numbers; differs.
    """
    if recorded.status not in {b.status for b in bare}:
        return "differs", [f"exit status {recorded.status} instead of {bare[0].status}"]
    for b in bare:
        if b.texts == recorded.texts:
            return "same", []
    worst, shown = "varies", []
    for what in sorted({*recorded.texts, *(k for b in bare for k in b.texts)}):
        texts = [b.texts.get(what, []) for b in bare]
        now = recorded.texts.get(what, [])
        if now in texts:
            continue
        if len({len(t) for t in texts}) > 1:  # then only what kinds of lines there are counts
            known = {shape(line) for t in texts for line in t}
            strange = [line for line in now if shape(line) not in known]
            if strange:
                worst = "differs"
                shown += [f"{what}: + {line}" for line in strange]
            continue
        if len(now) != len(texts[0]):
            worst = "differs"
            shown.append(f"{what}: {len(now)} lines instead of {len(texts[0])}")
        for lines in zip(now, *texts, strict=False):
            line, *others = lines
            if line in others or len({shape(x) for x in others}) > 1:
                continue
            if shape(line) != shape(others[0]):
                worst = "differs"
            elif len(set(others)) > 1 or MEASURED.search(line):
                continue
            elif worst != "differs":
                worst = "numbers"
            shown += [f"{what}: - {others[0]}", f"{what}: + {line}"]
    return worst, shown


def asked(*arguments: str | Path, limit: float = 90) -> tuple[int, str]:
    """Exit status and output of a verb."""
    try:
        done = subprocess.run(
            ttanalyze(*arguments),
            env=bare_environment({"PYTHONPATH": os.pathsep.join([str(ROOT), *python_path()])}),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=limit,
        )
    except subprocess.TimeoutExpired:
        return 124, f"took longer than {limit:.0f} s"
    return done.returncode, done.stdout if done.stdout.strip() else done.stderr


def verified(*arguments: str | Path) -> dict[str, Any]:
    code, text = asked("verify", "--json", "--quiet", "--continue", *arguments)
    with contextlib.suppress(ValueError):
        report = json.loads(text)
        keys = ("epochs", "regions", "region_epochs", "digest_only", "differing")
        return {"status": code, **{k: report.get(k) for k in keys}}
    return {"status": code, "said": text.strip()[-400:]}


def recorded_facts(run_folder: Path) -> dict[str, Any]:
    """What `info` says of a run: its processes, and all but them."""
    code, text = asked("info", "--json", run_folder)
    with contextlib.suppress(ValueError):
        return dict(json.loads(text))
    return {"unreadable": text.strip()[-400:], "status": code}


def keep_run(run_folder: Path, bench: Bench, name: str) -> None:
    """Put a small run that shows a fault aside."""
    if not bench.keep or folder_bytes(run_folder) > 64 * KEPT_BYTES:
        return
    bench.keep.mkdir(parents=True, exist_ok=True)
    if len(list(bench.keep.glob("*.tar.xz"))) >= KEPT_RUNS:
        return
    packed = bench.keep / f"{name}.tar.xz"
    with tarfile.open(packed, "w:xz", preset=1) as tar:
        tar.add(run_folder, name)
    if packed.stat().st_size > KEPT_BYTES:
        packed.unlink()


def record(
    program: Program, mode: str, bench: Bench, run_folder: Path
) -> tuple[Outcome, dict[str, Any]]:
    options = [*MODES[mode], *(("--max-disk", f"{RUN_BYTES // GIB}G") if bench.max_disk else ())]
    if bench.sim:
        options.append("--sim")
    shutil.rmtree(run_folder, ignore_errors=True)
    outcome = run(
        ttanalyze("record", "-q", "-o", run_folder, *options, "--", *program.command),
        program,
        bench,
        run_folder,
    )
    facts = recorded_facts(run_folder)
    own = (facts.get("exit") or {}).get("seconds")
    result = {
        "wall_s": round(outcome.seconds, 3),
        "bytes": folder_bytes(run_folder),
        "processes": [{k: p.get(k) for k in PROCESS_FACTS} for p in facts.get("processes", [])],
        **{k: facts[k] for k in ("warnings", "unreadable") if facts.get(k)},
    }
    if own:
        outcome.seconds = own
    return outcome, result


def excerpt(lines: Iterable[str]) -> str:
    text = "\n".join(lines)
    if len(text) <= SHOWN_CHARACTERS:
        return text
    return f"{text[: SHOWN_CHARACTERS // 2]}\n[...]\n{text[-SHOWN_CHARACTERS // 2 :]}"


def failure(program: Program, mode: str, why: str, outcomes: Iterable[Outcome]) -> str:
    parts = [f"==== {program.label} {mode}: {why}"]
    for number, outcome in enumerate(outcomes):
        parts.append(f"-- {number}: status {outcome.status}, {outcome.seconds:.2f} s")
        for what, lines in outcome.texts.items():
            parts.append(f"[{what}]\n{excerpt(lines)}")
        parts.append(excerpt(outcome.messages))
    return "\n".join(parts) + "\n"


def check(program: Program, bench: Bench, slot: Path) -> tuple[dict[str, Any], list[str]]:
    """All turns of one program: its row, and what went wrong."""
    row: dict[str, Any] = {
        "suite": program.suite,
        "name": program.name,
        "command": list(program.command),
    }
    failures: list[str] = []
    bare: list[Outcome] = []
    recorded: list[tuple[str, Outcome, dict[str, Any]]] = []
    first = slot / "first"
    for turn in TURNS:
        if turn == "bare":
            bare.append(run(program.command, program, bench, None))
            why = bare[-1].stopped or f"exit status {bare[-1].status}"
            if bare[-1].stopped or bare[-1].status != program.status:
                row["note"] = f"does not run bare: {why}"
                return row, [failure(program, "bare", why, bare)]
            continue
        target = slot / turn
        outcome, result = record(program, turn, bench, target)
        result["verify"] = verified(target)
        if turn == "deterministic":
            if first.exists():
                result["repeats"] = verified(target, "--manifest", first / "manifest.json")
            elif target.exists():
                target.rename(first)
                target = first
        wrong = outcome.stopped or result["verify"]["status"] != 0 or outcome.messages
        if wrong and target.exists():
            keep_run(target, bench, f"{program.suite}-{program.name}-{turn}")
        if target != first:
            shutil.rmtree(target, ignore_errors=True)
        recorded.append((turn, outcome, result))
    row["status"] = bare[0].status
    row["bare_s"] = round(statistics.median(b.seconds for b in bare), 4)
    row["modes"] = {}
    for turn, outcome, result in recorded:
        same, lines = compare(bare, outcome)
        result |= {
            "s": round(outcome.seconds, 4),
            "times": round(outcome.seconds / row["bare_s"], 3),
            "output": outcome.stopped or same,
            "lines": lines[:6],
            "messages": outcome.messages[:6],
        }
        earlier = row["modes"].get(turn)
        if (
            earlier
        ):  # the second deterministic run has the place of the first, unless that was worse
            result["s"] = min(result["s"], earlier["s"])
            result["times"] = round(result["s"] / row["bare_s"], 3)
            if earlier["output"] not in ("same", "varies"):
                result |= {k: earlier[k] for k in ("output", "lines")}
            if earlier["verify"]["status"] != 0:
                result["verify"] = earlier["verify"]
        row["modes"][turn] = result
        if same not in ("same", "varies") or outcome.stopped or outcome.messages:
            why = outcome.stopped or f"output {same}"
            failures.append(failure(program, turn, f"{why}\n{excerpt(lines)}", [bare[0], outcome]))
        for what in ("verify", "repeats"):
            if result.get(what, {}).get("status", 0) != 0:
                failures.append(f"==== {program.label} {turn}: {what} {result[what]}\n")
    return row, failures


def alone(program: Program, bench: Bench, slot: Path) -> dict[str, Any]:
    """Times of one program, with nothing beside it."""
    seconds: dict[str, list[float]] = {}
    for turn in ("bare", *MODES, "bare"):
        if turn == "bare":
            outcome = run(program.command, program, bench, None)
        else:
            outcome, _ = record(program, turn, bench, slot / turn)
            shutil.rmtree(slot / turn, ignore_errors=True)
        if outcome.stopped:
            continue
        seconds.setdefault(turn, []).append(outcome.seconds)
    return {
        "suite": program.suite,
        "name": program.name,
        "alone": {turn: round(min(s), 4) for turn, s in seconds.items()},
    }


class Slots:
    """A folder for each of the programs that run side by side."""

    def __init__(self, parent: Path, number: int) -> None:
        self.lock = threading.Lock()
        self.free = [parent / f"slot{i}" for i in range(number)]

    @contextlib.contextmanager
    def one(self) -> Iterator[Path]:
        with self.lock:
            slot = self.free.pop()
        slot.mkdir(parents=True, exist_ok=True)
        try:
            yield slot
        finally:
            shutil.rmtree(slot, ignore_errors=True)
            with self.lock:
                self.free.append(slot)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("programs", type=Path)
    parser.add_argument("--list", type=Path, default=ROOT / "bench" / "wild.json")
    parser.add_argument("--out", type=Path, default=Path("wild.jsonl"))
    parser.add_argument("--failures", type=Path, default=Path("wild-failures.txt"))
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--runs", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--only", default="")
    parser.add_argument("--part", default="1/1", help="I/N: every Nth program, from the Ith on")
    parser.add_argument("--side", type=int, default=4, help="programs side by side")
    parser.add_argument("--limit", type=float, default=25, help="seconds for a run of a program")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="for all of it")
    parser.add_argument("--sim", action="store_true")
    options = parser.parse_args()
    began = time.monotonic()
    part, parts = map(int, options.part.split("/"))
    programs = program_list(options.list, options.programs.resolve())
    programs = [p for p in programs if re.search(options.only, p.label)][part - 1 :: parts]
    missing = [p.label for p in programs if not p.folder.is_dir()]
    programs = [p for p in programs if p.folder.is_dir()]
    if missing:
        print(f"{len(missing)} programs are not there: {' '.join(missing)}", file=sys.stderr)
    bench = Bench(
        Path(tempfile.mkdtemp(prefix="wild-", dir=options.runs)),
        options.limit,
        options.sim,
        "--max-disk" in asked("record", "--help")[1],
        began + options.seconds,
        options.keep,
    )
    slots = Slots(bench.runs, options.side)
    write = threading.Lock()

    def put(row: dict[str, Any], failures: Sequence[str] = ()) -> None:
        with write:
            with options.out.open("a") as out:
                out.write(json.dumps(row) + "\n")
            with options.failures.open("a") as out:
                out.writelines(failures)
            told = " ".join(
                f"{mode}: {m['times']}x {m['output']} verify {m['verify']['status']}"
                + (f" repeats {m['repeats']['status']}" if "repeats" in m else "")
                for mode, m in row.get("modes", {}).items()
            )
            label = f"{row['suite']}/{row['name']}"
            said = (f"{k} {row[k]}" for k in ("bare_s", "status", "note", "alone") if k in row)
            print(
                f"{time.monotonic() - began:6.1f} {label}: {' '.join(said)} {told}".rstrip(),
                flush=True,
            )

    def one(program: Program) -> str | None:
        if time.monotonic() > bench.deadline:
            put({"suite": program.suite, "name": program.name, "note": "no time left"})
            return None
        with slots.one() as slot:
            try:
                row, failures = check(program, bench, slot)
            except Exception as e:  # whatever it is, the other programs go on
                row = {"suite": program.suite, "name": program.name, "note": repr(e)}
                failures = [f"==== {program.label}: {e!r}\n"]
        put(row, failures)
        return program.label if "modes" in row else None

    try:
        with ThreadPoolExecutor(options.side) as pool:
            through = set(pool.map(one, programs))
        for program in programs:
            if program.label in through and time.monotonic() < bench.deadline:
                with slots.one() as slot:
                    put(alone(program, bench, slot))
    finally:
        shutil.rmtree(bench.runs, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
