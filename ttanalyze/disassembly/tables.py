"""Instruction tables of kernels. A run keeps them in sass/CHECKSUM.json.

A kept table is read without a disassembler. If the run is read-only, nothing is kept.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from ttanalyze import code as kernels
from ttanalyze.code import demangle, lines
from ttanalyze.code.cubin import Cubin
from ttanalyze.code.elf import UnreadableError
from ttanalyze.disassembly import decode, tools
from ttanalyze.disassembly.images import Code, codes
from ttanalyze.errors import Error, FormatError
from ttanalyze.format.files import read_json
from ttanalyze.format.kernel_checksums import LARGEST, image_of
from ttanalyze.format.process import Process
from ttanalyze.format.run import Run
from ttanalyze.output.files import directory, replace_in
from ttanalyze.schemas import document_faults
from ttanalyze.util.progress import Progress, tell
from ttanalyze.util.regular_files import read_regular

FOLDER = "sass"
FORMAT = {"format": "ttanalyze-instructions", "version": 1}
BATCH = 1 << 22  # bytes of code that are disassembled together
LINE = re.compile(r"\s*/\*([0-9a-f]{4,})\*/\s+(.*?)\s*;?\s*")
RELATIVE = re.compile(r"(?:@!?U?P\w )?(?:BRA|BSSY|CALL\.REL|RET\.REL|LEPC|WARPSYNC\.COLL)")
LAST = re.compile(r"0x([0-9a-f]+)\s*$")

Wanted = Callable[[Sequence[str]], list[str]]  # of mangled names those that are


@dataclass(frozen=True)
class Table:
    """The instructions of a kernel.

    Attributes:
        kernel_name: The mangled name.
        kernel_checksum: The checksum of the kernel, as kernel events have it.
        code_checksum: The checksum of its code for this architecture.
        architecture: The architecture, such as 90 for sm_90.
        disassembler: The tools and their versions.
        instructions: One object per instruction, as in schemas/instruction.json.
    """

    kernel_name: str
    kernel_checksum: str
    code_checksum: str
    architecture: int
    disassembler: str
    instructions: list[dict[str, Any]]

    def to_object(self) -> dict[str, Any]:
        return {**FORMAT, **asdict(self)}


def of_codes(
    found: Iterable[Code],
    image: bytes,
    wanted: Wanted,
    capability: int = 0,
    sums: Mapping[str, str] | None = None,
    progress: Progress = None,
) -> Iterator[Table]:
    """Yields tables of the wanted kernels in code that was found in an image.

    Args:
        found: The code.
        image: The image.
        wanted: Selects mangled names.
        capability: The architecture that PTX is compiled for. Default: that in the PTX.
        sums: Known checksums by mangled name.
        progress: Called with the finished and the total number of kernels.

    Raises:
        Error: Code cannot be disassembled, or PTX cannot be compiled.
    """
    for code in found:
        cubin, made_by = _cubin(code, capability)
        names = wanted(cubin.kernels())
        sources = lines.of_cubin(cubin)
        known: Mapping[str, str | None] = sums or dict(
            zip(names, kernels.checksums(image, names), strict=True)
        )
        for batch in _batches(cubin, names):
            texts, by = _disassembled([text for _, _, text in batch], cubin.architecture)
            by = f"{made_by}, {by}" if made_by else by
            for (name, section, text), said in zip(batch, texts, strict=True):
                checksum = cubin.checksum(name) or ""
                rows = _instructions(text, said, sources.get(section))
                yield Table(name, known[name] or checksum, checksum, cubin.architecture, by, rows)
            tell(progress, names.index(batch[-1][0]) + 1, len(names))


def _cubin(code: Code, capability: int) -> tuple[Cubin, str]:
    """Returns the cubin of a piece of code, and the tool that compiled it, "" if none did."""
    if code.cubin is not None:
        return code.cubin, ""
    architecture = capability or code.architecture
    if not architecture:
        raise Error("only PTX was found: --arch ARCH is required to compile it")
    made, tool = tools.assembled(code.ptx or b"", architecture)
    try:
        return Cubin(made), tools.version(tool)
    except UnreadableError:
        raise Error(f"{tool}: its output is not a cubin") from None


def _batches(cubin: Cubin, names: Iterable[str]) -> Iterator[list[tuple[str, int, memoryview]]]:
    """Yields kernels with their sections and code, in batches that are disassembled together."""
    batch: list[tuple[str, int, memoryview]] = []
    size = 0
    for name in names:
        try:
            section, text = cubin.code(name)
        except UnreadableError:
            continue
        if batch and size + len(text) > BATCH:
            yield batch
            batch, size = [], 0
        batch.append((name, section, text[: len(text) // decode.SIZE * decode.SIZE]))
        size += len(text)
    if batch:
        yield batch


def _disassembled(texts: Sequence[memoryview], architecture: int) -> tuple[list[list[str]], str]:
    """Returns the instructions of each kernel as text, and the tool."""
    said, tool = tools.disassembled(b"".join(texts), architecture)
    found = [match for line in said.splitlines() if (match := LINE.fullmatch(line))]
    if len(found) != sum(map(len, texts)) // decode.SIZE:
        raise Error(f"{tool}: its output lacks instructions")
    out, at = [], 0
    for text in texts:
        count = len(text) // decode.SIZE
        base = at * decode.SIZE
        out.append([_based(match[2], base) for match in found[at : at + count]])
        at += count
    return out, tools.version(tool)


def _based(line: str, base: int) -> str:
    """Returns an instruction at another address, with its target moved likewise."""
    if base and RELATIVE.match(line):
        return LAST.sub(lambda m: hex((int(m[1], 16) - base) & ((1 << 64) - 1)), line)
    return line


def _instructions(
    code: memoryview, said: Sequence[str], known: lines.Lines | None
) -> list[dict[str, Any]]:
    words = np.frombuffer(code, "<u8").reshape(-1, 2)
    control = decode.control(words)
    pairs = zip(words[:, 1].tolist(), words[:, 0].tolist(), strict=True)
    rows = []
    for i, (line, (high, low), *bits) in enumerate(
        zip(said, pairs, *control.values(), strict=True)
    ):
        text = decode.parsed(line)
        source_line = known.line(i * decode.SIZE) if known else None
        rows.append(
            {
                "opcode_id": i,
                "pc": i * decode.SIZE,
                "sass": text.sass,
                "opcode": text.opcode,
                "mnemonic": text.mnemonic,
                "operands": list(text.operands),
                "predicate": text.predicate,
                "category": text.category,
                "delay_point": text.delay_point,
                "binary": f"{high:016x}{low:016x}",
                **text.registers._asdict(),
                "target": text.target,
                "file": source_line.file if source_line else None,
                "line": source_line.line if source_line else None,
                "inlined_at": list(source_line.inlined_at) if source_line else [],
                **dict(zip(control, bits, strict=True)),
            }
        )
    return rows


# ---- of a run ----


def matcher(kernel: str | None) -> Wanted:
    """Returns a function that selects mangled names.

    kernel: a regular expression for the mangled or the demangled name. Raises Error if it is
    malformed.
    """
    if kernel is None:
        return list
    try:
        wanted = re.compile(kernel)
    except re.error as e:
        raise Error(f"--kernel {kernel}: not a regular expression: {e}") from None

    def those(names: Sequence[str]) -> list[str]:
        pairs = zip(names, demangle.demangle(names), strict=True)
        return [pair[0] for pair in pairs if any(map(wanted.search, pair))]

    return those


@dataclass(frozen=True)
class Recorded:
    """A kernel of a run. image: the digest of its module's image."""

    name: str
    checksum: str
    process: Process
    image: int


def recorded(run: Run, kernel: str | None = None) -> list[Recorded]:
    """Returns the kernels of a run with saved code, each code once. Only their modules are read."""
    wanted = matcher(kernel)
    found: dict[str, Recorded] = {}
    for process in run.processes:
        modules = process.modules
        images = dict(zip(modules["id"].tolist(), modules["image"].tolist(), strict=True))
        names: dict[int, dict[str, None]] = {}
        for function in process.functions:
            image = images.get(int(function["module"]), 0)
            name = process.strings.get(int(function["name"]))
            if image and name:
                names.setdefault(image, {})[name] = None
        some = set(wanted(list(dict.fromkeys(name for of in names.values() for name in of))))
        for image, of in names.items():
            mine = [name for name in of if name in some]
            contents = image_of(process, image) if mine else None
            sums = kernels.checksums(contents, mine) if contents else [None] * len(mine)
            for name, checksum in zip(mine, sums, strict=True):
                if checksum is not None:
                    found.setdefault(checksum, Recorded(name, checksum, process, image))
    return list(found.values())


def of_traced(process: Process, function: int, name: str) -> Table | None:
    """Returns the table of what the driver made of a traced kernel's PTX, None if that was not
    saved.

    Args:
        process: The process.
        function: The number of the kernel.
        name: Its mangled name.

    Raises:
        Error: The code cannot be disassembled.
    """
    traced = process.traced
    compiled = traced["image"][(traced["function"] == function) & (traced["image"] != 0)]
    image = image_of(process, int(compiled[0])) if len(compiled) else None
    if image is None:
        return None
    found = of_codes(codes(image), image, lambda names: [n for n in names if n == name])
    return next(found, None)


def of_run(
    run: Run,
    kernel: str | None = None,
    capability: int = 0,
    progress: Progress = None,
    refused: list[str] | None = None,
) -> Iterator[Table]:
    """Yields tables of the kernels of a run, for its devices or for another capability.

    refused: gets one line per module that cannot be disassembled. Raises Error if none can.
    """
    found = recorded(run, kernel)
    waiting = {each.checksum: each for each in found}
    reasons: list[str] = []
    given = False
    for each in found:
        if each.checksum not in waiting:
            continue
        try:
            for table in _of_module(run, each, waiting, capability):
                del waiting[table.kernel_checksum]
                given = True
                tell(progress, len(found) - len(waiting), len(found))
                yield table
        except Error as e:
            reasons.append(f"{each.name}: {e}")
        for other in [k for k in waiting.values() if k.image == each.image]:
            waiting.pop(other.checksum)
    if reasons and not given:
        raise Error(reasons[0])
    if refused is not None:
        refused += reasons


def _of_module(
    run: Run, first: Recorded, waiting: Mapping[str, Recorded], capability: int
) -> Iterator[Table]:
    """Yields the tables of the waiting kernels of one module, kept ones first."""
    same = {k.checksum: k.name for k in waiting.values() if k.image == first.image}
    if not capability:
        for checksum in list(same):
            kept = _kept(run, checksum)
            if kept is not None:
                del same[checksum]
                yield kept
    if not same:
        return
    image = image_of(first.process, first.image) or b""
    sums = {name: checksum for checksum, name in same.items()}
    device = capability or _capability(first.process)
    found = codes(image, device)

    def wanted(names: Sequence[str]) -> list[str]:
        return [name for name in names if name in sums]

    for table in of_codes(found, image, wanted, device, sums):
        if same.pop(table.kernel_checksum, None) is not None:
            if not capability:
                _keep(run, table)
            yield table


def _capability(process: Process) -> int:
    """Returns the capability of the devices of a process, 0 if they differ."""
    found = {int(device.get("capability", 0)) for device in process.info.get("devices", [])}
    return found.pop() if len(found) == 1 else 0


def _path(run: Run, checksum: str) -> Path:
    return run.path / FOLDER / f"{checksum}.json"


def _kept(run: Run, checksum: str) -> Table | None:
    path = _path(run, checksum)
    if not path.is_file():
        return None
    table = read(path)
    if table.kernel_checksum != checksum:
        raise FormatError(path, "kernel_checksum", "another kernel's table")
    return table


def read(path: Path) -> Table:
    """Reads a kept instruction table.

    Args:
        path: The file, RUN/sass/CHECKSUM.json.

    Raises:
        Error: The file cannot be read.
        FormatError: The file does not follow the schema.
    """
    made = read_json(path)
    for where, reason in document_faults("instructions", made):
        raise FormatError(path, where or "the whole", reason)
    members = {name: made.get(name, "") for name in Table.__dataclass_fields__}
    return Table(**members)


def _keep(run: Run, table: Table) -> None:
    """Writes a table into the run, if the run is writable."""
    path = _path(run, table.kernel_checksum)
    with contextlib.suppress(OSError), directory(run.path.resolve()) as above:
        with contextlib.suppress(FileExistsError):
            os.mkdir(path.parent.name, 0o700, dir_fd=above)
        with directory(path.parent.name, above) as folder:
            replace_in(folder, path.name, orjson.dumps(table.to_object()))


def open_image(path: Path) -> bytes:
    """Returns the contents of a file with code. Raises Error if it cannot be read or is too
    large.
    """
    return read_regular(path, LARGEST)
