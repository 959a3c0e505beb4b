"""The examples of docs/guides: each runs on real recordings and prints what the page shows."""

from __future__ import annotations

import re
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import support

GUIDES = support.ROOT / "docs" / "guides"
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
EXAMPLE = re.compile(r"^```python\n(.*?)^```$(?:\n\n^```\n(.*?)^```$)?", re.M | re.S)


def examples() -> list[tuple[str, str, str]]:
    """Name, code and output of each example that has output or writes a plot."""
    found = []
    for page in sorted(GUIDES.glob("*.md")):
        for part in page.read_text().split("\n## "):
            name = f"{page.stem}: {part.partition(chr(10))[0].removeprefix('# ')}"
            for code, printed in EXAMPLE.findall(part):
                if printed or "savefig" in code:
                    found.append((name, code, printed))
    return found


RECIPES = examples()


@pytest.fixture(scope="module")
def beginning(built: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A folder with the runs that the guides record, and the first lines of all examples."""
    folder = tmp_path_factory.mktemp("guides")
    (folder / "build").symlink_to(support.build_examples(built / "examples"))
    blocks = BLOCK.findall((GUIDES / "index.md").read_text())
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


@pytest.mark.parametrize(("name", "code", "printed"), RECIPES, ids=[r[0] for r in RECIPES])
def test_guide_examples_print_their_output(
    beginning: tuple[Path, str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
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
    exec(compile(before + code, f"docs/guides, {name}", "exec"), {})
    assert capsys.readouterr().out == printed
    for file in re.findall(r'"(\w+\.(?:safetensors|npz|parquet|png))"', code):
        assert (folder / file).stat().st_size > 0


def test_guides_have_examples_of_the_common_questions() -> None:
    assert len(RECIPES) >= 30
    code = "".join(recipe[1] for recipe in RECIPES)
    for what in ("watch(", "blame(", "diff(", "memory(", "save(", "to_parquet", "savefig"):
        assert what in code
