"""How tests share a GPU: by a lock, in parts, and in an order. This needs no GPU."""

from __future__ import annotations

import fcntl
import subprocess
import sys
import threading
import time
from pathlib import Path

from tests import support
from tests.gpu.device_lock import hold_devices


def test_exclusive_test_runs_before_later_tests(tmp_path: Path) -> None:
    lock = tmp_path / "device.lock"
    inside: list[str] = []
    order: list[tuple[str, list[str]]] = []
    release = {name: threading.Event() for name in ("a", "b", "exclusive", "late")}

    def use(name: str) -> None:
        with hold_devices([lock], name == "exclusive"):
            inside.append(name)
            order.append((name, sorted(inside)))
            assert release[name].wait(30)
            inside.remove(name)

    threads = {name: threading.Thread(target=use, args=(name,)) for name in release}

    def entered(count: int) -> None:
        until = time.monotonic() + 30
        while len(order) < count:
            assert time.monotonic() < until, order
            time.sleep(0.001)

    def turnstile_is_held() -> bool:
        with open(lock.with_suffix(".turnstile"), "w") as turnstile:
            try:
                fcntl.flock(turnstile, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False

    for i, name in enumerate(("a", "b")):
        threads[name].start()
        entered(i + 1)
    threads["exclusive"].start()
    until = time.monotonic() + 30
    while not turnstile_is_held():
        assert time.monotonic() < until
        time.sleep(0.001)
    threads["late"].start()
    release["a"].set()
    threads["a"].join(30)
    assert len(order) == 2, "b is still inside"
    release["b"].set()
    entered(3)
    time.sleep(0.05)
    assert len(order) == 3, "the device is not shared with who needs it alone"
    release["exclusive"].set()
    entered(4)
    release["late"].set()
    for thread in threads.values():
        thread.join(30)
    assert order == [
        ("a", ["a"]),
        ("b", ["a", "b"]),
        ("exclusive", ["exclusive"]),
        ("late", ["late"]),
    ]


def collected(*options: str) -> list[str]:
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "tests/gpu/test_gpu_race.py"]
    done = subprocess.run(
        [*command, *options], capture_output=True, text=True, cwd=support.ROOT, check=True
    )
    return [line for line in done.stdout.splitlines() if "::" in line]


def test_parts_have_all_tests_and_exclusive_ones_come_last() -> None:
    whole = collected()
    assert whole[-1].endswith("[handoff]"), "it needs the GPU to itself"
    first, second = collected("--part", "1/2"), collected("--part", "2/2")
    assert first == whole[::2] and second == whole[1::2]


SMI = """#!/bin/sh
case "$1" in
--query-gpu*) echo a card ;;
-L) for n in 0 1 2 3; do echo "GPU $n: a card (UUID: GPU-$n)"; done ;;
esac
"""
SEEN = """
import os, pytest
from pathlib import Path
from tests.gpu.device_lock import on_gpus

@pytest.mark.parametrize("count", [*range(4), *map(on_gpus, (2, 3, 4, 5))])
def test_sees(count, worker_id):
    with open("seen", "a") as seen:
        print(worker_id, count, os.environ["CUDA_VISIBLE_DEVICES"], file=seen)
"""


def seen(folder: Path, *options: str, **variables: str) -> set[str]:
    """Process of pytest, parameter and visible GPUs of tests on a machine of four."""
    (folder / "nvidia-smi").write_text(SMI)
    (folder / "nvidia-smi").chmod(0o755)
    (folder / "test_seen.py").write_text(SEEN)
    (folder / "seen").write_text("")
    environment = support.importing_environment(TMPDIR=str(folder), **variables)
    environment["PATH"] = f"{folder}:{environment['PATH']}"
    command = [sys.executable, "-m", "pytest", "-c", "/dev/null", "-p", "tests.gpu.conftest"]
    done = support.run([*command, *options, "test_seen.py"], environment, cwd=folder)
    assert done.status == 0, done
    return set((folder / "seen").read_text().splitlines())


def test_each_process_has_a_gpu_and_some_tests_have_several(tmp_path: Path) -> None:
    of_two = {*(f"master {i} GPU-3" for i in range(4)), "master 2 GPU-3,GPU-1"}
    assert seen(tmp_path, CUDA_VISIBLE_DEVICES="3,1") == of_two
    cards = [f"GPU-{i % 4}" for i in range(8)]
    assert seen(tmp_path, "-n", "2", "--dist", "each") == {
        *(f"gw{own} {i} GPU-{own}" for own in range(2) for i in range(4)),
        *(f"gw{own} {i} {','.join(cards[own : own + i])}" for own in range(2) for i in (2, 3, 4)),
    }
