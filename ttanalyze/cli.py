"""The command line: every verb parses its options and calls its module; no logic lives here.

Nothing heavy is imported before a verb needs it. What goes wrong is one line on stderr and
status 2; what verify finds different is status 1. Status 130 is an interrupt and 141 a reader of
our output that went away, as shells have it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from ttanalyze import __version__, text
from ttanalyze.errors import Error, system_error

SAME, DIFFERS, ERROR, INTERRUPTED = 0, 1, 2, 130
PROGRESS_AFTER = 1.0  # seconds

app = typer.Typer(
    name="ttanalyze",
    help="Time travel for GPU memory: record an unmodified CUDA program, verify the recording.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="A run directory.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")]


class _ReaderGoneError(Exception):
    """Nobody reads what we print any more."""


def _version(wanted: bool) -> None:
    if wanted:
        _print(f"ttanalyze {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


@app.command(
    context_settings={"allow_interspersed_args": False},
    epilog="\b\nExamples:\n"
    "  ttanalyze record -- ./vecadd\n"
    "  ttanalyze record -o run1 --epoch launch:10 -- python train.py\n"
    "  ttanalyze record --sim --epoch 'sync,kernel:^add' -- ./vecadd --steps 3\n"
    "  LD_PRELOAD=$(ttanalyze shim) TT_OUT=run1 ./vecadd",
)
def record(
    command: Annotated[
        list[str], typer.Argument(metavar="PROGRAM", help="What to run, and its arguments.")
    ],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="DIR", help="Run directory (default PROGRAM.tt)."),
    ] = None,
    epoch: Annotated[
        str | None,
        typer.Option(
            metavar="WHEN",
            help="When to capture: sync (default), launch[:N], memcpy, api, none and kernel:REGEX, "
            "separated by commas, kernel: last.",
        ),
    ] = None,
    regions: Annotated[
        str | None, typer.Option(metavar="all|touched", help="Which allocations to look at.")
    ] = None,
    snapshot_every: Annotated[
        str | None, typer.Option(metavar="K", help="Full snapshot every K epochs (default 64).")
    ] = None,
    retain: Annotated[
        str | None, typer.Option(metavar="N", help="Keep the contents of the last N epochs only.")
    ] = None,
    overwrite: Annotated[
        str | None,
        typer.Option(
            metavar="POLICY",
            help="When the ring is full: backpressure (default), drop-oldest or fail.",
        ),
    ] = None,
    ring_bytes: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Size of the ring, such as 256M.")
    ] = None,
    deterministic: Annotated[
        bool | None, typer.Option("--deterministic", help="Same addresses, same manifest.")
    ] = None,
    deps: Annotated[
        bool | None,
        typer.Option("--deps/--no-deps", help="Order captures with the program's streams."),
    ] = None,
    events: Annotated[
        bool | None, typer.Option("--events/--no-events", help="Record driver calls.")
    ] = None,
    stall_ms: Annotated[
        str | None,
        typer.Option(metavar="MS", help="Give an epoch up after waiting so long (default 10000)."),
    ] = None,
    verbose: Annotated[
        bool | None, typer.Option("--verbose", help="Let the recorder say what it does.")
    ] = None,
    sim: Annotated[
        bool, typer.Option("--sim", help="Run on the simulator instead of a GPU.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", "-f", help="Replace a run directory that is there.")
    ] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Do not say what was recorded.")
    ] = False,
) -> int:
    """Run a program and record what it does to GPU memory.

    Exit status: the program's, 128+n where signal n ended it; 2 where it could not be run, which
    is said in one line. Every option can also be set as a variable: --ring-bytes 1G is
    TT_RING_BYTES=1G.
    """
    from ttanalyze import options
    from ttanalyze.record import record as run
    from ttanalyze.record import say

    given: dict[str, object] = {
        "epoch": epoch,
        "regions": regions,
        "snapshot_every": snapshot_every,
        "retain": retain,
        "overwrite": overwrite,
        "ring_bytes": ring_bytes,
        "deterministic": deterministic,
        "deps": deps,
        "events": events,
        "stall_ms": stall_ms,
        "verbose": verbose,
    }
    variables = options.variables(given, os.environ)
    done = run(command, out, variables, sim=sim, force=force, warn=say)
    if not quiet:
        say(done.line(command[0]))
    return done.status


@app.command(epilog="\b\nExample:\n  LD_PRELOAD=$(ttanalyze shim) TT_OUT=run1 ./vecadd")
def shim() -> None:
    """Print the path of the recorder, for LD_PRELOAD."""
    from ttanalyze import paths

    _print(str(paths.shim()))


@app.command(epilog="\b\nExample:\n  ttanalyze doctor")
def doctor(json: JsonOption = False) -> int:
    """Say whether this machine is fit for recording, and what to do where it is not.

    Exit status 0: fit, on a GPU or on the simulator; 2: not fit.
    """
    from ttanalyze.doctor import doctor as examine
    from ttanalyze.doctor import doctor_text

    with _progress("looking", False) as progress:
        found = examine(progress=progress)
    _print(found.to_json() if json else doctor_text(found, text.colours_wanted(1)))
    return SAME if found.fit else ERROR


@app.command(epilog="\b\nExample:\n  ttanalyze info run1")
def info(run: RunArgument, json: JsonOption = False) -> None:
    """Say what was recorded, on one screen."""
    from ttanalyze.info import info as summarise
    from ttanalyze.info import info_text
    from ttanalyze.model import open_run

    summary = summarise(open_run(run))
    _print(_json(summary) if json else info_text(summary, text.colours_wanted(1)))


@app.command(
    epilog="\b\nExamples:\n"
    "  ttanalyze verify run1\n"
    "  ttanalyze verify run2 --manifest run1/manifest.json --continue\n"
    "  ttanalyze verify run2 --against run1 --epochs 3-8 --regions 0,2\n"
    "  ttanalyze verify run1 --tamper 3,0,4096"
)
def verify(
    run: RunArgument,
    manifest: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="What to compare with (default: manifest.json of --against, or of RUN).",
        ),
    ] = None,
    against: Annotated[
        Path | None,
        typer.Option(
            metavar="RUN", help="The run that the manifest is of: shows the bytes that differ."
        ),
    ] = None,
    epochs: Annotated[
        str | None, typer.Option(metavar="A-B", help="Only these epochs: 3, 2-5, 2- or -5.")
    ] = None,
    regions: Annotated[
        str | None, typer.Option(metavar="LIST", help="Only these regions, such as 0,4-6.")
    ] = None,
    keep_going: Annotated[
        bool, typer.Option("--continue", help="Go on after the first difference.")
    ] = False,
    tamper: Annotated[
        str | None,
        typer.Option(
            metavar="EPOCH,REGION,OFFSET",
            help="See this byte inverted (nothing is written), to prove that it would be noticed.",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write the report as JSON.")
    ] = None,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> int:
    """Recompute a run's region digests and compare them with a manifest.

    Exit status 0: the same; 1: different, and where; 2: could not be compared.
    """
    from ttanalyze import options
    from ttanalyze.model import open_run
    from ttanalyze.show import verify_text
    from ttanalyze.verify import verify as compare

    wanted = None if epochs is None else options.parse_range(epochs, "--epochs", 0xFFFFFFFE)
    some = None if regions is None else options.parse_regions(regions)
    byte = None if tamper is None else options.parse_tamper(tamper)
    _check_output(out)
    opened = open_run(run)
    other = None if against is None else open_run(against)
    with _progress("verifying", quiet) as progress:
        report = compare(
            opened,
            manifest,
            epochs=wanted,
            regions=some,
            keep_going=keep_going,
            against=other,
            tamper=byte,
            progress=progress,
        )
    if out is not None:
        _write(out, report.to_json() + "\n")
    _print(report.to_json() if json else verify_text(report, text.colours_wanted(1)))
    return SAME if report.same else DIFFERS


@app.command(
    epilog="\b\nExamples:\n"
    "  ttanalyze manifest run1 -o golden.json\n"
    "  ttanalyze verify run2 --manifest golden.json"
)
def manifest(
    run: RunArgument,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write it to a file.")
    ] = None,
    quiet: QuietOption = False,
) -> None:
    """Print the manifest of a run from its recorded digests."""
    from ttanalyze.model import manifest as manifests
    from ttanalyze.model import open_run

    _check_output(out)
    opened = open_run(run)
    with _progress("reading digests", quiet) as progress:
        made = manifests.text(opened.manifest(progress))
    if out is None:
        _print(made, end="")
    else:
        _write(out, made)


def _print(content: str, end: str = "\n") -> None:
    """Writes all of it to stdout, which without a buffer might take only a part."""
    rest = memoryview((content + end).encode(sys.stdout.encoding or "utf-8", errors="replace"))
    try:
        sys.stdout.flush()
        while rest:
            rest = rest[os.write(1, rest) :]
    except BrokenPipeError:
        raise _ReaderGoneError from None
    except OSError as e:
        raise system_error("standard output", e) from None


def _json(value: Any) -> str:
    import orjson

    return orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()


def _check_output(path: Path | None) -> None:
    """Raises Error where a file can't be written, before there is anything to write."""
    if path is None:
        return
    folder = path.resolve().parent
    if path.is_dir():
        raise Error(f"{path}: is a directory; name a file in it")
    if not folder.is_dir():
        raise Error(f"{path}: no directory {folder}")
    if not os.access(path if path.exists() else folder, os.W_OK):
        raise Error(f"{path}: not writable")


def _write(path: Path, content: str) -> None:
    """Replaces a file as a whole, or leaves it as it is; devices and pipes are written to."""
    try:
        if path.exists() and not path.is_file():
            path.write_text(content)
            return
        target = path.resolve()
        draft = target.with_name(f".{target.name}.{os.getpid()}.tmp")
        with _interruptible():
            try:
                draft.write_text(content)
                draft.replace(target)
            finally:
                draft.unlink(missing_ok=True)
    except BrokenPipeError:
        raise _ReaderGoneError from None
    except OSError as e:
        raise system_error(path, e) from None


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """Lets an interrupt be an exception, for what must be tidied up. Imports don't bear that."""
    before = signal.getsignal(signal.SIGINT)
    if before is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def _progress(what: str, quiet: bool) -> Iterator[Callable[[int, int], None] | None]:
    """A progress bar on a terminal, for work that takes more than a moment."""
    if quiet or not os.isatty(2):
        yield None
        return
    began = time.monotonic()
    with _interruptible(), contextlib.ExitStack() as stack:
        task: list[Any] = []

        def show(done: int, total: int) -> None:
            if not task and time.monotonic() - began > PROGRESS_AFTER:
                from rich.console import Console
                from rich.progress import Progress

                bar = stack.enter_context(Progress(console=Console(stderr=True), transient=True))
                task.extend([bar, bar.add_task(what)])
            if task:
                task[0].update(task[1], completed=done, total=total)

        yield show


def run_command(arguments: list[str]) -> int:
    """Runs a command line; gives its exit status. Errors are told in one line."""
    if not arguments:
        run_command(["--help"])
        return ERROR
    try:
        result = app(arguments, prog_name="ttanalyze", standalone_mode=False)
        sys.stdout.flush()
        return result if isinstance(result, int) else SAME
    except Error as e:
        message = str(e)
    except KeyboardInterrupt:
        return INTERRUPTED
    except (_ReaderGoneError, BrokenPipeError, SystemExit):  # the last is typer's for a help text
        return 128 + signal.SIGPIPE
    except OSError as e:
        message = str(system_error(e.filename or "standard output", e))
    except MemoryError:
        message = "out of memory"
    except Exception as e:
        # Typer's own errors share no public base class across its versions.
        if not hasattr(e, "format_message"):
            raise
        message = e.format_message()
    line = " ".join(text.printable(part) for part in message.splitlines())
    with contextlib.suppress(OSError):
        print(f"ttanalyze: {line}", file=sys.stderr)
    return ERROR


def _take_streams() -> None:
    """Puts something that can't be used in the place of standard streams that are closed.

    Else the first files we open would take their numbers, and get what is meant for the streams.
    It is closed again in the programs that we start.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDONLY if number else os.O_WRONLY)
    sys.stdout = sys.stdout or os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115


def _give_up_streams() -> None:
    """Lets what can't be written go, which else would change the exit status at the very end."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def main(arguments: list[str]) -> int:
    """The ttanalyze command as a process of its own; gives its exit status."""
    _take_streams()
    status = run_command(arguments)
    _give_up_streams()
    return status
