"""The shell sessions of docs/guides: each command runs and prints what the page shows.

A page's blocks of the language `console` run in order in one folder, on the simulator. Times,
addresses, digests, threads, numbers of lines, the size of an exported program (it holds paths) and
the widths of columns may differ. A line `…`
stands for any lines.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import support
from tests.check import corpus

GUIDES = support.ROOT / "docs" / "guides"
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.M | re.S)
PAGES = [page for page in sorted(GUIDES.glob("*.md")) if BLOCK.search(page.read_text())]
VARIES = (
    (r"\b0x[0-9a-f]{8,}\b|\b[0-9a-f]{16}\b", "HEX"),
    (r"\bthread \d+", "thread N"),
    (r"±?\b[\d,.]+ (?:ns|µs|ms|s)\b", "TIME"),
    (r"\b[\d.]+ %", "SHARE"),
    (r"\b[\d.]+ KiB in bug\b", "SIZE in bug"),
    (r"[\w./-]*/(?=\w+\.(?:py|c|check)\b)", ""),
    (r"\b(\w+\.(?:py|c)):\d+", r"\1"),
    (r"[ \t]+", " "),
)


def sessions(page: str) -> list[tuple[str, str]]:
    """The commands of a page with the output that it shows."""
    found: list[tuple[str, str]] = []
    for block in BLOCK.findall(page):
        for line in block.splitlines(keepends=True):
            if line.startswith("$ "):
                found.append((line[2:].rstrip("\n"), ""))
            elif found[-1][0].endswith("\\") and line.startswith("> "):
                found[-1] = (found[-1][0][:-1] + line[2:].rstrip("\n"), "")
            else:
                found[-1] = (found[-1][0], found[-1][1] + line)
    return found


def comparable(output: str) -> str:
    for pattern, instead in VARIES:
        output = re.sub(pattern, instead, output)
    return "\n".join(line.rstrip() for line in output.strip().splitlines())


def matches(shown: str, printed: str) -> bool:
    parts = [
        re.escape(part.strip("\n")) for part in re.split(r"^…$", comparable(shown), flags=re.M)
    ]
    return re.fullmatch(r"(?:^|\n?).*".join(parts), comparable(printed), re.S) is not None


@pytest.fixture(scope="module")
def programs(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("programs")
    (folder / "build").symlink_to(support.build_examples(built / "examples"))
    corpus.build(folder)
    (folder / "overflow.py").symlink_to(support.EXAMPLES / "overflow.py")
    (folder / "bin").mkdir()
    command = folder / "bin" / "ttanalyze"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m ttanalyze "$@"\n')
    command.chmod(0o755)
    (folder / "bin" / "python3").symlink_to(sys.executable)
    return folder


@pytest.mark.sampled
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_guide_commands_print_what_the_page_shows(
    programs: Path, tmp_path: Path, page: Path
) -> None:
    for name in ("build", "faults", "overflow.py"):
        (tmp_path / name).symlink_to(programs / name)
    driver = {"LIBCUDA": str(support.SIMULATOR), "LD_LIBRARY_PATH": str(support.SIMULATOR.parent)}
    path = f"{programs / 'bin'}:{os.environ['PATH']}"
    places = {"PATH": path, "PYTHONPATH": str(support.ROOT), "COLUMNS": "100"}
    environment = support.bare_environment() | driver | places
    for command, shown in sessions(page.read_text()):
        ran = subprocess.run(
            ["bash", "-c", command],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert matches(shown, ran.stdout), f"$ {command}\n{ran.stdout}\ninstead of\n{shown}"


def test_the_common_questions_have_shell_sessions() -> None:
    assert {
        "nan",
        "compare-runs",
        "out-of-bounds",
        "slow-launch",
        "hangs",
        "pytorch-quickstart",
        "determinism",
        "export",
        "ci",
    } <= {page.stem for page in PAGES}


def test_findings_of_a_gpu_are_measured_ones() -> None:
    page = (GUIDES / "pytorch-quickstart.md").read_text()
    measured = json.loads((support.ROOT / "docs" / "faults.json").read_text())
    first = measured[0]
    assert f"on {first['device'].partition(' (')[0]}" in page
    block = page.split("```\n")[-2]
    assert len(block.splitlines()) == 3
    for line in block.splitlines():
        assert any(line in answer["summary"] for answer in first["answers"]), line


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        ("a  1 ms\n", "a 20 µs", True),
        ("a\n…\nc\n", "a\nb\nb\nc\n", True),
        ("a\n…\n", "a\nb", True),
        ("a\n…\nd\n", "a\nb\nc\n", False),
        ("2 of 3\n", "2 of 4\n", False),
    ],
)
def test_sessions_compare_what_does_not_vary(shown: str, printed: str, same: bool) -> None:
    assert matches(shown, printed) is same
