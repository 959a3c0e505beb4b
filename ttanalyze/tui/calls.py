"""The driver calls between two epochs, and the lines of the program that made calls.

It does not use a terminal. Every method reads only what it needs, may take a while, and raises
Error for what cannot be shown.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np

from ttanalyze.code.demangle import demangle, short
from ttanalyze.core import stacks
from ttanalyze.core.writers import HOW, writers
from ttanalyze.format import activities, event_kinds, layout
from ttanalyze.format.annotations import is_annotation
from ttanalyze.format.event_kinds import KIND
from ttanalyze.format.layout import Array
from ttanalyze.format.process import Process
from ttanalyze.output import text

MOST_CALLS = 100_000  # between two epochs, that are looked at


@dataclass(frozen=True)
class Calls:
    """The calls between an epoch and `since`, the one before of its context.

    records: tt_event, by seq. more: whether there are others. suspects: by seq, the possible
    writers of the region with an index of HOW, the surest first.
    """

    epoch: int
    since: int | None
    region: int | None
    records: Array
    more: bool
    suspects: dict[int, int]


@dataclass(frozen=True)
class CallRow:
    """A row of the list of calls.

    took: the time on the GPU, or "". how: how sure the write to the region is, an index of HOW, or
    None. caller: the program's line that made the call, or "".
    """

    seq: int
    stream: str
    what: str
    took: str
    how: int | None
    caller: str
    stack: str


class CallReader:
    """The calls of one process."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.known_callers: dict[int, str] = {}  # by seq of the call; "" if not recorded
        self.known_sites: dict[int, str] = {}  # the same, of calls that allocate
        self._callers = stacks.StackTexts(stacks.caller)
        self._sites = stacks.StackTexts(stacks.sites)
        self._stacks = stacks.StackTexts(stacks.whole)

    @functools.cached_property
    def recorded(self) -> bool:
        """Whether the run has driver calls."""
        return (self.process.path / "events.bin").exists()

    @functools.cached_property
    def have_stacks(self) -> bool:
        """Whether the run has call stacks."""
        path = self.process.path / "frames.bin"
        return self.recorded and path.exists() and path.stat().st_size > layout.HEADER_SIZE

    @functools.cached_property
    def have_times(self) -> bool:
        """Whether the run has times of the GPU."""
        return len(self.process.activities) > 0

    # ---- who called ----

    def read_callers(self, seqs: list[int]) -> None:
        """Adds the callers of calls to known_callers, such as "step (train.py:12)"."""
        self._read(seqs, self._callers, self.known_callers)

    def read_sites(self, seqs: list[int]) -> None:
        """Adds the places of allocating calls to known_sites, such as "train.py:12 in step"."""
        self._read(seqs, self._sites, self.known_sites)

    def _read(self, seqs: list[int], texts: stacks.StackTexts, known: dict[int, str]) -> None:
        for seq in seqs:
            if seq not in known and self.have_stacks:
                records = self.process.events_between(max(0, seq - 1), seq)
                stack = int(records[0]["stack"]) if len(records) else 0
                known[seq] = self._of_stack(texts, stack)

    def _of_stack(self, texts: stacks.StackTexts, stack: int) -> str:
        return text.printable(texts.get(self.process, stack) or "")

    # ---- between epochs ----

    def between(self, epoch: int, region: int | None) -> Calls:
        """Returns the calls between an epoch and the one before of its context that has seen the
        region.

        If the region changed, the possible writers are marked.
        """
        seen = self.process.coverage
        since = seen.before(epoch, region)
        after = int(seen.whole[since]) if since is not None else 0
        until = int(seen.some[epoch])
        records = self.process.events_between(after, until, MOST_CALLS + 1)
        more = len(records) > MOST_CALLS
        suspects: dict[int, int] = {}
        if region is not None and not more and self._changed(epoch, region):
            found = writers(self.process, region, after, until)
            suspects = dict(zip(found.events["seq"].tolist(), found.how.tolist(), strict=True))
        return Calls(epoch, since, region, records[:MOST_CALLS], more, suspects)

    def _changed(self, epoch: int, region: int) -> bool:
        digests = self.process.digests(epoch, epoch + 1)
        return bool(((digests["region"] == region) & (digests["changed"] > 0)).any())

    def rows(self, calls: Calls, first: int, last: int) -> list[CallRow]:
        """Returns calls first to last - 1."""
        out = []
        took = self._gpu_times(calls.records["seq"][first:last])
        for record in calls.records[first:last]:
            kind = layout.EVENT_KINDS[int(record["kind"])]
            number, stack = int(record["stream"]), int(record["stack"])
            stream = {0: "", 1: "legacy", 2: "thread"}.get(number, str(number))
            seq = int(record["seq"])
            on_gpu = text.duration(took[seq]) if seq in took else ""
            who = [self._of_stack(texts, stack) for texts in (self._callers, self._stacks)]
            what = self._call(kind, record)
            out.append(CallRow(seq, stream, what, on_gpu, calls.suspects.get(seq), *who))
        return out

    def _gpu_times(self, seqs: Array) -> dict[int, int]:
        """Returns the duration of the GPU work of calls in nanoseconds, by seq, if it is known."""
        records, _ = self.process.activities.of_calls(seqs)
        by_recorder = records["flags"] & activities.OWN != 0
        records = records[(records["kind"] != activities.SYNC) & ~by_recorder]
        different, first = np.unique(records["seq"], return_index=True)
        if not len(first):
            return {}
        took = np.maximum.reduceat(records["end_ns"], first) - records["begin_ns"][first]
        return dict(zip(different.tolist(), took.tolist(), strict=True))

    def _call(self, kind: str, record: Any) -> str:
        if kind == "launch":
            grid, block = (text.extent(record[field].tolist()) for field in ("grid", "block"))
            shared = f", {int(record['shared'])}" if record["shared"] else ""
            return f"{self.kernel(int(record['id']))} <<<{grid}, {block}{shared}>>>"
        words = [self.process.call(int(record["call"])) or kind]
        if is_annotation(record["kind"]):
            words.append(self.process.strings.get(int(record["id"])) or "")
        if record["kind"] in event_kinds.MOVE + event_kinds.REGION:
            words.append(text.size(int(record["bytes"])))
            words.append(f"{'to' if kind == 'copy' else 'at'} {self._address(int(record['dst']))}")
        if kind == "copy":
            words.append(f"from {self._address(int(record['src']))}")
        if record["result"]:
            words.append(f"failed with {int(record['result'])}")
        return text.printable(" ".join(words))

    def _address(self, address: int) -> str:
        return f"{address:#x}"

    def kernel(self, function: int) -> str:
        """Returns the demangled name of a kernel."""
        return text.printable(demangle([self.process.kernel(function) or "?"])[0])

    def line(self, calls: Calls) -> str:
        """Returns the calls in a few words, possible writers first."""
        if not self.recorded:
            return "calls were not recorded"
        since = "the beginning" if calls.since is None else f"epoch {calls.since}"
        head = f"since {since}: {text.count(len(calls.records), 'call')}"
        head += " and more" if calls.more else ""
        if not calls.suspects:
            tally = self._tally(calls.records)
            return f"{head}{': ' if tally else ''}{tally}"
        surest = min(calls.suspects.values())
        seqs = [seq for seq, how in calls.suspects.items() if how == surest]
        tally = self._tally(calls.records[np.isin(calls.records["seq"], seqs)])
        self.read_callers(seqs[:1])
        caller = self.known_callers.get(seqs[0]) if len(seqs) == 1 else ""
        return f"{head}; {HOW[surest]}: {tally}{f' from {caller}' if caller else ''}"

    def _tally(self, records: Array) -> str:
        """Returns counts: launches by kernel, then other calls that change memory."""
        kinds = records["kind"]
        launch = KIND["launch"]
        functions, counts = np.unique(records["id"][kinds == launch], return_counts=True)
        order = np.argsort(counts, kind="stable")[::-1].tolist()
        parts = [_times(short(self.kernel(int(functions[i]))), int(counts[i])) for i in order[:8]]
        parts += ["…"] if len(order) > 8 else []
        for kind in event_kinds.WRITES + event_kinds.REGION:
            number = int(np.count_nonzero(kinds == kind))
            if number and kind != launch:
                parts.append(_times(layout.EVENT_KINDS[kind], number))
        return ", ".join(parts)


def _times(what: str, number: int) -> str:
    return what if number == 1 else f"{what} x{number:,}"
