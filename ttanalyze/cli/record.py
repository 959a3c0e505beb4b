"""The options of `ttanalyze record`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from ttanalyze import options
from ttanalyze.cli import record_options
from ttanalyze.cli.common import ERROR, check_output, write_file

verbs = typer.Typer()


@verbs.command(
    context_settings={"allow_interspersed_args": False},
    epilog="\b\nExamples:\n"
    "  ttanalyze record -- ./vecadd\n"
    "  ttanalyze record -o run1 --epoch launch:10 -- python train.py\n"
    "  ttanalyze record --sim --epoch 'sync,kernel:^add' -- ./vecadd --steps 3\n"
    "  ttanalyze record --epoch 'nvtx:^step' -- python train.py\n"
    "  ttanalyze record --replayable --kernel softmax -- python train.py\n"
    "  ttanalyze record --replayable --crash-safe --max-per-kernel 0 -- ./crashes\n"
    "  LD_PRELOAD=$(ttanalyze shim) TT_OUT=run1 ./vecadd",
)
@record_options.recorder_options(*(name for name in options.TABLE if name != "out"))
def record(
    command: record_options.ProgramArgument,
    out: record_options.OutOption = None,
    *,
    recorded: dict[str, object],
    delay_dump: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the delays of this run to a file, as JSON."),
    ] = None,
    sim: record_options.SimOption = False,
    require_complete: Annotated[
        bool,
        typer.Option(
            "--require-complete",
            help="End with status 2, and say why, if the recording lacks something.",
        ),
    ] = False,
    force: record_options.ForceOption = False,
    json: record_options.SummaryOption = False,
    quiet: record_options.QuietOption = False,
) -> int:
    """Run a program and record its GPU memory over time.

    The exit status is that of the program, 128+N after signal N, or 124 after --timeout. It is 2
    if the program cannot be run, or if --require-complete finds something missing. You can set
    most options as variables too: --ring-bytes 1G is TT_RING_BYTES=1G.
    """
    from ttanalyze.verbs.record.run import record as run
    from ttanalyze.verbs.record.run import say

    variables = options.variables(recorded, os.environ)
    if delay_dump is not None:
        options.check_late("--delay-dump", {**os.environ, **variables})
        check_output(delay_dump)
    done = run(command, out, variables, sim=sim, force=force, share=True, warn=say)
    if delay_dump is not None and done.processes:
        _write_delays(done.out, delay_dump)
    if json:
        print(done.to_json(), file=sys.stderr)
    else:
        record_options.say_hangs(done)
    if not json and not quiet:
        say(done.line(command[0]))
    if require_complete and done.incomplete:
        say(f"{done.out}: not complete: {done.incomplete}")
        return ERROR
    return done.status


def _write_delays(run: Path, to: Path) -> None:
    """Writes the delays of a run as a file for --delay-load."""
    from ttanalyze.core.delays import of_run
    from ttanalyze.errors import Error
    from ttanalyze.verbs.record.run import say

    try:
        write_file(to, of_run(run).to_json())
    except Error as e:
        say(f"cannot write {to}: {e}")
