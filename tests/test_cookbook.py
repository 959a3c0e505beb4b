"""The snippets of docs/cookbook.md: each runs on real recordings and prints what the page shows."""

from __future__ import annotations

import re
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import support

PAGE = (support.ROOT / "docs" / "cookbook.md").read_text()
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)


def recipes() -> list[tuple[str, str, str]]:
    """Of each recipe: its heading, its code, and what it prints."""
    found = []
    for part in PAGE.split("\n### ")[1:]:
        heading, _, rest = part.partition("\n")
        blocks = BLOCK.findall(rest.partition("\n## ")[0])
        (code,) = [content for language, content in blocks if language == "python"]
        printed = "".join(content for language, content in blocks if language == "")
        found.append((heading, code, printed))
    return found


RECIPES = recipes()


@pytest.fixture(scope="module")
def beginning(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A folder with the runs that the page records, and the lines that all snippets begin with."""
    folder = tmp_path_factory.mktemp("cookbook")
    support.build_examples(folder / "build")
    first = PAGE.partition("\n## ")[0]
    blocks = BLOCK.findall(first)
    commands = re.findall(r"^examples\$ ttanalyze (.*)$", blocks[0][1], re.M)
    assert len(commands) == 3
    for command in commands:
        words = command.replace("overflow.py", str(support.EXAMPLES / "overflow.py")).split()
        words = [
            str(folder / w) if w in ("run1", "run2", "nan1", "build/training") else w for w in words
        ]
        outcome = support.ttanalyze(*words)
        assert outcome.status == 0, outcome.stderr
    return folder, blocks[1][1]


class Plot(types.ModuleType):
    """Stands for matplotlib.pyplot where that is not installed: knows the calls of the page."""

    def subplots(self) -> tuple[Any, Any]:
        return self, self

    def step(self, x: Any, y: Any) -> None:
        assert len(x) == len(y) > 10
        assert np.isfinite(y).all()

    def set(self, **labels: str) -> None:
        assert labels

    def savefig(self, name: str) -> None:
        Path(name).write_bytes(b"\x89PNG")


@pytest.mark.parametrize(("heading", "code", "printed"), RECIPES, ids=[r[0] for r in RECIPES])
def test_the_snippet_prints_what_is_shown(
    beginning: tuple[Path, str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    heading: str,
    code: str,
    printed: str,
) -> None:
    folder, before = beginning
    monkeypatch.chdir(folder)
    if "matplotlib" in code:
        plot = Plot("matplotlib.pyplot")
        package = types.ModuleType("matplotlib")
        package.pyplot = plot  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "matplotlib", package)
        monkeypatch.setitem(sys.modules, "matplotlib.pyplot", plot)
    exec(compile(before + code, f"docs/cookbook.md: {heading}", "exec"), {})
    assert capsys.readouterr().out == printed
    for name in re.findall(r'"(\w+\.(?:safetensors|npz|parquet|png))"', code):
        assert (folder / name).stat().st_size > 0
    assert printed or "savefig" in code


def test_there_are_recipes_for_the_common_questions() -> None:
    assert 15 <= len(RECIPES) <= 40
    code = "".join(recipe[1] for recipe in RECIPES)
    for what in ("watch(", "blame(", "diff(", "memory(", "save(", "to_parquet", "savefig"):
        assert what in code
