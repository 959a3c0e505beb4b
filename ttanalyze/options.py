"""What `record` can be told, as options and as TT_ variables; and how lists are written.

The recorder reads the variables itself and refuses what it can't understand, which stops the
recording. So that this shows before the program runs, everything is checked here by the same
rules, whichever way it was given.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ttanalyze.errors import Error

SIZES = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}
MOST_REGIONS = 1_000_000
MOST_PATTERNS = 1024  # letters
LATEST_CALL, LATEST_POINT = 1_000_000_000, 100_000_000  # ns
MOST_NAMES = 400  # bytes of an expression for regions
SETTINGS = "points=on|off, stamps=on|off, regions=all|touched|IDS|REGEX or snapshot=N"
KERNEL_EVENTS = ("dedup", "full", "nostack", "off")


def _number(value: str) -> None:
    if not re.fullmatch(r"[0-9]+", value) or int(value) > 0xFFFFFFFF:
        raise Error("a whole number is expected")


def _nanoseconds(most: int) -> Callable[[str], None]:
    def check(value: str) -> None:
        if not re.fullmatch(r"[0-9]+", value) or int(value) > most:
            raise Error(f"nanoseconds are expected, at most {most}")

    return check


def _wide_number(value: str) -> None:
    if not re.fullmatch(r"[0-9]+", value) or int(value) >= 1 << 64:
        raise Error("a whole number is expected")


def _patterns(value: str) -> None:
    """Mnemonics with commas between them; an asterisk is all of them."""
    if len(value) >= MOST_PATTERNS or not re.fullmatch(
        r"(\*|[A-Z0-9_.]+)(,(\*|[A-Z0-9_.]+))*", value
    ):
        raise Error("mnemonics with commas are expected, such as UTMALDG,SYNCS, or *")


def _delay_file(value: str) -> None:
    """A delay configuration that the recorder will take."""
    from pathlib import Path

    from ttanalyze.schemas import validate

    report = validate(Path(value), "delay-config")
    if not report.good:
        raise Error(str(report.faults[0]))


def _seconds(value: str) -> None:
    parse_seconds(value)


def parse_seconds(value: str) -> float:
    """Seconds such as 60 or 0.5."""
    if not re.fullmatch(r"[0-9]+(\.[0-9]+)?", value) or not float(value) <= 1e9:
        raise Error("seconds are expected, such as 60 or 0.5")
    return float(value)


def _level(value: str) -> None:
    if not re.fullmatch(r"0*1?[0-9]", value):
        raise Error("a level from 0 to 19 is expected")


def _size(value: str) -> None:
    if parse_size(value) < 256 << 10:
        raise Error("at least 256K is needed")


def parse_size(value: str) -> int:
    """Bytes of a size such as 64M or 2GiB."""
    match = re.fullmatch(r"([0-9]+)(?:([kmgtKMGT])i?[bB]?)?", value)
    size = int(match[1]) << SIZES[(match[2] or "").lower()] if match else 1 << 64
    if size >= 1 << 63:
        raise Error("a size is expected, such as 256M or 2G")
    return size


def _disk(value: str) -> None:
    if value not in ("auto", "off") and parse_size(value) < 8 << 20:
        raise Error("auto, off or a size of at least 8M is expected")


def _switch(value: str) -> None:
    if value not in ("0", "1"):
        raise Error("0 or 1 is expected")


def _one_of(*choices: str) -> Callable[[str], None]:
    def check(value: str) -> None:
        if value not in choices:
            raise Error(f"{', '.join(choices[:-1])} or {choices[-1]} is expected")

    return check


def _callers(value: str) -> None:
    """pytorch and auto-gil, by which scripts for other tools ask for what auto does, go as well."""
    if value not in ("pytorch", "auto-gil"):
        _one_of("auto", "python", "backtrace", "mixed", "off")(value)


# Of --epoch, with an expression that takes the rest of its list.
FORMS = ("kernel:", "graph-node:", "nvtx:")
WORDS = "sync, launch, launch:N, graph, memcpy, api, none, kernel:REGEX, graph-node:REGEX or "
WORDS += "nvtx:REGEX"


def _occasions(value: str) -> Iterator[tuple[str, str]]:
    """What is in lists with commas, separated by semicolons: a form and its expression, or nothing
    and a word. See interpose/options/triggers.h.
    """
    for rest in value.split(";"):
        while rest:
            form = next((f for f in FORMS if rest.startswith(f)), "")
            text, _, rest = (rest.removeprefix(form), "", "") if form else rest.partition(",")
            yield form, text


def _epoch(value: str) -> None:
    for form, text in _occasions(value):
        if form:
            _posix_expression(form, text)
        else:
            _epoch_word(text)


def _epoch_word(word: str) -> None:
    if word.startswith("launch:"):
        count = word.removeprefix("launch:")
        if not re.fullmatch(r"[0-9]+", count) or not 0 < int(count) <= 0xFFFFFFFF:
            raise Error("launch:N needs a count from 1")
    elif word not in ("", "sync", "launch", "graph", "memcpy", "api", "none"):
        raise Error(f"'{word[:80]}' is not {WORDS}")


def _names(value: str) -> None:
    _posix_expression("", value)


def _settings(value: str) -> None:
    """What tt_control understands. See interpose/capture/controls.h."""
    for setting in filter(None, (part.strip(" \t\n") for part in value.split(";"))):
        name, _, given = setting.partition("=")
        if not given or name not in ("points", "stamps", "regions", "snapshot"):
            raise Error(f"'{setting[:80]}' is not {SETTINGS}")
        if name in ("points", "stamps") and given not in ("on", "off"):
            raise Error(f"'{given[:80]}' is not on or off")
        if name == "snapshot" and not (re.fullmatch("[0-9]+", given) and int(given) < 0xFFFFFFFF):
            raise Error(f"'{given[:80]}' is not a whole number")
        if name == "regions" and len(given.encode()) > MOST_NAMES:
            raise Error(f"'{given[:80]}' is not short enough")
        if name == "regions" and re.fullmatch("[0-9,-]*", given):
            _ids(given)
        elif name == "regions" and given not in ("all", "touched"):
            _posix_expression("regions=", given)
    if len(value.encode()) > 511:
        raise Error("it is too long")


def _ids(given: str) -> None:
    spans = [re.fullmatch("([0-9]+)(?:-([0-9]+))?", part) for part in given.split(",")]
    if not all(span and int(span[1]) <= int(span[2] or span[1]) for span in spans):
        raise Error(f"'{given[:80]}' is not ids of regions, as 0,4-6")


def _posix_expression(form: str, expression: str) -> None:
    """Compiles a POSIX extended regular expression with the C library, as the recorder will."""
    if not expression:
        raise Error(f"{form}REGEX needs an expression")
    libc = ctypes.CDLL(None)
    compiled = ctypes.create_string_buffer(512)  # a regex_t has 64 bytes in glibc
    code = libc.regcomp(compiled, expression.encode(errors="surrogateescape"), 1 | 8)
    if code:
        why = ctypes.create_string_buffer(200)
        libc.regerror(code, compiled, why, len(why))
        raise Error(f"{form}{expression[:80]}: {why.value.decode(errors='replace')}")
    libc.regfree(compiled)


CHECKS: dict[str, Callable[[str], None]] = {
    "TT_EPOCH": _epoch,
    "TT_REGIONS": _one_of("all", "touched"),
    "TT_SNAPSHOT_EVERY": _number,
    "TT_RETAIN": _number,
    "TT_OVERWRITE": _one_of("backpressure", "drop-oldest", "fail"),
    "TT_RING_BYTES": _size,
    "TT_DETERMINISTIC": _switch,
    "TT_DEPS": _one_of("off", "device", "region"),
    "TT_EVENTS": _switch,
    "TT_COMPRESS": _level,
    "TT_MAX_DISK": _disk,
    "TT_PARAMS": _switch,
    "TT_NVTX": _switch,
    "TT_CPU_CALLSTACK": _callers,
    "TT_KERNEL_EVENTS": _one_of(*KERNEL_EVENTS),
    "TT_TIMELINE": _one_of("cupti", "events", "off"),
    "TT_GRAPH_STAMPS": _names,
    "TT_CONTROL": _settings,
    "TT_LAUNCH_DELAY": _nanoseconds(LATEST_CALL),
    "TT_LAUNCH_DELAY_MODE": _one_of("both", "stream", "host"),
    "TT_DELAY_SEED": _wide_number,
    "TT_REPLAYABLE": _switch,
    "TT_KERNEL": lambda value: _posix_expression("", value),
    "TT_MAX_PER_KERNEL": _number,
    "TT_CRASH_SAFE": _switch,
    "TT_DELAY": _nanoseconds(LATEST_POINT),
    "TT_DELAY_MIN": _nanoseconds(LATEST_POINT),
    "TT_DELAY_MODE": _one_of("random", "fixed", "cluster"),
    "TT_DELAY_PATTERNS": _patterns,
    "TT_DELAY_KERNEL": lambda value: _posix_expression("", value),
    "TT_DELAY_LOAD": _delay_file,
    "TT_STALL_MS": _number,
    "TT_TIMEOUT": _seconds,
    "TT_VERBOSE": _switch,
}


def check(told: str, name: str, value: str) -> None:
    """Whether a variable can have a value. Raises Error that begins with how it was told."""
    try:
        if not value:
            raise Error("a value is expected")
        CHECKS[name](value)
    except Error as e:
        raise Error(f"{told} {value}: {e}") from None


def unknown(environment: Mapping[str, str]) -> list[str]:
    """What the recorder says of variables that do not exist, for those who do not show it."""
    from difflib import get_close_matches

    known = [*CHECKS, "TT_OUT"]
    others = r"TT_SIM_.*|TT_LIB|TT_SANITIZE"  # of the simulator, the toolkit and the build
    return [
        f"there is no variable {name}; the nearest name is "
        + get_close_matches(name.upper(), known, 1, 0)[0]
        for name, value in environment.items()
        if value and name not in known and re.fullmatch("TT_[A-Za-z0-9_]{0,60}", name)
        if not re.fullmatch(others, name)
    ]


def _flag(name: str) -> str:
    return "--" + name[3:].lower().replace("_", "-")


LATE = ("TT_DELAY", "TT_LAUNCH_DELAY", "TT_DELAY_LOAD")
# What says how things are late, and what says that they are.
DELAYED_BY = {
    "TT_LAUNCH_DELAY_MODE": ("TT_LAUNCH_DELAY",),
    "TT_DELAY_SEED": LATE[:2],
    "TT_DELAY_MODE": ("TT_DELAY",),
    "TT_DELAY_PATTERNS": ("TT_DELAY",),
    "TT_DELAY_KERNEL": ("TT_DELAY",),
}


def variables(given: Mapping[str, object], environment: Mapping[str, str]) -> dict[str, str]:
    """The TT_ variables for options by name ("ring_bytes"); None: not given.

    Raises Error naming the option, or the variable where the value came from the environment.
    """
    out = {}
    for name, value in given.items():
        if value is not None:
            text = str(int(value)) if isinstance(value, bool) else str(value)
            out[f"TT_{name.upper()}"] = text
    for name in CHECKS:
        if name in out:
            check(_flag(name), name, out[name])
        elif environment.get(name):
            check(name, name, environment[name])
    effective = {**environment, **out}
    _check_delays(out, effective)
    _check_replayable(effective)
    launches = effective.get("TT_KERNEL_EVENTS") or "off"
    if launches != "off" and effective.get("TT_EVENTS") == "0":
        raise Error(f"--kernel-events {launches} needs --events: launches are events")
    if effective.get("TT_PARAMS") == "1" and effective.get("TT_KERNEL_EVENTS") == "off":
        reason = "parameters are those of recorded launches"
        raise Error(f"--params needs another --kernel-events than off: {reason}")
    if effective.get("TT_PARAMS") == "1" and effective.get("TT_EVENTS") == "0":
        raise Error("--params needs --events: parameters are those of recorded launches")
    timed = effective.get("TT_TIMELINE") or (
        "events" if effective.get("TT_GRAPH_STAMPS") else "off"
    )
    if timed != "off" and effective.get("TT_EVENTS") == "0":
        raise Error("--timeline needs --events: times are those of recorded calls")
    if timed == "off" and effective.get("TT_GRAPH_STAMPS"):
        raise Error("--graph-stamps needs a --timeline: stamps are part of it")
    policy = effective.get("TT_OVERWRITE") or "backpressure"
    forms = {form for form, _ in _occasions(effective.get("TT_EPOCH", ""))}
    if policy == "drop-oldest" and "graph-node:" in forms:
        raise Error("--epoch graph-node can't be had with --overwrite drop-oldest")
    if effective.get("TT_DETERMINISTIC") == "1" and policy != "backpressure":
        reason = "which epochs are dropped depends on timing"
        raise Error(f"--deterministic needs --overwrite backpressure: {reason}")
    return out


REPLAYABLE = {  # takes these, where they are said
    "TT_EVENTS": ("1", "--events"),
    "TT_PARAMS": ("1", "--params"),
    "TT_DETERMINISTIC": ("1", "--deterministic"),
    "TT_REGIONS": ("all", "--regions all"),
    "TT_RETAIN": ("0", "--retain 0"),
}


def check_late(told: str, effective: Mapping[str, str], needs: Sequence[str] = LATE) -> None:
    """Raises Error where nothing says that anything is late."""
    if not any(need in effective for need in needs):
        raise Error(f"{told} needs {' or '.join(map(_flag, needs))}: nothing would be late")


def _check_delays(given: Mapping[str, str], effective: Mapping[str, str]) -> None:
    """given: as options."""
    for name, needs in DELAYED_BY.items():
        if name in given:
            check_late(_flag(name), effective, needs)
    if int(effective.get("TT_DELAY_MIN") or 0) > int(effective.get("TT_DELAY") or 0):
        raise Error("--delay-min can't be more than --delay")
    both = [name for name in LATE[:2] if int(effective.get(name) or 0)]
    if effective.get("TT_DELAY_LOAD") and both:
        raise Error(f"--delay-load says what is late: it can't be had with {_flag(both[0])}")


def _check_replayable(effective: Mapping[str, str]) -> None:
    """Raises Error where --replayable is given with what it can't be had with, or lacks."""
    if effective.get("TT_REPLAYABLE") != "1":
        for name in ("TT_KERNEL", "TT_MAX_PER_KERNEL", "TT_CRASH_SAFE"):
            if effective.get(name):
                raise Error(f"{_flag(name)} needs --replayable")
        return
    for name, (value, option) in REPLAYABLE.items():
        if effective.get(name, value) not in ("", value):
            raise Error(f"--replayable needs {option}")
    if effective.get("TT_KERNEL_EVENTS") == "off":
        raise Error("--replayable needs another --kernel-events than off")
    if (effective.get("TT_OVERWRITE") or "backpressure") != "backpressure":
        raise Error("--replayable needs --overwrite backpressure")
    if effective.get("TT_DEPS") == "off":
        raise Error("--replayable can't be had with --deps off: epochs would be torn")


def unmet(options: Mapping[str, Any], epochs: int, launches: int) -> list[str]:
    """What a process was asked to record and what did not happen, a line each.

    options: those of process.json. epochs, launches: how many were recorded.
    """
    out = []
    asked = str(options.get("TT_EPOCH", ""))
    if not epochs and ":" in asked:
        out.append(f"no epoch was cut: nothing happened that --epoch {asked} asks for")
    if options.get("TT_REPLAYABLE") == "1" and not launches:
        chosen = options.get("TT_KERNEL")
        why = f": --kernel {chosen} chose none" if chosen else "; those inside graphs can't be"
        out.append(f"no launch was recorded to be run again{why}")
    return out


def parse_range(value: str, what: str, last: int) -> tuple[int, int]:
    """ "3", "2-5", "2-" or "-5", both ends included."""
    match = re.fullmatch(r"([0-9]{1,10})|([0-9]{0,10})-([0-9]{0,10})", value)
    if not match or value == "-":
        raise Error(f"{what} {value}: a number or a range such as 2-5 is expected")
    if match[1]:
        return int(match[1]), int(match[1])
    first, end = int(match[2] or 0), int(match[3] or last)
    if match[3] and first > end:
        raise Error(f"{what} {value}: the range is empty")
    return first, max(first, end)


def parse_regions(value: str) -> list[int]:
    """Region ids such as "0,4-6"."""
    out: list[int] = []
    for part in value.split(","):
        first, last = parse_range(part, "--regions", -1)
        if part.endswith("-") or part.startswith("-") or last >= 0xFFFFFFFF:
            raise Error(f"--regions {value}: region ids such as 0,4-6 are expected")
        if len(out) + last - first >= MOST_REGIONS:
            raise Error(f"--regions {value}: more than {MOST_REGIONS} regions")
        out += range(first, last + 1)
    return out


def parse_tamper(value: str) -> tuple[int, int, int]:
    """EPOCH,REGION,OFFSET."""
    match = re.fullmatch(r"([0-9]{1,10}),([0-9]{1,10}),([0-9]{1,18})", value)
    if not match:
        raise Error(f"--tamper {value}: EPOCH,REGION,OFFSET is expected, such as 3,0,4096")
    return int(match[1]), int(match[2]), int(match[3])


def parse_place(value: str, option: str) -> int:
    """A byte offset or an address, decimal or hexadecimal."""
    if not re.fullmatch(r"[0-9]{1,20}|0[xX][0-9a-fA-F]{1,16}", value):
        raise Error(f"{option} {value}: a number such as 4096 or 0x1000 is expected")
    return int(value, 16 if value[:2] in ("0x", "0X") else 10)
