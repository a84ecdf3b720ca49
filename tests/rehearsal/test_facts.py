"""Tables of facts accept the program's resources, and reject inputs that the real providers reject."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from commands.environment import PROJECT
from settings.problem import dotted
from simulation.cloud import fact_check
from simulation.cloud.fact_table import FOLDER, fact_table
from tests.components.cloud_program import graph, rejections
from tests.rehearsal.rejected_by_aws import AWS_BASE, AWS_REJECTIONS, EKS_CLUSTER
from tests.rehearsal.rejected_by_google import CLUSTER, GOOGLE_BASE, GOOGLE_REJECTIONS, POOL
from tests.rehearsal.valid_inputs import VALID_INPUTS

TABLES = sorted(FOLDER.glob("*/*.json"))
BASE = VALID_INPUTS | GOOGLE_BASE | AWS_BASE
"""Resource type -> valid inputs."""
SOURCES = {
    "gcp": "https://github.com/hashicorp/terraform-provider-google-beta/blob/",
    "aws": "https://github.com/hashicorp/terraform-provider-aws/blob/",
}
"""Package -> prefix of the URLs of its provider's source."""


@pytest.mark.parametrize("file", sorted(PROJECT.glob("Pulumi.*.yaml")), ids=lambda file: str(file.stem))
def test_check_accepts_what_the_stacks_of_the_repository_declare(file: Path) -> None:
    content = yaml.safe_load(file.read_text(encoding="utf-8"))["config"]
    platform = content.get("platform") or content["trainyard:platform"]
    if platform["kind"] in ("gke", "eks"):
        assert graph(platform)[0].records


def test_check_rejects_a_resource_of_the_program_with_a_wrong_value() -> None:
    pool = graph({"kind": "gke", "project": "some-project"})[0].of_type("nodePool:NodePool")[0]
    wrong = replace(pool, inputs={**pool.inputs, "nodeCount": -1})
    assert [rejections(each) != [] for each in (pool, wrong)] == [False, True]


def rejected_inputs(type_: str, change: dict[str, Any]) -> dict[str, str]:
    """Change the type's valid inputs, and return the message for each input that the facts reject."""
    inputs = {key: value for key, value in {**BASE[type_], **change}.items() if value is not None}
    table = fact_table(type_)
    assert table is not None
    return {dotted(each.path): each.message for each in fact_check.problems(table, inputs)}


@pytest.mark.parametrize(
    ("type_", "change", "path"),
    [*GOOGLE_REJECTIONS, *AWS_REJECTIONS],
    ids=[f"{type_.rpartition(':')[2]}-{path}" for type_, _, path in (*GOOGLE_REJECTIONS, *AWS_REJECTIONS)],
)
def test_check_rejects_what_the_real_provider_rejects(type_: str, change: dict[str, Any], path: str) -> None:
    assert rejected_inputs(type_, {}) == {}
    assert SOURCES[type_.partition(":")[0]] in rejected_inputs(type_, change)[path]


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
"""Name of a check in a provider's source -> a value that the check rejects."""


@pytest.mark.parametrize("check", BAD_VALUES)
def test_named_check_rejects_a_bad_value(check: str) -> None:
    assert fact_check.check_error(check, BAD_VALUES[check]) != ""


def test_every_named_check_has_a_bad_value() -> None:
    assert {each.partition("(")[0] for each in BAD_VALUES} == {each.partition("(")[0] for each in fact_check.CHECKS}


def test_check_accepts_numbers_and_booleans_in_strings() -> None:
    assert rejected_inputs(POOL, {"nodeCount": "2", "autoscaling": {"maxNodeCount": "3"}}) == {}
    assert rejected_inputs(CLUSTER, {"removeDefaultNodePool": "true"}) == {}
    assert list(rejected_inputs(POOL, {"nodeCount": "2.5"})) == ["nodeCount"]


@pytest.mark.parametrize("file", TABLES, ids=lambda file: file.stem)
def test_table_of_facts_has_commit_lines_and_known_inputs(file: Any) -> None:
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
    assert rejected_inputs(EKS_CLUSTER, {"kubernetesNetworkConfig": {"serviceIpv4Cidr": "100.64.0.0/16"}}) == {}


def test_check_of_a_list_length_names_the_allowed_lengths() -> None:
    few = rejected_inputs(EKS_CLUSTER, {"vpcConfig": {"subnetIds": []}})["vpcConfig.subnetIds"]
    assert few.startswith("must have a length of at least 1, not 0 [")
    filters = [{"filter": "a*", "filterType": "WILDCARD"}] * 6
    many = rejected_inputs("aws:ecr/repository:Repository", {"imageTagMutabilityExclusionFilters": filters})
    assert many["imageTagMutabilityExclusionFilters"].startswith("must have a length of 0 to 5, not 6 [")
