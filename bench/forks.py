"""Programs that run in forks of a process that has imported what takes long, once for each way.

PyTorch takes longer to import than the steps that are measured. The processes of all ways import
at the same time, before anything is measured, and wait without using the GPU.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any, TypeVar

from bench.bed import ROOT, Bed, Command, ProgramError, last_line, parse, process_of
from ttanalyze.format.process import Process

T = TypeVar("T")
Options = Mapping[str, str]
GRACE = 30  # seconds: of the imports
ENDED = "ended: "
TORCH = ("torch", "torch.profiler", "torch._dynamo")


class Forks:
    """A program of bench/programs that serves (bench/programs/forked.py), bare or recorded.

    command: what runs it, without arguments. imports: modules to import before. options: those of
    the recorder, None for a bare program. once: it answers once, without a fork.
    """

    def __init__(
        self,
        bed: Bed,
        command: Command,
        imports: tuple[str, ...],
        options: Options | None,
        once: bool = False,
    ) -> None:
        self.bed, self.options, self.once = bed, options, once
        self.run = bed.out / f"run-{os.getpid()}-{time.monotonic_ns()}"
        self.process = subprocess.Popen(
            [*map(str, command), "--once" if once else "--serve", *imports],
            env=bed.bare() if options is None else bed.recorded(self.run, options),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=ROOT,
            start_new_session=True,
        )
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._heard = ""
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def answer(self, arguments: list[str], timeout: float = 120) -> Any:
        """The JSON that a fork with these arguments prints. Raises ProgramError."""
        return self.answered(self.ask(arguments, timeout))

    def ask(self, arguments: list[str], timeout: float = 120) -> int:
        """Starts a fork with these arguments. Returns the seconds that it may take."""
        seconds = int(min(timeout, self.bed.left))
        if seconds < 1:
            raise ProgramError(f"{self._name}: no time left for it")
        self._heard = ""
        self._say(json.dumps([seconds, *arguments]))
        return seconds

    def _say(self, line: str) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
        except (OSError, ValueError):
            self.close()
            raise ProgramError(f"{self._name}: its process has ended") from None

    def let_go_on(self, word: str, until: float) -> None:
        """Waits for the fork to print a line with this word, and answers with an empty line. Raises
        ProgramError.
        """
        while not self._heard.endswith(word + "\n"):
            if (line := self._line(until)) is None:
                raise ProgramError(f"{self._name}: not {word} in time: {last_line(self._heard)}")
            self._heard += line
        self._say("")

    def answered(self, seconds: float) -> Any:
        """The JSON that the fork prints after `ask`. Raises ProgramError."""
        until, status = time.monotonic() + seconds + GRACE, None
        while status is None and (line := self._line(until)) is not None:
            if line.startswith(ENDED):
                status = int(line.removeprefix(ENDED))
            else:
                self._heard += line
        if status is None and not self.once:
            self.close()
            raise ProgramError(f"{self._name}: its process has ended")
        if status == -signal.SIGALRM:
            raise ProgramError(f"{self._name}: no end within {seconds} s")
        if status:
            raise ProgramError(f"{self._name}: status {status}: {last_line(self._heard)}")
        return parse(self._heard, self._name)

    def _line(self, until: float) -> str | None:
        """The next line that it prints; None: it has ended, or its time has."""
        try:
            return self._lines.get(timeout=max(until - time.monotonic(), 0))
        except queue.Empty:
            return None

    def with_run(
        self, arguments: list[str], look: Callable[[Any, Process], T], timeout: float = 120
    ) -> T:
        """What `look` makes of an answer and of the process that was recorded meanwhile."""
        try:
            return look(self.answer(arguments, timeout), process_of(self.run))
        finally:
            shutil.rmtree(self.run, ignore_errors=True)

    @property
    def _name(self) -> str:
        words = ",".join(f"{key}={value}" for key, value in (self.options or {}).items())
        return words or "the bare program"

    def close(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self._reader.join()
        with contextlib.suppress(BrokenPipeError), self.process:
            pass
        shutil.rmtree(self.run, ignore_errors=True)


def of_ways(
    stack: ExitStack,
    bed: Bed,
    command: Command,
    ways: Mapping[str, Options | None],
    imports: tuple[str, ...] = TORCH,
) -> dict[str, Forks]:
    """Forks of the bare program and of each way, until the stack is closed."""
    out = {}
    every: dict[str, Options | None] = {"bare": None, **ways}
    for name, options in every.items():
        out[name] = Forks(bed, command, imports, options)
        stack.callback(out[name].close)
    return out
