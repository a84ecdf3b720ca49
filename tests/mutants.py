"""Mutation check: change one operator, constant, condition or result of a pure module at a time, and run fast tests.

`python -m tests.mutants [MODULE...]` prints the surviving mutants of each module and the share of killed mutants. A
mutant is killed if a test fails.
"""

from __future__ import annotations

import ast
import copy
import importlib
import importlib.machinery
import itertools
import os
import random
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, MappingProxyType

PROJECT = Path(__file__).resolve().parents[1]
MAX_MUTANTS = 20
"""Largest number of mutants of a module."""
TIMEOUT_SECONDS = 180
"""Seconds after which a mutant counts as killed, such as one that loops forever."""
GOAL_PERCENT = 85
"""Smallest share of mutants that the tests must kill, in percent."""
PRELOADED = ("pytest", "pulumi", "pulumi_gcp", "pulumi_kubernetes", "pydantic", "torch", "yaml")
"""Packages to import before the forks, because the tests of every mutant need them."""

MODULES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "infra/capacity.py": ("tests/unit/test_capacity.py", "tests/unit/test_gke_node_pools.py"),
        "infra/hardware/__init__.py": ("tests/unit/test_capacity.py", "tests/unit/test_node_capacity.py"),
        "infra/hardware/node_capacity.py": ("tests/unit/test_node_capacity.py",),
        "infra/hardware/tpus.py": ("tests/unit/test_capacity.py", "tests/unit/test_hardware_tables.py"),
        "infra/hardware/gce.py": (
            "tests/unit/test_hardware_tables.py",
            "tests/unit/test_node_capacity.py",
            "tests/unit/test_quota.py",
        ),
        "infra/hardware/ec2.py": (
            "tests/unit/test_hardware_tables.py",
            "tests/unit/test_node_capacity.py",
            "tests/unit/test_quota.py",
        ),
        "infra/hardware/versions.py": ("tests/unit/test_kubernetes_versions.py",),
        "infra/hardware/machines.py": ("tests/unit/test_hardware_tables.py", "tests/unit/test_node_capacity.py"),
        "infra/cost.py": ("tests/unit/test_cost.py",),
        "infra/gcp/pools.py": (
            "tests/unit/test_gke_node_pools.py",
            "tests/unit/test_quota.py",
            "tests/unit/test_cost.py",
        ),
        "infra/aws/pools.py": ("tests/unit/test_capacity.py", "tests/unit/test_quota.py", "tests/unit/test_cost.py"),
        "workloads/command.py": ("tests/unit/test_command.py",),
        "workloads/trainer_flags.py": ("tests/unit/test_trainer_flags.py",),
        "trainer/data/sampler.py": ("tests/trainer/test_sampler.py",),
        "trainer/exit_codes.py": ("tests/trainer/test_config.py",),
    }
)
"""Pure modules, and the tests that check each. If these tests miss a mutant, `ALL_TESTS` run too."""
ALL_TESTS = ("tests/unit", "tests/golden")

COMPARISONS = {  # comparison -> comparison of the mutant
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
OPERATORS = {  # operator -> operator of the mutant
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.Mod: ast.FloorDiv,
}


@dataclass(frozen=True)
class Mutant:
    """Change of a module."""

    path: str
    line: int
    text: str
    """Changed code, as `before -> after`."""
    tree: ast.Module


def changes(node: ast.AST) -> Iterator[Callable[[], None]]:
    """Yield functions that each change `node` in place."""
    match node:
        case ast.Compare(ops=[operator]) if type(operator) in COMPARISONS:
            yield lambda: setattr(node, "ops", [COMPARISONS[type(operator)]()])
        case ast.BinOp(op=operation) if type(operation) in OPERATORS:
            yield lambda: setattr(node, "op", OPERATORS[type(operation)]())
        case ast.BoolOp(op=connective):
            yield lambda: setattr(node, "op", ast.Or() if isinstance(connective, ast.And) else ast.And())
        case ast.Constant(value=bool(value)):
            yield lambda: setattr(node, "value", not value)
        case ast.Constant(value=int(number) | float(number)):
            yield lambda: setattr(node, "value", number + 1)
        case ast.IfExp(body=body, orelse=orelse) if _is_text(body) and _is_text(orelse):
            return
        case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test):
            yield lambda: setattr(node, "test", ast.UnaryOp(op=ast.Not(), operand=test))
        case ast.Return(value=ast.expr() as value) if not _is_text(value):
            yield lambda: setattr(node, "value", ast.Constant(value=None))


def _is_text(node: ast.expr) -> bool:
    """Return True for None and for the text of a message. Tests do not assert every word of a message."""
    match node:
        case ast.JoinedStr() | ast.Constant(value=None) | ast.Constant(value=str()):
            return True
        case ast.IfExp(body=body, orelse=orelse):
            return _is_text(body) and _is_text(orelse)
        case ast.Call(func=ast.Attribute(value=ast.Constant(value=str()), attr="join")):
            return True
        case _:
            return False


def mutable_nodes(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield the nodes of function bodies and of positional parameters' defaults.

    Skip annotations, raised errors and f-strings.
    """
    functions = [each for each in ast.walk(tree) if isinstance(each, ast.FunctionDef)]
    for function in functions:
        pending: list[ast.AST] = [*function.body, *function.args.defaults]
        while pending:
            node = pending.pop()
            if isinstance(node, ast.Raise | ast.JoinedStr | ast.FunctionDef | ast.ClassDef):
                continue
            yield node
            pending += [
                child
                for name, value in ast.iter_fields(node)
                if name not in ("annotation", "returns")
                for child in (value if isinstance(value, list) else [value])
                if isinstance(child, ast.AST)
            ]


def mutants(path: str) -> list[Mutant]:
    """Return at most MAX_MUTANTS mutants of a module, drawn with a fixed seed."""
    original = ast.parse((PROJECT / path).read_text(encoding="utf-8"))
    count = sum(len(list(changes(node))) for node in mutable_nodes(original))
    found = []
    for wanted in sorted(random.Random(path).sample(range(count), min(MAX_MUTANTS, count))):
        tree, number = copy.deepcopy(original), 0
        for node in mutable_nodes(tree):
            for change in changes(node):
                if number == wanted:
                    before, line = ast.unparse(node).partition("\n")[0], getattr(node, "lineno", 0)
                    change()
                    ast.fix_missing_locations(tree)
                    text = f"{before} -> {ast.unparse(node).partition(chr(10))[0]}"
                    found.append(Mutant(path, line, text, tree))
                number += 1
    return found


def survives(path: str, tree: ast.Module | None) -> bool:
    """Return True if all fast tests pass with the changed module. Run the module's own tests first.

    Without a `tree`, run the tests with the unchanged module.
    """
    return _passes(path, tree, MODULES[path]) and _passes(path, tree, ALL_TESTS)


def _passes(path: str, tree: ast.Module | None, tests: tuple[str, ...]) -> bool:
    """Return True if these tests pass with the changed module, run in a forked process."""
    pid = os.fork()
    if pid == 0:
        _run_tests(PROJECT / path, tree, tests)
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while time.monotonic() < deadline:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status) == 0
        time.sleep(0.05)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return False


def _run_tests(path: Path, tree: ast.Module | None, tests: tuple[str, ...]) -> None:
    """Run the tests with the changed module instead of the file, and exit with pytest's status."""
    import pytest

    read = importlib.machinery.SourceFileLoader.get_code

    def get_code(loader: importlib.machinery.SourceFileLoader, name: str) -> CodeType | None:
        if tree is not None and Path(loader.path) == path:
            return compile(tree, loader.path, "exec")
        return read(loader, name)

    importlib.machinery.SourceFileLoader.get_code = get_code  # type: ignore[method-assign, assignment]  # the change under test
    os.chdir(PROJECT)
    with Path(os.devnull).open("w") as nothing:
        os.dup2(nothing.fileno(), 1)
        os.dup2(nothing.fileno(), 2)
    resource.setrlimit(resource.RLIMIT_AS, (16 << 30, 16 << 30))  # 16 GiB: a mutant may allocate memory in a loop
    code = 1
    try:
        options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--lane=fast"]
        # pytest cannot rewrite the assertions of plugins that are loaded already, such as typeguard's.
        options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
        code = int(pytest.main([*options, *tests]))
    finally:
        os._exit(code)


def main() -> int:
    """Print the survivors of the named modules, or of all.

    Return 1 if a module's tests fail without a change, or if too few mutants are killed.
    """
    chosen = sys.argv[1:] or list(MODULES)
    for name in PRELOADED:
        importlib.import_module(name)
    killed = total = 0
    for path in chosen:
        if not survives(path, None):
            print(f"{path}: its tests fail without a change; correct them first")
            return 1
        found = mutants(path)
        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            alive = list(pool.map(lambda mutant: survives(mutant.path, mutant.tree), found))
        killed, total = killed + alive.count(False), total + len(alive)
        print(f"{path}: {alive.count(False)} of {len(alive)} killed", flush=True)
        for each in itertools.compress(found, alive):
            print(f"  survives: {path}:{each.line}: {each.text}", flush=True)
    percent = 100 * killed / total
    print(f"{killed} of {total} mutants killed, {percent:.0f} %; the goal is {GOAL_PERCENT} %")
    return 0 if percent >= GOAL_PERCENT else 1


if __name__ == "__main__":
    sys.exit(main())
