"""Builds the native libraries, and the modules of the format and of the options; pyproject.toml
says the rest.

The libraries are plain shared objects, not extension modules: one is preloaded into programs
that have no Python in them, four belong to the simulator, and one the toolkit calls. They are
built with what CC, CFLAGS and LDFLAGS say; TT_SANITIZE=address,undefined adds sanitizers, and
TT_SANITIZE=thread adds its own to the recorder. An object is compiled again only when its source,
a header it includes or the compiler's command line has changed.
"""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py
from setuptools.errors import CompileError, LinkError

# -ffp-contract=off: the simulator rounds alike on every machine.
COMPILE = [
    "-ffp-contract=off",
    "-std=gnu11",
    "-D_GNU_SOURCE=",
    "-O2",
    "-g",
    "-fPIC",
    "-fvisibility=hidden",
    "-pthread",
]
WARN = ["-Wall", "-Wextra", "-Werror"]
INCLUDE = ["-Iinterpose", "-Iinterpose/include", "-Iexamples"]


@dataclass(frozen=True)
class Library:
    """A shared library: where it goes in the package, and what it is made of."""

    path: str
    patterns: tuple[str, ...]
    link: tuple[str, ...]
    embed: tuple[tuple[str, str], ...] = ()  # symbol, file
    kind: str = "-shared"


RECORDER = "ttanalyze.lib.libttshim"
SIMULATOR = "libcuda.so.1"
TOUR = ("examples/overflow.py", "examples/torch_nan.py")  # what `demo` records besides vecadd
LIBRARIES = {
    "ttanalyze.lib.sim.libcuda": Library(
        "ttanalyze/lib/sim/libcuda.so.1",
        ("interpose/sim/driver/*.c", "interpose/sim/ptx/*.c"),
        (
            "-Wl,-soname,libcuda.so.1",
            "-Wl,-z,nodelete",  # it has threads
            "-Wl,--no-undefined",
            "-lm",
            "-pthread",
            "-ldl",
        ),
    ),
    "ttanalyze.lib.sim.libcudart": Library(
        "ttanalyze/lib/sim/libcudart.so.13",
        ("interpose/sim/runtime/*.c",),
        (
            "-Wl,-soname,libcudart.so.13",
            "-Wl,--version-script=interpose/sim/runtime/symbols.map",
            "-Wl,--no-undefined",
            "-pthread",
            SIMULATOR,
        ),
    ),
    "ttanalyze.lib.sim.libttstatic": Library(
        "ttanalyze/lib/sim/libttstatic.so",
        ("interpose/sim/preload/*.c",),
        ("-Wl,-soname,libttstatic.so", "-Wl,--no-undefined", "-ldl"),
    ),
    "ttanalyze.lib.demo.vecadd": Library(
        "ttanalyze/lib/demo/vecadd", ("examples/vecadd.c",), (SIMULATOR,), kind="-pie"
    ),
    "ttanalyze.lib.sim.libcupti": Library(
        "ttanalyze/lib/sim/libcupti.so.13",
        ("interpose/sim/cupti/*.c",),
        ("-Wl,-soname,libcupti.so.13", "-Wl,--no-undefined", "-pthread", "-ldl"),
    ),
    "ttanalyze.lib.libttload": Library(
        "ttanalyze/lib/libttload.so",
        (
            "interpose/load/*.c",
            "interpose/options/categories.c",
            "interpose/options/options.c",
            "interpose/options/rank.c",
            "interpose/options/times.c",
            "interpose/options/triggers.c",
            "interpose/options/control_text.c",
            "interpose/util/json_writer.c",
        ),
        (
            "-Wl,-soname,libttload.so",
            "-Wl,-z,nodelete",  # numpy frees arrays through it until the process ends
            "-Wl,--no-undefined",
        ),
    ),
    RECORDER: Library(
        "ttanalyze/lib/libttshim.so",
        (
            "interpose/util/*.c",
            "interpose/driver/*.c",
            "interpose/entry/*.c",
            "interpose/store/*.c",
            "interpose/options/*.c",
            "interpose/session/*.c",
            "interpose/track/*.c",
            "interpose/inspect/*.c",
            "interpose/callstack/*.c",
            "interpose/sass/*.c",
            "interpose/arena/*.c",
            "interpose/capture/*.c",
            "interpose/timeline/*.c",
            "interpose/nvtx/*.c",
            "interpose/delay/*.c",
            "interpose/instrument/*.c",
            "interpose/lifecycle/*.c",
            "interpose/hooks/*.c",
        ),
        (
            "-Wl,-soname,libttshim.so",
            "-Wl,-Bsymbolic",
            "-Wl,-z,nodelete",
            "-Wl,--no-undefined",
            "-pthread",
            "-ldl",
        ),
        (
            ("capture_ptx", "interpose/capture/capture.ptx"),
            ("pack_ptx", "interpose/capture/pack.ptx"),
            ("replay_ptx", "interpose/capture/replay.ptx"),
            ("fill_ptx", "interpose/capture/fill.ptx"),
            ("trace_patch", "interpose/instrument/trace_patch.fatbin"),
        ),
    ),
}


OPTION_TABLE = Path("interpose/options/option_table.h")
OPTION_MODULE = Path("ttanalyze/_options.py")


def option_module() -> str:
    """The options of the recorder as a Python module: rows of C whose values are Python's, too."""
    text = re.sub(r"/\*.*?\*/|^#.*?$", "", OPTION_TABLE.read_text(), flags=re.DOTALL | re.MULTILINE)
    calls = [row.value for row in ast.parse(text).body if isinstance(row, ast.Expr)]
    rows = [
        tuple(a.id if isinstance(a, ast.Name) else ast.literal_eval(a) for a in call.args)
        for call in calls
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "OPTION"
    ]
    return f"OPTIONS = {rows!r}\n"


def sources_of(library: Library) -> list[str]:
    return sorted({str(p) for pattern in library.patterns for p in Path().glob(pattern)})


def embedded(symbol: str, text: bytes) -> str:
    """C that defines `symbol` as a file's bytes with a NUL at their end, and their number without
    that.
    """
    rows = [text[i : i + 24] for i in range(0, len(text), 24)]
    data = "\n".join("\t" + "".join(f"{byte}," for byte in row) for row in rows)
    return (
        "#include <stddef.h>\n"
        f"extern const char {symbol}[];\n"
        f"extern const size_t {symbol}_size;\n"
        f"_Alignas(16) const char {symbol}[] = {{\n{data}\n\t0}};\n"
        f"const size_t {symbol}_size = {len(text)};\n"
    )


def prerequisites(depfile: Path) -> list[str]:
    """The files that the compiler read for an object, from its make rule."""
    rule = depfile.read_text().partition(":")[2].replace("\\\n", " ")
    return [name.replace("\\ ", " ") for name in re.findall(r"(?:\\ |\S)+", rule)]


def newer(target: Path, command: str, inputs: list[str]) -> bool:
    """Whether target was made by this very command and after all its inputs."""
    stamp = target.with_name(target.name + ".command")
    try:
        made = target.stat().st_mtime_ns
        return stamp.read_text() == command and all(
            Path(name).stat().st_mtime_ns < made for name in inputs
        )
    except OSError:
        return False


def write_if_different(path: Path, text: str) -> None:
    if not path.exists() or path.read_text() != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def run(command: list[str], made: Path, error: type[CompileError] | type[LinkError]) -> None:
    try:
        done = subprocess.run(command, check=False)
    except OSError as e:
        raise error(f"{made.name}: cannot run {command[0]}: {e.strerror}") from None
    if done.returncode:
        raise error(f"{made.name}: failed: {shlex.join(command)}")
    made.with_name(made.name + ".command").write_text(shlex.join(command))


class BuildLibraries(build_ext):
    """Puts each library where the package (or, in place, the source tree) wants it."""

    def get_ext_filename(self, ext_name: str) -> str:
        """Its path for a full name, and the file's name for the last part of one."""
        for name, library in LIBRARIES.items():
            if ext_name == name:
                return library.path
            if ext_name == name.rpartition(".")[2]:
                return os.path.basename(library.path)
        return str(super().get_ext_filename(ext_name))  # type: ignore[no-untyped-call]

    def run(self) -> None:
        super().run()
        if self.inplace:
            write_if_different(OPTION_MODULE, option_module())
        for program in TOUR:
            target = Path("" if self.inplace else self.build_lib) / "ttanalyze/lib/demo"
            self.copy_file(program, str(target / Path(program).name))
        made = sorted(self.folder.rglob("*.o.command"))
        commands = [made_by.read_text() for made_by in made]
        entries = [
            {"directory": os.getcwd(), "command": command, "file": shlex.split(command)[-3]}
            for command in commands
        ]
        write_if_different(self.folder / "compile_commands.json", json.dumps(entries, indent=1))

    def copy_extensions_to_source(self) -> None:
        for library in LIBRARIES.values():
            Path(library.path).parent.mkdir(parents=True, exist_ok=True)
        super().copy_extensions_to_source()

    def build_extension(self, ext: Extension) -> None:
        library = LIBRARIES[ext.name]
        sanitize = os.environ.get("TT_SANITIZE", "")
        if sanitize == "thread" and ext.name != RECORDER:
            sanitize = ""  # what the simulator orders by its lock, a GPU's driver would not
        # Plain commands of our own: those that Python was built with carry flags meant for it.
        cc = shlex.split(os.environ.get("CC", "cc"))
        flags = shlex.split(os.environ.get("CFLAGS", ""))
        extra = [f"-fsanitize={sanitize}", "-fno-sanitize-recover=all"] if sanitize else []
        if sanitize:
            extra.append("-fno-omit-frame-pointer")
        if sanitize == "thread":  # it knows no fences; ours are between accesses that are atomic
            extra.append("-Wno-tsan")
        self.compile_command = [*cc, *COMPILE, *WARN, *INCLUDE, *extra, *flags]
        link_command = [*cc, library.kind, "-g", *extra]
        link_flags = shlex.split(os.environ.get("LDFLAGS", ""))
        # Not build_temp, which an editable install throws away.
        self.folder = Path("build") / "native" / (sanitize.replace(",", "-") or "plain")
        sources = sources_of(library)
        for symbol, text in library.embed:
            generated = self.folder / f"{symbol}.c"
            write_if_different(generated, embedded(symbol, Path(text).read_bytes()))
            sources.append(str(generated))
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            objects = list(pool.map(self.compile_one, sources))
        target = Path(self.get_ext_fullpath(ext.name))
        made = self.folder / target.name
        parts = [str(self.folder / part) if part == SIMULATOR else part for part in library.link]
        command = [*link_command, *objects, *link_flags, *parts, "-o", str(made)]
        if not newer(made, shlex.join(command), objects):
            made.unlink(missing_ok=True)
            run(command, made, LinkError)
        # By rename: a program that has the old one loaded keeps it.
        target.parent.mkdir(parents=True, exist_ok=True)
        draft = target.with_name(target.name + ".tmp")
        self.copy_file(str(made), str(draft))
        draft.replace(target)

    def compile_one(self, source: str) -> str:
        made = self.folder / Path(source).with_suffix(".o").name
        if not Path(source).is_relative_to(self.folder):
            made = self.folder / Path(source).with_suffix(".o")
        depfile = made.with_suffix(".d")
        files = ["-MMD", "-MF", str(depfile), "-c", source, "-o", str(made)]
        command = [*self.compile_command, *files]
        try:
            inputs = prerequisites(depfile)
        except OSError:
            inputs = []
        if not inputs or not newer(made, shlex.join(command), inputs):
            made.parent.mkdir(parents=True, exist_ok=True)
            run(command, made, CompileError)
        return str(made)


class BuildModules(build_py):
    def run(self) -> None:
        super().run()
        write_if_different(Path(self.build_lib) / OPTION_MODULE, option_module())


class PlatformWheel(bdist_wheel):
    """One wheel per platform serves every Python 3: nothing in it is linked against Python."""

    def get_tag(self) -> tuple[str, str, str]:
        return ("py3", "none", super().get_tag()[2])


setup(
    data_files=[("share/man/man1", sorted(map(str, Path("man").glob("*.1"))))],
    ext_modules=[Extension(name, sources_of(library)) for name, library in LIBRARIES.items()],
    cffi_modules=["interpose/include/format_ffi.py:ffi", "interpose/include/cuda_ffi.py:ffi"],
    cmdclass={"build_ext": BuildLibraries, "build_py": BuildModules, "bdist_wheel": PlatformWheel},
)
