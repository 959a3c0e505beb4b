"""On a GPU: the tour records there, and takes a training in PyTorch along if it is installed."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

from tests import support

pytestmark = pytest.mark.gpu


def test_tour_uses_the_gpu(tmp_path: Path) -> None:
    environment = support.importing_environment()
    told = support.ttanalyze("demo", "--json", "-o", tmp_path / "tour", environment=environment)
    assert told.status == 0, told.stderr
    tour = json.loads(told.stdout)
    torch = importlib.util.find_spec("torch") is not None
    assert (tour["place"], tour["torch"]) == ("GPU", torch)
    assert [step["status"] for step in tour["steps"]] == [0, 0, 0, 1, 0, 0] + [0, 0] * torch
