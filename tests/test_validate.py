"""`ttanalyze validate`: which files are what their schemas say, and every fault of the others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests import support
from tests.rundir import Writer
from tests.support import Cli
from ttanalyze.schemas import KINDS, schema

SCHEMAS = sorted(path.stem for path in (support.ROOT / "ttanalyze" / "schemas").glob("*.json"))
LAUNCH = {
    "type": "kernel_launch",
    "kernel_launch_id": 0,
    "kernel_name": "step(float*)",
    "kernel_checksum": "abcd1234",
    "grid": [16, 1, 1],
    "block": [256, 1, 1],
    "nregs": 16,
    "shmem": 0,
    "stream_id": 0,
    "callstack_id": "aaa",
}
STACK = {"type": "callstack_def", "callstack_id": "aaa", "frames": ["f"], "source": "python"}
METADATA = {
    "type": "kernel_metadata",
    "mangled_name": "_Z4stepPf",
    "unmangled_name": "step(float*)",
    "kernel_checksum": "abcd",
    "func_addr": "0x7f0000001000",
    "nregs": 16,
    "shmem_static": 0,
    "grid": [1, 1, 1],
    "block": [32, 1, 1],
    "shmem_dynamic": 0,
    "instructions": {"0": {"sass": "EXIT", "binary": "00ff", "regs": [], "uregs": []}},
}
EXECUTED = {
    "type": "opcode_only",
    "ctx": "0x55",
    "trace_index": 0,
    "timestamp": 1,
    "grid_launch_id": 0,
    "cta": [0, 0, 0],
    "warp": 0,
    "opcode_id": 0,
    "pc": "0x0",
}
POINT = {"pc": 16, "sass": "LDG.E R2, [R2.64] ;", "delay": 10000, "on": True}
KERNEL = {
    "kernel_name": "step",
    "kernel_checksum": "60a14089564f1c4c",
    "instrumentation_points": {"16": POINT},
}


def delays(**kernel: Any) -> dict[str, Any]:
    return {"version": "1.0", "delay_ns": 10000, "kernels": {"step_60a1": {**KERNEL, **kernel}}}


OURS: dict[str, Any] = {
    "mode": "cluster",
    "delay_min_ns": 100,
    "seed": 7,
    "patterns": "*",
    "launches": {"16:3": {"stream": 16, "number": 3, "delay": 5, "on": False, "where": "both"}},
}


def lines(*records: dict[str, Any]) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


@pytest.mark.parametrize("name", SCHEMAS)
def test_schemas_use_only_supported_keywords(name: str) -> None:
    made = schema.load(name)
    assert made["$schema"].startswith("https://json-schema.org/draft/")
    assert made["description"]
    assert list(schema.check_of(name)(None, "")) == [("", "expected an object, not null")]


def test_unknown_keyword_is_refused() -> None:
    with pytest.raises(ValueError, match="oneOf"):
        schema.compiled({"oneOf": []})


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (lines(STACK, LAUNCH), "kernel-events, 2 records: good"),
        (json.dumps([STACK, LAUNCH]), "kernel-events, 2 records: good"),
        (lines(LAUNCH | {"callstack_id": None, "new": 1}), "kernel-events, 1 record: good"),
        (lines(METADATA, EXECUTED), "trace, 2 records: good"),
        (json.dumps(delays(), indent=2), "delay-config, 1 document: good"),
        (
            json.dumps(delays(timestamp="2026-02-03T21:15:21.567")),
            "delay-config, 1 document: good",
        ),
        (json.dumps(delays() | OURS), "delay-config, 1 document: good"),
    ],
)
def test_valid_files_pass(cli: Cli, tmp_path: Path, content: str, said: str) -> None:
    file = tmp_path / "file"
    file.write_text(content)
    assert cli("validate", file) == support.Outcome(f"{file}: {said}\n", "", 0)


@pytest.mark.parametrize(
    ("content", "faults"),
    [
        (
            lines(LAUNCH, STACK, LAUNCH | {"grid": [1, 2], "nregs": -1, "shmem": "x"}),
            [
                "line 1: callstack_id: no callstack_def of 'aaa' before it",
                "line 3: grid: expected 3 items, not 2",
                "line 3: nregs: expected 0 or more, not -1",
                'line 3: shmem: expected a whole number or null, not "x"',
            ],
        ),
        (
            "\n"
            + lines(STACK)[:-1]
            + '\n{"type": "kernel_launch"\n'
            + '{"type": "opcode_only"}\n5\n',
            [
                "line 3: not JSON: unexpected end of data",
                "line 4: type: 'opcode_only' is no type of a record in kernel-events files",
                "line 5: type: not an object with a type of a record in kernel-events files",
            ],
        ),
        (
            lines(METADATA | {"func_addr": "7f", "colour": 1}),
            [
                'line 1: func_addr: expected a string that matches ^0x[0-9a-fA-F]+$, not "7f"',
                'line 1: "colour" is not a member that it has',
            ],
        ),
        (
            json.dumps(delays(instrumentation_points={"16": POINT | {"on": 1, "dealy": 5}})),
            [
                "kernels.step_60a1.instrumentation_points.16.on: expected true or false, not 1",
                'kernels.step_60a1.instrumentation_points.16: "dealy" is not a member that it has',
            ],
        ),
        (
            json.dumps(delays(instrumentation_points={"32": POINT})),
            ["kernels.step_60a1.instrumentation_points.32: its pc is 16"],
        ),
        (
            json.dumps(delays() | {"launches": {"16:4": OURS["launches"]["16:3"]}}),
            ["launches.16:4: it is call 3 of stream 16"],
        ),
        (
            json.dumps(delays() | {"mode": "slow", "delay_ns": 1 << 32}),
            [
                "delay_ns: expected 1000000000 or less, not 4294967296",
                'mode: expected "random" or "fixed" or "cluster" or "cluster_fixed", not "slow"',
            ],
        ),
    ],
)
def test_every_fault_gets_a_line(cli: Cli, tmp_path: Path, content: str, faults: list[str]) -> None:
    file = tmp_path / "file"
    file.write_text(content)
    outcome = cli("validate", file)
    assert outcome.stderr == ""
    assert outcome.stdout.splitlines() == [f"{file}: {fault}" for fault in faults]
    assert outcome.status == 1
    told = json.loads(cli("validate", file, "--json").stdout)[0]
    assert not told["good"] and len(told["faults"]) == len(faults)


def test_example_file_is_valid(cli: Cli, tmp_path: Path) -> None:
    page = (support.ROOT / "docs" / "records.md").read_text()
    (tmp_path / "delays.json").write_text(page.partition("```json\n")[2].partition("```")[0])
    outcome = cli("validate", tmp_path / "delays.json")
    assert outcome.status == 0 and "delay-config, 1 document: good" in outcome.stdout


def test_files_of_a_run_are_valid(cli: Cli, small: Writer, run_path: Path, tmp_path: Path) -> None:
    events = tmp_path / "events.ndjson"
    assert cli("events", run_path, "-o", events, "-q").status == 0
    manifest = tmp_path / "manifest.json"
    assert cli("manifest", run_path, "-o", manifest).status == 0
    files = [events, manifest, run_path / "run.json"]
    outcome = cli("validate", *files)
    assert outcome.stdout.count(": good\n") == 3 and outcome.status == 0
    manifest.write_text(manifest.read_text().replace('"born":0', '"born":-1', 1))
    outcome = cli("validate", *files)
    fault = "processes[0].regions[0].born: expected 0 or more, not -1"
    assert f"{manifest}: {fault}\n" in outcome.stdout
    assert outcome.status == 1


def test_unknown_file_type_is_an_error(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "file"
    for content in ("", "{}", "[]", "no JSON", '{"format": 5}', "\xff"):
        file.write_text(content)
        outcome = cli("validate", file)
        assert outcome.status == 2
        kinds = ", ".join(KINDS)
        assert outcome.stderr == (
            f"ttanalyze: {file}: unknown kind of file; choose one with --kind: {kinds}\n"
        )
    assert "must be one of kernel-events, " in cli("validate", file, "--kind", "x").stderr
    assert "No such file" in cli("validate", tmp_path / "none").stderr
    file.write_text('{"version": ')
    outcome = cli("validate", file, "--kind", "delay-config")
    assert outcome == support.Outcome(f"{file}: line 1: not JSON: unexpected end of data\n", "", 1)
