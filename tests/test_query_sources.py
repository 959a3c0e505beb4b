"""`ttanalyze query` of several sources, short filters, and the forms of its output."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import zstandard

from tests import instruction_traces as made
from tests.rundir import Writer
from tests.support import Cli
from ttanalyze.verbs.query import Query, query
from ttanalyze.verbs.query.traces import open_file

LAUNCH = {"type": "kernel_launch", "grid": [1, 1, 1], "block": [32, 1, 1], "nregs": 8, "shmem": 0}


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return made.ndjson(tmp_path / "a.ndjson", made.METADATA, *made.opcodes())


def events(path: Path, *checksums: str) -> Path:
    launches = [
        {**LAUNCH, "kernel_launch_id": n, "kernel_name": f"k{c}", "kernel_checksum": c,
         "stream_id": n, "cpu_callstack": ["m.py:1 in f"], "cpu_callstack_source": "cpython_gil"}
        for n, c in enumerate(checksums)
    ]  # fmt: skip
    return made.ndjson(path, *launches)


def test_kernel_event_files_have_their_own_names(cli: Cli, tmp_path: Path) -> None:
    path = events(tmp_path / "events.ndjson", "12", "34", "12")
    counted = cli("query", path, "--group-by", "kernel_checksum", "--count", "--format", "csv")
    assert counted.stdout == "kernel_checksum,count\n12,2\n34,1\n"
    fields = "kernel_launch_id,kernel_name,caller,stream_id,nregs"
    some = ("--filter", "kernel_checksum=34", "--format", "csv", "--no-header")
    assert cli("query", path, "--fields", fields, *some).stdout == "1,k34,f (m.py:1),1,8\n"


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("pc=0x20;warp=3", "pc == 32 and warp == 3"),
        ("pc >= 0x20; warp != 3 ;", "pc >= 32 and warp != 3"),
        ("warp<2;warp>0", "warp == 1"),
        ("opcode=LDG", "opcode == 'LDG'"),
        ("sass='EXIT';cta=[1,0,0]", "sass == 'EXIT' and cta_x == 1"),
        ("kernel_checksum=abcd1234;type=opcode_only", "warp >= 0"),
        ("sass=a;b=c", None),
        ("warp=x", None),
        ("=5", None),
    ],
)
def test_short_filters(cli: Cli, trace: Path, text: str, same: str | None) -> None:
    outcome = cli("query", trace, "--filter", text, "--fields", "line", "--format", "csv")
    if same is None:
        assert outcome.status == 2 and outcome.stderr.startswith(f"ttanalyze: --filter {text}: ")
        return
    lines = query(open_file(trace), Query(filter=same, fields=["line"]))["line"].tolist()
    assert lines and outcome.stdout.splitlines()[1:] == [str(line) for line in lines]


def test_all_filters_must_hold(cli: Cli, trace: Path) -> None:
    both = ("--filter", "warp=1", "--filter", "pc > 64", "--fields", "sass", "--format", "csv")
    assert cli("query", trace, *both).stdout == "sass\nEXIT\n"


def test_first_and_last_rows(cli: Cli, trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ttanalyze.verbs.query.traces.PIECE", 5)

    def lines(*words: str) -> list[int]:
        out = cli("query", trace, *words, "--fields", "line", "--format", "csv").stdout
        return [int(line) for line in out.splitlines()[1:]]

    assert lines("--head", "2") == [2, 3]
    assert lines("--tail", "7") == [19, 20, 21, 22, 23, 24, 25]
    assert lines("--tail", "0") == []
    assert lines("--tail", "99") == [*range(2, 26)]
    assert lines("--tail", "2", "--sort", "-line") == [3, 2]
    grouped = cli("query", trace, "--group-by", "warp", "--tail", "1", "--format", "csv")
    assert grouped.stdout == "warp,count\n3,6\n"
    for words, reason in [
        (("--tail", "-1"), "--tail -1: expected a number of rows"),
        (("--head", "1", "--tail", "1"), "--tail cannot be combined with --top or --head"),
    ]:
        outcome = cli("query", trace, *words)
        assert (outcome.status, outcome.stderr) == (2, f"ttanalyze: {reason}\n")


def test_output_without_header_and_compressed(cli: Cli, trace: Path, tmp_path: Path) -> None:
    words = ("--fields", "warp,sass", "--filter", "sass=EXIT;warp<2")
    assert (
        cli("query", trace, *words, "--format", "csv", "--no-header").stdout == "0,EXIT\n1,EXIT\n"
    )
    assert cli("query", trace, *words, "--no-header").stdout.split() == ["0", "EXIT", "1", "EXIT"]
    out = tmp_path / "out.zst"
    assert cli("query", trace, *words, "--format", "ndjson", "--compress", "-o", out).status == 0
    assert zstandard.ZstdDecompressor().decompressobj().decompress(out.read_bytes()) == (
        b'{"warp":0,"sass":"EXIT"}\n{"warp":1,"sass":"EXIT"}\n'
    )
    asked = ("-f", "sass=EXIT", "-f", "warp<2", "-n", "1", "-a", "--output", out, "--compress")
    assert cli("query", trace, *asked, "--format", "csv", "--no-header").status == 0
    for name in ("all", "*"):
        whole = json.loads(cli("query", trace, "--fields", name, "-t", "1", "--json").stdout)
        assert list(whole[0]) == list(json.loads(cli("query", trace, "--json").stdout)[0])
    assert cli("query", trace, "-g", "warp", "--count", "--fields", "all", "-n", "1").status == 0
    for more, reason in [
        (("--no-header", "--json"), "--no-header: json has no header"),
        (("--compress",), "--compress: needs -o FILE and a format other than parquet"),
    ]:
        assert cli("query", trace, *more).stderr == f"ttanalyze: {reason}\n"


def test_several_files_are_one_table(cli: Cli, trace: Path, tmp_path: Path) -> None:
    other = made.compressed(tmp_path / "b.ndjson.zst", made.METADATA, *made.opcodes([0]))
    words = ("--group-by", "file", "--format", "csv")
    counted = cli("query", tmp_path / "*.ndjson*", *words).stdout
    assert (
        counted
        == f"file,count\n{trace},24\n{other},6\n"
        == cli("query", trace, other, *words).stdout
    )
    rows = cli("query", trace, other, "--filter", "warp=0;sass=EXIT", "--json").stdout
    assert [row["file"] for row in json.loads(rows)] == [str(trace), str(other)]
    assert cli("query", trace, other, "--count", "--format", "csv").stdout == "count\n30\n"
    other.write_bytes(other.read_bytes()[:-5])
    assert f"{other}: the zstd frame" in cli("query", trace, other, *words).stderr
    one = cli("query", tmp_path / "*.ndjson", *words).stdout
    assert one == f"file,count\n{trace},24\n"
    assert cli("query", tmp_path / "*.none").stderr.endswith("/*.none: no file matches\n")
    mixed = cli("query", trace, events(tmp_path / "e", "1"))
    assert mixed.stderr == f"ttanalyze: {tmp_path / 'e'}: not of the same kind as {trace}\n"


def test_several_runs_are_one_table(cli: Cli, tmp_path: Path) -> None:
    for name in ("run1", "run2"):
        with_launches = Writer(tmp_path / name)
        with_launches.function(0, name)
        with_launches.event("launch", "cuLaunchKernel", id=0)
        with_launches.close()
    words = ("--sort", "-kernel", "--fields", "file,kernel", "--format", "csv")
    runs = [tmp_path / "run1", tmp_path / "run2"]
    assert cli("query", *runs, *words).stdout.splitlines()[1:] == [
        f"{runs[1]},run2",
        f"{runs[0]},run1",
    ]
