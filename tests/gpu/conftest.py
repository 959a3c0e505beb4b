"""Each test waits for its turn before it, or a fixture of its module, uses the GPU."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from tests.gpu.turns import turn


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    with turn(alone=item.get_closest_marker("alone") is not None):
        return (yield)
