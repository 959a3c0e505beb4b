"""Spreads tests over GPUs: each process of pytest has one GPU, and each test takes its lock.

A test that needs several GPUs is marked gpus. It sees that many, the process's own first, and takes
their locks before it, or a fixture of its module, uses them.
"""

from __future__ import annotations

import os
from collections.abc import Generator

import pytest

from tests import support
from tests.gpu.device_lock import hold_devices, lock_of, on_gpus

VISIBLE = "CUDA_VISIBLE_DEVICES"


def own_gpus(config: pytest.Config, count: int) -> list[str]:
    """So many GPUs for a test of this process: different processes begin with different ones."""
    gpus = support.gpus()
    first = int(getattr(config, "workerinput", {}).get("workerid", "gw0").removeprefix("gw"))
    return [gpus[(first + i) % len(gpus)] for i in range(min(count, len(gpus)))]


def pytest_configure(config: pytest.Config) -> None:
    """Programs that MPS serves need the name of the GPU, not its number. The process that starts
    the others runs no test, and they see what it sees.
    """
    starts_others = config.getoption("numprocesses", None) and not hasattr(config, "workerinput")
    named = VISIBLE in os.environ or len(support.gpus()) > 1
    if support.gpus() and named and not starts_others:
        (os.environ[VISIBLE],) = own_gpus(config, 1)


def needed(item: pytest.Item) -> int:
    mark = item.get_closest_marker("gpus")
    return int(mark.args[0]) if mark else 1


def pytest_runtest_setup(item: pytest.Item) -> None:
    if len(support.gpus()) < needed(item):
        pytest.skip(f"needs {needed(item)} GPUs")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    gpus = own_gpus(item.config, needed(item))
    exclusive = item.get_closest_marker("exclusive") is not None
    with hold_devices(map(lock_of, gpus), exclusive), pytest.MonkeyPatch.context() as patch:
        if len(gpus) > 1:
            patch.setenv(VISIBLE, ",".join(gpus))
        return (yield)


@pytest.fixture(params=[on_gpus(2), on_gpus(4)])
def ranks(request: pytest.FixtureRequest) -> int:
    """How many GPUs a program uses, in one process or with a process for each."""
    return int(request.param)
