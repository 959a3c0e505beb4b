"""Which changes of the answers' core no test notices: a sample of mutants by cosmic-ray.

    python -m tests.mutate [--sample N] [--seed N] [MODULE …]

Each mutant is tried in a copy of the project under build/mutate, by the tests of its module. A
mutant that changes no test's outcome, or only what nobody can notice, survives. Mutants of type
annotations are left out: they are never evaluated.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

from cosmic_ray.commands import init
from cosmic_ray.mutating import mutate_and_test
from cosmic_ray.work_db import WorkDB, use_db
from cosmic_ray.work_item import MutationSpec

from tests import support
from ttanalyze import text

WORK = support.ROOT / "build" / "mutate"
GENERATED = ("ttanalyze/_cuda.py", "ttanalyze/_format.py", "ttanalyze/lib")
FEW = "random_runs.py::test_random_runs[0]"  # quick, and finds most
TESTS = {
    "verify/check.py": f"{FEW} verify",
    "diff/states.py": f"{FEW} diff_matching diff",
    "race/pairs.py": "race race_pairs",
    "race/order.py": "race random_calls race_pairs",
    "diff/suspects.py": "diff random_suspects",
    "blame/search.py": f"{FEW} blame_plausible blame",
    "diff/match.py": f"{FEW} diff_match diff_matching diff",
    "memory/analyse.py": f"{FEW} memory",
    "model/contents.py": f"{FEW} model rewind",
}
MARKS = "not native and not long and not gpu"
Place = tuple[int, int]


def copied() -> Path:
    """The project as it is here, to be changed."""
    tree = WORK / "tree"
    shutil.rmtree(tree, ignore_errors=True)
    names = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=support.ROOT,
        capture_output=True,
        check=True,
    ).stdout.decode()
    for name in filter(None, names.split("\0")):
        if (support.ROOT / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(support.ROOT / name, tree / name)
    for name in GENERATED:
        copy = shutil.copytree if (support.ROOT / name).is_dir() else shutil.copy2
        copy(support.ROOT / name, tree / name)
    return tree


def mutants(module: Path) -> list[MutationSpec]:
    """All of a module but those of annotations."""
    with use_db(str(WORK / "mutants.sqlite"), WorkDB.Mode.create) as db:
        init([module], db, {})
        found = [mutation for item in db.work_items for mutation in item.mutations]
    never = _annotations(ast.parse(module.read_text()))
    return [m for m in found if not any(a <= m.start_pos and m.end_pos <= b for a, b in never)]


def _annotations(tree: ast.AST) -> list[tuple[Place, Place]]:
    out = []
    for node in ast.walk(tree):
        for one in (getattr(node, "annotation", None), getattr(node, "returns", None)):
            if one is not None:
                begin, end = (one.lineno, one.col_offset), (one.end_lineno, one.end_col_offset)
                out.append((begin, end))
    return out


def command(module: str) -> str:
    """What tests a module, the quick tests first."""
    names = TESTS[module].split()
    files = [f"tests/test_{name if '::' in name else name + '.py'}" for name in names]
    options = ["-x", "-q", "-p", "no:cacheprovider", "-m", MARKS]
    return shlex.join([sys.executable, "-m", "pytest", *options, *files])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sample", type=int, default=20, help="mutants of each module; 0: all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("modules", nargs="*", choices=[[], *TESTS], metavar="MODULE")
    asked = parser.parse_args()
    tree = copied()
    os.chdir(tree)
    rows = [["module", "mutants", "tried", "killed", "survived"]]
    for module in asked.modules or TESTS:
        began = time.monotonic()
        subprocess.run(shlex.split(command(module)), check=True, stdout=subprocess.DEVNULL)
        limit = 30 + 4 * (time.monotonic() - began)
        every = mutants(tree / "ttanalyze" / module)
        count = min(asked.sample or len(every), len(every))
        chosen = random.Random(asked.seed).sample(every, count)
        survived = 0
        for mutation in chosen:
            result = mutate_and_test([mutation], command(module), limit)
            if not result.is_killed:
                survived += 1
                print(f"{module}:{mutation.start_pos[0]}\n{result.diff}", flush=True)
        numbers = [len(every), count, count - survived, survived]
        rows.append([module, *map(str, numbers)])
        print(f"{module}: {count - survived} of {count} killed", file=sys.stderr, flush=True)
    print(text.table(rows, {1, 2, 3, 4}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
