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
    "  ttanalyze export run1 --kernel layer_norm -o bug/ --python --max-size 20M\n"
    "  ttanalyze export run1 --sqlite run1.db\n"
    "  ttanalyze export run1 --parquet tables/"
)
def export(
    run: common.RunArgument,
    out: Path | None = Option(
        None, "--out", "-o", metavar="DIR", help="For a launch: the folder to create."
    ),
    sqlite: Path | None = Option(
        None, metavar="FILE", help="Write all tables of the run to an SQLite database instead."
    ),
    parquet: Path | None = Option(
        None,
        metavar="DIR",
        help="Write all tables of the run as Parquet files instead. Needs the extra [scale].",
    ),
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
    rank: common.RankOption = None,
    json: common.JsonOption = False,
    quiet: common.QuietOption = False,
) -> None:
    """Write a launch as a standalone program, or all tables of a run to SQLite or Parquet.

    A launch is for a bug report. Its folder holds a short C program, a Makefile, the code, the
    parameters and the memory. It needs only a C compiler and the driver's library. The program
    launches the kernel and compares the result. The memory is what the kernel may reach: through
    its parameters, its variables, and addresses stored in memory.

    The tables are those of `query`, with computed columns. The table `columns` says what each
    column means. `query --format parquet` writes a part of one table.
    """
    if sqlite is not None or parquet is not None:
        if launch is not None or kernel is not None or out is not None:
            raise Error("--sqlite and --parquet export tables: leave out --launch, --kernel and -o")
        for path, database in ((sqlite, True), (parquet, False)):
            if path is not None:
                _export_tables(run, path, database, json, quiet)
        return
    if out is None:
        raise Error("needs -o DIR for a launch, or --sqlite FILE or --parquet DIR for tables")
    from ttanalyze import options
    from ttanalyze.format import open_run
    from ttanalyze.verbs.export import export as write

    try:
        limit = options.parse_size(max_size)
    except Error as e:
        raise Error(f"--max-size {max_size}: {e}") from None
    opened = open_run(run).process(process, rank)
    with common.interruptible(), common.progress_bar("exporting", quiet) as progress:
        made = write(
            opened,
            out,
            launch,
            kernel,
            everything=everything,
            python=python,
            force=force,
            progress=progress,
        )
    notes = made.notes(limit)
    if not json:
        for note in notes:
            common.say(note)
    answer = {"run": str(run), **made.as_dict(), "notes": notes}
    common.print_text(common.as_json(answer) if json else str(made))


def _export_tables(run: Path, path: Path, database: bool, json: bool, quiet: bool) -> None:
    from ttanalyze.format import open_run
    from ttanalyze.output import text
    from ttanalyze.verbs.export import export_parquet, export_sqlite

    if not database and path.exists() and not path.is_dir():
        raise Error(f"{path}: not a directory")
    if database or not path.exists():
        common.check_output(path)
    opened = open_run(run)
    with common.interruptible(), common.progress_bar("exporting", quiet) as progress:
        rows = (export_sqlite if database else export_parquet)(opened, path, progress)
    files = [path] if database else [path / f"{name}.parquet" for name in rows]
    size = sum(file.stat().st_size for file in files)
    answer = {"run": str(run), "path": str(path), "bytes": size, "rows": rows}
    said = f"{path}: {len(rows)} tables, {text.count(sum(rows.values()), 'row')}, {text.size(size)}"
    common.print_text(common.as_json(answer) if json else said)
    common.say_what_is_missing()
