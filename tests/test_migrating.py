"""docs/guides/migrating.md: each command that takes the place of another tool's runs."""

from __future__ import annotations

import ctypes
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import instruction_traces as made
from tests import support
from ttanalyze.disassembly import tools

PAGE = (support.ROOT / "docs" / "guides" / "migrating.md").read_text()
ROW = re.compile(r"^\| .+? \| `((?:TT_\w+=\S+ )*ttanalyze .+?)` \| .*\|$", re.M)
LINES: list[str] = ROW.findall(PAGE)
EACH = 25  # of them is in make test
FINE = (0, 1)  # 1: it differs
STEPS = "--steps 4 --size 64"
EVENTS = """\
{"type":"callstack_def","callstack_id":"a","frames":["a.py:1 in step"],"source":"cpython_gil"}
{"type":"kernel_launch","kernel_launch_id":0,"kernel_name":"add","kernel_checksum":"12ab",\
"grid":[1,1,1],"block":[32,1,1],"nregs":16,"shmem":0,"stream_id":0,"callstack_id":"a"}
"""
POINT = {"pc": 16, "sass": "LDG.E R2, desc[UR4][R2.64] ;", "delay": 500, "on": True}
DELAYS = {
    "version": "1.0",
    "delay_ns": 500,
    "kernels": {
        "add_12ab": {
            "kernel_name": "add",
            "kernel_checksum": "12ab",
            "instrumentation_points": {"16": POINT},
        }
    },
}


@pytest.fixture(scope="module")
def place(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files that the page names."""
    folder = tmp_path_factory.mktemp("migrating")
    program = support.build_examples(built / "examples") / "vecadd"
    _script(folder / "app", f"exec {program} {STEPS}")
    _script(folder / "test_race.sh", 'grep -q \'"on": *true\' "$TT_DELAY_LOAD"')
    for name in ("run", "run2"):
        support.ttanalyze("record", "--sim", "-o", str(folder / name), "--", str(folder / "app"))
    traced = ("--kind", "opcode", "--launch", "1", "--blocks", "0:0")
    asked = ("instrument", "--sim", *traced, "-o", str(folder / "traced"))
    support.ttanalyze(*asked, "--", str(folder / "app"))
    kept = ("--replayable", "--max-per-kernel", "1", "-o", str(folder / "kept"))
    support.ttanalyze("record", "--sim", *kept, "--", str(folder / "app"))
    dump = ("--launch", "7", "--dump-ir", str(folder / "kernel.ptx"))
    support.ttanalyze("replay", str(folder / "kept"), *dump)
    made.ndjson(folder / "trace.ndjson", made.METADATA, *made.opcodes())
    made.log(folder / "trace.log", *made.opcodes())
    (folder / "kernel_events.ndjson").write_text(EVENTS)
    (folder / "delay_config.json").write_text(json.dumps(DELAYS))
    cubin = support.ROOT / "tests" / "data" / "sass" / "patch_90a.cubin"
    (folder / "kernel.cubin").symlink_to(cubin)
    (folder / "bin").mkdir()
    _script(folder / "bin" / "ttanalyze", f'exec {sys.executable} -m ttanalyze "$@"')
    return folder


def _script(path: Path, line: str) -> None:
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)


def _cases() -> list[Any]:
    """Each line. All but a few are long together."""
    marks = [() if n % EACH == 0 else (pytest.mark.long,) for n in range(len(LINES))]
    return [pytest.param(line, marks=m, id=line) for line, m in zip(LINES, marks, strict=True)]


@pytest.mark.sampled
@pytest.mark.parametrize("line", _cases())
def test_mapped_line_runs(line: str, place: Path) -> None:
    if " sass " in line and not tools.find("nvdisasm"):
        pytest.skip("no nvdisasm")
    driver = {"LIBCUDA": str(support.SIMULATOR), "LD_LIBRARY_PATH": str(support.SIMULATOR.parent)}
    places = {"PATH": f"{place / 'bin'}:{os.environ['PATH']}", "PYTHONPATH": str(support.ROOT)}
    done = subprocess.run(
        ["bash", "-c", line],
        cwd=place,
        env=support.bare_environment() | driver | places,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in FINE and "Traceback" not in done.stderr, done.stdout + done.stderr


NAMES: dict[str, list[str]] = json.loads(
    (support.ROOT / "tests" / "data" / "predecessors.json").read_text()
)


@pytest.mark.parametrize("tool", NAMES)
def test_each_name_of_the_other_tools_is_on_the_page(tool: str) -> None:
    """Options, variables and functions of the versions that the page was written from."""
    assert NAMES[tool]
    unmapped = [n for n in NAMES[tool] if not re.search(rf"{re.escape(n)}(?![\w-])", PAGE)]
    assert unmapped == []


def test_each_option_of_the_other_tools_has_a_line() -> None:
    assert len(LINES) > 90
    assert not re.findall(r"^\| .*\| `(?!ttanalyze|TT_|tt)", PAGE.partition("## cuda-time")[0])


def test_named_functions_are_in_the_recorder() -> None:
    named = set(re.findall(r"\b(tt_[a-z_]+)\(", PAGE))
    recorder = ctypes.CDLL(str(support.SHIM))
    assert {"tt_epoch", "tt_label", "tt_control"} <= named
    assert [name for name in named if not hasattr(recorder, name)] == []
