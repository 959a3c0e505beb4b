"""Tables of an instruction trace beside its records: header, warps, histogram."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import instruction_traces as made
from tests.support import Cli

HISTOGRAM = ("--table", "histogram", "--format", "csv", "--no-header")


def csv(cli: Cli, *words: object) -> list[str]:
    outcome = cli("query", *words)
    assert outcome.status == 0, outcome
    return outcome.stdout.splitlines()


def test_header_and_instructions(cli: Cli, tmp_path: Path) -> None:
    header = {**made.METADATA, "cpu_callstack": ["a", "b"], "cpu_callstack_source": "native"}
    path = made.ndjson(tmp_path / "t", header)
    fields = "kernel,func_addr,nregs,grid_x,block_x,cpu_callstack_source"
    csv_of = ("--format", "csv", "--no-header")
    rows = csv(cli, path, "--table", "kernels", "--fields", fields, *csv_of)
    assert rows == [f"_Z4copyPf,{0x7F0000001000},16,2,64,native"]
    words = ("--table", "instructions", "--fields", "opcode_id,sass,regs,uregs", "--head", "2")
    assert csv(cli, path, *words, *csv_of) == [
        '0,"CS2R.32 R7, SR_CLOCKLO","[2,4]",[4]',
        '1,"S2R R0, SR_TID.X","[2,4]",[4]',
    ]
    bad = {**made.METADATA, "instructions": {"x": {"sass": "NOP"}}}
    outcome = cli("query", made.ndjson(tmp_path / "b", bad), "--table", "instructions")
    assert outcome.stderr.endswith("b: line 1: instructions: 'x' is not a number\n")


def test_warps_of_a_hang(cli: Cli, tmp_path: Path) -> None:
    guarded = {**made.opcodes([7], [5])[0], "sass": "@P0 EXIT ;"}
    header = {**made.METADATA, "grid": [6, 1, 1]}
    records = [*made.opcodes([0, 1]), *made.opcodes([2], [0, 1]), guarded]
    path = made.ndjson(tmp_path / "t", header, *records, *made.accesses()[3:4])
    words = ("--table", "warps", "--fields", "warp,warps,state,records,opcode_id,line")
    assert csv(cli, path, *words, "--format", "csv", "--no-header") == [
        "0,1,completed,6,5,12",
        "1,1,completed,6,5,13",
        "2,1,in progress,2,1,15",
        "3,1,unknown,1,2,17",
        "7,1,probably completed,1,5,16",
        "4,3,missing,,,",
        "8,4,missing,,,",
    ]
    counted = ("--table", "warps", "--group-by", "state", "--sum", "warps", "--format", "csv")
    assert "missing,7" in csv(cli, path, *counted)
    silent = made.ndjson(tmp_path / "silent", made.METADATA)
    assert csv(cli, silent, *words, "--format", "csv", "--no-header") == ["0,4,missing,,,"]
    vast = {**made.METADATA, "grid": [4294967295] * 3, "block": [1024, 1, 1]}
    assert cli("query", made.ndjson(tmp_path / "vast", vast), *words[:2]).stdout == "no rows\n"


@pytest.mark.parametrize("write", [made.ndjson, made.log])
def test_histogram_between_clock_reads(cli: Cli, tmp_path: Path, write: object) -> None:
    assert callable(write)
    header = [made.METADATA] if write is made.ndjson else []
    path = write(tmp_path / "t", *header, *made.opcodes([0, 1]), *made.registers())
    words = ("--fields", "warp,region,begin_pc,end_pc,instruction,count")
    rows = csv(cli, path, *HISTOGRAM, *words)
    assert rows[:3] == ["0,0,0,48,CS2R.32,1", "0,0,0,48,LDG.E,1", "0,0,0,48,S2R,1"]
    if write is made.ndjson:  # whose registers have a launch: each instruction counts once
        assert len(rows) == 12


def test_regions_nest_where_they_are_named(cli: Cli, tmp_path: Path) -> None:
    table = {str(i): {"sass": "CS2R R2, SR_CLOCKLO ;"} for i in (0, 1, 3, 4)}
    header = {**made.METADATA, "instructions": {**table, "2": {"sass": "NOP ;"}}}
    path = made.ndjson(tmp_path / "t", header, *made.opcodes([0], [0, 1, 2, 3, 1, 2, 3, 4, 1]))
    words = (*HISTOGRAM, "--fields", "region,depth,end_pc,complete,instruction,count")
    assert csv(cli, path, *words, "--regions", "0x0:0x40,0x10:0x30") == [
        "1,1,48,True,CS2R,1",
        "1,1,48,True,NOP,1",
        "2,1,48,True,CS2R,1",
        "2,1,48,True,NOP,1",
        "0,0,64,True,CS2R,5",
        "0,0,64,True,NOP,2",
        "3,0,,False,CS2R,1",
    ]
    flat = cli("query", path, *words)
    assert flat.status == 0 and "begins and ends regions, which may nest" in flat.stderr
    for value, reason in [
        ("5", "expected BEGIN:END,… with offsets of clock reads"),
        ("0x10:0x20,0x20:0x30", "an offset appears twice"),
    ]:
        outcome = cli("query", path, *words, "--regions", value)
        assert outcome.stderr == f"ttanalyze: --regions {value}: {reason}\n"
    assert cli("query", path, "--regions", "1:2").stderr.endswith(
        "needs --table histogram or ipc\n"
    )


def test_records_without_their_warp_are_errors(cli: Cli, tmp_path: Path) -> None:
    bad = made.opcodes([0], [0])[0]
    del bad["warp"]
    path = made.ndjson(tmp_path / "t", made.METADATA, bad)
    for table in ("warps", "histogram"):
        outcome = cli("query", path, "--table", table)
        assert (outcome.status, outcome.stderr) == (2, f"ttanalyze: {path}: line 2: no warp\n")
