"""Options that change a recorded launch: its sizes, how its code is compiled, or other code."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from ttanalyze import options
from ttanalyze.cli import common
from ttanalyze.cli.help import choices
from ttanalyze.errors import Error
from ttanalyze.output import text

if TYPE_CHECKING:
    from collections.abc import Callable as Opener

    from ttanalyze.format.process import Process
    from ttanalyze.gpu import Device
    from ttanalyze.verbs.replay.changes import Change

KINDS = "none|args|dims|all"

GridOption = Annotated[
    str | None, Option(metavar="SIZE", help="Another grid: 132, 16x16 or 8x8x4 blocks.")
]
BlockOption = Annotated[
    str | None, Option(metavar="SIZE", help="Another block: 128, 16x16 or 8x8x4 threads.")
]
SharedOption = Annotated[
    str | None, Option(metavar="BYTES", help="Another size of dynamic shared memory: 0, 16K ...")
]
BoundsOption = Annotated[
    str | None,
    Option(
        metavar="T[,B]",
        help="Compile for blocks of at most T threads, and B blocks per multiprocessor; needs PTX.",
    ),
]
MaxregsOption = Annotated[
    int | None,
    Option(metavar="R", min=1, max=255, help="Compile for at most R registers; needs PTX."),
]
SpecializeOption = Annotated[
    str | None,
    Option(
        metavar="WHAT",
        autocompletion=choices(KINDS),
        help="Compile the arguments (args), the sizes of block and grid (dims) or both (all) into "
        "the code as constants; needs PTX.",
    ),
]
CodeOption = Annotated[
    Path | None,
    Option(
        metavar="FILE",
        help="Other code, with a kernel of the same name and parameters: .ptx, .cubin, .fatbin, "
        ".cu (needs NVRTC), .ll or .bc (LLVM IR; needs NVVM).",
    ),
]
DumpOption = Annotated[
    Path | None,
    Option(metavar="FILE", help="Write the code of the launch as PTX, for --code, and end."),
]


def parse_specialize(value: str) -> str:
    """Parses the value of --specialize. Raises Error for an unknown word."""
    if value not in KINDS.split("|"):
        raise Error(f"--specialize {value}: must be {KINDS.replace('|', ', ')}")
    return value


def parse_change(
    grid: str | None,
    block: str | None,
    shared: str | None,
    launch_bounds: str | None,
    maxregs: int | None,
    specialize: str | None,
) -> Change:
    """Parses the options. Raises Error with the name of the option."""
    from ttanalyze.verbs.replay.changes import Change, parse_bounds, parse_three

    def parsed(parse: Callable[[str], Any], value: str | None) -> Any:
        return None if value is None else parse(value)

    def dynamic(value: str) -> int:
        try:
            return options.parse_size(value)
        except Error as e:
            raise Error(f"--shared {value}: {e}") from None

    return Change(
        parsed(lambda value: parse_three(value, "--grid"), grid),
        parsed(lambda value: parse_three(value, "--block"), block),
        parsed(dynamic, shared),
        maxregs,
        None,
        parsed(parse_bounds, launch_bounds),
        parsed(parse_specialize, specialize) or "none",
    )


def parse_code(code: Path | None, opener: Opener[[], Device]) -> tuple[str, bytes] | None:
    """Reads a file with other code and compiles it for the device."""
    if code is None:
        return None
    from ttanalyze.verbs.replay import compilers
    from ttanalyze.verbs.replay.changes import architecture

    data = compilers.read(code)
    if code.suffix in compilers.SOURCES:
        data = compilers.compiled(code, data, architecture(opener()))
    return code.name, data


def dump(of: Process, launch: int, path: Path, json: bool) -> int:
    """Writes what can be edited of the code of a launch."""
    from ttanalyze.verbs.replay.changes import editable
    from ttanalyze.verbs.replay.plan import plan

    if path.suffix != ".ptx":
        raise Error(f"--dump-ir {path}: the name must end in .ptx")
    common.check_output(path)
    planned = plan(of, launch)
    found = editable(planned)
    common.write_file(path, found.decode("latin-1"))
    answer = {"file": str(path), "launch": launch, "kernel": planned.kernel, "bytes": len(found)}
    said = (
        f"{path}: PTX of launch {launch}, {text.size(len(found))}; edit it, then give it to --code"
    )
    common.print_text(common.as_json(answer) if json else said)
    return common.SAME
