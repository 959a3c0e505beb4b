"""Waits for captures in a trace, in the lane of the waiting stream."""

from __future__ import annotations

from typing import Any

import numpy as np

from ttanalyze.format.layout import Array
from ttanalyze.format.process import Process
from ttanalyze.verbs.trace.lanes import Lanes
from ttanalyze.verbs.trace.rows import NUMBERS, Part, Rows, Template, Templates, Writer

NAMES = 8  # of tensors that are shown
KEY = np.dtype(
    [("epoch", "<i8"), ("region", "<i8"), ("context", "<u4"), ("layer", "<u2"), ("stream", "<u8")]
)


class CaptureWaits:
    """Writes the waits for captures of one process."""

    def __init__(self, process: Process, lanes: Lanes, writer: Writer) -> None:
        self._process = process
        self._lanes = lanes
        self._writer = writer
        self._templates = Templates(KEY, self._template)

    def write(self, calls: Array, begins: Array, ends: Array, layers: Array) -> None:
        """Writes waits. calls: tt_event records of the calls that made their streams wait. layers:
        of the lanes.
        """
        if not len(calls):
            return
        keys = np.zeros(len(calls), KEY)
        captures = self._process.captures
        keys["epoch"], keys["region"] = captures.waited_for(calls), captures.regions_of(calls)
        keys["context"], keys["stream"], keys["layer"] = calls["context"], calls["stream"], layers
        zeros = np.zeros(len(calls), "i8")
        columns = [calls["seq"], *[zeros] * (len(NUMBERS) - 1)]
        self._writer.rows(
            self._templates.for_keys(keys), Rows(((begins, ends), (begins, ends)), zeros, columns)
        )

    def _template(self, key: Any) -> Template:
        context, stream, epoch = int(key["context"]), int(key["stream"]), int(key["epoch"])
        args: dict[str, Any] = {"epoch": epoch, "context": context, "stream": stream}
        args |= self._region(int(key["region"]), epoch)
        lane = self._lanes.stream(context, stream, int(key["layer"]))
        part = Part(lane, f"waits for epoch {epoch}", "capture-wait", args, numbers=("seq",))
        return self._writer.template([part])

    def _region(self, row: int, epoch: int) -> dict[str, Any]:
        """Returns the text for the region that the capture reads. row: -1 if it is unknown."""
        if row < 0:
            return {}
        regions, texts = self._process.regions, self._process.strings
        number = int(regions.id[row])
        said: dict[str, Any] = {"region": number}
        label = texts.get(int(regions.label[row]))
        said |= {} if label is None else {"label": label}
        parts = self._process.labels.parts(number, epoch=epoch)
        names = [texts.get(n) or "?" for n in dict.fromkeys(parts["label"][: NAMES * 8].tolist())]
        more = [f"… {len(parts)} parts in all"] if len(names) > NAMES else []
        return said | ({"tensors": [*names[:NAMES], *more]} if names else {})
