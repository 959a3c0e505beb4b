"""Runs as traces: what is in them, that both formats say the same, and that viewers can read it."""

from __future__ import annotations

import gzip
import io
import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import ttanalyze as tt
from tests import recordings
from tests.rundir import CALLS, Writer, copy_of, edit, reseal_records
from tests.support import Cli
from tests.traces import READERS, chrome, traced
from ttanalyze.format import layout
from ttanalyze.verbs.memory import timeline
from ttanalyze.verbs.trace import FORMATS, Traced, calls, rows, trace, tracks
from ttanalyze.verbs.trace.rows import LENGTH

HOSTILE = 'k"e\\r{0}%s%d<b>\x1b[2J\u2028\U0001f600\n'


@pytest.fixture(params=list(FORMATS))
def form(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def training(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recordings.record_example(
        "training", built, tmp_path_factory.mktemp("trace") / "training"
    )


# ---- what is in them ----


@pytest.mark.sampled
@pytest.mark.parametrize("options", [(), ("--deterministic",)], ids=["", "deterministic"])
@pytest.mark.parametrize("name", ["training", "pipeline", "graph", "async"])
def test_traces_of_recorded_programs(
    built: Path, tmp_path: Path, name: str, options: tuple[str, ...], form: str
) -> None:
    path = recordings.record_example(name, built, tmp_path / "run", *options)
    run = tt.open(path)
    seen, done = traced(path, form)
    events = run.events.set_index("seq")
    assert Counter(item.args["seq"] for item in seen.calls) == Counter(events.index)
    process = run.processes[0].info["pid"]
    assert list(seen.processes) == [process]
    assert {i.lane for i in seen.calls if i.args["seq"] == 1} == {"main thread"}
    for item in seen.calls:
        event = events.loc[item.args["seq"]]
        assert item.args["call"] == event["call"] and item.category == event["kind"]
        assert item.begin == event["time_ns"]
        if event["kind"] == "launch":
            assert item.name == item.args["kernel"] == event["kernel"]
            assert item.args["grid"] == [event[f"grid_{axis}"] for axis in "xyz"]
            assert item.args["shared"] == event["shared"]
    submitted = events["kind"].isin(["launch", "copy", "set", "graph-launch", "event-record"])
    submitted |= events["kind"].isin(["event-wait", "launch-host", "mem-op"])
    submitted &= (events["flags"] & 1) == 0
    waits = [i for i in seen.of("stream") if i.category == "capture-wait"]
    assert {i.args["seq"] for i in waits} <= set(events.index[events["flags"] & 128 != 0])
    there = [i for i in seen.of("stream") if i.category != "capture-wait"]
    assert Counter(i.args["seq"] for i in there) == Counter(events.index[submitted])
    assert all(str(i.args["stream"]) in i.lane or i.args["stream"] in (1, 2) for i in there)
    by_flow = {i.flow_out: i for i in seen.calls}
    assert all(by_flow[i.flow_in].args["seq"] == i.args["seq"] for i in there)
    epochs = seen.of("epochs")
    assert [i.args["epoch"] for i in epochs] == run.epochs["epoch"].tolist()
    assert [i.begin for i in epochs] == run.epochs["time_ns"].tolist()
    assert done.epochs == len(epochs) > 0


def test_drains_are_sequential_and_end_with_their_epoch(training: Path) -> None:
    run = tt.open(training)
    seen, _ = traced(training)
    drains = seen.of("drain")
    assert [i.end for i in drains] == run.epochs["done_ns"].tolist()
    origins = {i.flow_out: i.args["epoch"] for i in seen.of("epochs")}
    assert [origins[i.flow_in] for i in drains] == run.epochs["epoch"].tolist()


def test_wait_ends_at_the_epoch_cut_after_it(training: Path) -> None:
    run = tt.open(training)
    seen, _ = traced(training)
    cuts = dict(zip(run.epochs["seq"], run.epochs["time_ns"], strict=True))
    waits = [i for i in seen.calls if i.args["seq"] in cuts]
    assert len(waits) == len(run.epochs)
    assert all(i.end == cuts[i.args["seq"]] for i in waits)
    others = [i for i in seen.calls if i.args["seq"] not in cuts]
    assert all(i.end - i.begin <= LENGTH for i in others)


def test_memory_counters_equal_the_memory_verb(training: Path, form: str) -> None:
    steps = timeline(tt.open(training).processes[0])
    seen, _ = traced(training, form)
    values = seen.of("GPU 0: memory")
    assert [i.args["bytes"] for i in values] == steps["bytes"].tolist()
    assert [i.begin for i in values] == steps["time_ns"].tolist()


def test_memory_of_several_devices_and_of_calls_with_several_regions(
    run_path: Path, form: str
) -> None:
    w = Writer(run_path)
    for region, size in enumerate([100, 20, 3]):
        w.born(region, bytes(size))
    path = w.path / "regions.bin"
    edit(path, 1, device=1)
    edit(path, 2, device=1, seq=2, time_ns=2000)
    reseal_records(path)
    w.close()
    seen, _ = traced(run_path, form)
    assert [(i.begin, i.args["bytes"]) for i in seen.of("GPU 0: memory")] == [(1000, 100)]
    assert [(i.begin, i.args["bytes"]) for i in seen.of("GPU 1: memory")] == [(2000, 23)]


def test_trace_of_a_small_run(small: Writer, run_path: Path, form: str) -> None:
    seen, done = traced(run_path, form)
    assert seen.processes == {1000: "./app --fast"}
    launches = [i for i in seen.calls if i.category == "launch"]
    assert [i.name for i in launches] == ["add", "scale"]
    assert launches[0].args["kernel"] == "add(float*, float*, int)"
    assert launches[0].args["block"] == [256, 1, 1]
    assert {name for _, name in seen.lanes} == {
        "thread 4711",
        "GPU 0: memory",
        *(f"GPU 0, context {n}: {what}" for n in (0, 1) for what in ("epochs", "drain")),
        "GPU 0, context 0: default stream",
    }
    born = next(i for i in seen.calls if i.args.get("region") == 0)
    assert born.args["label"] == "weights" and born.args["bytes"] == 3 * 65536 + 100
    freed = next(i for i in seen.calls if i.category == "free")
    assert (freed.args["region"], freed.args["label"]) == (0, "weights")
    named = [i.name for i in seen.of("epochs")]
    assert 'epoch 3: say "cheese"\x7f\n' in named and "epoch 1: scale" in named
    assert done.epochs == 5


def test_both_formats_are_equivalent(small: Writer, run_path: Path) -> None:
    one, other = traced(run_path, "chrome")[0], traced(run_path, "perfetto")[0]
    assert one == other


def test_copies_have_labels_and_callers(run_path: Path, form: str) -> None:
    w = Writer(run_path)
    w.stack(1, [("step", "/a/train.py", 12), ("<module>", "/a/train.py", 40)])
    w.stack(2, [("deep", "f.py", n) for n in range(40)])
    base = 0x7F0000000000
    w.born(0, bytes(100), label="weights")
    w.event("copy", "cuMemcpyHtoD_v2", dst=base + 99, src=5, bytes=1, flags=16, stack=1)
    w.event("copy", "cuMemcpyHtoD_v2", dst=base + 100, src=base, bytes=1, stack=2)
    w.died(0)
    w.event("set", dst=base, bytes=7)
    w.close()
    first, second, last = traced(run_path, form)[0].of("stream")
    assert (first.args["label"], first.name) == ("weights", "copy from host")
    assert first.args["caller"] == "step (/a/train.py:12)"
    assert first.args["stack"] == ["step (/a/train.py:12)", "<module> (/a/train.py:40)"]
    assert second.args["source_label"] == "weights" and "label" not in second.args
    assert len(second.args["stack"]) == 33 and second.args["stack"][-1] == "… 8 more"
    assert second.args["caller"] == "deep (f.py)", "of whose line nothing is known"
    assert "label" not in last.args and "caller" not in last.args
    assert (last.args["dst"], last.args["bytes"]) == (hex(base), 7)


def test_failed_and_captured_calls_are_in_no_stream(run_path: Path, form: str) -> None:
    w = Writer(run_path)
    w.event("launch", "cuLaunchKernel", result=701)
    w.event("launch", "cuLaunchKernel", flags=1)
    w.event("launch", "cuLaunchKernel", flags=2)
    w.close()
    seen, done = traced(run_path, form)
    assert [i.args["seq"] for i in seen.of("stream")] == [3] and done.arrows == 1
    failed, in_graph, submitted = seen.calls
    assert failed.args["result"] == 701 and in_graph.args["recorded into a graph"] is True
    assert submitted.args["cooperative"] is True and submitted.name == "unknown kernel"


# ---- times ----


def threads_run(path: Path, count: int = 400, latest: int = 30_000) -> Writer:
    """Threads that submit to each other's streams; some calls' times are earlier than they were."""
    random = np.random.default_rng(3)
    w = Writer(path)
    w.function(0, "_Z4stepv")
    times: list[int] = []
    now = 10_000
    for _ in range(count):
        kind = str(random.choice(["launch", "launch", "copy", "event-wait"]))
        members = {"thread": 70 + int(random.integers(4)), "stream": int(random.integers(16, 19))}
        w.event(kind, "cuLaunchKernel", **members, id=0)
        now += int(random.choice([0, 100, 3000, 50_000]))
        times.append(max(0, now - int(random.choice([0, 0, 0, latest // 10, latest]))))
    for row, time in enumerate(times):
        edit(w.path / "events.bin", row, time_ns=time)
    reseal_records(w.path / "events.bin")
    w.close()
    return w


def in_pieces(monkeypatch: pytest.MonkeyPatch, held: int) -> None:
    monkeypatch.setattr(calls, "PIECE", 7)
    monkeypatch.setattr(calls, "HELD", held)
    monkeypatch.setattr(rows, "TEMPLATES", 5)
    monkeypatch.setattr(tracks, "PIECE", 3)


@pytest.mark.sampled
@pytest.mark.parametrize("held", [3, 1 << 12])
def test_calls_with_unordered_times(
    run_path: Path, monkeypatch: pytest.MonkeyPatch, held: int, form: str
) -> None:
    threads_run(run_path)
    for _ in range(2):
        seen, _ = traced(run_path, form)
        assert sorted(i.args["seq"] for i in seen.calls) == list(range(1, 401))
        in_pieces(monkeypatch, held)


def test_piece_size_does_not_change_the_trace(
    run_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    threads_run(run_path, latest=0)
    whole, _ = traced(run_path, form)
    in_pieces(monkeypatch, 1 << 12)
    assert traced(run_path, form)[0] == whole


def test_absurd_times_are_accepted(run_path: Path, form: str) -> None:
    w = threads_run(run_path, 20)
    for row, time in ((3, (1 << 64) - 1), (5, 0), (9, 1 << 63)):
        edit(w.path / "events.bin", row, time_ns=time)
    reseal_records(w.path / "events.bin")
    w.epoch()
    edit(w.path / "epochs.bin", 0, time_ns=(1 << 64) - 1, done_ns=1)
    reseal_records(w.path / "epochs.bin")
    assert traced(run_path, form)[1].calls == 21


def test_epoch_window_limits_the_trace(small: Writer, run_path: Path, form: str) -> None:
    run = tt.open(run_path)
    cuts = run.epochs["seq"].tolist()
    for first, last in ((0, 0), (1, 2), (3, 4), (4, 99)):
        seen, _ = traced(run_path, form, epochs=(first, last))
        after, until = (cuts[first - 1] if first else 0), cuts[min(last, 4)]
        expected = run.events["seq"][(run.events["seq"] > after) & (run.events["seq"] <= until)]
        assert [i.args["seq"] for i in seen.calls] == expected.tolist()
        assert [i.args["epoch"] for i in seen.of("epochs")] == list(range(first, min(last, 4) + 1))
    seen, _ = traced(run_path, form, epochs=(3, 3))
    steps = timeline(run.processes[0])
    known = steps[steps["seq"] <= cuts[3]]["bytes"].tolist()
    assert [i.args["bytes"] for i in seen.of("memory")] == known[-3:], "what was before, and then"
    (level,) = traced(run_path, form, epochs=(4, 4))[0].of("memory")
    assert level.args["bytes"] == known[-1] and level.begin == run.epochs["time_ns"][3]


def test_json_has_each_digit_of_numbers() -> None:
    powers = [base**i + off for base in (10, 16) for i in range(19) for off in (-1, 0, 1)]
    numbers = np.array([n for n in powers if n < 1 << 63] + [(1 << 63) - 1] + [7] * rows.BATCH)
    file = io.BytesIO()
    writer = FORMATS["chrome"](file)
    group = rows.Group(1, 10, "p", "", 0)
    writer.group(group)
    shown = ("seq", "dst", "bytes")
    part = rows.Part(rows.Lane(group, 2, "a", 0), "zero \0", "x", numbers=shown, flow="out")
    used = rows.Part(rows.Lane(group, 3, "b", 0, counter=True), "b", "b", kind=rows.COUNTER)
    templates = [writer.template([part]), writer.template([used])] * len(numbers)
    both = np.repeat(numbers, 2)
    columns = [both.astype("u8") * np.uint64(2), -both, both.astype("u8"), both]
    spans = ((-both, both - both), (both, both))
    writer.rows(templates[: len(both)], rows.Rows(spans, both, columns))
    writer.end()
    items = json.loads(file.getvalue(), parse_float=str)["traceEvents"][3:]
    assert len(items) == 3 * len(numbers)
    for number, slice_, arrow, counter in zip(
        numbers.tolist(), items[::3], items[1::3], items[2::3], strict=True
    ):
        time = f"{number // 1000}.{number % 1000:03}"
        assert slice_["ts"] == counter["ts"] == arrow["ts"] == (f"-{time}" if number else time)
        assert slice_["dur"] == time and arrow["id"] == number and slice_["name"] == "zero \0"
        assert slice_["args"] == {"seq": 2 * number, "dst": hex(number), "bytes": -number}
        assert counter["args"] == {"bytes": -number}


# ---- names ----


def test_hostile_names_are_escaped(run_path: Path, form: str) -> None:
    w = Writer(run_path)
    w.function(0, HOSTILE)
    w.stack(1, [(HOSTILE, HOSTILE, 1)])
    w.born(0, b"x", label=HOSTILE)
    w.event("launch", "cuLaunchKernel", id=0, stack=1)
    w.epoch("api", label=HOSTILE)
    hostile_calls = [HOSTILE, *CALLS[1:]]
    w.close(argv=["./app", HOSTILE], calls=hostile_calls, devices=[{"ordinal": 0, "name": HOSTILE}])
    seen, _ = traced(run_path, form)
    launch = next(i for i in seen.calls if i.category == "launch")
    assert launch.name == launch.args["kernel"] == HOSTILE
    assert launch.args["caller"] == f"{HOSTILE} ({HOSTILE}:1)"
    alloc = next(i for i in seen.calls if i.category == "alloc")
    assert alloc.name == alloc.args["call"] == alloc.args["label"] == HOSTILE
    assert [i.name for i in seen.of("epochs")] == [f"epoch 0: {HOSTILE}"]
    assert "\x1b" not in seen.processes[1000]


def test_processes_with_equal_pids_are_distinct(run_path: Path, form: str) -> None:
    for index in range(3):
        w = Writer(run_path, index)
        w.event("sync", thread=50)
        w.close(pid=50 if index else -1, argv=["./app", str(index)])
    seen, done = traced(run_path, form)
    assert list(seen.processes.values()) == ["./app 0", "./app 1", "./app 2"]
    assert done.processes == 3 and 50 in seen.processes
    assert done.calls == 3


def test_empty_runs(tmp_path: Path, form: str) -> None:
    Writer(tmp_path / "empty").close()
    assert traced(tmp_path / "empty", form)[1] == Traced(processes=1)
    (tmp_path / "none").mkdir()
    info = '{"format":"ttanalyze-run","version":1,"created_ns":0,"processes":[]}'
    (tmp_path / "none" / "run.json").write_text(info)
    assert traced(tmp_path / "none", form)[1] == Traced()


# ---- marks ----


def test_mismatches_that_verify_found_are_marked(
    cli: Cli, small: Writer, run_path: Path, tmp_path: Path, form: str
) -> None:
    report = tmp_path / "report.json"
    assert cli("verify", run_path, "--tamper", "1,0,70000", "--out", report).status == 1
    seen, done = traced(run_path, form, annotate=report)
    (mark,) = seen.of("differences")
    (found,) = json.loads(report.read_text())["differences"]
    assert mark.kind == "mark" and mark.name == found["message"]
    assert mark.begin == tt.open(run_path).epochs["time_ns"][1]
    assert (mark.args["epoch"], mark.args["region"]) == (1, 0)
    assert done.marks == 1
    assert traced(run_path, form, annotate=report, epochs=(2, 4))[1].marks == 0


def test_divergences_that_diff_found_are_marked(
    cli: Cli, tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "ab":
        w = Writer(tmp_path / name)
        w.function(0, "_Z3addPfS_i")
        w.born(0, bytes(300), label="sums")
        w.epoch("sync", "full")
        w.event("launch", "cuLaunchKernel", id=0, grid=[1, 1, 1], block=[1, 1, 1])
        if name == "b":
            w.event("launch", "cuLaunchKernel", id=0, grid=[7, 1, 1], block=[1, 1, 1])
        w.write(0, 17, name.encode())
        w.epoch()
        w.close()
    report = tmp_path / "report.json"
    arguments = ("--all", "--out", report, "-q")
    assert cli("diff", tmp_path / "a", tmp_path / "b", *arguments).status == 1
    for name in "ab":
        seen, _ = traced(tmp_path / name, form, annotate=report)
        marks = seen.of("differences")
        assert [i.begin for i in marks] == sorted(i.begin for i in marks)
        (divergence,) = [i for i in marks if i.category == "divergence"]
        assert divergence.name == "region 0 (sums) differs"
        assert divergence.begin == tt.open(tmp_path / name).epochs["time_ns"][1]
        assert divergence.args["first_byte"] == 17
        suspects = [i for i in marks if i.category == "suspect"]
        calls = {i.args["seq"]: i for i in seen.calls}
        assert suspects and all("add: may have written region 0" in i.name for i in suspects)
        assert all(calls[i.args["call"]].begin == i.begin for i in suspects)
        alone = [i for i in marks if i.category == "launches"]
        assert [i.args["launches"] for i in alone] == ([1] if name == "b" else [])
    moved = copy_of(tmp_path / "b", tmp_path / "elsewhere")
    outcome = cli("trace", moved, "-o", tmp_path / "out", "--annotate", report)
    expected = f"{report}: compares {tmp_path / 'a'} with {tmp_path / 'b'}, not {moved}"
    assert (outcome.status, outcome.stderr) == (2, f"ttanalyze: {expected}\n")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "offset 0: not JSON"),
        ("[]", "not a JSON object"),
        ("{}", "not a report of verify --out or diff --out"),
        ('{"differences": [1]}', "differences: expected a list, each item an object"),
        ('{"differences": [{"epoch": "1"}]}', "differences[0].epoch: expected a whole number"),
        (
            '{"differences": [{"epoch": 1, "message": 1}]}',
            "differences[0].message: expected a string",
        ),
        ('{"a": 1, "b": "", "processes": []}', "a: expected a string"),
        (r'{"a": "\u0000", "b": "x", "processes": []}', r"compares \x00 with x, not "),
        (
            '{"a": "run", "b": "x", "processes": [{"divergences": 1}]}',
            "divergences: expected a list",
        ),
        (
            '{"a": "run", "b": "x", "processes": [{"divergences": [{"epoch_a": null}]}]}',
            "processes[0].divergences[0].epoch_a: expected a whole number",
        ),
        (
            '{"a": "run", "b": "x", "processes": [{"launches": {"stretches": [{"seq_a": []}]}}]}',
            "launches.stretches[0].seq_a: expected a whole number or null",
        ),
    ],
)
def test_invalid_reports_are_refused(
    cli: Cli, small: Writer, run_path: Path, tmp_path: Path, text: str, reason: str
) -> None:
    report = tmp_path / "report.json"
    report.write_text(text)
    outcome = cli("trace", run_path, "-o", tmp_path / "out.json", "--annotate", report)
    assert (outcome.status, outcome.stdout, outcome.stderr.count("\n")) == (2, "", 1)
    assert f"{report}: " in outcome.stderr and reason in outcome.stderr
    assert not (tmp_path / "out.json").exists()


def test_absurd_report_numbers_are_accepted(
    small: Writer, run_path: Path, tmp_path: Path, form: str
) -> None:
    report = tmp_path / "report.json"
    huge = 10**19
    found = {"epoch": huge, "region": huge, "until": -1, "message": HOSTILE, "process": 0}
    report.write_text(json.dumps({"differences": [found, {**found, "process": huge}]}))
    (mark,) = traced(run_path, form, annotate=report)[0].of("differences")
    assert mark.name == HOSTILE
    stretch = {"kind": "alone", "seq_a": -1, "count_a": -5}
    side = {"process_a": 0, "launches": {"stretches": [stretch, {"seq_a": huge}]}}
    report.write_text(json.dumps({"a": "run", "b": "x", "processes": [side]}))
    assert traced(run_path, form, annotate=report)[1].marks == 0


# ---- the command ----


def test_trace_command(cli: Cli, small: Writer, run_path: Path, tmp_path: Path, form: str) -> None:
    out = tmp_path / "trace.out"
    arguments = ("trace", run_path, "--format", form)
    outcome = cli(*arguments, "-o", out)
    assert outcome.stderr == "" and outcome.status == 0
    assert outcome.stdout == f"{out}: 13 calls, 5 epochs, 7 lanes\n"
    whole = out.read_bytes()
    assert len(READERS[form](whole).calls) == 13
    said = json.loads(cli(*arguments, "-o", out, "--json").stdout)
    assert (said["calls"], said["epochs"], said["marks"]) == (13, 5, 0)
    assert cli(*arguments, "-o", out, "-q").stdout == ""
    packed = tmp_path / "trace.gz"
    assert cli(*arguments, "-o", packed, "-q").status == 0
    assert gzip.decompress(packed.read_bytes()) == whole == out.read_bytes()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["run", "trace.gz", "trace.out"]


def test_trace_to_standard_output(cli: Cli, small: Writer, run_path: Path) -> None:
    outcome = cli("trace", run_path, "-o", "-")
    assert (outcome.status, outcome.stderr) == (0, "")
    assert len(chrome(outcome.stdout.encode()).calls) == 13


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ([], "Missing option '--out'"),
        (["-o", "."], ".: is a directory; name a file in it"),
        (["-o", "/dev/full"], "/dev/full: No space left on device"),
        (["-o", "t", "--format", "xml"], "--format xml: must be one of chrome, perfetto"),
        (["-o", "t", "--epochs", "9-"], "no epochs 9 to"),
        (["-o", "t", "--epochs", "x"], "--epochs x: expected a number or a range such as 2-5"),
        (["-o", "t", "--annotate", "missing.json"], "missing.json: No such file or directory"),
    ],
)
def test_errors_are_one_line(
    cli: Cli,
    small: Writer,
    run_path: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    reason: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    outcome = cli("trace", run_path, *arguments)
    assert (outcome.status, outcome.stdout) == (2, "")
    assert outcome.stderr.startswith("ttanalyze: ") and outcome.stderr.count("\n") == 1
    assert reason in outcome.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["run"]


@pytest.mark.parametrize("name", ["events.bin", "functions.bin", "frames.bin", "regions.bin"])
def test_damaged_runs_give_a_one_line_error(
    cli: Cli, small: Writer, run_path: Path, tmp_path: Path, name: str
) -> None:
    event = layout.EVENT_KINDS.index("launch")
    w, path = small, small.path / name
    if name == "events.bin":
        edit(path, 0, kind=200)
    elif name == "frames.bin":
        edit(w.path / "events.bin", 3, kind=event, stack=1)
        reseal_records(w.path / "events.bin")
        edit(path, 0, line=5)
    else:
        edit(path, 0, id=77)
    out = tmp_path / "trace.json"
    out.write_text("as it was")
    outcome = cli("trace", run_path, "-o", out)
    assert (outcome.status, outcome.stdout) == (2, "")
    assert outcome.stderr.startswith(f"ttanalyze: {path}: offset ")
    assert outcome.stderr.count("\n") == 1
    assert out.read_text() == "as it was"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["run", "trace.json"]


def test_interrupt_leaves_no_partial_file(
    cli: Cli, small: Writer, run_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(calls.Calls, "write", interrupted)
    outcome = cli("trace", run_path, "-o", tmp_path / "trace.json.gz")
    assert outcome.status == 130
    assert [p.name for p in tmp_path.iterdir()] == ["run"]


def test_progress_is_reported(small: Writer, run_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    trace(tt.open(run_path), io.BytesIO(), progress=lambda done, of: seen.append((done, of)))
    assert seen[-1] == (13, 13)
