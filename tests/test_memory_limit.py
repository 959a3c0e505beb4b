"""The memory of verbs on long runs: bounded without an option, or by --max-memory."""

from __future__ import annotations

import re
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

import ttanalyze as tt
from bench import generated
from tests import support
from ttanalyze.format.run import Run

EPOCHS = 1500
VERBS = {
    "diff": ["diff", "A", "B", "--all"],
    "query": ["query", "A", "--sort", "-seq", "--fields", "seq,kind,short", "--top", "9"],
    "trace": ["trace", "A", "--format", "perfetto", "-o", "/dev/null"],
    "info": ["info", "A"],
}
# Prints the most private memory, in KiB.
VERB = """
import sys, threading
most, over = 0, threading.Event()
def look():
    global most
    while not over.wait(0.002):
        with open("/proc/self/status") as file:
            found = next(line for line in file if line.startswith("RssAnon"))
        most = max(most, int(found.split()[1]))
thread = threading.Thread(target=look)
thread.start()
from ttanalyze.cli import main
status = main(sys.argv[1:])
over.set()
thread.join()
print(most, file=sys.stderr)
sys.exit(status)
"""
ARRAYS = """
import sys
import numpy as np
from ttanalyze.cli import run_command
from ttanalyze.cli.common import limit_memory
limit_memory("256M")
parts = [np.arange(i, 2_000_000 + i) for i in range(12)]
parts[3] = np.concatenate([parts[3], parts[4]])
parts[5].resize(2_500_000, refcheck=False)
assert all((part[:2_000_000] == np.arange(i, 2_000_000 + i)).all() for i, part in enumerate(parts))
assert not parts[5][2_000_000:].any() and not np.zeros(1_000_000).any()
del parts
import ttanalyze.verbs.info as info
def raising(error):
    def info(run):
        raise error
    return info
for info.info in (
    lambda run: [bytes(1 << 20) for _ in range(1000)],
    raising(ImportError("_x.so: failed to map segment from shared object")),
    raising(RuntimeError("can't start new thread")),
):
    status = run_command(["info", sys.argv[1]])
sys.exit(status)
"""
# As the math library does on a machine with many processors: each thread reserves 64 MiB.
THREADS = """
import sys, threading
from ttanalyze.cli import run_command
over = threading.Event()
def begin(stack):
    threading.stack_size(stack)
    for _ in range(64):
        threading.Thread(target=over.wait, daemon=True).start()
begin(64 << 20)
status = run_command(["info", sys.argv[1], "--max-memory", "256M"])
begin(0)
over.set()
sys.exit(status)
"""


def test_arrays_that_do_not_fit_lie_in_a_file(tmp_path: Path) -> None:
    """Twelve arrays of 16 MB and copies, in 256 MiB of which Python has half. Other memory has to
    fit.
    """
    generated.write(tmp_path / "run", 1, 1, 1, 64)
    (tmp_path / "spill").mkdir()
    environment = support.bare_environment(TMPDIR=str(tmp_path / "spill"))
    done = support.run([sys.executable, "-c", ARRAYS, tmp_path / "run"], environment)
    assert (done.status, done.stdout) == (2, ""), done.stderr
    message = (
        f"ttanalyze: out of memory: the limit of 256 MiB is too low, or {tmp_path / 'spill'} is "
        f"full; give --max-memory more, or TMPDIR a folder with more space"
    )
    assert done.stderr.splitlines() == [message] * 3
    assert not list((tmp_path / "spill").iterdir()), "the file has no name"


def test_memory_that_is_only_reserved_does_not_count(tmp_path: Path) -> None:
    generated.write(tmp_path / "run", 1, 1, 1, 64)
    done = support.run(
        [sys.executable, "-c", THREADS, tmp_path / "run"], support.bare_environment()
    )
    assert done.status == 0, done.stderr


def test_wrong_limits_are_refused(cli: support.Cli, tmp_path: Path) -> None:
    for size, reason in (
        ("64M", "64 MiB of memory are too few; give at least 256 MiB"),
        ("much", "expected a size, such as 256M or 2G (without a unit: bytes)"),
    ):
        done = cli("info", tmp_path, "--max-memory", size)
        assert (done.status, done.stderr) == (2, f"ttanalyze: --max-memory {size}: {reason}\n")


def test_calls_are_read_in_pieces(tmp_path: Path) -> None:
    """A million calls take 128 MB on disk, and a column of eight bytes for each takes 8 MB."""
    generated.write(tmp_path / "run", 1, 1000, 1, 64, launches=1000)
    run = tt.open(tmp_path / "run")
    peaks = [_peak(ask, run) / 1e6 for ask in (tt.info, _kernels, _largest)]
    assert peaks[0] < 12 and max(peaks) < 60, peaks


def _kernels(run: Run) -> None:
    tt.query(run, group_by=["short"], count=True, sum=["bytes"])


def _largest(run: Run) -> None:
    tt.query(run, sort=["-seq"], top=10)


def _peak(ask: Callable[[Run], object], run: Run) -> int:
    tracemalloc.start()
    ask(run)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two runs of 1,500,000 launches; the second lacks one and has other contents in an epoch."""
    a, b = (tmp_path_factory.mktemp("runs") / name for name in "ab")
    generated.write(a, 10, EPOCHS, 2, 64, launches=1000)
    generated.write(b, 10, EPOCHS, 2, 64, launches=1000, altered=120, missing=[1234])
    return a, b


@pytest.mark.long
@pytest.mark.parametrize("verb", VERBS)
def test_answer_is_the_same_in_little_memory(
    verb: str, runs: tuple[Path, Path], tmp_path: Path
) -> None:
    answers, peaks = [], []
    for more in ([], ["--max-memory", "256M"]):
        places = dict(zip("AB", map(str, runs), strict=True))
        words = [*(places.get(word, word) for word in VERBS[verb]), *more]
        environment = support.bare_environment(TMPDIR=str(tmp_path))
        done = support.run([sys.executable, "-c", VERB, *words], environment)
        assert done.status == (verb == "diff"), done.stderr
        answers.append(re.sub(r"[0-9.]+ s\b", "", done.stdout))
        peaks.append(int(done.stderr.split()[-1]) >> 10)
    assert answers[0] == answers[1]
    assert peaks[1] < 256
    assert verb != "diff" or peaks[0] > 256, "it needs the file"
