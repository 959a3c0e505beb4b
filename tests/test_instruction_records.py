"""Traces of instructions in a run: launches, records, and files that are wrong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import ttanalyze as tt
from tests.rundir import Writer, edit, record, reseal_records, seal
from tests.trace_writer import TraceWriter, chunk
from ttanalyze.format import layout
from ttanalyze.format.instruction_traces import KIND, TraceRecords
from ttanalyze.format.layout import HEADER_SIZE

LANES = np.arange(32)


def begun(path: Path) -> TraceWriter:
    run = Writer(path)
    run.function(0, "scale")
    trace = TraceWriter(run)
    trace.launch(kinds=["addresses", "values"], grid=(4, 1, 1), block=(64, 1, 1))
    return trace


def read(path: Path, **which: object) -> TraceRecords:
    """The records of a trace of one chunk."""
    (records,) = tt.open(path).trace_records(**which)  # type: ignore[arg-type]
    return records


def test_traced_launches(tmp_path: Path) -> None:
    trace = begun(tmp_path)
    trace.launch(kinds=["count"], refused="code", text="it uses texture references")
    trace.launch(kinds=["opcode"])
    trace.opcode(1)
    trace.opcode(2, launch=2)
    trace.chunk()
    trace.opcode(3)
    trace.end(lost=5)
    trace.chunk()
    trace.run.close()
    found = tt.open(tmp_path).traced
    assert found["launch"].tolist() == [0, 1, 2]
    assert found["seq"].tolist() == [1, 2, 3]
    assert found["kernel"].tolist() == ["scale"] * 3
    assert found["kinds"].tolist() == ["addresses,values", "count", "opcode"]
    assert found["refused"].tolist() == ["none", "code", "none"]
    assert found["reason"].tolist()[1] == "it uses texture references"
    assert found["grid_x"].tolist() == [4, 1, 1]
    assert found["block_x"].tolist() == [64, 32, 32]
    assert found["records"].tolist() == [2, 0, 1]
    assert found["lost"].tolist() == [5, 0, 0]
    assert found["complete"].tolist() == [True, False, False]


def test_a_run_without_a_trace(tmp_path: Path) -> None:
    Writer(tmp_path).close()
    run = tt.open(tmp_path)
    assert len(run.traced) == 0
    assert list(run.trace_records()) == []


def test_addresses_of_all_lanes(tmp_path: Path) -> None:
    trace = begun(tmp_path)
    scattered = 0x7F0000000000 + 128 * ((LANES * 7) % 32)
    trace.addresses(10, 0x1000, stride=4)
    trace.addresses(11, scattered, mask=0x80000001)
    trace.addresses(12, 0x2000, stride=-16)
    trace.values(13, 0x3000, [LANES], stride=4)
    trace.chunk()
    trace.run.close()
    found = read(tmp_path).addresses()
    assert found.shape == (4, 32)
    assert found.dtype == np.uint64
    assert found[0].tolist() == (0x1000 + 4 * LANES).tolist()
    assert found[1].nonzero()[0].tolist() == [0, 31]
    assert found[1][[0, 31]].tolist() == scattered[[0, 31]].tolist()
    assert found[2].tolist() == (0x2000 - 16 * LANES).tolist()
    assert found[3].tolist() == (0x3000 + 4 * LANES).tolist()


def test_addresses_are_modulo_2_to_the_64(tmp_path: Path) -> None:
    trace = begun(tmp_path)
    trace.addresses(1, (1 << 64) - 4, stride=4)
    trace.chunk()
    trace.run.close()
    assert read(tmp_path).addresses()[0, :3].tolist() == [(1 << 64) - 4, 0, 4]


def test_values_of_several_sizes(tmp_path: Path) -> None:
    trace = begun(tmp_path)
    trace.values(1, 0x1000, [LANES], stride=4)
    trace.values(2, 0x1000 + LANES, [LANES + 100 * word for word in range(4)], mask=3)
    trace.chunk()
    trace.run.close()
    records = read(tmp_path)
    assert records.words.tolist() == [1, 4]
    found = records.values()
    assert found.shape == (2, 4, 32)
    assert found.dtype == np.uint32
    assert found[0, 0].tolist() == LANES.tolist()
    assert not found[0, 1:].any()
    assert found[1, :, :2].tolist() == [[0, 1], [100, 101], [200, 201], [300, 301]]
    assert not found[1, :, 2:].any()
    assert records.values(words=1).shape == (2, 1, 32)


def test_registers_and_uniform_registers(tmp_path: Path) -> None:
    trace = begun(tmp_path)
    trace.registers(1, [LANES, LANES + 50], [7, 8, 9])
    trace.registers(2, [], [5])
    trace.chunk()
    trace.run.close()
    records = read(tmp_path)
    assert records.registers().shape == (2, 2, 32)
    assert records.registers()[0, 1].tolist() == (LANES + 50).tolist()
    assert records.uniform_registers()[:, :3].tolist() == [[7, 8, 9], [5, 0, 0]]


def test_tensor_copies_and_counts(tmp_path: Path) -> None:
    trace = begun(tmp_path)
    trace.tma(1, 0x7000, 0x40, (-1, 2, 3), blocks=5)
    trace.tma(1, 0x7080, 0, (4, 5), tensor_map=range(16))
    trace.count(2, 3, 1 << 40)
    trace.end()
    trace.chunk()
    trace.run.close()
    copies, counts = (read(tmp_path, kinds=[kind]) for kind in ("tma", "count"))
    copy, mapped = copies.tma().tolist()
    assert (mapped[0], mapped[2].tolist()) == (0x7080, [4, 5, 0, 0, 0])
    assert copies.tensor_maps().tolist() == [[0] * 16, [*range(16)]]
    assert (copy[0], copy[1], copy[2].tolist(), copy[3]) == (0x7000, 0x40, [-1, 2, 3, 0, 0], 5)
    assert counts.counts().tolist() == [[3, 1 << 40]]
    assert read(tmp_path, kinds=["end"]).counts().tolist() == [[3, 0]]


@pytest.mark.parametrize(
    ("member", "value", "reason"),
    [
        ("rank", 0, "unknown rank 0"),
        ("rank", 6, "unknown rank 6"),
        ("mode", 2, "unknown mode 2"),
        ("box", [1 << 31, 1 << 31, 1, 1, 1], "a box that no shared memory has room for"),
    ],
)
def test_impossible_tensor_maps_are_refused(
    member: str, value: int | list[int], reason: str, tmp_path: Path
) -> None:
    trace = begun(tmp_path)
    members = {"rank": 2, "box": [8, 8, 0, 0, 0], "steps": [1, 1, 0, 0, 0]}
    for changed in ({}, {member: value}):
        made = record(layout.TENSOR_MAP, **(members | changed))
        trace.run.append("tensormaps.bin", seal(made))
    trace.run.close()
    assert layout.TENSOR_MAP.fields is not None
    where = HEADER_SIZE + layout.TENSOR_MAP.itemsize + layout.TENSOR_MAP.fields[member][1]
    with pytest.raises(tt.FormatError, match=f"tensormaps.bin: offset {where}: {reason}"):
        _ = tt.open(tmp_path).processes[0].instruction_trace.tensor_maps


def test_records_have_place_lanes_and_order(tmp_path: Path) -> None:
    trace = begun(tmp_path)
    trace.opcode(4, block=(70000, 2, 3), warp=1, clock=77, mask=0xF0)
    trace.chunk()
    trace.opcode(5)
    trace.chunk()
    trace.run.close()
    first, second = tt.open(tmp_path).trace_records()
    head = first.heads[0]
    where = [int(head[name]) for name in ("block_x", "block_y", "block_z", "warp", "clock")]
    assert where == [70000, 2, 3, 1, 77]
    assert first.lanes[0].nonzero()[0].tolist() == [4, 5, 6, 7]
    assert first.kinds.tolist() == second.kinds.tolist() == [KIND["opcode"]]
    assert [*first.numbers.tolist(), *second.numbers.tolist()] == [0, 1]


def test_records_are_selected(tmp_path: Path) -> None:
    trace = begun(tmp_path)
    trace.launch()
    for instruction in range(6):
        trace.opcode(instruction, launch=instruction % 2)
        trace.addresses(instruction, 0, stride=instruction)
    trace.chunk()
    trace.run.close()
    assert read(tmp_path, launch=1).heads["instruction"].tolist() == [1, 3, 5]
    assert len(read(tmp_path, kinds=["opcode", "addresses"])) == 12
    some = read(tmp_path, kinds=["addresses"], instructions=range(2, 4))
    assert some.addresses()[:, 1].tolist() == [2, 3]
    assert list(tt.open(tmp_path).trace_records(instructions=[9])) == []
    with pytest.raises(tt.Error, match="no kind opcodes of trace records: there are opcode, "):
        next(tt.open(tmp_path).trace_records(kinds=["opcodes"]))
    with pytest.raises(tt.Error, match="a record of kind opcode has no addresses"):
        read(tmp_path, kinds=["opcode"]).addresses()


def test_records_of_all_sizes_in_any_order(tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    trace = begun(tmp_path)
    wanted = []
    for instruction in random.integers(0, 1000, 3000).tolist():
        count = int(random.integers(0, 4))
        trace.registers(instruction, np.full((count, 32), instruction), [instruction])
        wanted.append((instruction, count))
    trace.chunk()
    trace.run.close()
    records = read(tmp_path)
    assert records.heads["instruction"].tolist() == [i for i, _ in wanted]
    registers = records.registers()
    assert (registers[:, :, 5] != 0).sum(axis=1).tolist() == [c if i else 0 for i, c in wanted]
    assert records.uniform_registers()[:, 0].tolist() == [i for i, _ in wanted]


# ---- files that are wrong ----


def wrong_kind(trace: TraceWriter) -> None:
    trace.records.append(np.array([8 | 4 << 16, *[0] * 7], "<u4").tobytes())


def wrong_size(trace: TraceWriter) -> None:
    trace.add("count", 3, bytes(24))


def wrong_values(trace: TraceWriter) -> None:
    trace.add("values", 3, bytes(32 * 8))


def no_size(trace: TraceWriter) -> None:
    trace.records.append(np.array([KIND["opcode"], *[0] * 7], "<u4").tobytes())


def too_long(trace: TraceWriter) -> None:
    trace.records.append(np.array([KIND["registers"] | 40 << 16, *[0] * 7], "<u4").tobytes())


def cut_head(trace: TraceWriter) -> None:
    trace.records.append(np.array([KIND["opcode"] | 4 << 16, 0], "<u4").tobytes())


def wrong_launch(trace: TraceWriter) -> None:
    trace.opcode(3, launch=1)


@pytest.mark.parametrize(
    ("add", "reason", "where"),
    [
        (wrong_kind, "unknown kind of a record", 32),
        (wrong_size, "the size of a record does not fit its kind", 32),
        (wrong_values, "the size of a record does not fit its kind", 32),
        (no_size, "the size of a record does not fit its kind", 32),
        (too_long, "the chunk has 2 records that do not fill it, expected 2", 0),
        (cut_head, "the record does not fit the chunk", 32),
        (wrong_launch, "a launch that traced.bin lacks", 32),
    ],
)
def test_wrong_records(
    tmp_path: Path, add: Callable[[TraceWriter], None], reason: str, where: int
) -> None:
    trace = begun(tmp_path)
    trace.opcode(1)
    add(trace)
    at = trace.chunk() + 32
    trace.run.close()
    with pytest.raises(tt.FormatError) as error:
        list(tt.open(tmp_path).trace_records())
    assert str(error.value) == f"{tmp_path}/p0/trace.bin: offset {at + where}: {reason}"


def test_a_chunk_with_another_number_of_records(tmp_path: Path) -> None:
    trace = begun(tmp_path)
    trace.opcode(1)
    trace.run.append("trace.bin", chunk(trace.records[0], 2))
    trace.run.close()
    with pytest.raises(tt.FormatError, match="the chunk has 1 records, expected 2"):
        list(tt.open(tmp_path).trace_records())


@pytest.mark.parametrize(
    ("offset", "reason"),
    [
        (0, "offset 64: the chunk does not match its check"),
        (40, "offset 64: the records do not match their check"),
    ],
)
def test_damaged_chunks(tmp_path: Path, offset: int, reason: str) -> None:
    trace = begun(tmp_path)
    trace.opcode(1)
    at = trace.chunk()
    trace.opcode(2)
    trace.chunk()
    trace.run.close()
    path = trace.run.path / "trace.bin"
    raw = bytearray(path.read_bytes())
    raw[at + offset] ^= 1
    path.write_bytes(raw)
    with pytest.raises(tt.FormatError, match=reason):
        list(tt.open(tmp_path).trace_records())


@pytest.mark.parametrize("kept", [1, 31, 32, 60])
def test_the_last_chunk_of_a_killed_run(tmp_path: Path, kept: int) -> None:
    trace = begun(tmp_path)
    trace.opcode(1)
    trace.chunk()
    trace.opcode(2)
    path = trace.run.path / "trace.bin"
    trace.chunk()
    whole = path.read_bytes()
    path.write_bytes(whole[: HEADER_SIZE + 64 + kept])
    trace.run.close("running")
    (records,) = tt.open(tmp_path).trace_records()
    assert records.heads["instruction"].tolist() == [1]
    assert tt.open(tmp_path).traced["complete"].tolist() == [False]
    trace.run.close()
    with pytest.raises(tt.FormatError, match=f"offset {HEADER_SIZE + 64}: the file ends within"):
        list(tt.open(tmp_path).trace_records())


def test_a_damaged_chunk_inside_of_a_killed_run(tmp_path: Path) -> None:
    trace = begun(tmp_path)
    trace.opcode(1)
    trace.chunk()
    trace.opcode(2)
    trace.chunk()
    trace.run.close("running")
    path = trace.run.path / "trace.bin"
    raw = bytearray(path.read_bytes())
    raw[HEADER_SIZE + 50] ^= 1
    path.write_bytes(raw)
    with pytest.raises(tt.FormatError, match="offset 64: the records do not match their check"):
        list(tt.open(tmp_path).trace_records())


@pytest.mark.parametrize("told", [0, 2])
def test_an_end_with_another_number_of_records(tmp_path: Path, told: int) -> None:
    trace = begun(tmp_path)
    trace.opcode(1)
    trace.end(records=told)
    at = trace.chunk()
    trace.run.close()
    reason = f"offset {at + 64}: launch 0 ends with 1 records, expected {told}"
    with pytest.raises(tt.FormatError, match=reason):
        tt.open(tmp_path).traced  # noqa: B018


def test_an_unknown_reason_of_refusal(tmp_path: Path) -> None:
    trace = begun(tmp_path)
    trace.run.close()
    path = trace.run.path / "traced.bin"
    edit(path, 0, refused=99)
    reseal_records(path)
    with pytest.raises(tt.FormatError, match=r"traced.bin: offset 80: unknown refused 99"):
        tt.open(tmp_path).traced  # noqa: B018
    edit(path, 0, refused=0)
    with pytest.raises(tt.FormatError, match="offset 64: the record does not match its check"):
        tt.open(tmp_path).traced  # noqa: B018
