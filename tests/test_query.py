"""Questions to a run's tables, as the command line and Python put them."""

from __future__ import annotations

import csv
import io
import json
import os
import pty
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import ttanalyze as tt
from tests import recordings, support, traced_run
from tests.rundir import Writer, edit, small_run
from tests.support import Cli, Outcome
from ttanalyze.cli.events import EVENTS_EXAMPLES
from ttanalyze.cli.query import QUERY_EXAMPLES
from ttanalyze.core import run_tables
from ttanalyze.format import layout
from ttanalyze.format.layout import HEADER_SIZE
from ttanalyze.output.times import as_nanoseconds
from ttanalyze.verbs.query import TABLES, Query, query, stream


@pytest.fixture(scope="module")
def recorded(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real run: examples/training, on the simulator."""
    return recordings.record_example(
        "training", built, tmp_path_factory.mktemp("query") / "training"
    )


@pytest.fixture
def mixed(run_path: Path) -> Path:
    """Two processes; of the first, three threads' calls lie in the file as threads leave them."""
    random = np.random.default_rng(11)
    w = Writer(run_path)
    w.function(0, "_ZN3lib4fillIfEEvPT_i")
    w.function(1, "_ZN3lib4fillIdEEvPT_i")
    w.function(2, "plain")
    w.born(0, random.bytes(100))
    for _ in range(200):
        kind = str(random.choice(["launch", "launch", "copy", "sync", "free"]))
        values: dict[str, Any] = {"thread": 70 + int(random.integers(3))}
        if kind == "launch":
            values["id"] = int(random.integers(4))  # of which 3 is not known
            values["grid"] = random.integers(1, 9, 3).tolist()
        if kind == "copy":
            values["bytes"] = int(random.integers(1 << 40))
        w.event(kind, str(random.choice(["cuLaunchKernel", "cuMemFree_v2"])), **values)
        if random.random() < 0.05:
            w.epoch()
    path = w.path / "events.bin"
    raw = path.read_bytes()
    events = np.frombuffer(raw[HEADER_SIZE:], layout.EVENT)
    unused = np.zeros(5, layout.EVENT)
    threads = [events[events["thread"] == t] for t in np.unique(events["thread"])[::-1]]
    parts = [part for thread in threads for part in (thread, unused)]
    path.write_bytes(raw[:HEADER_SIZE] + b"".join(part.tobytes() for part in parts))
    w.close()
    other = Writer(run_path, 1)
    other.function(0, "other")
    for _ in range(10):
        other.event("launch", "cuLaunchKernel", id=0)
    other.close()
    return run_path


@pytest.fixture(params=[7, 1 << 18], ids=["small pieces", "large pieces"])
def pieces(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many rows of a table are looked at together."""
    monkeypatch.setattr(run_tables, "PIECE", request.param)
    monkeypatch.setattr("ttanalyze.verbs.query.execute.HELD", 3 * request.param)
    return int(request.param)


def same(found: pd.DataFrame, expected: pd.DataFrame) -> None:
    """Equal in columns and values; of texts, not in their numbers."""
    for frame in (found, expected):
        for name in frame.columns:
            if isinstance(frame[name].dtype, pd.CategoricalDtype):
                frame[name] = frame[name].astype("object")
            if frame[name].dtype == object or isinstance(frame[name].dtype, pd.StringDtype):
                frame[name] = frame[name].astype("object").where(~frame[name].isna(), None)
    pd.testing.assert_frame_equal(
        found.reset_index(drop=True), expected.reset_index(drop=True), check_dtype=False
    )


# ---- rows ----


def test_default_query_prints_the_table(mixed: Path, pieces: int) -> None:
    run = tt.open(mixed)
    for name in ("events", "epochs", "regions", "functions", "modules", "digests"):
        same(query(run, Query(name)), getattr(run, name)[[*TABLES[name].recorded]])


def test_rows_are_ordered_by_process_and_call(mixed: Path, pieces: int) -> None:
    frame = query(tt.open(mixed), Query(fields=["process", "seq"]))
    for _, seqs in frame.groupby("process")["seq"]:
        assert seqs.is_monotonic_increasing
    assert len(frame) == len(tt.open(mixed).events)


FILTERS = [
    'kind == "launch"',
    'kind != "launch" and thread > 70',
    'kind in ["copy", "free"] & thread == 71 | bytes > 1000',
    "bytes > 1e11",
    "not (bytes > 5 or grid_x >= 3)",
    "grid_x * grid_y - grid_z < 4",
    '2 <= grid_x < 5 and call == "cuLaunchKernel"',
    'kernel.str.contains("fill")',
    "thread % 2 == 1",
    "seq / 2 > 40 and seq // 10 != 7",
    "kernel.isna()",
    "process == 1",
    "bytes.between(10, 1000000000000)",
    "kernel == kernel",
    "-seq < -100",
]


@pytest.mark.parametrize("condition", FILTERS)
def test_filters_equal_pandas_queries(mixed: Path, condition: str) -> None:
    run = tt.open(mixed)
    events = run.events.copy()
    for name in ("kernel", "kind", "call"):
        events[name] = events[name].astype("object")
    for name in ("bytes", "seq", "grid_x", "grid_y", "grid_z"):
        events[name] = events[name].astype("int64")
    expected = events.query(condition.replace('fill")', 'fill", na=False)'), engine="python")
    assert 0 < len(expected) < len(events)
    found = query(run, Query(filter=condition))
    assert found[["process", "seq"]].values.tolist() == expected[["process", "seq"]].values.tolist()


def test_missing_values_never_compare_equal(small: Writer, run_path: Path) -> None:
    run = tt.open(run_path)

    def regions(condition: str) -> list[int]:
        return query(run, Query("regions", condition))["region"].tolist()

    assert regions("died == 3") == [0]
    assert regions("died != 3") == [1, 2, 7, 8]
    assert regions("died < 100") == [0]
    assert regions("died.isna()") == [1, 2, 7, 8]
    assert regions("died.notna() or label == 'flag'") == [0, 1]
    assert regions("label != 'flag'") == [0, 2, 7, 8]
    assert regions("label.isna() and not captured") == [2]


def test_large_integers_are_exact(small: Writer, run_path: Path) -> None:
    run = tt.open(run_path)
    digest = int(run.digests["digest"].max())
    assert digest > 1 << 53
    assert query(run, Query("digests", f"digest == {digest}"))["digest"].tolist() == [digest]
    assert len(query(run, Query("digests", f"digest == {digest - 1}"))) == 0
    assert len(query(run, Query("digests", "digest > -1 and digest < 1e30"))) == len(run.digests)
    assert len(query(run, Query("digests", f"digest in [{10**30}, -5]"))) == 0


def test_limit_and_sort(mixed: Path, pieces: int) -> None:
    run = tt.open(mixed)
    copies = run.events[run.events["kind"] == "copy"]
    expected = copies.sort_values("bytes", ascending=False, kind="stable").head(7)
    asked = Query(filter='kind == "copy"', sort=["-bytes"], top=7)
    same(query(run, asked), expected[[*TABLES["events"].recorded]])
    assert len(query(run, Query(top=13))) == 13
    assert query(run, Query(top=13))["seq"].tolist() == run.events["seq"].head(13).tolist()
    by_text = query(run, Query(sort=["call", "-thread", "seq"], fields=["call", "thread", "seq"]))
    expected = run.events.assign(call=run.events["call"].astype("object"))
    expected = expected.sort_values(["call", "thread", "seq"], ascending=[True, False, True])
    same(by_text.dropna(), expected[["call", "thread", "seq"]].dropna())
    assert len(query(run, Query(top=0))) == 0


# ---- groups ----


def test_groups_and_aggregates(mixed: Path, pieces: int) -> None:
    run = tt.open(mixed)
    asked = Query(
        group_by=["kind", "thread"],
        count=True,
        sum=["bytes"],
        mean=["bytes"],
        min=["seq"],
        max=["bytes", "id"],
        sort=["kind", "thread"],
    )
    events = run.events.assign(kind=run.events["kind"].astype("object"))
    groups = events.groupby(["kind", "thread"])
    expected = groups.agg(
        count=("seq", "size"),
        bytes_sum=("bytes", "sum"),
        bytes_mean=("bytes", "mean"),
        seq_min=("seq", "min"),
        bytes_max=("bytes", "max"),
        id_max=("id", "max"),
    ).reset_index()
    same(query(run, asked), expected)


def test_groups_are_by_size_unless_sorted(mixed: Path, pieces: int) -> None:
    run = tt.open(mixed)
    counts = query(run, Query(group_by=["kernel"]))
    assert counts["count"].is_monotonic_decreasing
    assert counts["count"].sum() == len(run.events)
    missing = counts[counts["kernel"].isna()]
    assert missing["count"].tolist() == [int(run.events["kernel"].isna().sum())]
    names = counts["kernel"].dropna()
    assert set(names) == set(run.events["kernel"].dropna()) >= {"function 3", "other"}
    top = query(run, Query(group_by=["kernel"], top=2))
    same(top, counts.head(2).copy())
    sums = query(run, Query(group_by=["thread"], sum=["bytes"]))
    assert list(sums.columns) == ["thread", "bytes_sum"]
    assert sums["bytes_sum"].is_monotonic_decreasing


def test_aggregates_of_all_rows_and_of_none(mixed: Path, pieces: int) -> None:
    run = tt.open(mixed)
    whole = query(run, Query(count=True, sum=["bytes"], max=["seq"]))
    assert whole.values.tolist() == [
        [len(run.events), int(run.events["bytes"].sum()), int(run.events["seq"].max())]
    ]
    nothing = query(
        run, Query(filter="seq < 0", count=True, sum=["bytes"], mean=["bytes"], max=["seq"])
    )
    assert nothing["count"].tolist() == [0] and nothing["bytes_sum"].tolist() == [0]
    assert nothing["bytes_mean"].isna().all() and nothing["seq_max"].isna().all()
    assert len(query(run, Query(filter="seq < 0", group_by=["kind"]))) == 0


def test_aggregates_skip_missing_values(cli: Cli, small: Writer, run_path: Path) -> None:
    asked = [
        "--table",
        "allocs",
        "--group-by",
        "freed",
        "--mean",
        "live_ns,bytes",
        "--sort",
        "freed",
    ]
    rows = [line.split() for line in cli("query", run_path, *asked).stdout.splitlines()]
    assert rows[0] == ["freed", "live_ns_mean", "bytes_mean"]
    assert [row[:2] for row in rows[1:]] == [["no", "-"], ["yes", "9,000"]]
    said = json.loads(cli("query", run_path, *asked, "--json").stdout)
    assert said[0]["live_ns_mean"] is None and said[0]["bytes_mean"] == (1 + 65536 * 4) / 4


def test_booleans_can_be_added(small: Writer, run_path: Path) -> None:
    found = query(tt.open(run_path), Query("epochs", sum=["full", "refused"]))
    assert found.values.tolist() == [[2, 0]]


# ---- columns that are worked out ----


def test_kernel_names_are_demangled(mixed: Path, pieces: int) -> None:
    fields = ["kernel", "demangled", "short"]
    names = query(tt.open(mixed), Query(filter='kind == "launch"', group_by=fields))
    rows = {tuple(row) for row in names[fields].values.tolist()}
    assert rows == {
        ("_ZN3lib4fillIfEEvPT_i", "void lib::fill<float>(float*, int)", "lib::fill"),
        ("_ZN3lib4fillIdEEvPT_i", "void lib::fill<double>(double*, int)", "lib::fill"),
        ("plain", "plain", "plain"),
        ("function 3", "function 3", "function 3"),
        ("other", "other", "other"),
    }
    by_short = query(tt.open(mixed), Query(group_by=["short"], sort=["short"]))
    assert by_short["short"].dropna().tolist() == ["function 3", "lib::fill", "other", "plain"]
    functions = query(tt.open(mixed), Query("functions", fields=["function", "short"]))
    assert functions["short"].tolist() == ["lib::fill", "lib::fill", "plain", "other"]


def test_epoch_of_a_call_is_the_next_one(mixed: Path, pieces: int) -> None:
    run = tt.open(mixed)
    found = query(run, Query(fields=["process", "seq", "epoch"]))
    epochs = run.epochs
    for process, seq, epoch in found.values.tolist():
        later = epochs[(epochs["process"] == process) & (epochs["seq"] >= seq)]["epoch"]
        assert (None if pd.isna(epoch) else epoch) == (later.min() if len(later) else None)


def test_host_time_ends_at_the_next_call_of_the_thread(mixed: Path, pieces: int) -> None:
    run = tt.open(mixed)
    found = query(run, Query(fields=["process", "thread", "seq", "time_ns", "host_ns"]))
    for _, calls in found.groupby(["process", "thread"]):
        gaps = calls["host_ns"].tolist()
        assert gaps[:-1] == np.diff(calls["time_ns"].to_numpy().astype("i8")).tolist()
        assert gaps[-1] is pd.NA
    total = query(run, Query(sum=["host_ns"]))["host_ns_sum"].tolist()
    assert total == [int(found["host_ns"].sum())]


def test_allocations_table(small: Writer, run_path: Path) -> None:
    allocs = query(tt.open(run_path), Query("allocs", fields=list(TABLES["allocs"].columns)))
    assert allocs["region"].tolist() == [0, 1, 2, 7, 8]
    assert allocs["freed"].tolist() == [True, False, False, False, False]
    first = allocs.iloc[0]
    assert (first["bytes"], first["free_call"]) == (3 * 65536 + 100, "cuMemFree_v2")
    assert first["live_ns"] == (first["free_seq"] - first["seq"]) * 1000
    assert first["free_ns"] == first["free_seq"] * 1000
    assert allocs["live_ns"].isna().tolist() == [False, True, True, True, True]
    assert set(allocs["site"]) == {"cuMemAlloc_v2, thread 4711"}
    assert set(allocs["thread"]) == {4711}


def test_sites_without_recorded_calls(small: Writer, run_path: Path) -> None:
    path = small.path / "events.bin"
    path.write_bytes(path.read_bytes()[:HEADER_SIZE])
    allocs = query(tt.open(run_path), Query("allocs", fields=["site", "thread"]))
    assert set(allocs["site"]) == {"cuMemAlloc_v2"}
    assert allocs["thread"].isna().all()


def test_changes_are_new_digests(run_path: Path, pieces: int) -> None:
    random = np.random.default_rng(3)
    w = Writer(run_path)
    for region in range(6):
        w.born(region, random.bytes(10))
    before: dict[int, bytes] = {}
    expected = dict.fromkeys(range(6), 0)
    for epoch in range(40):
        for region in range(5):
            if random.random() < 0.3:
                w.write(region, 0, random.bytes(1))
        w.epoch("sync", *(["full"] if epoch % 8 == 0 else []))
        for region, memory in w.history[-1].items():
            expected[region] += region in before and before[region] != memory
            before[region] = memory
    w.close()
    found = query(tt.open(run_path), Query("regions", fields=["region", "changes"]))
    assert dict(found.values.tolist()) == expected
    assert expected[5] == 0 and expected[0] > 3


def test_every_column_is_described() -> None:
    page = (support.ROOT / "docs" / "reference" / "tables.md").read_text()
    described = set(re.findall(r"`(\w+)`", page))
    axes = {f"{what}_{axis}" for what in ("grid", "block", "cluster") for axis in "xyz"}
    for name, table in TABLES.items():
        assert {*table.columns} - axes <= described, name
        assert set(table.shown) <= set(table.columns)


# ---- what can't be asked ----

HOSTILE = [
    '__import__("os").system("false")',
    "kind.__class__",
    "kind.cat.codes > 0",
    "().__class__.__bases__[0].__subclasses__()",
    "[x for x in (1, 2)]",
    "(lambda: 1)()",
    "seq.max() > 1",
    "seq.apply(print)",
    "kind.str.len() > 1",
    'kind.str.replace("a", "b") == "b"',
    'kind.str.contains("a", flags=2)',
    "@seq > 1",
    "seq[0] > 1",
    "seq ** seq > 1",
    "1 << 999999999999 > seq",
    '"a" * 999999999 == kind',
    'f"{seq}" == "1"',
    "seq if seq else seq",
    "(seq := 1) == 1",
    "seq; seq",
    "await seq",
    "seq is None",
    "eval('1')",
    "not seq",
    "seq and 1 > 0",
    "seq > 'a'",
    "kind > 1",
    "kind + 'a' == 'b'",
    "kind == kernel == call < kind",
    'kind.str.contains("(")',
    "bytes.str.contains('a')",
    "seq in kind",
    "'a' in kind",
    "seq",
    "'launch'",
    "",
    "   ",
    "seq >",
    "((((",
    "(" * 5000 + "seq" + ")" * 5000,
    "not " * 5000 + "full",
    "seq > " + "1" * 6000,
    "seq == 1 or " * 2000 + "seq == 1",
    "\N{SNOWMAN} > 1",
    "seq.between(1)",
    "seq.isna(1)",
    "seq.isin(1)",
    "... == seq",
    "b'a' == kind",
    "1j == seq",
    "1 / 0 > seq",
    "seq ~ 1",
]


@pytest.mark.parametrize("condition", HOSTILE)
def test_invalid_conditions_give_a_one_line_error(
    cli: Cli, small: Writer, run_path: Path, condition: str
) -> None:
    outcome = cli("query", run_path, f"--filter={condition}")
    assert (outcome.status, outcome.stdout) == (2, "")
    assert outcome.stderr.startswith(f"ttanalyze: --filter {condition.strip()[:20].strip()}"[:40])
    assert outcome.stderr.count("\n") == 1
    assert len(outcome.stderr) < 600


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--table", "nothing"], "--table nothing: must be one of events, activities, ranges, "),
        (["--filter", "size > 1"], "no column size; events has: process, seq, time_ns, kind"),
        (["--fields", "size"], "--fields size: no such column; events has: process, seq"),
        (["--group-by", "kind,size"], "--group-by size: no such column"),
        (["--sum", "size"], "--sum size: no such column"),
        (["--sum", "kind"], "kind is text: sum, min, max and mean need a numeric column"),
        (["--sort", "-size"], "--sort size: no such column"),
        (["--group-by", "kind", "--sort", "seq"], "the answer has: kind, count"),
        (["--top", "-1"], "--top -1: expected a number of rows"),
        (["--top", "x"], "--top x: expected a whole number"),
        (["--head", "x"], "ttanalyze: --head x: expected a whole number"),
        (["--head=-1"], "ttanalyze: --head -1: expected a number of rows"),
        (["--ranks", "x"], "ttanalyze: --ranks x: "),
        (["--filter", "kind="], "--filter kind=: kind= needs a value"),
        (["--filter", "kind=launch;seq>="], "--filter kind=launch;seq>=: seq>= needs a value"),
        (["--format", "xml"], "--format xml: must be one of table, csv, json, ndjson, parquet"),
        (["--format", "parquet"], "--format parquet: needs -o FILE"),
        (["-o", "no/such/file"], "file: directory"),
        (["--format", "csv", "-o", "/dev/full"], "/dev/full: No space left on device"),
    ],
)
def test_errors_are_one_line(
    cli: Cli, small: Writer, run_path: Path, arguments: list[str], reason: str
) -> None:
    outcome = cli("query", run_path, *arguments)
    assert (outcome.status, outcome.stdout) == (2, "")
    assert outcome.stderr.startswith("ttanalyze: ") and outcome.stderr.count("\n") == 1
    assert reason in outcome.stderr


def test_damaged_events_give_a_one_line_error(cli: Cli, small: Writer, run_path: Path) -> None:
    path = small.path / "events.bin"
    edit(path, 3, kind=99)
    reason = "offset 448: the record does not match its check"
    outcome = cli("query", run_path, "--count")
    assert outcome == Outcome("", f"ttanalyze: {path}: {reason}\n", 2)


# ---- how it is printed ----


def test_printed_table_is_aligned(cli: Cli, mixed: Path) -> None:
    asked = ["--group-by", "kind", "--count", "--sum", "bytes", "--sort", "kind"]
    lines = cli("query", mixed, *asked).stdout.splitlines()
    assert lines[0].split() == ["kind", "count", "bytes_sum"]
    assert len({len(line) for line in lines}) == 1
    copy = next(line for line in lines if line.startswith("copy "))
    events = tt.open(mixed).events
    assert copy.split()[2] == f"{int(events.loc[events['kind'] == 'copy', 'bytes'].sum()):,}"


def test_printed_table_shows_the_first_rows(cli: Cli, mixed: Path) -> None:
    rows = len(tt.open(mixed).events)
    lines = cli("query", mixed).stdout.splitlines()
    assert lines[51] == f"… and {rows - 50:,} more rows (--top N shows N, --format csv all)"
    more = cli("query", mixed, "--top", "1000", "--no-header").stdout.splitlines()
    assert len(more) == rows
    assert cli("query", mixed, "--filter", "seq < 0").stdout == "no rows\n"


def test_printed_table_names_the_columns_that_it_hides(cli: Cli, mixed: Path) -> None:
    said = " ".join(cli("query", mixed).stdout.split()).partition("not shown (--fields NAME,…): ")
    header = said[0].split()[:12]
    hidden = said[2].split(", ")
    assert {"time_ns", "result", "caller", "gpu_time"} <= {*hidden}
    assert not {*header} & {*hidden}
    assert len(header) + len(hidden) == len(TABLES["events"].columns)
    for options in (["--fields", "seq"], ["--count"], ["--no-header"], ["--format", "csv"]):
        assert "not shown" not in cli("query", mixed, *options).stdout


def test_printed_table_fits_the_terminal(mixed: Path) -> None:
    """Texts are cut, columns left out, and that is said; unless nobody looks."""
    command = [sys.executable, "-m", "ttanalyze", "query", str(mixed), "--top", "5"]
    fields = "--fields=demangled,kernel,call,seq,bytes,thread,stream,grid_x,grid_y,dst"
    main, sub = pty.openpty()
    environment = support.bare_environment(COLUMNS="70", LINES="24")
    with subprocess.Popen(
        [*command, fields, "--filter=kernel.str.contains('fill')"],
        stdout=sub,
        cwd=support.ROOT,
        env=environment,
    ) as process:
        os.close(sub)
        shown = b""
        while True:
            try:
                more = os.read(main, 4096)
            except OSError:
                break
            if not more:
                break
            shown += more
        assert process.wait() == 0
    os.close(main)
    lines = shown.decode().splitlines()
    assert max(len(line) for line in lines[:-1]) <= 70
    assert "…" in lines[1]
    assert lines[-1].startswith("… not shown for lack of room: ") and lines[-1].endswith("dst")


def read(outcome: Outcome, form: str) -> list[dict[str, Any]]:
    assert (outcome.status, outcome.stderr) == (0, "")
    if form == "csv":
        return list(csv.DictReader(io.StringIO(outcome.stdout)))
    if form == "json":
        rows: list[dict[str, Any]] = json.loads(outcome.stdout)
        return rows
    return [json.loads(line) for line in outcome.stdout.splitlines()]


@pytest.mark.sampled
@pytest.mark.parametrize("form", ["csv", "json", "ndjson"])
@pytest.mark.parametrize("table", list(TABLES))
def test_formats_have_all_rows_and_columns(
    cli: Cli, small: Writer, run_path: Path, pieces: int, table: str, form: str
) -> None:
    frame = as_nanoseconds(query(tt.open(run_path), Query(table)))
    rows = read(cli("query", run_path, "--table", table, "--format", form), form)
    assert len(rows) == len(frame)
    for name in frame.columns:
        values = [None if pd.isna(v) else v for v in frame[name].tolist()]
        if form == "csv":
            values = ["" if v is None else str(v) for v in values]
        assert [row[name] for row in rows] == values
    assert not rows or list(rows[0]) == list(frame.columns)


@pytest.mark.parametrize("form", ["csv", "json", "ndjson"])
def test_formats_of_empty_results(cli: Cli, small: Writer, run_path: Path, form: str) -> None:
    asked = ["--filter", "seq < 0", "--fields", "seq,kind", "--format", form]
    outcome = cli("query", run_path, *asked)
    assert outcome.stdout == {"csv": "seq,kind\n", "json": "[]\n", "ndjson": ""}[form]
    assert outcome.status == 0


def test_json_option_equals_format_json(cli: Cli, small: Writer, run_path: Path) -> None:
    asked = ["query", run_path, "--group-by", "kind", "--count"]
    assert json.loads(cli(*asked, "--json").stdout) == [
        {"kind": "alloc", "count": 5},
        {"kind": "epoch", "count": 5},
        {"kind": "launch", "count": 2},
        {"kind": "free", "count": 1},
    ]


def test_parquet_output(cli: Cli, mixed: Path, tmp_path: Path, pieces: int) -> None:
    path = tmp_path / "events.parquet"
    assert cli("query", mixed, "--format", "parquet", "-o", path) == Outcome("", "", 0)
    same(pd.read_parquet(path), query(tt.open(mixed), Query()))
    asked = ["--filter", "seq < 0", "--format", "parquet", "-o", path]
    assert cli("query", mixed, *asked).status == 0
    assert len(pd.read_parquet(path)) == 0


def test_parquet_needs_pyarrow(
    cli: Cli, small: Writer, run_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    outcome = cli("query", run_path, "--format", "parquet", "-o", tmp_path / "x")
    assert outcome.status == 2
    assert outcome.stderr == (
        "ttanalyze: --format parquet needs pyarrow: pip install 'ttanalyze[scale]'\n"
    )
    assert not (tmp_path / "x").exists()


def test_output_file_is_replaced_atomically(
    cli: Cli, small: Writer, run_path: Path, tmp_path: Path
) -> None:
    path = tmp_path / "answer.csv"
    path.write_text("before")
    assert cli("query", run_path, "--filter", "seq >", "-o", path).status == 2
    assert path.read_text() == "before"
    assert cli("query", run_path, "--format", "csv", "-o", path) == Outcome("", "", 0)
    assert path.read_text() == cli("query", run_path, "--format", "csv").stdout
    assert cli("query", run_path, "--count", "-o", path) == Outcome("", "", 0)
    assert path.read_text() == cli("query", run_path, "--count").stdout


def test_escape_sequences_in_names_are_not_printed(cli: Cli, run_path: Path) -> None:
    w = Writer(run_path)
    w.function(0, "\x1b]0;owned\x07")
    w.event("launch", "cuLaunchKernel", id=0)
    w.close()
    assert "\x1b" not in cli("query", run_path, "--fields", "kernel,short,demangled").stdout


def test_missing_demangler_is_reported_once(
    cli: Cli, mixed: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("ttanalyze.code.demangle._known", {})
    monkeypatch.setattr("ttanalyze.code.demangle.RUNTIME", "raise SystemExit(3)")
    outcome = cli("query", mixed, "--group-by", "demangled", "--count")
    assert "_ZN3lib4fillIfEEvPT_i" in outcome.stdout
    assert outcome.status == 0
    assert outcome.stderr == ("ttanalyze: kernel names stay mangled: libstdc++.so.6 is not here\n")


# ---- real and strange runs ----


def test_help_examples_work(
    cli: Cli, recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))  # of saved queries
    lines = f"{QUERY_EXAMPLES}{EVENTS_EXAMPLES}".splitlines()
    commands = [line.strip() for line in lines if line.strip().startswith("ttanalyze ")]
    assert len(commands) >= 12
    assert cli("events", recorded, "-o", tmp_path / "kernel_events.ndjson").status == 0
    traced = traced_run.written(tmp_path / "traced")
    executed = {"type": "opcode_only", "opcode_id": 0, "cta": [0, 0, 0], "warp": 0}
    executed["sass"] = "EXIT ;"
    (tmp_path / "kernel_trace.ndjson").write_text(json.dumps(executed))
    passed = [{"name": "x", "pid": f"Core0 CTA{i}", "tid": f"warp {i}", "dur": 1} for i in (0, 1)]
    (tmp_path / "add.chrome_trace").write_text(json.dumps({"traceEvents": passed}))
    for command in commands:
        words = [str(recorded) if w in ("run1", "run2") else w for w in shlex.split(command)[1:]]
        words = [str(traced) if word == "traced1" else word for word in words]
        written = (".csv", ".ndjson", ".zst", ".chrome_trace")
        words = [str(tmp_path / w) if w.endswith(written) else w for w in words]
        outcome = cli(*words)
        saves = "--save" in words
        assert (outcome.status, "--use kernels" in outcome.stderr) == (0, saves), command
        assert saves or not outcome.stderr, command


def test_query_of_a_recorded_program(cli: Cli, recorded: Path) -> None:
    launches = ["--filter", 'kind == "launch"', "--group-by", "short", "--count", "--json"]
    counts = {
        row["short"]: row["count"] for row in json.loads(cli("query", recorded, *launches).stdout)
    }
    assert counts["matmul"] == 42 and sum(counts.values()) == 203
    allocs = tt.open(recorded)
    sites = query(allocs, Query("allocs", group_by=["site"], count=True, sum=["bytes"]))
    assert len(sites) == 1
    assert re.fullmatch(r"cuMemAlloc_v2, thread \d+", sites["site"][0])
    assert sites["bytes_sum"][0] == int(allocs.regions["size"].sum())


def test_empty_runs(cli: Cli, tmp_path: Path) -> None:
    empty = Writer(tmp_path / "empty")
    empty.close()
    (tmp_path / "none").mkdir()
    info = '{"format":"ttanalyze-run","version":1,"created_ns":0,"processes":[]}'
    (tmp_path / "none" / "run.json").write_text(info)
    for name, tables in (("empty", list(TABLES)), ("none", ["events", "regions"])):
        for table in tables:
            every = ",".join(TABLES[table].columns)
            outcome = cli("query", tmp_path / name, "--table", table, "--fields", every)
            assert outcome == Outcome("no rows\n", "", 0), (name, table)
            asked = ("--table", table, "--count", "--json")
            assert json.loads(cli("query", tmp_path / name, *asked).stdout) == [{"count": 0}]
            grouped = ("--table", table, "--group-by", TABLES[table].columns[1])
            assert cli("query", tmp_path / name, *grouped).stdout == "no rows\n"


def test_result_is_computed_in_pieces(mixed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_tables, "PIECE", 10)
    seen: list[tuple[int, int]] = []
    run = tt.open(mixed)
    found: Iterator[pd.DataFrame] = stream(run, Query(), lambda done, of: seen.append((done, of)))
    parts = list(found)
    assert len(parts) > 10 and max(map(len, parts)) <= 10
    rows = len(run.events)
    assert seen[-1] == (rows, rows) and [d for d, _ in seen] == sorted(d for d, _ in seen)


def test_growing_run_is_queried_as_opened(run_path: Path) -> None:
    w = small_run(run_path)
    run = tt.open(run_path)
    before = len(query(run, Query()))
    w.event("sync", "cuCtxSynchronize")
    assert len(query(run, Query())) == before
    assert len(query(tt.open(run_path), Query())) == before + 1
