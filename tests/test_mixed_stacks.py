"""Call stacks of Python's functions and native ones, each where it was called."""

from __future__ import annotations

import json
import platform
import subprocess
from pathlib import Path

import pytest

import ttanalyze as tt
from tests import support
from ttanalyze.core import stacks
from ttanalyze.format import layout

pytestmark = pytest.mark.native
SIM = support.simulator_environment()
PYTHON = layout.enum("frame_kind")["TT_FRAME_PYTHON"]
EXTENSION = """
#include "cuda.h"

__attribute__((noinline)) int set(CUdeviceptr p, unsigned char value)
{
	int result = cuMemsetD8(p, value, 4096);
	__asm__ volatile("" ::: "memory");
	return result;
}

__attribute__((noinline)) int again(int (*call)(int), int value)
{
	int result = call(value);
	__asm__ volatile("" ::: "memory");
	return result;
}

__attribute__((noinline)) int down(int depth, CUdeviceptr p)
{
	int result = depth ? down(depth - 1, p) : set(p, 1);
	__asm__ volatile("" ::: "memory");
	return result;
}

void *thread(void *argument)
{
	void **contents = argument;
	cuCtxSetCurrent(contents[0]);
	set((CUdeviceptr)contents[1], 1);
	return NULL;
}
"""
BEGIN = """\
import ctypes, sys
cu, extension = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL(sys.argv[1])
context, p = ctypes.c_void_p(), ctypes.c_uint64()
assert cu.cuInit(0) == 0
assert cu.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cu.cuCtxSetCurrent(context) == 0
assert cu.cuMemAlloc_v2(ctypes.byref(p), ctypes.c_size_t(4096)) == 0
def fill(value):
    return extension.set(p, ctypes.c_ubyte(value))
"""
BACK_AND_FORTH = """\
def deeper(value):
    return fill(value)
@ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)
def called(value):
    return max(map(deeper, [value]))
def outer(value):
    extension.again(called, value)
def each(values):
    for value in values:
        yield outer(value)
for i in range(20):
    outer(i)
list(each([1, 2]))
class Plan:
    def __init__(self):
        outer(3)
Plan()
"""


@pytest.fixture(scope="module")
def extension(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """EXTENSION, built."""
    folder = tmp_path_factory.mktemp("extension")
    (folder / "extension.c").write_text(EXTENSION)
    target = folder / "extension.so"
    include = f"-I{support.ROOT / 'interpose' / 'include'}"
    command = ["gcc", "-std=gnu11", "-g", "-O1", "-fno-optimize-sibling-calls", "-shared", "-fPIC"]
    command += [include, str(folder / "extension.c"), "-o", str(target), str(support.SIMULATOR)]
    subprocess.run(command, check=True)
    return target


Stack = list[tuple[str, str, int]]


def recorded(
    python: str, text: str, extension: Path, folder: Path, whose: str = "mixed"
) -> list[Stack]:
    """Runs BEGIN and text. Stacks of the sets of memory, in order: the kind, the function, and the
    line where the frame is Python's, without frames of ctypes and what was inlined.
    """
    script, run = folder / "script.py", folder / "run"
    script.write_text(BEGIN + text)
    outcome = support.run(
        [python, str(script), str(extension)],
        support.recording(SIM, run, cpu_callstack=whose, epoch="none"),
    )
    assert (outcome.status, outcome.stdout, outcome.stderr) == (0, "", "")
    opened = tt.open(run)
    assert opened.warnings == []
    process = opened.processes[0]
    sets = process.events[process.events["kind"] == 5]
    out = []
    for number in sets["stack"].tolist():
        stack = []
        for kind, (function, file, line) in process.stack_frames(number):
            if kind == PYTHON:
                stack.append(("python", function, line))
            elif "ctypes" not in file and "libffi" not in file and "[inlined" not in function:
                stack.append(("native", function, 0))
        out.append(stack)
    return out


def own(stack: Stack) -> Stack:
    """Up to the module's code, which the C library and the interpreter's main function called."""
    last = next(i for i, (_, function, _) in enumerate(stack) if function == "<module>")
    assert all(kind == "native" for kind, *_ in stack[last + 1 :])
    return stack[: last + 1]


@pytest.mark.parametrize("python", support.pythons())
def test_python_and_native_frames_are_interleaved(
    python: str, extension: Path, tmp_path: Path
) -> None:
    found = recorded(python, BACK_AND_FORTH, extension, tmp_path)
    inner = [
        ("native", "set", 0),
        ("python", "fill", 9),
        ("python", "deeper", 11),
        ("python", "called", 14),
        ("native", "again", 0),
        ("python", "outer", 16),
    ]
    assert [own(s) for s in found[:20]] == [[*inner, ("python", "<module>", 21)]] * 20
    each = [("python", "each", 19), ("python", "<module>", 22)]
    assert [own(s) for s in found[20:22]] == [inner + each] * 2
    assert own(found[22])[-2:] == [("python", found[22][6][1], 25), ("python", "<module>", 26)]
    assert found[22][6][1] in ("Plan.__init__", "__init__")  # the latter in 3.10
    frames = tt.open(tmp_path / "run").processes[0].frames
    assert len(set(frames["stack"].tolist())) < 10


@pytest.mark.parametrize("python", support.pythons())
def test_deep_stacks_keep_the_innermost_frames(
    python: str, extension: Path, tmp_path: Path
) -> None:
    """64 functions of Python are kept, and as many native ones as there is room for besides."""
    text = """
def deep(depth):
    return deep(depth - 1) if depth else fill(1)
def many():
    extension.down(ctypes.c_int(500), p)
deep(10)
deep(200)
many()
"""
    few, many, native = recorded(python, text, extension, tmp_path)
    deep = ("python", "deep", 12)
    fill = [("native", "set", 0), ("python", "fill", 9)]
    assert own(few) == [*fill, *[deep] * 11, ("python", "<module>", 15)]
    assert many == [*fill, *[deep] * 63]
    assert native[0] == ("native", "set", 0)
    assert native[1:-2] == [("native", "down", 0)] * 125
    assert native[-2:] == [("python", "many", 14), ("python", "<module>", 17)]


@pytest.mark.skipif(platform.machine() != "x86_64", reason="machine code of x86-64")
@pytest.mark.parametrize("python", support.pythons())
def test_native_frames_end_without_unwind_information(
    python: str, extension: Path, tmp_path: Path
) -> None:
    """Native frames end there; Python's do not."""
    text = """
import mmap
flags, rights = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, mmap.PROT_WRITE | mmap.PROT_EXEC
memory = mmap.mmap(-1, 4096, flags, rights | mmap.PROT_READ)
target = ctypes.cast(extension.set, ctypes.c_void_p).value.to_bytes(8, "little")
memory.write(b"\\x48\\x83\\xec\\x08\\x48\\xb8" + target + b"\\xff\\xd0\\x48\\x83\\xc4\\x08\\xc3")
begin = ctypes.addressof(ctypes.c_char.from_buffer(memory))
made = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_uint64, ctypes.c_ubyte)(begin)
def outer():
    made(p, 1)
outer()
"""
    (stack,) = recorded(python, text, extension, tmp_path)
    python_frames = [frame for frame in stack if frame[0] == "python"]
    assert python_frames == [("python", "outer", 19), ("python", "<module>", 20)]
    assert stack[0] == ("native", "set", 0)
    assert stack[1][1].startswith("0x")  # it is in no file
    assert stack[-2:] == python_frames
    assert len(stack) < 5


@pytest.mark.parametrize("whose", ["auto", "auto_gil", "1"])
def test_auto_mode_has_aliases(whose: str, extension: Path, tmp_path: Path) -> None:
    found = recorded(support.pythons()[0], "fill(1)\n", extension, tmp_path, whose)
    assert found == [[("python", "fill", 9), ("python", "<module>", 10)]]
    process = json.loads((tmp_path / "run" / "p0" / "process.json").read_text())
    assert process["options"]["TT_CPU_CALLSTACK"] == whose
    environment = SIM | {"TT_CPU_CALLSTACK": "off"}
    options = ["record", "-o", str(tmp_path / "again"), "--cpu-callstack", whose, "--", "true"]
    assert support.ttanalyze(*options, environment=environment).status == 0


@pytest.mark.parametrize("python", support.pythons())
def test_forwarding_library_is_not_the_caller(python: str, extension: Path, tmp_path: Path) -> None:
    """Even where ctypes has debug information, and so lines."""
    text = """
def step():
    assert cu.cuMemsetD8_v2(p, ctypes.c_ubyte(1), ctypes.c_size_t(4096)) == 0
step()
"""
    ((step, main),) = map(own, recorded(python, text, extension, tmp_path))
    assert (step[1:], main[1:]) == (("step", 12), ("<module>", 13))
    run = tt.open(tmp_path / "run")
    process = run.processes[0]
    number = int(process.events["stack"][process.events["kind"] == 5][0])
    assert stacks.caller(process.stack(number)) == "step (script.py:12)"
    assert stacks.site(process.stack(number)) == "script.py:12 in step"
    assert stacks.source(process, number) == "python+native"
    assert set(run.stacks["kind"]) == {"python", "native"}


def test_thread_without_python_frames(extension: Path, tmp_path: Path) -> None:
    text = """
libc, thread = ctypes.CDLL(None), ctypes.c_ulong()
contents = (ctypes.c_uint64 * 2)(context.value, p.value)
assert libc.pthread_create(ctypes.byref(thread), None, extension.thread, contents) == 0
assert libc.pthread_join(thread, None) == 0
fill(1)
"""
    (stack, _) = recorded(support.pythons()[0], text, extension, tmp_path)
    assert stack[:2] == [("native", "set", 0), ("native", "thread", 0)]
    assert all(kind == "native" for kind, *_ in stack)
