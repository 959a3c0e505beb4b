"""How verify's report looks on a screen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ttanalyze import text

if TYPE_CHECKING:
    from ttanalyze.verify.check import Difference, VerifyReport

ROW = 16  # bytes of a window in one line


def verify_text(report: VerifyReport, colour: bool = False) -> str:
    """The report for a screen: the verdict, then each difference."""
    compared = (
        f"{text.count(report.region_epochs, 'region-epoch')} compared "
        f"({text.count(report.epochs, 'epoch')}, {text.count(report.regions, 'region')}"
        + (
            f", {text.count(report.processes, 'process', 'processes')})"
            if report.processes > 1
            else ")"
        )
        + f", {text.size(report.bytes_read)} read, {report.seconds:.2f} s"
    )
    against = text.printable(report.manifest)
    word, hue = ("same", "green") if report.same else ("different", "red")
    verdict = f"{text.coloured(word, hue, colour)}: {text.printable(report.run)} and {against}"
    out = [verdict, f"  {compared}"]
    if report.digest_only:
        out.append(
            f"  {text.count(report.digest_only, 'region-epoch')} by recorded digest only: "
            "the contents are gone"
        )
    for difference in report.differences:
        out += ["", *_difference(difference, colour)]
    if not report.against and any(d.changed_block_count for d in _unseen(report)):
        out += ["", "to see the bytes, name the run that the manifest is of: --against RUN"]
    hidden = report.total_differences - len(report.differences)
    if report.stopped:
        out += ["", "stopped at the first difference; --continue finds the others"]
    elif hidden:
        out += ["", f"… and {text.count(hidden, 'more difference')}"]
    if not report.same and not report.stopped:
        out += ["", f"{text.count(report.differing, 'region-epoch')} differ"]
    return "\n".join(out)


def _unseen(report: VerifyReport) -> list[Difference]:
    """Differences in contents whose bytes could not be compared."""
    return [d for d in report.differences if d.first_byte is None and d.note is None]


def _difference(difference: Difference, colour: bool) -> list[str]:
    lead = f"process {difference.process}: " if difference.process else ""
    message = text.printable(difference.message)
    if difference.until is not None and difference.epoch is not None:
        more = difference.until - difference.epoch
        message += f", and on to epoch {difference.until}" if more > 0 else ""
    out = [text.coloured(lead + message, "bold", colour)]
    pairs = []
    if difference.origin:
        pairs.append(("region", _origin(difference.origin)))
    if difference.expected or difference.actual:
        digests = f"{difference.expected or 'none'} expected, {difference.actual or 'none'} found"
        if difference.recorded not in (None, difference.expected, difference.actual):
            digests += f", {difference.recorded} recorded"
        pairs.append(("digest", digests))
    if difference.changed_block_count:
        pairs.append(("changed", _blocks(difference)))
    for damage in difference.damaged:
        where = f"block {damage['block']}: {damage['file']}, offset {damage['offset']}"
        pairs.append(("damaged", where))
    if difference.first_byte is not None:
        pairs.append(("bytes", _extent(difference)))
    if difference.note:
        pairs.append(("note", text.printable(difference.note)))
    out += [f"  {line}" for line in text.rows(pairs).splitlines()]
    if difference.window:
        out += _window(difference.window, colour)
    return out


def _origin(origin: dict[str, Any]) -> str:
    label = f" {text.printable(origin['label'])!r}" if origin["label"] else ""
    out = f"{origin['kind']}{label}, {origin['size']:,} bytes at {origin['base']:#x}, made by "
    out += f"{origin['call'] or 'an unknown call'} (call {origin['seq']}"
    return out + (f", thread {origin['thread']})" if origin["thread"] is not None else ")")


def _blocks(difference: Difference) -> str:
    shown = ", ".join(map(str, difference.changed_blocks))
    more = difference.changed_block_count - len(difference.changed_blocks)
    tail = f" and {more:,} more" if more else ""
    noun = "block" if difference.changed_block_count == 1 else "blocks"
    return f"{noun} {shown}{tail} in epoch {difference.epoch}"


def _extent(difference: Difference) -> str:
    if difference.differing_bytes == 1:
        return f"1 differs, at offset {difference.first_byte}"
    return (
        f"{difference.differing_bytes:,} differ, from offset {difference.first_byte} "
        f"to {difference.last_byte}"
    )


def _window(window: dict[str, Any], colour: bool) -> list[str]:
    """Rows of 16 bytes, as expected and as found; the bytes that differ stand out."""
    expected, actual = bytes.fromhex(window["expected"]), bytes.fromhex(window["actual"])
    out = []
    for start in range(0, max(len(expected), len(actual)), ROW):
        theirs, ours = expected[start : start + ROW], actual[start : start + ROW]
        place = f"  {window['offset'] + start:#010x}  "
        if theirs == ours:
            out.append(f"{place}            {theirs.hex(' ')}")
        else:
            out.append(f"{place}expected    {_marked(theirs, ours, 'green', colour)}")
            out.append(f"{' ' * len(place)}found       {_marked(ours, theirs, 'red', colour)}")
    return out


def _marked(row: bytes, other: bytes, name: str, colour: bool) -> str:
    parts = []
    for i, byte in enumerate(row):
        same = i < len(other) and other[i] == byte
        parts.append(f"{byte:02x}" if same else text.coloured(f"{byte:02x}", name, colour))
    return " ".join(parts)
