"""The options of `ttanalyze manifest`."""

from __future__ import annotations

from typer import Typer

from ttanalyze.cli import common

verbs = Typer()


@verbs.command(
    epilog="\b\nExamples:\n"
    "  ttanalyze manifest run1 -o golden.json\n"
    "  ttanalyze verify run2 --manifest golden.json"
)
def manifest(
    run: common.RunArgument,
    out: common.OutOption = None,
    rank: common.RanksOption = None,
    quiet: common.QuietOption = False,
) -> None:
    """Print the manifest of a run: the recorded digests of its regions."""
    from ttanalyze.format import manifest as manifests
    from ttanalyze.format import open_run

    common.check_output(out)
    opened = open_run(run, common.parse_ranks(rank))
    with common.progress_bar("reading digests", quiet) as progress:
        made = manifests.text(opened.manifest(progress))
    if out is None:
        common.print_text(made, end="")
    else:
        common.write_file(out, made)
