"""The options of `ttanalyze blame`."""

from __future__ import annotations

from typing import Annotated

import typer

from ttanalyze.cli.common import (
    DIFFERS,
    SAME,
    JsonOption,
    ProcessOption,
    QuietOption,
    RunArgument,
    as_json,
    interruptible,
    print_text,
    progress_bar,
)
from ttanalyze.errors import Error
from ttanalyze.output import text

verbs = typer.Typer()


@verbs.command(
    epilog="\b\nExamples:\n"
    "  ttanalyze blame run1 --region weights\n"
    "  ttanalyze blame run1 --region weights --offset 0x1000 --dtype f32 --count 4\n"
    "  ttanalyze blame run1 --address 0x7f0000201040 --epoch 12\n"
    "  ttanalyze blame run1 --region grads --dtype f32 --watch nan\n"
    "  ttanalyze blame run1 --dtype f32 --watch '>1e6'"
)
def blame(
    run: RunArgument,
    region: Annotated[
        str | None,
        typer.Option("--region", "-r", metavar="R", help="Its id or label, or a tensor's name."),
    ] = None,
    offset: Annotated[
        str | None, typer.Option("--offset", metavar="BYTES", help="Where in it: 4096 or 0x1000.")
    ] = None,
    element: Annotated[
        int | None, typer.Option(metavar="I", help="Where in it, counted in items of --dtype.")
    ] = None,
    address: Annotated[
        str | None,
        typer.Option("--address", metavar="ADDRESS", help="Instead of these: a device address."),
    ] = None,
    count: Annotated[
        int | None, typer.Option(metavar="N", help="How many items from there on (default 1).")
    ] = None,
    dtype: Annotated[
        str | None,
        typer.Option(metavar="TYPE", help="What items are, such as f32 (default: plain bytes)."),
    ] = None,
    epoch: Annotated[
        str | None,
        typer.Option("--epoch", "-e", metavar="E", help="Only up to this epoch, or from A-B."),
    ] = None,
    watch: Annotated[
        str | None,
        typer.Option(
            metavar="CONDITION",
            help="Find the first epoch where any item is nan, inf, ==VALUE, !=VALUE, >VALUE, "
            ">=VALUE, <VALUE or <=VALUE, or has changed; in all regions unless one is given.",
        ),
    ] = None,
    everywhere: Annotated[
        bool,
        typer.Option(
            "--all",
            help="With --watch in all regions: also memory that does not look like --dtype, and "
            "items that were nan or inf before.",
        ),
    ] = False,
    limit: Annotated[
        int, typer.Option(metavar="N", help="Show the last N changes only (0: all).")
    ] = 50,
    process: ProcessOption = 0,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> int:
    """Tell where memory comes from: when it changed, and which calls may have done it.

    Of a region, of an item or of a byte, every epoch in which it changed. With --watch the first
    epoch in which a condition holds; exit status 0: it did, 1: it never did.

    Without a region, --watch with a type of floating-point numbers looks where memory plausibly
    holds them: in tensors that were named so, and in blocks whose numbers, now or before, are
    mostly of ordinary size. There nan and inf count once they appear, not where they were from
    the first snapshot on. What was skipped is said.
    """
    from ttanalyze import options
    from ttanalyze.core.values import parse
    from ttanalyze.format import open_run
    from ttanalyze.verbs import blame as module
    from ttanalyze.verbs.blame import show

    if limit < 0:
        raise Error(f"--limit {limit}: a whole number is expected")
    epochs = None if epoch is None else _epochs(epoch)
    kind = None if dtype is None else parse(dtype)
    of = open_run(run).process(process)
    last = len(of.epochs) - 1
    if epochs is not None and epochs[0] > last:
        raise Error(f"--epoch {epoch}: process {process} has {text.count(last + 1, 'epoch')}")
    given = (region, offset, element, address)
    if watch is not None and all(option is None for option in given):
        if count is not None:
            raise Error("--count: of which memory? Give --region, or --address")
        target = None
    else:
        target = module.find_target(
            of,
            region,
            None if offset is None else options.parse_place(offset, "--offset"),
            address=None if address is None else options.parse_place(address, "--address"),
            element=element,
            count=count,
            type=kind,
            epoch=None if epochs is None else min(epochs[1], last),
        )
    colour = text.colours_wanted(1)
    if watch is None:
        assert target is not None
        with progress_bar("looking", quiet) as progress:
            found = module.blame(target, epochs, limit, progress)
        said = {"run": str(run), **found.as_dict()}
        print_text(as_json(said) if json else show.blame_text(found, colour))
        return SAME
    kind = kind or (target.type if target is not None else None) or parse("u8")
    condition = module.Condition.parse(watch, kind)
    with interruptible(), progress_bar("looking", quiet) as progress:
        seen = module.watch(of, condition, target, epochs, progress, everywhere)
    if json:
        told = None if seen.sighting is None else seen.sighting.as_dict(of, condition.type)
        head = {"run": str(run), "process": process, "watch": watch, "dtype": condition.type.name}
        skipped = {"unlike": seen.unlike, "early": seen.early}
        print_text(as_json({**head, "found": told, "unseen": seen.unseen, "skipped": skipped}))
    else:
        print_text(show.sighting_text(of, condition, target, seen, colour))
    return DIFFERS if seen.sighting is None else SAME


def _epochs(value: str) -> tuple[int, int]:
    """E is all up to that epoch; A-B, A- and -B are what they say."""
    from ttanalyze import options

    first, last = options.parse_range(value, "--epoch", 0xFFFFFFFE)
    return (first if "-" in value else 0), last
