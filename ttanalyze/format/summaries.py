"""summary.json: what `info` tells of a process that has ended, so that its files need not be read.

It counts while the process has the files that it had, in their sizes, and none was changed later.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path
from typing import Any

import orjson
import xxhash

import ttanalyze
from ttanalyze.errors import Error
from ttanalyze.format.files import read_text
from ttanalyze.output.files import directory, replace_in
from ttanalyze.util.remote import Url, sizes_below

NAME = "summary.json"
CHECK = '{{"check":"{:016x}",'  # of all bytes behind it
HEAD = len(CHECK.format(0))

Files = dict[str, tuple[int, int]]  # size and time of change in ns by name, 0 elsewhere


def files_of(folder: Path, without: Collection[str] = ()) -> Files:
    """Returns the files below a folder. without: names of folders in it that are left out."""
    if isinstance(folder, Url):
        return {name: (size, 0) for name, size in sizes_below(folder).items()}
    found, below = {}, [(os.fspath(folder), "")]
    while below:
        path, lead = below.pop()
        with os.scandir(path) as entries:
            for entry in entries:
                name = lead + entry.name
                if entry.is_dir(follow_symlinks=False):
                    below += [] if name in without else [(entry.path, f"{name}/")]
                    continue
                try:
                    status = entry.stat()
                except FileNotFoundError:  # a run that goes on renames its drafts
                    continue
                found[name] = status.st_size, status.st_mtime_ns
    return found


def kept(folder: Path, files: Files) -> dict[str, Any] | None:
    """Returns the summary of a process, None if it has none for these files."""
    if NAME not in files:
        return None
    _, written = files[NAME]
    try:
        raw = bytes(read_text(folder / NAME))
        if raw[:HEAD] != CHECK.format(xxhash.xxh3_64_intdigest(raw[HEAD:])).encode():
            return None
        told = orjson.loads(raw)
    except (Error, orjson.JSONDecodeError):
        return None
    changed = max((time for name, (_, time) in files.items() if name != NAME), default=0)
    same = told.get("by") == ttanalyze.__version__ and told.get("files") == _sizes(files)
    summary = told.get("summary")
    return summary if same and changed <= written and isinstance(summary, dict) else None


def keep(folder: Path, summary: dict[str, Any]) -> None:
    """Writes the summary of a process. Raises OSError."""
    told = {"by": ttanalyze.__version__, "files": _sizes(files_of(folder)), "summary": summary}
    rest = orjson.dumps(told)[1:]
    with directory(folder) as opened:
        replace_in(opened, NAME, CHECK.format(xxhash.xxh3_64_intdigest(rest)).encode() + rest)


def _sizes(files: Files) -> dict[str, int]:
    return {name: size for name, (size, _) in files.items() if name != NAME}
