"""The options of `ttanalyze rewind`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from typer import Option, Typer

from ttanalyze.cli import common
from ttanalyze.errors import Error

verbs = Typer()


RegionOption = Annotated[
    list[str] | None,
    Option(
        "--region",
        "-r",
        metavar="R",
        help="A region (id or label) or the name of a tensor; repeatable (default: all regions).",
    ),
]
DtypeOption = Annotated[
    list[str] | None,
    Option(
        metavar="[R=]TYPE",
        help="Type of the items: f16 f32 f64 bf16 e4m3 e5m2 i8 ... u64 bool c64 (default: u8), "
        "for all regions or for region R; repeatable.",
    ),
]


SummaryOption = Annotated[
    bool, Option("--summary", help="Print a summary of each region: range, mean, NaNs, zeros.")
]
ShapeOption = Annotated[
    list[str] | None,
    Option(metavar="[R=]N,M", help="Shape of the array (default: one dimension); repeatable."),
]
OutOption = Annotated[
    Path | None,
    Option(
        "--out", "-o", metavar="FILE", help="The file to write: .npy, .npz, .bin or .safetensors."
    ),
]


@verbs.command(
    epilog="\b\nExamples:\n"
    "  ttanalyze rewind run1 --epoch 12 --region weights --dtype f32 --summary\n"
    "  ttanalyze rewind run1 --epoch 12 --region 3 --dtype f32 --shape 256,256 -o w.npy\n"
    "  ttanalyze rewind run1 --epoch 12 -o all.safetensors --dtype f32 --dtype 4=u8\n"
    "  ttanalyze rewind run1 --epoch 12 --region 3 --format bin -o /dev/stdout | xxd | head"
)
def rewind(
    run: common.RunArgument,
    epoch: int = Option(..., "--epoch", "-e", metavar="E", help="The epoch."),
    region: RegionOption = None,
    out: OutOption = None,
    format: str | None = Option(  # noqa: A002
        None,
        "--format",
        metavar="FORMAT",
        help="npy, npz, bin or safetensors (default: from the name of FILE).",
    ),
    summary: SummaryOption = False,
    dtype: DtypeOption = None,
    shape: ShapeOption = None,
    process: common.ProcessOption = 0,
    rank: common.RankOption = None,
    json: common.JsonOption = False,
    quiet: common.QuietOption = False,
) -> None:
    """Extract the memory of an epoch into a file, or print a summary of it.

    In a file with several arrays, the name of each is the label of its region, or region-ID.
    """
    from ttanalyze.format import open_run
    from ttanalyze.verbs import rewind as module

    if out is None and not summary:
        raise Error("nothing to write; give -o FILE or --summary")
    common.check_output(out)
    found = module.rewind(
        open_run(run),
        epoch,
        region,
        process=process,
        rank=rank,
        dtypes=dtype or (),
        shapes=shape or (),
    )
    answer: dict[str, Any] = {"run": str(run), "process": found.process.index, "epoch": epoch}
    shown = None
    if out is not None:
        try:
            with common.interruptible(), common.progress_bar("rewinding", quiet) as progress:
                answer["format"] = module.save(found, out, format, progress)
        except BrokenPipeError:
            raise common.ReaderGoneError from None
        answer |= {"file": str(out), "bytes": found.size}
    if summary:
        with common.interruptible(), common.progress_bar("summarising", quiet) as progress:
            summaries = module.summaries(found, progress)
        shown = module.summary_text(found, summaries)
        answer["regions"] = [
            part.as_dict() | one.as_dict() for part, one in zip(found.parts, summaries, strict=True)
        ]
    else:
        answer["regions"] = [part.as_dict() for part in found.parts]
    answer |= {"left_out": found.left_out, "unread": found.unread}
    for line in [] if json else module.remarks(found):
        common.say(line)
    if json or shown is not None:
        common.print_text(common.as_json(answer) if json else str(shown))
