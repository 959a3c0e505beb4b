"""Instruction traces of CUTracer in each format: every field is read, and damage is named."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard

from tests import instruction_traces as made
from tests.support import Cli
from ttanalyze.verbs.query import Query, query
from ttanalyze.verbs.query.traces import open_file

Write = Callable[..., Path]
FORMATS = [made.ndjson, made.compressed]


def asked(path: Path, *fields: str, **more: Any) -> dict[str, list[Any]]:
    frame = query(open_file(path), Query(fields=fields, **more)).astype("object")
    rows = frame.where(frame.notna(), None).to_dict("list")
    arrays = {
        n: [v.tolist() if isinstance(v, np.ndarray) else v for v in r] for n, r in rows.items()
    }
    return {str(name): values for name, values in arrays.items()}


def test_archives_of_clp_are_refused(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "t.clp").write_bytes(b"\xfd\x2f\xc5\x30 archive")
    outcome = cli("query", tmp_path / "t.clp")
    reason = "CLP archives are not read; expand it first\n"
    assert outcome.status == 2 and outcome.stderr == f"ttanalyze: {tmp_path / 't.clp'}: {reason}"


@pytest.mark.parametrize("write", FORMATS)
def test_lists_are_read(tmp_path: Path, write: Write) -> None:
    records = [made.METADATA, *made.registers(), *made.values()]
    path = write(tmp_path / "t", *records)
    fields = ("regs", "regs_indices", "uregs", "uregs_indices", "addrs", "values", "cta")
    found = asked(path, *fields, "mem_space", "is_load", "access_size", "ipoint")
    for member, values in found.items():
        assert values == [record.get(member) for record in records[1:]], member


@pytest.mark.parametrize("write", FORMATS)
def test_transfers_are_read(tmp_path: Path, write: Write) -> None:
    path = write(tmp_path / "t", made.METADATA, made.TMA)
    info = made.TMA["tma_transfer_info"]
    tensor = info["tensor"]
    flat = {**info, **tensor, **tensor["tiled"], "global_address": 0x7F0000010000}
    members = {f"tma_{n}": v for n, v in flat.items() if n not in ("tensor", "tiled")}
    found = asked(path, *members, "desc_addr", "tma_param_size")
    assert found == {
        n: [v] for n, v in {**members, "desc_addr": 0x7F0000010000, "tma_param_size": 64}.items()
    }


def test_text_equals_json(tmp_path: Path) -> None:
    records = [*made.opcodes(), *made.registers(), *made.accesses()]
    text = made.log(tmp_path / "t.log", *records)
    plain = made.ndjson(tmp_path / "t.ndjson", made.METADATA, *records)
    fields = ("kind", "context", "cta", "warp", "sass", "regs", "uregs", "addrs")
    assert asked(text, *fields) == asked(plain, *fields)
    some = "kind != 'reg_trace'"  # whose text has no launch and no offset
    assert asked(text, "launch", "pc", filter=some) == asked(plain, "launch", "pc", filter=some)
    assert set(asked(text, "launch", filter="kind == 'reg_trace'")["launch"]) == {None}


def test_filters_look_into_lists(cli: Cli, tmp_path: Path) -> None:
    path = made.ndjson(tmp_path / "t", made.METADATA, *made.values())

    def warps(condition: str) -> list[int]:
        return asked(path, "warp", filter=condition)["warp"]

    assert warps("0x7f0000000104 in addrs") == [2, 2]
    assert warps("addrs[31] >= 0x7f00000001fc and is_load") == [3]
    assert warps("values[1][0] == 101") == [1, 1]
    assert warps("cta == [1, 0, 0] and is_load == False") == [2, 3]
    assert warps("addrs[40] > 0") == warps("regs.notna()") == []
    csv = cli("query", path, "--fields", "warp,values", "--top", "1", "--format", "csv").stdout
    assert csv.splitlines()[1].startswith('0,"[[0],[1],')
    (row,) = json.loads(cli("query", path, "--top", "1", "--json").stdout)
    assert row["addrs"] == made.addresses(0) and row["regs"] is None
    for option, reason in [
        (("--filter", "addrs > 5"), "compare a list with =="),
        (("--group-by", "addrs"), "addrs is a list: it cannot be sorted, grouped or aggregated"),
        (("--sort", "addrs"), "addrs is a list"),
        (("--sum", "addrs"), "addrs is a list"),
    ]:
        outcome = cli("query", path, *option)
        assert outcome.status == 2 and reason in outcome.stderr, outcome


def cut(path: Path, size: int) -> Path:
    path.write_bytes(path.read_bytes()[:-size])
    return path


@pytest.mark.parametrize(
    ("write", "size", "rows", "reason"),
    [
        (made.ndjson, 20, 23, "line 25 is cut off"),
        (made.compressed, 9, 19, "the zstd frame at offset"),
        (made.log, 1, 23, "the record at line 47 is cut off"),
    ],
)
def test_trace_of_a_killed_program_is_read(
    cli: Cli, tmp_path: Path, write: Write, size: int, rows: int, reason: str
) -> None:
    records = made.opcodes() if write is made.log else [made.METADATA, *made.opcodes()]
    path = cut(write(tmp_path / "t", *records), size)
    outcome = cli("query", path, "--count", "--format", "csv")
    assert outcome.stdout == f"count\n{rows}\n" and outcome.status == 0
    assert outcome.stderr.startswith(f"ttanalyze: {path}: {reason}")
    assert outcome.stderr.endswith("; the records before it are complete\n")
    checked = cli("validate", path)
    assert checked.status == 1 and reason in checked.stdout


def test_damaged_frame_is_named(cli: Cli, tmp_path: Path) -> None:
    path = made.compressed(tmp_path / "t", made.METADATA, *made.opcodes())
    raw = bytearray(path.read_bytes())
    second = raw.index(b"\x28\xb5\x2f\xfd", 1)
    raw[second] ^= 1
    path.write_bytes(raw)
    for verb in ("query", "validate"):
        outcome = cli(verb, path)
        assert (outcome.status, outcome.stdout) == (2, "")
        assert outcome.stderr.startswith(f"ttanalyze: {path}: offset {second}: not a zstd frame: ")


def test_frame_that_wants_much_memory_is_refused(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "t"
    window = zstandard.ZstdCompressionParameters(window_log=30, enable_ldm=False)
    writer = zstandard.ZstdCompressor(compression_params=window).compressobj()
    path.write_bytes(writer.compress(b'{"type":"opcode_only"}\n') + writer.flush())
    outcome = cli("query", path)
    assert outcome.status == 2 and ": offset 0: not a zstd frame: " in outcome.stderr


def test_long_line_in_a_small_file_is_refused(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ttanalyze.records.lines.LONGEST", 1 << 20)
    path = tmp_path / "t"
    path.write_bytes(zstandard.ZstdCompressor().compress(b" " * (1 << 24)))
    assert path.stat().st_size < 4096
    outcome = cli("query", path)
    assert outcome.stderr == f"ttanalyze: {path}: line 1: longer than 1048576 bytes\n"


BAD = [
    ("addrs", [1] * 31, "expected 32 whole numbers of 64 bits"),
    ("addrs", [1.5] * 32, "expected 32 whole numbers of 64 bits"),
    ("addrs", [-1] * 32, "expected 32 whole numbers of 64 bits"),
    ("values", [[1]] * 31 + [[1, 2]], "expected 32 x n whole numbers of 32 bits"),
    ("values", [1] * 32, "expected 32 x n whole numbers of 32 bits"),
    ("regs", [[1 << 32] * 32], "expected n x 32 whole numbers of 32 bits"),
    ("regs", [[True] * 32], "expected n x 32 whole numbers of 32 bits"),
    ("uregs", "x", "expected n whole numbers of 32 bits"),
    ("is_load", 1, "expected true or false"),
    ("tma_transfer_info", [], "expected an object"),
]


@pytest.mark.parametrize(("member", "value", "reason"), BAD)
def test_wrong_values_are_named(
    cli: Cli, tmp_path: Path, member: str, value: Any, reason: str
) -> None:
    bad = made.common("mem_value_trace", 0, 0, **{member: value})
    path = made.ndjson(tmp_path / "t", made.METADATA, bad)
    fields = "addrs,values,regs,uregs,is_load,tma_mode"
    outcome = cli("query", path, "--fields", fields)
    assert outcome.status == 2
    assert outcome.stderr == f"ttanalyze: {path}: line 2: {member}: {reason}\n"
    assert cli("validate", path).status == 1


HEAD = "CTX 0x5 - CTA 0,0,0 - warp 0 - "
MEMORY = "CTX 0x5 - kernel_launch_id 1 - CTA 0,0,0 - warp 0 - PC 16 - "


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("CTX 0x5 - CTA 0,0 - warp 0 - NOP ;:\n", 1, "expected CTX, CTA, warp and an instruction"),
        (HEAD + "NOP ;\n", 1, "expected CTX, CTA, warp and an instruction"),
        (HEAD + "NOP ;:\n  * Reg0_T00: 0x00000001 \n", 2, "expected the 32 values of Reg0"),
        (MEMORY + "LDG ;:\n  * T00: 0x0000000000000001 \n", 2, "expected Memory Addresses:"),
        (MEMORY + "NOP ;\nmore\n", 2, "expected an empty line"),
        (
            MEMORY
            + "LDG ;:\n  Memory Addresses:\n  * T03: 0x0000000000000001 T03: 0x0000000000000001 \n",
            3,
            "T03: expected a lane after T03",
        ),
        ("CTX 0x5 - CTA 99999999999,0,0 - warp 0 - NOP ;:\n", 1, "expected CTX"),
    ],
)
def test_wrong_lines_of_text_are_named(
    cli: Cli, tmp_path: Path, text: str, line: int, reason: str
) -> None:
    path = tmp_path / "t.log"
    path.write_text(text + "\n")
    outcome = cli("query", path)
    assert outcome.status == 2
    assert outcome.stderr.startswith(f"ttanalyze: {path}: line {line}: {reason}")
    checked = cli("validate", path)
    assert (checked.status, checked.stderr) == (1, "")
    assert checked.stdout.startswith(f"{path}: line {line}: {reason}")


def test_each_format_is_valid(cli: Cli, tmp_path: Path) -> None:
    records = [*made.opcodes(), *made.registers(), *made.accesses()]
    more = [made.METADATA, *records, *made.values(), made.TMA]
    for path in (made.ndjson(tmp_path / "a", *more), made.compressed(tmp_path / "b", *more)):
        assert cli("validate", path).stdout == f"{path}: trace, 66 records: good\n"
    text = made.log(tmp_path / "c.log", *records)
    assert cli("validate", text).stdout == f"{text}: trace, 56 records: good\n"
    path = made.ndjson(tmp_path / "d", made.METADATA, made.common("mem_addr_trace", 0, 0))
    assert "line 2: no addrs, which is required" in cli("validate", path).stdout
    wide = made.values()[0] | {"access_size": 8}
    path = made.ndjson(tmp_path / "e", made.METADATA, wide)
    assert "line 2: values[0]: expected 2 items, not 1\n" in cli("validate", path).stdout
