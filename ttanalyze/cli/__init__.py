"""The command line: each verb parses its options and calls its module. No logic lives here.

A verb imports large modules only when it runs. Exit statuses: 0 same, 1 different, 2 error (one
line on stderr), 130 interrupted, 141 the reader of our output went away.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from importlib import import_module
from itertools import chain
from typing import Annotated, Any

import typer

from ttanalyze import __version__
from ttanalyze.cli.common import ERROR, INTERRUPTED, SAME, ReaderGoneError, print_text, traffic_told
from ttanalyze.cli.help import GROUPS, Verb, Verbs
from ttanalyze.errors import Error, system_error
from ttanalyze.output import text

app = typer.Typer(
    name="ttanalyze",
    cls=Verbs,
    help="Time travel for GPU memory: record an unmodified CUDA program and examine the run.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for verb in chain.from_iterable(GROUPS.values()):
    for command in import_module(f"{__name__}.{verb}").verbs.registered_commands:
        command.cls = command.cls if issubclass(command.cls, Verb) else Verb
        app.registered_commands.append(command)


def _version(wanted: bool) -> None:
    if wanted:
        print_text(f"ttanalyze {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


EXPECTED = {
    "int_parsing": "a whole number",
    "float_parsing": "a number",
    "greater_than_equal": "at least {ge}",
    "less_than_equal": "at most {le}",
}


def _usage_error(e: Any) -> str:
    """The text of an error of Typer's; a number that is none is told in our words."""
    problems: list[Any] = getattr(e.__cause__, "errors", list)()
    expected = EXPECTED.get(problems[0]["type"]) if problems else None
    if expected is None:
        return str(e.format_message())
    given, limits = problems[0]["input"], problems[0].get("ctx", {})
    name = e.param.opts[0] if e.param.opts[0].startswith("-") else e.param.human_readable_name
    return f"{name} {given}: expected {expected.format(**limits)}"


def _as_given(message: str, arguments: list[str]) -> str:
    """The text of an error of an option that has several names, by the name that was given."""
    option, _, rest = message.partition(" ")
    given = {word.partition("=")[0] for word in arguments}
    commands: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    verb = commands.get(arguments[0])
    names = [parameter.opts for parameter in (verb.params if verb else ())]
    others = [name for of in names if option in of for name in of if name.startswith("--")]
    used = [name for name in others if name in given]
    return f"{used[0]} {rest}" if used and option not in used else message


def run_command(arguments: list[str]) -> int:
    """Runs a command line and returns its exit status. Prints each error as one line."""
    if not arguments and "_TTANALYZE_COMPLETE" not in os.environ:  # where a shell has the words
        run_command(["--help"])
        return ERROR
    try:
        with traffic_told():
            result = app(arguments, prog_name="ttanalyze", standalone_mode=False)
        sys.stdout.flush()
        return result if isinstance(result, int) else SAME
    except Error as e:
        message = str(e)
    except KeyboardInterrupt:
        return INTERRUPTED
    except (ReaderGoneError, BrokenPipeError):
        return 128 + signal.SIGPIPE
    except SystemExit as e:  # typer's, when it completed a word, or could not write a help text
        return 128 + signal.SIGPIPE if e.code else SAME
    except OSError as e:
        message = str(system_error(e.filename or "standard output", e))
    except (MemoryError, ImportError, RuntimeError) as e:
        from ttanalyze.util.memory_limit import lacks_memory, out_of_memory

        if not lacks_memory(e):
            raise
        message = out_of_memory()
    except Exception as e:
        # Typer's own errors share no public base class across its versions.
        if not hasattr(e, "format_message"):
            raise
        message = _usage_error(e)
    message = _as_given(message, arguments)
    line = " ".join(text.printable(part) for part in message.splitlines())
    with contextlib.suppress(OSError):
        print(f"ttanalyze: {line}", file=sys.stderr)
    return ERROR


def _take_streams() -> None:
    """Opens /dev/null in place of closed standard streams.

    Otherwise our first files get the descriptors 0 to 2 and receive the streams' output. Programs
    that we start do not inherit these descriptors.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDONLY if number else os.O_WRONLY)
    sys.stdout = sys.stdout or os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115


def _give_up_streams() -> None:
    """Drops output that cannot be written, so that it does not change the exit status."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def main(arguments: list[str]) -> int:
    """Runs the ttanalyze command as a process of its own and returns its exit status."""
    _take_streams()
    status = run_command(arguments)
    _give_up_streams()
    return status
