"""Runs the example notebooks without Jupyter.

    python -m tests.notebooks --write

runs them and writes their outputs into the files.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import io
import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests import support

FOLDER = support.EXAMPLES / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
FIGURE = "application/vnd.plotly.v1+json"


class Shell:
    """The parts of IPython that the notebooks need."""

    def __init__(self) -> None:
        self.user_ns: dict[str, Any] = {}
        self._magics: dict[str, Callable[[str, str], Any]] = {}

    def register_magic_function(
        self, function: Callable[[str, str], Any], magic_kind: str, magic_name: str
    ) -> None:
        assert magic_kind == "cell"
        self._magics[magic_name] = function

    def run(self, source: str) -> Any:
        """Returns the value of the cell's last expression, None if it has none."""
        if source.startswith("%%"):
            first, _, body = source.partition("\n")
            name, _, line = first.removeprefix("%%").partition(" ")
            return self._magics[name](line, body)
        kept = []
        for line in source.splitlines():
            if line.startswith("%load_ext "):
                importlib.import_module(line.split()[1]).load_ipython_extension(self)
            else:
                kept.append(line)
        tree = ast.parse("\n".join(kept))
        last = tree.body[-1] if tree.body else None
        if not isinstance(last, ast.Expr):
            exec(compile(tree, "<cell>", "exec"), self.user_ns)
            return None
        del tree.body[-1]
        exec(compile(tree, "<cell>", "exec"), self.user_ns)
        return eval(compile(ast.Expression(last.value), "<cell>", "eval"), self.user_ns)


def _lines(words: str) -> list[str]:
    return words.splitlines(keepends=True)


def _shown(value: Any) -> dict[str, Any]:
    if hasattr(value, "to_plotly_json"):
        return {FIGURE: json.loads(value.to_json())}
    data: dict[str, Any] = {"text/plain": _lines(repr(value))}
    if hasattr(value, "_repr_html_"):
        data["text/html"] = _lines(value._repr_html_())
    return data


def outputs(shell: Shell, source: str, number: int) -> list[dict[str, Any]]:
    """Runs a cell, and returns its outputs as the file format has them."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        value = shell.run(source)
    found: list[dict[str, Any]] = []
    for name, stream in (("stdout", out), ("stderr", err)):
        if stream.getvalue():
            lines = _lines(stream.getvalue())
            found.append({"name": name, "output_type": "stream", "text": lines})
    if value is not None:
        kind = {"output_type": "execute_result", "execution_count": number, "metadata": {}}
        found.append({**kind, "data": _shown(value)})
    return found


@contextlib.contextmanager
def workplace(folder: Path, built: Path) -> Iterator[None]:
    """A folder with all that the notebooks use, as the current directory. built: the programs."""
    (folder / "build").symlink_to(built)
    shutil.copy(support.EXAMPLES / "overflow.py", folder)
    (folder / "notebooks").mkdir()
    before = os.getcwd()
    os.chdir(folder / "notebooks")
    try:
        yield
    finally:
        os.chdir(before)


def executed(notebook: dict[str, Any]) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Yields each cell with code, and its outputs."""
    shell, number = Shell(), 0
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            number += 1
            yield cell, outputs(shell, "".join(cell["source"]), number)


def main() -> None:
    built = support.build_examples(support.ROOT / "build" / "examples")
    for path in NOTEBOOKS:
        notebook = json.loads(path.read_text())
        with tempfile.TemporaryDirectory() as folder, workplace(Path(folder), built):
            for number, (cell, found) in enumerate(executed(notebook), 1):
                cell["outputs"], cell["execution_count"] = found, number
        words = json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"
        words = re.sub(r"/tmp/\w+/cell.py", "cell.py", words.replace(sys.executable, "python"))
        path.write_text(words)


if __name__ == "__main__":
    if sys.argv[1:] != ["--write"]:
        raise SystemExit(__doc__)
    main()
