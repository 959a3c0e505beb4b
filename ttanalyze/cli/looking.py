"""Verbs with which one looks around in a run."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Annotated

import typer

from ttanalyze.cli.common import (
    JsonOption,
    ProcessOption,
    QuietOption,
    RunArgument,
    as_json,
    check_output,
    print_text,
    progress_bar,
    write_file,
)

verbs = typer.Typer()


@verbs.command(
    epilog="\b\nExamples:\n"
    "  ttanalyze tui run1\n"
    "  ttanalyze tui run1 --epoch 12 --region weights --offset 0x1000 --dtype f32"
)
def tui(
    run: RunArgument,
    process: ProcessOption = 0,
    epoch: Annotated[
        int | None, typer.Option(metavar="E", help="Where to begin (default: the last epoch).")
    ] = None,
    region: Annotated[
        str | None,
        typer.Option(
            "--region", "-r", metavar="R", help="Id or label (default: one that changed)."
        ),
    ] = None,
    offset: Annotated[
        str, typer.Option(metavar="BYTES", help="Where in the region, such as 4096 or 0x1000.")
    ] = "0",
    dtype: Annotated[
        str, typer.Option(metavar="TYPE", help="hex (default), or a type such as f32, bf16, i32.")
    ] = "hex",
) -> None:
    """Look into a run in the terminal: epochs, regions and memory, step by step in time.

    Press ? there for all keys. Needs a terminal and the extra [tui].
    """
    from ttanalyze.errors import Error
    from ttanalyze.format import open_run
    from ttanalyze.tui import tui as browse

    try:
        start = int(offset, 0)
    except ValueError:
        raise Error(f"--offset {offset}: a number such as 4096 or 0x1000 is expected") from None
    browse(open_run(run), process, epoch, region, start, dtype)


@verbs.command(
    epilog="\b\nExamples:\n"
    "  ttanalyze report run1\n"
    "  ttanalyze report run1 --against run2 -o where-they-part.html"
)
def report(
    run: RunArgument,
    against: Annotated[
        Path | None,
        typer.Option(metavar="RUN2", help="Show as well where this run parts from the first."),
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="The page.")] = Path(
        "report.html"
    ),
    json: Annotated[bool, typer.Option("--json", help="Say where it is as JSON.")] = False,
    quiet: QuietOption = False,
) -> None:
    """Make one web page of a run: calls, memory and its changes over time, kernels, allocations.

    The page needs nothing but a browser: no server, no network. Making it needs the extra
    [report].
    """
    from ttanalyze.format import open_run
    from ttanalyze.output import text
    from ttanalyze.verbs.report import report as page

    check_output(out)
    opened = open_run(run)
    other = None if against is None else open_run(against)
    with progress_bar("looking", quiet) as progress:
        made = page(opened, other, progress)
    write_file(out, made)
    size = len(made.encode())
    print_text(as_json({"page": str(out), "bytes": size}) if json else f"{out}: {text.size(size)}")


@verbs.command(
    epilog="\b\nExamples:\n"
    "  ttanalyze graph run1\n"
    "  ttanalyze graph run1 --graph 3\n"
    "  ttanalyze graph run1 --graph 3 --at 1200     # as call 1200 found it\n"
    "  ttanalyze graph run1 --graph 3 --dot | dot -Tsvg -o graph3.svg"
)
def graph(
    run: RunArgument,
    number: Annotated[
        int | None, typer.Option("--graph", metavar="N", help="Show one: its nodes, in order.")
    ] = None,
    process: Annotated[int, typer.Option(metavar="N", help="Whose, with --graph.")] = 0,
    at: Annotated[
        int | None,
        typer.Option(
            metavar="SEQ", help="As this call found it, or left it (default: as it was in the end)."
        ),
    ] = None,
    dot: Annotated[bool, typer.Option("--dot", help="Draw it, or all: for Graphviz.")] = False,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write it to a file.")
    ] = None,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """List and draw the executable graphs of a run: nodes, edges, parameters, changes, launches."""
    from ttanalyze.errors import Error
    from ttanalyze.format import open_run
    from ttanalyze.verbs import graphs

    if at is not None and number is None:
        raise Error("--at says how to look at one graph: say which with --graph N")
    if process and number is None:
        raise Error("--process says whose graph is meant: say which with --graph N")
    if json and dot:
        raise Error("--json and --dot: one of them")
    check_output(out)
    opened = open_run(run)
    if opened.processes and all(p.without_events for p in opened.processes):
        raise Error("recorded with --no-events: its graphs are not known")
    width = shutil.get_terminal_size().columns if out is None and os.isatty(1) else 0
    if number is not None:
        one = graphs.graph(opened, number, process, at)
        shown = as_json(graphs.to_object(one)) if json else graphs.graph_text(one, width)
        shown = graphs.dot([one]) if dot else shown
    elif dot:
        shown = graphs.dot(
            graphs.graph(opened, n, p.index) for p in opened.processes for n in range(len(p.graphs))
        )
    else:
        with progress_bar("counting launches", quiet) as progress:
            found = graphs.graphs(opened.processes, progress)
        text = graphs.graphs_text(found, len(opened.processes), width)
        shown = as_json({"graphs": graphs.rows(found)}) if json else text
    if out is None:
        print_text(shown)
    else:
        write_file(out, shown + "\n")
