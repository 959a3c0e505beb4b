"""push: a run elsewhere that has what the directory has, at any time up to an epoch."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ttanalyze as tt
from tests import support
from tests.rundir import Writer, tell_endings
from ttanalyze.cli import run_command
from ttanalyze.util import remote
from ttanalyze.verbs import push as verb

pytest.importorskip("fsspec")
SMALL = 1 << 16  # bytes of a piece, of which files then have many
BLOCK = 65536


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """An empty file system in memory, to which runs are uploaded in small pieces."""
    monkeypatch.setattr(verb, "PIECE", SMALL)
    monkeypatch.setattr(verb, "BATCH", SMALL)
    monkeypatch.setattr(verb, "QUIET", -1.0)
    files = remote.filesystem("memory://")
    files.store.clear()
    files.pseudo_dirs[:] = [""]
    yield files
    files.store.clear()


URL = "memory://runs/run"


def begun(path: Path, **told: Any) -> Writer:
    """A run with an epoch whose program runs."""
    writer = Writer(path)
    noise = np.random.default_rng(5)
    writer.born(0, noise.bytes(3 * BLOCK), label="weights")
    writer.epoch()
    say(writer, "running", **told)
    return writer


def say(writer: Writer, status: str, **told: Any) -> None:
    """Writes process.json of a program whose process is this one."""
    writer.close(status, pid=os.getpid(), **told)


def grow(writer: Writer, seed: int) -> None:
    writer.write(0, BLOCK * (seed % 3), np.random.default_rng(seed).bytes(BLOCK))
    writer.event("launch", "cuLaunchKernel")
    writer.epoch()


def contents(run: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(run)): path.read_bytes() for path in run.rglob("*") if path.is_file()
    }


def uploaded(files: Any, name: str = "run") -> dict[str, bytes]:
    """The files at the URL without the note of push, their pieces joined."""
    root = f"/runs/{name}/"
    pieces: dict[str, list[tuple[int, str]]] = {}
    for path in files.find(root):
        whole, _, at = path.removeprefix(root).partition("@")
        pieces.setdefault(whole, []).append((int(at or 0), path))
    del pieces["push.json"]
    return {
        whole: b"".join(files.cat_file(path) for _, path in sorted(found))
        for whole, found in pieces.items()
    }


def watch(monkeypatch: pytest.MonkeyPatch, then: Callable[[list[str]], None]) -> None:
    """Calls `then` with the names of the uploaded objects after each upload."""
    call = remote.call

    def watched(of: str, method: str, *args: Any, **options: Any) -> Any:
        out = call(of, method, *args, **options)
        if method == "pipe":
            then([name.removeprefix(f"{of}/") for name in args[0]])
        return out

    monkeypatch.setattr(remote, "call", watched)


def push_once(run: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Uploads what is new. Returns the names of the uploaded objects, without the note."""
    names: list[str] = []
    with monkeypatch.context() as patch:
        watch(patch, names.extend)
        tt.push(run, URL, follow=False)
    return [name for name in names if name != "push.json"]


def test_a_finished_run_is_there_whole(
    bucket: Any, run_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = begun(run_path)
    grow(writer, 1)
    say(writer, "complete")
    tell_endings(run_path)
    done = tt.push(run_path, URL)
    assert (done.ended, done.rounds, done.epochs) == (True, 1, 2)
    assert uploaded(bucket) == contents(run_path)
    assert sum("@" in path for path in bucket.find("/runs")) >= 3
    there = tt.open(URL)
    assert there.manifest() == tt.open(run_path).manifest() and tt.diff(run_path, there).same
    assert push_once(run_path, monkeypatch) == []


def test_what_is_there_opens_after_each_upload(
    bucket: Any, run_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = begun(run_path)
    seen, looks = [0], [0]

    def look(_: list[str]) -> None:
        if bucket.exists("/runs/run/p0"):
            there = tt.open(URL)
            assert len(there.epochs) >= seen[-1]
            seen.append(len(there.epochs))
            for epoch in range(seen[-1]):
                assert there.read(epoch, 0).tobytes() == writer.history[epoch][0], epoch
        looks.append(0)
        if len(looks) % 3:
            return
        if len(writer.history) < 8:  # the program goes on meanwhile
            grow(writer, len(seen))
        elif len(writer.history) == 8:
            grow(writer, len(seen))
            say(writer, "complete")
            tell_endings(run_path)

    watch(monkeypatch, look)
    done = tt.push(run_path, URL, every=0)
    assert done.ended and done.rounds > 2 and done.epochs == seen[-1] == 9
    assert len(set(seen)) > 3
    assert uploaded(bucket) == contents(run_path)


def test_while_the_program_runs_only_ends_are_uploaded(
    bucket: Any, run_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = begun(run_path)
    uploads: list[set[str]] = [set()]
    watch(monkeypatch, lambda names: uploads[-1].update(names))

    def next_round(_: float) -> None:
        uploads.append(set())
        if len(uploads) == 3:
            data = run_path / "p0" / "data-00000.bin"
            raw = data.read_bytes()
            data.write_bytes(raw[:100] + b"x" + raw[101:])  # which the recorder never does
            grow(writer, 2)
        elif len(uploads) == 5:
            say(writer, "complete")

    monkeypatch.setattr(time, "sleep", next_round)
    assert tt.push(run_path, URL).rounds == 5
    data = "p0/data-00000.bin"
    first, idle, more, _, last = uploads
    assert {data, f"{data}@{SMALL}"} <= first and idle <= {"push.json"}
    assert data not in more and f"{data}@{3 * SMALL}" in more
    assert data in last and f"{data}@{SMALL}" not in last  # the last round compares all
    assert uploaded(bucket) == contents(run_path)


def test_files_that_shrink_or_go_do_so_there(
    bucket: Any, run_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = begun(run_path)
    spare = run_path / "p0" / "data-00001.bin"
    spare.write_bytes(bytes(5 * SMALL))
    data = run_path / "p0" / writer.data
    whole = data.stat().st_size
    with data.open("ab") as file:  # of an epoch that is not committed
        file.write(bytes(3 * SMALL))
    push_once(run_path, monkeypatch)
    assert uploaded(bucket) == contents(run_path)
    os.truncate(data, whole)
    spare.unlink()
    assert push_once(run_path, monkeypatch) == [f"p0/{writer.data}@{whole // SMALL * SMALL}"]
    assert uploaded(bucket) == contents(run_path)
    say(writer, "complete")
    assert tt.push(run_path, URL).ended and tt.diff(run_path, tt.open(URL)).same


def test_an_interrupted_upload_goes_on(
    bucket: Any, run_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = begun(run_path)
    grow(writer, 1)
    say(writer, "complete")
    before: list[str] = []

    def interrupt(names: list[str]) -> None:
        before.extend(names)
        if f"p0/{writer.data}@{2 * SMALL}" in names:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        watch(patch, interrupt)
        done = tt.push(run_path, URL)
    assert done.interrupted and not done.ended and "interrupted: the same command" in done.line()
    bucket.pipe("/runs/run/p0/data-00009.bin", b"left by one that was killed")
    rest = push_once(run_path, monkeypatch)
    assert not {*rest} & {f"p0/{writer.data}", f"p0/{writer.data}@{SMALL}"} and "run.json" in rest
    assert uploaded(bucket) == contents(run_path)


def error_of(capfd: pytest.CaptureFixture[str], *command: object) -> str:
    assert run_command(["push", *map(str, command)]) == 2
    return capfd.readouterr().err.splitlines()[-1].removeprefix("ttanalyze: ")


def test_other_things_at_the_url_stay(
    bucket: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    say(begun(first), "complete")
    say(begun(second), "complete", started_ns=5)
    tt.push(first, URL)
    before = uploaded(bucket)
    assert error_of(capfd, second, URL) == f"{URL}: another run is there; choose a new URL"
    assert uploaded(bucket) == before
    bucket.pipe("/runs/notes/today.txt", b"mine")
    url = "memory://runs/notes"
    assert error_of(capfd, first, url) == f"{url}: other files are there; choose a new URL"
    bucket.pipe("/runs/notes/push.json", b"[]")
    assert error_of(capfd, first, url).startswith(f"{url}/push.json: not written by push")


def test_a_part_of_a_run_does_not_replace_it(
    bucket: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The first process of a merged run is that of a run as well."""
    runs = [tmp_path / "first", tmp_path / "second"]
    for number, run in enumerate(runs):
        begun(run).close("complete", pid=5 + number)
    tt.merge([tt.open(run) for run in runs], tmp_path / "merged")
    tt.push(tmp_path / "merged", URL)
    before = uploaded(bucket)
    assert error_of(capfd, runs[0], URL) == f"{URL}: another run is there; choose a new URL"
    assert uploaded(bucket) == before == contents(tmp_path / "merged")


def test_processes_that_begin_meanwhile_are_of_the_run(
    bucket: Any, run_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = begun(run_path)

    def begin(_: float) -> None:
        later = Writer(run_path, 1)
        later.born(0, bytes(BLOCK))
        later.epoch()
        later.close("complete", pid=7)
        say(writer, "complete")

    monkeypatch.setattr(time, "sleep", begin)
    assert tt.push(run_path, URL).ended and len(tt.open(URL).processes) == 2
    assert push_once(run_path, monkeypatch) == []


def test_bad_sources_and_urls(
    bucket: Any, run_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    there = "s3://runs/run"
    assert error_of(capfd, there, URL) == f"{there}: push needs a run directory on this machine"
    begins = f"{run_path}: not a run directory, or its program has not begun"
    assert error_of(capfd, run_path, URL, "--once") == begins
    writer = begun(run_path)
    assert error_of(capfd, run_path, "elsewhere") == (
        "elsewhere: not a URL to upload to, such as s3://runs/run1"
    )
    assert error_of(capfd, run_path, "s3://").startswith("s3://: not a URL to upload to")

    def replace(_: float) -> None:
        say(writer, "running", started_ns=7)

    monkeypatch.setattr(time, "sleep", replace)
    assert "replaced by another run meanwhile" in error_of(capfd, run_path, URL)
    monkeypatch.setattr(time, "sleep", lambda _: shutil.rmtree(run_path))
    assert "not a run directory" in error_of(capfd, run_path, "memory://runs/other")
    assert "p0/epochs.bin" in uploaded(bucket, "other")


def test_a_killed_program_ends_the_upload(
    bucket: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """With `record`, which notes the signal, and without."""
    program = support.command("exit_sigkill", tmp_path)
    environment = support.simulator_environment()
    for name in ("noted", "alone"):
        run = tmp_path / name
        if name == "noted":
            support.ttanalyze("record", "--sim", "-o", run, "--", *program)
        else:
            support.run(program, support.recording(environment, run))
        url = f"memory://runs/{name}"
        assert run_command(["push", str(run), url]) == 0
        assert tt.open(run).processes[0].status == "running"
        assert run_command(["info", url]) == 0
        told = capfd.readouterr().out
        assert ", killed\n" in told and "still run" not in told
        how = "it was killed by signal 9: " if name == "noted" else "it was killed: "
        assert f"warning: {how}" in told
        assert uploaded(bucket, name) == contents(run)
