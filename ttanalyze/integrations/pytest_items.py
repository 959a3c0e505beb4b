"""Tests that run in processes of their own, under the recorder."""

from __future__ import annotations

import contextlib
import hashlib
import os
import pickle
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

NAME = "gpu_determinism"
CHILD = "import ttanalyze.pytest_plugin as p; raise SystemExit(p.child())"
# What must not be the same in the process of a test as in ours.
OFF = (
    "tt_verify",
    "tt_update",
    "tt_check",
    "lf",
    "failedfirst",
    "newfirst",
    "stepwise",
    "stepwise_skip",
)
CHILD_OPTIONS: dict[str, Any] = {
    **dict.fromkeys((*OFF, "usepdb", "trace"), False),
    **dict.fromkeys(("numprocesses", "xmlpath", "deselect", "pastebin", "log_file")),
    **dict.fromkeys(("keyword", "markexpr"), ""),
    "dist": "no",
    "tx": [],
    "maxfail": 0,
    "verbose": 0,
}


class DifferentError(Exception):
    """Why a test fails, in words that are shown as they are."""


class RecordedItem(pytest.Item):
    """Stands for a test, which runs in processes of its own."""

    def __init__(self, *, test: pytest.Item, **options: Any) -> None:
        super().__init__(**options)
        self._test = test
        self.own_markers = [*test.own_markers]
        self.keywords.update(test.keywords)

    def reportinfo(self) -> tuple[os.PathLike[str] | str, int | None, str]:
        return self._test.reportinfo()

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        from ttanalyze.errors import Error

        if isinstance(excinfo.value, (DifferentError, Error)):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    @contextlib.contextmanager
    def _folder(self) -> Iterator[Path]:
        """An empty folder for runs, which --tt-keep keeps."""
        keep = self.config.option.tt_keep
        if not keep:
            with tempfile.TemporaryDirectory(prefix="ttanalyze-pytest-") as name:
                yield Path(name)
            return
        folder = self.config.invocation_params.dir / keep / self._file_name()
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        yield folder

    def _judge(self, reports: list[dict[str, Any]], status: int, which: str) -> None:
        for report in reports:
            if report["outcome"] == "failed" or report["xfailed"]:
                head = f"the test itself fails in {which} ({report['when']})"
                raise DifferentError(f"{head}:\n\n{report['text']}")
            if report["outcome"] == "skipped":
                pytest.skip(report["text"])
        if status:
            ending = f"signal {-status}" if status < 0 else f"status {status}"
            raise DifferentError(f"the test's process ended with {ending}, in {which}")

    def _order(self, scratch: Path, told: Path) -> dict[str, Any]:
        """What the process of a test must know."""
        option = self.config.option
        options = {key: value for key, value in vars(option).items() if _can_be_sent(value)}
        options |= {key: value for key, value in CHILD_OPTIONS.items() if hasattr(option, key)}
        options["plugins"] = [*options.get("plugins", []), "no:terminal"]
        options["basetemp"] = str(scratch / "tmp")
        options["rootdir"] = str(self.config.rootpath)
        options["inifilename"] = str(self.config.inipath) if self.config.inipath else None
        options["override_ini"] = [
            *(options.get("override_ini") or []),
            f"cache_dir={scratch / 'cache'}",
        ]
        inside = self.nodeid.partition("::")[2]
        return {
            "path": sys.path,
            "options": options,
            "arguments": [f"{self.path}::{inside}"],
            "told": str(told),
        }

    def _epoch(self) -> str:
        """When epochs are cut."""
        marker = self.get_closest_marker(NAME)
        chosen = marker.kwargs.get("epoch") if marker else None
        return str(chosen or self.config.option.tt_epoch)

    def _file_name(self) -> str:
        """The test's name within its file, as a file may be called."""
        name = self.nodeid.partition("::")[2].replace("::", ".")
        plain = re.sub(r"[^\w.\[\]+,=-]", "_", name, flags=re.ASCII)[:100]
        if plain == name:
            return plain
        return f"{plain}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def _can_be_sent(value: Any) -> bool:
    try:
        pickle.dumps(value)
    except Exception:  # options of a plugin may hold any object
        return False
    return True
