"""What `check`, `race`, `prove` and `tune` found, read from their JSON, for a page."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from ttanalyze.code.demangle import readable
from ttanalyze.errors import Error, system_errors
from ttanalyze.output import text
from ttanalyze.traces.instructions import described
from ttanalyze.verbs.report.verdict import BAD, GOOD, UNSURE

MOST = 64 << 20  # bytes of a file
ROWS = 1000  # of a table
CARDS = 100
Json = dict[str, Any]


@dataclass(frozen=True)
class Table:
    """A table: a title, the titles of its columns, and rows of texts. left_out: further rows."""

    title: str
    head: list[str]
    rows: list[list[str]]
    left_out: int = 0


@dataclass(frozen=True)
class Card:
    """One finding: a title, a sentence, facts with their names, and tables."""

    title: str
    summary: str
    facts: list[tuple[str, str]] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)


@dataclass(frozen=True)
class Results:
    """What a page of results shows.

    Attributes:
        verb: The verb that found it.
        subject: The program, launch or run.
        kind: GOOD, UNSURE or BAD.
        line: The verdict, one sentence.
        tables: The overview.
        cards: The findings.
        notes: Remarks, one line each.
        left_out: The number of further findings.
    """

    verb: str
    subject: str
    kind: str
    line: str
    tables: list[Table] = field(default_factory=list)
    cards: list[Card] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    left_out: int = 0


def read_results(path: Path) -> Results:
    """Reads the JSON that `check`, `race`, `prove` or `tune` wrote.

    Raises:
        Error: The file is something else, or damaged.
    """
    with system_errors(path):
        if path.stat().st_size > MOST:
            raise Error(f"{path}: larger than {text.size(MOST)}: no report of a verb")
        raw = path.read_bytes()
    unknown = f"{path}: not the JSON of check, race, prove or tune"
    try:
        made = orjson.loads(raw)
    except orjson.JSONDecodeError as e:
        raise Error(f"{unknown}: offset {e.pos}: {e.msg}") from None
    for wanted, show in KINDS:
        if isinstance(made, dict) and wanted(made):
            try:
                return show(made)
            except (KeyError, TypeError, AttributeError, ValueError, IndexError) as e:
                raise Error(f"{unknown}: damaged, or of another version ({e!r})") from None
    raise Error(unknown)


def _table(title: str, head: list[str], rows: list[list[Any]]) -> Table:
    """Returns a table without the columns that say nothing in any row."""
    shown = [[_cell(cell) for cell in row] for row in rows[:ROWS]]
    used = [i for i in range(len(head)) if any(row[i] not in ("", "-") for row in shown)]
    cut = [[row[i] for i in used] for row in shown]
    return Table(title, [head[i] for i in used], cut, max(0, len(rows) - ROWS))


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, list):
        return text.extent(value, "x")
    return text.printable(str(value))


def _facts(*pairs: tuple[str, Any]) -> list[tuple[str, str]]:
    """Returns the facts that are known."""
    known = [(name, value) for name, value in pairs if value not in (None, "", [])]
    return [(name, "\n".join(map(_cell, str(value).split("\n")))) for name, value in known]


def _s(some: list[Any]) -> str:
    """Returns the ending of a verb whose subject is one thing."""
    return "s" if len(some) == 1 else ""


def _name(kernel: str | None) -> str:
    return "" if kernel is None else readable(kernel)


# ---- check ----


def _check(made: Json) -> Results:
    outcomes = made["outcomes"]
    findings = [finding for one in outcomes for finding in one["findings"]]
    confirmed = sum(one["certainty"] == "confirmed" for one in findings)
    statuses = {one["status"] for one in outcomes}
    if findings:
        kind, line = BAD, f"{text.count(len(findings), 'fault')} found, {confirmed} confirmed."
    elif made["interrupted"] or statuses != {"clean"}:
        kind, line = UNSURE, "Nothing was found, but not every check covered the program."
    else:
        kind, line = GOOD, "Nothing was found."
    head = ["check", "result", "launches", "bytes", "remark"]
    rows = [
        [one["check"], one["status"], *map(_share, (one["launches"], one["bytes"])), one["reason"]]
        for one in outcomes
    ]
    notes = ["The checks were interrupted."] if made["interrupted"] else []
    notes.append(f"{text.count(made['runs'], 'recording')} in {made['seconds']:.1f} s.")
    cards = [_fault(finding) for finding in findings[:CARDS]]
    more = max(0, len(findings) - CARDS)
    checks = _table("Checks", head, rows)
    return Results("check", text.command(made["command"]), kind, line, [checks], cards, notes, more)


def _share(value: float | None) -> str | None:
    return None if value is None else f"{100 * value:.1f} %"


def _fault(found: Json) -> Card:
    call, memory = found["call"] or {}, found["memory"] or {}
    size = None if memory.get("count") is None else text.count(memory["count"], "byte")
    where = (
        f"{size} from byte {memory['first']} of {memory['name']}" if size else memory.get("name")
    )
    details = found["details"]
    other = details.get("other")
    other = other if isinstance(other, dict) else {}
    return Card(
        f"{found['check']}: {found['certainty']}",
        text.printable(found["summary"]),
        _facts(
            ("kernel", _name(call.get("kernel"))),
            ("call", call.get("seq") and f"{call['seq']} of process {call['process']}"),
            ("stack", "\n".join(reversed(call.get("stack") or [])) or call.get("line")),
            ("NVTX range", call.get("range")),
            ("memory", where),
            ("allocated at", memory.get("line")),
            ("step", found["step"]),
            ("next to", details.get("neighbour")),
            ("instruction", _instruction(details.get("instruction"))),
            ("other instruction", _instruction(details.get("other_instruction"))),
            ("other call", _name(other.get("kernel")) or other.get("call")),
            ("made by", "\n".join(reversed(other.get("stack") or []))),
            ("see more with", text.command(found["command"]) if found["command"] else None),
        ),
    )


def _instruction(found: Json | None) -> str | None:
    """Returns the instruction of a finding with its place and thread."""
    if not found:
        return None
    shown = described(found["text"], found["number"], found["line"], found["machine"])
    threads = ", ".join(
        f"{name} {text.coordinates(tuple(found[name]))}" for name in ("block", "thread")
    )
    return f"{shown}, {threads}"


# ---- race ----


def _race(made: Json) -> Results:
    findings = made["findings"]
    runs = text.count(made["runs"], "run")
    if made["unsteady"] is not None:
        kind, line = BAD, "The program behaves differently without any delay."
    elif findings:
        kind, line = (
            BAD,
            f"Delays change the result: {len(findings)} of {runs} differ{_s(findings)}.",
        )
    else:
        kind, line = GOOD, f"{runs} with delays gave the same result."
    cards = [_delayed(found) for found in findings[:CARDS]]
    subject = text.command(made["command"])
    notes = [_cell(note) for note in made["notes"]]
    notes += [f"Ignored, as it always varies: {_cell(name)}." for name in made["varies"]]
    return Results("race", subject, kind, line, [], cards, notes, max(0, len(findings) - CARDS))


def _delayed(found: Json) -> Card:
    what = ["its output"] if found["output"] else []
    what += [f"its exit status ({found['status']})"] if found["status"] is not None else []
    what += ["its memory"] if found["diff"] is not None else []
    parts = [
        p["divergences"][0]
        for p in (found["diff"] or {"processes": []})["processes"]
        if p["divergences"]
    ]
    first = [f"region {d['region_b']} in epoch {d['epoch_b']}" for d in parts[:1]]
    pairs = [
        [
            _does(pair["first"]),
            _does(pair["second"]),
            f"{pair['label'] or ''} region {pair['region']}",
            pair["size"],
        ]
        for pair in found["pairs"]
    ]
    late = [
        [
            _name(one["kernel"]) or one["call"],
            one["seq"],
            one["stream"],
            (one["instruction"] or {}).get("text"),
            one["where"],
        ]
        for one in found["late"]
    ]
    tables = [_table("Unordered calls", ["call", "and", "memory", "bytes"], pairs)] if pairs else []
    if late:
        head = ["delayed", "call", "stream", "instruction", "where"]
        tables.append(_table("The delays that are enough", head, late))
    facts = _facts(
        ("first difference", first[0] if first else None),
        ("recording", found["run"]),
        ("delays", found["delays"]),
        ("notes", "\n".join(found["notes"])),
    )
    return Card(f"Seed {found['seed']}", f"Delays change {', '.join(what)}.", facts, tables)


def _does(call: Json) -> str:
    who = _name(call["kernel"]) or call["call"]
    late = ", delayed" if call["delayed"] else ""
    at = f" at {call['caller']}" if call["caller"] else ""
    return f"{who} (call {call['seq']}, stream {call['stream']}{late}) {call['does']} it{at}"


def _race_exact(made: Json) -> Results:
    launches = made["launches"]
    races = sum(len(one["races"]) for one in launches)
    kind = BAD if made["found"] else UNSURE if made["unclear"] or not launches else GOOD
    traced = text.count(len(launches), "traced launch", "traced launches")
    line = f"{text.count(races, 'race')} within {traced}."
    if kind == UNSURE:
        line = "No race was seen, but the traces are not complete."
    cards = []
    for one in launches[:CARDS]:
        rows = [
            [
                *map(_side, (r["first"], r["second"])),
                _where(r),
                r["count"],
                "certain" if r["certain"] else "; ".join(r["reasons"]),
            ]
            for r in one["races"]
        ]
        head = ["access", "and", "memory", "pairs", "certainty"]
        facts = _facts(
            ("grid", _cell(one["grid"])),
            ("block", _cell(one["block"])),
            ("records", one["records"]),
            ("missing", "\n".join(one["missing"])),
        )
        tables = [_table("Races", head, rows)] if rows else []
        summary = "" if rows else "No race was seen."
        cards.append(Card(f"{_name(one['kernel'])} (call {one['launch']})", summary, facts, tables))
    more = max(0, len(launches) - CARDS)
    return Results("race --exact", _cell(made["run"]), kind, line, [], cards, [], more)


def _side(side: Json) -> str:
    where = f" at {side['line']}" if side["line"] else ""
    threads = " ".join(
        f"{what} {text.coordinates(tuple(side[what]))}" for what in ("block", "thread")
    )
    return f"{side['text']}{where}, {threads}, {side['does']} {side['size']} bytes"


def _where(race: Json) -> str:
    if race["region"] is None:
        return f"{race['space']} {race['address']:#x}"
    return f"{race['label'] or 'region'} {race['region']} from byte {race['offset']}"


# ---- prove, tune ----


def _prove(made: Json) -> Results:
    launches = made["launches"]
    varying = [one for one in launches if one["status"] == "varies"]
    other = [one for one in launches if one["recorded"] is False and one not in varying]
    run = sum(bool(one["runs"]) for one in launches)
    proven = text.count(run, "launch", "launches")
    if varying:
        kind, line = BAD, f"{len(varying)} of {proven} {'varies' if len(varying) == 1 else 'vary'}."
    elif other:
        kind, line = BAD, f"{len(other)} of {proven} differ{_s(other)} from the recording."
    elif not run:
        kind, line = UNSURE, "No launch was run."
    else:
        kind, line = GOOD, f"None of {proven} was seen to vary."
    head = ["kernel", "call", "result", "runs", "as recorded", "launched at", "reason"]
    rows = [
        [
            _name(one["kernel"]),
            one["seq"],
            one["status"],
            one["runs"],
            one["recorded"],
            one["site"],
            one["reason"],
        ]
        for one in [*varying, *other, *(o for o in launches if o not in varying and o not in other)]
    ]
    cards = []
    for one in varying[:CARDS]:
        regions = [[v["region"], v["runs"], v["contents"]] for v in one["variations"]]
        table = _table("Memory that varied", ["region", "runs that differ", "contents"], regions)
        facts = _facts(
            ("launched at", one["site"]),
            ("NVTX range", one["range"]),
            ("notes", "\n".join(one["notes"])),
        )
        cards.append(Card(f"{_name(one['kernel'])} (call {one['seq']})", "", facts, [table]))
    notes = (
        [f"{made['not_kept']:,} other launches were not recorded as replayable."]
        if made["not_kept"]
        else []
    )
    tables = [_table("Launches", head, rows)]
    more = max(0, len(varying) - CARDS)
    return Results("prove", _cell(made["run"]), kind, line, tables, cards, notes, more)


def _tune(made: Json) -> Results:
    recorded, best = made["recorded"], made["best"]
    subject = f"{_name(made['kernel'])} (call {made['launch']}) on {_cell(made['device'])}"
    took = f"{best['median_ms']:.4g} ms"
    if best == recorded or made["gain"] <= 1:
        line = f"No configuration is faster than the recorded one: {took}."
    else:
        line = f"The best configuration is {made['gain']:.2f} times as fast as recorded: {took}."
    names = ["code", "block", "grid", "shared", "maxregs", "opt_level", "cache"]
    every = [recorded, *(row for row in made["rows"] if row != recorded)]
    varied = [name for name in names if any(row[name] != recorded[name] for row in every)]
    order = sorted(every, key=lambda row: (row["median_ms"] is None, row["median_ms"] or 0))
    times = ["median_ms", "min_ms", "spread_ms"]
    head = [*(varied or ["block"]), "median ms", "min ms", "spread ms", "same result", "remark"]
    rows = [
        [
            *(row[name] for name in varied or ["block"]),
            *(None if row[name] is None else f"{row[name]:.4g}" for name in times),
            None if row["error"] else row["verified"],
            row["error"] or ("recorded" if row == recorded else "best" if row == best else ""),
        ]
        for row in order
    ]
    notes = [_cell(note) for note in made["notes"]]
    table = _table("Configurations, the fastest first", head, rows)
    return Results("tune", subject, GOOD, line, [table], [], notes)


KINDS: list[tuple[Callable[[Json], bool], Callable[[Json], Results]]] = [
    (lambda made: made.get("format") == "ttanalyze-race", _race),
    (lambda made: made.get("format") == "ttanalyze-race-exact", _race_exact),
    (lambda made: {"outcomes", "command", "interrupted"} <= {*made}, _check),
    (lambda made: {"launches", "not_kept"} <= {*made}, _prove),
    (lambda made: {"recorded", "best", "rows", "gain"} <= {*made}, _tune),
]
