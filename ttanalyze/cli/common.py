"""Common options, complete output files, and progress of all verbs."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer

from ttanalyze.errors import Error, system_error
from ttanalyze.output import text
from ttanalyze.output.files import Opener, replacing
from ttanalyze.util.progress import Progress

if TYPE_CHECKING:
    from ttanalyze.format.run import Run

SAME, DIFFERS, ERROR, INTERRUPTED = 0, 1, 2, 130
PROGRESS_AFTER = 1.0  # seconds
PROGRESS_LINE_AFTER = 5.0  # the first line; each pause doubles, up to a minute

RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="A run directory, or its URL.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")]
ProcessOption = Annotated[int, typer.Option(metavar="N", help="Index of the process.")]
RankOption = Annotated[
    int | None, typer.Option(metavar="N", help="Rank of the process, instead of --process.")
]
RanksOption = Annotated[
    str | None,
    typer.Option(
        "--rank", "--ranks", metavar="LIST", help="Only these ranks, such as 0,4-7 (default: all)."
    ),
]
DeviceOption = Annotated[int, typer.Option(metavar="N", help="Index of the GPU.")]
OutOption = Annotated[
    Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write to a file.")
]
MaxMemoryOption = Annotated[
    str | None,
    typer.Option(
        metavar="SIZE",
        help="Use at most this much memory, such as 1G. Arrays beyond it go to a temporary file in "
        "$TMPDIR (default: /var/tmp).",
    ),
]
ClusterOption = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="Use the workers of a dask scheduler, such as tcp://node0:8786 (default: that of "
        "DASK_SCHEDULER_ADDRESS, else this machine).",
    ),
]
ReportOption = Annotated[
    Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write the report as JSON.")
]


class ReaderGoneError(Exception):
    """The program that reads our output has ended."""


def parse_ranks(ranks: str | None) -> list[int] | None:
    """Returns the ranks of --rank, None for all."""
    from ttanalyze import options

    return None if ranks is None else options.parse_numbers(ranks, "--rank")


def limit_memory(size: str | None) -> None:
    """Applies --max-memory. Verbs call this first, before they import large modules."""
    if size is None:
        return
    from ttanalyze import options
    from ttanalyze.util import memory_limit

    try:
        memory_limit.limit_memory(options.parse_size(size))
    except Error as e:
        raise Error(f"--max-memory {size}: {e}") from None


def print_text(content: str, end: str = "\n", exact: bool = False) -> None:
    """Writes the whole text to stdout, also when one write takes only a part of it.

    All output of verbs goes through print_text or say. Both remove control sequences of terminals.
    exact: write the text unchanged unless stdout is a terminal.
    """
    if not exact or os.isatty(1):
        content = text.screened(content, text.colours_wanted(1))
    rest = memoryview((content + end).encode(sys.stdout.encoding or "utf-8", errors="replace"))
    try:
        sys.stdout.flush()
        while rest:
            rest = rest[os.write(1, rest) :]
    except BrokenPipeError:
        raise ReaderGoneError from None
    except OSError as e:
        raise system_error("standard output", e) from None


def say(line: str) -> None:
    """Prints one line on stderr."""
    print(f"ttanalyze: {text.printable(line)}", file=sys.stderr, flush=True)


def say_other_traces(run: Run, process: int, rank: int | None) -> None:
    """Says which other processes have traced launches, unless the user chose a process."""
    others = [str(one.index) for one in run.processes if one.index != process and len(one.traced)]
    if others and not process and rank is None:
        which = text.count(len(others), "other process has", "other processes have")
        say(f"only process 0 was examined: {which} traced launches; --process {others[0]}")


def as_json(value: Any) -> str:
    import orjson

    return orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()


def check_output(path: Path | None) -> None:
    """Raises Error if a file cannot be written. Verbs call this before they start their work."""
    if path is None:
        return
    folder = path.resolve().parent
    if path.is_dir():
        raise Error(f"{path}: is a directory; name a file in it")
    if not folder.is_dir():
        raise Error(f"{path}: directory {folder} does not exist")
    if not os.access(path if path.exists() else folder, os.W_OK):
        raise Error(f"{path}: not writable")


def write_file(path: Path, content: str, opener: Opener | None = None) -> None:
    """Replaces a file completely or leaves it unchanged. Writes straight to devices and pipes."""
    with output_file(path, opener) as file:
        file.write(content.encode())


@contextlib.contextmanager
def output_file(path: Path, opener: Opener | None = None) -> Iterator[BinaryIO]:
    """The same for output that comes in pieces: yields a file to write to."""
    try:
        with interruptible(), replacing(path, opener) as file:
            yield file
    except BrokenPipeError:
        raise ReaderGoneError from None


@contextlib.contextmanager
def standard_output() -> Iterator[BinaryIO]:
    """Yields standard output as a file, for output that comes in pieces."""
    try:
        sys.stdout.flush()
        with interruptible(), open(1, "wb", closefd=False) as file:
            yield file
    except BrokenPipeError:
        raise ReaderGoneError from None
    except OSError as e:
        raise system_error("standard output", e) from None


@contextlib.contextmanager
def interruptible(*more: signal.Signals) -> Iterator[None]:
    """Turns an interrupt, and more signals, into an exception, so that cleanup runs. Not safe
    during imports.
    """
    ending = [one for one in (signal.SIGINT, *more) if signal.getsignal(one) is signal.SIG_DFL]
    for one in ending:
        signal.signal(one, signal.default_int_handler)
    try:
        yield
    finally:
        for one in ending:
            signal.signal(one, signal.SIG_DFL)


@contextlib.contextmanager
def progress_bar(what: str, quiet: bool) -> Iterator[Progress]:
    """Shows the progress of long work on stderr: a bar on a terminal, lines elsewhere."""
    if quiet:
        yield None
        return
    shown, on_terminal = _Progress(what), os.isatty(2)
    with interruptible() if on_terminal else contextlib.nullcontext():
        thread = threading.Thread(target=shown.bar if on_terminal else shown.lines, daemon=True)
        thread.start()
        try:
            yield shown.update
        finally:
            shown.ended.set()
            thread.join()


class _Progress:
    """Progress that a thread shows, also between two updates."""

    def __init__(self, what: str) -> None:
        self.what = what
        self.ended = threading.Event()
        self.state = 0, 0  # done, and the total or 0 where it is unknown

    def update(self, done: int, total: int) -> None:
        self.state = done, total

    def bar(self) -> None:
        if self.ended.wait(PROGRESS_AFTER):
            return
        from rich import progress
        from rich.console import Console

        with progress.Progress(console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(self.what, total=None)
            while not self.ended.wait(0.1):
                done, total = self.state
                bar.update(task, completed=done, total=total or None)

    def lines(self) -> None:
        seconds, pause = 0.0, PROGRESS_LINE_AFTER
        while not self.ended.wait(pause):
            seconds, (done, total) = seconds + pause, self.state
            share = f"{100 * done / total:.0f} % " if total else ""
            say(f"{self.what}: {share}after {seconds:.0f} s")
            pause = min(2 * pause, 60.0)


@contextlib.contextmanager
def traffic_told() -> Iterator[None]:
    """Says on stderr what the block has read from elsewhere."""
    from ttanalyze.util.remote import traffic

    requests, read = traffic.requests, traffic.bytes
    yield
    if traffic.bytes > read:
        count = text.count(traffic.requests - requests, "request")
        say(f"read {traffic.bytes - read:,} bytes in {count}")


def screen_width() -> int:
    """Width of the terminal in characters; 0 without a terminal."""
    return shutil.get_terminal_size().columns if os.isatty(1) else 0


def say_what_is_missing() -> None:
    """Says on stderr which missing tool makes names incomplete."""
    from ttanalyze.code import demangle

    note = demangle.missing()
    if note:
        say(note)
