"""Replacements of resources because their provider gets a new target, or because a dependency is replaced."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from commands.review.plan import Step, difference
from commands.review.recorded import record_program
from commands.review.report import ALWAYS_LISTED_TYPES
from tests.commands.pull_requests import STACK, markdown_report, report
from tests.golden.manifests import ON_CLAIM, SCRIPT, engine
from workloads.spec import JobKind, JobSpec

EKS: dict[str, Any] = {
    "platform": {
        "kind": "eks",
        "name": "train",
        "region": "us-west-2",
        "pools": [{"name": "cpu", "machine_type": "c7i.2xlarge", "nodes": 2}],
    },
    "jobs": [{"name": "digits", "recipe": "digits", "hosts": 2, "resources": {"cpu": 2, "memory": "4Gi"}}],
}


def eks(**platform: Any) -> dict[str, Any]:
    """Return the EKS stack with these changes of its platform."""
    return {**EKS, "platform": {**EKS["platform"], **platform}}


def steps(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Step]:
    """Return the step of each resource except components, by name."""
    found = difference(record_program(before, ()), record_program(after, ()))
    return {each.name: each for each in found if not each.is_component}


def test_difference_of_equal_stacks_changes_no_resource() -> None:
    assert {each.action for each in steps(EKS, EKS).values()} == {"same"}


def test_difference_of_another_region_replaces_all_but_the_image() -> None:
    found = steps(EKS, eks(region="us-east-1"))
    kept = {name for name, each in found.items() if each.action in ("same", "update")}
    assert kept == {"image-build"}, "only the image may stay: both recordings have the same registry"
    assert found["cluster-eks"].changed == ("provider aws",)
    assert found["train-bucket"].action == "replace"
    assert found["train-bucket"].kept
    assert found["digits-job"].changed == ("spec",), "the job's image must be in the new region"
    assert found["training-account"].provider == "kubernetes"


def test_difference_of_another_zone_replaces_the_cluster_and_its_contents() -> None:
    found = report({**STACK, "platform": {**STACK["platform"], "zone": "us-central1-b"}})
    actions = {each.name: each.action for each in found.steps}
    assert actions["cluster-control-plane"] == actions["gpus-nodes"] == actions["digits-job"] == "replace"
    assert actions["network-vpc"] == "same"


def test_report_of_many_replacements_names_the_main_resources_and_counts_the_rest() -> None:
    found = markdown_report({**STACK, "platform": {**STACK["platform"], "zone": "us-central1-b"}})
    assert "`cluster-control-plane`: location" in found
    assert "`digits-job`" in found
    assert "more because their provider `kubernetes` changes" in found


@pytest.mark.parametrize("kind", get_args(JobKind))
def test_always_listed_types_include_the_job_of_every_kind(kind: JobKind) -> None:
    job = engine(JobSpec.model_validate({**SCRIPT, "kind": kind}), ON_CLAIM).requests["resnet-job"]
    assert job.type.endswith(ALWAYS_LISTED_TYPES)


def test_replaced_bucket_is_kept_only_if_the_old_settings_keep_it() -> None:
    deleting = {**STACK, "platform": {**STACK["platform"], "bucket": {"keep": False}}}
    keeping = {**STACK, "platform": {**STACK["platform"], "bucket": {"location": "us"}}}
    for before, after, is_kept in ((deleting, keeping, False), (keeping, deleting, True)):
        steps = difference(record_program(before, ()), record_program(after, ()))
        (bucket,) = [each for each in steps if each.type.endswith("storage/bucket:Bucket")]
        assert (bucket.action, bucket.kept) == ("replace", is_kept)


def test_report_of_a_replaced_bucket_says_that_the_old_bucket_stays() -> None:
    found = markdown_report({**STACK, "platform": {**STACK["platform"], "name": "other"}})
    assert "-bucket`; the old resource stays in the cloud and costs money until you delete it" in found
