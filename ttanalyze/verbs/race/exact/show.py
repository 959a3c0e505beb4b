"""The report of `race --exact` as text."""

from __future__ import annotations

from ttanalyze.code.demangle import demangle, short
from ttanalyze.output import text
from ttanalyze.traces.instructions import described
from ttanalyze.verbs.race.exact.report import InnerRace, InnerReport, LaunchRaces, Side


def inner_text(report: InnerReport, colour: bool = False) -> str:
    """Returns the verdict on each launch, and its races."""
    demangle([launch.kernel for launch in report.launches])  # all at once: each takes a process
    out: list[str] = []
    for launch in report.launches:
        out += _launch(launch, colour)
    return "\n".join(out)


def _launch(launch: LaunchRaces, colour: bool) -> list[str]:
    kernel = text.printable(short(demangle([launch.kernel])[0]))
    races = sum(not race.same_value for race in launch.races)
    if races:
        word = text.coloured(text.count(races, "race"), "red", colour)
    elif launch.missing:
        word = text.coloured("unclear", "yellow", colour)
    else:
        word = text.coloured("no race", "green", colour)
    how = f"{text.count(launch.records, 'record')}, {launch.seconds:.1f} s"
    out = [f"launch {launch.launch} of {kernel}: {word} ({how})"]
    out += [f"  not covered: {text.printable(line)}" for line in launch.missing]
    for race in launch.races:
        out += ["", *(f"  {line}" for line in text.rows(_race(race, launch)).splitlines())]
    return [*out, ""] if launch.races else out


def _race(race: InnerRace, launch: LaunchRaces) -> list[tuple[str, str]]:
    kind = "race" if race.certain else "possible race"
    if race.same_value:
        kind = "same value"
    unordered = text.count(race.count, "pair of accesses", "pairs of accesses")
    rows = [(kind, f"{unordered} in {race.space} memory")]
    rows += [("first", _side(race.first, launch)), ("second", _side(race.second, launch))]
    rows.append(("address", _address(race)))
    return rows + [("because", reason) for reason in race.reasons]


def _side(side: Side, launch: LaunchRaces) -> str:
    instruction = described(side.text, side.number, side.line, launch.machine)
    who = f"block {text.coordinates(side.block)}, thread {text.coordinates(side.thread)}"
    return f"{who} {side.does} {side.size} bytes: {instruction}"


def _address(race: InnerRace) -> str:
    if race.owner is not None:
        return f"byte {race.address:,} of the shared memory of block {text.coordinates(race.owner)}"
    if race.region is None:
        return f"{race.address:#x}, in no allocation"
    label = f" ({text.printable(race.label)})" if race.label else ""
    return f"{race.address:#x}: byte {race.offset:,} of region {race.region}{label}"
