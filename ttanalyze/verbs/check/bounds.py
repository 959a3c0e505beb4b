"""Whether the program writes outside its allocations, or to memory that it freed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ttanalyze.core import zones
from ttanalyze.core.writers import WRITES, writers
from ttanalyze.core.zones import ChangedZone
from ttanalyze.errors import Error
from ttanalyze.format import event_kinds, layout, open_run
from ttanalyze.format.process import Process
from ttanalyze.output import text
from ttanalyze.verbs.check.difference import call_text
from ttanalyze.verbs.check.findings import (
    CLEAN,
    CONFIRMED,
    FOUND,
    NOT_COVERED,
    POSSIBLE,
    Finding,
    Outcome,
)
from ttanalyze.verbs.check.naming import call_of, memory_of, memory_text
from ttanalyze.verbs.check.session import PLAIN, Plan, Session, Settings
from ttanalyze.verbs.check.zoom import launch_seqs

NAME = "bounds"
DESCRIPTION = "writes outside of allocations, and to memory that was freed"
ZONES = {**PLAIN, "zones": "256"}
CAPTURING = layout.constant("TT_EVENTF_CAPTURING")
WINDOWS = 3  # stretches of launches that are looked at closely
# What makes frameworks allocate each tensor by itself.
EACH_TENSOR = {
    "PYTORCH_NO_CUDA_MEMORY_CACHING": "1",
    "XLA_PYTHON_CLIENT_ALLOCATOR": "platform",
}


def recordings(settings: Settings) -> Plan:
    """One recording; more look closer at what it shows."""
    return Plan(("zones",), 0 if settings.quick else WINDOWS)


@dataclass(frozen=True)
class _Seen:
    """A changed zone, and the run and the process that have it."""

    run: Path
    process: Process
    zone: ChangedZone

    @property
    def key(self) -> tuple[int, int]:
        """The same in each recording: the addresses are."""
        regions = self.process.regions
        birth = regions.birth[int(regions.rows(np.array([self.zone.region]))[0])]
        return int(birth["base"]), int(birth["size"])

    @property
    def calls(self) -> tuple[int, int]:
        """The write lies in calls (after, until]."""
        coverage, zone = self.process.coverage, self.zone
        after = 0 if zone.before is None else int(coverage.whole[zone.before])
        regions = self.process.regions
        birth = regions.birth[int(regions.rows(np.array([zone.region]))[0])]
        return max(after, int(birth["seq"])), int(coverage.some[zone.epoch])


def examine(session: Session) -> Outcome:
    """Records the program with zones, and names the calls that changed some."""
    recording = session.record("zones", EACH_TENSOR, **ZONES)
    run = open_run(recording.run)
    outcome = Outcome(NAME, CLEAN)
    _cover(outcome, run.processes)
    seen = [one for process in run.processes for one in _seen(recording.run, process)]
    if not seen:
        return outcome
    outcome.status = FOUND
    outcome.findings = [_finding(one) for one in seen]
    session.partial = outcome
    if not session.settings.quick:
        _look(session, outcome, seen)
    return outcome


def _cover(outcome: Outcome, processes: list[Process]) -> None:
    """The shares of launches before the last epoch, and of bytes in allocations with zones."""
    launches = seen = 0
    for process in processes:
        seqs = launch_seqs(process)
        usable = process.epochs["flags"] & layout.REFUSED == 0
        launches += len(seqs)
        if usable.any():
            last = int(process.coverage.whole[usable].max())
            seen += int(np.searchsorted(seqs, last, "right"))
    served, count, inside, size = np.sum([zones.coverage(p) for p in processes], axis=0).tolist()
    outcome.launches = seen / launches if launches else None
    outcome.bytes = inside / size if size else None
    outcome.reason = f"{served} of {text.count(count, 'allocation')} have zones"
    if not served or (launches and not seen):
        outcome.status = NOT_COVERED
        outcome.reason = "no epoch was captured" if served else "no allocation has zones"


# ---- which call ----


def _look(session: Session, outcome: Outcome, seen: list[_Seen]) -> None:
    """Looks closer at the first windows that changed zones, with an epoch after each call."""
    windows = list(dict.fromkeys(_window(one) for one in seen))[:WINDOWS]
    for number, (index, first, last) in enumerate(windows, 1):
        epoch = f"launch,memcpy,@{first}-{last}"
        options = {**ZONES, "contents": "changed", "epoch": epoch}
        try:
            found = session.record(f"zones-{number}", EACH_TENSOR, **options)
            process = open_run(found.run).process(index)
        except Error as e:
            session.say(f"the writes were not looked at closely: {e}")
            return
        finer = {one.key: one for one in _seen(found.run, process)}
        for i, one in enumerate(seen):
            if _window(one) == (index, first, last) and one.key in finer:
                outcome.findings[i] = _finding(finer[one.key])


def _seen(run: Path, process: Process) -> list[_Seen]:
    return [_Seen(run, process, zone) for zone in zones.changed_zones(process)]


def _window(one: _Seen) -> tuple[int, int, int]:
    """The process, and the numbers of the first and the last launch that may have written."""
    first, last = np.searchsorted(launch_seqs(one.process), list(one.calls), "right").tolist()
    return one.process.index, first, last


def _culprit(one: _Seen) -> tuple[int | None, bool]:
    """The seq of the most likely writer, and whether there is no other."""
    process, zone = one.process, one.zone
    after, until = one.calls
    direct = writers(process, zone.region, after, until)
    exact = direct.events["seq"][direct.how == WRITES]
    if len(exact):
        return int(exact[-1]), len(exact) == 1
    # What copies and sets write to is known, so only launches are left.
    events = process.events_between(after, until)
    launches = np.isin(events["kind"], event_kinds.LAUNCH) & (events["flags"] & CAPTURING == 0)
    seqs = events["seq"][launches & (events["result"] == 0)].tolist()
    if len(seqs) == 1:
        return seqs[0], True
    found: dict[int, int] = {}
    for region in (zone.allocation, zones.neighbour(process, zone), zone.region):
        if region is None:
            continue
        likely = writers(process, region, after, until)
        for seq, how in zip(likely.events["seq"].tolist(), likely.how.tolist(), strict=True):
            if seq in seqs:
                found[seq] = min(how, found.get(seq, how))
    if not found:
        return (seqs[-1] if seqs else None), False
    return min(found, key=lambda seq: (found[seq], -seq)), False


def _finding(one: _Seen) -> Finding:
    process, zone = one.process, one.zone
    seq, sure = _culprit(one)
    call = None if seq is None else call_of(process, seq)
    owner = zone.allocation if zone.allocation is not None else zone.region
    offset = _offset(process, zone, owner)
    memory = memory_of(process, owner, offset, zone.count, seq)
    who = call_text(call) if call else "Something"
    verb = "writes" if sure else "may have written"
    bytes_ = text.count(zone.count, "byte") + " " if zone.count is not None else ""
    where = _distance(process, zone, owner)
    summary = f"{who} {verb} {bytes_}{where} {memory_text(memory)}."
    details: dict[str, Any] = {"epoch": zone.epoch, "zone": zone.region}
    if zone.first is not None and zone.last is not None:
        details |= {"first": zone.first, "last": zone.last, "sample": zone.sample.hex(" ")}
    near = zones.neighbour(process, zone)
    if near is not None:
        details["neighbour"] = memory_text(memory_of(process, near))
    command = ["ttanalyze", "blame", str(one.run), "-r", str(zone.region)]
    certainty = CONFIRMED if sure else POSSIBLE
    step = f"epoch {zone.epoch}"
    return Finding(
        NAME, f"write {zone.side}", certainty, summary, call, memory, step, command, details
    )


def _offset(process: Process, zone: ChangedZone, owner: int) -> int | None:
    """The first changed byte as seen from the start of the allocation; it may be negative."""
    if zone.first is None:
        return None
    regions = process.regions
    rows = regions.rows(np.array([zone.region, owner]))
    base, start = regions.birth["base"][rows].tolist()
    return int(base) + zone.first - int(start)


def _distance(process: Process, zone: ChangedZone, owner: int) -> str:
    """ "4 bytes past the end of"."""
    if zone.side == zones.FREED:
        return "after the free of"
    if zone.first is None or zone.last is None:
        return f"{zone.side} of"
    size = int(process.regions.size[int(process.regions.rows(np.array([zone.region]))[0])])
    gap = zone.first if zone.side == zones.END else size - zone.last - 1
    return f"{text.count(gap, 'byte') if gap else 'directly'} {zone.side} of"
