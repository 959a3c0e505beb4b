"""Joins run directories of one job, such as one per node, into one."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import orjson

from ttanalyze.errors import Error, system_errors
from ttanalyze.format import layout, summaries
from ttanalyze.format.process import Process
from ttanalyze.format.run import FORMAT, Run
from ttanalyze.output import text
from ttanalyze.util.progress import Progress, tell
from ttanalyze.util.remote import Url
from ttanalyze.verbs.record.run import make_way
from ttanalyze.verbs.record.totals import keep_summaries

CANNOT_LINK = (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP, errno.EACCES)
ANEW = ("process.json", "manifest.json", summaries.NAME)  # files that are not linked


@dataclass(frozen=True)
class Merged:
    """The result of `merge`.

    Attributes:
        out: The new run directory.
        processes: The number of its processes.
        ranks: The ranks of those that have one.
        bytes: The size of its files in bytes.
        linked: Whether all record files are hard links, which take no further space.
    """

    out: Path
    processes: int
    ranks: list[int]
    bytes: int
    linked: bool

    def to_json(self) -> str:
        """Returns the attributes as a JSON object in one line."""
        return orjson.dumps({**asdict(self), "out": str(self.out)}).decode()

    def line(self) -> str:
        """Returns the result in one line for a screen."""
        ranks = f", {text.count(len(self.ranks), 'rank')}" if self.ranks else ""
        how = "as hard links" if self.linked else "copied"
        count = text.count(self.processes, "process", "processes")
        return f"{count}{ranks}, {text.size(self.bytes)} {how}, in {self.out}"


def merge(
    runs: Sequence[Run], out: Path, *, force: bool = False, progress: Progress = None
) -> Merged:
    """Joins runs into a new run directory with the processes of all, ranks first.

    Record files become hard links, or copies where the new directory is on another file system.
    The runs stay as they are.

    Args:
        runs: The runs.
        out: The new run directory. It appears when it is complete.
        force: Whether to replace an existing run directory.
        progress: Called with the finished and the total number of processes.

    Returns:
        The result.

    Raises:
        Error: A run or a process is given twice, a process still runs, two runs have the same rank
            of one job, a run is not on this machine, or a file cannot be read or written.

    Example:
        >>> joined = tt.merge([tt.open("run1"), tt.open("run2")], Path("both"))
        >>> joined.processes, joined.linked
        (2, True)
    """
    processes = sorted(
        (process for run in runs for process in run.processes),
        key=lambda process: process.rank.rank if process.rank is not None else 1 << 32,
    )
    for number, run in enumerate(runs):
        if isinstance(run.path, Url):
            raise Error(f"{run.path}: merge needs run directories on this machine")
        if any(run.path.samefile(other.path) for other in runs[:number]):
            raise Error(f"{run.path}: given twice")
    _require_distinct(processes)
    for process in processes:
        if process.runs:
            raise Error(f"{process.path}: the process still runs; merge when it has ended")
    for run in runs:
        if out.exists() and out.samefile(run.path):
            raise Error(f"{out}: is one of the runs; name another directory")
        if run.path.resolve() in out.resolve().parents:
            raise Error(f"{out}: is in the run {run.path}; name a directory outside")
    if not force:
        make_way(out, False)
    draft = out.with_name(f".{out.name}.{os.getpid()}.tmp")
    size, linked = 0, True
    with system_errors(out):
        try:
            draft.mkdir(mode=0o700)
            infos = []
            for number, process in enumerate(processes):
                tell(progress, number, len(processes))
                infos.append({**process.info, "process": number})
                _write(draft / f"p{number}" / "process.json", orjson.dumps(infos[-1]))
                for path in _files(process.path):
                    to = draft / f"p{number}" / path.relative_to(process.path)
                    size += path.stat().st_size
                    linked &= _take(path, to)
            _keep_summaries(processes, draft)
            _write(draft / "run.json", orjson.dumps(_run_json(runs, infos)))
            _join_manifests(processes, draft)
            make_way(out, force)
            os.rename(draft, out)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    ranks = [process.rank.rank for process in processes if process.rank is not None]
    return Merged(out, len(processes), ranks, size, linked)


def _keep_summaries(processes: Sequence[Process], draft: Path) -> None:
    """Writes the summaries that the processes have, and those of long ones that have none."""
    missing = []
    for number, process in enumerate(processes):
        known = summaries.kept(process.path, summaries.files_of(process.path))
        if known is None:
            missing.append((draft / f"p{number}", process.info))
        else:
            summaries.keep(draft / f"p{number}", known)
    keep_summaries(missing)


def _require_distinct(processes: Sequence[Process]) -> None:
    """Raises Error if two runs have the same process, or the same rank of one job."""
    known: dict[tuple[str, int], Process] = {}
    same: dict[str, Process] = {}
    for process in processes:
        other = same.setdefault(repr(process.identity), process)
        if other is not process and process.identity["clock"]:
            raise Error(f"{other.path} and {process.path} are the same process: merge one of them")
        if process.rank is None:
            continue
        other = known.setdefault((process.rank.job, process.rank.rank), process)
        if other is not process and other.path.parent != process.path.parent:
            job = f" of job {process.rank.job}" if process.rank.job else ""
            where = f"{other.path.parent} and {process.path.parent}"
            raise Error(f"{where} both have rank {process.rank.rank}{job}: merge one of them")


def _files(folder: Path) -> Iterator[Path]:
    """Returns the files of a process, without drafts and what is written anew."""
    for name, _, files in os.walk(folder):
        for file in sorted(files):
            if file not in ANEW and not file.endswith(".tmp"):
                yield Path(name) / file


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(mode=0o700, exist_ok=True)
    with open(path, "wb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        file.write(data)


def _take(path: Path, to: Path) -> bool:
    """Links or copies a file. Returns whether it is a link."""
    to.parent.mkdir(mode=0o700, exist_ok=True)
    try:
        os.link(path, to, follow_symlinks=False)
        return True
    except OSError as e:
        if e.errno not in CANNOT_LINK:
            raise
    shutil.copyfile(path, to)
    to.chmod(0o600)
    return False


def _run_json(runs: Sequence[Run], processes: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns run.json. Of several ends of programs it has the first that failed."""
    created = [run.info["created_ns"] for run in runs if "created_ns" in run.info]
    ends = [run.info["exit"] for run in runs if "exit" in run.info]
    info = {"format": FORMAT, "version": layout.VERSION, "created_ns": min(created, default=0)}
    info["processes"] = processes
    if ends:
        info["exit"] = next((end for end in ends if end.get("status")), ends[0])
    return info


def _join_manifests(processes: Sequence[Process], draft: Path) -> None:
    """Writes the manifests with the new numbers, and that of the run if every process has one."""
    texts = []
    for number, process in enumerate(processes):
        path = process.path / "manifest.json"
        if not path.is_file():
            continue
        lead = f'{{"process":{process.index},'.encode()
        data = path.read_bytes()
        if not data.startswith(lead):
            raise Error(f"{path}: offset 0: expected the number of process {process.index}")
        texts.append(f'{{"process":{number},'.encode() + data[len(lead) :])
        _write(draft / f"p{number}" / "manifest.json", texts[-1])
    head = f'{{"format":"ttanalyze-manifest","version":{layout.VERSION},'
    head += f'"block_size":{layout.BLOCK_SIZE},"digest":"xxh3-64","processes":['
    if texts:
        _write(draft / "manifest.json", head.encode() + b",".join(texts) + b"]}")
