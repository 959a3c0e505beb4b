"""Tries configurations of a recorded launch, each on the memory that the launch found."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from ttanalyze.errors import Error
from ttanalyze.format import modules
from ttanalyze.format.process import Process
from ttanalyze.gpu.rebuild.address_map import State
from ttanalyze.output import text
from ttanalyze.util.arguments import checked
from ttanalyze.util.progress import Progress, tell
from ttanalyze.verbs.replay import Plan, compilers
from ttanalyze.verbs.replay.choose import choose
from ttanalyze.verbs.tune.constraints import constraints
from ttanalyze.verbs.tune.search import Search, check, chosen, most, search
from ttanalyze.verbs.tune.space import COMPILED, RECORDED, Configuration, Space, space
from ttanalyze.verbs.tune.table import Row, Table
from ttanalyze.verbs.tune.workers import TOOK_LONGER, Workers


@checked
@dataclass(frozen=True)
class Wish:
    """How to try configurations.

    Attributes:
        search: "grid" (all in order), "random", "optuna" (near good ones) or "auto" (optuna if it
            is installed and there are more configurations than trials).
        trials: The maximal number of configurations. Default: all.
        times: The number of measured launches per configuration.
        seed: The seed of the search.
        flush_l2: Whether to flush the L2 cache before each launch.
        dtype: Types of the items of regions, such as "f32,3=bf16".
        tolerance: Tolerances such as [",,4", "weights=1e-3"].
        timeout: The time limit of a configuration in seconds.
        devices: The numbers of the devices. Each tries configurations of its own at the same time.
        sim: Whether to use the simulator.
        where: Conditions on configurations, such as "threads <= 256".
    """

    search: str = "auto"
    trials: int | None = None
    times: int = 20
    seed: int = 0
    flush_l2: bool = False
    dtype: str | None = None
    tolerance: Sequence[str] = ()
    timeout: float = 120.0
    devices: Sequence[int] = (0,)
    sim: bool = False
    where: Sequence[str] = ()


DEFAULT = Wish()


@dataclass(frozen=True)
class Tuned:
    """The result of `tune`.

    Attributes:
        plan: The launch.
        device: The name of the device.
        recorded: The result of the recorded configuration.
        rows: The results of all configurations to try, from now or from the file.
        new: The number of results that are new.
        notes: Remarks, one line each.
    """

    plan: Plan
    device: str
    recorded: Row
    rows: list[Row]
    new: int
    notes: list[str] = field(default_factory=list)

    @property
    def best(self) -> Row:
        """The fastest result that leaves the recorded memory."""
        good = [row for row in (self.recorded, *self.rows) if row.good]
        return min(good, key=lambda row: row.median_ms or 0.0)

    @property
    def gain(self) -> float:
        """The median time of the recorded configuration divided by that of the best."""
        return (self.recorded.median_ms or 0.0) / (self.best.median_ms or 1.0)

    def as_dict(self) -> dict[str, Any]:
        return {
            "kernel": self.plan.kernel,
            "launch": self.plan.seq,
            "device": self.device,
            "recorded": self.recorded.as_dict(),
            "best": self.best.as_dict(),
            "gain": round(self.gain, 4),
            "tried": self.new,
            "rows": [row.as_dict() for row in self.rows],
            "notes": self.notes,
        }


def _check_known(of: Plan) -> None:
    if of.after is None:
        raise Error(f"launch {of.seq}: its result can't be checked: {of.unchecked}")


def tune(
    process: Process,
    path: Path,
    wish: Wish = DEFAULT,
    launch: int | None = None,
    kernel: str | None = None,
    files: Sequence[Path] = (),
    progress: Progress = None,
    **axes: Sequence[Any] | None,
) -> Tuned:
    """Tries configurations of a launch and appends each result to a file.

    Configurations with a result in the file are not tried again.

    Args:
        process: The process.
        path: The file of results.
        wish: How to try them.
        launch: The sequence number of the launch. Default: the first that can be repeated and whose
            result can be checked.
        kernel: A regular expression for the kernel name, mangled or demangled.
        files: Files with code to try in place of the recorded code.
        progress: Called with the finished and the total number of configurations.
        axes: Values by attribute of Configuration.

    Raises:
        Error: No such launch can be repeated and checked, or even the recorded configuration leaves
            other memory.

    Example:
        >>> process, blocks = tt.open("work").process(0), [(128, 1, 1), (256, 1, 1)]
        >>> wish = tt.tune.Wish(times=2, sim=True)  # the times of the simulator mean nothing
        >>> tuned = tt.tune(process, "tuned.csv", wish, kernel="add", block=blocks)
        >>> [(row.configuration.block, row.good) for row in tuned.rows]
        [((128, 1, 1), True), ((256, 1, 1), True)]
    """
    of = choose(process, launch, kernel, _check_known)
    sources = {_name(file, data): (file, data) for file in files for data in [compilers.read(file)]}
    of_all = space(of.launch, list(sources), **axes)
    check(wish.search)
    allowed = constraints(wish.where)
    module = modules.of_kernel(of.process, of.launch.function)
    modules.image_for(of.process, module, f"kernel {of.kernel}")
    image = modules.path_of(of.process, int(module["image"]))
    with (
        tempfile.TemporaryDirectory() as folder,
        Workers(_jobs(of, image, wish), wish.timeout) as workers,
    ):
        images = _Images(image, sources, Path(folder), workers.architecture)
        of_all, notes = images.limit(of_all)
        name = chosen(wish.search, of_all, wish.trials)
        steps = search(name, of_all, wish.trials, wish.seed, allowed)
        table = Table(path, _identity(of, image, wish), of.kernel, workers.device)
        tries = _Tries(workers, images, table)
        recorded = tries.known.get(of_all.recorded)
        if recorded is None or not recorded.good:
            recorded = tries.again(of_all.recorded)
        if not recorded.good:
            hint = "" if wish.dtype else "; --dtype and --tolerance allow values to differ"
            if recorded.error.startswith(TOOK_LONGER):
                hint = "; --timeout allows more time"
            raise Error(f"launch {of.seq} fails as it was recorded: {recorded.error}{hint}")
        rows = tries.run(steps, most(name, of_all, wish.trials), progress)
    return Tuned(of, workers.device, recorded, rows, tries.new, [*notes, *_notes(of)])


def _jobs(of: Plan, image: Path, wish: Wish) -> list[dict[str, Any]]:
    """Returns what each device is told."""
    job = {
        "run": str(of.process.path.parent),
        "process": of.process.index,
        "launch": of.seq,
        "image": str(image),
        **{name: getattr(wish, name) for name in ("sim", "times", "flush_l2")},
        **{name: getattr(wish, name) for name in ("dtype", "tolerance")},
    }
    return [job | {"device": device} for device in wish.devices]


class _Tries:
    """Tries configurations that are not known. known: the results of the table and of now."""

    def __init__(self, workers: Workers, images: _Images, table: Table) -> None:
        self._workers, self._images, self._table = workers, images, table
        self.known = {row.configuration: row for row in table.rows}
        self.new = 0

    def again(self, configuration: Configuration) -> Row:
        """Tries one, even if it is known."""
        self._workers.submit(str(self._images.of(configuration)), configuration)
        (row,) = self._finished()
        return row

    def run(self, steps: Search, total: int, progress: Progress) -> list[Row]:
        """Tries what a search proposes, on all devices at once."""
        rows: list[Row] = []
        told: list[Row] = []  # what the search does not know yet
        begun = ended = False
        while not ended or self._workers.busy:
            while not ended and self._workers.free:
                tell(progress, len(rows), total)
                try:
                    configuration = steps.send(told) if begun else next(steps)
                except StopIteration:
                    ended = True
                    break
                begun, told = True, []
                if configuration in self.known:
                    told.append(self.known[configuration])
                    rows += told
                else:
                    self._workers.submit(str(self._images.of(configuration)), configuration)
            if self._workers.busy:
                found = self._finished()
                told += found
                rows += found
        return rows

    def _finished(self) -> list[Row]:
        rows = [_row(*one) for one in self._workers.finished()]
        for row in rows:
            self._table.add(row)
            self.known[row.configuration] = row
        self.new += len(rows)
        return rows


def _row(configuration: Configuration, answer: dict[str, Any]) -> Row:
    error = text.printable(" ".join(str(answer["error"]).split()))
    median, least, spread = answer.get("times", (None, None, None))
    return Row(configuration, median, least, spread, bool(answer["verified"]), error)


def _notes(of: Plan) -> list[str]:
    out = list(of.notes)
    before, after = (
        State.of_epoch(of.process, epoch or 0, of.rows) for epoch in (of.before, of.after)
    )
    same = [
        np.array_equal(records["digest"], before.records[row]["digest"])
        for row, records in after.records.items()
        if row in before.records
    ]
    if all(same) and not of.prepare:
        out.append("the launch changed no memory: a correct result proves nothing")
    return out


def _name(path: Path, data: bytes) -> str:
    return f"{path.name}:{xxhash.xxh3_64_intdigest(data):016x}"


def _identity(of: Plan, image: Path, wish: Wish) -> str:
    """Returns a digest of the launch and of all that its time and its verification depend on."""
    launch = of.launch
    sizes = (launch.grid, launch.block, launch.cluster, launch.shared, launch.cooperative)
    digest = xxhash.xxh3_64(repr((of.kernel, image.name, sizes)).encode())
    digest.update(launch.params)
    how = wish.flush_l2, wish.dtype, tuple(wish.tolerance)
    if any(how):
        digest.update(repr(how).encode())
    ids = of.process.regions.id
    for row, records in sorted(State.of_epoch(of.process, of.before, of.rows).records.items()):
        digest.update(int(ids[row]).to_bytes(8, "little"))
        digest.update(np.ascontiguousarray(records["digest"]).data)
    return digest.hexdigest()


class _Images:
    """The files with the code of configurations."""

    def __init__(
        self,
        recorded: Path,
        sources: dict[str, tuple[Path, bytes]],
        folder: Path,
        architecture: int,
    ) -> None:
        """Raises Error if CUDA C++ does not compile."""
        self._architecture = architecture
        self._files: dict[str, Path] = {RECORDED: recorded}
        for number, (name, (path, data)) in enumerate(sources.items()):
            (folder / str(number)).mkdir()
            self._files[name] = folder / str(number) / path.name
            self._files[name].write_bytes(compilers.compiled(path, data, architecture))

    def limit(self, of: Space) -> tuple[Space, list[str]]:
        """Returns the space without compiler options for compiled code, with remarks. Raises Error
        if there is no PTX at all.
        """
        asked = [name for name in COMPILED if any(v is not None for v in getattr(of, name))]
        if not asked:
            return of, []
        fixed = [name for name in of.code if not self._compilable(name)]
        names = ["the recorded code" if n == RECORDED else n.partition(":")[0] for n in fixed]
        listed = " and ".join(f"--{name.replace('_', '-')}" for name in asked)
        lacks = f"{listed}: no PTX for this device in {', '.join(names)}"
        if len(fixed) == len(of.code):
            raise Error(f"{lacks}; give PTX or CUDA C++ with --code")
        return replace(of, fixed=frozenset(fixed)), [f"{lacks}: tried unchanged"] if fixed else []

    def _compilable(self, name: str) -> bool:
        return compilers.ptx_of(self._files[name].read_bytes(), self._architecture) is not None

    def of(self, configuration: Configuration) -> Path:
        """Returns the file of a configuration."""
        return self._files[configuration.code]
