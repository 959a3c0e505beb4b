"""Runs modules of this very installation in other processes.

`python -m ttanalyze` looks in the current folder first, which may hold another ttanalyze: a clone
that was not built, for one. This file is run by its path instead, so the folder does not matter.
"""

import os
import sys


def own_command(*words: str, module: str = "ttanalyze") -> list[str]:
    """Returns the command that runs a module of this installation.

    Args:
        words: The arguments of the module; for the default, of the command line.
        module: What `python -m` would be given.
    """
    return [sys.executable, os.path.abspath(__file__), module, *words]


def _run() -> None:
    here = os.path.dirname(os.path.abspath(__file__))
    root = os.path.dirname(os.path.dirname(here))
    # Last, as site-packages are: the standard library comes before them.
    sys.path[:] = [path for path in sys.path if path not in (here, root)] + [root]
    module = sys.argv.pop(1)
    import runpy

    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _run()
