"""The options of verbs that record a program; those of the recorder are from their table."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from ttanalyze import options

OutOption = Annotated[
    Path | None, typer.Option("--out", "-o", metavar="DIR", help=options.TABLE["out"].help)
]
ProgramArgument = Annotated[
    list[str], typer.Argument(metavar="PROGRAM", help="The program to run, and its arguments.")
]
SimOption = Annotated[bool, typer.Option("--sim", help="Run on the simulator instead of a GPU.")]
ForceOption = Annotated[
    bool, typer.Option("--force", "-f", help="Replace an existing run directory.")
]
SummaryOption = Annotated[
    bool, typer.Option("--json", help="Print a summary as JSON, on standard error.")
]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Print no summary.")]


def _parameter(name: str) -> inspect.Parameter:
    option = options.TABLE[name]
    flag, metavar = option.flag, option.metavar
    kind: Any = list[str] if option.kind == "TRIGGERS" else str
    if option.kind == "SWITCH":
        flag += f"/--no-{flag[2:]}" if option.normal == "1" else ""
        kind, metavar = bool, None
    told: Any = Annotated[kind | None, typer.Option(flag, metavar=metavar, help=option.help)]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=told)


def recorder_options(*names: str) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Gives a verb these options in the place of its parameter `recorded`: a dict of all of them,
    for options.variables.
    """

    def decorate(verb: Callable[..., int]) -> Callable[..., int]:
        @functools.wraps(verb)
        def with_options(**given: Any) -> int:
            recorded = {name: given.pop(name) for name in names}
            if "epoch" in recorded:
                recorded["epoch"] = ";".join(recorded["epoch"]) if recorded["epoch"] else None
            return verb(recorded=recorded, **given)

        parameters: list[inspect.Parameter] = []
        for parameter in inspect.signature(verb, eval_str=True).parameters.values():
            others = map(_parameter, names) if parameter.name == "recorded" else [parameter]
            parameters += others
        with_options.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        return with_options

    return decorate
