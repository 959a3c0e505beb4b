"""Verbs about what is inside kernels: their instructions, and delays between them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ttanalyze.cli.common import (
    JsonOption,
    QuietOption,
    as_json,
    check_output,
    interruptible,
    output_file,
    print_text,
    progress_bar,
    say,
    write_file,
)
from ttanalyze.output import text

verbs = typer.Typer()

SASS_EXAMPLES = """\b
Examples:
  A recorded kernel, beside its source where it was compiled with -lineinfo:
    ttanalyze sass run1 --kernel softmax
  Where delays may be put:
    ttanalyze sass run1 --kernel softmax --points
  What a program has for an H200, for a spreadsheet:
    ttanalyze sass ./app --arch sm_90 --format csv -o app.csv
  A cubin's instructions, one JSON object each:
    ttanalyze sass kernel.cubin --format ndjson
"""


def _architecture(name: str | None) -> int:
    """sm_90, 90 or 90a; 0 where nothing was asked for."""
    from ttanalyze.errors import Error

    if name is None:
        return 0
    digits = name.removeprefix("sm_").rstrip("af")
    if not digits.isdecimal() or not 50 <= int(digits) < 1000:
        raise Error(f"--arch {name}: an architecture such as sm_90 is expected")
    return int(digits)


@verbs.command(epilog=SASS_EXAMPLES)
def sass(
    what: Annotated[
        Path,
        typer.Argument(
            metavar="RUN", help="A run directory, a cubin, a fatbin, PTX, or a program with code."
        ),
    ],
    kernel: Annotated[
        str | None, typer.Option(metavar="REGEX", help="Only kernels of such a name.")
    ] = None,
    arch: Annotated[
        str | None,
        typer.Option(
            metavar="SM",
            help="What a device of that architecture would take, such as sm_90 (default: the "
            "devices of the run; of files, all there is).",
        ),
    ] = None,
    points: Annotated[
        bool, typer.Option("--points", help="Only instructions that delays may come before.")
    ] = False,
    patterns: Annotated[
        str,
        typer.Option(
            "--patterns",
            metavar="LIST",
            help="Which those are: mnemonics such as UTMALDG,SYNCS, or * (default: what `record "
            "--delay` takes).",
        ),
    ] = "",
    form: Annotated[
        str,
        typer.Option("--format", metavar="FORMAT", help="text (default), json, csv or ndjson."),
    ] = "text",
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write it to a file.")
    ] = None,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Disassemble kernels: every instruction, what it reads, writes and waits for, its source.

    NVIDIA's nvdisasm does it (pip install 'ttanalyze[sass]', or the CUDA toolkit), once for each
    kernel of a run, which keeps the tables. REGEX is searched in mangled and demangled names.
    """
    from ttanalyze import options
    from ttanalyze.verbs.sass import find_tables, show

    form = "json" if json else form
    if patterns:
        options.check("--patterns", "TT_DELAY_PATTERNS", patterns)
    refused: list[str] = []
    check_output(out)
    with interruptible(), progress_bar("disassembling", quiet or out is None) as progress:
        tables = find_tables(what, kernel, _architecture(arch), progress, refused)
        parts = show.written(tables, form, patterns if points or patterns else None)
        if out is not None:
            with output_file(out) as file:
                file.writelines(parts)
        else:
            for part in parts:
                print_text(part.decode(), end="", exact=form == "csv")
    for reason in refused:
        say(reason)


REDUCE_EXAMPLES = """\b
Examples:
  A test that runs the program under the recorder, which takes delays from TT_DELAY_LOAD:
    ttanalyze reduce --config run1/p0/delays.json --test ./fails.sh -o report.json
  A command with a place for the configuration, each candidate tried up to five times:
    ttanalyze reduce --config delays.json --confidence 5 \\
      --test 'ttanalyze record -q --force -o /tmp/t --delay-load {config} -- ./app'
  What is left, as a configuration for `record --delay-load`:
    ttanalyze reduce --config delays.json --test ./fails.sh --minimal fewest.json
"""


@verbs.command(epilog=REDUCE_EXAMPLES)
def reduce(
    config: Annotated[
        Path,
        typer.Option("--config", "-c", metavar="FILE", help="Delays with which the test fails."),
    ],
    test: Annotated[
        str,
        typer.Option(
            "--test",
            "-t",
            metavar="COMMAND",
            help="Ends with another status than 0 where it fails. {config} in it is the file with "
            "the delays to try, which TT_DELAY_LOAD names too.",
        ),
    ],
    strategy: Annotated[
        str,
        typer.Option(
            "--strategy",
            metavar="HOW",
            help="bisect (default): halves first, fewer runs; linear: delay by delay.",
        ),
    ] = "bisect",
    confidence: Annotated[
        int,
        typer.Option(
            metavar="N",
            help="Try each candidate up to N times: it fails if more than half do. Tells a test "
            "that fails sometimes only.",
        ),
    ] = 1,
    timeout: Annotated[
        float,
        typer.Option(metavar="SECONDS", help="A run that takes longer has failed.", min=0),
    ] = 0,
    limit: Annotated[int, typer.Option(metavar="RUNS", help="Stop after so many runs.", min=0)] = 0,
    run: Annotated[
        Path | None,
        typer.Option(
            "--run",
            metavar="RUN",
            help="Whose kernels these are, for instructions and source lines (default: the run "
            "that the file is in).",
        ),
    ] = None,
    minimal: Annotated[
        Path | None,
        typer.Option("--minimal", "-m", metavar="FILE", help="Write the delays that are left."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write the report as JSON.")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Do not go on with a search that was interrupted.")
    ] = False,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Find the fewest delays with which a test still fails, and the instructions that they are at.

    Answers are kept in REPORT.state (next to the report, or FILE.state of the delays), so that a
    search that was interrupted goes on where it was.
    """
    from ttanalyze.verbs.reduce import Settings, reduce_test, reduce_text

    check_output(out)
    check_output(minimal)
    beside = config if out is None or (out.exists() and not out.is_file()) else out
    state = beside.parent / f"{beside.name}.state"
    settings = Settings(config, test, strategy, confidence, limit, timeout, run)
    with interruptible(), progress_bar("reducing", quiet) as progress:
        report = reduce_test(settings, state, progress, force)
    made = report.to_object()
    if minimal is not None:
        write_file(minimal, report.found.minimal.to_json())
    if out is not None:
        write_file(out, as_json(made) + "\n")
    print_text(as_json(made) if json else reduce_text(report, text.colours_wanted(1)))
