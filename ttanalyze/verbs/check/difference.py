"""Where two runs first differ, and which call makes the difference."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ttanalyze.code.demangle import readable
from ttanalyze.core.writers import HOW, INDIRECT
from ttanalyze.errors import Error
from ttanalyze.format import event_kinds, layout, open_run
from ttanalyze.format.process import Process
from ttanalyze.output import text
from ttanalyze.verbs.check import parameters
from ttanalyze.verbs.check.findings import CONFIRMED, POSSIBLE, Call, Finding, Memory
from ttanalyze.verbs.check.naming import call_of, memory_of, memory_text
from ttanalyze.verbs.check.session import Session
from ttanalyze.verbs.diff import DiffReport, Divergence, ProcessDiff, Suspect, diff
from ttanalyze.verbs.diff.report import Stretch
from ttanalyze.verbs.race import Pair

HOST_SRC = layout.constant("TT_EVENTF_HOST_SRC")
WORK = [kind for kind in event_kinds.WRITES if kind != event_kinds.KIND["set"]]
# Of copies to the host, and of what is recorded into a graph.
ELSEWHERE = layout.constant("TT_EVENTF_HOST_DST") | layout.constant("TT_EVENTF_CAPTURING")
# Kinds of findings, and what each says of a call.
PARAMETERS, INPUT, RESULT = "parameters", "host input", "result"
LAUNCHES, ORDER = "launches", "order"
# Ranks of calls whose result follows from what they are given, among those of launches.
BROUGHT = {"copy": 2 * INDIRECT - 1, "set": 2 * INDIRECT + 1}


@dataclass(frozen=True)
class Difference:
    """The first difference of two runs.

    Attributes:
        report: The comparison.
        process: The processes that differ.
        divergence: Where memory differs first, None if it does not.
        stretch: Launches that only one run has, if memory did not differ before.
    """

    report: DiffReport
    process: ProcessDiff
    divergence: Divergence | None
    stretch: Stretch | None

    def side(self, which: int) -> Process:
        """Returns the process of run 0 or 1."""
        path = (self.report.a, self.report.b)[which]
        return open_run(Path(path)).process((self.process.process_a, self.process.process_b)[which])

    @property
    def sides(self) -> tuple[Process, Process]:
        """The processes of both runs."""
        return self.side(0), self.side(1)

    def window(self, which: int) -> tuple[int, int]:
        """Returns the sequence numbers (after, until] of the calls that may make memory differ."""
        assert self.divergence is not None
        d, process = self.divergence, self.side(which)
        region, equal, epoch = (
            (d.region_a, d.equal_a, d.epoch_a),
            (d.region_b, d.equal_b, d.epoch_b),
        )[which]
        if equal is not None:
            before = int(process.coverage.whole[equal])
        else:
            row = int(process.regions.rows(np.array([region]))[0])
            before = int(process.regions.birth["seq"][row])
        return before, int(process.coverage.some[epoch])

    @functools.cached_property
    def calls(self) -> int:
        """The number of launches and copies in the window that may write to memory, of the run with
        more. Sets do not count: what they write is recorded.
        """
        counts = []
        for which in (0, 1):
            events = self.side(which).events_between(*self.window(which))
            writes = np.isin(events["kind"], WORK) & (events["result"] == 0)
            counts.append(int(np.count_nonzero(writes & (events["flags"] & ELSEWHERE == 0))))
        return max(counts)


@dataclass(frozen=True)
class Proof:
    """What repeating a launch alone showed.

    Attributes:
        run: The run directory with the launch.
        varied: The first byte that varied and the number of bytes, by region.
    """

    run: str
    varied: dict[int, tuple[int, int]]


@dataclass
class Zoomed:
    """What finer recordings showed.

    Attributes:
        found: The difference in the finest recordings.
        looked: The same in recordings with the contents of this memory.
        pair: Two calls that nothing orders, if recordings with more epochs agree.
        agreed: Whether the last recordings with more epochs agree.
        fine: Whether `found` is from recordings with an epoch after each launch.
        proof: What repeating the launch alone showed, None if that was not tried.
        node: The kernel inside a graph after which memory differs first, mangled.
    """

    found: Difference
    looked: Difference | None = None
    pair: Pair | None = None
    agreed: bool = False
    fine: bool = False
    proof: Proof | None = None
    node: str | None = None


def compare(a: Path, b: Path, every: bool = False) -> DiffReport | None:
    """Compares two runs. Returns None if there is nothing to compare."""
    try:
        return diff(a, b, every=every)
    except Error as e:
        if "nothing to compare" not in str(e):
            raise
        return None


def first(session: Session, report: DiffReport) -> Difference | None:
    """Returns the first difference that --ignore does not leave out, None if the runs agree."""
    if session.settings.ignore:
        report = diff(report.a, report.b, every=True)
    for process in report.processes:
        runs = (
            open_run(Path(report.a)).process(process.process_a),
            open_run(Path(report.b)).process(process.process_b),
        )
        divergences = [d for d in process.divergences if not d.leftover]
        divergence = next((d for d in divergences if not _ignored(session, runs[0], d)), None)
        stretch = _stretch(session, runs, process, divergence)
        if divergence is not None or stretch is not None:
            return Difference(report, process, divergence, stretch)
    return None


def beside_memory(check: str, session: Session, report: DiffReport) -> Finding | None:
    """Returns what differs if memory and launches agree: processes, allocations, copies.

    Raises:
        Error: A recording lacks the end of the program.
    """
    if report.unknown is not None:
        raise Error(report.unknown)
    parts, lacks = [], False
    alone = len(report.alone_a) + len(report.alone_b)
    if alone:
        parts.append(f"{text.count(alone, 'process', 'processes')} of only one run")
    for process in report.processes:
        regions = [one for one in process.regions_alone if not session.ignored(one.label)]
        if regions:
            parts.append(
                f"{text.count(len(regions), 'allocation')} of only one run or another size"
            )
        if process.others_differ and process.launches is not None:
            of = process.launches
            count = of.others_a + of.others_b + of.others_changed
            parts.append(f"{text.count(count, 'copy or set', 'copies or sets')} of only one run")
        lacks |= process.epochs_lack
    if lacks and not parts:
        raise Error("a recording lacks the last epochs of the program")
    if not parts:
        return None
    summary = f"Memory and launches agree, but not all calls: {', '.join(parts)}."
    command = ["ttanalyze", "diff", report.a, report.b]
    return Finding(check, LAUNCHES, CONFIRMED, summary, command=command)


def _ignored(session: Session, run: Process, found: Divergence) -> bool:
    memory = memory_of(run, found.region_a)
    names = [found.label, found.tensor, memory.name, memory.line]
    writers = [suspect.kernel for suspect in found.suspects if suspect.kernel]
    return session.ignored(*names) or (
        len(writers) == found.suspect_count and all(session.ignored(one) for one in writers)
    )


def _stretch(
    session: Session,
    runs: Sequence[Process],
    process: ProcessDiff,
    divergence: Divergence | None,
) -> Stretch | None:
    """The first launches that only one run has, if memory did not differ before."""
    if process.launches is None:
        return None
    for stretch in process.launches.stretches:
        kernels = [*stretch.kernels_a, *stretch.kernels_b]
        if all(session.ignored(kernel) for kernel in kernels):
            continue
        if divergence is None:
            return stretch
        side, seq, epoch = (
            (runs[0], stretch.seq_a, divergence.epoch_a)
            if stretch.seq_a is not None
            else (runs[1], stretch.seq_b or 0, divergence.epoch_b)
        )
        return stretch if seq <= int(side.coverage.some[epoch]) else None
    return None


# ---- the call ----


def culprit(found: Difference) -> Suspect | None:
    """Returns the call that makes memory differ.

    This is the first call that differs itself, else a copy from the host, else the likeliest. A
    copy brings a difference from elsewhere, and a set with the same value makes none: launches that
    are given a pointer come before the one, all launches before the other.
    """
    assert found.divergence is not None
    suspects = found.divergence.suspects
    ranked = [(_rank(found, one), max(one.seq_a or 0, one.seq_b or 0)) for one in suspects]
    return suspects[ranked.index(min(ranked))] if suspects else None


def _rank(found: Difference, suspect: Suspect) -> int:
    kind = kind_of(found, suspect)
    if kind != RESULT:
        return int(kind == INPUT)
    return 2 + BROUGHT.get(suspect.kind, 2 * HOW.index(suspect.how))


def kind_of(found: Difference, suspect: Suspect) -> str:
    """Returns what makes the result of a call differ, as the kind of a finding."""
    if suspect.alone:
        return LAUNCHES
    if suspect.parameters == "different" and not parameters.harmless(*found.sides, *_seqs(suspect)):
        return PARAMETERS
    if suspect.kind == "graph-launch" and parameters.of_graph(*found.sides, *_seqs(suspect)):
        return PARAMETERS
    if event_kinds.KIND.get(suspect.kind) in event_kinds.MOVE:
        a, b = (
            found.side(side).events_between(seq - 1, seq)[0]
            for side, seq in enumerate(_seqs(suspect))
        )
        if suspect.kind == "set" and a["src"] != b["src"]:
            return PARAMETERS
        if suspect.kind == "copy" and a["flags"] & HOST_SRC:
            return INPUT
    return RESULT


def _seqs(suspect: Suspect) -> tuple[int, int]:
    """The numbers of a call that both runs make."""
    assert suspect.seq_a is not None and suspect.seq_b is not None
    return suspect.seq_a, suspect.seq_b


def _what(kind: str, suspect: Suspect, zoomed: Zoomed) -> str:
    """What a finding says of the call."""
    if kind == PARAMETERS and suspect.parameters_a and suspect.parameters_b:
        a, b = (bytes.fromhex(one) for one in (suspect.parameters_a, suspect.parameters_b))
        return "has other parameters: " + parameters.text_of(suspect.parameter_offset or 0, a, b)
    if kind == PARAMETERS and suspect.kind == "graph-launch":
        return parameters.of_graph(*zoomed.found.sides, *_seqs(suspect)) or ""
    if zoomed.node is not None:
        return f"has another result in kernel {readable(zoomed.node)}, with the same parameters"
    return {
        LAUNCHES: "is made by only one of two runs",
        PARAMETERS: "writes another value",
        INPUT: "copies other data from the host",
        RESULT: "has another result, with the same parameters and the same memory before",
    }[kind]


# ---- the finding ----


def finding(check: str, coarse: Difference, zoomed: Zoomed) -> Finding:
    """Names the call that makes the difference.

    Args:
        check: The name of the check.
        coarse: The difference at the epochs of the user.
        zoomed: What finer recordings showed.
    """
    found = zoomed.found
    if found.stretch is not None:
        sure = found.divergence is None or found is not coarse
        return _of_launches(check, coarse, found, CONFIRMED if sure else POSSIBLE)
    assert found.divergence is not None
    if zoomed.pair is not None:
        return _of_pair(check, coarse, zoomed.pair)
    return _of_memory(check, coarse, zoomed)


def _of_launches(check: str, coarse: Difference, found: Difference, certainty: str) -> Finding:
    stretch = found.stretch
    assert stretch is not None
    which = 0 if stretch.seq_a is not None else 1
    call = call_of(found.side(which), stretch.seq_a or stretch.seq_b or 0)
    before = stretch.before_a if stretch.before_a is not None else stretch.before_b
    where = f" after {text.count(before, 'launch', 'launches')}" if before else ""
    if stretch.kind == "changed":
        summary = f"{call_text(call)} has another shape in another run."
    elif stretch.count_a and stretch.count_b:
        summary = f"Runs make other launches{where}: {call_text(call)} is the first."
    else:
        summary = f"Only one of two runs makes {call_text(call)}{where}."
    details = {"launches_a": stretch.kernels_a, "launches_b": stretch.kernels_b}
    command = ["ttanalyze", "diff", found.report.a, found.report.b]
    step = _step(coarse)
    return Finding(check, LAUNCHES, certainty, summary, call, None, step, command, details)


def _of_pair(check: str, found: Difference, pair: Pair) -> Finding:
    assert found.divergence is not None
    process = found.side(0)
    calls = [call_of(process, one.seq) for one in (pair.first, pair.second)]
    memory = memory_of(process, pair.region, seq=pair.second.seq)
    summary = (
        f"{call_text(calls[0])} and {call_text(calls[1])} reach {memory_text(memory)} in any "
        "order; runs differ, but not with an epoch after each launch."
    )
    command = ["ttanalyze", "diff", found.report.a, found.report.b]
    details = {"other": asdict(calls[1])}
    step = _step(found)
    return Finding(check, ORDER, POSSIBLE, summary, calls[0], memory, step, command, details)


def _of_memory(check: str, coarse: Difference, zoomed: Zoomed) -> Finding:
    found, d = zoomed.found, zoomed.found.divergence
    assert d is not None
    suspect = culprit(found)
    memory = _memory(zoomed)
    shown = (zoomed.looked or found).report
    command = ["ttanalyze", "diff", shown.a, shown.b]
    details: dict[str, Any] = {"notes": d.notes, "calls": found.calls}
    if suspect is None:
        summary = f"{memory_text(memory)} differs, but no recorded call wrote to it."
        step = _step(coarse)
        return Finding(check, RESULT, POSSIBLE, summary, None, memory, step, command, details)
    kind = kind_of(found, suspect)
    side = 0 if suspect.seq_a is not None else 1
    call = call_of(found.side(side), suspect.seq_a or suspect.seq_b or 0)
    varies = zoomed.proof is not None and bool(zoomed.proof.varied)
    sure = varies if kind == RESULT else found.calls <= 1
    details |= {"parameters_a": suspect.parameters_a, "parameters_b": suspect.parameters_b}
    summary = (
        f"{call_text(call)} {_what(kind, suspect, zoomed)}; then {memory_text(memory)} differs."
    )
    if zoomed.proof is not None and varies:
        summary += " It varies when it is repeated alone."
        command = ["ttanalyze", "prove", zoomed.proof.run]
    elif zoomed.agreed:
        summary += " Runs with more epochs agree."
    certainty = CONFIRMED if sure else POSSIBLE
    return Finding(check, kind, certainty, summary, call, memory, _step(coarse), command, details)


def _memory(zoomed: Zoomed) -> Memory:
    """The memory that differs, with its first byte if contents were recorded."""
    found = zoomed.looked if zoomed.looked and zoomed.looked.divergence else zoomed.found
    d = found.divergence
    assert d is not None
    process = found.side(0)
    at, count = (d.bytes.first, d.bytes.count) if d.bytes is not None else (None, None)
    if zoomed.proof is not None and at is None:
        at, count = zoomed.proof.varied.get(d.region_a, (None, None))
    return memory_of(process, d.region_a, at, count, int(process.coverage.some[d.epoch_a]))


def _step(found: Difference) -> str | None:
    """The epoch of the first recording that has the difference."""
    d = found.divergence
    if d is None:
        return None
    return f"epoch {d.epoch_a} of {found.report.a}" + (
        f" ({d.epoch_label})" if d.epoch_label else ""
    )


def call_text(call: Call) -> str:
    """Returns a text such as "add (call 12, train.py:3 in step)"."""
    what = readable(call.kernel) if call.kernel else call.call or call.kind
    where = f", {call.line}" if call.line else ""
    return f"{what} (call {call.seq}{where})"
