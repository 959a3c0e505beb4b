"""Each test takes the lock of the GPU before it, or a fixture of its module, uses the GPU."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from tests.gpu.device_lock import hold_device


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    with hold_device(exclusive=item.get_closest_marker("exclusive") is not None):
        return (yield)
