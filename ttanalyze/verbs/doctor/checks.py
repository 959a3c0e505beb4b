"""The checks of `doctor`: driver, devices, libraries and limits."""

from __future__ import annotations

import contextlib
import ctypes
import glob
import importlib.util
import json
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ttanalyze.errors import Error
from ttanalyze.output import text
from ttanalyze.util import libraries
from ttanalyze.util.progress import Progress, tell

OK, WARN, FAIL = "ok", "warn", "fail"
CHECKS = 15
PROBE_SECONDS = 60
LEAST_DISK = 5 << 30  # --max-disk auto keeps this free, or a tenth of the disk
LEAST_MEMORY = 1 << 30
LEAST_MEMLOCK = 64 << 20
LEAST_DRIVER = 12000


@dataclass(frozen=True)
class Check:
    """The result of one check.

    Attributes:
        name: What was checked.
        status: "ok", "warn" or "fail".
        found: What was found, one line.
        advice: What to do, None if all is well.
    """

    name: str
    status: str
    found: str
    advice: str | None = None


@dataclass(frozen=True)
class Diagnosis:
    """The result of `doctor`.

    Attributes:
        gpu: Whether recording on a GPU works.
        simulator: Whether recording on the simulator works.
        checks: The results of the checks.
    """

    gpu: bool
    simulator: bool
    checks: list[Check]

    @property
    def fit(self) -> bool:
        """Whether recording works on the GPU or on the simulator."""
        return self.gpu or self.simulator

    def to_json(self) -> str:
        """Returns the diagnosis as a JSON object."""
        return json.dumps({"fit": self.fit, **asdict(self)}, indent=2)


def doctor(folder: Path | None = None, progress: Progress = None) -> Diagnosis:
    """Checks driver, devices, libraries and limits of this machine.

    Args:
        folder: The folder for runs, whose free space is checked. Default: the current folder.
        progress: Called with the finished and the total number of checks.

    Returns:
        The diagnosis.

    Example:
        >>> [check.name for check in tt.doctor.doctor().checks][0]
        'recorder'
    """
    checks: list[Check] = []
    for check in _checks(folder or Path.cwd()):
        checks.append(check)
        tell(progress, len(checks), CHECKS)
    works = {check.name: check.status == OK for check in checks}
    fit = works["recorder"]
    return Diagnosis(fit and works["device"], fit and works["simulator"], checks)


def _checks(folder: Path) -> Iterator[Check]:
    yield check_shim()
    driver, devices, gpu = check_driver()
    yield driver
    yield devices
    yield check_simulator()
    yield check_cupti()
    yield check_disassembler()
    yield check_addr2line()
    yield check_zstd()
    yield check_device_files(gpu)
    yield check_profiling()
    yield check_glibc()
    yield check_ptrace()
    yield check_memlock()
    yield check_memory()
    yield check_disk(folder)


def doctor_text(diagnosis: Diagnosis, colour: bool = False) -> str:
    """The diagnosis for a screen."""
    colours = {OK: "green", WARN: "yellow", FAIL: "red"}
    width = max(len(check.name) for check in diagnosis.checks) + 2
    out = []
    for check in diagnosis.checks:
        status = text.coloured(check.status.ljust(6), colours[check.status], colour)
        out.append(f"{status}{check.name.ljust(width)}{text.printable(check.found)}")
        if check.advice:
            out.append(" " * (6 + width) + f"→ {check.advice}")
    where = [name for name, works in (("the GPU", diagnosis.gpu),) if works]
    where += ["the simulator (--sim)"] if diagnosis.simulator else []
    verdict = f"ready to record on {' and '.join(where)}" if where else "not ready to record"
    return "\n".join([*out, "", verdict])


# ---- what is looked at ----


def run_probe(simulator: Path | None = None) -> dict[str, Any]:
    """Returns the result of probe.py for the driver, or for the simulator in a folder."""
    environment = {k: v for k, v in os.environ.items() if k not in ("LD_PRELOAD", "TT_OUT")}
    environment.pop("CUDA_INJECTION64_PATH", None)
    if simulator:
        others = environment.get("LD_LIBRARY_PATH")
        environment["LD_LIBRARY_PATH"] = ":".join(filter(None, [str(simulator), others]))
    try:
        done = subprocess.run(
            [sys.executable, "-I", str(Path(__file__).with_name("probe.py"))],
            env=environment,
            capture_output=True,
            text=True,
            timeout=PROBE_SECONDS,
            check=False,
        )
        answer: dict[str, Any] = json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        return {"error": f"no answer within {PROBE_SECONDS} s"}
    except json.JSONDecodeError:
        return {"error": f"the driver ended the process that asked (status {done.returncode})"}
    return answer


def check_driver() -> tuple[Check, Check, bool]:
    """Checks the driver and the devices, and whether one of them works."""
    found = run_probe()
    unknown = Check("device", WARN, "none: no driver", "fix the driver first")
    if found["error"]:
        if found.get("path") is None:
            advice = "install NVIDIA's driver, or: docker run --gpus all; --sim works without one"
        else:
            advice = "check nvidia-smi and dmesg; give a container its GPUs"
        return Check("driver", WARN, found["error"], advice), unknown, False
    version = found["version"]
    if found["path"] and Path(found["path"]).parent == libraries.library_folder() / "sim":
        driver = Check("driver", WARN, "the simulator, by LD_LIBRARY_PATH", "unset LD_LIBRARY_PATH")
        return driver, unknown, False
    shown = f"CUDA {version // 1000}.{version % 1000 // 10}, {found['path']}"
    if version < LEAST_DRIVER:
        return (
            Check("driver", WARN, shown, "update it to one for CUDA 12 or later"),
            unknown,
            False,
        )
    driver = Check("driver", OK, shown)
    devices = [
        f"{d['ordinal']}: {d['name']}, {text.size(d['memory'])}"
        + ("" if d["works"] == "yes" else f" ({d['works']})")
        for d in found["devices"]
    ]
    works = any(d["works"] == "yes" for d in found["devices"])
    if not works:
        advice = "free its memory, or check CUDA_VISIBLE_DEVICES and nvidia-smi"
        return driver, Check("device", WARN, "; ".join(devices) or "none", advice), False
    return driver, Check("device", OK, "; ".join(devices)), True


def check_simulator() -> Check:
    try:
        folder = libraries.simulator()
    except Error as e:
        return Check("simulator", FAIL, str(e), "make build, or install the package again")
    found = run_probe(folder)
    devices = found.get("devices") or []
    if found["error"] or not devices or devices[0]["works"] != "yes":
        why = found["error"] or (devices[0]["works"] if devices else "no device")
        return Check("simulator", FAIL, str(why), "unset TT_SIM_ variables, or build it again")
    return Check("simulator", OK, f"{devices[0]['name']}, {text.size(devices[0]['memory'])}")


def check_shim() -> Check:
    """Checks whether LD_PRELOAD loads the recorder."""
    try:
        shim = libraries.shim()
    except Error as e:
        return Check("recorder", FAIL, str(e), "make build, or install the package again")
    environment = {k: v for k, v in os.environ.items() if not k.startswith("TT_")}
    environment["LD_PRELOAD"] = str(shim)
    program = shutil.which("true") or "/bin/true"
    try:
        done = subprocess.run(
            [program], env=environment, capture_output=True, text=True, timeout=20, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as e:
        return Check("recorder", FAIL, f"{program}: {e}", "check whether LD_PRELOAD is allowed")
    if done.returncode or done.stderr:
        why = done.stderr.strip().splitlines()
        found = why[0] if why else f"{program} ended with status {done.returncode}"
        return Check("recorder", FAIL, found, "it was built for another system: build it here")
    return Check("recorder", OK, str(shim))


def check_cupti() -> Check:
    folders = [
        *glob.glob("/usr/local/cuda*/extras/CUPTI/lib64"),
        *glob.glob("/usr/local/cuda*/lib64"),
        *glob.glob("/usr/lib/*-linux-gnu"),
        *(os.path.join(p, "nvidia", "cuda_cupti", "lib") for p in sys.path if p),
        *(os.path.join(p, "nvidia", "cu13", "lib") for p in sys.path if p),
        *os.environ.get("LD_LIBRARY_PATH", "").split(":"),
    ]
    home = os.environ.get("CUDA_HOME")
    if home:
        folders.insert(0, os.path.join(home, "extras", "CUPTI", "lib64"))
    for folder in filter(None, folders):
        found = sorted(glob.glob(os.path.join(glob.escape(folder), "libcupti.so*")))
        if found:
            return Check("CUPTI", OK, os.path.realpath(found[0]))
    why = "not found; only `record --timeline cupti` needs it"
    return Check("CUPTI", OK, why, "pip install nvidia-cuda-cupti")


def check_disassembler() -> Check:
    from ttanalyze.disassembly import tools  # which needs more than other checks do

    found = tools.find("nvdisasm")
    if found:
        return Check("nvdisasm", OK, f"{found[0]} ({tools.version(found[0])})")
    why = "not found; only `ttanalyze sass` needs it"
    return Check("nvdisasm", OK, why, "pip install 'ttanalyze[sass]'")


MANAGERS = {  # by program: how it installs, and which of the names below it knows
    "apt-get": ("apt-get install", 0),
    "dnf": ("dnf install", 1),
    "zypper": ("zypper install", 0),
    "pacman": ("pacman -S", 2),
    "apk": ("apk add", 2),
}


def install(*names: str) -> str:
    """Returns the command that installs a package of the system.

    names: of Debian, of Fedora, of Arch; the last one stands for those that are missing.
    """
    for program, (command, which) in MANAGERS.items():
        if shutil.which(program):
            root = "" if os.geteuid() == 0 else "sudo "
            return f"{root}{command} {names[min(which, len(names) - 1)]}"
    return f"install the system's package {names[0]}"


def check_addr2line() -> Check:
    tool = shutil.which("addr2line")
    if tool:
        return Check("addr2line", OK, tool)
    why = "not found: native call stacks have functions, but no source lines"
    return Check("addr2line", WARN, why, install("binutils"))


def check_zstd() -> Check:
    """Checks the library that the recorder compresses with, and the package that expands."""
    try:
        ctypes.CDLL("libzstd.so.1")
    except OSError:
        why = "no libzstd.so.1: `record --compress` stores contents uncompressed"
        return Check("zstd", WARN, why, install("libzstd1", "libzstd", "zstd"))
    if importlib.util.find_spec("zstandard") is None:
        why = "no package zstandard: compressed contents cannot be read"
        return Check("zstd", WARN, why, "pip install zstandard")
    return Check("zstd", OK, "libzstd.so.1 compresses, zstandard expands")


def check_device_files(gpu: bool) -> Check:
    files = [p for p in glob.glob("/dev/nvidia*") if not os.path.isdir(p)]
    if not files:
        advice = "install NVIDIA's driver, or start the container with its GPUs"
        return Check(
            "device files", OK if gpu else WARN, "no /dev/nvidia*", None if gpu else advice
        )
    closed = [p for p in files if "caps" not in p and not os.access(p, os.R_OK | os.W_OK)]
    if closed:
        advice = "join the group that owns them, or run the container with its GPUs"
        return Check("device files", WARN, f"no access to {', '.join(sorted(closed))}", advice)
    return Check("device files", OK, f"{len(files)} in /dev, accessible")


def check_profiling() -> Check:
    """Checks NVIDIA's setting that restricts performance counters to administrators."""
    try:
        parameters = Path("/proc/driver/nvidia/params").read_text()
    except OSError:
        return Check("profiling", OK, "no restriction known")
    if "RmProfilingAdminOnly: 1" in parameters and os.geteuid() != 0:
        advice = "only timelines need it: NVreg_RestrictProfilingToAdminUsers=0 as module option"
        return Check("profiling", WARN, "for administrators only", advice)
    return Check("profiling", OK, "allowed")


def check_glibc() -> Check:
    try:
        version = os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (ValueError, OSError):
        version = ""
    if not version:
        advice = "use a system with the GNU C library: the driver needs it as well"
        return Check("C library", FAIL, "not glibc", advice)
    return Check("C library", OK, version)


def check_ptrace() -> Check:
    """Checks ptrace. LD_PRELOAD does not need it; attaching a debugger to a recorded program
    does.
    """
    try:
        scope = int(Path("/proc/sys/kernel/yama/ptrace_scope").read_text())
    except (OSError, ValueError):
        return Check("ptrace", OK, "not restricted")
    if scope >= 2:
        advice = "recording does not need it; attaching a debugger does: kernel.yama.ptrace_scope=1"
        return Check("ptrace", OK, f"restricted (ptrace_scope {scope})", advice)
    return Check("ptrace", OK, f"ptrace_scope {scope}")


def check_memlock() -> Check:
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if soft == resource.RLIM_INFINITY:
        return Check("locked memory", OK, "unlimited")
    if soft < LEAST_MEMLOCK:
        advice = "harmless with most drivers; if the ring is refused: ulimit -l unlimited"
        return Check("locked memory", OK, f"at most {text.size(soft)}", advice)
    return Check("locked memory", OK, f"at most {text.size(soft)}")


def check_disk(folder: Path) -> Check:
    if not os.access(folder, os.W_OK | os.X_OK):
        return Check("disk", FAIL, f"{folder} is not writable", "record to another place with -o")
    usage = shutil.disk_usage(folder)
    found = f"{text.size(usage.free)} free in {folder}"
    least = max(LEAST_DISK, usage.total // 10)
    if usage.free < least:
        found += f"; below {text.size(least)} epochs have digests, but no contents"
        return Check("disk", WARN, found, "ttanalyze record -o /other/disk/run, or --max-disk off")
    return Check("disk", OK, found)


def check_memory() -> Check:
    """Checks the free memory of the machine, or of the container."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        free = next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration, ValueError):
        return Check("memory", OK, "unknown")
    with contextlib.suppress(OSError, ValueError):  # a limit may be "max"
        group = Path("/sys/fs/cgroup")
        limit = int((group / "memory.max").read_text())
        free = min(free, limit - int((group / "memory.current").read_text()))
    found = f"{text.size(max(free, 0))} free"
    if free < LEAST_MEMORY:
        return Check("memory", WARN, found, "ttanalyze record --ring-bytes 64M, or end programs")
    return Check("memory", OK, found)
