"""Shows and records runs in Jupyter notebooks.

    %load_ext ttanalyze

adds `%%ttanalyze`, which records the cell in a program of its own:

    %%ttanalyze before --sim --epoch sync
    import train
    train.main()

The first word is the name of a variable, which gets the run; its folder is `before.tt`. The rest
are options of `ttanalyze record`.
"""

from __future__ import annotations

import codecs
import os
import selectors
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import IO, Any

from ttanalyze.errors import Error
from ttanalyze.format.run import Run, open_run
from ttanalyze.output import text
from ttanalyze.util.own_process import own_command
from ttanalyze.verbs.info import info
from ttanalyze.verbs.info.show import process_rows

__all__ = ["load_ipython_extension"]


def html(run: Run) -> str:
    """Returns a run as an HTML table, which notebooks show for a run.

    Args:
        run: The run.
    """
    try:
        found = info(run)
    except Error as e:
        return f"<pre>{escape(text.printable(str(e)))}</pre>"
    parts = [f"<p><b>{escape(text.printable(str(run.path)))}</b></p>"]
    for process in found.processes:
        rows = [("process", str(process.process)), *process_rows(process)]
        cells = [
            f"<tr><th style='text-align:left'>{escape(name)}</th>"
            f"<td style='text-align:left;white-space:pre-wrap'>{escape(value)}</td></tr>"
            for name, value in rows
        ]
        parts.append(f"<table>{''.join(cells)}</table>")
    parts += [f"<p>⚠ {escape(text.printable(line))}</p>" for line in found.warnings]
    return "".join(parts)


def record_cell(line: str, cell: str) -> tuple[str, Run | None]:
    """Records Python code as a program of its own, and passes on what it prints while it runs.

    The program starts in the current directory, and can import modules from there. It shares no
    variables with the notebook.

    Args:
        line: A name, and options of `ttanalyze record`. Default: the name `run`.
        cell: The code.

    Returns:
        The name, and the run in the folder NAME.tt, which replaces an older run there. The run is
        None if nothing was recorded; what was wrong is on standard error.

    Raises:
        Error: The name is not one, or the options set a folder.
    """
    words = shlex.split(line)
    name = words.pop(0) if words and not words[0].startswith("-") else "run"
    if not name.isidentifier():
        raise Error(f"%%ttanalyze {name}: not the name of a variable; options come after it")
    for word in words:
        if word.startswith(("-o", "--out")):
            raise Error(f"%%ttanalyze {word}: the folder is {name}.tt; choose another name")
    out = Path(f"{name}.tt")
    here = [os.getcwd(), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(here), "PYTHONUNBUFFERED": "1"}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "cell.py"
        path.write_text(cell)
        command = own_command("record", *words, "--force", "-o", str(out))
        before = out.stat().st_mtime_ns if out.exists() else 0
        status = _stream([*command, "--", sys.executable, str(path)], environment)
    if status:
        sys.stderr.write(f"the cell ended with status {status}\n")
    there = out.exists() and out.stat().st_mtime_ns != before
    return name, open_run(out) if there else None


def _stream(command: list[str], environment: Mapping[str, str]) -> int:
    """Runs a program, and passes its output on as it comes. Returns its status."""
    process = subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdout is not None and process.stderr is not None
    try:
        with process.stdout, process.stderr, selectors.DefaultSelector() as ready:
            for pipe, to in ((process.stdout, sys.stdout), (process.stderr, sys.stderr)):
                decoder = codecs.getincrementaldecoder("utf-8")("replace")
                ready.register(pipe, selectors.EVENT_READ, (to, decoder))
            while ready.get_map():
                for key, _ in ready.select():
                    _pass_on(ready, key)
    except KeyboardInterrupt:
        os.killpg(process.pid, signal.SIGINT)
        process.wait()
        raise
    return process.wait()


def _pass_on(ready: selectors.BaseSelector, key: selectors.SelectorKey) -> None:
    to: IO[str]
    to, decoder = key.data
    piece = os.read(key.fd, 1 << 16)
    to.write(decoder.decode(piece, final=not piece))
    to.flush()
    if not piece:
        ready.unregister(key.fileobj)


def load_ipython_extension(shell: Any) -> None:
    """Adds `%%ttanalyze` to IPython. `%load_ext ttanalyze` calls it.

    Args:
        shell: The shell of IPython.
    """

    def magic(line: str, cell: str) -> Run | None:
        try:
            name, run = record_cell(line, cell)
        except (Error, ValueError) as e:  # ValueError: a quote without its end
            sys.stderr.write(f"ttanalyze: {e}\n")
            return None
        if run is None:
            sys.stderr.write(f"ttanalyze: no run, so {name} is unchanged\n")
        else:
            shell.user_ns[name] = run
        return run

    shell.register_magic_function(magic, "cell", "ttanalyze")
