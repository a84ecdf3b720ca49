"""Consequences of a change: resources that are replaced because others are, or because their provider has a new
target."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from commands.review.difference import difference
from commands.review.plan import Step
from commands.review.recorded import Record, record_program
from tests.commands.pull_requests import STACK, changed, report, text

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
    """Return the EKS stack with other values of its platform."""
    return {**EKS, "platform": {**EKS["platform"], **platform}}


def steps(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Step]:
    """Return the step of each resource of the clouds and the cluster, by name."""
    found = difference(record_program(before, ()), record_program(after, ()))
    return {each.name: each for each in found if not each.component}


def test_nothing_changed_draws_nothing_along() -> None:
    assert {each.action for each in steps(EKS, EKS).values()} == {"same"}


def test_another_region_makes_everything_again() -> None:
    found = steps(EKS, eks(region="us-east-1"))
    stays = {name for name, each in found.items() if each.action in ("same", "update")}
    assert stays == {"image-build"}, "a recording knows no other address of the registry"
    assert found["cluster-eks"].changed == ("provider aws",)
    assert found["train-bucket"].action == "replace"
    assert found["train-bucket"].kept
    assert found["digits-job"].changed == ("spec",), "its image is in a registry of that region"
    assert found["training-account"].provider == "kubernetes"


def test_another_zone_takes_the_cluster_with_all_that_is_in_it() -> None:
    found = report({**STACK, "platform": {**STACK["platform"], "zone": "us-central1-b"}})
    happens = {each.name: each.action for each in found.steps}
    assert happens["cluster-control-plane"] == happens["gpus-nodes"] == happens["digits-job"] == "replace"
    assert happens["network-vpc"] == "same"


def test_a_network_that_goes_takes_what_is_in_it() -> None:
    found = steps(EKS, eks(network={"vpc": "10.99.0.0/16"}))
    assert found["network-vpc"].changed == ("cidrBlock",)
    assert "vpcId" in found["network-endpoints"].changed
    assert found["cpu-nodes"].action == "replace"
    assert found["train-bucket"].action == "same"


def test_an_update_draws_nothing_along() -> None:
    found = report(changed({"nodes": 4}))
    assert [each.name for each in found.steps if each.action == "replace"] == []


def test_who_stands_between_is_followed() -> None:
    first = Record("gcp:compute/network:Network", "net", {"autoCreateSubnetworks": False})
    second = Record("gcp:compute/router:Router", "router", {"network": "net-id"}, depends={"network": (urn(first),)})
    third = Record(
        "gcp:compute/routerNat:RouterNat", "nat", {"router": "router-id"}, depends={"router": (urn(second),)}
    )
    found = difference([first, second, third], [replace(first, inputs={"autoCreateSubnetworks": True}), second, third])
    assert [(each.name, each.action) for each in found] == [(name, "replace") for name in ("net", "router", "nat")]


def urn(record: Record) -> str:
    """Return a URN below a component, as Pulumi writes it."""
    return f"urn:pulumi:test::trainyard::trainyard:gcp:Network${record.type}::{record.name}"


@pytest.mark.parametrize(
    "said", ["`cluster-control-plane`: location", "more of the provider `kubernetes`", "`digits-job`"]
)
def test_the_report_names_what_matters_and_counts_the_rest(said: str) -> None:
    assert said in text({**STACK, "platform": {**STACK["platform"], "zone": "us-central1-b"}})


def test_the_report_says_of_a_bucket_that_it_stays() -> None:
    found = text({**STACK, "platform": {**STACK["platform"], "name": "other"}})
    assert "-bucket`; the existing one stays in the cloud and continues to cost" in found
