"""Runs a program for lines of standard input, when what it imports is there."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import sys
from collections.abc import Callable


def serve(main: Callable[[], None]) -> None:
    """Imports the modules of `--serve MODULE…`, then runs `main` for each line, a JSON list of the
    seconds that it may take and the arguments. After what a fork prints comes "ended: STATUS".
    With --once in place of --serve, `main` runs for one line, in this process; without either, at
    once.
    """
    once = sys.argv[1:2] == ["--once"]
    if not once and sys.argv[1:2] != ["--serve"]:
        main()
        return
    for name in sys.argv[2:]:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    for line in sys.stdin:
        child = 0 if once else os.fork()
        if not child:
            seconds, *sys.argv[1:] = json.loads(line)
            signal.alarm(seconds)
            main()
            return
        _, status = os.waitpid(child, 0)
        print(f"ended: {os.waitstatus_to_exitcode(status)}", flush=True)
