"""process.json, and the processes in run.json."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ttanalyze.errors import FormatError
from ttanalyze.format import crash_reports, statuses
from ttanalyze.format.files import ExpectedFile, RecordFile, expect, expect_list, read_json


@dataclass(frozen=True)
class Rank:
    """The place of a process in a job of many.

    Attributes:
        rank: Its rank, from 0.
        local_rank: Its rank among those of its node. None if the launcher does not say.
        world_size: The number of ranks.
        node: The name of its host.
        job: The launcher's name of the job, "" if it has none.
        launcher: The launcher, such as "torchrun".
        visible_devices: CUDA_VISIBLE_DEVICES, "" if it is not set.
    """

    rank: int
    local_rank: int | None
    world_size: int
    node: str
    job: str
    launcher: str
    visible_devices: str


MOST_RANKS = 1 << 20  # of a job: those that are missing are listed

NO_RANK: dict[str, Any] = {
    "rank": 0,
    "local_rank": None,
    "world_size": 1,
    **dict.fromkeys(("node", "job", "launcher", "visible_devices"), ""),
}


def missing_ranks(found: Iterable[Rank | None]) -> list[int]:
    """Returns the ranks of the job that none of these is, ascending."""
    told = [rank for rank in found if rank is not None]
    world = max((rank.world_size for rank in told), default=0)
    return sorted(set(range(world)) - {rank.rank for rank in told})


class ProcessInfo:
    """The contents of process.json. path: the folder of the process."""

    path: Path
    info: dict[str, Any]
    _files: dict[str, RecordFile | None]

    def __init__(self, folder: Path) -> None:
        """Reads process.json."""
        self.path = folder
        path = folder / "process.json"
        self.info = {}
        if path.exists():
            self.info = read_json(path)
            check_process(path, "", self.info)

    def cut_short(self, name: str, what: str) -> FormatError:
        """Returns the error for a file that lacks records at its end."""
        file = self._files.get(name)
        end = 0 if file is None else file.offset_of(file.count)
        return FormatError(self.path / name, end, f"cut short: {what}")

    @property
    def status(self) -> str:
        """ "running", "complete", "failed" or "signal", as the process said last."""
        return str(self.info.get("status", "running"))

    @property
    def runs(self) -> bool:
        """Whether the process says that it runs, and exists, as far as this machine knows."""
        if self.status in statuses.OVER:
            return False
        boot, pid = self.info.get("clock", {}).get("boot"), self.info.get("pid")
        if not pid or (boot and boot != _boot()):
            return True
        return Path(f"/proc/{pid}").exists()

    @property
    def identity(self) -> dict[str, Any]:
        """What tells the process from others, also those of other machines."""
        return {name: self.info.get(name) for name in ("pid", "started_ns", "clock")}

    @property
    def rank(self) -> Rank | None:
        """The rank that a launcher gave the process. None if none did."""
        told = self.info.get("rank")
        if not told:
            return None
        return Rank(**{name: told.get(name, empty) for name, empty in NO_RANK.items()})

    @property
    def failure(self) -> str | None:
        """Why the recording ended before the process did, None if it did not."""
        if self.status == "running" or self.status in statuses.WITH_THE_PROCESS:
            return None
        reason = self.info.get("reason") or "no reason given"
        return f"the recording ended early ({self.status}): {reason}"

    @property
    def digests_only(self) -> str | None:
        """Since when epochs have no contents, and why. None if all may have some."""
        only = self.info.get("digests_only")
        if not only:
            return None
        return (
            f"epochs from {only.get('since', '?')} on have digests only: {only.get('reason', '?')}"
        )

    @property
    def why_digests(self) -> str:
        """Why contents of blocks were not stored."""
        chosen = self.info.get("options", {}).get("TT_CONTENTS", "?")
        return f"recorded with --contents {chosen}"

    @property
    def without_contents(self) -> bool:
        """Whether contents were not stored, by an option."""
        return bool(self.info.get("options", {}).get("TT_CONTENTS") == "none")

    @property
    def without_events(self) -> bool:
        """Whether calls were not recorded, by an option."""
        return bool(self.info.get("options", {}).get("TT_EVENTS") == "0")

    @property
    def ended(self) -> bool:
        """Whether the process wrote how its files end."""
        return bool(self.info.get("files"))


def _boot() -> str:
    """Returns what tells this boot of this machine from others, as the recorder does."""
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return ""


def endings(info: dict[str, Any]) -> dict[str, ExpectedFile]:
    """Returns size and check of each file by name, from a checked process.json."""
    return {
        name: ExpectedFile(file["size"], int(file["check"], 16) if file.get("check") else None)
        for name, file in info.get("files", {}).items()
    }


def check_process(path: Path, where: str, info: dict[str, Any]) -> None:
    """Checks a process object, and gives members with an older name their present one.

    Raises:
        FormatError: A member has a wrong type.
    """
    expect(path, where, info, process=int, pid=int, cwd=str, status=str, driver_version=int)
    expect(path, where, info, started_ns=int, options=dict, ring=dict, counters=dict)
    expect(path, where, info, deterministic=bool, ended_ns=(int, None), reason=(str, None))
    ring = info.get("ring", {})
    if "place" in ring:
        ring.setdefault("memory", ring.pop("place"))
    expect(path, f"{where}ring.", ring, bytes=int, memory=str)
    expect(path, where, info, timeline=dict, rank=(dict, None), digests_only=(dict, None))
    expect(path, f"{where}digests_only.", info.get("digests_only") or {}, since=int, reason=str)
    expect(path, where, info, clock=dict)
    clock = info.get("clock", {})
    expect(path, f"{where}clock.", clock, boot=str, monotonic_ns=int, real_ns=int)
    texts = {"asked": str, "source": str, "reason": (str, None)}
    numbers = {"missed": int, "clock_error_ns": (int, None)}
    expect(path, f"{where}timeline.", info.get("timeline", {}), **texts, **numbers)
    rank = info.get("rank") or {}
    expect(path, f"{where}rank.", rank, rank=int, local_rank=(int, None), world_size=int)
    if rank.get("world_size", 1) > MOST_RANKS:
        raise FormatError(path, f"{where}rank.world_size", f"more than {MOST_RANKS:,} ranks")
    if not 0 <= rank.get("rank", 0) < MOST_RANKS:
        raise FormatError(path, f"{where}rank.rank", f"expected a rank below {MOST_RANKS:,}")
    names = {"node": str, "job": str, "launcher": str, "visible_devices": str}
    expect(path, f"{where}rank.", rank, **names)
    crash_reports.check(path, where, info)
    expect(path, where, info, files=dict)
    for name, file in info.get("files", {}).items():
        place = f"{where}files.{name}"
        if not isinstance(file, dict) or "size" not in file:
            raise FormatError(path, place, "expected an object with a size")
        expect(path, f"{place}.", file, size=int, check=(str, None))
        if not re.fullmatch(r"[0-9a-f]{16}", file.get("check") or "0" * 16):
            raise FormatError(path, f"{place}.check", "expected 16 hexadecimal digits")
    for key in ("argv", "unknown_calls", "warnings", "losses", "calls"):
        expect_list(path, where, info, key, str)
    members = {"devices": {"ordinal": int, "name": str, "memory": int}}
    members["threads"] = {"name": str, "count": int, "cpu_ns": int}
    for key, kinds in members.items():
        expect_list(path, where, info, key, dict)
        for i, item in enumerate(info.get(key, [])):
            expect(path, f"{where}{key}[{i}].", item, **kinds)
    expect(path, where, info, overhead=(dict, None))
    for key, kind in {"options": str, "counters": int, "overhead": int}.items():
        item = info.get(key) or {}
        expect(path, f"{where}{key}.", item, **dict.fromkeys(item, kind))
