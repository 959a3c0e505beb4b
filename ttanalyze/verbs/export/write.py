"""Writes a launch as a folder: a C program, a Python program if wanted, and their data."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from ttanalyze import __version__
from ttanalyze.code import demangle
from ttanalyze.errors import Error, system_errors
from ttanalyze.format import layout
from ttanalyze.format.contents import DataFiles
from ttanalyze.format.layout import BLOCK_SIZE, Array
from ttanalyze.format.process import Process
from ttanalyze.output import text
from ttanalyze.util.progress import Progress, counted
from ttanalyze.verbs.export.contents import Pieces
from ttanalyze.verbs.export.needs import Memory, Needs, find
from ttanalyze.verbs.export.prepare import digests
from ttanalyze.verbs.replay.changes import Three
from ttanalyze.verbs.replay.compilers import ptx_of

FILES = resources.files("ttanalyze.verbs.export") / "files"
PARAMS, BEFORE, AFTER = "params.bin", "before.bin", "after.bin"
EDITABLE = "kernel.ptx"
ATTRIBUTES = {2: "cooperative", 4: "cluster dimension", 6: "programmatic stream serialization"}
ATTRIBUTES |= {8: "priority", 14: "preferred shared memory carve-out"}
SETTINGS = {8: "maximum dynamic shared memory", 9: "preferred shared memory carve-out"}
SETTINGS |= {11: "required cluster width", 12: "height", 13: "depth"}
SETTINGS |= {14: "non-portable cluster size allowed", 15: "cluster scheduling policy"}
LIMITS = {0: "stack size", 1: "printf FIFO size", 2: "malloc heap size"}
JIT = {0: "maximum registers", 7: "optimization level", 9: "target"}
NEWEST = 1 << 16  # any architecture
OURS = ("main.c", "launch.h", BEFORE)  # by which a folder is known
SOME = 64  # blocks that are read at once


@dataclass(frozen=True)
class Exported:
    """The result of `export`.

    Attributes:
        folder: The written folder.
        launch: The sequence number of the launch.
        kernel: The mangled name of the kernel.
        grid, block: The blocks, and the threads of each, in x, y and z.
        regions: The size of each region in bytes, by id.
        files: The size of each file in bytes, by name.
        remarks: Remarks about the launch and its memory, one line each.
    """

    folder: Path
    launch: int
    kernel: str
    grid: Three
    block: Three
    regions: dict[int, int]
    files: dict[str, int]
    remarks: list[str]

    @property
    def size(self) -> int:
        """The size of all files in bytes."""
        return sum(self.files.values())

    def notes(self, limit: int) -> list[str]:
        """Returns remarks, one line each.

        Args:
            limit: The size in bytes from which on a remark says that the folder is large.
        """
        if self.size <= limit:
            return self.remarks
        largest = max(self.files, key=lambda name: self.files[name])
        size, most = text.size(self.size), text.size(self.files[largest])
        more = f"{self.folder} has {size}, more than --max-size; {largest} has {most}"
        return [*self.remarks, more]

    def __str__(self) -> str:
        folder = text.printable(str(self.folder))
        (name,) = demangle.demangle([self.kernel])
        memory = text.size(sum(self.regions.values()))
        lines = [
            f"launch {self.launch}, {text.printable(name)}",
            f"  memory  {memory} in {text.count(len(self.regions), 'region')}",
            f"  files   {text.size(self.size)} in {folder}",
            f"  run     make -C {folder} && {folder}/reproduce",
        ]
        return "\n".join(lines)

    def as_dict(self) -> dict[str, Any]:
        return {
            "folder": str(self.folder),
            "call": self.launch,
            "kernel": self.kernel,
            "grid": self.grid,
            "block": self.block,
            "regions": [{"region": each, "size": size} for each, size in self.regions.items()],
            "memory": sum(self.regions.values()),
            "files": self.files,
            "bytes": self.size,
        }


def export(
    process: Process,
    folder: Path,
    launch: int | None = None,
    kernel: str | None = None,
    *,
    everything: bool = False,
    python: bool = False,
    force: bool = False,
    progress: Progress = None,
) -> Exported:
    """Writes a launch as a program of its own. The folder is complete or it is not written.

    Args:
        process: The process.
        folder: The folder.
        launch: The sequence number of the launch. Default: the first that can be exported.
        kernel: A regular expression for the kernel name, mangled or demangled.
        everything: Whether to include all memory of the context. By default it is what the launch
            changed, and what can be reached from its parameters and the variables of its module,
            through addresses in memory.
        python: Whether to add a Python program.
        force: Whether to replace a folder that `export` made.
        progress: Called with the finished and the total number of blocks.

    Raises:
        Error: No such launch can be exported, something that it needs was not recorded, or the
            folder cannot be written.
        FormatError: The stored contents do not have their digest.

    Example:
        >>> made = tt.export(tt.open("work").process(0), "bug", kernel="add")
        >>> made.launch, made.grid, made.regions
        (7, (256, 1, 1), {0: 262144, 1: 262144})
        >>> made.remarks
        []
    """
    needs = find(process, launch, kernel, everything)
    to = folder.resolve()
    if to == Path.cwd():
        raise Error(f"{folder}: is the current folder; choose a new one")
    there = to.exists() and not (to.is_dir() and not any(to.iterdir()))
    if there and not all((to / name).exists() for name in OURS):
        raise Error(f"{folder}: exists, but export did not create it; choose another name")
    if there and not force:
        raise Error(f"{folder}: exists; --force replaces it")
    draft, old = (to.with_name(f".{to.name}.{os.getpid()}.{what}") for what in ("tmp", "old"))
    with system_errors(folder):
        try:
            draft.mkdir(parents=True)
            _write(needs, draft, python, progress)
            if there:
                to.rename(old)
            draft.rename(to)
        finally:
            if old.exists() and not to.exists():
                old.rename(to)
            for left in (draft, old):
                shutil.rmtree(left, ignore_errors=True)
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    sizes = {str(path.relative_to(folder)): path.stat().st_size for path in paths}
    of, regions = needs.launch, {memory.region: memory.size for memory in needs.memory}
    remarks = _remarks(needs)
    return Exported(
        folder, needs.plan.seq, needs.plan.kernel, of.grid, of.block, regions, sizes, remarks
    )


def _remarks(needs: Needs) -> list[str]:
    out = list(needs.plan.notes)
    if needs.plan.unchecked:
        out.append(f"the program does not compare the result: {needs.plan.unchecked}")
    lucky = [m for m in needs.memory if m.lucky]
    if lucky:
        name = lucky[0].name + (f" and {len(lucky) - 1} more" if len(lucky) > 1 else "")
        where = f"{name}: the driver chose its address, which another process may not get"
        advice = "; record with --replayable or --deterministic"
        out.append(where + ("" if needs.process.info.get("deterministic") else advice))
    unknown = [m for m in needs.memory if m.variable is None]
    unknown = [m for m in unknown if m.before is None and m.made is None]
    return out + [f"{m.name}: no epoch has its contents; it is zeroed" for m in unknown]


def _write(needs: Needs, folder: Path, python: bool, progress: Progress) -> None:
    (folder / "include").mkdir()
    copies = {name: name for name in ("main.c", "change.c", "change.h", "Makefile")}
    for name, to in (copies | {"cuda.h": "include/cuda.h"}).items():
        (folder / to).write_text((FILES / name).read_text())
    image = f"module.{needs.kind}"
    (folder / image).write_bytes(needs.image)
    ptx = ptx_of(needs.image, NEWEST)
    if ptx is not None:
        (folder / EDITABLE).write_bytes(ptx.split(b"\0", 1)[0])
    (folder / PARAMS).write_bytes(needs.launch.params)
    (folder / "launch.h").write_text(_header(needs, image, None if ptx is None else EDITABLE))
    if python:
        (folder / "reproduce.py").write_text((FILES / "reproduce.py").read_text())
        (folder / "launch.py").write_text(_module(needs, image))
    _contents(needs, folder, progress)
    (folder / "README.md").write_text(_readme(needs, folder, python))


def _contents(needs: Needs, folder: Path, progress: Progress) -> None:
    """Writes the memory before the launch, and the blocks that it changed."""
    changes = [_changed(memory) for memory in needs.memory]
    sizes = [0 if m.before is None else len(m.before) for m in needs.memory]
    advance = counted(progress, sum(sizes) + sum(map(len, changes)))

    with DataFiles(needs.process) as files:
        with (folder / BEFORE).open("wb") as file:
            out = Pieces(file)
            for region, memory in enumerate(needs.memory):
                sparse = memory.variable is None  # others hold what their module says
                if memory.made is not None:
                    out.add(region, 0, memory.made, sparse)
                elif memory.before is not None:
                    _add(out, region, memory.before, files, sparse, advance)
            out.flush()
        if needs.plan.after is None:
            return
        with (folder / AFTER).open("wb") as file:
            out = Pieces(file)
            for region, records in enumerate(changes):
                _add(out, region, records, files, False, advance)
            out.flush()


def _add(
    out: Pieces,
    region: int,
    records: Array,
    files: DataFiles,
    sparse: bool,
    advance: Callable[[int], None],
) -> None:
    for first in range(0, len(records), SOME):
        some = records[first : first + SOME]
        buffer = np.empty(int(some["length"].sum(dtype="u8")), "u1")
        files.read(some, buffer.data)
        at = 0
        for block, size in zip(some["block"].tolist(), some["length"].tolist(), strict=True):
            out.add(region, block * BLOCK_SIZE, buffer[at : at + size], sparse)
            at += size
        advance(len(some))


def _changed(memory: Memory) -> Array:
    """Returns the blocks that the launch changed."""
    if memory.after is None:
        return np.empty(0, layout.BLOCK)
    if memory.made is not None:
        found = digests(memory.made)
    elif memory.before is not None:
        found = memory.before["digest"]
    else:
        return memory.after
    return np.asarray(memory.after[memory.after["digest"] != found])


# ---- what is launched, in both languages ----


def _c_string(value: str | None) -> str:
    if value is None:
        return "NULL"
    plain = (chr(b) if 32 <= b < 127 and b not in b'"\\?' else f"\\{b:03o}" for b in value.encode())
    return f'"{"".join(plain)}"'


def _c_list(kind: str, name: str, items: Iterable[str], none: str) -> str:
    lines = "".join(f"\t{item}\n" for item in [*items, none])
    return f"static {kind} {name}[] = {{\n{lines}}};\n"


def _settings(pairs: list[tuple[int, int]], names: dict[int, str]) -> list[str]:
    return [f"{{{n}, {value}}}, /* {names.get(n, 'unnamed')} */" for n, value in pairs]


def _header(needs: Needs, image: str, ptx: str | None) -> str:
    memory = [
        f"{{{m.address:#x}, {m.size}, {_c_string(m.variable)}, {_c_string(m.name)}}},"
        for m in needs.memory
    ]
    attributes = [
        f"{{{n}, {{{', '.join(map(str, value.rstrip(bytes(1)) or bytes(1)))}}}}}, "
        f"/* {ATTRIBUTES.get(n, 'unnamed')} */"
        for n, value in needs.attributes
    ]
    sizes = "\n".join(
        f"static const unsigned int {name}[3] = {{{', '.join(map(str, value))}}};"
        for name, value in (("grid", needs.launch.grid), ("block", needs.launch.block))
    )
    pointers = [f"{{{at}, {i}}}," for at, i in needs.pointers]
    lists = [
        ("struct region", "regions", memory, "{0, 0, NULL, NULL}"),
        ("const struct pointer", "pointers", pointers, "{0, -1}"),
        ("const struct attribute", "launch_attributes", attributes, "{-1, {0}}"),
    ]
    lists += [
        ("const struct setting", name, _settings(pairs, names), "{-1, 0}")
        for name, pairs, names in (
            ("function_attributes", needs.settings, SETTINGS),
            ("limits", needs.limits, LIMITS),
            ("jit_options", needs.jit, JIT),
        )
    ]
    return (
        "/* What main.c launches. */\n"
        f"#define KERNEL {_c_string(needs.plan.kernel)}\n"
        f"#define IMAGE {_c_string(image)}\n"
        f"#define PTX {_c_string(ptx)} /* the same to compile again */\n"
        f"#define SHARED {needs.launch.shared} /* bytes of dynamic shared memory */\n"
        f"#define CACHE {needs.cache} /* CUfunc_cache */\n"
        f"#define EXPECTED {int(needs.plan.after is not None)} "
        "/* whether it is known what it left */\n\n"
        f"{sizes}\n\n" + "\n".join(_c_list(*one) for one in lists)
    )


def _module(needs: Needs, image: str) -> str:
    memory = "".join(f"    {(m.address, m.size, m.variable, m.name)!r},\n" for m in needs.memory)
    lines = [
        '"""What reproduce.py launches."""\n',
        f"KERNEL = {needs.plan.kernel!r}",
        f"IMAGE = {image!r}",
        f"GRID = {needs.launch.grid!r}",
        f"BLOCK = {needs.launch.block!r}",
        f"SHARED = {needs.launch.shared!r}",
        f"CACHE = {needs.cache!r}  # CUfunc_cache",
        f"EXPECTED = {needs.plan.after is not None!r}  # whether it is known what it left",
        "# Address (of a variable: where it was), bytes, name of a variable of the module, name.",
        f"REGIONS = [\n{memory}]",
        "# Parameters that point into a variable: offset, position in REGIONS.",
        f"POINTERS = {needs.pointers!r}",
        "# Numbers and values.",
        f"LAUNCH_ATTRIBUTES = {needs.attributes!r}",
        f"FUNCTION_ATTRIBUTES = {needs.settings!r}",
        f"LIMITS = {needs.limits!r}",
        f"JIT_OPTIONS = {needs.jit!r}",
    ]
    return "\n".join(lines) + "\n"


# ---- what it is ----


def _readme(needs: Needs, folder: Path, python: bool) -> str:
    info = needs.process.info
    (full,) = demangle.demangle([needs.plan.kernel])
    devices = ", ".join(str(device.get("name", "?")) for device in info.get("devices", []))
    version = int(info.get("driver_version", 0))
    changed = sum(int(_changed(m)["length"].sum(dtype="u8")) for m in needs.memory)
    grid, block = _dimensions(needs.launch.grid), _dimensions(needs.launch.block)
    facts = {
        "kernel": _code(full),
        "grid, block": f"{grid} blocks of {block} threads",
        "dynamic shared memory": text.size(needs.launch.shared),
        "memory": f"{text.size(needs.size)} in "
        f"{text.count(len(needs.memory), 'region')}, of which blocks of {text.size(changed)} "
        "changed",
        "compared with": needs.plan.unchecked or "the recorded result",
        "recorded from": f"{_code(text.command(info.get('argv', [])))}, call {needs.plan.seq}",
        "on": f"{_code(devices)}, driver for CUDA {version // 1000}.{version % 1000 // 10}",
        "exported by": f"ttanalyze {__version__}",
    }
    table = "".join(f"| {name} | {value} |\n" for name, value in facts.items())
    page = (FILES / "README.md").read_text()
    script = (FILES / "README-python.md").read_text() if python else ""
    rows = "".join(f"| {m.address:#x} | {m.size:,} | {_code(m.name)} |\n" for m in needs.memory)
    for name, value in (("facts", table), ("python", script), ("regions", rows)):
        page = page.replace(f"@{name}@\n", value)
    return page.replace("@image@", f"module.{needs.kind}")


def _code(name: str | None) -> str:
    """Returns a name from a run as code for a cell of a table, escaped."""
    plain = text.printable(name or "?").replace("`", r"\x60").replace("|", r"\|")
    return f"`{plain}`"


def _dimensions(size: tuple[int, int, int]) -> str:
    x, y, z = size
    return f"{x}" if y == z == 1 else f"{x} by {y}" if z == 1 else f"{x} by {y} by {z}"
