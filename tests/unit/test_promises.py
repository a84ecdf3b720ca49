"""Tables that name tests: docs/promises.md quotes the documents, and each test in it and in tests/lanes.json exists."""

from __future__ import annotations

import ast
import functools
from pathlib import Path

from tests.lanes import SHARED_CLUSTERS, Lane, lane_of, read_core, read_table
from tests.promises import PROJECT, PROMISES, README, cell, core

LONG_MARK = "pytest.mark.long"


@functools.cache
def text_of(document: str) -> str:
    """Return the text of a document as one line with single spaces, escaped as in a table cell."""
    return cell(" ".join((PROJECT / document).read_text(encoding="utf-8").split()))


@functools.cache
def module(file: Path) -> ast.Module:
    """Return the parsed source of a file."""
    return ast.parse(file.read_text(encoding="utf-8"))


def parts(test: str) -> tuple[Path, str, bool]:
    """Return the file and the function of a test's node id, and True if the id names parameters."""
    file, _, name = test.partition("::")
    function, bracket, _ = name.partition("[")
    return PROJECT / file, function, bool(bracket)


def function_of(test: str) -> ast.FunctionDef | None:
    """Return the test function of a node id, or None."""
    file, name, _ = parts(test)
    found = module(file).body if file.is_file() else []
    return next((each for each in found if isinstance(each, ast.FunctionDef) and each.name == name), None)


def marks(test: str) -> set[str]:
    """Return the marks of a test's function and of its module."""
    function = function_of(test)
    assert function
    found = [ast.unparse(each) for each in function.decorator_list]
    for each in module(parts(test)[0]).body:
        if isinstance(each, ast.Assign) and ast.unparse(each.targets[0]) == "pytestmark":
            values = each.value.elts if isinstance(each.value, ast.List) else [each.value]
            found += [ast.unparse(value) for value in values]
    return set(found)


def test_promises_quote_their_documents_once() -> None:
    counts = {promise: text_of(promise.document).count(promise.sentence) for promise in PROMISES}
    wrong = [f"{each.document}: {count} times: {each.sentence}" for each, count in counts.items() if count != 1]
    assert PROMISES
    assert wrong == [], "correct the quotation in docs/promises.md"


def test_promises_are_unique() -> None:
    rows = [(promise.document, promise.sentence) for promise in PROMISES]
    assert sorted({row for row in rows if rows.count(row) > 1}) == []
    assert [promise for promise in PROMISES if len(set(promise.tests)) != len(promise.tests)] == []


def test_promises_name_existing_tests() -> None:
    named = sorted({test for promise in PROMISES for test in promise.tests} | core())
    assert [promise for promise in PROMISES if not promise.tests] == []
    assert [test for test in named if function_of(test) is None] == []


def test_promises_name_parameters_only_of_parametrized_tests() -> None:
    named = sorted({test for promise in PROMISES for test in promise.tests if parts(test)[2]})
    assert named
    assert [test for test in named if not any("pytest.mark.parametrize(" in mark for mark in marks(test))] == []


def test_each_promise_of_readme_has_a_test_that_is_not_long() -> None:
    promises = [promise for promise in PROMISES if promise.document == README]
    assert [promise for promise in promises if all(LONG_MARK in marks(test) for test in promise.tests)] == []


def test_lanes_table_names_existing_tests() -> None:
    wrong = [
        name
        for name in sorted({*read_table(), *read_core()})
        if not (function_of(name) if "::" in name else (PROJECT / name).is_file())
    ]
    assert wrong == [], "no such tests: remove these names from tests/lanes.json, or write their new names"


def test_long_tests_of_a_shared_cluster_are_in_the_table_of_lanes() -> None:
    # tests/lanes.py schedules by this table. Without an entry, two workers would use the cluster at the same time.
    files = [file for folder in SHARED_CLUSTERS for file in sorted((PROJECT / "tests" / folder).glob("test_*.py"))]
    names = [
        f"{file.relative_to(PROJECT)}::{each.name}"
        for file in files
        for each in module(file).body
        if isinstance(each, ast.FunctionDef) and each.name.startswith("test_")
    ]
    long_names = [name for name in names if LONG_MARK in marks(name)]
    assert long_names
    wrong = [name for name in long_names if lane_of(name, read_table()) is not Lane.CLUSTER]
    assert wrong == [], "add these names to `cluster` in tests/lanes.json"
