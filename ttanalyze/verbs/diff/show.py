"""The report of `diff` as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ttanalyze.code.demangle import demangle, readable
from ttanalyze.core import bytewise, stacks
from ttanalyze.core.tensors import TensorByte, TensorDifference
from ttanalyze.core.values import ValueDifference
from ttanalyze.core.writers import HOW, POSSIBLE
from ttanalyze.format.unread import UNREAD
from ttanalyze.output import text
from ttanalyze.verbs.diff.launches import GRAPH
from ttanalyze.verbs.diff.report import (
    DiffReport,
    Divergence,
    Launches,
    ProcessDiff,
    RegionAlone,
    Stretch,
    Suspect,
)

SHOWN = 8  # rows of a table
DASH, TIMES = "\N{EN DASH}", "\N{MULTIPLICATION SIGN}"


def diff_text(report: DiffReport, colour: bool = False, width: int = 0) -> str:
    """Returns the report for a screen: the verdict, what was compared, and what differs.

    width: of the screen in characters, 0 for no limit.
    """
    demangle(_kernels(report))  # all at once, as each by itself takes a process
    show = _Show(report, colour, width)
    out = [show.verdict(), *show.summary()]
    for process in report.processes:
        out += show.process(process)
    out += show.hints()
    return "\n".join(out)


def _kernels(report: DiffReport) -> Iterator[str]:
    for process in report.processes:
        for divergence in process.divergences:
            yield from filter(None, (suspect.kernel for suspect in divergence.suspects))
            if divergence.after and divergence.after["kernel"]:
                yield divergence.after["kernel"]
        for stretch in process.launches.stretches if process.launches else []:
            yield from (stretch.kernels_a | stretch.kernels_b).keys()


def _name(kernel: str | None) -> str:
    return readable(kernel) if kernel else GRAPH


class _Show:
    def __init__(self, report: DiffReport, colour: bool, width: int) -> None:
        self.report = report
        self.colour = colour
        self.width = width
        self.several = len(report.processes) > 1

    def table(
        self, title: str, rows: list[list[str]], right: set[int], more: str = ""
    ) -> list[str]:
        """Adds a table with a title. more: what is not listed."""
        width = max(1, self.width - 2) if self.width else 0
        lines = text.table(rows, right, width).splitlines() + ([f"… and {more}"] if more else [])
        return ["", text.coloured(title, "bold", self.colour), *(f"  {line}" for line in lines)]

    # ---- the verdict ----

    def verdict(self) -> str:
        report = self.report
        word, hue = ("same", "green") if report.same else ("different", "red")
        if report.unknown is not None:
            word, hue = "unknown", "red"
        return f"{text.coloured(word, hue, self.colour)}: {self._verdict()}"

    def _verdict(self) -> str:
        report, first = self.report, self.report.first
        common = sum(p.common for p in report.processes)
        within = f" within {report.tolerance}" if report.tolerance else ""
        if first:
            process, found = first
            lead = f"process {process.process_a}, " if self.several else ""
            where = f"{lead}{_epoch(found)}, {_region(found)}"
            if found.leftover:
                return f"memory that no call wrote differs in {where}"
            return f"memory first diverges in {where}{_after(found)}"
        where = "the only common epoch" if common == 1 else f"all {common:,} common epochs"
        memory = f"memory is the same{within} in {where}"
        if not sum(p.region_epochs for p in report.processes):
            memory = "no memory that could be compared"
        what = []
        if any(p.launches_differ for p in report.processes):
            what.append("the launches")
        if any(p.others_differ for p in report.processes):
            what.append("the copies and fills")
        if any(p.epochs_lack for p in report.processes):
            what.append("the epochs")
        if any(p.regions_alone_count for p in report.processes):
            what.append("the allocations")
        if report.alone_a or report.alone_b:
            what.append("the processes")
        listed = " and ".join([", ".join(what[:-1]), what[-1]] if len(what) > 1 else what)
        failed = "; a recording failed" if report.unknown is not None else ""
        return (f"{memory}; {listed} differ" if what else memory) + failed

    def summary(self) -> list[str]:
        report = self.report
        pairs = []
        for name, source, side in (("A", report.a, "a"), ("B", report.b, "b")):
            epochs = sum(getattr(p, f"epochs_{side}") for p in report.processes)
            counts = [text.count(epochs, "epoch")]
            launches = [p.launches for p in report.processes if p.launches is not None]
            if launches:
                counts.append(
                    text.count(sum(getattr(x, side) for x in launches), "launch", "launches")
                )
            if self.several:
                counts.insert(0, text.count(len(report.processes), "process", "processes"))
            pairs.append((name, f"{text.printable(source)}: {', '.join(counts)}"))
        common = sum(p.common for p in report.processes)
        states = sum(p.region_epochs for p in report.processes)
        differ = sum(p.differing for p in report.processes)
        regions = sum(p.regions for p in report.processes)
        line = f"{text.count(common, 'common epoch')}, {text.count(regions, 'common region')}; "
        line += f"{text.count(states, 'region-epoch')} compared, {differ:,} differ"
        tolerated = sum(p.tolerated for p in report.processes)
        line += f", {tolerated:,} only within the tolerance" if tolerated else ""
        pairs.append(("compared", f"{line}, {report.seconds:.2f} s"))
        if not self.several and report.processes and report.processes[0].launches is not None:
            pairs.append(("launches", _launch_counts(report.processes[0].launches)))
        if not self.several:
            pairs += [("note", line) for line in _notes(report.processes[:1])]
        out = [f"  {line}" for line in text.rows(pairs).splitlines()]
        for side, alone in (("A", report.alone_a), ("B", report.alone_b)):
            if alone:
                which = ", ".join(map(str, alone))
                out.append(
                    f"  {'process' if len(alone) == 1 else 'processes'} {which} only in {side}"
                )
        return out

    # ---- a process ----

    def process(self, process: ProcessDiff) -> list[str]:
        """Adds the differences between two processes."""
        out: list[str] = []
        for i, divergence in enumerate(process.divergences):
            out += ["", *self._divergence(divergence, first=i == 0)]
        out += self._spread(process)
        out += self._launches(process.launches)
        out += self._regions(process)
        if self.several and out:
            numbers = f"{process.process_a}"
            if process.process_b != process.process_a:
                numbers += f" of A and {process.process_b} of B"
            lines = _notes([process])
            if process.launches is not None:
                lines.append(f"launches: {_launch_counts(process.launches)}")
            title = text.coloured(f"process {numbers}", "bold", self.colour)
            out = ["", title, *(f"  {line}" for line in lines), *out]
        return out

    def _divergence(self, found: Divergence, first: bool) -> list[str]:
        head = ("first divergence: " if first else "") + title(found)
        out = [text.coloured(head, "bold", self.colour)]
        pairs = facts(found)
        out += [f"  {line}" for line in text.rows(pairs).splitlines()]
        if found.bytes is not None:
            out += bytewise.window_lines(found.bytes.window, ("A", "B"), self.colour)
        return out + self._suspects(found)

    def _suspects(self, found: Divergence) -> list[str]:
        if not found.suspect_count:
            return []
        since = "its allocation" if found.equal_a is None else f"epoch {found.equal_a}"
        more = _more(found.suspect_count, found.suspects[:SHOWN], "call")
        lead = f"possible writers since {since}"
        return self.table(lead, suspects(found), {0, 1, 2}, more)

    def _spread(self, process: ProcessDiff) -> list[str]:
        if process.regions_differing < 2:
            return []
        shown = process.spread[:SHOWN]
        rows = [["epoch", "region", "bytes"]]
        for found in shown:
            region = _both(found.region_a, found.region_b) + _label(found.label)
            rows.append([_both(found.epoch_a, found.epoch_b), region, f"{found.size:,}"])
        more = _more(process.regions_differing, shown, "region")
        return self.table("spread of the divergence", rows, {2}, more)

    def _launches(self, found: Launches | None) -> list[str]:
        if found is None or not (found.changed or found.alone_a or found.alone_b):
            return []
        shown = found.stretches[:SHOWN]
        rows = [["after launch", "call in A", "in A", "call in B", "in B"], *map(_stretch, shown)]
        more = _more(found.stretch_count, shown, "place")
        out = self.table("launches that differ", rows, {0, 1, 3}, more)
        if not found.exact:
            out.append("  (too many differences: more launches may correspond)")
        return out

    def _regions(self, process: ProcessDiff) -> list[str]:
        if not process.regions_alone_count:
            return []
        shown = process.regions_alone[:SHOWN]
        rows = [["region in A", "bytes", "in B", "bytes", "kind"], *map(_region_alone, shown)]
        count = text.count(process.regions_alone_count, "region")
        title = f"allocations: {count} without a counterpart of that size"
        more = _more(process.regions_alone_count, shown, "region")
        return self.table(title, rows, {1, 3}, more)

    # ---- what to do next ----

    def hints(self) -> list[str]:
        out = []
        described = [d for p in self.report.processes for d in p.divergences]
        more = sum(p.divergence_count for p in self.report.processes) - len(described)
        if any(p.stopped for p in self.report.processes):
            out.append("stopped at the first difference; --all looks for the others")
        elif more:
            out.append(f"{text.count(more, 'more divergence')}: --all describes them")
        first = described[0] if described else None
        if first and first.leftover:
            out.append("to start with zeroed memory: record with --deterministic")
        seen = first and (first.values or first.tensor_values)
        if first and first.bytes is not None and not seen:
            out.append("to see the values: give their type, for example --dtype f32")
        launches = [s for s in first.suspects if s.kernel] if first else []
        if first and (len(launches) > 1 or first.suspect_count > len(first.suspects)):
            if any(s.how == HOW[POSSIBLE] for s in launches):
                out.append("to find the launches that get a pointer to it: record with --params")
            out.append("to narrow it down: record both with --epoch launch or --epoch kernel:NAME")
        return ["", *out] if out else []


def title(found: Divergence) -> str:
    """Returns the region that differs, and since which epoch."""
    return f"{_epoch(found)} ({found.trigger}{_label(found.epoch_label)}), {_region(found)}"


def facts(found: Divergence) -> list[tuple[str, str]]:
    """Returns the facts about a divergence as names and texts without control characters."""
    pairs = [("same", _since(found)), ("differs", _until(found))]
    if found.origin_a and found.origin_b:
        one, two = bytewise.origin_text(found.origin_a), bytewise.origin_text(found.origin_b)
        pairs += [("in A", one), ("in B", two)]
    elif found.origin_a or found.origin_b:
        side = "A" if found.origin_a else "B"
        pairs.append((f"in {side}", bytewise.origin_text(found.origin_a or found.origin_b or {})))
    pairs.append(("digest", f"{found.digest_a} in A, {found.digest_b} in B"))
    if found.block_count:
        shown = bytewise.blocks_text(found.blocks, found.block_count)
        pairs.append(("blocks", f"{shown}, of {found.block_total:,}"))
        if found.bytes is None:
            pairs.append(("within", bytewise.ranges_text(found.blocks, found.size)))
    if found.bytes is not None:
        pairs.append(("bytes", _bytes(found)))
    if found.tensors:
        pairs.append(("tensors", _tensors(found)))
    if found.values is not None:
        pairs.append(("values", _values(found.values, found.examples)))
    if found.tensor_values is not None:
        what = text.printable(found.tensors[0].name)
        values = _values(found.tensor_values, found.tensor_examples)
        pairs.append(("values", f"of {what}: {values}"))
    pairs += [("note", text.printable(note)) for note in found.notes]
    return pairs


def suspects(found: Divergence) -> list[list[str]]:
    """Returns the likeliest suspects as a table with titles. Columns without values are left
    out.
    """
    shown = found.suspects[:SHOWN]
    rows = [["call in A", "in B", "stream", "what", "from", "range", "how"], *map(_suspect, shown)]
    unknown = {4} if not any(suspect.stack for suspect in shown) else set()
    unknown |= {5} if not any(suspect.range for suspect in shown) else set()
    return [[cell for i, cell in enumerate(row) if i not in unknown] for row in rows]


# ---- pieces ----


def _more(count: int, shown: Sequence[object], noun: str) -> str:
    return text.count(count - len(shown), f"more {noun}") if count > len(shown) else ""


def _launch_counts(found: Launches) -> str:
    parts = [f"{found.same:,} correspond"]
    if found.changed:
        parts.append(f"{found.changed:,} with another shape")
    sides = (("A", found.alone_a), ("B", found.alone_b))
    out = ", ".join(parts + [f"{count:,} only in {side}" for side, count in sides if count])
    others = (("A", found.others_a), ("B", found.others_b))
    parts = [f"{text.count(count, 'other call')} only in {side}" for side, count in others if count]
    if found.others_changed:
        parts.insert(0, f"{text.count(found.others_changed, 'other call')} of another size")
    return "; ".join([out, ", ".join(parts)] if parts else [out])


def _both(a: int, b: int) -> str:
    return f"{a}" if a == b else f"{a} / {b}"


def _label(label: str | None) -> str:
    return f" {text.printable(label)!r}" if label else ""


def _epoch(found: Divergence) -> str:
    if found.epoch_a == found.epoch_b:
        return f"epoch {found.epoch_a}"
    return f"epoch {found.epoch_a} of A and {found.epoch_b} of B"


def _region(found: Divergence) -> str:
    where = f"region {_both(found.region_a, found.region_b)}{_label(found.label)}"
    if found.bytes is not None:
        where += f" at byte {found.bytes.first}"
    if found.tensor is None or found.tensor_offset is None:
        return where
    tensor = TensorByte(found.tensor, found.tensor_type, found.tensor_offset, found.tensor_element)
    return f"{tensor} ({where})"


def _after(found: Divergence) -> str:
    if found.after is None:
        return ""
    name = _name(found.after["kernel"])
    return f", after launch {found.after['ordinal']:,} of {name} (call {found.after['seq']})"


def _since(found: Divergence) -> str:
    if found.equal_a is None:
        return "never: it differs from its first epoch on"
    assert found.equal_b is not None
    return f"up to epoch {_both(found.equal_a, found.equal_b)}"


def _until(found: Divergence) -> str:
    if found.until_a is None or found.until_b is None:
        return "from there to the end"
    if found.until_a == found.epoch_a:
        return "in this epoch only"
    return f"to epoch {_both(found.until_a, found.until_b)}"


def _bytes(found: Divergence) -> str:
    assert found.bytes is not None
    count = found.bytes
    out = bytewise.bytes_text(count.count, count.first, count.last)
    if count.extent_count > 1:
        out += f", in {text.count(count.extent_count, 'range', 'ranges')}"
    return out + (" (of the first gibibyte that differs)" if found.partial else "")


def _tensors(found: Divergence) -> str:
    """Returns one line per tensor that differs."""
    lines = [_tensor(one) for one in found.tensors[:SHOWN]]
    rest = found.tensor_count - len(lines)
    return "\n".join([*lines, f"… and {text.count(rest, 'more tensor')}"] if rest else lines)


def _tensor(found: TensorDifference) -> str:
    tensor = TensorByte(found.name, found.type, found.first, found.first_element)
    kind = f", {text.printable(found.type)}" if found.type else ""
    differ = "differs" if found.differing == 1 else "differ"
    return (
        f"{text.printable(found.name)}{kind}: {found.differing:,} of {found.bytes:,} bytes "
        f"{differ}, the first at {tensor.where}"
    )


def _values(found: ValueDifference, examples: list[tuple[int, str, str]]) -> str:
    share = 100 * found.count / found.elements if found.elements else 0
    differ = "differs" if found.count == 1 else "differ"
    lines = [f"{found.count:,} of {found.elements:,} {found.type} {differ} ({share:.3g} %)"]
    if found.unequal != found.count:
        lines[0] += f", {found.unequal - found.count:,} more within the tolerance"
    lines.append(
        f"at most {_number(found.max_abs)} apart, relative {_number(found.max_rel)}, "
        f"{found.max_ulp:,} ulp"
    )
    for name, counts in (("NaN", found.nan), ("infinite", found.inf)):
        if any(counts):
            lines.append(f"{name}: {counts[0]:,} in A, {counts[1]:,} in B, in these blocks")
    for index, a, b in examples:
        lines.append(f"index {index}: {a} in A, {b} in B")
    if found.count > len(examples):
        lines.append("…")
    if found.tail_differs:
        lines.append(f"the last {text.count(found.tail, 'byte')} (a partial item) differ")
    return "\n".join(lines)


def _number(value: int | float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.6g}"


def _suspect(found: Suspect) -> list[str]:
    calls = [DASH if seq is None else str(seq) for seq in (found.seq_a, found.seq_b)]
    if found.kind == "launch":
        assert found.grid is not None and found.block is not None
        shared = f", {found.shared}" if found.shared else ""
        shape = f"{text.extent(found.grid, TIMES)}, {text.extent(found.block, TIMES)}{shared}"
        what = f"{_name(found.kernel)}<<<{shape}>>>"
    elif found.kind == "graph-launch":
        what = "launch of a graph"
    else:
        what = f"{found.kind} of {text.count(found.bytes or 0, 'byte')}"
        what = found.kind if found.bytes is None else what
    how = found.how
    if found.alone:
        how += f", only in {'A' if found.seq_b is None else 'B'}"
    if found.parameters == "different":
        how += (
            f"; its parameters differ at byte {found.parameter_offset}: "
            f"{found.parameters_a} / {found.parameters_b}"
        )
    elif found.parameters == "same":
        how += "; its parameters are the same"
    made_by = text.printable(stacks.caller(found.stack)) if found.stack else DASH
    said = text.printable(found.range) if found.range else DASH
    return [*calls, str(found.stream), what, made_by, said, how]


def _stretch(found: Stretch) -> list[str]:
    def side(count: int, kernels: dict[str, int]) -> str:
        if not count:
            return DASH
        shown = ", ".join(
            _name(name) + (f" {TIMES}{number:,}" if number > 1 else "")
            for name, number in kernels.items()
        )
        rest = count - sum(kernels.values())
        return shown + (f" and {rest:,} more" if rest else "")

    before = found.before_a if found.before_a is not None else found.before_b
    lead = f"{before:,}"
    lead += " (another shape)" if found.kind == "changed" else ""
    return [
        lead,
        DASH if found.seq_a is None else str(found.seq_a),
        side(found.count_a, found.kernels_a),
        DASH if found.seq_b is None else str(found.seq_b),
        side(found.count_b, found.kernels_b),
    ]


def _region_alone(found: RegionAlone) -> list[str]:
    def cell(value: int | None, label: str = "") -> str:
        return DASH if value is None else f"{value:,}{label}"

    return [
        cell(found.region_a, _label(found.label)),
        cell(found.size_a),
        cell(found.region_b, _label(found.label)),
        cell(found.size_b),
        found.kind,
    ]


def _notes(processes: Sequence[ProcessDiff]) -> list[str]:
    out = []
    for process in processes:
        skipped = process.skipped_a, process.skipped_b
        lost = process.left_out_a - skipped[0], process.left_out_b - skipped[1]
        for counts, how in (
            (skipped, "skipped to keep to --max-overhead"),
            (lost, "refused or lost"),
        ):
            for side, count in zip("AB", counts, strict=True):
                if count:
                    was = "was" if count == 1 else "were"
                    out.append(f"{text.count(count, 'epoch')} of {side} {was} {how}: left out")
        for side, count in (("A", process.epochs_alone_a), ("B", process.epochs_alone_b)):
            if count:
                out.append(f"{text.count(count, 'epoch')} of {side} without a counterpart")
        if process.unknown:
            states = text.count(process.unknown, "region-epoch")
            out.append(f"{states} not compared: unknown on one side")
        if process.unread:
            states = text.count(process.unread, "region-epoch")
            out.append(f"{states} not compared: {UNREAD}")
        out += map(text.printable, process.notes)
    return out
