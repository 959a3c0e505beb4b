"""The options of `ttanalyze launches`."""

from __future__ import annotations

from typer import Option, Typer

from ttanalyze.cli import common

verbs = Typer()


@verbs.command(
    epilog="\b\nExamples:\n"
    "  ttanalyze record --replayable -o run1 -- ./program\n"
    "  ttanalyze launches run1\n"
    "  ttanalyze launches run1 --json -o run1/launches.json\n"
    "  ttanalyze launches run1 --names _Z5saxpyifPfS_,_Z4sumsPf --json"
)
def launches(
    run: common.RunArgument,
    names: str | None = Option(
        None, metavar="LIST", help="Only kernels with exactly these mangled names; with commas."
    ),
    kernel: str | None = Option(
        None, metavar="REGEX", help="Only kernels whose mangled or demangled name matches."
    ),
    out: common.OutOption = None,
    rank: common.RanksOption = None,
    json: common.JsonOption = False,
    quiet: common.QuietOption = False,
) -> None:
    """List recorded launches by kernel: sizes, epochs, parameters, and the file of the code.

    These are the launches that `record --replayable` kept, or all launches if there are none. With
    --json, the list is a database for other programs; `docs/format.md` describes it.
    """
    from ttanalyze.format import open_run
    from ttanalyze.verbs.launches import launches as find
    from ttanalyze.verbs.launches import launches_text, to_object

    common.check_output(out)
    opened = open_run(run, common.parse_ranks(rank))
    with common.progress_bar("reading", quiet) as progress:
        found = find(opened, names.split(",") if names else (), kernel, progress)
    answer = (
        common.as_json(to_object(str(run), found))
        if json
        else launches_text(found, 0 if out else common.screen_width())
    )
    if out is None:
        common.print_text(answer)
    else:
        common.write_file(out, answer + "\n")
    common.say_what_is_missing()
