"""`ttanalyze query` of instruction traces: records get the text of their instructions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support import Cli
from ttanalyze.verbs.query import Query, query
from ttanalyze.verbs.query.files import EventsFile
from ttanalyze.verbs.query.traces import TraceFile, open_file

METADATA = {
    "type": "kernel_metadata",
    "mangled_name": "_Z4stepPf",
    "unmangled_name": "step(float*)",
    "kernel_checksum": "abcd",
    "instructions": {
        "0": {"sass": "LDC R1, c[0x0][0x28] ;", "binary": "00ff"},
        "1": {"sass": "@!P0 LDG.E.64 R2, [R4.64+0x8] ;"},
        "2": {"sass": "EXIT ;"},
    },
}


def record(number: int, opcode: int, **members: Any) -> dict[str, Any]:
    return {
        "type": "opcode_only",
        "ctx": "0x55",
        "trace_index": number,
        "timestamp": 10**18 + number,
        "grid_launch_id": 3,
        "cta": [number % 2, 0, 7],
        "warp": number,
        "opcode_id": opcode,
        "pc": hex(16 * opcode),
        **members,
    }


def written(path: Path, *records: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(r) + "\n" for r in records))
    return path


def test_records_have_instruction_texts(cli: Cli, tmp_path: Path) -> None:
    own = record(4, 1, type="reg_trace", regs=[[0] * 32], sass="MOV R1, R2 ;")
    records = [METADATA, *(record(i, i) for i in range(4)), own]
    path = written(tmp_path / "trace.ndjson", *records)
    found = query(open_file(path), Query(fields=["kind", "opcode_id", "pc", "sass", "category"]))
    assert found["sass"].tolist()[:3] == [
        "LDC R1, c[0x0][0x28]",
        "@!P0 LDG.E.64 R2, [R4.64+0x8]",
        "EXIT",
    ]
    assert found["sass"].isna().tolist() == [False, False, False, True, False]
    assert found["sass"][4] == "MOV R1, R2" and found["kind"][4] == "reg_trace"
    assert found["pc"].tolist() == [0, 16, 32, 48, 16]
    assert found["category"].tolist()[:3] == ["load", "load", "branch"]
    counted = cli("query", path, "--group-by", "short,opcode,cta_x", "--count", "--format", "csv")
    assert {"step,LDC,0,1", "step,LDG,1,1", "step,EXIT,0,1"} < set(counted.stdout.splitlines())
    screen = cli("query", path, "--filter", 'opcode == "LDG"')
    assert "step" in screen.stdout and "@!P0 LDG.E.64" in screen.stdout
    rest = query(open_file(path), Query(fields=["kernel", "demangled", "checksum", "binary"]))
    assert rest.iloc[0].tolist() == ["_Z4stepPf", "step(float*)", "abcd", "00ff"]


def test_file_type_is_detected(tmp_path: Path) -> None:
    assert isinstance(open_file(written(tmp_path / "a", METADATA)), TraceFile)
    assert isinstance(open_file(written(tmp_path / "b", record(0, 0))), TraceFile)
    assert isinstance(open_file(written(tmp_path / "c", {"type": "kernel_launch"})), EventsFile)
    assert query(open_file(written(tmp_path / "d", METADATA)), Query()).empty


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ({"type": "kernel_launch"}, "record type 'kernel_launch' is not a trace record"),
        (record(0, 0, cta=[1, 2]), "cta: expected three whole numbers"),
        (record(0, 0, pc="x"), "pc: expected a hexadecimal number"),
        (record(0, 0, pc=16), "pc: expected a string"),
        (record(0, 0, warp="1"), "warp: expected a whole number"),
        (record(0, 0, sass=5), "sass: expected a string"),
        (METADATA | {"mangled_name": 5}, "mangled_name: expected a string"),
        (METADATA | {"instructions": {"0": 5}}, "instructions: expected an object of objects"),
    ],
)
def test_invalid_records_are_reported(
    cli: Cli, tmp_path: Path, bad: dict[str, Any], reason: str
) -> None:
    path = written(tmp_path / "trace.ndjson", METADATA, record(0, 0), bad)
    outcome = cli("query", path, "--fields", "cta_x,pc,warp,sass,kernel")
    assert outcome.status == 2
    assert outcome.stderr == f"ttanalyze: {path}: line 3: {reason}\n"
