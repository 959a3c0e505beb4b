"""Analyses of instruction traces: products of matrices, tensor copies, instructions per cycle."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from tests import instruction_traces as made
from tests.rundir import Writer
from tests.support import Cli
from tests.trace_writer import TraceWriter
from ttanalyze.format.layout import NO_ID


def rows(cli: Cli, *words: object) -> list[dict[str, str]]:
    outcome = cli("query", *words, "--format", "csv")
    assert outcome.status == 0, outcome
    return list(csv.DictReader(io.StringIO(outcome.stdout)))


def header(*sass: str) -> dict[str, Any]:
    return {**made.METADATA, "instructions": {str(i): {"sass": s} for i, s in enumerate(sass)}}


def smem(address: int, leading: int, stride: int, swizzle: int) -> int:
    return address >> 4 | leading >> 4 << 16 | stride >> 4 << 32 | swizzle << 62


@pytest.mark.parametrize(
    ("sass", "size", "types", "flops"),
    [
        ("HMMA.16816.F32.BF16 R4, R8, R12, R4 ;", "16 8 16", "BF16 BF16 F32", 4096),
        ("HMMA.1688.F16 R4, R8, R12, R4 ;", "16 8 8", "F16 F16 F16", 2048),
        ("HMMA.1688.F32.TF32 R4, R8, R12, R4 ;", "16 8 8", "TF32 TF32 F32", 2048),
        ("IMMA.16832.U8.S8 R4, R8, R12, R4 ;", "16 8 32", "U8 S8 S32", 8192),
        ("DMMA.8x8x4 R4, R8, R12, R4 ;", "8 8 4", "F64 F64 F64", 512),
        ("BMMA.168256.XOR.POPC R4, R8, R12, R4 ;", "16 8 256", "B1 B1 S32", 65536),
        ("QGMMA.64x8x32.F32.E4M3.E5M2 R24, gdesc[UR4], RZ ;", "64 8 32", "E4M3 E5M2 F32", 8192),
    ],
)
def test_shapes_and_formats(
    cli: Cli, tmp_path: Path, sass: str, size: str, types: str, flops: int
) -> None:
    path = made.ndjson(tmp_path / "t", header(sass), *made.opcodes([0], [0]))
    (row,) = rows(cli, path, "--table", "mma")
    assert " ".join(row[n] for n in "mnk") == size
    assert " ".join(row[n] for n in ("a_type", "b_type", "d_type")) == types
    assert int(row["flops"]) == flops and row["sparse"] == "False"


def group(sass: str, warps: int, *uregs: int) -> list[Any]:
    """Records with and without registers of each execution."""
    record = made.common("reg_trace", 0, 0, regs=[[0] * 32], regs_indices=[24], uregs=[*uregs])
    return [
        header(sass),
        *({**record, "warp": warp, "uregs_indices": [4, 5, 6, 7]} for warp in range(warps)),
        *made.opcodes(range(warps), [0]),
    ]


def test_descriptors_of_shared_memory(cli: Cli, tmp_path: Path) -> None:
    a, b = smem(0x8400, 16, 1024, 1), smem(0x2000, 4096, 512, 2)
    words = (a & 0xFFFFFFFF, a >> 32, b & 0xFFFFFFFF, b >> 32)
    both = group("HGMMA.64x128x16.F32.BF16 R24, gdesc[UR4], R24, gsb0 ;", 4, *words)
    (row,) = rows(cli, made.ndjson(tmp_path / "both", *both), "--table", "mma")
    assert (row["records"], row["warps"], int(row["flops"])) == ("4", "4", 2 * 64 * 128 * 16)
    found = [row[f"a_{n}"] for n in ("in", "address", "leading", "stride", "swizzle")]
    assert found == ["shared memory", str(0x8400), "16", "1024", "128B"]
    found = [row[f"b_{n}"] for n in ("in", "address", "leading", "stride", "swizzle")]
    assert found == ["shared memory", str(0x2000), "4096", "512", "64B"]
    one = group("HGMMA.64x128x16.F32 R24, R32, gdesc[UR4].tnspB, R24, gsb0 ;", 4, *words)
    (row,) = rows(cli, made.ndjson(tmp_path / "one", *one), "--table", "mma")
    assert (row["a_in"], row["a_address"], row["b_address"]) == ("registers", "", str(0x2000))


def test_instructions_on_tensor_memory(cli: Cli, tmp_path: Path) -> None:
    shape = 1 << 4 | 1 << 7 | 1 << 10 | 256 >> 3 << 17 | 128 >> 4 << 24
    registers = {4: 0x10, 5: 2 << 29, 6: 0x20, 7: 4 << 29, 8: 0, 9: 0, 15: shape}
    sass = "UTCHMMA gdesc[UR4], gdesc[UR6], tmem[UR8], tmem[UR14], idesc[UR15], UPT ;"
    record = made.common("reg_trace", 0, 0, regs=[], uregs=[*registers.values()])
    path = made.ndjson(tmp_path / "t", header(sass), {**record, "uregs_indices": [*registers]})
    (row,) = rows(cli, path, "--table", "mma")
    assert [row[n] for n in "mnk"] == ["128", "256", "16"]
    assert (row["a_type"], row["d_type"], row["a_swizzle"]) == ("BF16", "F32", "128B")
    assert (row["a_address"], row["b_swizzle"]) == ("256", "64B")


def test_tensor_copies(cli: Cli, tmp_path: Path) -> None:
    sass = ("NOP ;", "NOP ;", "UTMALDG.2D [UR8], [UR4] ;", "NOP ;", "UTMASTG.2D [UR8], [UR4] ;")
    store = {**made.TMA, "opcode_id": 4, "warp": 1, "cta": [1, 0, 0]}
    path = made.ndjson(tmp_path / "t", header(*sass), made.TMA, {**made.TMA, "warp": 5}, store)
    load, stored = rows(cli, path, "--table", "tma")
    assert [load[n] for n in ("does", "records", "bytes", "first")] == [
        "load",
        "2",
        "1024",
        "[-1,8]",
    ]
    sizes = [load[n] for n in ("global_dim", "global_strides", "box_dim")]
    assert sizes == ["[64,64]", "[128]", "[64,8]"]
    assert load["encoded_by"] == (
        "cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2, (void *)0x7f0000010000, "
        "{64, 64}, {128}, {64, 8}, {1, 1}, CU_TENSOR_MAP_INTERLEAVE_NONE, "
        "CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_NONE, "
        "CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE)"
    )
    assert load["source"] == (
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [shared],"
        " [map, {c0, c1}], [barrier]"
    )
    assert (stored["does"], stored["blocks"]) == ("store", "1")
    assert stored["source"] == (
        "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [map, {c0, c1}], [shared]"
    )
    bad = {**made.TMA, "tma_transfer_info": {"tensor": [1]}}
    outcome = cli("query", made.ndjson(tmp_path / "b", header(*sass), bad), "--table", "tma")
    assert outcome.status == 2 and "line 2: tma_transfer_info: expected" in outcome.stderr


# ---- instructions per cycle ----


def proton(path: Path, *scopes: tuple[int, int, str, float, float]) -> Path:
    """Scopes: block, warp, name, begin and duration in cycles."""
    events = [
        {
            "name": name,
            "cat": "kernel",
            "ph": "X",
            "pid": f"copy Core{cta} CTA{cta} [cycles]",
            "tid": f"warp {warp} (line:0)",
            "ts": begin / 1000,
            "dur": cycles / 1000,
        }
        for cta, warp, name, begin, cycles in scopes
    ]
    other = {"name": "process_name", "ph": "M", "pid": "x", "args": {}}
    path.write_text(json.dumps({"traceEvents": [other, *events]}))
    return path


def test_regions_get_cycles_of_proton(cli: Cli, tmp_path: Path) -> None:
    path = made.ndjson(tmp_path / "t", made.METADATA, *made.opcodes())
    scopes = [(warp // 2, warp % 2, "load", 500.0 + warp, 30.0 + warp) for warp in range(4)]
    times = proton(tmp_path / "p", *scopes)
    found = rows(cli, path, "--table", "ipc", "--times", times)
    assert [row["warp"] for row in found] == ["0", "1", "2", "3"]
    assert [row["local_warp"] for row in found] == ["0", "1", "0", "1"]
    last = found[3]
    assert (last["core"], last["cta"], last["region"], last["name"]) == ("1", "1", "0", "load")
    assert (float(last["cycles"]), last["instructions"]) == (33.0, "3")
    assert float(last["ipc"]) == pytest.approx(3 / 33)


def test_scopes_and_regions_that_differ_are_told(cli: Cli, tmp_path: Path) -> None:
    path = made.ndjson(tmp_path / "t", made.METADATA, *made.opcodes([0]))
    times = proton(tmp_path / "p", (0, 0, "a", 1, 2), (0, 0, "b", 4, 2))
    outcome = cli("query", path, "--table", "ipc", "--times", times)
    assert outcome.status == 0
    assert "of 1 warps differ in number (warp 0: 2 scopes, 1 regions)" in outcome.stderr


@pytest.mark.parametrize(
    ("contents", "reason"),
    [
        ("{", "no JSON"),
        ("[3]", "no Chrome trace"),
        ('{"traceEvents": []}', "no scopes of warps"),
        ('[{"pid": "Core1 CTA1", "dur": "x"}]', "expected numbers"),
    ],
)
def test_files_that_are_no_traces_of_proton(
    cli: Cli, tmp_path: Path, contents: str, reason: str
) -> None:
    path = made.ndjson(tmp_path / "t", made.METADATA, *made.opcodes([0]))
    (tmp_path / "p").write_text(contents)
    outcome = cli("query", path, "--table", "ipc", "--times", tmp_path / "p")
    assert outcome.status == 2 and reason in outcome.stderr and outcome.stderr.count("\n") == 1
    assert cli("query", path, "--table", "ipc").stderr.endswith("a Chrome trace of Proton\n")
    assert cli("query", path, "--times", "x").stderr.endswith("--times: needs --table ipc\n")


def timed_run(path: Path, counted: bool) -> Path:
    """Two launches in a range, the second in an inner range: counted, or with GPU times."""
    writer = Writer(path)
    writer.function(0, "step")
    trace = TraceWriter(writer)
    for number in range(2):
        message = writer.string(("train", "inner")[number])
        writer.event("range-push", id=message, dst=NO_ID)
        if counted:
            trace.launch(kinds=("count",))
            trace.count(3, 1000, 32000, number)
            trace.end(number)
        else:
            writer.activity("launch", writer.event("launch", "cuLaunchKernel", id=0), 0, 500)
    if counted:
        trace.chunk()
    device = {"ordinal": 0, "name": "x", "memory": 1, "clock_khz": 2_000_000}
    writer.close(devices=[{**device, "multiprocessors": 4}])
    return path


def test_ranges_get_cycles_of_a_timed_run(cli: Cli, tmp_path: Path) -> None:
    counted, timed = timed_run(tmp_path / "a", True), timed_run(tmp_path / "b", False)
    found = rows(cli, counted, "--table", "ipc", "--times", timed)
    assert [row["name"] for row in found] == ["train", "train/inner"]
    assert [row["instructions"] for row in found] == ["2000", "1000"]
    assert [float(row["cycles"]) for row in found] == [8000, 4000]
    assert float(found[0]["ipc"]) == pytest.approx(2000 / 8000)
    outcome = cli("query", counted, "--table", "ipc", "--times", counted)
    assert outcome.status == 2 and "no GPU times in NVTX ranges" in outcome.stderr
    outcome = cli("query", counted, "--table", "histogram")
    assert outcome.status == 2 and "counts and heartbeats have no records" in outcome.stderr
