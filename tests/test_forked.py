"""Command lines in forked processes end as in a process of their own, and leave nothing behind."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests import forked, support
from tests.hanging import in_some_limit

SCRIPT = """
import os, random, sys
sys.stderr.write("told\\n")
print(sys.argv[1:], __name__, os.environ.get("TT_TOLD"), os.environ.get("TT_ELSE"))
print(sorted(os.listdir("/proc/self/fd"), key=int)[:-1], sys.stdin.read(), random.random())
sys.stdout.flush()
{last}
"""


@pytest.mark.parametrize(
    ("last", "status"),
    [
        ("", 0),
        ("sys.exit(3)", 3),
        ("sys.exit('why')", 1),
        ("1 / 0", 1),
        ("os._exit(5)", 5),
        ("os.kill(os.getpid(), 9)", -9),
        ("raise KeyboardInterrupt", -2),
        ("import atexit; atexit.register(print, 'at the end')", 0),
        ("import threading; threading.Timer(0.2, print, ['later']).start()", 0),
        ("sys.stdout = sys.stderr", 0),
        ("sys.stdout = open('/dev/full', 'w'); print(1)", 120),
    ],
)
def test_end_is_that_of_a_process(last: str, status: int, tmp_path: Path) -> None:
    (tmp_path / "forked_script.py").write_text(SCRIPT.format(last=last))
    environment = support.importing_environment(TT_TOLD="1")
    environment["PYTHONPATH"] += f":{tmp_path}"
    command = [sys.executable, "-m", "forked_script", "a", "b c"]
    alone = support.run(command, environment, cwd=support.ROOT)
    done = [
        forked.run("forked_script", ["a", "b c"], environment | more, 60)
        for more in ({"TT_ELSE": "2"}, {})
    ]
    assert {one[2] for one in done} == {alone.status} == {status}
    assert " 1 2\n" in done[0][0] and " 1 None\n" in done[1][0]
    random = [one[0].splitlines()[1].rpartition(" ")[2] for one in done]
    assert random[0] != random[1]
    assert done[1][0].replace(random[1], "") == alone.stdout.replace(
        alone.stdout.splitlines()[1].rpartition(" ")[2], ""
    )
    assert done[1][1].splitlines()[0] == "told"
    assert done[1][1].splitlines()[-1] == alone.stderr.splitlines()[-1]


SLEEPER = """
import subprocess, sys, time
print(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]).pid, flush=True)
time.sleep(60)
"""


def exists(process: int) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


@pytest.mark.parametrize("forks", [True, False])
@in_some_limit(1, 4, 16, 64)  # it has begun the other one before one of them
def test_time_limit_ends_all_and_says_what_came(limit: float, forks: bool, tmp_path: Path) -> None:
    (tmp_path / "forked_sleeper.py").write_text(SLEEPER)
    environment = support.importing_environment()
    environment["PYTHONPATH"] += f":{tmp_path}"
    command = [sys.executable, "-m", "forked_sleeper"]
    forked.run("platform", [], environment, 300)
    run: Callable[[], object] = partial(support.run, command, environment, timeout=limit)
    if forks:
        run = partial(forked.run, "forked_sleeper", [], environment, limit)
    with pytest.raises(forked.TimeLimit, match=f"after {limit} seconds\n[0-9]+\n") as told:
        run()
    began = time.monotonic()
    while exists(int(str(told.value).splitlines()[1])):
        assert time.monotonic() - began < 30
        time.sleep(0.01)


def test_it_runs_in_its_folder(tmp_path: Path) -> None:
    (tmp_path / "forked_where.py").write_text("import os; print(os.getcwd())")
    environment = support.importing_environment()
    environment["PYTHONPATH"] += f":{tmp_path}"
    for folder in (tmp_path, support.ROOT):
        done = forked.run("forked_where", [], environment, 60, folder)
        assert done == (f"{folder}\n", "", 0)
