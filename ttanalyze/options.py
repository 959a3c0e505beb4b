"""The options of `record`, their TT_ variables, and the syntax of lists and ranges.

interpose/options/option_table.h lists the options. The recorder stops recording if it cannot parse
a variable. The same code checks all values here, before the program runs.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ttanalyze._format import ffi
from ttanalyze._options import OPTIONS
from ttanalyze.errors import Error
from ttanalyze.util import libraries

TIMES = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1, "m": 60, "h": 3600}
LONGEST = 1e9  # seconds
SIZES = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}
MOST_NUMBERS = 1_000_000
LATE = ("delay", "launch_delay", "delay_load")


@dataclass(frozen=True)
class Option:
    """A row of option_table.h."""

    variable: str
    kind: str
    limit: str
    normal: str
    metavar: str | None
    help: str

    @property
    def flag(self) -> str:
        return "--" + self.variable[3:].lower().replace("_", "-")


TABLE = {
    name.lower(): Option(f"TT_{name}", kind, limit, normal, metavar or limit or None, text)
    for name, _, kind, limit, normal, metavar, text in OPTIONS
}


def check(spelled: str, name: str, value: str) -> None:
    """Checks the value of an option. Raises Error that begins with the name that the user used."""
    variable = TABLE[name].variable
    fault = libraries.toolkit().tt_option_fault(variable.encode(), os.fsencode(value))
    if fault:
        raise Error(f"{spelled} {value}: {_text(fault)}")


def variables(given: Mapping[str, object], environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the TT_ variables for options by name ("ring_bytes"); None means not given.

    Raises Error that names the option, or the variable if the value comes from the environment.
    """
    out = {}
    for name, value in given.items():
        if value is not None:
            text = str(int(value)) if isinstance(value, bool) else str(value)
            if not text:
                raise Error(f"{TABLE[name].flag}: expected a value")
            out[TABLE[name].variable] = text
    effective = {**environment, **out}
    fault = _fault(effective, bytes(option.variable in out for option in TABLE.values()))
    if fault:
        raise Error(_text(fault))
    if delays := effective.get("TT_DELAY_LOAD"):
        _check_delay_file("--delay-load" if "TT_DELAY_LOAD" in out else "TT_DELAY_LOAD", delays)
    return out


def _check_delay_file(spelled: str, path: str) -> None:
    """Raises Error if a file is no delay configuration that the recorder accepts."""
    from ttanalyze.schemas import validate

    report = validate(Path(path), "delay-config")
    if not report.good:
        raise Error(f"{spelled} {path}: {report.faults[0]}")


def _fault(environment: Mapping[str, str], as_option: bytes) -> Any:
    """Returns the recorder's error for variables as C text, NULL if there is none."""
    lines = [
        ffi.new("char[]", os.fsencode(f"{name}={value}"))
        for name, value in environment.items()
        if name.startswith("TT_")
    ]
    return libraries.toolkit().tt_options_fault(ffi.new("char *[]", [*lines, ffi.NULL]), as_option)


def _text(line: Any) -> str:
    return bytes(ffi.string(line)).decode(errors="replace")


def unknown(environment: Mapping[str, str]) -> Iterator[str]:
    """Returns the recorder's warnings about unknown variables."""
    _fault(environment, bytes(len(TABLE)))
    number = 0
    while line := libraries.toolkit().tt_options_unknown(number):
        yield _text(line)
        number += 1


def check_late(spelled: str, effective: Mapping[str, str]) -> None:
    """Raises Error if no variable asks for delays."""
    late = [TABLE[name] for name in LATE]
    if not any(option.variable in effective for option in late):
        names = " or ".join(option.flag for option in late)
        raise Error(f"{spelled} needs {names}: nothing would be delayed")


def parse_time(value: str, unit: str = "s") -> float:
    """Parses a time such as 500ms, 1.5s or 2m and returns seconds. unit: of a number alone."""
    match = re.fullmatch(r"([0-9]{1,14}(?:\.[0-9]+)?)(ns|us|ms|s|m|h)?", value)
    seconds = float(match[1]) * TIMES[match[2] or unit] if match else 1e10
    if seconds > LONGEST:
        raise Error(f"expected a time, such as 20ms, 1.5s or 2m (without a unit: {unit})")
    return seconds


def parse_limit(option: str, value: str) -> float:
    """Parses the time of an option. Raises Error that begins with its name."""
    try:
        return parse_time(value)
    except Error as e:
        raise Error(f"{option} {value}: {e}") from None


def parse_size(value: str) -> int:
    """Parses bytes such as 64M or 2GiB."""
    match = re.fullmatch(r"([0-9]+)(?:([kmgtKMGT])i?[bB]?)?", value)
    size = int(match[1]) << SIZES[(match[2] or "").lower()] if match else 1 << 64
    if size >= 1 << 63:
        raise Error("expected a size, such as 256M or 2G (without a unit: bytes)")
    return size


def unmet(info: Mapping[str, Any], epochs: int, launches: int) -> list[str]:
    """Returns one line for each option of a process that had no effect.

    info: its process.json. epochs, launches: the numbers of recorded ones.
    """
    options = info.get("options", {})
    out = []
    asked = str(options.get("TT_EPOCH", ""))
    if not epochs and (":" in asked or "@" in asked):
        out.append(f"no epoch was cut: --epoch {asked} never applied")
    contents = str(options.get("TT_CONTENTS", ""))
    stored = info.get("counters", {}).get("bytes_stored")
    if epochs and not stored and contents.startswith("nvtx:"):
        out.append(f"no epoch has contents: --contents {contents} never applied")
    if options.get("TT_REPLAYABLE") == "1" and not launches:
        chosen = options.get("TT_KERNEL")
        why = (
            f": no kernel matches --kernel {chosen}"
            if chosen
            else "; launches inside graphs can't be replayed"
        )
        out.append(f"no launch was recorded for replay{why}")
    return out


def parse_range(value: str, what: str, last: int) -> tuple[int, int]:
    """Parses "3", "2-5", "2-" or "-5". Both ends are included."""
    match = re.fullmatch(r"([0-9]{1,10})|([0-9]{0,10})-([0-9]{0,10})", value)
    if not match or value == "-":
        raise Error(f"{what} {value}: expected a number or a range such as 2-5")
    if match[1]:
        return int(match[1]), int(match[1])
    first, end = int(match[2] or 0), int(match[3] or last)
    if match[3] and first > end:
        raise Error(f"{what} {value}: the range is empty")
    return first, max(first, end)


def parse_numbers(value: str, option: str) -> list[int]:
    """Parses numbers and ranges such as "0,4-6". option: its name in the error."""
    out: list[int] = []
    for part in value.split(","):
        first, last = parse_range(part, option, -1)
        if part.endswith("-") or part.startswith("-") or last >= 0xFFFFFFFF:
            raise Error(f"{option} {value}: expected numbers such as 0,4-6")
        if len(out) + last - first >= MOST_NUMBERS:
            raise Error(f"{option} {value}: more than {MOST_NUMBERS} numbers")
        out += range(first, last + 1)
    return out


def parse_regions(value: str, option: str) -> list[int | str]:
    """Parses numbers, ranges, labels and names such as "0,4-6,weights"."""
    parts = value.split(",")
    numbers = [part for part in parts if re.fullmatch("[0-9][0-9-]*", part)]
    names = [part for part in parts if part not in numbers]
    return [*(parse_numbers(",".join(numbers), option) if numbers else []), *names]


def parse_tamper(value: str) -> tuple[int, int, int]:
    """Parses EPOCH,REGION,OFFSET."""
    match = re.fullmatch(r"([0-9]{1,10}),([0-9]{1,10}),([0-9]{1,18})", value)
    if not match:
        raise Error(f"--tamper {value}: expected EPOCH,REGION,OFFSET, such as 3,0,4096")
    return int(match[1]), int(match[2]), int(match[3])


def parse_place(value: str, option: str) -> int:
    """Parses a byte offset or an address, decimal, hexadecimal or with a unit."""
    if re.fullmatch(r"[0-9]{1,20}|0[xX][0-9a-fA-F]{1,16}", value):
        return int(value, 16 if value[:2] in ("0x", "0X") else 10)
    try:
        return parse_size(value)
    except Error:
        raise Error(f"{option} {value}: expected a number such as 4096, 4K or 0x1000") from None
