"""The options of `ttanalyze graph`."""

from __future__ import annotations

from typer import Option, Typer

from ttanalyze.cli import common

verbs = Typer()


@verbs.command(
    epilog="\b\nExamples:\n"
    "  ttanalyze graph run1\n"
    "  ttanalyze graph run1 --graph 3\n"
    "  ttanalyze graph run1 --graph 3 --at 1200     # as call 1200 found it\n"
    "  ttanalyze graph run1 --graph 3 --dot | dot -Tsvg -o graph3.svg"
)
def graph(
    run: common.RunArgument,
    number: int | None = Option(
        None, "--graph", metavar="N", help="Show one: its nodes, in order."
    ),
    process: int = Option(0, metavar="N", help="Whose, with --graph."),
    at: int | None = Option(
        None,
        metavar="SEQ",
        help="As this call found it, or left it (default: as it was in the end).",
    ),
    dot: bool = Option(False, "--dot", help="Draw it, or all: for Graphviz."),
    out: common.OutOption = None,
    json: common.JsonOption = False,
    quiet: common.QuietOption = False,
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
    common.check_output(out)
    opened = open_run(run)
    if opened.processes and all(p.without_events for p in opened.processes):
        raise Error("recorded with --no-events: its graphs are not known")
    width = common.screen_width() if out is None else 0
    if number is not None:
        one = graphs.graph(opened, number, process, at)
        shown = common.as_json(graphs.to_object(one)) if json else graphs.graph_text(one, width)
        shown = graphs.dot([one]) if dot else shown
    elif dot:
        shown = graphs.dot(
            graphs.graph(opened, n, p.index) for p in opened.processes for n in range(len(p.graphs))
        )
    else:
        with common.progress_bar("counting launches", quiet) as progress:
            found = graphs.graphs(opened.processes, progress)
        text = graphs.graphs_text(found, len(opened.processes), width)
        shown = common.as_json({"graphs": graphs.rows(found)}) if json else text
    if out is None:
        common.print_text(shown)
    else:
        common.write_file(out, shown + "\n")
