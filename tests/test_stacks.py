"""Call stacks: who made each call, recorded once each and named after the run."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

import ttanalyze as tt
from tests import support
from tests.recordings import check_run, compare
from ttanalyze.code.symbols import NOWHERE, look_up
from ttanalyze.core import stacks as texts

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


HELPER = """
static inline __attribute__((always_inline)) void fill(CUfunction f, void **params)
{
	OK(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL)); /* line 4 */
	__asm__ volatile("" ::: "memory");
}
"""
INLINED = """
#include "program.h"
#include "helper.h"
static inline __attribute__((always_inline)) void step(CUfunction f, CUdeviceptr p)
{
	unsigned value = 7;
	fill(f, PARAMS(&p, &value)); /* line 7 */
	__asm__ volatile("" ::: "memory");
}

__attribute__((noinline)) static void steps(CUfunction f, CUdeviceptr p)
{
	step(f, p); /* line 13 */
	__asm__ volatile("" ::: "memory");
}

int main(void)
{
	start();
	CUfunction f = get_kernel(load_kernels(), "poke");
	CUdeviceptr p;
	OK(cuMemAlloc(&p, 4096));
	steps(f, p); /* line 23 */
	OK(cuCtxSynchronize());
	return 0;
}
"""


FRAMES = """
#include "program.h"
#include <signal.h>

static CUfunction poke;
static CUdeviceptr memory;

__attribute__((noinline)) static void with_signal(int unused)
{
	unsigned value = 7;
	(void)unused;
	OK(cuLaunchKernel(poke, 1, 1, 1, 1, 1, 1, 0, 0, PARAMS(&memory, &value), 0)); /* line 12 */
	__asm__ volatile("" ::: "memory");
}

__attribute__((noinline)) static void of_any_size(size_t size, int interrupted)
{
	volatile char *room = __builtin_alloca(size);
	room[0] = 1;
	if (interrupted)
		raise(SIGUSR1); /* line 21 */
	else
		with_signal(0); /* line 23 */
	room[size - 1] = 2;
}

__attribute__((noinline)) static void aligned(size_t size, int interrupted)
{
	volatile char room[64] __attribute__((aligned(64))) = {0};
	of_any_size(size, interrupted); /* line 30 */
	room[1] = room[0];
}

__attribute__((noinline, optimize("no-omit-frame-pointer"))) static void pointed(size_t n, int by)
{
	aligned(n, by); /* line 36 */
	__asm__ volatile("" ::: "memory");
}

int main(void)
{
	start();
	poke = get_kernel(load_kernels(), "poke");
	OK(cuMemAlloc(&memory, 4096));
	signal(SIGUSR1, with_signal);
	for (int i = 0; i < 30; i++)
		pointed(16 + 64 * i % 7, i % 3 == 2); /* line 47 */
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
    return built_from(tmp_path / "steps.c", SOURCE)


def built_from(source: Path, text: str, *options: str) -> Path:
    """A program, with debug information."""
    target = source.with_suffix("")
    source.write_text(text)
    folders = [support.ROOT / "interpose" / "include", support.ROOT / "tests" / "programs"]
    include = [*options, *(f"-I{folder}" for folder in folders)]
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
@pytest.mark.parametrize("level", ["-O1", "-O2", "-fomit-frame-pointer", "-fno-omit-frame-pointer"])
def test_frames_of_any_shape_are_found(level: str, tmp_path: Path, run: Path) -> None:
    """Of variable size, aligned, with and without a frame pointer, and above an interrupted one."""
    program = built_from(tmp_path / "steps.c", FRAMES, "-fno-optimize-sibling-calls", level)
    bare = support.run([program], SIM)
    recorded = support.recording(SIM, run, cpu_callstack="backtrace")
    assert support.run([program], recorded) == bare
    outer = ("aligned:30", "pointed:36", "main:47")
    plain = ("with_signal:12", "of_any_size:23", *outer)
    interrupted = ("with_signal:12", "of_any_size:21", *outer)
    assert stacks(run, "launch") == [plain, plain, interrupted] * 10


@needs_addr2line
@pytest.mark.parametrize("whose", ["backtrace", "auto", "mixed"])
def test_stacks_have_functions_and_lines(whose: str, program: Path, run: Path) -> None:
    """auto and mixed: where there is no Python."""
    bare = support.run([str(program)], SIM)
    recorded = support.recording(SIM, run, cpu_callstack=whose)
    assert support.run([str(program)], recorded) == bare
    assert stacks(run, "launch") == [("step:7", "main:25")] * 100 + [("step:7", "main:26")]
    assert stacks(run, "alloc") == [("make:14", "main:23")]
    frames = tt.open(run).processes[0].frames
    assert len(set(frames["stack"].tolist())) < 10  # each once, not once for each call


@needs_addr2line
def test_inlined_functions_have_frames(tmp_path: Path, run: Path) -> None:
    """The caller is the program's own source, not the header that it got the call from."""
    (tmp_path / "helper.h").write_text(HELPER)
    target = built_from(tmp_path / "steps.c", INLINED, f"-I{tmp_path}")
    support.run([str(target)], support.recording(SIM, run, cpu_callstack="backtrace"))
    opened = tt.open(run)
    process = opened.processes[0]
    number = int(process.events["stack"][process.events["kind"] == 1][0])
    stack = process.stack(number)
    own = [(f, os.path.basename(file), line) for f, file, line in stack]
    assert own[0][0] in ("fill [inlined]", "[inlined in steps]")  # as far as addr2line knows
    assert own[0][1:] == ("helper.h", 4)
    assert own[1:3] == [("step [inlined]", "steps.c", 7), ("steps", "steps.c", 13)]
    assert own[3][1:] == ("steps.c", 23)
    assert texts.caller(stack) == "step [inlined] (steps.c:7)"
    assert texts.site(stack) == "steps.c:7 in step [inlined]"
    table = opened.stacks[opened.stacks["stack"] == number]
    assert list(zip(table["function"], table["kind"], strict=True))[1] == (
        "step [inlined]",
        "native",
    )
    assert list(table["depth"]) == list(range(len(stack)))


@pytest.mark.parametrize(
    ("frames", "caller"),
    [
        ([("go", "/usr/include/c++/12/bits/invoke.h", 5), ("f", "/app/a.cpp", 7)], "f (a.cpp:7)"),
        ([("fill", "/app/common.h", 5), ("f", "/app/a.cc", 7)], "f (a.cc:7)"),
        ([("fill", "/app/common.h", 5), ("_start", "../csu/start.c", 7)], "fill (common.h:5)"),
        (
            [
                ("cudaLaunchKernel<char> [inlined]", "/usr/local/cuda/include/cuda_runtime.h", 216),
                ("__device_stub__Z3addPf(float*)", "/tmp/tmpxft_1_2-6_a.cudafe1.stub.c", 9),
                ("add(float*)", "/app/a.cu", 3),
                ("main", "/app/a.cu", 40),
            ],
            "main (a.cu:40)",
        ),
        (
            [
                ("linear", "/env/lib/python3.12/site-packages/torch/nn/functional.py", 8),
                ("forward", "/app/model.py", 12),
            ],
            "forward (model.py:12)",
        ),
        (
            [("call", "/v/site-packages/torch/x.py", 8), ("lib.so+0x1", "lib.so", 0)],
            "call (x.py:8)",
        ),
        ([("lib.so+0x1", "/app/lib.so", 0), ("main", "/app/prog", 0)], "lib.so+0x1"),
    ],
)
def test_caller_is_in_the_program(frames: list[tuple[str, str, int]], caller: str) -> None:
    assert texts.caller(frames) == caller


def test_stacks_without_debug_information_have_names(
    program: Path, run: Path, tmp_path: Path
) -> None:
    subprocess.run(["strip", "-g", str(program)], check=True)
    support.run([str(program)], support.recording(SIM, run, cpu_callstack="backtrace"))
    process = tt.open(run).processes[0]
    launches = process.events[process.events["kind"] == 1]
    stack = process.stack(int(launches["stack"][0]))
    inner, outer, *_ = [frame for frame in stack if frame[1] == str(program)]
    assert inner == ("step", str(program), 0)
    assert outer == ("main", str(program), 0)


def test_changed_object_file_gives_no_symbols(program: Path, run: Path) -> None:
    """What its symbols say now is not what was recorded."""
    support.run([str(program)], support.recording(SIM, run, cpu_callstack="backtrace"))
    later = (run / "p0" / "frames.bin").stat().st_mtime + 10
    os.utime(program, (later, later))
    process = tt.open(run).processes[0]
    launches = process.events[process.events["kind"] == 1]
    own = [f for f in process.stack(int(launches["stack"][0])) if f[1] == str(program)]
    assert len(own) > 1
    assert all(function.startswith("steps+0x") and not line for function, _, line in own)


def test_no_stacks_by_default(program: Path, run: Path) -> None:
    support.run([str(program)], support.recording(SIM, run))
    assert not (run / "p0" / "frames.bin").exists()
    assert set(tt.open(run).processes[0].events["stack"].tolist()) == {0}
    assert tt.open(run).processes[0].stack(1) == []


@pytest.mark.parametrize("name", ["threads_own_streams", "threads_small_stack", "fork_child_only"])
def test_recording_stacks_does_not_change_program_behaviour(
    name: str, built: Path, run: Path
) -> None:
    command = support.command(name, built)
    bare = support.run(command, SIM)
    options = {"cpu_callstack": "backtrace", "epoch": "launch"}
    compare(name, bare, support.run(command, support.recording(SIM, run, **options)))
    check_run(name, run)


def test_invalid_options_are_refused(program: Path, run: Path) -> None:
    outcome = support.run([str(program)], support.recording(SIM, run, cpu_callstack="everything"))
    assert outcome.status == 0
    assert "TT_CPU_CALLSTACK=everything: expected off, auto, python, backtrace" in outcome.stderr
    refused = support.ttanalyze("record", "--sim", "--cpu-callstack", "x", "--", "true")
    assert refused.status == 2
    assert "--cpu-callstack x: expected off, auto, python" in refused.stderr


def test_invalid_object_files_give_no_symbols(tmp_path: Path) -> None:
    """Nothing is found in them, and nothing goes wrong."""
    good = (support.SIMULATOR).read_bytes()
    path = tmp_path / "object"
    assert look_up(str(path), [1]) == [NOWHERE]
    for raw in (b"", b"\x7fELF", good[:64], good[:4000], b"\x7fELF\x02\x01" + b"\xff" * 200):
        path.write_bytes(raw)
        assert look_up(str(path), [0, 5000, 1 << 62]) == [NOWHERE] * 3
        path.unlink()


# ---- Python ----

SCRIPT = """\
import ctypes, sys, threading
cu = ctypes.CDLL("libcuda.so.1")
context, p = ctypes.c_void_p(), ctypes.c_uint64()
def check(result): assert result == 0, result
check(cu.cuInit(0))
check(cu.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
check(cu.cuCtxSetCurrent(context))
check(cu.cuMemAlloc_v2(ctypes.byref(p), ctypes.c_size_t(4096)))
class Model:
    def fill(self, value):
        check(
            cu.cuMemsetD8_v2(
                p, ctypes.c_ubyte(value), ctypes.c_size_t(4096)))
def each(values):
    for value in values:
        yield Model().fill(value)
def deep(depth):
    return deep(depth - 1) if depth else Model().fill(3)
def grüße():
    Model().fill(4)
for i in range(50):
    Model().fill(i % 256)
list(each([1, 2]))
deep(100)
grüße()
(lambda: Model().fill(5))()
thread = threading.Thread(target=lambda: (check(cu.cuCtxSetCurrent(context)), Model().fill(6)))
thread.start()
thread.join()
exec(compile("\\n" * 3000 + "Model().fill(7)", "generated", "exec"))
check(cu.cuCtxSynchronize())
"""


def python_stacks(run: Path) -> list[list[tuple[str, str, int]]]:
    """Of the sets of memory, in order: (function, file's name, line) of each frame."""
    process = tt.open(run).processes[0]
    sets = process.events[process.events["kind"] == 5]
    return [
        [(function, os.path.basename(file), line) for function, file, line in process.stack(n)]
        for n in sets["stack"].tolist()
    ]


@pytest.mark.parametrize("python", support.pythons())
@pytest.mark.parametrize("whose", ["python", "auto"])
def test_stacks_have_python_functions_and_lines(
    python: str, whose: str, run: Path, tmp_path: Path
) -> None:
    """ctypes lets go of the interpreter's lock before it calls the driver."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    version = subprocess.run(
        [python, "-c", "import sys; print(*sys.version_info[:2])"], capture_output=True, text=True
    ).stdout
    outcome = support.run([python, str(script)], support.recording(SIM, run, cpu_callstack=whose))
    assert (outcome.status, outcome.stdout, outcome.stderr) == (0, "", "")
    qualified = version.split()[1] != "10"
    fill = ("Model.fill" if qualified else "fill", "script.py", 12)
    stacks = python_stacks(run)
    assert stacks[:50] == [[fill, ("<module>", "script.py", 22)]] * 50
    assert stacks[50:52] == [[fill, ("each", "script.py", 16), ("<module>", "script.py", 23)]] * 2
    assert stacks[52] == [fill, *[("deep", "script.py", 18)] * 63]  # 64 are kept
    assert [line for _, _, line in stacks[53]] == [12, 20, 25]
    assert stacks[54][1:] == [("<lambda>", "script.py", 26), ("<module>", "script.py", 26)]
    assert stacks[55][:2] == [fill, ("<lambda>", "script.py", 27)]
    assert stacks[55][-1][1] == "threading.py"
    assert stacks[56] == [fill, ("<module>", "generated", 3001), ("<module>", "script.py", 30)]
    frames = tt.open(run).processes[0].frames
    assert len(set(frames["stack"].tolist())) < 15


LAUNCHERS = """\
import ctypes, sys, threading, time
cu = ctypes.CDLL("libcuda.so.1")
libc = ctypes.PyDLL(None)
context, p = ctypes.c_void_p(), ctypes.c_uint64()
assert cu.cuInit(0) == 0
assert cu.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cu.cuCtxSetCurrent(context) == 0
assert cu.cuMemAlloc_v2(ctypes.byref(p), ctypes.c_size_t(4096)) == 0
def work(rounds):
    cu.cuCtxSetCurrent(context)
    for i in range(rounds):
        cu.cuMemsetD8_v2(p, ctypes.c_ubyte(1), ctypes.c_size_t(4096))
threads = [threading.Thread(target=work, args=(200,)) for _ in range(8)]
for thread in threads:
    thread.start()
libc.usleep(300000)
for thread in threads:
    thread.join()
for _ in range(4):
    threading.Thread(target=work, args=(10**9,), daemon=True).start()
time.sleep(0.05)
"""


@pytest.mark.parametrize("python", support.pythons())
@pytest.mark.parametrize("whose", ["auto", "mixed"])
def test_python_stacks_without_the_interpreter_lock(
    python: str, whose: str, run: Path, tmp_path: Path
) -> None:
    """One holds the interpreter's lock for long; at the end, threads still make calls."""
    script = tmp_path / "launchers.py"
    script.write_text(LAUNCHERS)
    began = time.monotonic()
    environment = support.recording(SIM, run, cpu_callstack=whose, epoch="none")
    outcome = support.run([python, str(script)], environment)
    assert (outcome.status, outcome.stderr) == (0, "")
    assert time.monotonic() - began < 60
    stacks = python_stacks(run)
    worked = [stack for stack in stacks if ("work", "launchers.py", 12) in stack]
    assert len(worked) >= 1600


def test_stacks_of_programs_without_python(program: Path, run: Path) -> None:
    support.run([str(program)], support.recording(SIM, run, cpu_callstack="python"))
    assert set(tt.open(run).processes[0].events["stack"].tolist()) == {0}
    assert tt.open(run).warnings == []
