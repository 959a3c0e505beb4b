"""The report of `race` as text."""

from __future__ import annotations

from collections.abc import Iterator

from ttanalyze.code.demangle import demangle, short
from ttanalyze.output import text
from ttanalyze.verbs.diff.show import title
from ttanalyze.verbs.race.report import Finding, Instruction, Late, OneCall, Pair, RaceReport

WHERE = {"host": "the call", "stream": "its stream", "both": "the call, and its stream"}
SHOWN = 4  # pairs and late things of a finding


def race_text(report: RaceReport, colour: bool = False) -> str:
    """Returns the verdict, and for each finding the divergence and the unordered calls."""
    demangle(_kernels(report))  # all at once, as each by itself takes a process
    out = [_verdict(report, colour)]
    if report.unsteady is not None:
        out += ["", *_unsteady(report)]
    for found in report.findings:
        out += ["", *_finding(report, found, colour)]
    out += [f"note: {text.printable(note)}" for note in report.notes]
    return "\n".join(out)


def finding_text(report: RaceReport, found: Finding, colour: bool = False) -> str:
    """Returns a finding as soon as it is known, before its delays are reduced."""
    demangle(_kernels_of(found))
    return "\n".join(_finding(report, found, colour))


def _kernels(report: RaceReport) -> Iterator[str]:
    for found in report.findings:
        yield from _kernels_of(found)


def _kernels_of(found: Finding) -> Iterator[str]:
    for pair in found.pairs:
        yield from filter(None, (pair.first.kernel, pair.second.kernel))
    for late in found.late:
        yield from filter(None, (late.kernel, late.instruction and late.instruction.kernel))


def _verdict(report: RaceReport, colour: bool) -> str:
    runs = text.count(report.runs, "run")
    if report.findings:
        seeds = ", ".join(str(found.seed) for found in report.findings)
        many = "s" if len(report.findings) > 1 else ""
        word, of = text.coloured("found", "red", colour), f" of {runs}" if report.runs > 1 else ""
        return f"{word}: delays change the result (seed{many} {seeds}{of}, {report.seconds:.1f} s)"
    if report.unsteady is not None:
        word = text.coloured("found", "red", colour)
        return f"{word}: two runs without delays differ; delays show no other difference ({runs})"
    word = text.coloured("nothing found", "green", colour)
    return f"{word}: {runs} with delays gave the same result ({report.seconds:.1f} s)"


def _unsteady(report: RaceReport) -> list[str]:
    assert report.unsteady is not None
    shown = ", ".join(text.printable(name) for name in report.varies[:8])
    more = len(report.varies) - 8
    lines = [f"memory differs between runs without delays: {shown}"]
    lines[0] += f" and {more} more" if more > 0 else ""
    lines.append("  the cause is a race, or arithmetic in varying order; delays show no more")
    lines.append(f"  ttanalyze diff {report.unsteady.a} {report.unsteady.b}")
    return lines


def _finding(report: RaceReport, found: Finding, colour: bool) -> list[str]:
    out = [text.coloured(f"seed {found.seed}", "bold", colour)]
    rows: list[tuple[str, str]] = []
    if found.status is not None:
        rows.append(("ended", f"with status {found.status}, unlike the runs without delays"))
    if found.output:
        rows.append(("output", f"differs: {found.run}.log"))
    if found.diff is not None and found.diff.first is not None:
        rows.append(("differs", title(found.diff.first[1])))
        after = found.diff.first[1].after
        if after is not None and after["kernel"]:
            rows.append(("after", f"launch {after['ordinal']} of {_short(after['kernel'])}"))
    for pair in found.pairs[: SHOWN if not found.reduced else 1]:
        rows += _pair(pair)
    if found.reduced:
        amount = f"{text.count(len(found.late), 'delay')} of {found.before:,}"
        rows.append(("minimal", f"{amount}, after {text.count(found.tests, 'test')}"))
    for late in found.late[:SHOWN]:
        rows += _late(late)
    rows += [("note", text.printable(note)) for note in found.notes]
    if found.diff is not None:
        rows.append(("compare", f"ttanalyze diff {report.reference} {found.run}"))
    if found.delays:
        command = text.command(report.command)
        how = f"{'--sim ' if report.sim else ''}--delay-load {found.delays}"
        rows.append(("repeat", f"ttanalyze record {how} -- {command}"))
    out += [f"  {line}" for line in text.rows(rows).splitlines()]
    return out


def _pair(pair: Pair) -> list[tuple[str, str]]:
    label = f" ({text.printable(pair.label)})" if pair.label else ""
    return [
        ("unordered", _call(pair.first)),
        ("and", _call(pair.second)),
        ("memory", f"region {pair.region}{label}, {pair.size:,} bytes: {_missing(pair)}"),
    ]


def _missing(pair: Pair) -> str:
    one, other = pair.first.stream, pair.second.stream
    return f"stream {other} does not wait for stream {one}, and the host does not wait in between"


def _call(call: OneCall) -> str:
    what = _short(call.kernel) if call.kernel else call.kind
    late = ", delayed" if call.delayed else ""
    where = f" at {text.printable(call.caller)}" if call.caller else ""
    return f"{what} (call {call.seq}, stream {call.stream}{late}), which {call.does} it{where}"


def _late(late: Late) -> list[tuple[str, str]]:
    if late.instruction is None:
        what = _short(late.kernel) if late.kernel else late.call or "a call"
        seq = f"call {late.seq}, " if late.seq is not None else ""
        where = WHERE[late.where or "both"]
        return [("delayed", f"{what} ({seq}number {late.number} of stream {late.stream}): {where}")]
    rows = [("delayed", f"{_short(late.instruction.kernel)}: {_instruction(late.instruction)}")]
    if late.other is not None:
        rows.append(("against", _instruction(late.other)))
    return rows


def _instruction(found: Instruction) -> str:
    line = f" at {text.printable(found.line)}" if found.line else ""
    return f"{text.printable(found.text)} (pc {found.pc:#x}){line}"


def _short(kernel: str) -> str:
    return text.printable(short(demangle([kernel])[0]))
