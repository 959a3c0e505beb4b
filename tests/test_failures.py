"""When a part of the recorder fails, the program does not notice: it gives what it gave without
us, the user is told in one line, and what had been recorded by then can be read.
"""

from __future__ import annotations

import os
import platform
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import ttanalyze as tt
from examples.demos import streams
from tests import support
from tests.drain_run import small_disk, unmount
from tests.hanging import in_some_limit
from tests.recordings import check_stored, compare, fills, large_contents, wait_for_epochs
from ttanalyze.format import layout

SIM = support.simulator_environment()
NAME = "ttanalyze: "
STOPPED = f"{NAME}recording stopped: "
DROPPED = 16  # of an epoch
REPORTED = re.compile(f"{NAME}(  |CUDA_ERROR_[A-Z_]+ from )")
KEPT = ("LD_PRELOAD", "LD_LIBRARY_PATH", "ASAN_OPTIONS", "UBSAN_OPTIONS", "TT_OUT")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Where to record to."""
    return tmp_path / "run"


@pytest.fixture(scope="module")
def program(built: Path) -> list[str]:
    """One with several kernels, allocations and waits, which takes a twentieth of a second."""
    return support.command("example-training", built)


@pytest.fixture(scope="module")
def bare(program: list[str]) -> support.Outcome:
    """The outcome without the recorder."""
    return support.run(program, SIM)


def own_lines(outcome: support.Outcome) -> list[str]:
    """What the recorder said of itself: not what it reports of a context that is lost."""
    lines = [line for line in outcome.stderr.splitlines() if line.startswith(NAME)]
    return [line for line in lines if not REPORTED.match(line)]


def stopped(outcome: support.Outcome, run: Path, reason: str) -> None:
    """The recorder stopped for that reason (an expression), and said so once: on standard error,
    and in the run where there is one. The run is good as far as it goes.
    """
    (line,) = own_lines(outcome)
    assert line.startswith(STOPPED)
    assert re.search(reason, line)
    if (run / "p0").is_dir():
        opened = tt.open(run)
        check_stored(opened)
        if opened.processes[0].info:
            assert opened.processes[0].info["status"] == "failed"
            assert opened.processes[0].info["counters"]["epochs"] <= len(opened.epochs)
            assert opened.processes[0].info["reason"] == line.removeprefix(STOPPED)


def limited(limit: str, command: list[str]) -> list[str]:
    """command, after the shell's ulimit with these words."""
    return ["sh", "-c", f'ulimit {limit}; exec "$0" "$@"', *command]


# ---- where to ----


def a_file(folder: Path) -> str:
    (folder / "there").write_text("kept")
    return "there"


def a_loop(folder: Path) -> str:
    (folder / "loop").symlink_to("loop")
    return "loop"


def foreign(name: str, text: str) -> Callable[[Path], str]:
    def make(folder: Path) -> str:
        (folder / "there").mkdir()
        (folder / "there" / name).write_text(text)
        return "there"

    return make


NEWER = '{"format":"ttanalyze-run","version":99,"created_ns":1,"processes":[]}'


@pytest.mark.native
@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda _: "no/such", "no/such: No such file or directory$"),
        (lambda _: "/proc/run", "/proc/run: No such file or directory$"),
        (lambda _: "/dev/full", "/dev/full: Not a directory$"),
        (lambda _: "n" * 300, "creating run directory .*nnnn"),
        (lambda _: "x/" * 2500, "TT_OUT=.*: too long$"),
        (a_file, "/there: Not a directory$"),
        (a_loop, "/loop: Too many levels of symbolic links$"),
        (foreign("run.json", NEWER), "/there/run.json does not belong to a run of this version"),
        (foreign("run.json", ""), "/there/run.json does not belong"),
        (foreign("manifest.json", '{"name":"an extension"}'), "/there/manifest.json does not"),
        (foreign("p0", ""), "writing run.json in .*/there: Not a directory$"),
    ],
    ids=[
        "parent", "proc", "device", "name", "path", "file", "loop", "newer", "empty", "manifest",
        "process",
    ],
)  # fmt: skip
def test_unusable_output_directory(
    make: Callable[[Path], str],
    reason: str,
    program: list[str],
    bare: support.Outcome,
    tmp_path: Path,
) -> None:
    out = make(tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    outcome = support.run(program, support.recording(SIM, Path(out)), cwd=tmp_path)
    compare("", bare, outcome)
    stopped(outcome, tmp_path / "none", reason)
    assert before == {path: path.read_bytes() for path in before}


@pytest.mark.native
def test_directory_with_other_files_is_kept(
    program: list[str], bare: support.Outcome, tmp_path: Path
) -> None:
    (tmp_path / "notes").write_text("mine")
    assert support.run(program, support.recording(SIM, tmp_path)) == bare
    assert tt.open(tmp_path).processes[0].info["status"] == "complete"
    assert (tmp_path / "notes").read_text() == "mine"


@pytest.mark.native
def test_removed_working_directory(
    program: list[str], bare: support.Outcome, tmp_path: Path
) -> None:
    gone = ["sh", "-c", 'mkdir gone && cd gone && rmdir ../gone && exec "$0" "$@"', *program]
    outcome = support.run(gone, support.recording(SIM, Path("run")), cwd=tmp_path)
    compare("", bare, outcome)
    stopped(outcome, tmp_path / "none", "TT_OUT=run: the working directory has no path$")
    assert support.run(gone, support.recording(SIM, tmp_path / "run"), cwd=tmp_path) == bare
    assert tt.open(tmp_path / "run").processes[0].info["status"] == "complete"


@pytest.mark.native
def test_empty_environment(program: list[str], bare: support.Outcome, run: Path) -> None:
    environment = {k: v for k, v in support.recording(SIM, run).items() if k in KEPT}
    assert support.run(program, environment) == bare
    assert tt.open(run).processes[0].info["status"] == "complete"


@pytest.mark.native
@pytest.mark.parametrize(
    ("option", "value", "reason"),
    [
        ("epoch", "sometimes", "TT_EPOCH=sometimes: 'sometimes': expected sync, launch"),
        ("epoch", "launch:0", "a count from 1"),
        ("epoch", "launch:x", "a count from 1"),
        ("epoch", "launches", "'launches': expected sync, launch"),
        ("epoch", "sync,never", "TT_EPOCH=sync,never: 'never': expected sync, launch"),
        ("epoch", "kernel:", "kernel:REGEX needs an expression"),
        ("epoch", "kernel:(", r"kernel:\(: "),
        ("regions", "some", "expected all, touched, named or zones"),
        ("snapshot_every", "-1", "expected a whole number"),
        ("retain", "4294967296", "expected a whole number"),
        ("overwrite", "never", "expected backpressure, drop-oldest or fail"),
        ("ring_bytes", "255K", "at least 256K"),
        ("ring_bytes", "2Q", "expected a size"),
        ("ring_bytes", "99999999999T", "expected a size"),
        ("deterministic", "yes", "expected 0 or 1"),
        ("deps", "2", "expected off, device or region"),
        ("events", "on", "expected 0 or 1"),
        ("stall_ms", "1w", "expected a time of at most 4294967295ms"),
        ("verbose", "x" * 5000, "expected 0 or 1"),
    ],
)
def test_invalid_option_stops_the_recorder(
    option: str, value: str, reason: str, program: list[str], bare: support.Outcome, run: Path
) -> None:
    outcome = support.run(program, support.recording(SIM, run, **{option: value}))
    compare("", bare, outcome)
    stopped(outcome, run, reason)
    assert f"TT_{option.upper()}=" in outcome.stderr
    assert not run.exists()


@pytest.mark.native
def test_unknown_variables_get_a_warning(
    program: list[str], bare: support.Outcome, run: Path
) -> None:
    """Each is told once, with the name that was probably meant. Those of the simulator, of the
    toolkit and of the build are not the recorder's to judge.
    """
    others = {
        "TT_SIM_ELSE": "1",
        "TT_LIB": "/",
        "TT_SANITIZE": "address",
        "TTX": "1",
        "TT_EMPTY": "",
    }
    known = {"TT_SIM_SEED": "1", "TT_SNAPSHOT_EVERY": "4"}
    wrong = {
        "TT_EPOCHS": "TT_EPOCH",
        "TT_epoch": "TT_EPOCH",
        "TT_RINGBYTES": "TT_RING_BYTES",
        "TT_SNAPSHOTS_EVERY": "TT_SNAPSHOT_EVERY",
        "TT_OUTPUT": "TT_OUT",
    }
    given = others | known | dict.fromkeys([*wrong, "TT_BOGUS"], "1")
    given |= {"TT_" + "X" * 5000: "1", "TT_\n": "1"}
    assert support.run(program, SIM | given) == bare
    outcome = support.run(program, support.recording(SIM | given, run))
    compare("", bare, outcome)
    said = {f"unknown variable {one}; did you mean {wrong[one]}?" for one in wrong}
    said.add("unknown variable TT_BOGUS")
    assert sorted(own_lines(outcome)) == sorted(NAME + line for line in said)
    race = ["race", "--sim", "--dtype", "none", "--", "true"]  # shows nothing of the recorder's
    told = support.ttanalyze(*race, environment=SIM | given | {"TT_LIB": str(support.LIBRARIES)})
    *lines, error = own_lines(told)
    assert "no type 'none'" in error and sorted(lines) == sorted(NAME + line for line in said)
    opened = tt.open(run)
    assert said <= set(opened.warnings) and opened.processes[0].info["status"] == "complete"
    many = {f"TT_WRONG_{i}": "1" for i in range(100)}
    outcome = support.run(program, support.recording(SIM | many, run.parent / "many"))
    assert len(own_lines(outcome)) == 8


# ---- what the system refuses ----


@pytest.mark.native
@pytest.mark.parametrize("limit", [0, 1, 8, 16, 100, 2000])
def test_file_size_limit(limit: int, program: list[str], bare: support.Outcome, run: Path) -> None:
    outcome = support.run(limited(f"-f {limit}", program), support.recording(SIM, run))
    compare("", bare, outcome)
    stopped(outcome, run, ": File too large$")


@pytest.mark.native
@pytest.mark.parametrize("free", range(1, 12))
def test_few_file_descriptors(
    free: int, program: list[str], bare: support.Outcome, tmp_path: Path
) -> None:
    """The program is left those that it needs, if only one."""
    run, limit = tmp_path / "run", f"-n {free + 3}"
    bare = support.run(limited(limit, program), SIM)
    outcome = support.run(limited(limit, program), support.recording(SIM, run))
    compare("", bare, outcome)
    if own_lines(outcome) and (run / "run.json").exists():
        (line,) = own_lines(outcome)  # the last files could not be written
        assert line.endswith(": Too many open files")
    elif own_lines(outcome):
        stopped(outcome, run, ": Too many open files$")
    else:
        assert tt.open(run).processes[0].info["status"] == "complete"


def without_contents(outcome: support.Outcome, run: Path, reason: str) -> None:
    """Once there was no room for contents the run went on with digests only, and said so once. What
    was stored by then is there, of the rest nothing is made up, and readers say why.
    """
    (line,) = own_lines(outcome)
    found = re.fullmatch(f"{NAME}epochs from ([0-9]+) on have digests only: (.*)", line)
    assert found
    assert re.search(reason, found[2])
    opened = tt.open(run)
    (process,) = opened.processes
    since = int(found[1])
    assert process.info["status"] == "complete"
    assert process.info["digests_only"] == {"since": since, "reason": found[2]}
    assert line.removeprefix(NAME) in opened.warnings
    assert process.info["losses"] == [line.removeprefix(NAME)]
    assert (process.epochs["digests_count"] > 0).all()
    assert (process.epochs["flags"] & DROPPED != 0).tolist() == [
        number >= since for number in range(len(process.epochs))
    ]
    result = tt.verify(opened, opened.manifest())
    assert result.same
    assert result.digest_only > 0
    region, last = 1, len(process.epochs) - 1
    with pytest.raises(tt.Error, match=f"were not stored .*from {since} on have digests only"):
        opened.read(last, region)
    if since:
        assert len(opened.read(since - 1, region))


@pytest.mark.native
@pytest.mark.parametrize("size", [96 << 10, 1 << 20, 5 << 20, 9 << 20])
def test_disk_that_fills(size: int, built: Path, tmp_path: Path) -> None:
    """More and more is recorded until it is full: of the disk all, or of each file so much."""
    program = support.command("example-vecadd", built)
    command = [*program, "--size", "300000", "--steps", "8"]
    bare = support.run(command, SIM)
    folder = tmp_path / "small"
    small_disk(folder, size, "disk")
    if not folder.is_mount():
        command = limited(f"-f {size // 512}", command)
    try:
        run = folder / "run"
        outcome = support.run(command, support.recording(SIM, run, epoch="launch"))
        compare("", bare, outcome)
        full = ": (No space left on device|File too large)$"
        if size >= 5 << 20:
            without_contents(outcome, run, full)
        else:  # than the least that calls take
            stopped(outcome, run, full)
    finally:
        unmount(folder)


@pytest.mark.native
@pytest.mark.parametrize("limit", ["8M", "auto"])
def test_disk_limit_of_the_run(limit: str, built: Path, tmp_path: Path) -> None:
    command = support.command("example-vecadd", built)
    command += ["--size", "300000", "--steps", "8"]
    bare = support.run(command, SIM)
    folder = tmp_path / "small"
    if limit == "auto":
        small_disk(folder, 20 << 20, "disk")
        if not folder.is_mount():
            pytest.skip("no mount is allowed")
    try:
        run = folder if limit == "8M" else folder / "run"
        outcome = support.run(command, support.recording(SIM, run, epoch="launch", max_disk=limit))
        compare("", bare, outcome)
        why = {"8M": "--max-disk allows 8.0 MiB$", "auto": "--max-disk keeps 10.0 MiB free$"}
        without_contents(outcome, run, why[limit])
        assert sum(p.stat().st_size for p in run.rglob("*") if p.is_file()) < 10 << 20
    finally:
        unmount(folder)


# ---- who may read it, and who may have planted what ----


@pytest.mark.native
def test_run_is_readable_by_its_owner_only(program: list[str], run: Path) -> None:
    command = ["sh", "-c", 'umask 0; exec "$0" "$@"', *program]
    support.run(command, support.recording(SIM, run, timeline="events", params="1"))
    for path in [run, *run.rglob("*")]:
        assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600), path


@pytest.mark.native
def test_symbolic_links_are_not_followed(
    program: list[str], bare: support.Outcome, tmp_path: Path, run: Path
) -> None:
    kept = tmp_path / "kept"
    kept.write_text("kept")
    run.mkdir()
    for number, name in enumerate(("run.json.tmp", "merged.json.tmp")):
        (run / name).symlink_to(kept)
        (run / f"p{number}").symlink_to(tmp_path)  # taken: the process has the next number
    outcome = support.run(program, support.recording(SIM, run))
    compare("", bare, outcome)
    assert kept.read_text() == "kept"
    stopped(outcome, run, "writing run.json in .*/run: Not a directory$")
    assert {p.name for p in tmp_path.iterdir()} == {"kept", "run"}


@pytest.mark.native
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make what is another's")
def test_directory_of_another_user_is_refused(
    program: list[str], bare: support.Outcome, run: Path
) -> None:
    run.mkdir()
    run.chmod(0o777)
    os.chown(run, 65534, 65534)
    outcome = support.run(program, support.recording(SIM, run))
    compare("", bare, outcome)
    stopped(outcome, run, "recording to .*/run: the directory belongs to another user; record to")
    assert list(run.iterdir()) == []


@pytest.mark.native
@pytest.mark.parametrize("most", [2, 3, 4, 6, 9, 12, 16])
def test_disk_without_free_inodes(
    most: int, program: list[str], bare: support.Outcome, tmp_path: Path
) -> None:
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size=64m,nr_inodes={most}", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("no mount is allowed")
    try:
        said = check(bare, support.run(program, support.recording(SIM, folder / "run")), folder)
        assert said
    finally:
        unmount(folder)


@pytest.mark.native
@pytest.mark.parametrize("renamed", [True, False], ids=["renamed", "removed"])
def test_run_directory_removed_while_recording(renamed: bool, built: Path, tmp_path: Path) -> None:
    """While it is recorded to: the recording ends, in one line, and the program goes on."""
    command = [str(support.build_program("recorder_soak", built)), "1"]
    run, gone = tmp_path / "run", tmp_path / "gone"
    environment = support.recording(SIM, run, retain="2")
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        wait_for_epochs(run, 3)
        run.rename(gone)
        if not renamed:
            shutil.rmtree(gone)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 0
    assert re.fullmatch(r"\d+ rounds, 0 wrong, \d+ KiB\n", out)
    assert re.fullmatch(rf"{STOPPED}.*{run}.*: No such file or directory\n", err)
    assert not run.exists()
    if renamed:
        opened = tt.open(gone)
        check_stored(opened)
        assert len(opened.epochs) >= 3


@pytest.mark.native
@pytest.mark.parametrize("more", [[], ["capturing"]], ids=["working", "capturing"])
@pytest.mark.parametrize(
    "options",
    [
        {"epoch": "launch", "ring_bytes": "1M"},
        {"epoch": "launch", "overwrite": "drop-oldest", "timeline": "cupti", "params": "1"},
        {"replayable": "1"},
    ],
    ids=["calls", "flight", "replay"],
)
def test_device_reset_with_work_in_flight(
    more: list[str], options: dict[str, str], built: Path, run: Path
) -> None:
    """With streams that work, and captures of epochs that are not through."""
    command = [str(support.build_program("recorder_context_reset", built)), *more]
    bare = support.run(command, SIM)
    assert bare.stdout.count("cuDevicePrimaryCtxReset(device) -> CUDA_SUCCESS") == 4
    assert support.run(command, support.recording(SIM, run, **options)) == bare
    opened = tt.open(run)
    assert opened.processes[0].status == "complete"
    assert len(opened.epochs) > 8
    check_stored(opened)


# ---- any call of the recorder ----


@pytest.fixture(scope="module")
def failing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the libraries in which calls of the recorder fail."""
    folder = tmp_path_factory.mktemp("failing")
    (folder / "versions").write_text("GLIBC_2.34 { dlsym; };\n")
    line = ["gcc", "-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    line += [f"-I{support.ROOT / 'interpose' / 'include'}", "-pthread"]
    more = {"failing": [], "failing_driver": [f"-Wl,--version-script={folder / 'versions'}"]}
    for name, flags in more.items():
        source = support.ROOT / "tests" / f"{name}.c"
        subprocess.run(
            [*line, *flags, str(source), "-o", str(folder / f"{name}.so"), "-ldl"], check=True
        )
    return folder


# They stand for a call of the program's, which gets their result.
IN_PLACE = ("arena_wait_for", "arena_free_async_begin")


@cache
def wrappers() -> str:
    """Where in the recorder the wrappers lie: the code of interpose/hooks, and what is IN_PLACE."""
    files = {path.name for path in (support.ROOT / "interpose" / "hooks").glob("*.c")}
    command = ["readelf", "-sW", str(support.SHIM)]
    listing = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    functions, file = {}, ""
    for line in listing.partition("'.symtab'")[2].splitlines():
        words = line.split()
        if len(words) == 8 and words[3] == "FILE":
            file = words[7]
        elif len(words) == 8 and words[3] == "FUNC" and words[6] != "UND":
            local = words[4] == "LOCAL" and file in files
            wraps = local or re.match("cu[A-Z]", words[7]) or words[7] in IN_PLACE
            functions[int(words[1], 16)] = bool(wraps)
    ranges: list[list[int]] = []
    for begin, is_wrapper in sorted(functions.items()):
        if ranges and len(ranges[-1]) == 1 and not is_wrapper:
            ranges[-1].append(begin)
        elif is_wrapper and (not ranges or len(ranges[-1]) == 2):
            ranges.append([begin])
    return ",".join(f"{begin:x}-{end:x}" for begin, end in ranges)


def with_failing(
    library: Path, variable: str, what: str, run: Path, **options: str
) -> dict[str, str]:
    """The environment of a recording in which calls of the recorder fail as described."""
    environment = support.recording(SIM, run, **options)
    first, _, rest = environment["LD_PRELOAD"].partition(":")
    preload = ":".join(filter(None, [first, str(library), rest]))
    return environment | {"LD_PRELOAD": preload, variable: what, "FAILING_WRAPPERS": wrappers()}


def check(bare: support.Outcome, outcome: support.Outcome, run: Path) -> bool:
    """Whatever failed. Returns whether the recorder had anything to say."""
    compare("", bare, outcome)
    said = own_lines(outcome)
    stops = [line for line in said if line.startswith(STOPPED)]
    assert len(stops) <= 1
    assert len(set(said)) == len(said)
    if not (run / "p0" / "epochs.bin").exists():
        assert stops == said
        return bool(said)
    opened = tt.open(run)
    check_stored(opened)
    info = opened.processes[0].info
    if info.get("status") == "failed":
        assert stops == [STOPPED + info["reason"]]
    elif info.get("status") != "complete":  # it could not be written any more
        assert stops
    if info.get("status") in ("failed", "complete"):
        assert {NAME + text for text in info["warnings"]} == set(said) - set(stops)
    return bool(said)


def numbers(most: int) -> Iterator[int]:
    """1, 2, 3, … with gaps that grow."""
    n = 1
    while n <= most:
        yield n
        n = max(n + 1, n * 5 // 4)


REFUSALS = {
    "mkdir": "13",
    "open": "24",
    "pwrite": "28",
    "fallocate": "28",
    "ftruncate": "5",
    "rename": "13",
    "mmap": "12",
    "madvise": "12",
    "pthread_create": "11",
    "malloc": "12",
    "calloc": "12",
    "realloc": "12",
    "strdup": "12",
}


@pytest.mark.sampled
@pytest.mark.parametrize("once", [True, False], ids=["once", "from then on"])
@pytest.mark.parametrize("call", REFUSALS)
def test_random_system_calls_fail(
    call: str, once: bool, failing: Path, program: list[str], bare: support.Outcome, tmp_path: Path
) -> None:
    """Not under the sanitizers, whose runtimes take these calls for themselves."""
    quiet = told = 0
    for n in numbers(250):
        what = f"{call}:{n}-{n}:{REFUSALS[call]}" if once else f"{call}:{n}:{REFUSALS[call]}"
        run = tmp_path / str(n)
        environment = with_failing(failing / "failing.so", "FAILING", what, run)
        said = check(bare, support.run(program, environment), run)
        told += said
        quiet = 0 if said else quiet + 1
        if quiet == (6 if once else 1):  # it makes no more of these
            break
    assert told or call in ("ftruncate", "strdup")


@pytest.mark.parametrize("call", ["open", "pwrite", "fallocate", "rename"])
def test_process_killed_at_any_system_call(
    call: str, failing: Path, program: list[str], tmp_path: Path
) -> None:
    """The run opens, with all that was committed."""
    for n in range(1, 60):
        run = tmp_path / str(n)
        options = {"params": "1", "timeline": "events", "cpu_callstack": "backtrace"}
        what = f"{call}:{n}:-1"
        environment = with_failing(failing / "failing.so", "FAILING", what, run, **options)
        status = support.run(program, environment).status
        if status == 0:
            break
        assert status == -signal.SIGKILL
        if (run / "p0").exists():
            check_stored(tt.open(run))
    assert n > 5


# What is recorded of a program that has something of everything, and how often it does so.
RECORDINGS: dict[str, tuple[str, dict[str, str]]] = {
    "calls": ("1", {"epoch": "sync,launch:7", "params": "1", "cpu_callstack": "backtrace"}),
    "flight": ("1", {"overwrite": "drop-oldest", "timeline": "events", "compress": "3"}),
    "graphs": ("1", {"epoch": "graph-node:add", "timeline": "events", "graph_stamps": "add"}),
    "times": ("1", {"timeline": "cupti", "launch_delay": "100"}),
    "replay": ("1", {"replayable": "1"}),
}
ALLOCATIONS = ("malloc", "calloc", "realloc", "strdup", "strndup", "asprintf", "mmap")
COLUMNS = {
    "epochs": ["trigger", "label", "seq", "full"],
    "regions": ["label", "size", "captured", "seq", "call", "death_seq"],
    "events": ["seq", "kind", "call", "kernel", "stream", "bytes", "id", "stack"],
    "functions": ["name", "module", "registers", "max_threads", "param_bytes", "param_count"],
    "modules": ["kind", "image", "size", "globals", "missing"],
    "stacks": ["stack", "depth", "kind", "function", "file"],
}


def recorded_of(run: Path) -> dict[str, str]:
    """What a run has of its program, but for addresses, times and contents."""
    opened = tt.open(run)
    tables = {name: getattr(opened, name)[of].to_csv() for name, of in COLUMNS.items()}
    graphs = opened.processes[0].graphs
    known = [graphs.known(0, int(n)) for n in opened.events["seq"] if len(graphs)]
    return tables | {"graphs": str(known)}


def allocations_fail(
    recording: str, ways: Callable[[str, int], Iterator[str]], failing: Path, built: Path, run: Path
) -> Iterator[str]:
    """Records recorder_soak once for each way in which one call may fail: the call and its number.
    The program does not notice, and the run says what is missing. Returns the failures that were
    reported.
    """
    library, (rounds, options) = failing / "failing.so", RECORDINGS[recording]
    command = [str(support.build_program("recorder_soak", built)), "0", rounds]
    bare = without_sizes(support.run(command, SIM))
    counting = with_failing(library, "FAILING", "count", run / "whole", **options)
    counts = re.findall(r"^(\w+) (\d+)$", support.run(command, counting).stderr, re.M)
    whole = recorded_of(run / "whole")
    for call, count in counts:
        for what in ways(call, int(count)) if call in ALLOCATIONS else ():
            where = run / what.replace(":", "-")
            environment = with_failing(library, "FAILING", what, where, **options)
            outcome = without_sizes(support.run(command, environment, timeout=60))
            if check(bare, outcome, where):
                yield what
            else:
                assert recorded_of(where) == whole, what


def without_sizes(outcome: support.Outcome) -> support.Outcome:
    return replace(outcome, stdout=re.sub(r"\d+ KiB", "", outcome.stdout))


def test_some_host_allocations_fail(failing: Path, built: Path, tmp_path: Path) -> None:
    def ways(call: str, count: int) -> Iterator[str]:
        step = 1 if call == "strdup" else count // 2 + 1
        first = 9 if call == "calloc" else 0  # those of the start
        some = {*range(1, min(first, count) + 1), *range(count % step + 1, count + 1, step)}
        return (f"{call}:{n}-{n}:12" for n in sorted(some))

    told = list(allocations_fail("calls", ways, failing, built, tmp_path))
    assert {"malloc", "calloc", "strdup", "asprintf"} <= {what.partition(":")[0] for what in told}


@pytest.mark.long
@pytest.mark.parametrize("to", ["", "-{}"], ids=["from then on", "once"])
@pytest.mark.parametrize("recording", RECORDINGS)
def test_each_host_allocation_fails(
    recording: str, to: str, failing: Path, built: Path, tmp_path: Path
) -> None:
    def ways(call: str, count: int) -> Iterator[str]:
        return (f"{call}:{n}{to.format(n)}:12" for n in range(1, count + 1))

    assert len(list(allocations_fail(recording, ways, failing, built, tmp_path))) > 60


@pytest.mark.parametrize(
    "call",
    [
        "pthread_create",
        *(pytest.param(x, marks=pytest.mark.long) for x in ("pwrite", "calloc", "open")),
    ],
)
def test_system_calls_fail_in_large_epochs(
    call: str, failing: Path, built: Path, tmp_path: Path
) -> None:
    """Several threads write then, each to a file of its own."""
    program = [str(support.build_program("recorder_large_epochs", built))]
    bare = support.run(program, SIM)
    for n in range(1, 60, 3):
        run = tmp_path / str(n)
        what = f"{call}:{n}:{REFUSALS[call]}"
        environment = with_failing(failing / "failing.so", "FAILING", what, run)
        if not check(bare, support.run(program, environment), run):  # it makes no more of these
            assert n > 1
            break


@pytest.mark.long
@pytest.mark.parametrize("first", [14, 22])
def test_process_exit_while_the_disk_hangs(
    first: int, failing: Path, built: Path, tmp_path: Path
) -> None:
    """The program ends in its time, and the run is good as far as it came."""
    program, run = [str(support.build_program("recorder_large_epochs", built))], tmp_path / "run"
    bare = support.run(program, SIM)
    environment = with_failing(
        failing / "failing.so", "FAILING", f"pwrite:{first}-{first + 3}:0", run, stall_ms="100"
    )
    began = time.monotonic()
    compare("", bare, support.run(program, environment))
    assert time.monotonic() - began < 30
    opened = tt.open(run)
    check_stored(opened)


@pytest.mark.long
def test_slow_disk(failing: Path, built: Path, tmp_path: Path) -> None:
    """Contents that repeat within an epoch are found while their first copy is being written."""
    program, run = [str(support.build_program("recorder_large_epochs", built))], tmp_path / "run"
    bare = support.run(program, SIM)
    library, what = failing / "failing.so", "pwrite:106-126:0"
    options = {"snapshot_every": "1", "ring_bytes": "64M"}
    environment = with_failing(library, "FAILING", what, run, **options)
    compare("", bare, support.run(program, environment | {"FAILING_PAUSE_US": "300000"}))
    opened = tt.open(run)
    assert opened.processes[0].status == "complete"
    assert len(opened.epochs) == 3
    assert tt.verify(opened, run / "manifest.json").same


def test_ring_filled_to_the_last_byte(failing: Path, run: Path) -> None:
    """An epoch in which no block changed takes room, too: it waits for that.

    The second snapshot goes where the first was as soon as that is drained, and ends where the
    delta between them begins.
    """
    options = {"ring_bytes": "1M", "snapshot_every": "2", "events": "0"}
    environment = with_failing(failing / "failing.so", "FAILING", "pwrite:1:0", run, **options)
    command = fills("1,600000,1", "3,0,1")
    outcome = support.run(command, environment | {"FAILING_PAUSE_US": "10000"})
    assert (outcome.stdout, outcome.stderr, outcome.status) == ("", "", 0)
    opened = tt.open(run)
    assert opened.processes[0].status == "complete"
    assert opened.epochs["full"].tolist() == [True, False, True, False]
    assert not opened.epochs[["refused", "dropped", "gap"]].any(axis=None)
    assert set(opened.read(3, 0).tolist()) == {1}


def slow_disk(failing: Path, run: Path, which: str, ms: int, **options: str) -> dict[str, str]:
    """The environment of a recording of which some writes, from the first epoch's on, take so
    long.
    """
    library, what = failing / "failing.so", f"pwrite:{which}:0"
    environment = with_failing(library, "FAILING", what, run, events="0", **options)
    return environment | {"FAILING_AFTER": "data-00000.bin", "FAILING_PAUSE_US": str(ms * 1000)}


def held_disk(failing: Path, run: Path, **options: str) -> dict[str, str]:
    """The environment of a recording of which the first epoch's first write takes until the
    program says "go".
    """
    go = run.with_name("go")
    go.unlink(missing_ok=True)
    environment = slow_disk(failing, run, "1-1", 0, **options)
    return environment | {"FAILING_UNTIL": str(go)}


def check_large_contents(run: Path, epochs: int) -> None:
    opened = tt.open(run)
    assert len(opened.epochs) >= epochs
    check_stored(opened)
    for epoch, expected in zip(opened.epochs["epoch"].tolist(), large_contents(), strict=False):
        assert np.array_equal(opened.read(epoch, 0, dtype="u8"), expected)


@pytest.mark.parametrize(
    "way", [{}, {"snapshot_every": "1", "retain": "2"}, {"compress": "device"}]
)
def test_epochs_that_wait_for_the_disk(
    way: dict[str, str], failing: Path, built: Path, run: Path
) -> None:
    """The next one is copied while the last pieces of one are written."""
    program = [str(support.build_program("recorder_large_epochs", built))]
    bare = support.run(program, SIM)
    environment = slow_disk(failing, run, "1-60", 30, ring_bytes="128M", **way)
    compare("", bare, support.run(program, environment))
    if "retain" not in way:
        check_large_contents(run, 3)
    check_stored(tt.open(run))


@pytest.mark.parametrize("committed", [1, 2])
def test_killed_while_the_next_epoch_is_copied(
    committed: int, failing: Path, built: Path, run: Path
) -> None:
    """All epochs that were committed are good."""
    program = [str(support.build_program("recorder_large_epochs", built))]
    environment = slow_disk(failing, run, "1-60", 30, ring_bytes="128M")
    with subprocess.Popen(program, env=environment, stdout=subprocess.DEVNULL) as process:
        wait_for_epochs(run, committed)
        process.kill()
    check_large_contents(run, committed)


@in_some_limit(0.15, 1.5, 10)
def test_parts_of_a_refused_epoch_are_discarded(limit: float, failing: Path, run: Path) -> None:
    """An epoch that is larger than the ring, of which the disk takes only a part in time."""
    environment = held_disk(failing, run, ring_bytes="256K", stall_ms=f"{limit}s")
    outcome = support.run(fills("1,600000,1", "go", "committed", "8,0,3"), environment)
    assert (outcome.stdout, outcome.status) == ("", 0)
    assert "the ring is full" in outcome.stderr
    opened = tt.open(run)
    assert opened.processes[0].status == "complete"
    assert opened.epochs["refused"].iloc[0]
    stored = opened.epochs[~opened.epochs["refused"]]
    assert stored["gap"].iloc[0]
    assert set(opened.read(int(stored["epoch"].iloc[-1]), 0).tolist()) == {3}
    check_stored(opened)


@pytest.mark.parametrize(("ring", "size"), [("64M", 1000), ("1M", 600000), ("256K", 600000)])
@in_some_limit(0.1, 1, 10)
def test_program_goes_on_while_the_disk_hangs(
    limit: float, ring: str, size: int, failing: Path, run: Path
) -> None:
    """However many epochs it asks for: all fit into the ring, the first one does, or none."""
    environment = held_disk(failing, run, stall_ms=f"{limit}s", ring_bytes=ring)
    outcome = support.run(fills(f"1,{size},1", "300,0,2"), environment, timeout=300)
    assert (outcome.stdout, outcome.status) == ("", 0)
    assert f"the drain was blocked for {limit * 1000:g} ms: the last " in outcome.stderr
    opened = tt.open(run)
    assert opened.processes[0].status == "failed"
    check_stored(opened)
    warnings = opened.processes[0].info["warnings"]
    assert any(w.startswith("no epochs are captured while the drain is blocked") for w in warnings)


@pytest.mark.parametrize("end", [[], ["end"]], ids=["process", "context"])
@in_some_limit(0.4, 4, 20)
def test_process_exit_waits_for_a_slow_disk(
    limit: float, end: list[str], failing: Path, run: Path
) -> None:
    """For longer than the bound, as long as it gets on."""
    environment = slow_disk(failing, run, "1", int(limit * 75), stall_ms=f"{limit}s")
    steps = [f"1,0,{value}" for value in range(2, 11)]
    outcome = support.run(fills("1,1000,1", *steps, *end), environment)
    # A program that is slower than its disk may be told so.
    said = [line for line in own_lines(outcome) if "the program waits until epochs" not in line]
    assert (outcome.stdout, said, outcome.status) == ("", [], 0)
    opened = tt.open(run)
    assert opened.processes[0].status == "complete"
    assert len(opened.epochs) == 10 and set(opened.read(9, 0).tolist()) == {10}


@in_some_limit(0.1, 1, 10)
def test_disk_hangs_at_process_exit(limit: float, failing: Path, run: Path) -> None:
    """What was not stored is said."""
    environment = held_disk(failing, run, stall_ms=f"{limit}s")
    outcome = support.run(fills("1,1000,1", "3,0,2"), environment)
    assert outcome.status == 0
    for_long = f"the drain was blocked for {limit * 1000:g} ms"
    stopped(outcome, run, f"{for_long}: the last 4 epochs may be missing$")


@in_some_limit(0.1, 1)
def test_disk_hangs_at_context_destruction(limit: float, failing: Path, run: Path) -> None:
    """Nothing of the context is used after its end, and the run is whole but for some contents."""
    environment = slow_disk(failing, run, "1-1", int(limit * 15000), stall_ms=f"{limit}s")
    outcome = support.run(fills("1,1000,1", "3,0,2", "end"), environment)
    (line,) = own_lines(outcome)
    assert line.endswith("the drain was blocked: 4 of its epochs may have no contents")
    opened = tt.open(run)
    assert opened.processes[0].status == "complete"
    assert opened.epochs["refused"].tolist() == [False, True, True, True]
    assert set(opened.read(0, 0).tolist()) == {1}
    check_stored(opened)


def test_full_disk_does_not_block_streams(failing: Path, built: Path, run: Path) -> None:
    """Also those that wait for an epoch that comes after the one that could not be stored."""
    program = [str(support.build_program("recorder_blocked_graph", built)), "off"]
    bare = support.run(program, SIM)
    library, what = failing / "failing.so", "pwrite:1-1:28"
    environment = with_failing(library, "FAILING", what, run, events="0", stall_ms="100")
    environment |= {"FAILING_AFTER": "epochs.bin", "FAILING_PAUSE_US": "500000"}
    outcome = support.run(program, environment)
    compare("", bare, outcome)
    stopped(outcome, run, ": No space left on device$")


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("name", "arguments", "memory"),
    [
        ("async_reuse", [], "1G"),
        ("threads_allocate", [], "1G"),
        ("alloc_neighbours", [], "1G"),
        ("recorder_arena", ["stopped"], "128M"),  # three quarters of it, freed in a stream's order
    ],
)
def test_stopped_recording_keeps_deterministic_memory_usable(
    name: str, arguments: list[str], memory: str, failing: Path, built: Path, run: Path
) -> None:
    """In the middle of a deterministic run: what was handed out is freed and known as ever."""
    command: list[str | Path] = [support.build_program(name, built), *arguments]
    bare = support.run(command, SIM | {"TT_SIM_MEMORY": memory})
    options = {"deterministic": "1", "events": "0"}
    environment = with_failing(failing / "failing.so", "FAILING", "pwrite:15:5", run, **options)
    outcome = support.run(command, environment | {"TT_SIM_MEMORY": memory})
    assert (outcome.stdout, outcome.status) == (bare.stdout, bare.status)
    assert f"{STOPPED}writing" in outcome.stderr


# Those that undo what the recorder did to the program's thread: no driver refuses them.
UNDOING = ("cuCtxPopCurrent_v2", "cuThreadExchangeStreamCaptureMode")
X86_64 = platform.machine() == "x86_64"


def counted(outcome: support.Outcome) -> dict[str, int]:
    """How often the recorder made each call of the driver."""
    found = re.findall(r"^(cu\w+) (\d+)$", outcome.stderr, re.M)
    return {name: int(count) for name, count in found if name not in UNDOING}


# A program, what is recorded of it, and what a call of the driver that fails returns.
DRIVEN: dict[str, tuple[str, list[str], dict[str, str], int]] = {
    **{
        name: ("recorder_soak", ["0", "1"], options, 2) for name, (_, options) in RECORDINGS.items()
    },
    "deterministic": ("recorder_soak", ["0", "1"], {"deterministic": "1"}, 2),
    "training": ("example-training", [], {"regions": "touched"}, 2),
    "async": ("example-async", [], {"epoch": "launch", "regions": "touched"}, 801),
    "updates": ("graph_updates", [], {"epoch": "graph", "regions": "touched"}, 801),
    "inside": ("recorder_graph_epochs", [], {"epoch": "graph-node:."}, 801),
}
MARKED = "cuGraphMemcpyNodeGetParams"  # the node is told to be unread, and an update to change it
POOLED = ("cuEventCreate", "cuEventDestroy_v2")  # hundreds that are alike: not each of them


def is_told(run: tt.Run) -> bool:
    """Whether `record --require-complete` would not take it for complete."""
    info, epochs = run.processes[0].info, run.processes[0].epochs
    flags = epochs["flags"] & (layout.LOOSE | layout.REFUSED | layout.DROPPED)
    lost = info["losses"] or info["counters"]["events_lost"]
    return bool(info["status"] != "complete" or lost or flags.any())


class Driven:
    """A kind of recording, and what comes of it where one call of the driver fails."""

    def __init__(self, kind: str, failing: Path, built: Path, folder: Path) -> None:
        name, arguments, self.options, self.result = DRIVEN[kind]
        self.command = support.command(name, built) + arguments
        self.library, self.folder = failing / "failing_driver.so", folder
        self.bare = without_sizes(support.run(self.command, SIM))
        self.counts = counted(support.run(self.command, self.environment("count", "whole")))
        self.whole = recorded_of(folder / "whole")

    def environment(self, what: str, name: str) -> dict[str, str]:
        run = self.folder / name
        return with_failing(self.library, "FAILING_DRIVER", what, run, **self.options)

    def calls(self) -> list[str]:
        """Each call that the recorder makes, by name and number."""
        ways = {
            call: numbers(count) if call in POOLED else range(1, count + 1)
            for call, count in self.counts.items()
        }
        return [f"{call}:{n}-{n}" for call, those in ways.items() for n in those]

    def check(self, call: str) -> bool:
        """Records while it fails. Returns whether something was told."""
        name = call.replace(":", "-")
        environment = self.environment(f"{call}:{self.result}", name)
        outcome = without_sizes(support.run(self.command, environment, timeout=120))
        said, run = check(self.bare, outcome, self.folder / name), self.folder / name
        if not run.exists():
            assert said, call
            return said
        opened = tt.open(run)
        if not is_told(opened) and not call.startswith(MARKED):
            assert recorded_of(run) == self.whole, call
        shutil.rmtree(run)
        return said


@pytest.mark.native
@pytest.mark.large
@pytest.mark.skipif(not X86_64, reason="the stubs are those of x86-64")
@pytest.mark.parametrize("kind", DRIVEN)
def test_some_driver_calls_fail(kind: str, failing: Path, built: Path, tmp_path: Path) -> None:
    """One at a time, and always the same ones of them."""
    driven = Driven(kind, failing, built, tmp_path)
    for call in random.Random(kind).sample(sorted(driven.calls()), 2):
        driven.check(call)


@pytest.mark.long
@pytest.mark.skipif(not X86_64, reason="the stubs are those of x86-64")
@pytest.mark.parametrize("kind", DRIVEN)
def test_each_driver_call_fails_once(kind: str, failing: Path, built: Path, tmp_path: Path) -> None:
    driven = Driven(kind, failing, built, tmp_path)
    calls = driven.calls()
    assert len(calls) > 200
    assert sum(map(driven.check, calls)) > 60


@pytest.mark.native
@pytest.mark.long
@pytest.mark.skipif(not X86_64, reason="the stubs are those of x86-64")
@pytest.mark.parametrize(
    ("name", "error", "options"),
    [
        pytest.param("example-training", "out of memory", {}, marks=pytest.mark.large),
        pytest.param(
            *("example-async", "not supported", {"epoch": "launch", "regions": "touched"}),
            marks=pytest.mark.large,
        ),
        ("example-vmm", "illegal address", {"overwrite": "drop-oldest", "ring_bytes": "256K"}),
        ("graph_updates", "not supported", {"epoch": "graph", "regions": "touched"}),
    ],
)
def test_driver_call_fails_from_some_point_on(
    name: str, error: str, options: dict[str, str], failing: Path, built: Path, tmp_path: Path
) -> None:
    command = support.command(name, built)
    bare = support.run(command, SIM)
    result = {"out of memory": 2, "not supported": 801, "illegal address": 700}[error]
    library, variable = failing / "failing_driver.so", "FAILING_DRIVER"
    environment = with_failing(library, variable, "count", tmp_path / "run", **options)
    counts = counted(support.run(command, environment))
    assert {"cuLaunchKernel", "cuMemHostAlloc", "cuModuleLoadData"} < set(counts)
    told = set()
    for call, count in counts.items():
        for n in sorted({1, (count + 1) // 2}):
            run = tmp_path / f"{call}-{n}"
            what = f"{call}:{n}:{result}"
            environment = with_failing(library, variable, what, run, **options)
            if check(bare, support.run(command, environment), run):
                told.add(call)
    assert {"cuLaunchKernel", "cuMemHostAlloc", "cuModuleLoadData", "cuStreamQuery"} <= told


@pytest.mark.native
@pytest.mark.skipif(not X86_64, reason="the stubs are those of x86-64")
def test_context_that_can_not_be_entered_ends(failing: Path, built: Path, tmp_path: Path) -> None:
    """Each time that the recorder enters it, the last time while its epochs are being stored."""
    command = [str(support.build_program("recorder_context_ends", built))]
    bare, library = support.run(command, SIM), failing / "failing_driver.so"

    def recorded(what: str, name: str) -> support.Outcome:
        run = tmp_path / name
        options = {"epoch": "sync", "ring_bytes": "64M", "compress": "off"}
        environment = with_failing(library, "FAILING_DRIVER", what, run, **options)
        return support.run(command, environment)

    count = counted(recorded("count", "whole"))["cuCtxPushCurrent_v2"]  # the drain's entries vary
    told = []
    for n in range(1, count + 1):
        outcome = recorded(f"cuCtxPushCurrent_v2:{n}-{n}:201", str(n))
        told.append(check(bare, outcome, tmp_path / str(n)))
    assert any(told)


@pytest.mark.native
@pytest.mark.skipif(not X86_64, reason="the stubs are those of x86-64")
def test_stopped_recording_does_not_wait_for_a_last_epoch(
    failing: Path, built: Path, run: Path
) -> None:
    command = support.command("example-async", built)
    library, what = failing / "failing_driver.so", "cuFuncLoad:1:801"
    options = {"epoch": "launch", "regions": "touched"}
    environment = with_failing(library, "FAILING_DRIVER", what, run, **options)
    outcome = support.run(command, environment)
    compare("", support.run(command, SIM), outcome)
    assert STOPPED in outcome.stderr
    assert "did not end" not in outcome.stderr


@pytest.mark.native
@pytest.mark.skipif(not X86_64, reason="the stubs are those of x86-64")
@pytest.mark.parametrize(
    ("call", "known"),
    [
        ("cuGraphGetNodes:1", False),
        ("cuGraphNodeGetType:5", False),
        ("cuGraphGetEdges_v2:3", False),
        ("cuGraphChildGraphNodeGetGraph:1", False),
        ("cuGraphKernelNodeGetParams_v2:1", True),  # there is an older form
        ("cuGraphMemsetNodeGetParams:1", True),
        ("cuGraphKernelNodeGetAttribute:1", True),
    ],
)
def test_graphs_that_the_driver_can_not_list(
    call: str, known: bool, failing: Path, built: Path, run: Path
) -> None:
    """The run says so, and the launches of such a graph may have touched everything."""
    command = support.command("graph_updates", built)
    bare = support.run(command, SIM)
    library, what = failing / "failing_driver.so", f"{call}:801"
    options = {"epoch": "graph", "regions": "touched"}
    outcome = support.run(command, with_failing(library, "FAILING_DRIVER", what, run, **options))
    compare("graph_updates", bare, outcome)
    opened = tt.open(run)
    (process,) = opened.processes
    name = call.partition(":")[0]
    told = f"the nodes of a graph are unknown: {name}: CUDA_ERROR_NOT_SUPPORTED"
    assert (told in opened.warnings) != known
    assert all(process.graphs.known(0, int(e["seq"])) == known for e in process.events[:9])
    check_stored(opened)
    if not known:
        assert len(process.graphs.nodes(0)) == 0
        cut = opened.epochs[~opened.epochs["full"]]
        assert set(cut["bytes_read"]) == {12000 + 124}  # the module's variables too


@pytest.mark.native
@pytest.mark.skipif(not X86_64, reason="the stubs are those of x86-64")
@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("recorder_graph_epochs", "cuGraphInstantiateWithFlags:2-2"),  # the graph of ours
        ("graph_conditional", "cuGraphInstantiateWithFlags:1-1"),  # the program's, with them in it
    ],
)
def test_refused_instrumented_graph_runs_unchanged(
    name: str, call: str, failing: Path, built: Path, run: Path
) -> None:
    """It is made without them."""
    command = [str(support.build_program(name, built))]
    bare = support.run(command, SIM)
    library, what = failing / "failing_driver.so", f"{call}:801"
    environment = with_failing(library, "FAILING_DRIVER", what, run, epoch="graph-node:.")
    outcome = support.run(command, environment | {"FAILING_WRAPPERS": ""})
    compare("", bare, outcome)
    told = "no epochs and times inside a graph: the driver refuses the recorder's nodes"
    inside = "in a conditional body inside"  # kernels there get no epochs anyway
    warnings = [text for text in tt.open(run).warnings if inside not in text]
    assert warnings[0] == told and "no epoch was cut" in warnings[1] and len(warnings) == 2
    assert "graph-node" not in set(tt.open(run).epochs["trigger"])


@pytest.mark.native
@pytest.mark.skipif(not X86_64, reason="the stubs are those of x86-64")
def test_graph_updates_work_after_recording_stops(failing: Path, built: Path, run: Path) -> None:
    """What the recorder has put into executable graphs stays in them."""
    command = [str(support.build_program("recorder_graph_epochs_changes", built))]
    bare = support.run(command, SIM)
    library, what = failing / "failing_driver.so", "cuMemcpyDtoHAsync_v2:5:801"
    environment = with_failing(library, "FAILING_DRIVER", what, run, epoch="graph-node:.")
    outcome = support.run(command, environment)
    compare("", bare, outcome)
    stopped(outcome, run, ": the context failed .*cuMemcpyDtoHAsync")
    assert 0 < len(tt.open(run).epochs) < 100


@pytest.mark.native
@pytest.mark.skipif(not X86_64, reason="the stubs are those of x86-64")
def test_failed_mapping_uses_addresses_of_the_driver(failing: Path, built: Path, run: Path) -> None:
    """A deterministic run says once that addresses of the driver may differ."""
    command = support.command("alloc_sizes", built)
    library = failing / "failing_driver.so"
    environment = with_failing(library, "FAILING_DRIVER", "cuMemMap:1:801", run, deterministic="1")
    outcome = support.run(command, environment)
    compare("alloc_sizes", support.run(command, SIM), outcome)
    (line,) = (line for line in own_lines(outcome) if "may differ between runs" in line)
    assert "device 0 could not map memory" in line
    assert set(tt.open(run).regions["kind"]) == {"device"}


@pytest.mark.native
@pytest.mark.skipif(not X86_64, reason="the stubs are those of x86-64")
def test_ring_moves_to_pinned_memory(failing: Path, built: Path, run: Path) -> None:
    """The recorder begins anew in pinned memory, and streams of the program go on."""
    command = support.command("example-async", built)
    bare = support.run(command, SIM)
    library = failing / "failing_driver.so"
    environment = with_failing(library, "FAILING_DRIVER", "cuMemCreate:1:2", run, deterministic="1")
    outcome = support.run(command, environment, timeout=30)
    compare("example-async", bare, outcome)
    assert "freed its own" in outcome.stderr
    opened = tt.open(run)
    assert opened.processes[0].info["ring"]["memory"] == "host"
    check_stored(opened)
    assert len(opened.epochs) >= 7


@pytest.mark.long
@pytest.mark.skipif(not X86_64, reason="the stubs are those of x86-64")
def test_capture_finishes_while_it_is_cancelled(failing: Path, built: Path, run: Path) -> None:
    """Streams that wait for the next one go on when that is through."""
    command = [str(support.build_program("recorder_blocked_graph", built)), "late"]
    bare = support.run(command, SIM)
    library, what = failing / "failing_driver.so", "cuStreamWriteValue32_v2:4-4:9998"
    environment = with_failing(library, "FAILING_DRIVER", what, run, stall_ms="100")
    outcome = support.run(command, environment)
    compare("", bare, outcome)
    opened = tt.open(run)
    assert not opened.epochs["refused"].iloc[-1]
    check_stored(opened)


@pytest.mark.native
@pytest.mark.skipif(not X86_64, reason="the stubs are those of x86-64")
def test_host_waits_when_streams_can_not(failing: Path, built: Path, run: Path) -> None:
    """The host waits in their place: no epoch is torn."""
    program = support.build_examples(built / "examples") / "streams"
    command = [str(program), "--seed", "1", "--steps", "80", "--size", "2000"]
    random = {"TT_SIM_SCHEDULE": "random", "TT_SIM_SEED": "1"}
    library, what = failing / "failing_driver.so", "cuStreamWaitValue32_v2:1:801"
    options = {"epoch": "launch", "params": "1"}
    environment = with_failing(library, "FAILING_DRIVER", what, run, **options) | random
    assert support.run(command, environment) == support.run(command, SIM | random)
    found = streams.check(tt.open(run))
    assert found.epochs > 30 and not found.wrong


@pytest.mark.native
@pytest.mark.skipif(not X86_64, reason="the stubs are those of x86-64")
@pytest.mark.parametrize("call", ["cuStreamQuery", "cuCtxPushCurrent_v2"])
def test_driver_call_that_never_returns(call: str, failing: Path, built: Path, run: Path) -> None:
    """The process ends in its time, with what is known without the driver."""
    command = [str(support.build_program("recorder_hangs", built)), "spin"]
    what = f"{call}:1:9999"
    environment = with_failing(
        failing / "failing_driver.so", "FAILING_DRIVER", what, run, epoch="none"
    )
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        assert process.stdout.readline() == "hangs\n"
        began = time.monotonic()
        process.terminate()
        said = process.communicate(timeout=60)[1]
    assert process.returncode == -15
    assert time.monotonic() - began < 30
    assert "ended by signal 15 (SIGTERM), with work in flight (the driver does not answer)" in said
    assert "ttanalyze:   stream 16: 3 calls, the first spin<<<4, 32>>> (call 15, " in said
    info = tt.open(run).processes[0].info
    assert info["status"] == "signal"
    assert not info["incidents"][0]["answered"]


@pytest.mark.native
@pytest.mark.skipif(not X86_64, reason="the stubs are those of x86-64")
@pytest.mark.parametrize(
    ("call", "recording", "told"),
    [
        ("cuModuleGetGlobal_v2:2", "calls", "address and contents of .* are unknown: cuModule"),
        ("cuFuncGetAttribute:8", "calls", "registers and limits of add are unknown: cuFuncGetAt"),
        ("cuFuncGetParamInfo:2", "calls", "parameters of fill are unknown: cuFuncGetParamInfo: "),
        ("cuGraphGetNodes:1", "graphs", "no epochs inside a graph: its nodes can't be read$"),
        ("cuGraphNodeGetType:1", "graphs", "no epochs inside a graph: its nodes can't be read$"),
        ("cuGraphKernelNodeGetParams_v2:2", "graphs", "a kernel in a graph may have no"),
        ("cuGraphInstantiateWithFlags:1", "graphs", "no epochs and times inside a graph"),
        ("cuStreamCreateWithPriority:4", "flight", "the driver refuses CUDA events: the work of"),
    ],
)  # fmt: skip
def test_failed_driver_queries_are_counted_as_lost(
    call: str, recording: str, told: str, failing: Path, built: Path, run: Path
) -> None:
    """The first of it is what ``record --require-complete`` names."""
    rounds, options = RECORDINGS[recording]
    command = [str(support.build_program("recorder_soak", built)), "0", rounds]
    name, n = call.split(":")
    library, what = failing / "failing_driver.so", f"{name}:{n}-{n}:2"
    environment = with_failing(library, "FAILING_DRIVER", what, run, **options)
    outcome = without_sizes(support.run(command, environment))
    compare("", without_sizes(support.run(command, SIM)), outcome)
    losses = tt.open(run).processes[0].info["losses"]
    assert losses and re.match(told, losses[0])
    check_stored(tt.open(run))


@pytest.mark.native
@pytest.mark.skipif(not X86_64, reason="the stubs are those of x86-64")
@pytest.mark.parametrize("n", [2, 3])
def test_host_waits_for_epochs_inside_graphs(n: int, failing: Path, built: Path, run: Path) -> None:
    """The host waits for the epochs inside: nothing waits for ever for what does not come."""
    rounds, options = RECORDINGS["graphs"]
    command = [str(support.build_program("recorder_soak", built)), "0", rounds]
    library, what = failing / "failing_driver.so", f"cuStreamWriteValue32_v2:{n}-{n}:801"
    environment = with_failing(library, "FAILING_DRIVER", what, run, **options)
    outcome = without_sizes(support.run(command, environment, timeout=30))
    check(without_sizes(support.run(command, SIM)), outcome, run)


@pytest.mark.native
@pytest.mark.skipif(not X86_64, reason="the stubs are those of x86-64")
def test_unknown_current_context_stops_recording(
    failing: Path, program: list[str], bare: support.Outcome, run: Path
) -> None:
    library, what = failing / "failing_driver.so", "cuCtxGetCurrent:1-1:2"
    outcome = support.run(program, with_failing(library, "FAILING_DRIVER", what, run))
    compare("", bare, outcome)
    stopped(outcome, run, "the driver does not say which context is current$")
    assert not run.exists()


# ---- what the driver refuses ----


@pytest.mark.native
@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (
            "ptx:tt_capture_digest",
            "^.*the driver refused the capture kernels: CUDA_ERROR_INVALID_PTX$",
        ),
        ("pinned:1", "no memory for the ring: neither on the device nor pinned on the host$"),
        ("pinned:100000", "no memory for the ring: neither on the device nor pinned on the host$"),
    ],
)
def test_driver_refuses_the_recorder(
    fault: str, reason: str, program: list[str], bare: support.Outcome, run: Path
) -> None:
    outcome = support.run(program, support.recording(SIM | {"TT_SIM_FAULT": fault}, run))
    outcome_lines = [line for line in outcome.stderr.splitlines() if "simulator" not in line]
    assert (outcome.stdout, outcome.status) == (bare.stdout, bare.status)
    assert len(outcome_lines) == 1
    stopped(support.Outcome("", outcome_lines[0], 0), run, reason)
    opened = tt.open(run)
    assert opened.processes[0].info["ring"] == {"bytes": 0, "memory": "none"}
    assert len(opened.events) > 10


@pytest.mark.native
@pytest.mark.parametrize(
    ("memory", "fault", "line", "place"),
    [
        (
            "128M",
            None,
            "not enough free device memory: the ring is 16 MiB instead of 256",
            "device",
        ),
        ("16M", None, "no free device memory: the ring is 64 MiB of pinned", "host"),
        ("16M", "pinned:20000000", "recording stopped: no memory for the ring", "none"),
        ("128M", "pinned:100000", "recording stopped: no memory for the ring", "none"),
    ],
)
def test_ring_shrinks_when_memory_is_short(
    memory: str, fault: str | None, line: str, place: str, program: list[str],
    bare: support.Outcome, run: Path,
) -> None:  # fmt: skip
    environment = SIM | {"TT_SIM_MEMORY": memory} | ({"TT_SIM_FAULT": fault} if fault else {})
    outcome = support.run(program, support.recording(environment, run, ring_bytes="256M"))
    compare("", bare, outcome)
    (said,) = own_lines(outcome)
    assert said.startswith(NAME + line)
    opened = tt.open(run)
    info = opened.processes[0].info
    assert info["ring"]["memory"] == place
    check_stored(opened)
    if place == "none":
        assert info["status"] == "failed"
    else:
        assert info["warnings"] == [said.removeprefix(NAME)]
        assert info["status"] == "complete"
        assert len(opened.epochs) == 21


@pytest.mark.native
def test_module_memory_of_the_recorder_is_released(built: Path, run: Path) -> None:
    """A driver keeps what modules took until an allocation fails. Then it is no longer ours."""
    environment = SIM | {"TT_SIM_FAULT": "keeps:1"}
    command = support.command("out_of_memory", built)
    bare = support.run(command, environment)
    assert "free as before 1" in bare.stdout
    compare("", bare, support.run(command, support.recording(environment, run)))
    assert tt.open(run).processes[0].info["status"] == "complete"


@pytest.mark.native
@in_some_limit(0.5, 5, 20)
def test_allocation_returns_while_work_waits_for_the_host(
    limit: float, built: Path, run: Path
) -> None:
    """The recorder can't give its own back then. The call that asks for memory returns."""
    command = [str(support.build_program("recorder_out_of_memory_while_blocked", built))]
    environment = SIM | {"TT_SIM_MEMORY": "16M"}
    bare = support.run(command, environment)
    outcome = support.run(command, support.recording(environment, run, stall_ms=f"{limit}s"))
    compare("", bare, outcome)
    told = "the program ran out of device memory: its work did not end"
    assert told in outcome.stderr
    assert tt.open(run).processes[0].info["status"] == "complete"
    assert tt.verify(tt.open(run), run / "manifest.json").same


@pytest.mark.native
@pytest.mark.parametrize("options", [{"deterministic": "1"}, {"zones": "256"}])
@pytest.mark.parametrize("shares", [("70", "50"), ("20", "85")])
def test_memory_runs_out_during_a_capture(
    shares: tuple[str, str], options: dict[str, str], built: Path, run: Path
) -> None:
    """What is kept of freed memory is given back, without a wait for the context."""
    command = [str(support.build_program("recorder_full_while_capturing", built)), *shares]
    environment = SIM | {"TT_SIM_MEMORY": "192M"}
    bare = support.run(command, environment)
    assert bare.status == 0
    compare("", bare, support.run(command, support.recording(environment, run, **options)))
    assert tt.verify(tt.open(run), run / "manifest.json").same


@pytest.mark.native
@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("fault_illegal_address", "ILLEGAL_ADDRESS"),
        ("fault_misaligned_address", "MISALIGNED_ADDRESS"),
        ("fault_trap", "LAUNCH_FAILED"),
    ],
)
def test_device_is_lost_while_recording(name: str, error: str, built: Path, run: Path) -> None:
    command = support.command(name, built)
    bare = support.run(command, SIM)
    outcome = support.run(command, support.recording(SIM, run))
    compare(name, bare, outcome)
    stopped(outcome, run, f"the context failed \\(CUDA_ERROR_{error} from ")


@pytest.mark.native
@pytest.mark.skipif(not X86_64, reason="the stubs are those of x86-64")
def test_kernel_first_used_after_the_device_is_lost(
    failing: Path, program: list[str], bare: support.Outcome, run: Path
) -> None:
    what = "cuFuncGetAttribute:1:719"
    outcome = support.run(
        program, with_failing(failing / "failing_driver.so", "FAILING_DRIVER", what, run)
    )
    compare("", bare, outcome)
    stopped(
        outcome, run, "the context failed \\(CUDA_ERROR_LAUNCH_FAILED from cuFuncGetAttribute\\)$"
    )
    (incident,) = tt.open(run).processes[0].info["incidents"]
    assert (incident["reason"], incident["call"]) == (
        "CUDA_ERROR_LAUNCH_FAILED",
        "cuFuncGetAttribute",
    )


@pytest.mark.native
@pytest.mark.skipif(not X86_64, reason="the stubs are those of x86-64")
def test_epochs_drained_before_the_device_is_lost(
    failing: Path, program: list[str], bare: support.Outcome, run: Path
) -> None:
    library, variable, call = (
        failing / "failing_driver.so",
        "FAILING_DRIVER",
        "cuMemcpyDtoHAsync_v2",
    )
    clean = with_failing(library, variable, "count", run.with_name("clean"))
    count = counted(support.run(program, clean))[call]
    what = f"{call}:{count // 2}:700"
    outcome = support.run(program, with_failing(library, variable, what, run))
    compare("", bare, outcome)
    stopped(outcome, run, "CUDA_ERROR_ILLEGAL_ADDRESS from cuMemcpyDtoHAsync")
    assert 5 <= len(tt.open(run).epochs) <= 15


# ---- processes that are no business of ours ----


UNTOUCHED = """
import os, sys
status = dict(line.split(":\\t", 1) for line in open("/proc/self/status"))
names = ("SigBlk", "SigIgn", "SigCgt", "Threads")
print({name: status[name].strip() for name in names})
print(sorted(os.listdir("/proc/self/fd")))
print(sorted(name for name in os.environ if name not in ("LD_PRELOAD", "TT_OUT")))
print([line for line in open("/proc/self/maps") if sys.argv[1] in line])
"""


@pytest.mark.native
def test_process_without_the_driver_is_untouched(tmp_path: Path) -> None:
    command = [sys.executable, "-c", UNTOUCHED, str(tmp_path)]
    bare = support.run(command, SIM, cwd=tmp_path)
    assert bare.status == 0
    recorded = support.run(command, support.recording(SIM, tmp_path / "run"), cwd=tmp_path)
    assert recorded == bare
    assert os.listdir(tmp_path) == []


TRACED = """
import ctypes, multiprocessing, os, signal, subprocess, sys, threading

def work():
    cuda = ctypes.CDLL("libcuda.so.1")
    context, p = ctypes.c_void_p(), ctypes.c_uint64()
    assert cuda.cuInit(0) == 0
    assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert cuda.cuCtxSetCurrent(context) == 0
    assert cuda.cuMemAlloc_v2(ctypes.byref(p), ctypes.c_size_t(1000)) == 0
    assert cuda.cuMemsetD8_v2(p, ctypes.c_ubyte(7), ctypes.c_size_t(1000)) == 0
    assert cuda.cuCtxSynchronize() == 0
    return cuda, p

def nothing(n):
    return n * 2

def many():
    with multiprocessing.get_context("fork").Pool(2) as pool:
        print(pool.map(nothing, range(5)))
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(pool.map(nothing, range(5)))
    print(subprocess.run([sys.executable, "-c", "print(1)"], capture_output=True).stdout)
    print(os.system("exit 3"))
    child = os.fork()
    if not child:
        sys.stdout.flush()
        os._exit(5)
    print(os.waitpid(child, 0)[1] >> 8)

def at_once():
    # Children that begin while other threads begin some, and that signals end.
    def several():
        for _ in range(20):
            subprocess.run(["true"])
    threads = [threading.Thread(target=several) for _ in range(4)]
    for thread in threads:
        thread.start()
    print(subprocess.run(["sh", "-c", "kill -TERM $$"]).returncode)
    process = multiprocessing.get_context("fork").Process(target=os.abort)
    process.start()
    process.join()
    print(process.exitcode)
    for thread in threads:
        thread.join()
    print(signal.getsignal(signal.SIGTERM), signal.signal(signal.SIGTERM, signal.SIG_DFL))

if __name__ == "__main__":
    what = sys.argv[1]
    if what == "before":
        many()
    cuda, p = work()
    if what == "after":
        many()
    elif what == "at once":
        at_once()
    elif what == "spawned":
        process = multiprocessing.get_context("spawn").Process(target=work)
        process.start()
        process.join()
        print(process.exitcode)
    print(cuda.cuMemFree_v2(p))
"""


@pytest.mark.native
@pytest.mark.parametrize(
    ("what", "processes"), [("before", 1), ("after", 1), ("at once", 1), ("spawned", 2)]
)
def test_python_children_record_only_when_they_use_the_driver(
    what: str, processes: int, tmp_path: Path
) -> None:
    """Forked, spawned or started: only those that use the driver are recorded."""
    script, run = tmp_path / "traced.py", tmp_path / "run"
    script.write_text(TRACED)
    command = [sys.executable, "-W", "ignore", str(script), what]  # a warning names the process
    bare = support.run(command, SIM, cwd=tmp_path)
    assert (bare.status, bare.stdout[-2:]) == (0, "0\n"), bare.stderr
    assert support.run(command, support.recording(SIM, run), cwd=tmp_path) == bare
    opened = tt.open(run)
    assert len(opened.processes) == processes
    assert {p.info["status"] for p in opened.processes} == {"complete"}
    assert list(opened.regions["size"]) == [1000] * processes
    assert tt.verify(opened, run / "manifest.json").same
    assert sorted(os.listdir(tmp_path)) == ["run", "traced.py"]
