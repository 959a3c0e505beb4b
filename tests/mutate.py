"""Which changes of the answers' core no test notices: a sample of mutants by cosmic-ray.

    python -m tests.mutate [--sample N] [--seed N] [MODULE …]

Each mutant is tried in a copy of the project under build/mutate, by the tests of its module. A
mutant that changes no test's outcome, or only what nobody can notice, survives. Mutants of type
annotations are left out: they are never evaluated.

Exits with 0 whether mutants survived or not, with 2 where the tests fail without any change, and
with 130 when interrupted. An interrupted search prints what it found so far.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from cosmic_ray.commands import init
from cosmic_ray.mutating import use_mutation
from cosmic_ray.plugins import get_operator
from cosmic_ray.work_db import WorkDB, use_db
from cosmic_ray.work_item import MutationSpec

from tests import support
from ttanalyze.cli.common import ERROR, INTERRUPTED, progress_bar
from ttanalyze.output import text

WORK = support.ROOT / "build" / "mutate"
GENERATED = ("ttanalyze/_cuda.py", "ttanalyze/_format.py", "ttanalyze/lib")
FEW = "random_runs.py::test_random_runs_equal_a_model[0]"  # quick, and finds most
TESTS = {
    "verbs/verify/compare.py": f"{FEW} verify",
    "verbs/diff/states.py": f"{FEW} diff_matching diff",
    "verbs/race/pairs.py": "race race_pairs",
    "core/order.py": "race random_calls race_pairs",
    "core/reach.py": "check_order race_pairs",
    "core/unordered.py": "check_order",
    "core/host_writes.py": "host_writes",
    "core/unordered_nodes.py": "check_order",
    "verbs/check/uninitialized.py": "check_uninitialized",
    "verbs/check/fills.py": "check_uninitialized",
    "verbs/check/determinism.py": "check_determinism",
    "verbs/check/difference.py": "check_determinism",
    "verbs/check/parameters.py": "check_determinism",
    "verbs/check/zoom.py": "check_determinism",
    "verbs/check/values.py": "check",
    "verbs/check/order.py": "check_order_findings check_order",
    "verbs/check/bounds.py": "zones",
    "verbs/check/guard.py": "guard",
    "code/pointers.py": "check_order",
    "disassembly/pointers.py": "check_order",
    "verbs/diff/suspects.py": "diff random_suspects",
    "verbs/blame/plausible.py": "blame_plausible blame",
    "verbs/blame/search.py": f"{FEW} blame_plausible blame",
    "verbs/diff/match.py": f"{FEW} diff_match diff_matching diff",
    "core/allocations.py": f"{FEW} memory",
    "verbs/replay/plan.py": "plans random_plans",
    "verbs/replay/compare.py": "random_compare",
    "gpu/rebuild/dependency_graph.py": "plans random_plans",
    "format/contents.py": f"{FEW} model rewind blame",
}
STUCK = 3600  # seconds
MARKS = "not long and not gpu"
RECORDED = "verbs/check/"  # modules that only tests with recordings reach
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


def command(module: str) -> list[str]:
    """What tests a module, the quick tests first."""
    names = TESTS[module].split()
    files = [f"tests/test_{name if '::' in name else name + '.py'}" for name in names]
    marks = MARKS if module.startswith(RECORDED) else f"{MARKS} and not native"
    options = ["-x", "-q", "-p", "no:cacheprovider", "-m", marks]
    return [sys.executable, "-m", "pytest", *options, *files]


def passes(tests: list[str], seconds: int = STUCK) -> bool:
    """Whether tests pass. Each process may use so many seconds of processor time, and all
    together may run for STUCK seconds. All processes have ended when this returns.
    """
    # A cache of compiled modules does not tell two changes within a second from each other.
    uncached = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    with (WORK / "output").open("wb") as output:
        running = subprocess.Popen(
            tests,
            stdout=output,
            stderr=output,
            env=uncached,
            start_new_session=True,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds)),
        )
        try:
            return running.wait(STUCK) == 0
        except subprocess.TimeoutExpired:
            return False
        finally:
            if running.returncode is None:
                os.killpg(running.pid, signal.SIGKILL)
                running.wait()


def processor_seconds() -> float:
    """What the tests that ended took of the processor."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def surviving(mutation: MutationSpec, tests: list[str], seconds: int) -> str:
    """The change where the tests pass with it, else nothing."""
    operator = get_operator(mutation.operator_name)(**mutation.operator_args)
    path = mutation.module_path
    with use_mutation(path, operator, mutation.occurrence) as (before, after):
        if not passes(tests, seconds):
            return ""
    lines = difflib.unified_diff(before.split("\n"), after.split("\n"), f"a/{path}", f"b/{path}")
    return "\n".join(line.rstrip("\n") for line in lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sample", type=int, default=20, help="mutants of each module; 0: all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("modules", nargs="*", metavar="MODULE", help=", ".join(TESTS))
    asked = parser.parse_args()
    for module in asked.modules:
        if module not in TESTS:
            parser.error(f"no module {module}: choose from {', '.join(TESTS)}")
    os.chdir(copied())
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    rows = [["module", "mutants", "tried", "killed", "survived"]]
    status = 0
    try:
        for module in asked.modules or TESTS:
            every = mutants(Path("ttanalyze") / module)
            row = [module, str(len(every)), "0", "0", "0"]
            rows.append(row)
            tests = command(module)
            before = processor_seconds()
            if not passes(tests):
                print((WORK / "output").read_text(errors="replace"), file=sys.stderr)
                print(f"{module}: its tests fail without any change", file=sys.stderr)
                return ERROR
            limit = 10 + 2 * int(processor_seconds() - before)
            count = min(asked.sample or len(every), len(every))
            survived = 0
            with progress_bar(module, quiet=False) as progress:
                for done, mutation in enumerate(random.Random(asked.seed).sample(every, count), 1):
                    change = surviving(mutation, tests, limit)
                    if change:
                        survived += 1
                        print(change, flush=True)
                    row[2:] = map(str, (done, done - survived, survived))
                    if progress:
                        progress(done, count)
            print(f"{module}: {count - survived} of {count} killed", file=sys.stderr, flush=True)
    except KeyboardInterrupt:
        status = INTERRUPTED
    print(text.table(rows, {1, 2, 3, 4}))
    return status


if __name__ == "__main__":
    sys.exit(main())
