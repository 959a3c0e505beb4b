"""`ttanalyze sass`: instruction tables of cubins, fatbins, programs and runs.

The cubins in data/sass are of kernels.cu there; what nvdisasm says of them is in a file, and a
program that reads it out takes the tool's place.
"""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import orjson
import pytest
import xxhash

import ttanalyze as tt
from tests import support
from tests.rundir import Writer, edit, reseal_records
from tests.support import Cli
from tests.test_kernel_checksums import entry, fatbin
from ttanalyze.code.cubin import Cubin
from ttanalyze.code.lines import sections
from ttanalyze.core.delays import Config
from ttanalyze.disassembly import categories
from ttanalyze.disassembly import tools as searched
from ttanalyze.disassembly.find import find_tables
from ttanalyze.disassembly.registers import registers
from ttanalyze.errors import Error
from ttanalyze.format.kernel_checksums import Checksums
from ttanalyze.verbs.reduce import Point
from ttanalyze.verbs.reduce.delayed_instructions import name_delays
from ttanalyze.verbs.reduce.report import delayed_text

DATA = support.ROOT / "tests" / "data" / "sass"
KERNELS = {
    80: {"exchange", "wide", "product"},
    90: {"exchange", "wide", "product", "tiles", "group"},
    100: {"exchange", "wide", "product", "tiles"},
    120: {"exchange", "wide", "product", "tiles"},
}
CUBINS = {path: int(path.stem[3:].rstrip("a")) for path in sorted(DATA.glob("sm_*.cubin"))}
HOPPER = DATA / "sm_90a.cubin"


@pytest.fixture(autouse=True)
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that alone is searched for tools, with an nvdisasm."""
    folder = tmp_path / "tools"
    folder.mkdir()
    tool = folder / "nvdisasm"
    tool.write_text(f'#!/bin/sh\nexec {sys.executable} {DATA / "nvdisasm.py"} "$@"\n')
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(searched, "OTHERS", ())
    return folder


def rows(path: Path, kernel: str) -> list[dict[str, Any]]:
    (table,) = find_tables(path, f"^{kernel}$")
    return table.instructions


def first(path: Path, kernel: str, mnemonic: str) -> dict[str, Any]:
    return next(r for r in rows(path, kernel) if r["mnemonic"].startswith(mnemonic))


# ---- cubins ----


@pytest.mark.parametrize("path", CUBINS, ids=lambda p: p.stem)
def test_every_instruction_is_listed(cli: Cli, path: Path, tmp_path: Path) -> None:
    image = path.read_bytes()
    out = tmp_path / "tables.json"
    assert cli("sass", path, "--json", "-o", out) == support.Outcome("", "", 0)
    tables = json.loads(out.read_text())
    assert {table["kernel_name"] for table in tables} == KERNELS[CUBINS[path]]
    for table in tables:
        alone = tmp_path / "table.json"
        alone.write_text(json.dumps(table))
        assert cli("validate", alone).status == 0
        assert table["architecture"] == CUBINS[path]
        assert table["disassembler"] == "nvdisasm 13.5.37"
        listed = table["instructions"]
        assert [r["opcode_id"] for r in listed] == list(range(len(listed)))
        assert [r["pc"] for r in listed] == list(range(0, 16 * len(listed), 16))
        code = b"".join(int(r["binary"], 16).to_bytes(16, "little") for r in listed)
        assert code in image
        targets = [r["target"] for r in listed if r["opcode"] == "BRA"]
        assert targets and all(0 <= t < len(code) for t in targets)  # wherever it lay in a batch
        assert {"EXIT", "BRA"} <= {r["opcode"] for r in listed}
        assert any(r["category"] == "store" and r["delay_point"] for r in listed)
    (checksum,) = tt.kernels.checksums(image, ["exchange"])
    assert checksum in {table["kernel_checksum"] for table in tables}


def test_instruction_properties() -> None:
    load = first(HOPPER, "wide", "LDG.E.128")
    assert load["category"] == "load" and load["delay_point"]
    (written, address) = load["operands"]
    low = int(written[1:])
    assert load["writes"] == (low, low + 1, low + 2, low + 3)
    assert address.startswith("desc[UR") and len(load["uniform_reads"]) == 2
    assert len(load["reads"]) == 2 and load["write_barrier"] is not None
    copy = first(HOPPER, "tiles", "UTMALDG.2D")
    to = int(copy["operands"][0][3:-1])
    descriptor = int(copy["operands"][1][3:-1])
    wanted = {*range(to, to + 4), descriptor, descriptor + 1}
    assert copy["category"] == "TMA" and set(copy["uniform_reads"]) == wanted
    assert copy["reads"] == copy["writes"] == copy["uniform_writes"] == ()
    tried = first(HOPPER, "tiles", "SYNCS.PHASECHK")
    assert tried["category"] == "mbarrier" and len(tried["reads"]) == 1 and not tried["writes"]
    spins = next(r for r in rows(HOPPER, "tiles") if r["predicate"] == "@!P0" and r["target"])
    assert spins["sass"] == f"@!P0 BRA {spins['target']:#x}"
    product = first(HOPPER, "product", "HMMA.16816.F32")
    assert product["category"] == "matrix" and len(product["writes"]) == 4
    group = first(HOPPER, "group", "HGMMA.64x8x16.F32")
    assert len(group["writes"]) == 4 and len(group["uniform_reads"]) == 4
    waits = first(HOPPER, "group", "WARPGROUP.DEPBAR")
    assert waits["category"] == "wait" and waits["delay_point"]
    adds = first(HOPPER, "exchange", "REDG")
    assert adds["category"] == "reduction" and not adds["writes"]


def test_control_bits() -> None:
    """As public descriptions have them, on an instruction whose every field is set."""
    barrier = first(HOPPER, "exchange", "BAR.SYNC")
    assert barrier["write_barrier"] is None and barrier["read_barrier"] is None
    load = first(HOPPER, "exchange", "LDG")
    user = next(r for r in rows(HOPPER, "exchange") if load["write_barrier"] in r["wait"])
    assert user["opcode_id"] > load["opcode_id"]
    bits = int(load["binary"], 16)
    assert bits >> 105 & 15 == load["stall"] and bits >> 110 & 7 == load["write_barrier"]


def test_source_lines() -> None:
    listed = rows(HOPPER, "exchange")
    source = (DATA / "kernels.cu").read_text().splitlines()
    barrier = next(r for r in listed if r["opcode"] == "BAR")
    assert barrier["file"].endswith("/kernels.cu")
    assert "__syncthreads()" in source[barrier["line"] - 1]
    product = next(r for r in listed if r["opcode"] == "FMUL")
    assert "return x * 3.0f" in source[product["line"] - 1]
    (caller,) = product["inlined_at"]
    assert "scaled(in[i])" in source[int(caller.rpartition(":")[2]) - 1]


def test_kernels_have_the_line_of_their_source(recorded: Path) -> None:
    """The first line of a kernel, not one of a function that was inlined there."""
    run = tt.open(recorded)
    table = tt.query(run, table="functions", fields=["name", "source"]).set_index("name")
    source = (DATA / "kernels.cu").read_text().splitlines()
    for name in ("tiles", "exchange"):
        file, _, line = table.loc[name, "source"].rpartition(":")
        assert file.endswith("/kernels.cu")
        begin = next(i for i, text in enumerate(source, 1) if re.search(rf"\b{name}\(", text))
        assert begin <= int(line) <= begin + 8
    assert table["source"].isna().loc["lost"]


def test_output_formats(cli: Cli, tmp_path: Path) -> None:
    out = tmp_path / "out"
    some = ("sass", HOPPER, "--kernel", "tiles|group")
    assert cli(*some, "--format", "ndjson", "-o", out).status == 0
    records = [orjson.loads(line) for line in out.read_bytes().splitlines()]
    assert {record["kernel_name"] for record in records} == {"tiles", "group"}
    assert (
        cli("validate", out).stdout == f"{out}: instruction-records, {len(records)} records: good\n"
    )
    assert cli(*some, "--format", "csv", "-o", out).status == 0
    with out.open(newline="") as file:
        table = list(csv.DictReader(file))
    assert [row["sass"] for row in table] == [record["sass"] for record in records]
    copy = next(row for row in table if row["opcode"] == "UTMALDG")
    assert len(copy["uniform_reads"].split()) == 6 and copy["delay_point"] == "True"
    text = cli("sass", HOPPER, "--kernel", "tiles").stdout
    assert text.startswith("tiles\n  ") and ", sm_90, " in text
    points = cli("sass", HOPPER, "--kernel", "tiles", "--points").stdout.splitlines()[1:]
    assert 5 < len(points) < len(text.splitlines()) / 2
    assert all(line.split()[2] == "*" or "delay points (*)" in line for line in points)
    frame = tt.sass(HOPPER, "tiles|group")
    assert frame["sass"].tolist() == [record["sass"] for record in records]
    assert frame["target"].dtype == "Int64"


def test_missing_kernels_give_a_one_line_error(cli: Cli, tmp_path: Path, tools: Path) -> None:
    def error(*arguments: str | Path) -> str:
        outcome = cli("sass", *arguments)
        assert outcome.status == 2 and outcome.stdout == "" and outcome.stderr.count("\n") == 1
        return outcome.stderr

    assert "no kernels whose name matches none" in error(HOPPER, "--kernel", "none")
    assert "not a regular expression" in error(HOPPER, "--kernel", "(")
    assert "--arch h200: not an architecture; example: sm_90" in error(HOPPER, "--arch", "h200")
    assert "no code for sm_80: there is sm_90" in error(HOPPER, "--arch", "80")
    assert "must be one of text, json" in error(HOPPER, "--format", "yaml")
    text = tmp_path / "text"
    text.write_text("hello")
    assert "neither a run nor code for a GPU" in error(text)
    text.write_text(".version 8.0\n.target sm_90\n.visible .entry k() { ret; }\n")
    assert "only PTX was found: --arch ARCH" in error(text)
    assert "no ptxas in PATH" in error(text, "--arch", "sm_90")
    (tools / "nvdisasm").write_text("#!/bin/sh\necho 'nvdisasm fatal   : no such SM'>&2; exit 1\n")
    assert "sm_90 can't be disassembled: " in error(HOPPER)
    assert "no such SM" in error(HOPPER)
    (tools / "nvdisasm").write_text("#!/bin/sh\necho '        /*0000*/   NOP ;'\n")
    assert "its output lacks instructions" in error(HOPPER)
    (tools / "nvdisasm").unlink()
    assert "no nvdisasm in PATH" in error(HOPPER)
    assert "pip install 'ttanalyze[sass]'" in error(HOPPER)


def test_damaged_cubins_give_an_error(cli: Cli, tmp_path: Path) -> None:
    """What describes the file, its sections and source lines: an answer or a line of text."""
    image = HOPPER.read_bytes()
    path = tmp_path / "damaged.cubin"
    headers = int.from_bytes(image[40:48], "little")
    lines = image.find(b"kernels.cu\0")
    for at in (18, 40, 47, 58, 60, 62, *range(headers + 24, headers + 64 * 30, 251), lines + 30):
        path.write_bytes(image[:at] + bytes([image[at] ^ 0xFF]) + image[at + 1 :])
        outcome = cli("sass", path, "--kernel", "group")
        assert outcome.status in (0, 2), at
        assert outcome.stderr.count("\n") == (outcome.status != 0), at
    path.write_bytes(image[: len(image) // 2])
    assert cli("sass", path).status == 2
    path.write_bytes(image.replace(b".text.group\0", b".text.gr\xffup\0"))
    outcome = cli("sass", path)
    assert outcome.status == 0 and "tiles" in outcome.stdout and "group" not in outcome.stdout


def test_damaged_source_lines_are_skipped() -> None:
    cubin = Cubin(HOPPER.read_bytes())
    data, symbols = cubin.contents(b".debug_line"), cubin.relocated(b".debug_line")
    whole = sections(data, b"", symbols)
    assert sum(len(lines.source_lines) for lines in whole.values()) > 50
    for at in range(len(data)):
        damaged = data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :]
        for lines in sections(damaged, b"", symbols).values():
            assert len(lines.source_lines) <= len(data)
    for size in range(0, len(data), 7):
        sections(data[:size], b"", symbols)

    def program(version: bytes, files: bytes, code: bytes = b"") -> bytes:
        rest = bytes([1, 1, 1, 0, 1, 10, *range(9)]) + files
        unit = version + len(rest).to_bytes(4, "little") + rest + code
        return len(unit).to_bytes(4, "little") + unit

    endless = program(b"\5\0\x08\0", b"\0" + b"\xff" * 9 + b"\x7f")  # as many folders of no bytes
    assert sections(endless, b"", {}) == {}
    code = b"\3" + b"\xff" * 12 + b"\x3f\1\0\1\1"  # a line too far, the row, the end
    far = sections(program(b"\4\0", b"\0a.cu\0\0\0\0\0", code), b"", {})
    assert [lines.source_lines for lines in far.values()] == [[None, None]]


def test_interrupt_leaves_no_files(tools: Path, tmp_path: Path) -> None:
    scratch, began = tmp_path / "scratch", tmp_path / "began"
    scratch.mkdir()
    (tools / "nvdisasm").write_text(
        f"#!/bin/sh\n: > {began}\nexec {shutil.which('sleep', path=os.defpath)} 60\n"
    )
    environment = support.bare_environment(TMPDIR=str(scratch))
    command = [sys.executable, "-m", "ttanalyze", "sass", str(HOPPER)]
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) as child:
        while not began.exists():
            time.sleep(0.02)
        assert len([*scratch.iterdir()]) == 1
        child.send_signal(signal.SIGINT)
        assert child.wait(60) == 130
    assert not [*scratch.iterdir()]


# ---- fatbins and programs ----


def test_image_for_the_device_is_selected(cli: Cli, tmp_path: Path) -> None:
    entries = [entry(path.read_bytes(), arch=arch) for path, arch in CUBINS.items()]
    ptx = b".version 8.0\n.target sm_75\n.address_size 64\n.visible .entry wide() { ret; }\n"
    image = fatbin(*entries, entry(ptx, kind=1, arch=75))
    file = tmp_path / "code.fatbin"
    file.write_bytes(image)
    program = tmp_path / "program"
    program.write_bytes(b"\x7fELF\x02\x01" + b"\0" * 58 + image + b"\0" * 8 + image[:100])
    for path in (file, program):
        for asked, taken in (("sm_86", 80), ("90a", 90), ("103", 100), ("sm_121", 120)):
            (table,) = find_tables(path, "wide", int(asked.strip("sm_a")))
            assert table.architecture == taken, asked
            asking = ("sass", path, "--arch", asked, "--kernel", "wide")
            assert f", sm_{taken}, " in cli(*asking).stdout
        assert "no ptxas" in cli("sass", path, "--arch", "sm_75").stderr
    both = list(find_tables(program, "wide", 90))
    assert both[0].code_checksum == tt.kernels.checksums(HOPPER.read_bytes(), ["wide"])[0]
    (whole,) = find_tables(file, "wide", 90)
    assert whole.kernel_checksum == tt.kernels.checksums(image, ["wide"])[0]


# ---- runs ----


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """A run on a device of sm_90 with two modules, one of which has the kernels."""
    path = tmp_path / "run"
    writer = Writer(path)
    for module, image in enumerate((HOPPER.read_bytes(), b"?" * 80)):
        digest = xxhash.xxh3_64_intdigest(image)
        writer.module(module, kind="cubin")
        for name in ("tiles", "exchange") if module == 0 else ("lost",):
            writer.function(10 * module + len(name), name, module)
        edit(writer.path / "modules.bin", module, image=digest, size=len(image))
        (writer.path / "modules").mkdir(exist_ok=True)
        (writer.path / "modules" / f"{digest:016x}").write_bytes(image)
    reseal_records(writer.path / "modules.bin")
    writer.close(devices=[{"ordinal": 0, "name": "GPU", "memory": 1, "capability": 90}])
    return path


def test_written_tables_are_valid(cli: Cli, recorded: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    for options, said in (
        (["--json"], "instructions, 2 documents: good"),
        (["--format", "ndjson", "--kernel", "tiles"], "instruction-records, "),
    ):
        assert cli("sass", recorded, "-o", out, *options).status == 0
        assert said in cli("validate", out).stdout
    written = json.loads(cli("sass", recorded, "--json").stdout)
    written[1]["instructions"][0]["pc"] = -1
    out.write_text(json.dumps(written))
    assert "[1].instructions[0].pc: expected 0 or more" in cli("validate", out).stdout


def test_tables_are_kept_in_the_run(cli: Cli, recorded: Path, tools: Path) -> None:
    asked = cli("sass", recorded, "--kernel", "tiles")
    assert asked.status == 0
    (kept,) = (recorded / "sass").iterdir()
    assert cli("validate", kept).status == 0
    assert (kept.stat().st_mode & 0o777, kept.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    (tools / "nvdisasm").unlink()
    assert cli("sass", recorded, "--kernel", "tiles") == asked
    assert "no nvdisasm" in cli("sass", recorded, "--kernel", "exchange").stderr
    some = cli("sass", recorded, "--format", "csv")  # what there is, and why there is not more
    assert some.status == 0 and "\ntiles," in some.stdout and "\nexchange," not in some.stdout
    assert some.stderr.startswith("ttanalyze: ") and "no nvdisasm" in some.stderr
    whole = kept.read_text()
    for damaged, reason in (
        (whole[:-5], "not JSON"),
        (whole.replace('"pc":16,', '"pc":-16,', 1), "instructions[1].pc: expected 0 or more"),
        (whole.replace('"version":1', '"version":2'), "version: expected 1, not 2"),
        (whole.replace(f'm":"{kept.stem}"', f'm":"{"0" * 16}"', 1), "another kernel's table"),
    ):
        kept.write_text(damaged)
        outcome = cli("sass", recorded, "--kernel", "tiles")
        assert outcome.status == 2 and str(kept) in outcome.stderr and reason in outcome.stderr


def test_checksums_equal_those_of_kernel_events(recorded: Path) -> None:
    kernels = Checksums()
    process = tt.open(recorded).processes[0]
    wanted = {kernels.get(process, f) for f in process.functions["id"].tolist()} - {None}
    assert {t.kernel_checksum for t in find_tables(recorded)} == wanted
    assert len(wanted) == 2


def test_delays_are_named_by_instruction_and_line(recorded: Path, tools: Path) -> None:
    table = next(iter(find_tables(HOPPER, "exchange")))
    barrier = next(row for row in table.instructions if row["opcode"] == "BAR")
    pc = barrier["pc"]
    point = {"pc": pc, "sass": "BAR", "delay": 2000, "on": True}
    kernel = {"kernel_name": "exchange", "kernel_checksum": table.code_checksum}
    kernels = {"key": kernel | {"instrumentation_points": {str(pc): point}}}
    config = Config({"version": "1.0", "delay_ns": 2000, "kernels": kernels})
    (place,) = name_delays(config, [Point("key", str(pc))], tt.open(recorded))
    assert place.to_object()["sass"].startswith("BAR.SYNC")
    assert place.to_object()["line"] == barrier["line"]
    assert delayed_text([place]) == [
        "  2 µs before BAR.SYNC.DEFER_BLOCKING 0x0",
        f"    at {pc:#x} of exchange, kernels.cu:{barrier['line']}",
    ]
    (tools / "nvdisasm").unlink()
    (alone,) = name_delays(config, [Point("key", str(pc))])
    assert delayed_text([alone]) == ["  2 µs before BAR", f"    at {pc:#x} of exchange"]


def test_read_only_run(cli: Cli, recorded: Path) -> None:
    (recorded / "sass").write_text("in the way")
    outcome = cli("sass", recorded, "--kernel", "tiles")
    assert outcome.status == 0 and outcome.stdout.startswith("tiles\n")


def test_source_lines_beside_instructions(cli: Cli, recorded: Path, tmp_path: Path) -> None:
    cli("sass", recorded, "--kernel", "exchange")
    (kept,) = (recorded / "sass").iterdir()
    source = tmp_path / "kernels.cu"
    shutil.copy(DATA / "kernels.cu", source)
    table = json.loads(kept.read_text())
    for row in table["instructions"]:
        row["file"] = row["file"] and str(source)
    kept.write_text(json.dumps(table))
    lines = cli("sass", recorded, "--kernel", "exchange").stdout.splitlines()
    barrier = next(line for line in lines if "BAR.SYNC" in line)
    assert "__syncthreads();" in barrier and "kernels.cu:" in barrier
    assert any("return x * 3.0f;" in line and " in kernels.cu:" in line for line in lines)


# ---- what mnemonics mean ----


@pytest.mark.parametrize(
    ("line", "reads", "writes", "uniform_reads", "uniform_writes"),
    [
        ("IMAD.WIDE R2, R0.reuse, 0x4, R4", "0 4 5", "2 3", "", ""),
        ("STG.E.64 desc[UR4][R2.64+0x8], R6", "2 3 6 7", "", "4 5", ""),
        ("LDG.E R0, [R2.64]", "2 3", "0", "", ""),
        ("ATOMG.E.CAS.64.STRONG.GPU PT, R10, [R2], R20, R22", "2 3 20 21 22 23", "10 11", "", ""),
        ("ATOMS.CAS R9, [R0+0x14], R8, R9", "0 8 9", "9", "", ""),
        ("SHFL.BFLY PT, R4, R0, 0x1, 0x1f", "0", "4", "", ""),
        ("ISETP.GE.AND P0, PT, R0, UR4, PT", "0", "", "4", ""),
        ("DFMA R8, R4, R6, R8", "4 5 6 7 8 9", "8 9", "", ""),
        ("I2F.F64 R8, R9", "9", "8 9", "", ""),
        ("F2I.F64.TRUNC R6, R6", "6 7", "6", "", ""),
        ("I2F.S64 R8, R4", "4 5", "8", "", ""),
        ("LDSM.16.M88.4 R4, [R20]", "20", "4 5 6 7", "", ""),
        ("ULDC.64 UR4, c[0x0][0x208]", "", "", "", "4 5"),
        ("LDC R8, c[0x0][R8+0x2a4]", "8", "8", "", ""),
        ("R2UR UR4, R5", "5", "", "", "4"),
        ("CS2R R12, SRZ", "", "12 13", "", ""),
        ("CS2R.32 R5, SR_CLOCKLO", "", "5", "", ""),
        ("DMMA.8x8x4 R12, R12, R14, RZ", "12 13 14 15", "12 13 14 15", "", ""),
        ("UBLKCP.S.G [UR8], [UR10], UR12", "", "", "8 9 10 11 12", ""),
        ("UTMASTG.3D [UR8], [UR4]", "", "", "4 5 8 9 10 11", ""),
        ("UTMALDG.2D.MULTICAST [UR8], [UR6], UR4", "", "", "4 6 7 8 9 10 11", ""),
        ("UTMASTG.1D [UR8], [UR4], desc[UR6]", "", "", "4 5 6 7 8 9", ""),
        ("UTCHMMA gdesc[UR4], gdesc[UR8], tmem[UR6], tmem[UR14], idesc[UR15], UPT",
         "", "", "4 5 6 8 9 14 15", ""),
        ("HGMMA.64x8x16.F32.BF16 R24, gdesc[UR4], RZ, !UPT, gsb0",
         "", "24 25 26 27", "4 5 6 7", ""),
        ("HGMMA.64x8x16.F32 R24, R32, gdesc[UR4].tnspB, RZ, !UPT, gsb0",
         "32 33 34 35", "24 25 26 27", "6 7", ""),
        ("LDTM.x4 R4, tmem[UR6]", "", "4 5 6 7", "6", ""),
        ("LDGSTS.E.BYPASS.128 [R9+0x10], desc[UR8][R4.64+0x10]", "4 5 9", "", "8 9", ""),
        ("IADD.64 R2, R2, UR4", "2 3", "2 3", "4 5", ""),
        ("SYNCS.ARRIVE.TRANS64.A1T0 R2, [UR6], RZ", "", "2", "6", ""),
        ("RET.REL.NODEC R20, 0x0", "20 21", "", "", ""),
        ("NOP", "", "", "", ""),
    ],
)  # fmt: skip
def test_registers(
    line: str, reads: str, writes: str, uniform_reads: str, uniform_writes: str
) -> None:
    mnemonic, _, rest = line.partition(" ")
    found = registers(mnemonic, tuple(part.strip() for part in rest.split(",")) if rest else ())
    wanted = (reads, writes, uniform_reads, uniform_writes)
    assert found == tuple(tuple(map(int, text.split())) for text in wanted)


def test_patterns_of_delay_points(cli: Cli) -> None:
    refused = cli("sass", HOPPER, "--points", "--patterns", "bar,").stderr
    assert "--patterns bar,: expected mnemonics" in refused
    source = (support.ROOT / "interpose" / "delay" / "image.c").read_text()
    names = source.partition("built_in[] = {")[2].partition("}")[0].split('"')
    assert {name for name in names if name.isidentifier()} == categories.DELAYED
    assert categories.can_delay("UTMALDG", "UTMALDG.2D, SYNCS")
    assert categories.can_delay("SYNCS", "UTMALDG,SYNCS.ARRIVE")
    assert not categories.can_delay("LDG", "UTMALDG")
    assert categories.can_delay("FADD", "*") and not categories.can_delay("FADD")
    asked = cli("sass", HOPPER, "--kernel", "tiles", "--patterns", "UTMALDG,BAR", "--format", "csv")
    assert [row["opcode"] for row in csv.DictReader(asked.stdout.splitlines())] == [
        "UTMALDG",
        "BAR",
    ]


def test_errors_from_python() -> None:
    with pytest.raises(Error, match="No such file"):
        tt.sass("/nowhere.cubin")


@pytest.mark.long
def test_patcher_and_tables_name_opcodes_alike(tools: Path) -> None:
    script = support.ROOT / "interpose" / "sass" / "opcodes.py"
    environment = {**support.bare_environment(), "PATH": str(tools)}
    done = support.run([sys.executable, script, "--check", *CUBINS], environment)
    assert (done.stdout, done.stderr, done.status) == ("", "", 0)
