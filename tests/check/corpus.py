"""The planted faults, and what `ttanalyze check` says of each.

`python -m tests.check.corpus` runs all of them on the simulator or, with --gpu, on a GPU together
with those of PyTorch and Triton, and says for each kind of fault how many were found, with the
right call at the right line, and how many programs without a fault were suspected.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests import support

HERE = Path(__file__).resolve().parent
SOURCES = {"faults": HERE / "faults.c", "torch_faults": HERE / "torch_faults.py"}
CULPRIT = re.compile(r"(?:/\*|#) culprit of ([\w, ]+)")
LISTED = re.compile(r'FAULT\((?!name)(\w+), (\w+)\)|@fault\("(\w+)"\)\ndef (\w+)')
SANITIZERS = {
    "bounds": "memcheck",
    "guard": "memcheck",
    "uninitialized": "initcheck",
    "order": "racecheck",
}
# Public reports, and the programs that do the same in small.
REPORTS = {
    "vllm#47282": ("faults", "block_loaded_too_early"),
    "flashinfer#3978": ("torch_faults", "padding_row_written"),
    "rmm#1899": ("torch_faults", "write_before_tensor"),
    "flashinfer#4288": ("faults", "route_past_map"),
    "triton#10772": ("faults", "scale_of_padding"),
    "pytorch#101246": ("torch_faults", "forgotten_seed"),
    "pytorch#193317": ("faults", "reused"),
}
# What shows on a GPU only: the simulator adds in one order, and its memory ends where it ends.
GPU_ONLY = {"float_atomics", "append_in_any_order", "read_past_end"}


@dataclass(frozen=True)
class Case:
    """A planted fault. lines: any of them is the right one."""

    source: str
    name: str
    check: str
    lines: tuple[int, ...]

    @property
    def places(self) -> list[str]:
        return [f"{SOURCES[self.source].name}:{line}" for line in self.lines]


@dataclass(frozen=True)
class Answer:
    """What a check said of a case.

    Attributes:
        case: The case.
        fixed: Whether its program ran without the fault.
        status: The result of the check.
        reason: Its reason.
        found: Whether it found something.
        call: Whether the first finding names a call at the right line.
        suspects: The number of findings.
        summary: The sentence of the first.
        seconds: The time of the whole check.
        bare: The time of the program alone.
        sanitizer: Its time under compute-sanitizer, None if that was not asked for.
        kind: The kind of the first finding.
        instruction: The instruction that it names, "" if none.
    """

    case: Case
    fixed: bool
    status: str
    reason: str
    found: bool
    call: bool
    suspects: int
    summary: str
    seconds: float
    bare: float
    sanitizer: float | None = None
    kind: str = ""
    instruction: str = ""


def cases(source: str = "faults") -> list[Case]:
    """All cases of a source, in its order."""
    text = SOURCES[source].read_text()
    lines: dict[str, list[int]] = {}
    for number, line in enumerate(text.splitlines(), 1):
        for found in CULPRIT.findall(line):
            for name in re.split(r",\s*", found.strip()):
                lines.setdefault(name, []).append(number)
    listed = [(a or d, b or c) for a, b, c, d in LISTED.findall(text)]
    return [Case(source, name, check, tuple(lines[name])) for name, check in listed]


def build(where: Path) -> Path:
    """Compiles faults.c into a folder."""
    return support.build_embedding(SOURCES["faults"], where / "faults")


def command(case: Case, fixed: bool, program: Path) -> list[str]:
    if case.source == "faults":
        line = [str(program), case.name]
    else:
        line = [sys.executable, str(SOURCES[case.source]), case.name]
    return [*line, "--fixed"] if fixed else line


def check(
    case: Case, fixed: bool, program: Path, folder: Path, *options: str, **variables: str
) -> Answer:
    """Runs the case under the check that is to find it. options: of `ttanalyze check`, whose
    environment has the variables as well.
    """
    line = command(case, fixed, program)
    environment = (
        support.bare_environment(**support.sanitizer_runtimes(), TT_SIM_DEVICES="2") | variables
    )
    arguments = ["check", "--json", "--only", case.check, "-o", str(folder), *options, "--", *line]
    began = time.monotonic()
    done = support.ttanalyze(*arguments, environment=environment)
    seconds = time.monotonic() - began
    try:
        outcome = json.loads(done.stdout)["outcomes"][0]
    except (ValueError, LookupError):
        outcome = {"status": "failed", "reason": done.stderr.strip(), "findings": []}
    findings = outcome["findings"]
    first = (findings[0]["call"] or {}).get("line") or "" if findings else ""
    named = [place for place in case.places if re.match(rf"(?:.*/)?{re.escape(place)}\b", first)]
    found = outcome["status"] == "found"
    summary = findings[0]["summary"] if findings else ""
    status, reason = outcome["status"], outcome["reason"]
    kind = findings[0]["kind"] if findings else ""
    told = findings[0]["details"].get("instruction") if findings else None
    instruction = f"{told['text']} by {told['block']} {told['thread']}" if told else ""
    return Answer(
        case,
        fixed,
        status,
        reason,
        found,
        bool(named),
        len(findings),
        summary,
        seconds,
        0,
        None,
        kind,
        instruction,
    )


def timed(line: Sequence[str], sim: bool) -> float:
    environment = support.simulator_environment() if sim else support.bare_environment()
    began = time.monotonic()
    subprocess.run(line, env=environment, capture_output=True, check=False)
    return time.monotonic() - began


def answers(wanted: Sequence[Case], jobs: int, sim: bool, sanitize: bool) -> Iterator[Answer]:
    """What checks say of the cases and of their programs without a fault."""
    folder = Path(tempfile.mkdtemp(prefix="corpus-"))
    program = build(folder)

    def one(what: tuple[Case, bool]) -> Answer:
        case, fixed = what
        line = command(case, fixed, program)
        bare = timed(line, sim)
        options = ["--sim"] if sim else []
        answer = check(case, fixed, program, folder / f"{case.name}-{fixed}", *options)
        shutil.rmtree(folder / f"{case.name}-{fixed}", ignore_errors=True)
        tool = SANITIZERS.get(case.check)
        slow = None
        if sanitize and tool:
            slow = timed(["compute-sanitizer", "--tool", tool, *line], sim)
        return Answer(**{**vars(answer), "bare": bare, "sanitizer": slow})

    try:
        with ThreadPoolExecutor(jobs) as pool:
            yield from pool.map(one, [(case, fixed) for case in wanted for fixed in (False, True)])
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def summary(done: Sequence[Answer]) -> list[str]:
    """A line for each check."""
    lines = [
        f"{'check':14}{'faults':>7}{'found':>7}{'right line':>12}{'instruction':>13}"
        f"{'false alarms':>14}{'x bare':>8}"
    ]
    for name in dict.fromkeys(answer.case.check for answer in done):
        planted = [a for a in done if a.case.check == name and not a.fixed]
        clean = [a for a in done if a.case.check == name and a.fixed]
        found, right = sum(a.found for a in planted), sum(a.call for a in planted)
        told = sum(bool(a.instruction) for a in planted)
        alarms = sum(a.found for a in clean)
        times = sorted(a.seconds / a.bare for a in done if a.case.check == name)
        ratio = times[len(times) // 2]
        alarmed = f"{alarms} of {len(clean)}"
        counts = f"{len(planted):>7}{found:>7}{right:>12}{told:>13}"
        lines.append(f"{name:14}{counts}{alarmed:>14}{ratio:>8.1f}")
    return lines


def device(gpu: bool) -> str:
    """What the programs ran on."""
    if not gpu:
        return "the simulator"
    line = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    found = subprocess.run(line, capture_output=True, text=True, check=True).stdout.splitlines()
    name, driver = found[0].split(", ")
    return f"{len(found)} {name} (driver {driver})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--gpu", action="store_true", help="on a GPU, with PyTorch and Triton")
    parser.add_argument("--only", default="", help="checks or names of faults, by commas")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--sanitizer", action="store_true", help="time compute-sanitizer as well")
    parser.add_argument("--out", type=Path, help="a JSON file; other answers in it stay")
    given = parser.parse_args()
    wanted = [*cases(), *(cases("torch_faults") if given.gpu else [])]
    only = set(filter(None, given.only.split(",")))
    wanted = [c for c in wanted if not only or only & {c.check, c.name}]
    done: list[Answer] = []
    for answer in answers(wanted, given.jobs, not given.gpu, given.sanitizer):
        done.append(answer)
        name = f"{answer.case.name}{' --fixed' if answer.fixed else ''}"
        right = "right line" if answer.call else "" if answer.fixed else "another line"
        print(f"{answer.case.check:14}{name:34}{answer.status:12}{right:14}{answer.reason[:90]}")
        sys.stdout.flush()
    print("\n".join(["", *summary(done)]))
    if given.out:
        found = {"device": device(given.gpu), "date": time.strftime("%Y-%m-%d"), "jobs": given.jobs}
        add(given.out, {**found, "answers": [_rounded(answer) for answer in done]})


def add(path: Path, run: dict[str, Any]) -> None:
    """Adds answers to a file, in place of earlier ones of the same cases."""
    runs = json.loads(path.read_text()) if path.exists() else []
    known = {_key(answer) for answer in run["answers"]}
    for one in runs:
        one["answers"] = [answer for answer in one["answers"] if _key(answer) not in known]
    texts = []
    for one in [one for one in runs if one["answers"]] + [run]:
        head = json.dumps({name: one[name] for name in ("device", "date", "jobs")})[1:-1]
        lines = ",\n".join(json.dumps(answer) for answer in one["answers"])
        texts.append(f'{{{head}, "answers": [\n{lines}\n]}}')
    path.write_text("[" + ",\n".join(texts) + "]\n")


def _key(answer: dict[str, Any]) -> tuple[str, str, bool]:
    return answer["case"]["source"], answer["case"]["name"], answer["fixed"]


def _rounded(answer: Answer) -> dict[str, Any]:
    items = asdict(answer).items()
    return {key: round(value, 3) if isinstance(value, float) else value for key, value in items}


if __name__ == "__main__":
    main()
