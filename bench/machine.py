"""What was measured on, and when."""

from __future__ import annotations

import datetime
import os
import platform
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

from bench.bed import Bed


def describe(bed: Bed) -> dict[str, Any]:
    """cpu, cores, memory (bytes), kernel, system, file_system, and of a GPU gpu, driver."""
    out: dict[str, Any] = {
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "memory": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "kernel": platform.release(),
        "system": _system(),
        "python": platform.python_version(),
        "file_system": file_system(bed.out),
    }
    if not bed.sim:
        out |= _gpu()
    return out


def today() -> str:
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d")


def _cpu() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        text = ""
    found = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return found[1] if found else platform.machine()


def _system() -> str:
    try:
        text = Path("/etc/os-release").read_text()
    except OSError:
        text = ""
    found = re.search(r'^PRETTY_NAME="?([^"\n]+)', text, re.MULTILINE)
    return found[1] if found else platform.system()


def file_system(folder: Path) -> str:
    """The type of the file system that a folder is in."""
    best, kind = "", "unknown"
    try:
        mounts = Path("/proc/mounts").read_text().splitlines()
    except OSError:
        return kind
    real = os.path.realpath(folder)
    for line in mounts:
        _, where, what, *_ = line.split()
        inside = real == where or real.startswith(where.rstrip("/") + "/")
        if inside and len(where) >= len(best):
            best, kind = where, what
    return kind


def _gpu() -> dict[str, str]:
    tool = shutil.which("nvidia-smi")
    if not tool:
        return {"gpu": "unknown", "driver": "unknown"}
    wanted = "--query-gpu=name,driver_version,memory.total"
    done = subprocess.run(
        [tool, wanted, "--format=csv,noheader"], capture_output=True, text=True, check=False
    )
    cells = [cell.strip() for cell in done.stdout.partition("\n")[0].split(",")]
    if done.returncode or len(cells) != 3:
        return {"gpu": "unknown", "driver": "unknown"}
    return {"gpu": cells[0], "driver": cells[1], "gpu_memory": cells[2]}
