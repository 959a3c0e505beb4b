"""The results of replays as text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ttanalyze.code.demangle import demangle, readable
from ttanalyze.core import bytewise
from ttanalyze.core.values import ValueDifference
from ttanalyze.output import text
from ttanalyze.verbs.replay.compare import RegionDifference
from ttanalyze.verbs.replay.run import (
    DIFFERS,
    FAILED,
    NOT_COMPARED,
    REFUSED,
    SAME,
    UNCHECKED,
    Outcome,
)
from ttanalyze.verbs.replay.spans import Stretch
from ttanalyze.verbs.replay.timing import Times

HUES = {SAME: "green", DIFFERS: "red", FAILED: "red", REFUSED: "yellow", UNCHECKED: "yellow"}
SHOWN = 8  # regions, tensors
TIMES = "\N{MULTIPLICATION SIGN}"
SIDES = ("recorded", "replayed")


def outcome_text(found: Outcome, colour: bool = False) -> str:
    """Returns one launch for a screen, "" if it was refused: `reasons` says why."""
    if found.status == REFUSED:
        return ""
    word = text.coloured(found.status, HUES[found.status], colour)
    lines = [f"{word}: {_verdict(found)}"]
    pairs = []
    if found.kernel:
        pairs.append(("kernel", text.printable(demangle([found.kernel])[0])))
    if found.grid:
        pairs.append(("launch", _shape(found)))
    if found.changes:
        pairs.append(("changed", text.printable(", ".join(found.changes))))
    if found.before is not None:
        pairs.append(("input", f"epoch {found.before}, {text.size(found.bytes)}"))
    if found.times is not None:
        pairs.append(("time", times_text(found.times)))
    pairs += [("note", text.printable(note)) for note in found.notes]
    lines += [f"  {line}" for line in text.rows(pairs).splitlines()]
    for difference in found.differences[:SHOWN]:
        lines += ["", *difference_lines(difference, SIDES, colour)]
    more = len(found.differences) - SHOWN
    if more > 0:
        lines.append(f"… and {text.count(more, 'region')} more")
    return "\n".join(lines)


def _verdict(found: Outcome) -> str:
    what = f"launch {found.seq}" + (f" of {readable(found.kernel)}" if found.kernel else "")
    if found.status == SAME:
        within = " within the tolerance" if found.differences else ""
        regions = text.count(found.regions, "region")
        return f"{what} leaves {regions} as recorded{within}"
    if found.status == DIFFERS:
        differ = text.count(len(found.differences), "region")
        return f"{what} leaves {differ} of {found.regions} different from the recording"
    if found.status == UNCHECKED:
        return f"{what} ran: {text.printable(found.reason)}"
    return f"{what}: {text.printable(reason_of(found.seq, found.reason))}"


def reason_of(seq: int, reason: str) -> str:
    """Returns the reason for a launch without its number, if the text around it has that."""
    name = f"launch {seq}"
    rest = reason.removeprefix(f"{name}: ")
    return f"it{rest.removeprefix(name)}" if rest.startswith(f"{name} ") else rest


def _shape(found: Outcome) -> str:
    grid, block = (f" {TIMES} ".join(map(str, size)) for size in (found.grid, found.block))
    shared = f", {found.shared:,} bytes of dynamic shared memory" if found.shared else ""
    return f"{grid} blocks of {block} threads{shared}"


def times_text(times: Times) -> str:
    """Returns median, minimum and spread."""
    cache = "L2 flushed" if times.flushed else "L2 warm"
    runs = text.count(len(times.runs), "run")
    return (
        f"{times.median:,.2f} µs median of {runs}, least {times.least:,.2f}, "
        f"spread {times.spread:,.2f} ({cache})"
    )


def difference_lines(
    found: RegionDifference, names: tuple[str, str], colour: bool = False
) -> list[str]:
    """Returns the lines for a region that differs. names: of the two sides."""
    label = f" {text.printable(found.label)!r}" if found.label else ""
    head = f"region {found.region}{label}: {found.kind}, {found.size:,} bytes"
    pairs = [("blocks", bytewise.blocks_text(found.blocks, found.block_count))]
    if found.bytes is not None:
        one = found.bytes
        some = " of the compared bytes" if found.partial else ""
        pairs.append(("bytes", bytewise.bytes_text(one.count, one.first, one.last) + some))
    if found.values is not None:
        pairs.append(("values", values_text(found.values)))
    named = zip(found.tensors, found.tensor_values, strict=True)
    for part, of in list(named)[:SHOWN]:
        first = (
            f"[{part.first_element}]" if part.first_element is not None else f"byte {part.first}"
        )
        said = values_text(of) if of is not None else f"{text.count(part.differing, 'byte')} differ"
        pairs.append(("tensor", f"{text.printable(part.name)} from {first}: {said}"))
    if found.tensor_count > SHOWN:
        pairs.append(("", f"… and {found.tensor_count - SHOWN} more tensors"))
    if found.tolerated:
        pairs.append(("note", "all of it within the tolerance"))
    lines = [text.coloured(head, "bold", colour)]
    lines += [f"  {line}" for line in text.rows(pairs).splitlines()]
    if found.bytes is not None:
        lines += bytewise.window_lines(found.bytes.window, names, colour)
    return lines


def values_text(found: ValueDifference) -> str:
    """Returns how far values differ."""
    differ = f"{found.count:,} of {found.elements:,} {found.type} differ"
    if not found.unequal:
        return differ
    apart = f"at most {found.max_abs:.4g} apart, {found.max_rel:.3g} of the value"
    return f"{differ}, {apart}, {found.max_ulp:,} ulp"


def outcomes_text(found: Sequence[Outcome], colour: bool = False, width: int = 0) -> str:
    """Returns a table of launches, with details of those that are not the same."""
    demangle([one.kernel for one in found])  # all at once, as each by itself takes a process
    timed = any(one.times is not None for one in found)
    head = ["launch", "kernel", "grid", "block", "input", "result"]
    rows = [[*head, *(["µs"] if timed else [])]]
    for one in found:
        grid, block = (",".join(map(str, size)) for size in (one.grid, one.block))
        row = [str(one.seq), readable(one.kernel), grid, block, text.size(one.bytes), one.status]
        rows.append([*row, *([f"{one.times.median:,.2f}" if one.times else ""] if timed else [])])
    out = [text.table(rows, {0, 4, 6}, width)]
    out += reasons(found, FAILED)
    unchecked = [one for one in found if one.status == UNCHECKED]
    why = [(str(one.seq), one.reason) for one in unchecked if one.reason != NOT_COMPARED]
    out += noted((seq, f"{NOT_COMPARED}: {reason}") for seq, reason in why)
    for one in found:
        for difference in one.differences[:1]:
            lines = difference_lines(difference, SIDES, colour)
            out += [f"launch {one.seq}: {lines[0]}", *lines[1:]]
    out += noted((str(one.seq), note) for one in found for note in one.notes)
    out.append(summary(found))
    return "\n".join(out)


def reasons(found: Iterable[Any], status: str) -> list[str]:
    """Returns why launches have a status, each reason once."""
    return noted(
        (str(one.seq), reason_of(one.seq, one.reason)) for one in found if one.status == status
    )


def noted(
    notes: Iterable[tuple[str, str]], noun: tuple[str, str] = ("launch", "launches")
) -> list[str]:
    """Returns the notes of launches, each once. noun: what has the notes."""
    of: dict[str, list[str]] = {}
    for seq, note in notes:
        of.setdefault(note, []).append(seq)
    lines = []
    for note, seqs in of.items():
        some = ", ".join(seqs[:SHOWN]) + (" …" if len(seqs) > SHOWN else "")
        lines.append(f"{noun[len(seqs) > 1]} {some}: {text.printable(note)}")
    return lines


def summary(found: Iterable[Outcome]) -> str:
    """Returns the number of launches by status."""
    return _counted([one.status for one in found], "launch", "launches")


def _counted(statuses: list[str], *noun: str) -> str:
    words = (SAME, DIFFERS, UNCHECKED, REFUSED, FAILED)
    counts = [(word, statuses.count(word)) for word in words if word in statuses]
    return f"{text.count(len(statuses), *noun)}: {text.listing(counts)}"


def stretch_reasons(found: Iterable[Stretch]) -> list[str]:
    """Returns the reasons of stretches, each once."""
    pairs = ((f"{one.first} to {one.last}", one.reason) for one in found if one.reason)
    return noted(pairs, ("epochs", "epochs"))


def stretches_text(found: Sequence[Stretch], colour: bool = False, width: int = 0) -> str:
    """Returns a table of stretches between epochs, with details of some."""
    rows = [["epochs", "work", "regions", "result"]]
    for one in found:
        rows.append([f"{one.first} to {one.last}", one.work, str(one.regions), one.status])
    out = [text.table(rows, {2}, width)]
    bounds = [f"{one.first} to {one.last}" for one in found]
    pairs = list(zip(bounds, found, strict=True))
    out += stretch_reasons(one for one in found if one.status != REFUSED)
    for which, one in pairs:
        for difference in one.differences[: one.status != REFUSED]:
            lines = difference_lines(difference, SIDES, colour)
            out += [f"epochs {which}: {lines[0]}", *lines[1:]]
    out += noted(
        ((which, note) for which, one in pairs for note in one.notes), ("epochs", "epochs")
    )
    uploads, size = sum(one.uploads for one in found), sum(one.upload_bytes for one in found)
    if uploads:
        copies = text.count(uploads, "copy from the host", "copies from the host")
        out.append(f"not checked: {copies}, {text.size(size)}, taken from the next epoch")
    out.append(_counted([one.status for one in found], "stretch", "stretches"))
    return "\n".join(out)
