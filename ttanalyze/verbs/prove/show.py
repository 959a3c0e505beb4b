"""The verdicts of `prove` as text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ttanalyze.code.demangle import demangle, readable
from ttanalyze.output import text
from ttanalyze.verbs.prove.determinism import STEADY, VARIES, Verdict
from ttanalyze.verbs.replay.run import FAILED, REFUSED
from ttanalyze.verbs.replay.show import SHOWN, SIDES, difference_lines, noted, reasons

VERDICT_HUES = {VARIES: "red", STEADY: "green", FAILED: "red", REFUSED: "yellow"}
FIRST_AND_OTHER = ("first run", "another")


def verdicts_text(found: Sequence[Verdict], colour: bool = False, width: int = 0) -> str:
    """Kernels that vary first, with where and how much; then all of them in a table."""
    demangle([one.kernel for one in found])
    out = []
    kernels: dict[str, list[Verdict]] = {}
    for one in found:
        kernels.setdefault(one.kernel, []).append(one)
    for launches in kernels.values():  # of each that varies the launch that does so most
        if any(one.variations for one in launches):
            out += [*_variations(max(launches, key=_width), colour), ""]
    rows = [["kernel", "launches", "runs", "result", "as recorded"]]
    for kernel, launches in sorted(kernels.items(), key=lambda pair: _worst(pair[1])):
        statuses = [one.status for one in launches]
        result = text.listing([(s, statuses.count(s)) for s in VERDICT_HUES if s in statuses])
        if len(set(statuses)) == 1:
            result = statuses[0]
        runs = sum(one.runs for one in launches)
        known = [one.recorded for one in launches if one.recorded is not None]
        recorded = "yes" if known and all(known) else "no" if known else ""
        rows.append([readable(kernel), str(len(launches)), f"{runs:,}", result, recorded])
    out.append(text.table(rows, {1, 2}, width))
    out += reasons(found, FAILED)
    for one in found:
        if one.recorded is False and one.status == STEADY:
            out.append(f"launch {one.seq}: the same in all runs, but different from the recording")
            for difference in one.differences[:1]:
                out += difference_lines(difference, SIDES, colour)
    out += noted((str(one.seq), note) for one in found for note in one.notes)
    varying = [kernel for kernel, launches in kernels.items() if _worst(launches) == 0]
    proven = sum(bool(one.runs) for one in found)
    if not proven:
        return "\n".join([*out, "no launch was run"])
    several = text.count(proven, "launch", "launches")
    word = text.coloured(VARIES, "red", colour) if varying else STEADY
    if not varying and any(one.variations for one in found):
        word += " beyond the tolerance"
    names = ", ".join(readable(kernel) for kernel in varying[:SHOWN])
    tail = f": {text.count(len(varying), 'kernel')} ({names})" if varying else ""
    out.append(f"{word}{tail}, of {text.count(len(kernels), 'kernel')} in {several}")
    return "\n".join(out)


def _width(one: Verdict) -> int:
    sizes = (v.widest.bytes.count for v in one.variations if v.widest.bytes is not None)
    return sum(sizes)


def _worst(launches: Iterable[Verdict]) -> int:
    order = list(VERDICT_HUES)
    return min(order.index(one.status) for one in launches)


def _variations(one: Verdict, colour: bool) -> list[str]:
    word = f"{VARIES} within the tolerance" if one.status == STEADY else one.status
    word = text.coloured(word, VERDICT_HUES[one.status], colour)
    name = text.printable(demangle([one.kernel])[0])
    lines = [f"{word}: launch {one.seq} of {name}"]
    pairs = []
    if one.site:
        pairs.append(("launched", text.printable(one.site)))
    if one.range:
        pairs.append(("in range", text.printable(one.range)))
    lines += [f"  {line}" for line in text.rows(pairs).splitlines()]
    for variation in one.variations[:SHOWN]:
        first, *more = difference_lines(variation.widest, FIRST_AND_OTHER, colour)
        others = text.count(one.runs - 1, "other run")
        contents = text.count(variation.contents, "different content")
        lines += [
            f"{first}: differs from the first run in {variation.runs} of {others}, {contents}"
        ]
        lines += more
    return lines
