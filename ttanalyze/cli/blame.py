"""The options of `ttanalyze blame`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option, Typer

from ttanalyze.cli import common
from ttanalyze.errors import Error
from ttanalyze.output import text

if TYPE_CHECKING:
    from ttanalyze.core.values import Type
    from ttanalyze.format.process import Process
    from ttanalyze.verbs.blame import Blame, Sighting, Target

verbs = Typer()


WatchOption = Annotated[
    str | None,
    Option(
        metavar="CONDITION",
        help="Find the first epoch in which an item meets CONDITION: nan, inf, changed, "
        "==VALUE, !=VALUE, >VALUE, >=VALUE, <VALUE or <=VALUE. Searches all regions "
        "without --region.",
    ),
]
EverywhereOption = Annotated[
    bool,
    Option(
        "--all",
        help="With --watch in all regions: also search memory that does not look like --dtype, "
        "and items that were nan or inf from the start.",
    ),
]


RegionOption = Annotated[
    str | None,
    Option("--region", "-r", metavar="R", help="A region (id or label) or the name of a tensor."),
]
DtypeOption = Annotated[
    str | None, Option(metavar="TYPE", help="Type of the items: f32, i64 ... (default: bytes).")
]
EpochOption = Annotated[
    str | None, Option("--epoch", "-e", metavar="E", help="Up to this epoch, or the range A-B.")
]


ExactOption = Annotated[
    bool,
    Option(
        "--exact",
        help="Find the instruction, the line and the thread that made the last change, from a "
        "trace of the launch. A launch without a trace is replayed and traced.",
    ),
]
SimOption = Annotated[
    bool, Option("--sim", help="With --exact: replay on the simulator, without a GPU.")
]


@verbs.command(
    epilog="\b\nExamples:\n"
    "  ttanalyze blame run1 --region weights\n"
    "  ttanalyze blame run1 --region weights --offset 0x1000 --dtype f32 --count 4\n"
    "  ttanalyze blame run1 --address 0x7f0000201040 --epoch 12\n"
    "  ttanalyze blame run1 --region grads --dtype f32 --watch nan\n"
    "  ttanalyze blame run1 --dtype f32 --watch '>1e6'\n"
    "  ttanalyze blame run1 --region weights --dtype f32 --element 3 --exact"
)
def blame(
    run: common.RunArgument,
    region: RegionOption = None,
    offset: str | None = Option(
        None, metavar="BYTES", help="Offset in the region: 4096, 4K or 0x1000."
    ),
    element: int | None = Option(
        None, metavar="I", help="Index in the region, in items of --dtype."
    ),
    address: str | None = Option(
        None,
        "--address",
        metavar="ADDRESS",
        help="A device address; replaces --region and --offset.",
    ),
    count: int | None = Option(None, metavar="N", help="Number of items (default 1)."),
    dtype: DtypeOption = None,
    epoch: EpochOption = None,
    watch: WatchOption = None,
    everywhere: EverywhereOption = False,
    exact: ExactOption = False,
    sim: SimOption = False,
    limit: int = Option(
        50, metavar="N", help="Show only the last N changes, or writes of a launch (0: all)."
    ),
    process: common.ProcessOption = 0,
    rank: common.RankOption = None,
    cluster: common.ClusterOption = None,
    json: common.JsonOption = False,
    quiet: common.QuietOption = False,
) -> int:
    """Find when memory changed, and which calls may have written it.

    Lists every epoch in which a region, an item or a byte changed. With --watch, finds the first
    epoch in which a condition holds. Exit status 0: it holds in an epoch; 1: it never holds.

    Without a region, --watch with a floating-point type searches only memory that looks like
    such numbers. That is: tensors of this type, and blocks in which most numbers have an ordinary
    size now or had one before. It reports a nan or inf only where it appears after the first
    snapshot. The output says what was skipped.

    With --exact, the verb finds the launch that made the last change, and lists its writes to these
    bytes: instruction, source line, block, thread, old and new value. It takes the trace of the
    launch from the run, or replays the launch and traces it. With --watch, these are the writes of
    the epoch and the item that --watch finds. Exit status 0: writes were found; 1: no launch wrote
    there; 2: no launch could be traced completely.
    """
    from ttanalyze.core.values import parse
    from ttanalyze.format import open_run
    from ttanalyze.verbs.blame import show

    if limit < 0:
        raise Error(f"--limit {limit}: must be 0 or more")
    kind = None if dtype is None else parse(dtype)
    of = open_run(run).process(process, rank)
    epochs = None if epoch is None else _epochs(epoch, of)
    location = (region, offset, element, address)
    if watch is not None and all(part is None for part in location):
        if count is not None:
            raise Error("--count: needs --region or --address")
        target = None
    else:
        target = _target(of, *location, count, kind, epochs)
    if sim and not exact:
        raise Error("--sim needs --exact")
    if watch is not None:
        kind = kind or (target.type if target is not None else None) or parse("u8")
        answer, shown, status, seen = _watch(
            of, watch, kind, target, epochs, everywhere, quiet, cluster
        )
        changes = _changes(of, seen, target, kind) if exact and seen is not None else None
    else:
        assert target is not None
        if exact and not target.part:  # else contents are not compared
            target = replace(target, part=True)
        changes = _blame(target, epochs, 1 if exact else limit, quiet)
        answer, status = changes.as_dict(), common.SAME
        shown = show.blame_text(changes, text.colours_wanted(1))
    if exact and changes is not None:
        answer["exact"], more, status = _exact(changes, limit, sim)
        shown += f"\n{more}"
    common.print_text(common.as_json({"run": str(run), **answer}) if json else shown)
    return status


Answer = tuple[dict[str, Any], str, int]  # as JSON, as text, the exit status


def _target(
    of: Process,
    region: str | None,
    offset: str | None,
    element: int | None,
    address: str | None,
    count: int | None,
    kind: Type | None,
    epochs: tuple[int, int] | None,
) -> Target:
    from ttanalyze import options
    from ttanalyze.verbs.blame import find_target

    return find_target(
        of,
        region,
        None if offset is None else options.parse_place(offset, "--offset"),
        address=None if address is None else options.parse_place(address, "--address"),
        element=element,
        count=count,
        type=kind,
        epoch=None if epochs is None else min(epochs[1], len(of.epochs) - 1),
    )


def _blame(target: Target, epochs: tuple[int, int] | None, limit: int, quiet: bool) -> Blame:
    from ttanalyze.verbs.blame import blame

    with common.progress_bar("looking", quiet) as progress:
        return blame(target, epochs, limit, progress)


def _watch(
    of: Process,
    watch: str,
    kind: Type,
    target: Target | None,
    epochs: tuple[int, int] | None,
    everywhere: bool,
    quiet: bool,
    cluster: str | None,
) -> tuple[dict[str, Any], str, int, Sighting | None]:
    from ttanalyze.verbs import blame as module
    from ttanalyze.verbs.blame import show

    condition = module.Condition.parse(watch, kind)
    with common.interruptible(), common.progress_bar("looking", quiet) as progress:
        seen = module.watch(of, condition, target, epochs, progress, everywhere, cluster=cluster)
    answer = {
        "process": of.index,
        "watch": watch,
        "dtype": kind.name,
        "found": None if seen.sighting is None else seen.sighting.as_dict(of, kind),
        "unseen": seen.unseen,
        "skipped": {"unlike": seen.unlike, "early": seen.early},
    }
    shown = show.sighting_text(of, condition, target, seen, text.colours_wanted(1))
    return answer, shown, common.DIFFERS if seen.sighting is None else common.SAME, seen.sighting


def _changes(of: Process, seen: Sighting, target: Target | None, kind: Type) -> Blame:
    """The change of the first item that fulfilled the condition."""
    from ttanalyze.verbs.blame import blame, find_target

    hit = seen.hits[0]
    if not hit.first:
        raise Error(f"--exact: the contents of region {hit.region} are gone")
    begin = target.start if target is not None else 0
    offset = begin + hit.first[0] * kind.itemsize
    item = find_target(of, hit.region, offset, count=1, type=kind)
    return blame(item, (seen.epoch, seen.epoch), 1)


def _exact(changes: Blame, limit: int, sim: bool) -> Answer:
    from ttanalyze.verbs.blame.exact import exact
    from ttanalyze.verbs.blame.show_exact import exact_text

    with common.interruptible():
        found = exact(changes, sim)
    status = common.SAME if found.found else common.ERROR if found.unclear else common.DIFFERS
    shown = exact_text(found, changes.target, limit, text.colours_wanted(1))
    return found.as_dict(changes.target.type), shown, status


def _epochs(value: str, of: Process) -> tuple[int, int]:
    """E means all epochs up to E. A-B, A- and -B are ranges."""
    from ttanalyze import options

    first, last = options.parse_range(value, "--epoch", 0xFFFFFFFE)
    first = first if "-" in value else 0
    number = len(of.epochs)
    if first >= number:
        raise Error(f"--epoch {value}: process {of.index} has {text.count(number, 'epoch')}")
    return first, last
