"""Tables of facts: Check accepts the program's resources, and rejects what the real providers reject."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from commands.environment import PROJECT
from settings.problem import dotted
from simulation.cloud import checking, fact_check
from simulation.cloud.fact_table import FOLDER, fact_table
from simulation.cloud.model import Properties
from tests.components.cloud_program import graph
from tests.components.test_platform_keys import EKS, GKE
from tests.recording import Record
from tests.rehearsal.good_inputs import GOOD
from tests.rehearsal.rejected_by_aws import AWS_BASE, AWS_REJECTIONS, EKS_CLUSTER
from tests.rehearsal.rejected_by_google import CLUSTER, GOOGLE_BASE, GOOGLE_REJECTIONS, POOL
from tests.rehearsal.varied_stacks import STACKS

PLACES: Properties = {"project": "some-project", "region": "us-central1", "zone": "us-central1-a"}
TABLES = sorted(FOLDER.glob("*/*.json"))
BASE = GOOD | GOOGLE_BASE | AWS_BASE
"""Resource type -> valid inputs."""
SOURCES = {
    "gcp": "https://github.com/hashicorp/terraform-provider-google-beta/blob/",
    "aws": "https://github.com/hashicorp/terraform-provider-aws/blob/",
}
"""Package -> beginning of the addresses of its provider's source lines."""


def platforms() -> Iterator[dict[str, Any]]:
    """Yield the platforms of all configurations of a cloud in tests and examples."""
    for platform, settings in (({"kind": "gke", "project": "some-project"}, GKE), ({"kind": "eks"}, EKS)):
        yield from ({**platform, **each} for pair in settings.values() for each in pair)
    yield from (each["platform"] for each in STACKS.values())
    for file in sorted(PROJECT.glob("Pulumi.*.yaml")):
        content = yaml.safe_load(file.read_text(encoding="utf-8"))["config"]
        found = content.get("platform") or content.get("trainyard:platform")
        if found["kind"] in ("gke", "eks"):
            yield found


@functools.cache
def records() -> dict[str, Record]:
    """Return the cloud resources that the program declares for all these platforms, each once."""
    found = [each for platform in platforms() for each in graph(platform)[0].records]
    return {str(each): each for each in found if each.type.startswith(("gcp:", "aws:"))}


@pytest.mark.parametrize("package", ["gcp", "aws"])
def test_check_accepts_what_the_program_declares(package: str) -> None:
    rejected = set[str]()
    for each in (found for found in records().values() if found.type.startswith(f"{package}:")):
        table = fact_table(each.type)
        if table is None:
            rejected.add(f"{each.type} has no table of facts")
            continue
        urn = f"urn:pulumi:test::trainyard::{each.type}::{each.name}"
        inputs = checking.with_defaults(each.type, urn, b"", {}, each.inputs, PLACES)
        rejected |= {f"{each.type} {found}" for found in fact_check.problems(table, inputs)}
    assert rejected == set()


def error_lines(type_: str, change: dict[str, Any]) -> dict[str, str]:
    """Return input -> problem, for valid inputs of a type with a change, from the type's facts."""
    inputs = {key: value for key, value in {**BASE[type_], **change}.items() if value is not None}
    table = fact_table(type_)
    assert table is not None
    return {dotted(each.path): each.message for each in fact_check.problems(table, inputs)}


@pytest.mark.parametrize(
    ("type_", "change", "where"),
    [*GOOGLE_REJECTIONS, *AWS_REJECTIONS],
    ids=[f"{type_.rpartition(':')[2]}-{where}" for type_, _, where in (*GOOGLE_REJECTIONS, *AWS_REJECTIONS)],
)
def test_check_rejects_what_the_real_provider_rejects(type_: str, change: dict[str, Any], where: str) -> None:
    assert error_lines(type_, {}) == {}
    assert SOURCES[type_.partition(":")[0]] in error_lines(type_, change)[where]


BAD_VALUES: dict[str, Any] = {
    "ValidateGCEName": "Has_Capitals",
    "ValidateRFC1035Name(6, 30)": "1-begins-with-a-digit",
    "ValidateIpCidrRange": "10.0.0.0/99",
    "IsCIDRNetwork": "10.0.0.1/16",
    "ValidateRFC3339Date": "2026-01-01",
    "validateIAMMember": "somebody@example.com",
    "labelKeyValidator": {"Has Spaces": "x"},
    "ValidateRegexp(ServiceAccountLinkRegex)": "train@example.com",
    "validateProjectServiceService": "container",
    "gkeClusterName": "Train",
    "ValidARN": "role/nodes",
    "NoZeroValues": "",
    "StringIsJSON": "{",
    "validateIPv4CIDRPrivateRange": "8.8.0.0/16",
    "ValidIPv4CIDRNetworkAddress": "10.0.0.1/16",
    "ValidCIDRNetworkAddress": "0.0.0.0",
    "ValidLaunchTemplateID": "template",
    "validClusterName": "-train",
    "validLogGroupName": "two words",
    "ValidIAMPolicyJSON": "[]",
}
"""Check of a provider's source -> a value that it rejects."""


@pytest.mark.parametrize("check", BAD_VALUES)
def test_named_check_rejects_a_bad_value(check: str) -> None:
    assert fact_check.check_error(check, BAD_VALUES[check]) != ""


def test_every_named_check_has_a_bad_value() -> None:
    assert {each.partition("(")[0] for each in BAD_VALUES} == {each.partition("(")[0] for each in fact_check.CHECKS}


def test_check_accepts_numbers_and_booleans_in_strings() -> None:
    assert error_lines(POOL, {"nodeCount": "2", "autoscaling": {"maxNodeCount": "3"}}) == {}
    assert error_lines(CLUSTER, {"removeDefaultNodePool": "true"}) == {}
    assert list(error_lines(POOL, {"nodeCount": "2.5"})) == ["nodeCount"]


@pytest.mark.parametrize("file", TABLES, ids=lambda file: file.stem)
def test_table_of_facts_is_complete(file: Any) -> None:
    package, kind = file.parent.name, file.stem.replace(".", "/", 1)
    name = kind.rpartition("/")[2]
    table = fact_table(f"{package}:{kind}:{name[0].upper()}{name[1:]}")
    assert table is not None
    assert table.commit
    for path, fact in table.inputs.items():
        parent = path.rpartition(".")[0]
        assert not parent or table.inputs[parent]["type"].endswith(("block", "block)")), path
        assert fact["line"], path
    for rule in table.rules:
        named = [*rule.get("inputs", ()), *rule.get("when", {}), *([rule["input"]] if "input" in rule else [])]
        assert set(named) <= set(table.inputs), rule


def test_check_accepts_services_in_the_shared_address_space() -> None:
    assert error_lines(EKS_CLUSTER, {"kubernetesNetworkConfig": {"serviceIpv4Cidr": "100.64.0.0/16"}}) == {}
