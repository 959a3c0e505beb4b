"""What verbs share: common options, output as a whole or not at all, progress on a terminal."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import typer

from ttanalyze import text
from ttanalyze.errors import Error, system_error
from ttanalyze.output import Opener, replacing

SAME, DIFFERS, ERROR, INTERRUPTED = 0, 1, 2, 130
PROGRESS_AFTER = 1.0  # seconds

RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="A run directory.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")]
ProcessOption = Annotated[int, typer.Option(metavar="N", help="Which process.")]
DeviceOption = Annotated[int, typer.Option(metavar="N", help="On which device.")]


class ReaderGoneError(Exception):
    """Nobody reads what we print any more."""


def print_text(content: str, end: str = "\n", exact: bool = False) -> None:
    """Writes all of it to stdout, which without a buffer might take only a part. All that verbs
    print goes through here or through say, which let nothing through that a terminal would act on.
    exact: as it is, unless to a terminal.
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
    """A line on stderr."""
    print(f"ttanalyze: {text.printable(line)}", file=sys.stderr, flush=True)


def as_json(value: Any) -> str:
    import orjson

    return orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()


def check_output(path: Path | None) -> None:
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


def write_file(path: Path, content: str, opener: Opener | None = None) -> None:
    """Replaces a file as a whole, or leaves it as it is; devices and pipes are written to."""
    with output_file(path, opener) as file:
        file.write(content.encode())


@contextlib.contextmanager
def output_file(path: Path, opener: Opener | None = None) -> Iterator[BinaryIO]:
    """The same for what comes in pieces: a file to write to."""
    try:
        with interruptible(), replacing(path, opener) as file:
            yield file
    except BrokenPipeError:
        raise ReaderGoneError from None


@contextlib.contextmanager
def standard_output() -> Iterator[BinaryIO]:
    """Standard output as a file, for what comes in pieces."""
    try:
        sys.stdout.flush()
        with interruptible(), open(1, "wb", closefd=False) as file:
            yield file
    except BrokenPipeError:
        raise ReaderGoneError from None
    except OSError as e:
        raise system_error("standard output", e) from None


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
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
def progress_bar(what: str, quiet: bool) -> Iterator[Callable[[int, int], None] | None]:
    """A progress bar on a terminal, for work that takes more than a moment."""
    if quiet or not os.isatty(2):
        yield None
        return
    began = time.monotonic()
    with interruptible(), contextlib.ExitStack() as stack:
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
