"""The options of `ttanalyze memcheck`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ttanalyze.cli import common
from ttanalyze.output import text

if TYPE_CHECKING:
    from ttanalyze.verbs.memcheck import BadAccess, LaunchAccesses, Memcheck

verbs = typer.Typer()
WHAT = {"outside": "outside of allocations", "freed": "freed memory", "misaligned": "misaligned"}


@verbs.command(
    epilog="\b\nExamples:\n"
    "  ttanalyze instrument --kind addresses --kernel softmax -o run -- ./softmax\n"
    "  ttanalyze memcheck run\n"
    "  ttanalyze memcheck run --launch 31 --json"
)
def memcheck(
    run: common.RunArgument,
    launch: Annotated[
        int | None,
        typer.Option(
            metavar="SEQ",
            min=1,
            help="The launch, by its seq number (see `query`; default: all traced launches).",
        ),
    ] = None,
    process: common.ProcessOption = 0,
    rank: common.RankOption = None,
    json: common.JsonOption = False,
) -> int:
    """Find accesses of traced launches to memory that is not allocated.

    The trace has the address of each access, so the instruction, the source line and the thread
    are exact. The exit status is 1 if something was found, 2 if a launch without findings was not
    traced completely. `compute-sanitizer` needs no trace, but the program once more under it.
    """
    from ttanalyze.format import open_run
    from ttanalyze.verbs.memcheck import memcheck as find

    opened = open_run(run)
    report = find(opened, launch, process, rank)
    common.print_text(report.to_json() if json else _text(report))
    common.say_other_traces(opened, process, rank)
    if report.found:
        return common.DIFFERS
    return common.ERROR if report.unclear else common.SAME


def _text(report: Memcheck) -> str:
    from ttanalyze.code.demangle import demangle, short

    kernels = demangle([launch.kernel for launch in report.launches])
    out: list[str] = []
    for launch, kernel in zip(report.launches, kernels, strict=True):
        out += _launch(launch, text.printable(short(kernel)))
    return "\n".join(out)


def _launch(launch: LaunchAccesses, kernel: str) -> list[str]:
    wrong = sum(one.count for one in launch.found)
    verdict = text.count(wrong, "wrong access", "wrong accesses") if wrong else "clean"
    if launch.missing and not wrong:
        verdict = "unclear"
    examined = f"{text.count(launch.accesses, 'access', 'accesses')} examined"
    if launch.elsewhere:
        examined += f", {launch.elsewhere:,} to shared or local memory not"
    of = "" if launch.replays is None else f", a replay of launch {launch.replays}"
    out = [f"launch {launch.launch} of {kernel}{of}: {verdict} ({examined})"]
    out += [f"  not covered: {text.printable(line)}" for line in launch.missing]
    for one in launch.found:
        out += ["", *(f"  {line}" for line in text.rows(_rows(one)).splitlines())]
    return [*out, ""] if launch.found else out


def _rows(one: BadAccess) -> list[tuple[str, str]]:
    where = f" at {text.printable(one.line)}" if one.line else ""
    who = f"block {text.coordinates(one.block)}, thread {text.coordinates(one.thread)}"
    count = text.count(one.count, "access", "accesses")
    rows = [(WHAT[one.what], f"{count} of {one.size} bytes ({one.access})")]
    rows.append(("instruction", f"{text.printable(one.text)} ({one.number}){where}"))
    rows.append(("first", f"{who}: {one.address:#x}"))
    if one.region is not None:
        made = f", allocated by {text.printable(one.allocated or '')}" if one.allocated else ""
        rows.append(("memory", f"{_distance(one)}region {one.region}{made}"))
    return rows


def _distance(one: BadAccess) -> str:
    if one.what == "outside" and one.distance < 0:
        return f"{-one.distance:,} bytes before "
    if one.what == "outside":
        return f"{one.distance:,} bytes after the end of "
    return "in "
