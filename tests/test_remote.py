"""Runs elsewhere: verbs read them from an S3-compatible server, and only what they need."""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import ttanalyze as tt
from bench import generated_job
from bench.generated_job import Job
from tests import elsewhere, support
from tests.rundir import Writer, tell_endings
from ttanalyze.cli import run_command
from ttanalyze.util import remote
from ttanalyze.verbs.record import totals

pytestmark = elsewhere.needs_server
MEBI = 1 << 20


@pytest.fixture(scope="module", autouse=True)
def server() -> Iterator[dict[str, str]]:
    with elsewhere.served() as told:
        yield told


def write(run: Path, last: int = 0) -> Path:
    """A run with 8 MiB of contents that do not compress. last: a byte of the last epoch."""
    writer = Writer(run)
    noise = np.random.default_rng(3)
    for region, label in enumerate(("weights", "inputs")):
        writer.born(region, noise.bytes(2 * MEBI), label=label)
    writer.epoch()
    for region in range(2):
        writer.write(region, 0, noise.bytes(2 * MEBI))
    if last:
        writer.write(1, 5 * 65536, bytes([last]))
    writer.epoch()
    writer.close()
    tell_endings(run)
    return run


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    run = write(tmp_path_factory.mktemp("runs") / "run")
    return run, elsewhere.put(run, "run")


def read_by(*command: str) -> tuple[int, int]:
    """Exit status of a verb, and the bytes that it read from elsewhere."""
    before = remote.traffic.bytes
    return run_command([*command]), remote.traffic.bytes - before


def test_a_remote_run_has_the_same_tables_and_contents(runs: tuple[Path, str]) -> None:
    here, there = (tt.open(run) for run in runs)
    assert repr(there) == "<Run 's3://runs/run': 1 process, 2 epochs>"
    for table in ("epochs", "regions", "digests", "events", "allocs"):
        assert getattr(there, table).equals(getattr(here, table)), table
    assert there.manifest() == here.manifest()
    assert np.array_equal(there.read(1, "inputs"), here.read(1, "inputs"))
    assert tt.verify(there).same


def test_verbs_read_only_what_they_need(
    runs: tuple[Path, str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    url, other = runs[1], elsewhere.put(write(tmp_path / "other", last=9), "other")
    size = sum(path.stat().st_size for path in runs[0].rglob("*") if path.is_file())
    assert size > 8 * MEBI
    status, read = read_by("info", url)
    told = capfd.readouterr()
    assert status == 0 and f"read {read:,} bytes in " in told.err
    assert read < size / 50 and "8.0 MiB on disk" in told.out
    status, read = read_by("query", url, "--table", "regions", "--json")
    assert status == 0 and read < size / 50 and "weights" in capfd.readouterr().out
    status, read = read_by("diff", url, other)
    assert status == 1 and read < size / 10  # and both runs
    assert "region 1 'inputs' at byte 327680" in capfd.readouterr().out
    assert read_by("verify", url)[1] >= 8 * MEBI  # which does read all
    assert run_command(["diff", str(runs[0]), url]) == 0
    assert run_command(["info", f"file://{runs[0]}"]) == 0


def test_info_of_long_ranks_reads_no_epochs(tmp_path: Path) -> None:
    generated_job.write(tmp_path / "job", Job(3, totals.LONG, 1))
    url = elsewhere.put(tmp_path / "job", "job")
    texts = sum(path.stat().st_size for path in (tmp_path / "job").rglob("*.json"))
    status, read = read_by("info", url)
    assert status == 0 and read <= texts < (tmp_path / "job/p0/epochs.bin").stat().st_size


def test_a_run_in_pieces_reads_as_one(runs: tuple[Path, str], tmp_path: Path) -> None:
    url = elsewhere.put(runs[0], "pieces")
    name = "p0/data-00000.bin"
    whole = (runs[0] / name).read_bytes()
    cuts = [0, MEBI + 17, 3 * MEBI, len(whole)]
    for begin, end in pairwise(cuts):
        elsewhere.files().pipe(f"{url}/{name}" + (f"@{begin}" if begin else ""), whole[begin:end])
    assert tt.verify(tt.open(url)).same
    elsewhere.files().rm(f"{url}/{name}@{cuts[1]}")
    with pytest.raises(tt.Error, match=r"outside data-00000\.bin"):  # nothing behind a gap counts
        tt.verify(tt.open(url), keep_going=True)


def test_errors_say_what_to_do(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def error_of(url: str) -> str:
        assert run_command(["info", url]) == 2
        line = capfd.readouterr().err.splitlines()[-1]
        assert line.startswith("ttanalyze: ")
        return line.removeprefix("ttanalyze: ")

    assert error_of("s3://nobucket/run") == (
        "s3://nobucket/run: no files there; check the bucket and the path"
    )
    assert error_of("abc://x/y") == (
        "abc://: unknown kind of URL; use s3://, gs://, https:// or file://"
    )
    assert error_of("ftp://x/y") == (
        "ftp://: unknown kind of URL; use s3://, gs://, https:// or file://"
    )
    monkeypatch.setitem(sys.modules, "gcsfs", None)
    assert error_of("gs://b/r") == "gs:// needs gcsfs: pip install 'ttanalyze[remote]'"

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError("Access Denied")

    assert error_of("http://127.0.0.1:1/r").startswith(
        "http://127.0.0.1:1/r: the server does not answer; check the network and the address"
    )
    monkeypatch.setattr(type(elsewhere.files()), "find", refuse)
    assert error_of("s3://runs/run") == (
        "s3://runs/run: no permission; set AWS_PROFILE, or AWS_ACCESS_KEY_ID and "
        "AWS_SECRET_ACCESS_KEY"
    )


def test_a_web_server(runs: tuple[Path, str], capfd: pytest.CaptureFixture[str]) -> None:
    with elsewhere.web(runs[0].parent) as address:
        assert tt.open(f"{address}/run").manifest() == tt.open(runs[0]).manifest()
        assert run_command(["info", f"{address}/nothing"]) == 2
    assert "/nothing: " in capfd.readouterr().err


@pytest.mark.parametrize(
    ("fail", "said"),
    [
        ("403", "/p0/blocks.bin: no permission; use a URL that needs no login"),
        ("404", "/p0/blocks.bin: does not exist; check the bucket and the path"),
        ("503", "/p0/blocks.bin: the server failed; try again later (status 503)"),
        (
            "no size",
            "/p0/blocks.bin: the server does not say how large it is; use one that serves ranges",
        ),
        ("page", ": no files there; check the bucket and the path"),
    ],
)
def test_a_web_server_that_fails(
    fail: str, said: str, runs: tuple[Path, str], capfd: pytest.CaptureFixture[str]
) -> None:
    with elsewhere.web(runs[0].parent, fail) as address:
        assert run_command(["info", f"{address}/run"]) == 2
    assert capfd.readouterr().err == f"ttanalyze: {address}/run{said}\n"


def test_names_with_blanks_and_letters(
    runs: tuple[Path, str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    name = "run ü"
    shutil.copytree(runs[0], tmp_path / name)
    with elsewhere.web(tmp_path) as address:
        assert run_command(["verify", f"{address}/{name}"]) == 0
    assert run_command(["push", str(tmp_path / name), f"s3://{elsewhere.BUCKET}/{name}"]) == 0
    assert run_command(["diff", str(runs[0]), f"s3://{elsewhere.BUCKET}/{name}"]) == 0


def test_libraries_of_servers_print_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    """Python prints warnings of a library that has no handler, with tracebacks."""
    remote.filesystem("s3://")
    for library in ("fsspec", *remote.NEEDS.values()):
        logging.getLogger(library).warning("out of retries")
    assert capfd.readouterr().err == ""


@pytest.mark.long
def test_a_program_is_recorded_and_uploaded(server: dict[str, str], tmp_path: Path) -> None:
    """By two commands side by side. An interrupt ends the second, which then goes on."""
    run, url = tmp_path / "run", f"s3://{elsewhere.BUCKET}/live"
    environment = os.environ | server
    push = [sys.executable, "-m", "ttanalyze", "push", str(run), url, "--every", "0.1"]
    uploads = subprocess.Popen(push, env=environment, stdout=subprocess.PIPE, text=True)
    script = "import subprocess, sys, time\nfor _ in range(3): "
    script += "subprocess.run(sys.argv[1:]); time.sleep(1)"
    program = [sys.executable, "-c", script, *support.command("copy_1d", tmp_path)]
    record = [sys.executable, "-m", "ttanalyze", "record", "--sim", "-o", str(run), "--"]
    recorded = subprocess.Popen([*record, *program], stdout=subprocess.DEVNULL)
    until = time.monotonic() + 60
    while not elsewhere.files().exists(f"{url}/p0/epochs.bin"):
        assert time.monotonic() < until
        time.sleep(0.1)
    uploads.send_signal(signal.SIGINT)
    assert "interrupted: the same command goes on" in uploads.communicate(timeout=60)[0]
    assert uploads.returncode == 130
    done = support.run(push, environment)
    assert done.status == 0 and url in done.stdout and "still runs" not in done.stdout
    assert recorded.wait(60) == 0
    assert len(tt.open(url).processes) == 3
    assert tt.open(url).manifest() == tt.open(run).manifest()
    assert json.loads(elsewhere.files().cat(f"{url}/push.json"))["ended"]
