"""Each example becomes exactly the manifests that are kept beside this file."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.golden.manifests import FOLDER, examples, goldens
from workloads.refusals.conflicts import conflicts


@pytest.fixture(scope="module")
def wanted() -> dict[Path, str]:
    return goldens()


def test_there_is_a_file_for_each_example_and_no_other(wanted: dict[Path, str]) -> None:
    assert set(FOLDER.glob("*.yaml")) == set(wanted), "run `make golden` and read the difference"


def test_manifests_are_as_kept(wanted: dict[Path, str]) -> None:
    for path, text in wanted.items():
        kept = list(yaml.safe_load_all(path.read_text(encoding="utf-8")))
        assert list(yaml.safe_load_all(text)) == kept, f"{path.name}: run `make golden` and read the difference"
        assert path.read_text(encoding="utf-8") == text


def test_every_example_is_a_job_that_can_be(wanted: dict[Path, str]) -> None:
    assert {path.stem for path in wanted} == {*examples(), "queues"}
    for name, (spec, _) in examples().items():
        assert conflicts(spec) == [], name
