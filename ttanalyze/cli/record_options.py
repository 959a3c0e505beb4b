"""The options of verbs that record a program; those of the recorder are from their table."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ttanalyze import options
from ttanalyze.cli.help import choices

if TYPE_CHECKING:
    from ttanalyze.verbs.record.run import Recorded

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


TRACING = {  # options of the recorder, by the option of verbs that trace instructions
    "kernel": "instrument_kernel",
    "launch": "instrument_launch",
    "every": "instrument_every",
    "instructions": "instrument_instructions",
    "category": "instrument_category",
    "blocks": "instrument_blocks",
    "addresses": "instrument_addresses",
    "max_records": "instrument_records",
    "ring_bytes": "instrument_ring",
    "way": "instrument_way",
}


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _parameter(name: str, option: options.Option) -> inspect.Parameter:
    flag, metavar = _flag(name), option.metavar
    kind: Any = list[str] if option.kind == "TRIGGERS" else str
    if option.kind == "SWITCH":
        flag += f"/--no-{flag[2:]}" if option.normal == "1" else ""
        kind, metavar = bool, None
    complete = choices(option.limit) if option.kind in ("CHOICE", "WORDS") else None
    told: Any = Annotated[
        kind | None,
        typer.Option(flag, metavar=metavar, help=option.help, autocompletion=complete),
    ]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=told)


Decorator = Callable[[Callable[..., int]], Callable[..., int]]


def _options_for(place: str, names: Mapping[str, str], check: bool) -> Decorator:
    def decorate(verb: Callable[..., int]) -> Callable[..., int]:
        @functools.wraps(verb)
        def with_options(**given: Any) -> int:
            taken = {option: given.pop(name) for name, option in names.items()}
            if "epoch" in taken:
                taken["epoch"] = ";".join(taken["epoch"]) if taken["epoch"] else None
            for name, option in names.items() if check else ():
                if taken[option] is not None:
                    options.check(_flag(name), option, taken[option])
            return verb(**{place: taken}, **given)

        made = [_parameter(name, options.TABLE[option]) for name, option in names.items()]
        parameters: list[inspect.Parameter] = []
        for parameter in inspect.signature(verb, eval_str=True).parameters.values():
            parameters += made if parameter.name == place else [parameter]
        with_options.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        return with_options

    return decorate


def recorder_options(*names: str) -> Decorator:
    """Gives a verb these options in the place of its parameter `recorded`: a dict of all of them,
    for options.variables.
    """
    return _options_for("recorded", dict(zip(names, names, strict=True)), check=False)


def tracing_options(*names: str) -> Decorator:
    """The same for options of TRACING, in the place of the parameter `traced`. They are checked."""
    return _options_for("traced", {name: TRACING[name] for name in names}, check=True)


def traced_text(run: Path) -> str:
    """What was traced, as one line."""
    from ttanalyze.core.traced import totals, totals_text
    from ttanalyze.format import open_run

    found = totals(open_run(run).processes) or {"launches": 0, "bytes": 0, "refused": {}}
    return f"traced {totals_text(found)}: ttanalyze query {run} --table traced"


def say_hangs(done: Recorded) -> None:
    """Prints what the warps of launches did that had not ended, if that is known."""
    from ttanalyze.format import open_run
    from ttanalyze.traces.hangs import hangs
    from ttanalyze.verbs.record.run import say

    for hang in hangs(open_run(done.out)) if done.hang else []:
        for line in hang.lines():
            say(line)
