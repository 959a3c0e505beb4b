"""One run directory for a `record` in each rank of a job, as under `srun ttanalyze record`.

The first of them makes the directory, and writes the job's name to `job.json`. The others join it
if the name is theirs.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from ttanalyze._format import ffi
from ttanalyze.errors import Error, system_errors
from ttanalyze.output.files import directory, replace_in
from ttanalyze.util import libraries

NAME = "job.json"
WAIT_SECONDS = 10.0  # for the rank that made the directory
# What tells two jobs with the same name apart, as far as launchers tell it to all ranks.
OTHER_NAMES = ("SLURM_STEP_ID", "MASTER_ADDR", "MASTER_PORT")
RESTARTED = "TORCHELASTIC_RESTART_COUNT"  # the same ranks come again


@dataclass(frozen=True)
class Job:
    """The job that `record` is a rank of."""

    rank: int
    name: dict[str, Any]
    restarted: bool

    @staticmethod
    def of(environment: Mapping[str, str]) -> Job | None:
        """Returns the job of this process, None if no launcher gave it one of several ranks."""
        told = orjson.loads(ffi.string(libraries.toolkit().tt_rank()))
        if not told or told["world_size"] < 2:
            return None
        name = {key: told[key] for key in ("launcher", "job", "world_size")}
        name |= {key: environment[key] for key in OTHER_NAMES if key in environment}
        return Job(told["rank"], name, environment.get(RESTARTED, "0") != "0")

    def join(self, out: Path) -> None:
        """Makes the run directory of the job, or joins it.

        Raises Error if something else is there, or an earlier run of the same job.
        """
        with system_errors(out):
            out.parent.mkdir(parents=True, exist_ok=True)
            try:
                out.mkdir(mode=0o700)
            except FileExistsError:
                self._require_ours(out)
                return
            with directory(out) as folder:
                replace_in(folder, NAME, orjson.dumps(self.name))

    def worst(self, out: Path, ending: dict[str, Any]) -> dict[str, Any]:
        """Returns how the program of another rank ended if that failed, else `ending`."""
        with contextlib.suppress(OSError, orjson.JSONDecodeError, AttributeError):
            other = orjson.loads((out / "run.json").read_bytes()).get("exit", {})
            return other if other.get("status") else ending
        return ending

    def _require_ours(self, out: Path) -> None:
        until = time.monotonic() + WAIT_SECONDS
        name: Any = None
        while name is None and stat.S_ISDIR(out.lstat().st_mode):
            with contextlib.suppress(FileNotFoundError, orjson.JSONDecodeError):
                name = orjson.loads((out / NAME).read_bytes())
            others = [entry for entry in os.listdir(out) if not entry.endswith(".tmp")]
            if name is None and ((others and NAME not in others) or time.monotonic() > until):
                break
            time.sleep(0.01)
        if name != self.name:
            raise Error(f"{out} exists and is of another job; choose another name, or remove it")
        if not self.restarted and self.rank in recorded_ranks(out):
            raise Error(f"{out} has rank {self.rank} of an earlier job; remove it")


def recorded_ranks(out: Path) -> dict[int, Path]:
    """Returns the folders of the processes of a run that have a rank, by rank."""
    found = {}
    for path in out.glob("p*/process.json"):
        with contextlib.suppress(OSError, orjson.JSONDecodeError, AttributeError):
            rank = (orjson.loads(path.read_bytes()).get("rank") or {}).get("rank")
            if isinstance(rank, int):
                found[rank] = path.parent
    return found
