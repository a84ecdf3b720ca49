"""Golden files: they equal the rendered manifests of the examples, and the examples set every key of a job."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.golden.differences import difference
from tests.golden.manifests import COMPLETE_FILES, examples, golden_files, goldens, rendered
from workloads.spec import JobSpec
from workloads.validation.conflicts import conflicts


@pytest.fixture(scope="module")
def expected() -> dict[Path, str]:
    """Return the text that each golden file must have."""
    return goldens()


def test_golden_folder_has_exactly_the_files_of_the_examples(expected: dict[Path, str]) -> None:
    assert golden_files() == set(expected), "run `make golden` and read the difference"


def test_golden_manifests_are_current(expected: dict[Path, str]) -> None:
    for path, text in expected.items():
        assert path.read_text(encoding="utf-8") == text, f"{path.name}: run `make golden` and read the difference"


def test_golden_files_have_each_example_once(expected: dict[Path, str]) -> None:
    compared = [line[4:] for text in expected.values() for line in text.splitlines() if line.startswith("+++ ")]
    assert sorted([*compared, *COMPLETE_FILES]) == sorted({*examples(), "queues"}) == sorted(rendered())


def test_golden_examples_set_every_job_key() -> None:
    assert {key for spec, _ in examples().values() for key in spec.model_fields_set} == set(JobSpec.model_fields)


def test_golden_examples_are_valid() -> None:
    for name, (spec, _) in examples().items():
        assert conflicts(spec) == [], name


OLD = [{"kind": "Pod", "spec": {"containers": [{"name": "main", "args": ["a", "b"], "env": [{"name": "A"}]}]}}]


@pytest.mark.parametrize(
    ("container", "lines"),
    [
        ({"name": "main", "args": ["a", "b"], "env": [{"name": "A", "value": ""}]}, ["+env[A].value: ''"]),
        ({"name": "main", "args": ["a", "b", 1], "env": [{"name": "A"}]}, [" args[]: 'b'", "+args[]: 1"]),
        ({"name": "main", "args": ["a", "b"], "env": []}, ["-env[A]: {}", "+env: []"]),
    ],
)
def test_difference_has_each_change_of_a_container(container: dict[str, object], lines: list[str]) -> None:
    found = list(difference(OLD, [{"kind": "Pod", "spec": {"containers": [container]}}]))
    assert {"@@ Pod.spec.containers[main] @@", *lines} <= set(found)


def test_difference_of_the_same_manifests_is_empty() -> None:
    assert list(difference(OLD, OLD)) == []
