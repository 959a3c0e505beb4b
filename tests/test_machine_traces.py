"""Instruction traces of machine code, whose instructions are disassembled from the run's cubin."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

import ttanalyze as tt
from tests.rundir import Writer, digest, record, seal
from tests.support import Cli
from tests.test_sass import HOPPER, tools
from tests.trace_writer import TraceWriter
from ttanalyze.disassembly.find import find_tables
from ttanalyze.format import layout
from ttanalyze.traces.instructions import Instruction, instructions_of

__all__ = ["tools"]  # a fixture for every test here
LANES = np.arange(32)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A trace of all instructions of a kernel, whose stores have registers and values too."""
    return traced(tmp_path / "run", HOPPER.read_bytes(), kind=2)


def traced(path: Path, image: bytes, kind: int, ran: bytes = b"", registers: bool = True) -> Path:
    """ran: what the driver made of the image, where the run has that. registers: or lanes alone."""
    writer = Writer(path)
    members = {"id": 0, "image": digest(image), "size": len(image), "kind": kind}
    writer.append("modules.bin", seal(record(layout.MODULE, **members)))
    (writer.path / "modules").mkdir()
    (writer.path / "modules" / f"{digest(image):016x}").write_bytes(image)
    writer.function(0, "exchange")
    trace = TraceWriter(writer)
    if ran:
        (writer.path / "modules" / f"{digest(ran):016x}").write_bytes(ran)
    trace.launch(kinds=("opcode", "registers", "values"), image=digest(ran) if ran else 0)
    writer.close(devices=[{"ordinal": 0, "name": "GPU", "memory": 1, "capability": 90}])
    for one in table(path).values():
        trace.opcode(one.number)
        if one.access == "store":
            rows = [LANES + number for number in range(len(one.recorded))]
            uniform = range(len(one.uniform))
            trace.registers(one.number, rows if registers else [], uniform if registers else [])
            words = np.ones((-(-one.size // 4), 32))
            trace.values(one.number, 0x1000, words, stride=one.size)
    trace.end()
    trace.chunk()
    return path


@pytest.fixture
def compiled(tmp_path: Path, tools: Path) -> Path:
    """The same of a module of PTX, which ptxas compiles to that code."""
    tool = tools / "ptxas"
    tool.write_text(f'#!/bin/sh\n[ $1 = --version ] && echo V13.0 || /bin/cp {HOPPER} "$3"\n')
    tool.chmod(0o755)
    image = b".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry exchange() { ret; }\n"
    return traced(tmp_path / "run", image, kind=1)


def table(path: Path) -> dict[int, Instruction]:
    run = tt.open(path)
    return dict(instructions_of(run, run.process(0), 0).by_number)


def test_instructions_are_those_of_the_disassembler(run: Path) -> None:
    found = table(run)
    listed = next(find_tables(run, "exchange")).instructions
    assert [one.text for one in found.values()] == [row["sass"] for row in listed]
    assert [*found] == [row["pc"] // 16 for row in listed]
    assert {one.category for one in found.values()} >= {"memory", "sync", "control", "other"}
    assert all(one.size for one in found.values() if one.access)
    assert any(one.file for one in found.values())


def test_an_export_of_machine_code_is_the_same_trace(cli: Cli, run: Path, tmp_path: Path) -> None:
    path = tmp_path / "trace.ndjson"
    done = cli("query", run, "--table", "trace", "--format", "cutracer", "-o", path)
    assert (done.status, done.stderr) == (0, "")
    assert cli("validate", path).status == 0
    assert cli("compare", run, path).stdout.endswith("the same\n")
    head, *records = map(orjson.loads, path.read_bytes().splitlines())
    known = {int(number): told for number, told in head["instructions"].items()}
    for told in records:
        each: dict[str, Any] = known[told["opcode_id"]]
        assert told["pc"] == hex(16 * told["opcode_id"])
        if told["type"] == "reg_trace":
            assert (told["regs_indices"], told.get("uregs_indices", [])) == (
                each["regs"],
                each["uregs"],
            )
            assert len(told["regs"]) == len(each["regs"])
    stores = [told for told in records if told["type"] == "mem_value_trace"]
    assert stores and all((s["is_load"], s["ipoint"]) == (False, "B") for s in stores)


def test_registers_that_were_not_known_are_named(tmp_path: Path, cli: Cli) -> None:
    """The code that records knew the lanes alone of these."""
    path = traced(tmp_path / "run", HOPPER.read_bytes(), kind=2, registers=False)
    done = cli("query", path, "--table", "trace", "--format", "ndjson")
    rows = [
        row for row in map(orjson.loads, done.stdout.splitlines()) if row["kind"] == "reg_trace"
    ]
    assert done.status == 0 and rows and all(row["regs"] == [] for row in rows)
    assert {row["regs_indices"] for row in rows} == {None}
    said = "exchange: the registers of STG.E are unknown to the code that recorded"
    assert f"{said}, so it has only lanes" in done.stderr


def test_code_that_the_run_does_not_have_any_more(run: Path) -> None:
    path = run / "p0" / "modules"
    (only,) = path.iterdir()
    only.unlink()
    with pytest.raises(tt.Error, match="the code of exchange is not in the run"):
        table(run)


def test_code_that_the_driver_compiled_is_uncertain(cli: Cli, compiled: Path) -> None:
    note = "exchange: the driver compiled its PTX, perhaps to other instructions than ptxas 13.0"
    done = cli("query", compiled, "--table", "trace")
    assert (done.status, note in done.stderr) == (0, True)


def test_code_that_the_driver_compiled_is_that_of_the_run(tmp_path: Path, cli: Cli) -> None:
    """ptxas is not asked, so nothing is uncertain."""
    image = b".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry exchange() { ret; }\n"
    run = traced(tmp_path / "run", image, kind=1, ran=HOPPER.read_bytes())
    found = instructions_of(tt.open(run), tt.open(run).process(0), 0)
    assert found.note is None
    listed = next(find_tables(HOPPER, "^exchange$")).instructions
    assert [one.text for one in found.by_number.values()] == [row["sass"] for row in listed]
    shown = cli("query", run, "--table", "trace", "--head", "1")
    assert shown.stdout and not shown.stderr
