"""Call stacks: who made each call, recorded once each and named after the run."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

import ttanalyze as tt
from tests import support
from tests.recordings import check_run, compare
from ttanalyze.symbols import NOWHERE, look_up

pytestmark = pytest.mark.native
SIM = support.simulator_environment()
SOURCE = """
#include "program.h"

__attribute__((noinline)) static void step(CUfunction f, CUdeviceptr p)
{
	unsigned value = 7;
	OK(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, PARAMS(&p, &value), NULL)); /* line 7 */
	__asm__ volatile("" ::: "memory");
}

__attribute__((noinline)) static CUdeviceptr make(void)
{
	CUdeviceptr p = 0;
	OK(cuMemAlloc(&p, 4096)); /* line 14 */
	__asm__ volatile("" ::: "memory");
	return p;
}

int main(void)
{
	start();
	CUfunction f = get_kernel(load_kernels(), "poke");
	CUdeviceptr p = make();
	for (int i = 0; i < 100; i++)
		step(f, p); /* line 25 */
	step(f, p); /* line 26 */
	OK(cuCtxSynchronize());
	return 0;
}
"""


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Where to record to."""
    return tmp_path / "run"


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """SOURCE, with debug information."""
    source, target = tmp_path / "steps.c", tmp_path / "steps"
    source.write_text(SOURCE)
    folders = [support.ROOT / "interpose" / "cuda", support.ROOT / "tests" / "programs"]
    include = [f"-I{folder}" for folder in folders]
    libraries = ["-Wl,--as-needed", str(support.SIMULATOR), "-ldl"]
    command = ["gcc", "-std=gnu11", "-g", "-O1", *include, str(source), "-o", str(target)]
    subprocess.run([*command, *libraries], check=True)
    return target


def stacks(run: Path, kind: str) -> list[tuple[str, ...]]:
    """Of the calls of a kind: function, file's name and line of the program's own frames."""
    opened = tt.open(run)
    process = opened.processes[0]
    events = process.events[(opened.events["kind"] == kind).to_numpy()]
    out = []
    for number in events["stack"].tolist():
        frames = [f for f in process.stack(number) if os.path.basename(f[1]) == "steps.c"]
        out.append(tuple(f"{function}:{line}" for function, _, line in frames))
    return out


needs_addr2line = pytest.mark.skipif(not shutil.which("addr2line"), reason="needs addr2line")


@needs_addr2line
def test_functions_and_lines(program: Path, run: Path) -> None:
    bare = support.run([str(program)], SIM)
    recorded = support.recording(SIM, run, cpu_callstack="backtrace")
    assert support.run([str(program)], recorded) == bare
    assert stacks(run, "launch") == [("step:7", "main:25")] * 100 + [("step:7", "main:26")]
    assert stacks(run, "alloc") == [("make:14", "main:23")]
    frames = tt.open(run).processes[0].frames
    assert len(set(frames["stack"].tolist())) < 10  # each once, not once for each call


def test_names_without_debug_information(program: Path, run: Path, tmp_path: Path) -> None:
    subprocess.run(["strip", "-g", str(program)], check=True)
    support.run([str(program)], support.recording(SIM, run, cpu_callstack="backtrace"))
    process = tt.open(run).processes[0]
    launches = process.events[process.events["kind"] == 1]
    inner, outer, *_ = process.stack(int(launches["stack"][0]))
    assert inner == ("step", str(program), 0)
    assert outer == ("main", str(program), 0)


def test_a_file_that_has_changed_tells_nothing(program: Path, run: Path) -> None:
    """What its symbols say now is not what was recorded."""
    support.run([str(program)], support.recording(SIM, run, cpu_callstack="backtrace"))
    later = (run / "p0" / "frames.bin").stat().st_mtime + 10
    os.utime(program, (later, later))
    process = tt.open(run).processes[0]
    launches = process.events[process.events["kind"] == 1]
    function, file, line = process.stack(int(launches["stack"][0]))[0]
    assert function.startswith("steps+0x")
    assert (file, line) == (str(program), 0)


def test_none_unless_asked(program: Path, run: Path) -> None:
    support.run([str(program)], support.recording(SIM, run))
    assert not (run / "p0" / "frames.bin").exists()
    assert set(tt.open(run).processes[0].events["stack"].tolist()) == {0}
    assert tt.open(run).processes[0].stack(1) == []


@pytest.mark.parametrize("name", ["threads_own_streams", "threads_small_stack", "fork_child_only"])
def test_programs_behave_as_without_us(name: str, built: Path, run: Path) -> None:
    command = support.command(name, built)
    bare = support.run(command, SIM)
    options = {"cpu_callstack": "backtrace", "epoch": "launch"}
    compare(name, bare, support.run(command, support.recording(SIM, run, **options)))
    check_run(name, run)


def test_what_can_not_be_asked_for(program: Path, run: Path) -> None:
    outcome = support.run([str(program)], support.recording(SIM, run, cpu_callstack="everything"))
    assert outcome.status == 0
    assert "TT_CPU_CALLSTACK=everything: expected off or backtrace" in outcome.stderr
    refused = support.ttanalyze("record", "--sim", "--cpu-callstack", "x", "--", "true")
    assert refused.status == 2
    assert "--cpu-callstack x: off or backtrace is expected" in refused.stderr


def test_object_files_that_are_none(tmp_path: Path) -> None:
    """Nothing is found in them, and nothing goes wrong."""
    good = (support.SIMULATOR).read_bytes()
    path = tmp_path / "object"
    assert look_up(str(path), [1]) == [NOWHERE]
    for raw in (b"", b"\x7fELF", good[:64], good[:4000], b"\x7fELF\x02\x01" + b"\xff" * 200):
        path.write_bytes(raw)
        assert look_up(str(path), [0, 5000, 1 << 62]) == [NOWHERE] * 3
        path.unlink()
