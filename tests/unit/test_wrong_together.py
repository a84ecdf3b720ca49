"""Problems between settings: a stack that never ends, ranges for examples, a script of another folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stack import validation
from stack.config import parse
from tests.problems import refused
from tests.unit.cloud_settings import eks
from tests.unit.refused import cloud, job
from workloads.validation import images

GKE = {"kind": "gke", "project": "some-project"}


@pytest.mark.parametrize(("hours", "code"), [(1e300, "settings.less_than_equal"), (8, "stack.ttl_hours.protected")])
def test_a_time_to_live_that_cannot_be(hours: float, code: str) -> None:
    values: dict[str, Any] = {"platform": {**GKE, "deletion_protection": True}, "jobs": [], "ttl_hours": hours}
    assert refused(values) == [(code, "ttl_hours")]


def test_a_protected_stack_without_a_time_to_live() -> None:
    assert parse({"platform": {**GKE, "deletion_protection": True}, "jobs": []}).ttl_hours is None


def test_the_ranges_of_examples_are_rehearsed_and_not_brought_up() -> None:
    config = parse({"platform": eks(authorized_networks=["8.8.8.8/32", "203.0.113.128/25"]), "jobs": []})
    [line] = config.cloud.up_problems("/checkout", "eks")
    assert "platform.authorized_networks: AWS rejects 203.0.113.128/25, a range for documentation" in line
    assert (
        parse({"platform": eks(authorized_networks=["8.8.8.8/32"]), "jobs": []}).cloud.up_problems("/checkout", "eks")
        == []
    )


def test_a_script_of_the_checkout_without_its_dot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validation, "CHECKOUT", tmp_path)
    monkeypatch.setattr(images, "PROJECT", tmp_path)
    (tmp_path / "train.py").write_text("print()\n", encoding="utf-8")
    assert refused(job(recipe=None, script="train.py")) == [("job.script.without_dot", "jobs.0.script")]
    parse(cloud(recipe=None, script="train.py", image="example.com/team/train:1"))
