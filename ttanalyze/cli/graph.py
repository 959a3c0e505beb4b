"""The options of `ttanalyze graph`."""

from __future__ import annotations

from typer import Option, Typer

from ttanalyze.cli import common

verbs = Typer()


@verbs.command(
    epilog="\b\nExamples:\n"
    "  ttanalyze graph run1\n"
    "  ttanalyze graph run1 --graph 3\n"
    "  ttanalyze graph run1 --graph 3 --at 1200     # at call 1200\n"
    "  ttanalyze graph run1 --graph 3 --dot | dot -Tsvg -o graph3.svg"
)
def graph(
    run: common.RunArgument,
    number: int | None = Option(
        None, "--graph", metavar="N", help="Show one graph: its nodes in order."
    ),
    process: int = Option(0, metavar="N", help="Index of the process; needs --graph."),
    rank: common.RanksOption = None,
    at: int | None = Option(
        None, metavar="SEQ", help="Show the graph at this call (default: at the end of the run)."
    ),
    dot: bool = Option(False, "--dot", help="Write --graph, or all graphs, for Graphviz."),
    out: common.OutOption = None,
    json: common.JsonOption = False,
    quiet: common.QuietOption = False,
) -> None:
    """List and draw the executable graphs of a run: nodes, edges, parameters, changes, launches."""
    from ttanalyze.errors import Error
    from ttanalyze.format import open_run
    from ttanalyze.output.tables import as_records
    from ttanalyze.verbs import graphs
    from ttanalyze.verbs.graphs import show

    if at is not None and number is None:
        raise Error("--at needs --graph N")
    if process and number is None:
        raise Error("--process needs --graph N")
    if json and dot:
        raise Error("--json and --dot cannot be combined")
    common.check_output(out)
    opened = open_run(run, common.parse_ranks(rank))
    if opened.processes and all(p.without_events for p in opened.processes):
        raise Error(f"{run}: has no graphs, because it was recorded with --no-events")
    width = common.screen_width() if out is None else 0
    if number is not None:
        of = opened.process(process) if rank is None else opened.processes[0]
        one = graphs.graph(opened, number, of.index, at)
        shown = one.to_json() if json else show.graph_text(one, width)
        shown = graphs.dot([one]) if dot else shown
    elif dot:
        shown = graphs.dot(
            graphs.graph(opened, n, p.index) for p in opened.processes for n in range(len(p.graphs))
        )
    else:
        with common.progress_bar("counting launches", quiet) as progress:
            found = graphs.graphs(opened, progress)
        text = show.graphs_text(found, len(opened.processes), width)
        shown = common.as_json({"graphs": as_records(found)}) if json else text
    if out is None:
        common.print_text(shown)
    else:
        common.write_file(out, shown + "\n")
