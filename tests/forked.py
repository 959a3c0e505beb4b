"""Runs command lines in a process that has imported all modules already.

The tests run a thousand command lines, and the imports of one take a third of a second. So a
process imports them once, and forks for each. It starts with the variables that the dynamic loader
and Python read when a process begins: for others there is another such process.
"""

from __future__ import annotations

import array
import atexit
import contextlib
import gc
import json
import os
import pkgutil
import random
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
READ_EARLY = ("LD_", "LC_", "LANG", "PYTHON", "MALLOC_", "GLIBC_", "TT_LIB")
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}  # to fork from
MESSAGE = 1 << 20


class TimeLimit(subprocess.TimeoutExpired):
    """A program did not end, and was ended with all it started. Says what it wrote until then."""

    def __str__(self) -> str:
        return "\n".join(map(str, (super().__str__(), self.stdout, self.stderr)))


_lock = threading.Lock()
_servers: dict[tuple[tuple[str, str], ...], tuple[socket.socket, subprocess.Popen[bytes]]] = {}


def _server(environment: dict[str, str]) -> socket.socket:
    """The other end of the process for this environment, which ends when that end is closed."""
    key = tuple(sorted(item for item in environment.items() if item[0].startswith(READ_EARLY)))
    if key not in _servers:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MESSAGE)
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(theirs.fileno())],
                env=environment | ONE_THREAD,
                cwd=ROOT,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
            )
        if not _servers:
            atexit.register(_end)
        _servers[key] = ours, process
    return _servers[key][0]


def _end() -> None:
    for control, process in _servers.values():
        control.close()
        process.wait()


def run(
    module: str,
    arguments: Sequence[str],
    environment: dict[str, str],
    timeout: float,
    folder: Path = ROOT,
) -> tuple[str, str, int]:
    """Runs ``python -m MODULE`` in the folder, without input. Returns output, errors and status
    (-N: signal).
    """
    pipes = [os.pipe() for _ in range(3)]
    try:
        asked = {
            "arguments": [module, *arguments],
            "environment": environment,
            "folder": str(folder),
        }
        rights = array.array("i", [write for _, write in pipes])
        passed = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)]
        with _lock:
            _server(environment).sendmsg([json.dumps(asked).encode()], passed)
        for _, write in pipes:
            os.close(write)
        told = _read([read for read, _ in pipes], timeout, [module, *arguments])
    finally:
        for read, _ in pipes:
            os.close(read)
    output, errors = (text.decode(errors="replace").replace("\r\n", "\n") for text in told[:2])
    try:
        _, status = map(int, told[2].split())
    except ValueError:
        raise RuntimeError(f"the process that forks has ended: {errors}") from None
    return output, errors, os.waitstatus_to_exitcode(status)


def _read(readers: list[int], timeout: float, command: list[str]) -> list[bytes]:
    """Reads to the end of all. The last one begins with the number of the process."""
    told = [b""] * len(readers)
    until = time.monotonic() + timeout
    with selectors.DefaultSelector() as selector:
        for number, reader in enumerate(readers):
            selector.register(reader, selectors.EVENT_READ, number)
        while selector.get_map():
            if time.monotonic() >= until:
                for process in map(int, told[-1].split()[:1]):  # none before it has begun
                    os.killpg(process, signal.SIGKILL)
                written = (text.decode(errors="replace") for text in told[:2])
                raise TimeLimit(command, timeout, *written)
            for key, _ in selector.select(max(0, until - time.monotonic())):
                some = os.read(key.fd, 1 << 16)
                told[key.data] += some
                if not some:
                    selector.unregister(key.fd)
    return told


def _serve(control: socket.socket) -> list[str]:
    """Forks for each message; returns the words of a command line in a process that runs it."""
    while True:
        message, files, _, _ = socket.recv_fds(control, MESSAGE, 3)
        if not message:
            sys.exit()
        if os.fork():
            for file in files:
                os.close(file)
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            continue
        child = os.fork()
        if child:
            os.write(files[2], b"%d " % child)
            os.close(files[0])
            os.close(files[1])
            status = os.waitpid(child, 0)[1]
            with contextlib.suppress(BrokenPipeError):  # after a time limit
                os.write(files[2], b"%d" % status)
            os._exit(0)
        os.setpgid(0, 0)  # before it starts others
        os.dup2(files[0], 1)
        os.dup2(files[1], 2)
        for file in (control.detach(), *files):
            os.close(file)
        asked = json.loads(message)
        os.environ.clear()
        os.environ.update(asked["environment"])
        os.chdir(asked["folder"])
        return list(asked["arguments"])


def build_commands_once() -> None:
    """Builds the command line once in this process, not for each command that it runs."""
    import typer.main

    typer.main.get_command = cache(typer.main.get_command)


def main() -> None:
    """Serves the process that started this one."""
    control = socket.socket(fileno=int(sys.argv[1]))
    ended: list[int] = []
    atexit.register(_end_at_once, ended)  # first, so it is called after all others
    import pandas  # noqa: F401

    import ttanalyze.verbs
    from ttanalyze.cli import run_command

    for found in pkgutil.iter_modules(ttanalyze.verbs.__path__):
        import_module(f"ttanalyze.verbs.{found.name}")
    build_commands_once()
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stderr(nowhere):
        run_command(["info", os.devnull])  # the first one imports much of Typer's
    gc.collect()
    gc.freeze()  # so that collections in children copy no memory
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    module, *arguments = _serve(control)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    random.seed()
    sys.argv = [module, *arguments]
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            ended.append(end.code or 0)
        raise
    ended.append(0)


def _end_at_once(ended: list[int]) -> None:
    """Ends the process with that status, if there is one. Python would visit all objects first,
    which copies the memory of all modules.
    """
    with contextlib.suppress(OSError, ValueError):  # then Python tells it, and ends with 120
        for stream in filter(None, (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__)):
            stream.flush()
        if ended:
            os._exit(ended[0])


if __name__ == "__main__":
    main()
