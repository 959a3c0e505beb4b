"""`ttanalyze compare`: traces of two runs, and a trace in two formats."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from tests import instruction_traces as made
from tests.support import Cli

RECORDS = [*made.opcodes(), *made.registers(), *made.accesses(), *made.values(), made.TMA]
WHOLE = [made.METADATA, *RECORDS]


def test_formats_of_one_trace_are_the_same(cli: Cli, tmp_path: Path) -> None:
    plain = made.ndjson(tmp_path / "a", *WHOLE)
    packed = made.compressed(tmp_path / "b", *WHOLE)
    log = made.log(tmp_path / "c", *made.opcodes(), *made.registers(), *made.accesses())
    outcome = cli("compare", plain, packed)
    assert outcome.status == 0 and outcome.stdout.endswith("the same\n"), outcome
    assert "_Z4copyPf, launch 0, opcode_only: 24 records, 2 blocks, 4 warps\n" in outcome.stdout
    for words in ((plain, log), (log, packed)):
        outcome = cli("compare", *words)
        assert outcome.status == 0, outcome
        missing = "text traces have no mem_value_trace, tma_trace: not compared\n"
        assert outcome.stdout.endswith("the same\n" + missing)


def test_other_turns_of_warps_are_the_same(cli: Cli, tmp_path: Path) -> None:
    other = [{**r, "grid_launch_id": 9, "ctx": "0x1"} for r in reversed(made.opcodes([0, 1, 2, 3]))]
    turned = sorted(other, key=lambda r: (-r["warp"], r["opcode_id"]))
    b = made.ndjson(tmp_path / "b", made.METADATA, *turned)
    a = made.ndjson(tmp_path / "a", made.METADATA, *made.opcodes())
    assert cli("compare", a, b).status == 0


def test_text_shows_some_launches_the_different_ones_first(cli: Cli, tmp_path: Path) -> None:
    def records(*launches: int) -> list[made.Record]:
        return [{**r, "grid_launch_id": n} for n in launches for r in made.opcodes([0])]

    a = made.ndjson(tmp_path / "a", made.METADATA, *records(*range(14)))
    b = made.ndjson(tmp_path / "b", made.METADATA, *records(*range(13)))
    lines = cli("compare", a, b).stdout.splitlines()
    assert lines[0].startswith("_Z4copyPf, launch 13, opcode_only: 6 and 0 records")
    assert lines[1].startswith("_Z4copyPf, launch 0, opcode_only: 6 records")
    assert lines[10] == "… and 4 more, 4 of them with equal counts (--json: all)"
    assert lines[11].startswith("differ first at block")


@pytest.mark.parametrize(
    ("row", "path", "value", "member", "values"),
    [
        (1 + 8, ["opcode_id"], 1, "sass", ["LDG.E R2, desc[UR4][R2.64]", "S2R R0, SR_TID.X"]),
        (25, ["regs", 1, 5], 8, "regs[1][5]", [7, 8]),
        (25, ["uregs", 0], 1, "uregs[0]", [9, 1]),
        (49, ["addrs", 3], 5, "addrs[3]", [0x7F000000000C, 5]),
        (58, ["values", 4, 0], 5, "values[4][0]", [104, 5]),
        (65, ["tma_transfer_info", "byte_count"], 9, "tma_transfer_info.byte_count", [1024, 9]),
    ],
)  # fmt: skip
def test_first_difference_is_named(
    cli: Cli, tmp_path: Path, row: int, path: list[Any], value: Any, member: str, values: list[Any]
) -> None:
    other = copy.deepcopy(WHOLE)
    inner: Any = other[row]
    for name in path[:-1]:
        inner = inner[name]
    inner[path[-1]] = value
    a, b = made.ndjson(tmp_path / "a", *WHOLE), made.ndjson(tmp_path / "b", *other)
    outcome = cli("compare", a, b, "--json")
    first = json.loads(outcome.stdout)["first"]
    assert outcome.status == 1
    assert (first["member"], first["values"]) == (member, values)
    assert first["lines"] == [row + 1, row + 1]
    text = cli("compare", a, b).stdout
    assert f"  {a}: line {row + 1}: {member} = " in text and f"  {b}: line {row + 1}: " in text


@pytest.mark.parametrize(("a", "b"), [(1, True), (1, 1.0), (0, False)])
def test_numbers_that_python_takes_for_equal_differ(
    a: object, b: object, cli: Cli, tmp_path: Path
) -> None:
    def trace(name: str, value: object) -> Path:
        return made.ndjson(tmp_path / name, made.METADATA, {**made.values()[0], "mem_space": value})

    found = cli("compare", trace("a", a), trace("b", b), "--json")
    assert found.status == 1, found
    assert json.loads(found.stdout)["first"]["member"] == "mem_space"


def test_missing_records_are_named(cli: Cli, tmp_path: Path) -> None:
    a = made.ndjson(tmp_path / "a", made.METADATA, *made.opcodes())
    b = made.ndjson(tmp_path / "b", made.METADATA, *made.opcodes()[:-1])
    outcome = cli("compare", a, b)
    assert outcome.status == 1
    assert "opcode_only: 24 and 23 records, 2 blocks, 4 warps\n" in outcome.stdout
    assert "differ first at block (1, 0, 0), warp 3, record 5 of opcode_only:\n" in outcome.stdout
    assert f"  {a}: line 25\n  {b}: no such record\n" in outcome.stdout


def test_nothing_to_compare_is_an_error(cli: Cli, tmp_path: Path) -> None:
    a = made.ndjson(tmp_path / "a", made.METADATA, *made.opcodes())
    b = made.ndjson(tmp_path / "b", made.METADATA, *made.accesses())
    outcome = cli("compare", a, b)
    assert (outcome.status, outcome.stdout) == (2, "")
    assert outcome.stderr.endswith("no records of the same kind; nothing was compared\n")
    raw = a.read_bytes()
    a.write_bytes(raw[:-9])
    b.write_bytes(raw[:-9])
    outcome = cli("compare", a, b)
    assert outcome.status == 2 and "line 25 is cut off" in outcome.stderr
    assert cli("compare", a, tmp_path / "none").status == 2
