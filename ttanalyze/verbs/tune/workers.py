"""Starts the process that tries configurations, again after each crash."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import IO, Any

from ttanalyze.errors import Error
from ttanalyze.output import text
from ttanalyze.util import libraries
from ttanalyze.util.own_process import own_command
from ttanalyze.verbs.tune.space import Configuration

TOOK_LONGER = "took longer"
STARTING = 600.0  # seconds that it may take to restore memory


class Worker:
    """Tries configurations in a process of its own. job: as worker.Trier takes it. timeout: seconds
    per configuration.
    """

    def __init__(self, job: dict[str, Any], timeout: float) -> None:
        self._job = job
        self._timeout = timeout
        self._process: subprocess.Popen[bytes] | None = None
        self._said: IO[bytes] | None = None
        self._rest = b""
        self.about: dict[str, Any] = {}  # what it said of the device

    def start(self) -> None:
        """Starts the process if it does not run. Raises Error if the launch cannot be repeated."""
        if self._process is not None:
            return
        environment = dict(os.environ)
        if self._job["sim"]:
            before = environment.get("LD_LIBRARY_PATH")
            folders = [str(libraries.simulator()), *([before] if before else [])]
            environment["LD_LIBRARY_PATH"] = ":".join(folders)
        self._said = tempfile.TemporaryFile()  # noqa: SIM115, kept as long as the process
        self._rest = b""
        self._process = subprocess.Popen(
            own_command(json.dumps(self._job), module="ttanalyze.verbs.tune.worker"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            env=environment,
            start_new_session=True,  # an interrupt is for us
        )
        answer = self._answer(STARTING)
        if "error" in answer or "failed" in answer:
            self.stop()
            raise Error(answer.get("failed") or f"can't start: {answer['error']}")
        self.about = answer

    def attempt(self, image: str, of: Configuration) -> dict[str, Any]:
        """Returns the result of a configuration: verified, error, times (median, minimum and spread
        in milliseconds).

        image: the file with the code.
        """
        self.start()
        assert self._process is not None and self._process.stdin is not None
        asked = {"image": image, "cells": of.cells()}
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(asked).encode() + b"\n")
            self._process.stdin.flush()
        answer = self._answer(self._timeout)
        if answer.get("lost"):
            self.stop()
        return answer

    def _answer(self, seconds: float) -> dict[str, Any]:
        """Returns the next line of the process. If there is none in time, the process is stopped,
        and the line says why.
        """
        assert self._process is not None and self._process.stdout is not None
        until = time.monotonic() + seconds
        with selectors.DefaultSelector() as waiting:
            waiting.register(self._process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._rest:
                left = until - time.monotonic()
                if left <= 0 or not waiting.select(left):
                    self.stop()
                    return {"verified": False, "error": f"{TOOK_LONGER} than {seconds:g} s"}
                more = os.read(self._process.stdout.fileno(), 1 << 16)
                if not more:
                    return {"verified": False, "error": self._death()}
                self._rest += more
        line, _, self._rest = self._rest.partition(b"\n")
        return json.loads(line)

    def _death(self) -> str:
        assert self._process is not None
        assert self._said is not None
        status = self._process.wait()
        self._said.seek(0)
        lines = self._said.read().decode(errors="replace").strip().splitlines()
        self.stop()
        last = f": {text.printable(lines[-1])}" if lines else ""
        how = f"status {status}"
        if status < 0:
            how = signal.Signals(-status).name if -status in set(signal.Signals) else how
        return f"the process that tried it ended ({how}){last}"

    def stop(self) -> None:
        """Stops the process."""
        if self._process is None:
            return
        process, self._process = self._process, None
        process.kill()
        process.wait()
        for file in (process.stdin, process.stdout, self._said):
            if file is not None:
                with contextlib.suppress(BrokenPipeError):
                    file.close()


class Workers:
    """Workers, one for each job, at the same time. timeout: seconds per configuration."""

    def __init__(self, jobs: Sequence[dict[str, Any]], timeout: float) -> None:
        self._all = [Worker(job, timeout) for job in jobs]
        self._free = list(self._all)
        self._pool = ThreadPoolExecutor(len(jobs))
        self._running: dict[Future[dict[str, Any]], tuple[Worker, Configuration]] = {}

    def __enter__(self) -> Workers:
        """Raises Error if the launch cannot be repeated, or the devices differ."""
        try:
            for one in self._all:
                one.start()
            names = {one.about["device"] for one in self._all}
            if len(names) > 1:
                raise Error(f"the devices differ, and their times too: {', '.join(sorted(names))}")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for one in self._all:
            one.stop()
        self._pool.shutdown(cancel_futures=True)

    @property
    def device(self) -> str:
        """The name of the devices."""
        return str(self._all[0].about["device"])

    @property
    def architecture(self) -> int:
        """The compute capability of the devices, such as 90."""
        return int(self._all[0].about["architecture"])

    @property
    def free(self) -> bool:
        """Whether one does nothing."""
        return bool(self._free)

    @property
    def busy(self) -> bool:
        """Whether one does something."""
        return bool(self._running)

    def submit(self, image: str, of: Configuration) -> None:
        """Lets a free one try a configuration. image: the file with the code."""
        one = self._free.pop(0)
        self._running[self._pool.submit(one.attempt, image, of)] = one, of

    def finished(self) -> list[tuple[Configuration, dict[str, Any]]]:
        """Waits until any has finished, and returns the results."""
        done, _ = wait(self._running, return_when=FIRST_COMPLETED)
        out = []
        for future in done:
            one, configuration = self._running.pop(future)
            self._free.append(one)
            out.append((configuration, future.result()))
        return out
