"""The report of `verify` as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ttanalyze.core import bytewise
from ttanalyze.core.tensors import TensorByte
from ttanalyze.format.unread import UNREAD
from ttanalyze.output import text

if TYPE_CHECKING:
    from ttanalyze.verbs.verify.report import Difference, VerifyReport


def verify_text(report: VerifyReport, colour: bool = False) -> str:
    """Returns the report for a screen: the verdict, then each difference."""
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
    if report.unknown is not None:
        word, hue = "unknown", "red"
    verdict = f"{text.coloured(word, hue, colour)}: {text.printable(report.run)} and {against}"
    out = [verdict, f"  {compared}"]
    if report.unknown is not None:
        out.append(f"  all compared memory is the same, but {text.printable(report.unknown)}")
    if report.digest_only:
        out.append(
            f"  {text.count(report.digest_only, 'region-epoch')} by recorded digest only: "
            "there are no contents"
        )
    if report.unread:
        out.append(f"  {text.count(report.unread, 'region-epoch')} not verified: {UNREAD}")
    if report.skipped:
        skipped = text.count(report.skipped, "epoch")
        out.append(f"  {skipped} not verified: skipped to keep to --max-overhead")
    for difference in report.differences:
        out += ["", *_difference(difference, colour)]
    if not report.against and any(d.changed_block_count for d in _unseen(report)):
        out += ["", "to see where: --against RUN, the run of the manifest"]
    hidden = report.total_differences - len(report.differences)
    if report.stopped:
        out += ["", "stopped at the first difference; --continue finds the others"]
    elif hidden:
        out += ["", f"… and {text.count(hidden, 'more difference')}"]
    if report.differences and not report.stopped:
        out += ["", f"{text.count(report.differing, 'region-epoch')} differ"]
    return "\n".join(out)


def _unseen(report: VerifyReport) -> list[Difference]:
    """Returns differences in contents whose bytes could not be compared."""
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
        pairs.append(("region", bytewise.origin_text(difference.origin)))
    if difference.expected or difference.actual:
        digests = f"{difference.expected or 'none'} expected, {difference.actual or 'none'} found"
        if difference.recorded not in (None, difference.expected, difference.actual):
            digests += f", {difference.recorded} recorded"
        pairs.append(("digest", digests))
    if difference.changed_block_count:
        shown, count = difference.changed_blocks, difference.changed_block_count
        where = f"{bytewise.blocks_text(shown, count)} in epoch {difference.epoch}"
        pairs.append(("changed", where))
    for damage in difference.damaged:
        where = f"block {damage['block']}: {damage['file']}, offset {damage['offset']}"
        pairs.append(("damaged", where))
    if difference.differing_block_count:
        shown, count = difference.differing_blocks, difference.differing_block_count
        pairs.append(("blocks", bytewise.blocks_text(shown, count)))
        if difference.differing_bytes is None and difference.origin:
            size = int(difference.origin["size"])
            pairs.append(("within", bytewise.ranges_text(shown, size)))
    if difference.differing_bytes and difference.first_byte is not None:
        assert difference.last_byte is not None
        extent = difference.differing_bytes, difference.first_byte, difference.last_byte
        pairs.append(("bytes", bytewise.bytes_text(*extent)))
    if difference.tensor is not None and difference.tensor_offset is not None:
        inside = difference.tensor_offset, difference.tensor_element
        pairs.append(
            ("tensor", str(TensorByte(difference.tensor, difference.tensor_type, *inside)))
        )
    if difference.note:
        pairs.append(("note", text.printable(difference.note)))
    out += [f"  {line}" for line in text.rows(pairs).splitlines()]
    if difference.window:
        out += bytewise.window_lines(difference.window, ("expected", "found"), colour)
    return out
