"""What the verbs share that run recorded work again: their options and remarks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ttanalyze.cli.common import as_json, print_text
from ttanalyze.errors import Error
from ttanalyze.output import text

if TYPE_CHECKING:
    from ttanalyze.format.process import Process
    from ttanalyze.gpu.device import Device

SimOption = Annotated[bool, typer.Option("--sim", help="On the simulator, without a GPU.")]

LaunchOption = Annotated[
    list[int] | None,
    typer.Option(
        "--launch",
        metavar="N",
        help="A launch, by its number in the order of calls (seq of `query`); may be given again.",
    ),
]

KernelOption = Annotated[
    str | None,
    typer.Option(
        "--kernel",
        metavar="REGEX",
        help="Launches of kernels with such a name (default: of all): those recorded for it, or "
        "all, where none was.",
    ),
]

OneLaunchOption = Annotated[
    int | None, typer.Option(metavar="N", help="Which launch, by the number of its call.")
]

OneKernelOption = Annotated[
    str | None,
    typer.Option(metavar="REGEX", help="The first launch of a kernel of such a name that can."),
]

DtypeOption = Annotated[
    str | None,
    typer.Option(
        "--dtype",
        metavar="TYPES",
        help="What memory holds, such as f32; type for one region: REGION=TYPE; separated by "
        "commas.",
    ),
]

ToleranceOption = Annotated[
    list[str] | None,
    typer.Option(
        "--tolerance",
        metavar="ABS,REL,ULP",
        help="What does not count as different, by any of the three; needs --dtype. Of single "
        "regions REGION=ABS,REL,ULP; may be given again.",
    ),
]


def find_launches(
    of: Process, launch: list[int] | None, kernel: str | None
) -> tuple[list[int], int]:
    """Which launches to do again, and how many others were not kept. Raises Error for none."""
    from ttanalyze.verbs.replay.plan import choice, none_of

    if launch:
        return launch, 0
    seqs, others = choice(of, kernel)
    if not seqs and not others:
        raise Error(none_of(of, kernel))
    if not seqs:
        none = f"none of {text.count(others, 'launch', 'launches')} was recorded with --replayable"
        raise Error(f"--kernel {kernel}: {none}; --launch N tries one nevertheless")
    return seqs, others


def tell_launches(
    run: Path, of: Process, found: Sequence[Any], others: int, shown: str, json: bool
) -> bool:
    """Prints what launches did, and how many were left out; whether the recording failed."""
    if json:
        said = {"run": str(run), "process": of.index, "launches": [one.as_dict() for one in found]}
        print_text(as_json(said | {"not_kept": others, "failure": of.failure}))
        return of.failure is not None
    print_text(shown)
    if others:
        many = text.count(others, "other launch", "other launches")
        print_text(f"{many} not kept by --replayable; --launch N tries one nevertheless")
    return say_failure(of, json)


def say_failure(of: Process, json: bool) -> bool:
    """Whether the recording failed, and one line on it."""
    if of.failure is not None and not json:
        print_text(f"what came later is missing: {text.printable(of.failure)}")
    return of.failure is not None


def parse_types_of(of: Process, dtype: str | None, tolerance: list[str] | None) -> tuple[Any, Any]:
    if dtype is None:
        if tolerance:
            raise Error("--tolerance needs --dtype")
        return {}, {}
    from ttanalyze.verbs.diff import parse_types
    from ttanalyze.verbs.replay.compare import check_regions, parse_tolerances

    types, tolerances = parse_types(dtype), parse_tolerances(tolerance or ())
    check_regions(of, types, tolerances)
    return types, tolerances


def device_opener(ordinal: int, sim: bool) -> Callable[[], Device]:
    """What opens the device when it is needed."""

    def open_device() -> Device:
        from ttanalyze.gpu import Device, driver, simulator

        return Device(ordinal, simulator() if sim else driver())

    return open_device
