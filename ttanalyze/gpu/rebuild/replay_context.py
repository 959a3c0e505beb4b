"""Recorded work on a device: its memory, its code, and each step as work for a stream or a graph.

Invariant: work that is made of a step uses present addresses.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ttanalyze.errors import Error
from ttanalyze.format import contents, layout, modules
from ttanalyze.format.process import Process
from ttanalyze.gpu.device import Device
from ttanalyze.gpu.memory import Pinned
from ttanalyze.gpu.module import Function, Module
from ttanalyze.gpu.rebuild.address_map import AddressMap
from ttanalyze.gpu.rebuild.dependency_graph import REGION
from ttanalyze.gpu.rebuild.launch_state import apply_settings, jit_options, kept_attributes
from ttanalyze.gpu.rebuild.live_regions import LiveRegions
from ttanalyze.gpu.rebuild.steps import Fill, Launch, Move, Rows, Span, Step, Upload, cut
from ttanalyze.gpu.work import Copy, Kernel, Set, Work

POINTER = 8  # bytes
STAGED = 256  # what copies from the host begin at multiples of
SHOWN = 8  # regions in a note


class ReplayContext:
    """The memory of some regions of a process, by row, and the code of its kernels, loaded when it
    is needed.
    """

    def __init__(
        self, process: Process, device: Device, rows: list[int], alone: bool | None = None
    ) -> None:
        """alone: whether to run no kernels of the toolkit; None: only if they save time.

        Raises Error if memory is short.
        """
        self.process = process
        self.device = device
        self.addresses = AddressMap(device, process, rows, alone)
        self.rows = frozenset(rows)
        self.modules: dict[int, Module] = {}
        self._functions: dict[int, Function] = {}

    def function(self, number: int) -> Function:
        """Returns a kernel by its tt_function.id. Raises Error if its code is not available."""
        if number not in self._functions:
            name = self.process.kernel(number) or "?"
            module = self._load(modules.of_kernel(self.process, number), f"kernel {name}")
            found = module.get(name)
            if found is None:
                raise Error(f"kernel {name} is not in the saved image of its module")
            self._functions[number] = found
        return self._functions[number]

    def module(self, number: int, what: str) -> Module:
        """Loads a module of the run. what: the purpose, for errors. Raises Error if its code is not
        available.
        """
        return self._load(modules.by_number(self.process, number), what)

    def _load(self, record: Any, what: str) -> Module:
        number = layout.NO_ID if record is None else int(record["id"])
        if number not in self.modules:
            image = modules.image_for(self.process, record, what)
            jit = jit_options(self.process, record)
            made = Module(image, self.device, f"module {number}", jit, lasting=False)
            self.modules[number] = made
            self.addresses.add_module(number, made)
        return self.modules[number]

    def replace(self, number: int, kernel: Function, module: Module) -> None:
        """Replaces a kernel, by its tt_function.id, and variables of its module by those with the
        same names.

        Recorded variables that the new module lacks are not mapped.
        """
        of = int(modules.of_kernel(self.process, number)["id"])
        self.modules[of] = module
        self.addresses.add_module(of, module, lacking=True)
        self._functions = {number: kernel}


class WorkBuilder:
    """Makes work of the steps of a span, in their order. keeps: objects that must live while it may
    run.
    """

    def __init__(self, replay_context: ReplayContext, span: Span) -> None:
        self.replay_context = replay_context
        self.span = span
        self._process = span.process
        self._rows = frozenset(span.regions.tolist())
        whats = [step.what for step in span.steps]
        size = sum(_padded(what.reach) for what in whats if isinstance(what, Upload))
        self._staging = Pinned(size, replay_context.device) if size else None
        self._used = 0
        self._alive = LiveRegions(self._process, cut(self._process, span.first) + 1)
        for what in whats:  # before addresses of variables are used
            if isinstance(what, Launch):
                replay_context.function(what.function)

    @property
    def keeps(self) -> list[Any]:
        return [self.replay_context.addresses, self._staging, *self.replay_context.modules.values()]

    def work(self, step: Step) -> Work | None:
        """Returns the work of a step, None if there is none."""
        self._alive.advance(step.seq)
        what = step.what
        if isinstance(what, Launch):
            return self._kernel(what)
        if isinstance(what, Move):
            to, source = self._address(what.dst), self._address(what.src)
            return Copy(to, source, what.size, rows=_shape(what.rows))
        if isinstance(what, Upload):
            to, source, rows = self._address(what.dst), self._staged(what), what.rows
            if rows is not None:  # which are staged as they lie at the destination
                rows = replace(rows, src_pitch=rows.dst_pitch, src_height=rows.dst_height)
            return Copy(to, source, what.size, False, True, rows=_shape(rows))
        if isinstance(what, Fill):
            to = self._address(what.dst)
            return Set(to, what.size, what.value, what.item, (), what.rows, what.pitch)
        return None

    def _staged(self, upload: Upload) -> int:
        """Returns the host address of the bytes that were copied from the host."""
        end = upload.offset + upload.reach
        data = contents.read(self._process, upload.epoch, upload.region, upload.offset, end)
        at, self._used = self._used, self._used + _padded(upload.reach)
        assert self._staging is not None
        self._staging.array[at : at + len(data)] = data
        return self._staging.address + at

    def _kernel(self, launch: Launch) -> Kernel:
        function = self.replay_context.function(launch.function)
        apply_settings(function, launch)
        return Kernel(
            function,
            launch.grid,
            launch.block,
            launch.shared,
            self._translated(function, launch.params),
            launch.cluster,
            launch.cooperative,
            (function,),
            kept_attributes(launch),
        )

    def _translated(self, function: Function, params: bytes) -> bytes:
        """Returns parameters with pointers translated to present addresses."""
        out = bytearray(params)
        layout = function.layout_within(len(params))
        for begin, size in [(0, len(params))] if layout is None else layout:
            first = -(-begin // POINTER) * POINTER
            for at in range(first, begin + size - POINTER + 1, POINTER):
                word = int.from_bytes(out[at : at + POINTER], "little")
                out[at : at + POINTER] = self._pointer(function, word).to_bytes(POINTER, "little")
        return bytes(out)

    def _pointer(self, function: Function, word: int) -> int:
        row = self._alive.find(word)
        if row is None:
            return self.replay_context.addresses.translate(word, None)
        birth = self._process.regions.birth[row]
        kind, number = layout.REGION_KINDS[int(birth["kind"])], int(birth["id"])
        if kind in ("host", "host-registered"):
            raise Error(
                f"{function.name} can't be replayed: it has a pointer to host memory "
                f"(region {number}), whose contents are not recorded"
            )
        if row not in self._rows:
            other = int(birth["context"])
            raise Error(
                f"{function.name} can't be replayed: it has a pointer to memory of context "
                f"{other} (region {number})"
            )
        return self._address(word)

    def _address(self, address: int) -> int:
        """Returns the present address of something."""
        row = self._alive.find(address)
        if row is not None and self._process.regions.birth["kind"][row] == REGION["global"]:
            self.replay_context.module(
                int(self._process.regions.birth["module"][row]), "a variable"
            )
        return self.replay_context.addresses.translate(address, row)


def moved_notes(addresses: AddressMap, moved: list[int]) -> list[str]:
    """Returns remarks on regions, by id, at other addresses than recorded."""
    if not moved:
        return []
    why = f" ({addresses.refused})" if addresses.refused else ""
    advice = "; record with --deterministic" if why else ""
    advice *= not addresses.deterministic
    some = ", ".join(map(str, moved[:SHOWN])) + (" …" * (len(moved) > SHOWN))
    return [
        f"{'regions' if len(moved) > 1 else 'region'} {some}: not at the recorded "
        f"addresses{why}: pointers in memory do not lead there{advice}"
    ]


def _shape(rows: Rows | None) -> tuple[int, int, int, int, int, int]:
    if rows is None:
        return 1, 1, 0, 0, 0, 0
    pitches = rows.dst_pitch, rows.src_pitch
    return rows.rows, rows.slices, *pitches, rows.dst_height, rows.src_height


def _padded(size: int) -> int:
    return -(-size // STAGED) * STAGED
