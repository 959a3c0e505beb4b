"""The lock by which tests share a GPU; this test needs no GPU."""

from __future__ import annotations

import fcntl
import threading
import time
from pathlib import Path

from tests.gpu.device_lock import hold_device


def test_exclusive_test_runs_before_later_tests(tmp_path: Path) -> None:
    lock = tmp_path / "device.lock"
    inside: list[str] = []
    order: list[tuple[str, list[str]]] = []
    release = {name: threading.Event() for name in ("a", "b", "exclusive", "late")}

    def use(name: str) -> None:
        with hold_device(name == "exclusive", lock):
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
