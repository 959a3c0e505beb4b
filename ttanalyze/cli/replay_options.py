"""Options and notes of `replay` and `prove`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ttanalyze.cli.common import as_json, print_text, say
from ttanalyze.errors import Error
from ttanalyze.output import text

if TYPE_CHECKING:
    from ttanalyze.format.process import Process
    from ttanalyze.gpu.device import Device

SimOption = Annotated[bool, typer.Option("--sim", help="Use the simulator, without a GPU.")]

LaunchOption = Annotated[
    list[int] | None,
    typer.Option(
        "--launch", metavar="N", help="A launch, by its seq number (see `query`); repeatable."
    ),
]

KernelOption = Annotated[
    str | None,
    typer.Option(
        "--kernel",
        metavar="REGEX",
        help="Launches of kernels whose name matches (default: all kernels). Uses launches "
        "recorded with --replayable, or all launches if there are none.",
    ),
]

OneLaunchOption = Annotated[
    int | None, typer.Option(metavar="N", help="The launch, by its seq number (see `query`).")
]

OneKernelOption = Annotated[
    str | None,
    typer.Option(metavar="REGEX", help="The first usable launch of a kernel whose name matches."),
]

DtypeOption = Annotated[
    str | None,
    typer.Option(
        "--dtype",
        metavar="TYPES",
        help="Types of the memory, separated by commas: f32, bf16 ...; type for one region: "
        "REGION=TYPE.",
    ),
]

ToleranceOption = Annotated[
    list[str] | None,
    typer.Option(
        "--tolerance",
        metavar="ABS,REL,ULP",
        help="Largest difference that counts as equal, by any of the three; needs --dtype. For one "
        "region: REGION=ABS,REL,ULP; repeatable. l1:ABS,REL, l2: and linf: limit a norm of all "
        "differences instead.",
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
        raise Error(f"--kernel {kernel}: {none}; try one with --launch N")
    return seqs, others


def tell_launches(
    run: Path, of: Process, found: Sequence[Any], others: int, shown: str, json: bool
) -> bool:
    """Prints what launches did, and how many were left out; whether the recording failed."""
    from ttanalyze.verbs.replay.run import REFUSED
    from ttanalyze.verbs.replay.show import reasons

    if json:
        answer = {
            "run": str(run),
            "process": of.index,
            "launches": [one.as_dict() for one in found],
        }
        print_text(as_json(answer | {"not_kept": others, "failure": of.failure}))
        return of.failure is not None
    if shown:
        print_text(shown)
    for line in reasons(found, REFUSED):
        say(line)
    if others:
        many = text.count(others, "other launch", "other launches")
        print_text(f"{many} not recorded with --replayable; try one with --launch N")
    return say_failure(of, json)


def say_failure(of: Process, json: bool) -> bool:
    """Whether the recording failed. Prints one line about it."""
    if of.failure is not None and not json:
        say(f"the end of the recording is missing: {of.failure}")
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
