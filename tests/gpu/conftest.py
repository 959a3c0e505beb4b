"""Each test takes the lock of the GPU before it, or a fixture of its module, uses the GPU."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from tests import support
from tests.gpu.device_lock import hold_device


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    with hold_device(exclusive=item.get_closest_marker("exclusive") is not None):
        return (yield)


@pytest.fixture(params=[2, 4])
def ranks(request: pytest.FixtureRequest) -> int:
    """How many GPUs a program uses, in one process or with a process for each."""
    if support.gpu_count() < request.param:
        pytest.skip(f"needs {request.param} GPUs")
    return int(request.param)
