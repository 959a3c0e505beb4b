"""The options of `ttanalyze trace`."""

from __future__ import annotations

import contextlib
import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, BinaryIO

from typer import Option, Typer

from ttanalyze.cli import common
from ttanalyze.output import text

verbs = Typer()

LEVEL = 3  # of gzip: a higher level takes much more time and saves little

TRACE_EXAMPLES = """\b
Examples:
  Write a trace for ui.perfetto.dev or chrome://tracing:
    ttanalyze trace run1 -o trace.json.gz
  Write only epochs 10 to 20 of a large run:
    ttanalyze trace run1 --epochs 10-20 --format perfetto -o trace.pftrace
  Mark the differences from another run:
    ttanalyze diff run1 run2 --all -q -o report.json
    ttanalyze trace run1 --annotate report.json -o trace.json
"""


AnnotateOption = Annotated[
    Path | None,
    Option(
        metavar="REPORT", help="Mark the differences in a report of verify --out or diff --out."
    ),
]
FormOption = Annotated[
    str,
    Option(
        "--format",
        metavar="FORMAT",
        help="chrome (default): JSON; perfetto: binary, less than half the size.",
    ),
]


@verbs.command(epilog=TRACE_EXAMPLES)
def trace(
    run: common.RunArgument,
    out: Path = Option(
        ...,
        "--out",
        "-o",
        metavar="FILE",
        help="The file to write; .gz: compressed; -: standard output.",
    ),
    form: FormOption = "chrome",
    annotate: AnnotateOption = None,
    epochs: str | None = Option(None, metavar="A-B", help="Only these epochs: 3, 2-5, 2- or -5."),
    rank: common.RanksOption = None,
    max_memory: common.MaxMemoryOption = None,
    json: common.JsonOption = False,
    quiet: common.QuietOption = False,
) -> None:
    """Write a run as a trace: calls, streams, epochs and memory over time.

    Only a run with --timeline has the GPU times of the work. Other runs have only the times of the
    calls. See docs/limits/reading.md.
    """
    common.limit_memory(max_memory)
    from dataclasses import asdict

    from ttanalyze import options
    from ttanalyze.errors import Error
    from ttanalyze.format import open_run
    from ttanalyze.verbs.trace import FORMATS
    from ttanalyze.verbs.trace import trace as write

    if form not in FORMATS:
        raise Error(f"--format {form}: must be one of {', '.join(FORMATS)}")
    wanted = None if epochs is None else options.parse_range(epochs, "--epochs", 0xFFFFFFFE)
    to_file = str(out) != "-"
    common.check_output(out if to_file else None)
    opened = open_run(run, common.parse_ranks(rank))
    with (
        common.progress_bar("writing", quiet) as progress,
        common.output_file(out) if to_file else common.standard_output() as file,
        _compressed(file, out.suffix == ".gz") as target,
    ):
        done = write(opened, target, form, epochs=wanted, annotate=annotate, progress=progress)
    if to_file and json:
        common.print_text(common.as_json(asdict(done)))
    elif to_file and not quiet:
        counts = [(done.calls, "call"), (done.epochs, "epoch"), (done.lanes, "lane")]
        counts += [(done.ranges, "range")] if done.ranges else []
        counts += [(done.marks, "mark")] if annotate else []
        common.print_text(
            f"{text.printable(str(out))}: {', '.join(text.count(*pair) for pair in counts)}"
        )
    common.say_what_is_missing()


@contextlib.contextmanager
def _compressed(file: BinaryIO, wanted: bool) -> Iterator[BinaryIO]:
    """Yields the file, or a gzip writer. Equal runs give equal bytes."""
    if not wanted:
        yield file
        return
    with gzip.GzipFile("", "wb", LEVEL, file, mtime=0) as packed:
        yield packed  # type: ignore[misc]
