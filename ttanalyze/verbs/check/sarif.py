"""Findings as SARIF 2.1.0, which code hosts and editors show beside the source."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from urllib.parse import quote

import orjson

from ttanalyze import __version__
from ttanalyze.core import stacks
from ttanalyze.verbs.check.check import ALL
from ttanalyze.verbs.check.findings import CONFIRMED, FAILED, Call, CheckReport, Finding
from ttanalyze.verbs.check.instructions import instruction_text

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def sarif_text(report: CheckReport) -> str:
    """Returns the report as a SARIF log with one run."""
    ran = {outcome.check for outcome in report.outcomes}
    rules = [
        {"id": one.NAME, "shortDescription": {"text": one.DESCRIPTION}}
        for one in ALL.values()
        if one.NAME in ran
    ]
    notes = [
        {"level": "error" if one.status == FAILED else "note", "message": {"text": message}}
        for one in report.outcomes
        if (message := f"{one.check}: {one.status}" + (f": {one.reason}" if one.reason else ""))
    ]
    whole = not report.interrupted and all(one.status != FAILED for one in report.outcomes)
    log = {
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {"driver": {"name": "ttanalyze", "version": __version__, "rules": rules}},
                "invocations": [
                    {"executionSuccessful": whole, "toolExecutionNotifications": notes}
                ],
                "results": [_result(finding) for finding in report.findings],
            }
        ],
    }
    return orjson.dumps(log, option=orjson.OPT_INDENT_2).decode()


def _result(found: Finding) -> dict[str, Any]:
    result: dict[str, Any] = {
        "ruleId": found.check,
        "level": "error" if found.certainty == CONFIRMED else "warning",
        "message": {"text": found.summary},
        "properties": {"kind": found.kind, "certainty": found.certainty, "command": found.command},
    }
    places = _places(found)
    if places:
        result["locations"] = places[:1]
    if places[1:]:
        related = [{"id": number, **place} for number, place in enumerate(places[1:], 1)]
        result["relatedLocations"] = related
    return result


def _places(found: Finding) -> list[dict[str, Any]]:
    """The source line of the instruction, the call, and both of the other call. A call comes before
    an instruction without a line.
    """
    other = found.details.get("other")
    sides = [(found.call, "instruction"), (Call(**other) if other else None, "other_instruction")]
    places = []
    for call, name in sides:
        told = found.details.get(name)
        here = [] if told is None else [_of_instruction(call, told)]
        place = _place(call.stack, call.line) if call is not None and call.line else None
        if call is not None and place is not None:
            here.append({"physicalLocation": place, "message": {"text": call.call or call.kind}})
        places += sorted(here, key=lambda one: "physicalLocation" not in one)
    return places


def _of_instruction(call: Call | None, told: dict[str, Any]) -> dict[str, Any]:
    out: dict[str, Any] = {"message": {"text": instruction_text(told)}}
    if call is not None and call.kernel:
        name = {"fullyQualifiedName": call.kernel, "kind": "function"}
        out["logicalLocations"] = [name]
    if told["line"]:
        file, _, line = told["line"].rpartition(":")
        out["physicalLocation"] = {
            "artifactLocation": {"uri": _uri(file)},
            "region": {"startLine": int(line)},
        }
    return out


def _place(stack: list[str], line: str) -> dict[str, Any] | None:
    """The file and line of the call; with its whole path, which the stack has."""
    short = stacks.parse(line)
    for frame in reversed([stacks.parse(one) for one in stack]):
        if frame[0] == short[0] and frame[2] == short[2] and frame[1].endswith(short[1]):
            place: dict[str, Any] = {"artifactLocation": {"uri": _uri(frame[1])}}
            if frame[2]:
                place["region"] = {"startLine": frame[2]}
            return place
    return None


def _uri(file: str) -> str:
    return Path(file).as_uri() if os.path.isabs(file) else quote(file)
