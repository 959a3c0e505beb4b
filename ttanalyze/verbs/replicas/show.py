"""The report of `replicas` as text."""

from __future__ import annotations

from ttanalyze.core import bytewise
from ttanalyze.output import text
from ttanalyze.verbs.diff import show
from ttanalyze.verbs.replicas.report import Replica, ReplicasReport

SHOWN_NAMES = 4


def replicas_text(report: ReplicasReport, colour: bool = False, width: int = 0) -> str:
    """Returns the report for a screen: the verdict, what was compared, and what differs.

    Args:
        report: The result of `replicas`.
        colour: Whether to use terminal colours.
        width: The width of the screen in characters, 0 for no limit.
    """
    word, hue = ("same", "green") if report.same else ("different", "red")
    out = [f"{text.coloured(word, hue, colour)}: {_verdict(report)}"]
    what = "ranks" if report.ranked else "processes"
    compared = f"{what} {text.ranges(report.ranks)}, {text.count(report.epochs, 'common epoch')}"
    share = f"{text.size(report.equal_bytes)} of {text.size(report.bytes)} were equal on all"
    pairs = [("compared", f"{compared}; {share}; {report.seconds:.2f} s")]
    if report.missing:
        pairs.append(("missing", f"{text.ranks(report.missing)}, which no process of the run has"))
    pairs += [("note", text.printable(note)) for note in report.notes]
    out += [f"  {line}" for line in text.rows(pairs).splitlines()]
    for found in report.found:
        out += ["", *_found(found, colour, width)]
    more = report.count - len(report.found)
    if more:
        out += [
            "",
            f"{text.count(more, 'more place')} that differ later: --all describes the first",
        ]
    return "\n".join(out)


def _verdict(report: ReplicasReport) -> str:
    if not report.found:
        return "what was equal on all ranks stayed equal"
    first = report.found[0]
    who = " / ".join(map(text.ranks, first.groups)) + " differ"
    if first.odd:
        who = f"{text.ranks(first.odd)} differs from the others"
    return f"{_what(first)} first differs in {_when(first)}: {who}"


def _what(found: Replica) -> str:
    if not found.names:
        label = f" {text.printable(found.divergence.label)!r}" if found.divergence.label else ""
        return f"region {found.divergence.region_a}{label}"
    listed = ", ".join(map(text.printable, found.names[:SHOWN_NAMES]))
    more = len(found.names) - SHOWN_NAMES
    return listed + (f" and {more} more" if more > 0 else "")


def _when(found: Replica) -> str:
    step = f" ({text.printable(found.step)})" if found.step else ""
    return f"epoch {found.epoch}{step}"


def _found(found: Replica, colour: bool, width: int) -> list[str]:
    a, b = found.ranks
    head = f"{_what(found)}, {_when(found)}; A is rank {a}, B is rank {b}"
    out = [text.coloured(head, "bold", colour)]
    groups = "; ".join(f"{text.ranges(group)} hold the same" for group in found.groups if group[1:])
    alone = [rank for group in found.groups if len(group) == 1 for rank in group]
    if alone:
        groups += f"{'; ' if groups else ''}{text.ranges(sorted(alone))} alone"
    before = f"on all ranks, with {text.count(found.contents, 'different content')}"
    pairs = [("ranks", groups), ("replica", before)]
    pairs += show.facts(found.divergence)
    out += [f"  {line}" for line in text.rows(pairs).splitlines()]
    if found.divergence.bytes is not None:
        out += bytewise.window_lines(found.divergence.bytes.window, ("A", "B"), colour)
    if found.divergence.suspect_count:
        title = f"possible writers since epoch {found.divergence.equal_a}"
        out += ["", text.coloured(title, "bold", colour)]
        lines = text.table(show.suspects(found.divergence), {0, 1, 2}, max(0, width - 2))
        out += [f"  {line}" for line in lines.splitlines()]
    return out
