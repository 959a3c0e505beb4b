"""Command lines in forked processes end as in a process of their own, and leave nothing behind."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests import forked, support

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


def test_time_limit_ends_it(tmp_path: Path) -> None:
    (tmp_path / "forked_sleeper.py").write_text("import time; print(1, flush=True); time.sleep(60)")
    environment = support.importing_environment()
    environment["PYTHONPATH"] += f":{tmp_path}"
    forked.run("platform", [], environment, 60)
    began = time.monotonic()
    with pytest.raises(subprocess.TimeoutExpired):
        forked.run("forked_sleeper", [], environment, 5)
    assert time.monotonic() - began < 30


def test_it_runs_in_its_folder(tmp_path: Path) -> None:
    (tmp_path / "forked_where.py").write_text("import os; print(os.getcwd())")
    environment = support.importing_environment()
    environment["PYTHONPATH"] += f":{tmp_path}"
    for folder in (tmp_path, support.ROOT):
        done = forked.run("forked_where", [], environment, 60, folder)
        assert done == (f"{folder}\n", "", 0)
