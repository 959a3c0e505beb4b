"""The options of `ttanalyze export`."""

from __future__ import annotations

from pathlib import Path

from typer import Option, Typer

from ttanalyze.cli import common, replay_options
from ttanalyze.errors import Error

verbs = Typer()


@verbs.command(
    epilog="\b\nExamples:\n"
    "  ttanalyze export run1 --launch 1234 -o bug/\n"
    "  make -C bug && bug/reproduce --times 100\n"
    "  ttanalyze export run1 --kernel layer_norm -o bug/ --python --max-size 20M"
)
def export(
    run: common.RunArgument,
    out: Path = Option(..., "--out", "-o", metavar="DIR", help="The folder to create."),
    launch: replay_options.OneLaunchOption = None,
    kernel: replay_options.OneKernelOption = None,
    python: bool = Option(False, "--python", help="Also write a script for NVIDIA's cuda-python."),
    everything: bool = Option(
        False,
        "--all-memory",
        help="Export all memory of the context, not only what the kernel may reach.",
    ),
    max_size: str = Option("25M", metavar="SIZE", help="Warn if the folder is larger."),
    force: bool = Option(False, "--force", help="Replace a folder that `export` created."),
    process: common.ProcessOption = 0,
    json: common.JsonOption = False,
    quiet: common.QuietOption = False,
) -> None:
    """Write a recorded launch as a standalone program that you can attach to a bug report.

    The folder holds a short C program, a Makefile, the code, the parameters and the memory. It
    needs only a C compiler and the driver's library. The program launches the kernel and compares
    the result. The memory is what the kernel may reach: through its parameters, its variables,
    and addresses stored in memory.
    """
    from ttanalyze import options
    from ttanalyze.format import open_run
    from ttanalyze.verbs import export as module

    try:
        limit = options.parse_size(max_size)
    except Error as e:
        raise Error(f"--max-size {max_size}: {e}") from None
    found = module.find(open_run(run).process(process), launch, kernel)
    with common.interruptible(), common.progress_bar("exporting", quiet) as progress:
        made = module.export(
            module.needs(found, everything), out, python=python, force=force, progress=progress
        )
    notes = made.notes(limit)
    if not json:
        for note in notes:
            common.say(note)
    answer = {"run": str(run), **made.as_dict(), "notes": notes}
    common.print_text(common.as_json(answer) if json else str(made))
