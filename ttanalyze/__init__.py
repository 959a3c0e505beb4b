"""Records and inspects GPU memory over time: opens the runs that `ttanalyze record` writes.

    import ttanalyze as tt

    run = tt.open("run1")
    run.epochs, run.regions, run.events  # DataFrames
    run.read(epoch=3, region=0, dtype="f4")
    tt.diff(run, "run2").same  # every verb of the command line is such a function

Users import modules by short public names: ttanalyze.blame is ttanalyze/verbs/blame. MODULES has
these names, and layers.txt describes the folders. The module of a verb is callable: tt.blame(...)
is tt.blame(...).
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ttanalyze import code as kernels
    from ttanalyze import format as model
    from ttanalyze import gpu as graph
    from ttanalyze.code import demangle
    from ttanalyze.core import align, delays, values, writers, zones
    from ttanalyze.errors import Error, FormatError
    from ttanalyze.format import Run
    from ttanalyze.format import open_run as open  # noqa: A004
    from ttanalyze.integrations import (
        control,
        names,
        notebook,
        plots,
        pytest_plugin,
        torch,
        trainers,
    )
    from ttanalyze.integrations.notebook import load_ipython_extension
    from ttanalyze.traces import instructions
    from ttanalyze.util import libraries as paths
    from ttanalyze.verbs.blame import blame
    from ttanalyze.verbs.breakdown.breakdown import breakdown
    from ttanalyze.verbs.check.check import check
    from ttanalyze.verbs.collectives.collectives import collectives
    from ttanalyze.verbs.compare import compare
    from ttanalyze.verbs.diff import diff
    from ttanalyze.verbs.doctor import doctor
    from ttanalyze.verbs.events import events
    from ttanalyze.verbs.export import export
    from ttanalyze.verbs.graphs import graphs
    from ttanalyze.verbs.info import info
    from ttanalyze.verbs.launches import launches
    from ttanalyze.verbs.memcheck import memcheck
    from ttanalyze.verbs.memory import memory
    from ttanalyze.verbs.merge import merge
    from ttanalyze.verbs.prove import prove
    from ttanalyze.verbs.push import push
    from ttanalyze.verbs.query import query
    from ttanalyze.verbs.query.sql import sql
    from ttanalyze.verbs.race import race
    from ttanalyze.verbs.record import record
    from ttanalyze.verbs.reduce import reduce
    from ttanalyze.verbs.replay.run import replay
    from ttanalyze.verbs.replicas import replicas
    from ttanalyze.verbs.report import report
    from ttanalyze.verbs.rewind import rewind
    from ttanalyze.verbs.sass import sass
    from ttanalyze.verbs.stats.stats import stats
    from ttanalyze.verbs.trace import trace
    from ttanalyze.verbs.tune.tune import tune
    from ttanalyze.verbs.validate import validate
    from ttanalyze.verbs.verify import verify

__version__ = "0.1.0"

VALUES = {
    "Error": "errors.Error",
    "FormatError": "errors.FormatError",
    "Run": "format.Run",
    "load_ipython_extension": "integrations.notebook.load_ipython_extension",
    "open": "format.open_run",
    "sql": "verbs.query.sql.sql",
}
MODULES = {
    "align": "core.align",
    "blame": "verbs.blame",
    "breakdown": "verbs.breakdown",
    "check": "verbs.check",
    "collectives": "verbs.collectives",
    "compare": "verbs.compare",
    "control": "integrations.control",
    "delays": "core.delays",
    "demangle": "code.demangle",
    "diff": "verbs.diff",
    "doctor": "verbs.doctor",
    "events": "verbs.events",
    "export": "verbs.export",
    "graph": "gpu",
    "graphs": "verbs.graphs",
    "info": "verbs.info",
    "instructions": "traces.instructions",
    "kernels": "code",
    "launches": "verbs.launches",
    "memcheck": "verbs.memcheck",
    "memory": "verbs.memory",
    "merge": "verbs.merge",
    "model": "format",
    "names": "integrations.names",
    "notebook": "integrations.notebook",
    "paths": "util.libraries",
    "plots": "integrations.plots",
    "prove": "verbs.prove",
    "push": "verbs.push",
    "pytest_plugin": "integrations.pytest_plugin",
    "query": "verbs.query",
    "race": "verbs.race",
    "record": "verbs.record",
    "reduce": "verbs.reduce",
    "replay": "verbs.replay",
    "replicas": "verbs.replicas",
    "report": "verbs.report",
    "rewind": "verbs.rewind",
    "sass": "verbs.sass",
    "stats": "verbs.stats",
    "torch": "integrations.torch",
    "trace": "verbs.trace",
    "trainers": "integrations.trainers",
    "tune": "verbs.tune",
    "validate": "verbs.validate",
    "values": "core.values",
    "verify": "verbs.verify",
    "writers": "core.writers",
    "zones": "core.zones",
}
__all__ = [
    "Error",
    "FormatError",
    "Run",
    "align",
    "blame",
    "breakdown",
    "check",
    "collectives",
    "compare",
    "control",
    "delays",
    "demangle",
    "diff",
    "doctor",
    "events",
    "export",
    "graph",
    "graphs",
    "info",
    "instructions",
    "kernels",
    "launches",
    "load_ipython_extension",
    "memcheck",
    "memory",
    "merge",
    "model",
    "names",
    "notebook",
    "open",
    "paths",
    "plots",
    "prove",
    "push",
    "pytest_plugin",
    "query",
    "race",
    "record",
    "reduce",
    "replay",
    "replicas",
    "report",
    "rewind",
    "sass",
    "sql",
    "stats",
    "torch",
    "trace",
    "trainers",
    "tune",
    "validate",
    "values",
    "verify",
    "writers",
    "zones",
]


class _Verb(ModuleType):
    """The module of a verb, which is called as the function that has its name."""

    @property
    def _function(self) -> Any:
        return vars(self)[self.__name__.rpartition(".")[2]]

    @property
    def __signature__(self) -> Any:
        from inspect import signature

        return signature(self._function)

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        arguments = import_module(f"{__name__}.util.arguments")
        return arguments.checked(self._function)(*args, **keywords)


def _module(name: str) -> ModuleType:
    """Returns the module with a public name."""
    path, _, rest = name.partition(".")
    module = import_module(f"{__name__}.{MODULES[path]}{rest and '.'}{rest}")
    if MODULES[path].startswith("verbs.") and not rest:
        module.__class__ = _Verb
    return module


def __getattr__(name: str) -> Any:
    """Imports a public name at its first use, so that the command line starts without numpy and
    pandas.
    """
    if name in VALUES:
        module, _, attribute = VALUES[name].rpartition(".")
        value = getattr(import_module(f"{__name__}.{module}"), attribute)
    elif name in MODULES:
        value = _module(name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


class _PublicNames:
    """Finds ttanalyze.NAME and its submodules by MODULES.

    Invariant: a module is loaded once, whichever name is imported first, and keeps its own name.
    """

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        package, _, public = name.partition(".")
        if package != __name__ or public.partition(".")[0] not in MODULES:
            return None
        return ModuleSpec(name, self, loader_state=public)  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = _module(spec.loader_state)
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        alias = module.__spec__
        assert alias is not None
        module.__spec__ = alias.loader_state


sys.meta_path.insert(0, _PublicNames())
