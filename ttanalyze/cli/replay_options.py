"""What the verbs share that run recorded work again: their options and remarks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from ttanalyze.cli.common import (
    print_text,
)
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


def none_of(of: Process, kernel: str | None, others: int) -> str:
    """Why there is no launch to be done again."""
    if not others:
        from ttanalyze.verbs.replay.plan import none_of

        return none_of(of, kernel)
    many = text.count(others, "launch", "launches")
    none = f"none of {many} was recorded with --replayable"
    return f"--kernel {kernel}: {none}; --launch N tries one nevertheless"


def say_others(others: int, json: bool) -> None:
    """One line on launches that were left out."""
    if others and not json:
        many = text.count(others, "other launch", "other launches")
        print_text(f"{many} not kept by --replayable; --launch N tries one nevertheless")


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


def open_device(ordinal: int, sim: bool) -> Device:
    from ttanalyze.gpu import Device, driver, simulator

    return Device(ordinal, simulator() if sim else driver())
