"""Records and inspects GPU memory over time: opens the runs that `ttanalyze record` writes.

    import ttanalyze as tt

    run = tt.open("run1")
    run.epochs, run.regions, run.events  # DataFrames
    run.read(epoch=3, region=0, dtype="f4")
    tt.verify.verify(run).same

Users import modules by short public names: ttanalyze.blame is ttanalyze/verbs/blame. MODULES has
these names, and layers.txt describes the folders.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.machinery import ModuleSpec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

    from ttanalyze import code as kernels
    from ttanalyze import format as model
    from ttanalyze import gpu as graph
    from ttanalyze.code import demangle
    from ttanalyze.core import align, delays, values, writers
    from ttanalyze.errors import Error, FormatError
    from ttanalyze.format import Run
    from ttanalyze.format import open_run as open  # noqa: A004
    from ttanalyze.integrations import control, notebook, plots, pytest_plugin, torch
    from ttanalyze.integrations.notebook import load_ipython_extension
    from ttanalyze.traces import instructions
    from ttanalyze.util import libraries as paths
    from ttanalyze.verbs import (
        blame,
        check,
        diff,
        doctor,
        events,
        export,
        graphs,
        info,
        memory,
        query,
        race,
        record,
        reduce,
        replay,
        report,
        rewind,
        sass,
        stats,
        trace,
        tune,
        verify,
    )

__version__ = "0.1.0"

VALUES = {
    "Error": "errors.Error",
    "FormatError": "errors.FormatError",
    "Run": "format.Run",
    "load_ipython_extension": "integrations.notebook.load_ipython_extension",
    "open": "format.open_run",
}
MODULES = {
    "align": "core.align",
    "blame": "verbs.blame",
    "check": "verbs.check",
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
    "memory": "verbs.memory",
    "merge": "verbs.merge",
    "model": "format",
    "notebook": "integrations.notebook",
    "paths": "util.libraries",
    "plots": "integrations.plots",
    "pytest_plugin": "integrations.pytest_plugin",
    "query": "verbs.query",
    "race": "verbs.race",
    "record": "verbs.record",
    "reduce": "verbs.reduce",
    "replay": "verbs.replay",
    "replay.prove": "verbs.prove",
    "replicas": "verbs.replicas",
    "report": "verbs.report",
    "rewind": "verbs.rewind",
    "sass": "verbs.sass",
    "stats": "verbs.stats",
    "torch": "integrations.torch",
    "trace": "verbs.trace",
    "tune": "verbs.tune",
    "values": "core.values",
    "verify": "verbs.verify",
    "writers": "core.writers",
}
__all__ = [
    "Error",
    "FormatError",
    "Run",
    "align",
    "blame",
    "check",
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
    "load_ipython_extension",
    "memory",
    "merge",
    "model",
    "notebook",
    "open",
    "paths",
    "plots",
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
    "stats",
    "torch",
    "trace",
    "tune",
    "values",
    "verify",
    "writers",
]


def __getattr__(name: str) -> Any:
    """Imports a public name at its first use, so that the command line starts without numpy and
    pandas.
    """
    if name in VALUES:
        module, _, attribute = VALUES[name].rpartition(".")
        value = getattr(import_module(f"{__name__}.{module}"), attribute)
    elif name in MODULES:
        value = import_module(f"{__name__}.{MODULES[name]}")
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
        public, rest = name.removeprefix(__name__ + "."), ""
        while public and public not in MODULES:
            public, _, last = public.rpartition(".")
            rest = f".{last}{rest}"
        if not public or not name.startswith(__name__ + "."):
            return None
        return ModuleSpec(name, self, loader_state=f"{__name__}.{MODULES[public]}{rest}")  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = import_module(spec.loader_state)
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        alias = module.__spec__
        assert alias is not None
        module.__spec__ = alias.loader_state


sys.meta_path.insert(0, _PublicNames())
