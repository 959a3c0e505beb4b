"""Instruction traces of runs: queried, exported as CUTracer's files, validated and compared."""

from __future__ import annotations

import io
import shutil
from pathlib import Path

import numpy as np
import orjson
import pandas as pd
import pytest

import ttanalyze as tt
from tests import support
from tests.rundir import Writer, record, seal
from tests.trace_writer import TraceWriter
from tests.traced_run import BEGIN, PARAM, RET, begun, warp, written
from ttanalyze.format import layout
from ttanalyze.output import tables
from ttanalyze.traces.instructions import SIMULATOR
from ttanalyze.verbs.query.native import TracedRun
from ttanalyze.verbs.query.trace_columns import LISTS, RECORDED, WORKED_OUT
from ttanalyze.verbs.race.exact import load

TRACE_COLUMNS = (*RECORDED, *WORKED_OUT)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("traced") / "run")


def query(*options: str | Path) -> pd.DataFrame:
    done = support.ttanalyze("query", *options, "--format", "csv")
    return pd.read_csv(io.StringIO(done.stdout))


def test_records_are_rows(run: Path) -> None:
    found = query(run, "--table", "trace", "--launch", "2", "--head", "10")
    assert found["launch"].tolist() == [1] * 10
    assert found["index"].tolist() == [*range(10)]
    assert found["kind"].tolist()[4:7] == ["opcode_only", "reg_trace", "mem_addr_trace"]
    assert found["opcode_id"].tolist()[:2] == [PARAM, BEGIN]
    load = found.iloc[7]
    assert (load["mem_space"], load["is_load"], load["access_size"]) == (1, True, 4)
    assert orjson.loads(load["addrs"])[:3] == [0x7000, 0x7004, 0x7008]
    assert orjson.loads(load["values"])[2] == [6]


def test_records_of_processes_are_told_apart(run: Path, tmp_path: Path) -> None:
    """Each process numbers its launches from 0."""
    for name in ("p0", "p1"):
        shutil.copytree(run / "p0", tmp_path / "both" / name)
    one = support.ttanalyze("query", run, "--table", "trace", "--head", "1").stdout
    both = support.ttanalyze("query", tmp_path / "both", "--table", "trace", "--head", "1").stdout
    assert "process" not in one.splitlines()[0] and "process" in both.splitlines()[0]
    fields = ("--table", "trace", "--fields")
    found = query(tmp_path / "both", *fields, "process,launch,pc")
    alone = query(run, *fields, "process,launch,pc")
    assert alone["process"].unique().tolist() == [0]
    for process in (0, 1):
        rows = found[found["process"] == process].assign(process=0)
        pd.testing.assert_frame_equal(rows.reset_index(drop=True), alone)
    slow = query(tmp_path / "both", *fields, "process,tma_rank")  # read record by record
    assert slow["process"].tolist() == found["process"].tolist()


def test_verbs_say_which_processes_they_leave_out(run: Path, tmp_path: Path) -> None:
    for name in ("p0", "p1"):
        shutil.copytree(run / "p0", tmp_path / "both" / name)
    said = "only process 0 was examined: 1 other process has traced launches; --process 1"
    for verb in (("memcheck",), ("race", "--exact")):
        assert said in support.ttanalyze(*verb, tmp_path / "both").stderr
        assert "examined" not in support.ttanalyze(*verb, run).stderr
        chosen = support.ttanalyze(*verb, tmp_path / "both", "--process", "1")
        assert "examined" not in chosen.stderr, chosen


def test_addresses_are_shown_as_a_first_one_and_a_distance(run: Path) -> None:
    shown = support.ttanalyze("query", run, "--table", "trace", "--head", "20").stdout
    assert "addrs" in shown.splitlines()[0] and "0x7000 +4 x32" in shown
    lanes = {
        "0x7f00 +4 x32": [0x7F00 + 4 * lane for lane in range(32)],
        "0x7f00 +8 x16": [0x7F00 + 4 * lane if lane % 2 == 0 else 0 for lane in range(32)],
        "0x7f7c -4 x32": [0x7F7C - 4 * lane for lane in range(32)],
        "0x7f00 x32": [0x7F00] * 32,
        "0x0 +4 x32": [4 * lane for lane in range(32)],
        "0x7f00 +4 x8, 0x9000 x8": [0x7F00 + 4 * lane for lane in range(8)]
        + [0x9000] * 8
        + [0] * 16,
        "0x1, 0x5, 0x6, 0x9 and 28 more": [1, 5, 6, 9, *(lane**3 for lane in range(20, 48))],
        "": [0] * 32,
    }
    column = pd.Series([np.array(one, "u8") for one in lanes.values()], name="addrs")
    assert tables.cells(column) == [*lanes]


def test_info_counts_what_was_traced(run: Path) -> None:
    told = tt.info(tt.open(run)).processes[0].traced
    size = (run / "p0" / "trace.bin").stat().st_size
    assert told == {"launches": 2, "bytes": size, "refused": {}}
    assert "traced   2 launches" in support.ttanalyze("info", run).stdout


def test_cycles_come_from_a_run_or_from_proton(run: Path) -> None:
    done = support.ttanalyze("query", run, "--table", "ipc")
    assert "needs --times, a run of it with --timeline" in done.stderr


def test_records_are_filtered(run: Path) -> None:
    options = ("--filter", "warp=3;opcode=ld", "--fields", "cta_x,warp,sass,category,active_mask")
    found = query(run, "--table", "trace", "--launch", "1", *options)
    assert found.drop_duplicates().values.tolist() == [
        [1, 3, "ld.param.u64 %rd1, [p]", "memory", 0xFFFFFFFF],
        [1, 3, "ld.global.u32 %r1, [%rd1]", "memory", 0xFFFFFFFF],
        [1, 3, "ld.global.u32 %r1, [%rd1]", "memory", 0xFF],
    ]


def test_counts_warps_and_histogram(run: Path) -> None:
    counts = query(run, "--table", "trace-counts")
    assert counts["seq"].tolist() == [1, 2]
    row = counts[["sass", "warps", "threads"]].iloc[0].tolist()
    assert row == ["ld.global.u32 %r1, [%rd1]", 2, 64]
    told = query(run, "--table", "instructions", "--filter", "opcode == 'ld'")
    assert set(told["category"]) == {"memory"}
    warps = query(run, "--table", "warps", "--launch", "1")
    assert warps["state"].tolist() == ["completed", "completed", "missing"]
    assert warps["warp"].tolist() == [0, 3, 1]
    regions = query(run, "--table", "histogram", "--launch", "1", "--filter", "warp == 0")
    assert regions["instruction"].tolist() == ["ld.global.u32", "mov.u32", "st.global.u32"]
    assert regions["cycles"].tolist() == [21] * 3
    assert regions["ipc"].tolist() == pytest.approx([3 / 21] * 3)


@pytest.mark.sampled
@pytest.mark.parametrize("compress", [False, True])
def test_an_export_is_the_same_trace(run: Path, tmp_path: Path, compress: bool) -> None:
    path = tmp_path / "trace.ndjson"
    options = ("--table", "trace", "--format", "cutracer", "-o", path)
    support.ttanalyze("query", run, *options, *(("--compress",) if compress else ()))
    assert support.ttanalyze("validate", path).stdout == f"{path}: trace, 42 records: good\n"
    same = support.ttanalyze("compare", run, path)
    assert (same.status, same.stdout.splitlines()[-1]) == (0, "the same")
    fields = ("--fields", "kernel,launch,warp,opcode_id,sass,addrs,values,regs,active_mask")
    assert query(run, "--table", "trace", *fields).equals(query(path, *fields))


def test_an_export_names_the_kernel_and_its_instructions(run: Path, tmp_path: Path) -> None:
    path = tmp_path / "trace.ndjson"
    options = ("--table", "trace", "--launch", "2", "--head", "3", "--format", "cutracer")
    support.ttanalyze("query", run, *options, "-o", path)
    head, *rest = map(orjson.loads, path.read_bytes().splitlines())
    assert (head["type"], head["mangled_name"], head["nregs"]) == ("kernel_metadata", "copy", 24)
    assert (head["grid"], head["block"]) == ([2, 1, 1], [64, 1, 1])
    assert head["instructions"][str(RET)] == {"sass": "ret ;"}
    assert len(rest) == 3


@pytest.mark.long
def test_an_export_as_text(run: Path, tmp_path: Path) -> None:
    path = tmp_path / "trace.log"
    options = ("--table", "trace", "--format", "cutracer-text", "-o", path)
    done = support.ttanalyze("query", run, *options)
    assert "text traces have no mem_value_trace: left out" in done.stderr
    assert support.ttanalyze("validate", path).status == 0
    same = support.ttanalyze("compare", path, run)
    assert (same.status, "the same" in same.stdout.splitlines()) == (0, True)


def test_columns_are_the_same_whether_payloads_are_read_or_not(run: Path) -> None:
    columns = [c for c in TRACE_COLUMNS if c not in LISTS and not c.startswith("tma_")]
    opened = TracedRun(tt.open(run))
    for column in columns:
        alone = pd.concat([*opened.pieces([column], None)], ignore_index=True)
        among = pd.concat([*opened.pieces([column, "addrs"], None)], ignore_index=True)
        assert str(alone[column].dtype) == str(among[column].dtype), column
        assert alone[column].astype(object).equals(among[column].astype(object)), column


def test_launches_have_their_clusters(tmp_path: Path) -> None:
    trace = begun(tmp_path / "run")
    trace.launch(grid=(4, 1, 1), cluster=(2, 1, 1))
    trace.run.event("sync", "cuCtxSynchronize")
    trace.launch()
    trace.run.close()
    fields = ("--fields", "grid_x,cluster_x,cluster_y,cluster_z")
    found = query(tmp_path / "run", "--table", "traced", *fields)
    assert found.values.tolist() == [[4, 2, 1, 1], [1, 0, 0, 0]]


def test_im2col_maps_are_decoded(tmp_path: Path) -> None:
    trace = begun(tmp_path / "run")
    trace.launch(kinds=("tma",))
    bits = [*range(1, 17)]
    made = record(layout.TENSOR_MAP, address=0x7000, rank=4, mode=1, data_type=6, swizzle=3)
    for name, values in {
        "map": bits,
        "sizes": [64, 32, 16, 2, 0],
        "strides": [128, 4096, 65536, 0],
        "box": [64, 128, 0xFFFFFFFF, 0x0002FFFE, 0],
        "steps": [1, 2, 2, 1, 0],
    }.items():
        made[name] = values
    trace.run.append("tensormaps.bin", seal(made))
    trace.tma(BEGIN, 0x9000, barrier=8, coordinates=(0, -1, -2, 1), tensor_map=bits)
    trace.end()
    trace.chunk()
    trace.run.close(devices=[{"ordinal": 0, "name": SIMULATOR, "memory": 1 << 30}])
    done = support.ttanalyze("query", tmp_path / "run", "--table", "tma", "--format", "json")
    (row,) = orjson.loads(done.stdout)
    assert (row["mode"], row["bytes"], row["first"]) == ("IM2COL", 16384, [0, -1, -2, 1])
    assert row["pixel_box_lower_corner"] == [-1, -2]
    assert row["pixel_box_upper_corner"] == [-1, 2]
    assert row["encoded_by"] == (
        "cuTensorMapEncodeIm2col(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 4, (void *)0x7000, "
        "{64, 32, 16, 2}, {128, 4096, 65536}, {-1, -2}, {-1, 2}, 64, 128, {1, 2, 2, 1}, "
        "CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, "
        "CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE)"
    )


def test_race_knows_the_cluster_of_each_block(tmp_path: Path) -> None:
    trace = begun(tmp_path / "run")
    trace.launch(kinds=("values", "opcode"), grid=(2, 2, 1), cluster=(1, 2, 1))
    trace.opcode(BEGIN)
    trace.end()
    trace.chunk()
    trace.run.close(devices=[{"ordinal": 0, "name": SIMULATOR, "memory": 1 << 30}])
    (process,) = tt.open(tmp_path / "run").processes
    launch = load.traced(process, 0, load.survey(process)[0]).launch
    assert launch.cluster_of(np.arange(4)).tolist() == [0, 1, 0, 1]


def test_different_traces(run: Path, tmp_path: Path) -> None:
    trace = begun(tmp_path)
    for launch in range(2):
        trace.launch(grid=(2, 1, 1), block=(64, 1, 1))
        warp(trace, launch)
        warp(trace, launch, block=(1, 0, 0), warp=1)
    trace.records[-2] = trace.records[-2][:-4] + b"\1\0\0\0"  # what the last lane stores
    trace.chunk()
    trace.run.close(devices=[{"ordinal": 0, "name": SIMULATOR, "memory": 1 << 30}])
    done = support.ttanalyze("compare", run, tmp_path)
    assert done.status == 1
    assert "values[31][0]" in done.stdout


def test_a_trace_is_validated(run: Path, tmp_path: Path) -> None:
    done = support.ttanalyze("validate", run)
    assert (done.status, done.stdout) == (0, f"{run}: instruction-trace, 42 records: good\n")
    trace = begun(tmp_path / "bad")
    trace.launch()
    trace.opcode(3, launch=1)
    trace.chunk()
    trace.run.close()
    done = support.ttanalyze("validate", tmp_path / "bad")
    wrong = "p0/trace.bin: offset 96: a launch that traced.bin lacks"
    assert (done.status, done.stdout) == (1, f"{tmp_path / 'bad'}: {wrong}\n")
    Writer(tmp_path / "none").close()
    done = support.ttanalyze("validate", tmp_path / "none")
    assert done.status == 2
    assert "no launch was to be traced; nothing was checked" in done.stderr


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--table", "trace", "--launch", "7"), "no traced launch 7: see query RUN --table traced"),
        (("--launch", "1"), "--launch: needs --table trace, trace-counts, instructions, warps"),
        (("--format", "cutracer"), "--format cutracer: needs one run and --table trace"),
        (("--table", "trace", "--format", "cutracer", "--filter", "warp=1"), "takes only --head"),
        (("--table", "traces"), "digests, trace, trace-counts, instructions, warps"),
    ],
)
def test_wrong_requests(run: Path, options: tuple[str, ...], reason: str) -> None:
    done = support.ttanalyze("query", run, *options)
    assert done.status == 2
    assert reason in done.stderr
    assert "Traceback" not in done.stderr


def test_code_that_the_run_lacks_is_said(tmp_path: Path) -> None:
    run = Writer(tmp_path)
    run.function(0, "unsaved")
    trace = TraceWriter(run)
    trace.launch()
    trace.opcode(5)
    trace.chunk()
    run.close()
    done = support.ttanalyze("query", tmp_path, "--table", "trace", "--fields", "pc,sass")
    assert done.stdout.split() == ["pc", "sass", "80", "-"]
    assert "the code of unsaved is not in the run" in done.stderr


@pytest.mark.long
def test_many_launches_are_read_once_each(tmp_path: Path) -> None:
    trace = begun(tmp_path)
    for launch in range(200):
        trace.launch()
        trace.opcode(RET, launch=launch)
        trace.end(launch)
        trace.chunk()
    trace.run.close(devices=[{"ordinal": 0, "name": SIMULATOR, "memory": 1 << 30}])
    found = query(tmp_path, "--table", "trace", "--fields", "launch,index,kind")
    assert found["launch"].tolist() == [*range(200)]
