"""Kernel launches as records, and what is asked of files of them."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import ttanalyze as tt
from tests import recordings, support
from tests.rundir import Writer, edit, reseal_records, small_run
from tests.support import Cli
from ttanalyze.verbs import events
from ttanalyze.verbs.query import Query, query
from ttanalyze.verbs.query.files import EventsFile

APP = "/opt/app/train.py"
INNER = [("step", APP, 12), ("<module>", APP, 40)]
OUTER = [("<module>", APP, 41)]


@pytest.fixture
def launches(run_path: Path) -> Path:
    """Two processes: launches with stacks and without, into a graph, and of graphs."""
    w = Writer(run_path)
    w.function(0, "_ZN3lib4fillIfEEvPT_i")
    w.function(1, "scale")
    w.stack(1, INNER)
    w.stack(2, OUTER)
    w.born(0, b"abcd")
    params = {"params": w.piece(bytes(range(12))), "params_size": 12}
    shape = {"grid": [4, 2, 1], "block": [256, 1, 1], "shared": 100}
    w.event("launch", "cuLaunchKernel", id=0, stack=1, **shape, **params)
    w.event("launch", "cuLaunchKernel", id=1, stack=2, cluster=[2, 1, 1], stream=17)
    w.epoch("sync", "full")
    w.event("launch", "cuLaunchKernel", id=0, stack=1, flags=1, **shape)
    w.event("graph-launch", stack=2, stream=16)
    w.event("copy", stack=2)
    w.event("launch", "cuLaunchKernel", id=7, result=700)
    w.close()
    other = Writer(run_path, 1)
    other.function(0, "scale")
    other.stack(1, OUTER)
    other.event("launch", "cuLaunchKernel", id=0, stack=1)
    other.close()
    return run_path


def records_of(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_each_launch_is_a_record(cli: Cli, launches: Path) -> None:
    outcome = cli("events", launches)
    assert (outcome.status, outcome.stderr) == (0, "")
    found = records_of(outcome.stdout)
    first = next(record for record in found if record["type"] == "kernel_launch")
    step = first.pop("callstack_id")
    assert first == {
        "type": "kernel_launch",
        "kernel_launch_id": 0,
        "kernel_name": "void lib::fill<float>(float*, int)",
        "kernel_name_mangled": "_ZN3lib4fillIfEEvPT_i",
        "kernel_checksum": None,
        "grid": [4, 2, 1],
        "block": [256, 1, 1],
        "cluster": None,
        "nregs": 24,
        "shmem": 100,
        "stream_id": 1,
        "process": 0,
        "seq": 2,
        "time_ns": 2000,
        "context": 0,
        "device": 0,
        "thread": 4711,
        "flags": 0,
        "result": 0,
        "epoch": 0,
        "gpu_begin_ns": None,
        "gpu_end_ns": None,
        "params": bytes(range(12)).hex(),
        "graph": None,
        "node": None,
    }
    definition = next(record for record in found if record.get("callstack_id") == step)
    assert definition == {
        "type": "callstack_def",
        "callstack_id": step,
        "frames": [f"{APP}:40 in <module>", f"{APP}:12 in step"],
        "source": "python",
    }
    ids = [r.get("kernel_launch_id") for r in found if r["type"] != "callstack_def"]
    assert ids == [0, 1, None, None, 2, 3]  # across processes; not of what did not run


def test_each_stack_is_written_once_before_use(
    cli: Cli, launches: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = cli("events", launches).stdout
    for size in (1, 2, 1000):
        monkeypatch.setattr(events, "PIECE", size)
        seen: set[str] = set()
        for record in records_of(cli("events", launches).stdout):
            if record["type"] == "callstack_def":
                assert record["callstack_id"] not in seen
                seen.add(record["callstack_id"])
            else:
                assert record["callstack_id"] in {*seen, None}
        assert len(seen) == 2  # the other process's is one of these
        lines = cli("events", launches).stdout.splitlines()
        assert sorted(lines) == sorted(whole.splitlines())


def test_graph_launches_have_their_own_kind(cli: Cli, launches: Path) -> None:
    found = records_of(cli("events", launches).stdout)
    (node,) = (record for record in found if record["type"] == "kernel_node")
    assert node["kernel_name"].startswith("void lib::fill") and node["flags"] == 1
    assert "kernel_launch_id" not in node
    (graph,) = (record for record in found if record["type"] == "graph_launch")
    assert graph["stream_id"] == 16 and graph["callstack_id"]
    assert not {"kernel_name", "grid", "nregs"} & {*graph}


def test_kernel_without_a_module_record(cli: Cli, launches: Path) -> None:
    found = records_of(cli("events", launches).stdout)
    (unknown,) = (record for record in found if record.get("result") == 700)
    assert unknown["kernel_name"] == "function 7"
    assert unknown["nregs"] is unknown["shmem"] is unknown["callstack_id"] is None


def test_stack_mode_selects_where_stacks_go(cli: Cli, launches: Path) -> None:
    full = records_of(cli("events", launches, "--kernel-events", "full").stdout)
    assert full[0]["cpu_callstack"] == [f"{APP}:40 in <module>", f"{APP}:12 in step"]
    assert full[0]["cpu_callstack_source"] == "python"
    assert not any("callstack_id" in record for record in full)
    assert "cpu_callstack" not in next(r for r in full if r["result"] == 700)
    none = records_of(cli("events", launches, "--kernel-events", "nostack").stdout)
    assert len(none) == len(full)
    assert not any("callstack" in name for record in none for name in record)


def test_kernels_are_filtered_by_name(cli: Cli, launches: Path) -> None:
    for pattern in ("fill<float>", "4fillIf"):  # as the source has it, and mangled
        found = records_of(cli("events", launches, "--kernel", pattern).stdout)
        assert [r["type"] for r in found] == ["callstack_def", "kernel_launch", "kernel_node"]
    scale = records_of(cli("events", launches, "--kernel", "^scale$").stdout)
    ids = [r["kernel_launch_id"] for r in scale if r["type"] == "kernel_launch"]
    assert ids == [1, 3]  # the same as among all
    assert cli("events", launches, "--kernel", "nothing").stdout == ""


def test_all_formats_have_the_same_events(cli: Cli, launches: Path, tmp_path: Path) -> None:
    lines = cli("events", launches).stdout
    assert json.loads(cli("events", launches, "--format", "json").stdout) == records_of(lines)
    assert json.loads(cli("events", launches, "--json").stdout) == records_of(lines)
    assert json.loads(cli("events", launches, "--json", "--kernel", "nothing").stdout) == []
    out = tmp_path / "events.ndjson"
    assert cli("events", launches, "-o", out).stdout == ""
    assert out.read_text() == lines
    rows = list(csv.DictReader(io.StringIO(cli("events", launches, "--format", "csv").stdout)))
    assert [row["type"] for row in rows].count("kernel_launch") == 4
    assert rows[0]["caller"] == "step (train.py:12)"
    assert (rows[0]["grid_x"], rows[0]["grid_y"], rows[0]["cluster_x"]) == ("4", "2", "")
    assert (rows[2]["type"], rows[2]["kernel_launch_id"]) == ("kernel_node", "")
    table = cli("events", launches, "--format", "table").stdout
    assert [line.split()[:4] for line in table.splitlines()][1] == [
        *("0", "lib::fill", "4,2,1", "256,1,1")
    ]
    assert "step (train.py:12)" in table and "graph_launch" in table
    assert "no rows" in cli("events", launches, "--format", "table", "--kernel", "nothing").stdout


WRONG = [
    (["--format", "xml"], "ttanalyze: --format xml: must be one of ndjson, json, csv, table\n"),
    (
        ["--kernel-events", "off"],
        "ttanalyze: --kernel-events off: must be one of dedup, full, nostack\n",
    ),
    (["--kernel", "("], "ttanalyze: --kernel (: not a regular expression: "),
]


@pytest.mark.parametrize(("options", "message"), WRONG)
def test_invalid_arguments_are_errors(
    cli: Cli, launches: Path, options: list[str], message: str
) -> None:
    outcome = cli("events", launches, *options)
    assert (outcome.status, outcome.stdout) == (2, "")
    assert outcome.stderr.startswith(message) and outcome.stderr.count("\n") == 1


def test_run_without_calls(cli: Cli, run_path: Path) -> None:
    Writer(run_path).close()
    assert cli("events", run_path).stdout == ""
    assert cli("events", run_path, "--format", "csv").stdout.startswith("type,kernel_launch_id,")


def test_recorded_program_has_repeatable_events(built: Path, tmp_path: Path, cli: Cli) -> None:
    """Another run of it has the same records, but for when and where."""
    command = support.command("example-training", built)
    found = []
    for name in ("first", "second"):
        path = tmp_path / name
        environment = support.simulator_environment()
        done = recordings.record(command, environment, path, "--sim", "-q", "--params")
        assert done.status == 0, done.stderr
        found.append(records_of(cli("events", path).stdout))
    functions = tt.open(path).functions.set_index("name")
    for record in found[1]:
        assert record["kernel_checksum"] == functions["checksum"][record["kernel_name"]]
        assert record["nregs"] == functions["registers"][record["kernel_name"]]
        assert len(record["params"]) == 2 * functions["param_bytes"][record["kernel_name"]]
    assert len(found[1]) == (tt.open(path).events["kind"] == "launch").sum() > 100
    assert functions["checksum"].nunique() == len(functions)
    for record in (*found[0], *found[1]):
        assert record.pop("time_ns") and record.pop("thread") and record.pop("params")
    assert found[0] == found[1]


# ---- stacks ----


def test_stacks_of_a_run(small: Writer, run_path: Path) -> None:
    run = tt.open(run_path)
    assert run.stacks.to_dict("list") == {
        "process": [0, 0, 0],
        "stack": [1, 1, 2],
        "depth": [0, 1, 0],
        "kind": ["python"] * 3,
        "function": ["step", "<module>", "<module>"],
        "file": [APP] * 3,
        "line": [12, 40, 41],
    }
    assert run.events["stack"].isna().all()
    assert len(tt.open(small.run).stacks.columns) == 7


def test_run_without_stacks(run_path: Path) -> None:
    Writer(run_path).close()
    assert len(tt.open(run_path).stacks) == 0


def test_query_groups_launches_by_caller(launches: Path) -> None:
    run = tt.open(launches)
    fields = ["stack", "caller", "stack_text"]
    found = query(run, Query(filter='kind == "launch"', fields=fields))
    assert found["stack"].to_numpy("f8", na_value=0).tolist() == [1, 2, 1, 0, 1]
    step, module = "step (train.py:12)", "<module> (train.py:41)"
    assert found["caller"].astype("object").where(found["caller"].notna(), None).tolist() == [
        *(step, module, step, None, module)
    ]
    assert found["stack_text"][0] == "step (train.py:12) < <module> (train.py:40)"
    asked = Query(filter='caller.str.contains("step")', group_by=["caller"], count=True)
    assert query(run, asked).to_dict("list") == {"caller": [step], "count": [2]}


def test_caller_is_the_first_frame_with_a_line(run_path: Path) -> None:
    w = Writer(run_path)
    w.stack(1, [("?", "/usr/lib/libx.so", 0), ("run", "/opt/app/a.cpp", 3)])
    w.stack(2, [("?", "/usr/lib/libx.so", 0)])
    for stack in (1, 2, 3):  # of which the last was never written
        w.event("launch", id=0, stack=stack)
    w.close()
    found = query(tt.open(run_path), Query(fields=["caller"]))["caller"].tolist()
    assert found[:2] == ["run (a.cpp:3)", "? (libx.so)"] and pd.isna(found[2])


def test_allocations_have_a_source_line(cli: Cli, run_path: Path) -> None:
    w = Writer(run_path)
    w.stack(1, INNER)
    w.born(0, bytes(100))
    w.born(1, bytes(200))
    edit(w.path / "events.bin", 0, stack=1)
    reseal_records(w.path / "events.bin")
    w.close()
    allocs = query(tt.open(run_path), Query("allocs", fields=["region", "site"]))
    assert allocs["site"].tolist() == ["train.py:12 in step", "cuMemAlloc_v2, thread 4711"]
    assert "train.py:12 in step" in cli("memory", run_path).stdout


def test_suspects_have_a_caller(cli: Cli, run_path: Path) -> None:
    w = Writer(run_path)
    w.function(0, "add")
    w.stack(1, INNER)
    w.born(0, bytes(100), label="weights")
    w.epoch("sync", "full")
    w.write(0, 8, b"!")
    w.event("launch", "cuLaunchKernel", id=0, grid=[1, 1, 1], block=[1, 1, 1], stack=1)
    w.epoch("sync")
    w.close()
    outcome = cli("blame", run_path, "--region", "weights", "--offset", "8")
    assert "from step (train.py:12)" in outcome.stdout


# ---- files ----


def test_query_of_a_file_equals_query_of_the_run(cli: Cli, launches: Path, tmp_path: Path) -> None:
    fields = ["process", "seq", "kind", "kernel", "demangled", "short", "checksum", "caller"]
    fields += ["stack_text", "stream", "thread", "context", "grid_x", "block_y", "epoch"]
    fields += ["flags", "result", "time_ns"]
    asked = Query(filter='kind.str.contains("launch")', fields=fields)
    expected = query(tt.open(launches), asked)
    for how in ("dedup", "full"):
        path = tmp_path / f"{how}.ndjson"
        assert cli("events", launches, "--kernel-events", how, "-o", path).status == 0
        found = query(EventsFile(path), asked)
        kernels = expected["kind"] == "launch"
        for name in fields:
            rows = kernels if name in ("grid_x", "block_y") else kernels | True
            ours, theirs = (frame[name][rows].astype("object") for frame in (found, expected))
            known = theirs.notna()
            assert (ours.notna() == known).all(), name
            assert ours[known].tolist() == theirs[known].tolist(), name
    assert found["caller"].isna().sum() == 1


def other(number: int, **members: Any) -> dict[str, Any]:
    """A launch as other tools write it."""
    sizes = {"grid": [1, 1, 1], "block": [32, 1, 1], "nregs": 8, "shmem": 0, "stream_id": 0}
    named = {"kernel_launch_id": number, "kernel_name": "g", "kernel_checksum": "99"}
    return {"type": "kernel_launch", **named, **sizes, **members}


PYTHON = ["m.py:9 in <module>", "m.py:4 in f"]
NATIVE = ["libx.so(run+0x1) [0x2]", "main.c"]
STACK = {"type": "callstack_def"}
FIRST = {"kernel_name": "void f<int>(int*)", "kernel_checksum": "7fa21c3", "grid": [2, 3, 4]}
OTHERS = [
    {**STACK, "callstack_id": "a1", "frames": PYTHON, "source": "pytorch"},
    {**STACK, "callstack_id": "b2", "frames": NATIVE, "source": "backtrace"},
    other(0, **FIRST, nregs=16, shmem=64, stream_id=94001, callstack_id="a1"),
    other(1, callstack_id=None),
    other(2, callstack_id="b2"),
    other(3, cpu_callstack=["n.py:1 in h"], cpu_callstack_source="cpython_gil"),
]


@pytest.fixture
def others(tmp_path: Path) -> Path:
    """A file with the members that other tools' files have."""
    path = tmp_path / "kernel_events.ndjson"
    path.write_text("\n\n".join(map(json.dumps, OTHERS)))
    return path


@pytest.mark.parametrize("size", [1, 2, 1000])
def test_event_files_of_other_tools(
    others: Path, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ttanalyze.verbs.query.files.PIECE", size)
    fields = ["launch", "short", "caller", "registers", "shmem", "stream", "grid_z", "checksum"]
    found = query(EventsFile(others), Query(fields=fields))
    found["caller"] = found["caller"].astype("object").where(found["caller"].notna(), None)
    callers = ["f (m.py:4)", None, "libx.so(run+0x1) [0x2]", "h (n.py:1)"]
    assert found.to_dict("list") == {
        "launch": [0, 1, 2, 3],
        "short": ["f", "g", "g", "g"],
        "caller": callers,
        "registers": [16, 8, 8, 8],
        "shmem": [64, 0, 0, 0],
        "stream": [94001, 0, 0, 0],
        "grid_z": [4, 1, 1, 1],
        "checksum": ["7fa21c3", "99", "99", "99"],
    }
    counted = Query(group_by=["short"], count=True, sum=["shmem"])
    assert query(EventsFile(others), counted).to_dict("list") == {
        "short": ["g", "f"],
        "count": [3, 1],
        "shmem_sum": [0, 64],
    }


def test_event_files_are_queried_from_the_shell(cli: Cli, others: Path) -> None:
    outcome = cli("query", others, "--filter", "grid_x > 1")
    assert outcome.status == 0 and "f (m.py:4)" in outcome.stdout
    rows = cli("query", others, "--sort", "-launch", "--top", "1", "--format", "json").stdout
    (last,) = json.loads(rows)
    assert (last["launch"], last["kernel"], last["seq"]) == (3, "g", None)
    wrong = cli("query", others, "--table", "epochs")
    assert (wrong.status, wrong.stderr) == (2, "ttanalyze: --table epochs: must be one of events\n")
    (others.parent / "empty").touch()
    assert cli("query", others.parent / "empty").stdout == "no rows\n"


GOOD = '{"type":"kernel_launch","kernel_launch_id":0,"kernel_name":"k","grid":[1,1,1]}\n'
BAD = [
    ("nonsense", "not JSON: "),
    ('{"type":"kernel_launch","kern', "not JSON: "),
    ("[1, 2]", "not an object with a type"),
    ('{"kernel_launch_id":1}', "not an object with a type"),
    ('{"type":"step"}', "record type 'step' is not a kernel event"),
    ('{"type":"kernel_launch","kernel_name":7}', "kernel_name: expected a string"),
    (
        '{"type":"kernel_launch","kernel_launch_id":"7"}',
        "kernel_launch_id: expected a whole number",
    ),
    ('{"type":"kernel_launch","nregs":1e3}', "nregs: expected a whole number"),
    ('{"type":"kernel_launch","shmem":true}', "shmem: expected a whole number"),
    (
        '{"type":"kernel_launch","stream_id":18446744073709551615}',
        "stream_id: expected a whole number",
    ),
    ('{"type":"kernel_launch","grid":[1,2]}', "grid: expected three whole numbers"),
    ('{"type":"kernel_launch","block":[1,2,"3"]}', "block: expected three whole numbers"),
    ('{"type":"kernel_launch","callstack_id":7}', "callstack_id: expected a string"),
    ('{"type":"kernel_launch","cpu_callstack":"f"}', "cpu_callstack: expected a list of strings"),
    ('{"type":"callstack_def","frames":[]}', "callstack_id: expected a string"),
    (
        '{"type":"callstack_def","callstack_id":"a","frames":[1]}',
        "frames: expected a list of strings",
    ),
    ('{"type":"kernel_launch","x":"\udcff"}', "not JSON: "),
]


@pytest.mark.parametrize(("line", "reason"), BAD)
def test_invalid_line_is_named(cli: Cli, tmp_path: Path, line: str, reason: str) -> None:
    path = tmp_path / "events.ndjson"
    path.write_bytes((GOOD + "\n" + line + "\n" + GOOD).encode(errors="surrogateescape"))
    fields = ",".join([*EventsFile(path).tables["events"].recorded, "caller"])
    outcome = cli("query", path, "--fields", fields)
    assert (outcome.status, outcome.stdout) == (2, "")
    assert outcome.stderr.startswith(f"ttanalyze: {path}: line 3: {reason}")
    assert outcome.stderr.count("\n") == 1


def test_line_without_newline(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ttanalyze.records.lines.LONGEST", 1000)
    path = tmp_path / "events.ndjson"
    path.write_text(GOOD + " " * 2000)
    outcome = cli("query", path)
    assert outcome.stderr == f"ttanalyze: {path}: line 2: longer than 1000 bytes\n"


def test_small_runs_have_events(tmp_path: Path, cli: Cli) -> None:
    w = small_run(tmp_path / "run")
    found = records_of(cli("events", w.run).stdout)
    assert [record["kernel_name"] for record in found] == ["add(float*, float*, int)", "scale"]
