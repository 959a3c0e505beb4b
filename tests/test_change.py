"""Changed launches: other sizes, launch bounds, constants for arguments, other code.

By `replay` and by the exported program, on the simulator.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from tests import compiler_stand_in, support
from tests.support import Outcome, simulator_environment
from ttanalyze.code import elf, ptx_edit
from ttanalyze.errors import Error
from ttanalyze.verbs.replay import compilers

pytestmark = [pytest.mark.native, pytest.mark.large]

# ---- the text of PTX ----

KERNEL = """.version 8.0
.target sm_90
.address_size 64
/* .entry k( */
.visible .entry k(
\t.param .u64 .ptr .global .align 4 out, // ld.param.u32 %r1, [n];
\t.param .u32 n,
\t.param .align 8 .b8 s[16],
\t.param .u8 flag
)
.maxntid 256, 1, 1
.minnctapersm 2
{
\t.reg .pred %p<3>;
\t.reg .b16 %rs<5>;
\t.reg .b32 %r<5>;
\t.reg .f64 %fd<2>;
\t.reg .b64 %rd<4>;
\tld.param.u64 %rd1, [out];
\tld.param.u32 %r1, [n];
\tld.param.s8 %rs1, [flag];
\tld.param.f64 %fd1, [s+8];
\tld.param.v2.u8 {%rs2, _}, [s+4];
\t@%p1 ld.param.v2.u8 {%rs3, %rs4}, [s+4];
\tld.param.u64 %rd2, [%rd3];
\tmov.u32 %r2, %ntid.x;
\tmov.u32 %r3, %nctaid.y;
\tmov.u32 %r4, %tid.x;
\tret;
}
"""
PARAMS = struct.pack("<QI4xiB3xdB", 0x700000000000, 77, 1, 200, 2.5, 0xFF)


def test_arguments_become_constants() -> None:
    """The values, sign-extended to their registers; what is unclear stays."""
    made = ptx_edit.with_constants(KERNEL.encode(), "k", PARAMS, None, None).decode()
    lines = [line.strip() for line in made.splitlines()]
    assert lines[lines.index(".reg .b64 %rd<4>;") + 1 :] == [
        "mov.b64 %rd1, 0x700000000000;",
        "mov.b32 %r1, 0x4d;",
        "mov.b16 %rs1, 0xffff;",
        "mov.f64 %fd1, 0d4004000000000000;",
        "mov.b16 %rs2, 0xc8;",
        "@%p1 ld.param.v2.u8 {%rs3, %rs4}, [s+4];",
        "ld.param.u64 %rd2, [%rd3];",
        "mov.u32 %r2, %ntid.x;",
        "mov.u32 %r3, %nctaid.y;",
        "mov.u32 %r4, %tid.x;",
        "ret;",
        "}",
    ]
    assert "// ld.param.u32 %r1, [n];" in made


def test_sizes_become_constants() -> None:
    made = ptx_edit.with_constants(KERNEL.encode(), "k", None, (128, 2, 1), (5, 6, 7)).decode()
    changed = [line for line in made.splitlines() if line not in KERNEL.splitlines()]
    assert changed == ["\tmov.u32 %r2, 128;", "\tmov.u32 %r3, 6;"]


@pytest.mark.parametrize(("blocks", "least"), [(0, ""), (3, ".minnctapersm 3\n")])
def test_launch_bounds_are_replaced(blocks: int, least: str) -> None:
    made = ptx_edit.with_launch_bounds(KERNEL.encode(), "k", 512, blocks).decode()
    old = ".maxntid 256, 1, 1\n.minnctapersm 2\n"
    assert made == KERNEL.replace(old, f".maxntid 512, 1, 1\n{least}")
    with pytest.raises(Error, match="the PTX has no kernel other"):
        ptx_edit.with_launch_bounds(KERNEL.encode(), "other", 512)


# ---- files with code ----


def test_code_files_are_recognised() -> None:
    assert compilers.ptx_of(b".version 8.0", 90) == b".version 8.0"
    assert compilers.ptx_of(elf.MAGIC + bytes(100), 90) is None


@pytest.mark.parametrize(("name", "compiler"), [("a.cu", "NVRTC"), ("a.ll", "NVVM")])
def test_missing_compiler_is_explained(
    name: str, compiler: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compilers, "_candidates", lambda *_: iter(["libnothing.so"]))
    with pytest.raises(Error, match=f"needs {compiler}, which was not found"):
        compilers.compiled(tmp_path / name, b"", 90)
    with pytest.raises(Error, match=r"expected \.ptx, \.cubin, \.fatbin, \.cu, \.ll, \.bc"):
        compilers.read(tmp_path / "a.txt")
    with pytest.raises(Error, match="No such file"):
        compilers.read(tmp_path / name)


@pytest.mark.parametrize(("name", "suffix"), [("nvrtc", ".cu"), ("nvvm", ".ll")])
def test_sources_are_compiled(
    name: str, suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a stand-in for the compiler, which takes PTX and returns it."""
    compiler_stand_in.use(name, tmp_path, monkeypatch)
    path = tmp_path / f"a{suffix}"
    assert compilers.compiled(path, b".version 8.0", 90) == b".version 8.0"
    with pytest.raises(Error, match=r"code\(1\): error: no"):
        compilers.compiled(path, b"bad", 90)


# ---- replays ----


@pytest.fixture(scope="module")
def recorded(built: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A run, and its launch of `scale`, a kernel with a grid-stride loop."""
    path = tmp_path_factory.mktemp("change") / "run"
    program = support.build_program("recorder_single_launches", built)
    done = support.ttanalyze("record", "--sim", "--replayable", "-o", path, "--", program)
    assert done.status == 0, done.stderr
    events = support.ttanalyze("query", path, "--filter", "kernel == 'scale'", "--format", "json")
    return path, str(json.loads(events.stdout)[0]["seq"])


def replay(recorded: tuple[Path, str], *options: str | Path) -> Outcome:
    environment = simulator_environment()
    run, launch = recorded
    command = ("replay", run, "--sim", "--launch", launch, *options)
    return support.ttanalyze(*command, environment=environment)


def one(done: Outcome) -> Any:
    return json.loads(done.stdout)["launches"][0]


def test_changed_launch_is_compared_and_measured(recorded: tuple[Path, str]) -> None:
    compiled = ("--launch-bounds", "64,2", "--maxregs", "32", "--specialize", "dims")
    done = replay(recorded, "--block", "64", "--grid", "7", *compiled, "--times", "2", "--json")
    found = one(done)
    assert done.status == 0 and found["status"] == "same", done
    assert found["grid"] == [7, 1, 1] and found["block"] == [64, 1, 1]
    assert len(found["times"]["runs"]) == 2
    assert found["changes"] == [
        "grid 7",
        "block 64",
        "launch bounds 64,2",
        "at most 32 registers",
        "specialized: dims",
    ]


@pytest.mark.long
def test_edited_code_is_compared(recorded: tuple[Path, str], tmp_path: Path) -> None:
    path = tmp_path / "kernel.ptx"
    done = replay(recorded, "--dump-ir", path)
    assert done.status == 0 and "edit it, then give it to --code" in done.stdout
    assert replay(recorded, "--code", path, "--specialize", "args").status == 0
    code = path.read_text()
    assert "mul.lo.u32 %r8, %r8, %r7" in code
    path.write_text(code.replace("mul.lo.u32 %r8, %r8, %r7", "add.u32 %r8, %r8, %r7"))
    done = replay(recorded, "--code", path)
    assert done.status == 1 and "changed  code kernel.ptx" in done.stdout
    path.write_text(code.replace(".entry scale(", ".entry other("))
    done = replay(recorded, "--code", path)
    assert done.status == 2 and "kernel.ptx: no single kernel scale among other" in done.stdout


def test_wrong_changes_are_refused(recorded: tuple[Path, str], tmp_path: Path) -> None:
    def said(*options: str | Path) -> str:
        done = replay(recorded, *options)
        assert done.status == 2
        return done.stdout + done.stderr

    assert "launch bounds 64: the block has 128 threads" in said("--launch-bounds", "64")
    assert "--launch-bounds 0: expected T or T,B" in said("--launch-bounds", "0")
    assert "--grid 0: expected a size such as 128" in said("--grid", "0")
    assert "--specialize most: must be none, args, dims, all" in said("--specialize", "most")
    assert "expected .ptx, .cubin" in said("--code", tmp_path / "a.txt")
    assert "--dump-ir a.ll: the name must end in .ptx" in said("--dump-ir", "a.ll")
    assert "--grid cannot be combined with --instrument" in said(
        "--grid", "1", "--instrument", "opcode"
    )
    done = support.ttanalyze("replay", recorded[0], "--sim", "--grid", "3")
    assert done.status == 2 and "--grid needs one launch: --launch N" in done.stderr


def nvvm() -> bool:
    try:
        compilers._library(*compilers.NVVM)
    except Error:
        return False
    return True


@pytest.mark.skipif(not nvvm(), reason="needs NVVM: pip install nvidia-nvvm")
def test_llvm_ir_is_compiled_and_compared(recorded: tuple[Path, str], tmp_path: Path) -> None:
    """The same kernel in LLVM IR, and one that multiplies by another number."""
    code = (Path(__file__).parent / "programs" / "scale.ll").read_text()
    right, wrong = tmp_path / "right.ll", tmp_path / "wrong.ll"
    right.write_text(code)
    wrong.write_text(code.replace("mul i32 %v, 3", "mul i32 %v, 4"))
    done = replay(recorded, "--code", right, "--block", "64", "--launch-bounds", "64")
    assert done.status == 0, done
    assert replay(recorded, "--code", wrong).status == 1
    wrong.write_text(code.replace("ret void", "ret nothing"))
    assert "wrong.ll" in replay(recorded, "--code", wrong).stderr


# ---- the exported program ----


def test_exported_program_takes_the_same_options(
    recorded: tuple[Path, str], tmp_path: Path
) -> None:
    run, launch = recorded
    folder = tmp_path / "out"
    assert support.ttanalyze("export", run, "--launch", launch, "-o", folder).status == 0
    flags = ("CFLAGS=-O0 -Wall -Wextra -Werror", f"LIBCUDA={support.SIMULATOR}")
    made = support.run(["make", "-s", "-C", folder, *flags], support.bare_environment())
    assert made.status == 0 and not made.stderr, made
    environment = simulator_environment()

    def reproduce(*options: str | Path) -> Outcome:
        return support.run([folder / "reproduce", *options], environment)

    compiled = ("--launch-bounds", "64,2", "--maxregs", "32")
    done = reproduce("--block", "64", "--grid", "7", *compiled, "--shared", "64", "--times", "2")
    assert done.status == 0 and done.stdout.startswith("2 times: median"), done
    code = (folder / "kernel.ptx").read_text()
    edited = tmp_path / "edited.ptx"
    edited.write_text(code.replace("mul.lo.u32 %r8, %r8, %r7", "add.u32 %r8, %r8, %r7"))
    done = reproduce("--code", edited)
    assert done.status == 1 and done.stdout.endswith("scale: different\n")
    assert reproduce("--code", folder / "kernel.ptx", "--launch-bounds", "128").status == 0
    done = reproduce("--launch-bounds", "64")
    assert done.status == 2 and "the block has more threads" in done.stderr
    for wrong in (("--times",), ("--times", "0"), ("--grid", "1x2x3x4"), ("--blocks", "1")):
        done = reproduce(*wrong)
        assert done.status == 2 and done.stderr.startswith("usage: "), done


# ---- tolerances ----


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("declared", "status"),
    [
        (("f32", "0.01", "0"), 0),
        (("f32", "0.0001", "0"), 1),
        (("f32", "0", "0.01"), 0),
        (("l1:f32", "0.5", "0"), 0),  # 100 items, by 0.004 each
        (("l1:f32", "0.3", "0"), 1),
        (("l2:f32", "0.05", "0"), 0),
        (("l2:f32", "0.03", "0"), 1),
        (("linf:f32", "0.005", "0"), 0),
        ((), 1),
    ],
)
def test_program_declares_its_tolerance(
    declared: tuple[str, ...], status: int, built: Path, tmp_path: Path
) -> None:
    run, code = tmp_path / "run", tmp_path / "code.ptx"
    program = support.build_program("recorder_tolerance", built)
    environment = support.recording(simulator_environment(), run, replayable="1")
    done = support.run([program, *declared], environment)
    assert done.status == 0 and done.stdout == ("0\n" if declared else ""), done
    seq = json.loads(support.ttanalyze("launches", run, "--json").stdout)["kernels"][0]
    of = run, str(seq["launches"][0]["seq"])
    assert replay(of).status == 0
    assert replay(of, "--dump-ir", code).status == 0
    code.write_text(code.read_text().replace("0f40000000", "0f40004189"))  # 2.004
    done = replay(of, "--code", code, "--json")
    assert done.status == status, done
    found = one(done)
    assert found["differences"][0]["tolerated"] is not bool(status)


def test_wrong_tolerances_are_refused(built: Path, tmp_path: Path) -> None:
    program = support.build_program("recorder_tolerance", built)
    for number, wrong in enumerate((("float", "0", "0"), ("f32", "-1", "0"), ("f33", "0", "0"))):
        environment = support.recording(simulator_environment(), tmp_path / str(number))
        done = support.run([program, *wrong], environment)
        assert done.stdout == "-1\n" and "tt_tolerance: expected a type" in done.stderr


@pytest.mark.long
def test_norms_are_options_too(recorded: tuple[Path, str], tmp_path: Path) -> None:
    code = tmp_path / "kernel.ptx"
    assert replay(recorded, "--dump-ir", code).status == 0
    text = code.read_text()
    code.write_text(text.replace("mul.lo.u32 %r8, %r8, %r7;", "mad.lo.u32 %r8, %r8, %r7, 1;"))
    given = ("--code", code, "--dtype", "u32", "--tolerance")
    assert replay(recorded, *given, "l1:20000").status == 0
    assert replay(recorded, *given, "l1:19999").status == 1
    assert replay(recorded, *given, "linf:1").status == 0
    assert "expected l1:ABS,REL" in replay(recorded, *given, "l3:1").stderr
    assert "expected l1:ABS,REL" in replay(recorded, *given, "l2:,,1").stderr
