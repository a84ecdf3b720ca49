"""Recovery of resources that a killed update created: their ids, and their adoption into the state."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from commands import cloud_inventory
from commands.cloud_inventory import REPEATABLE_TYPES, adopt, id_finder
from commands.environment import PulumiFailed
from commands.interrupts import CommandError
from infra.aws.config import EksConfig
from infra.aws.inventory import DEPENDENT_LISTINGS
from infra.aws.inventory import LISTINGS as AMAZON
from infra.inventory import ID_TEMPLATES, CloudResource, Lister, known_id, resources_in
from simulation.cloud.checking import KINDS
from simulation.cloud.model import rendered
from tests.commands.platforms import cloud

CLOUD = cloud(EksConfig(kind="eks", name="dist"))
"""EKS cluster, whose resources have the label `dist.us-west-2`."""
ALL_INPUTS = {
    name: f"some-{name.lower()}"
    for name in """project region location name router cluster accountId serviceAccountId role member service bucket
    repositoryId repository clusterName nodeGroupName addonName principalArn policyArn""".split()  # noqa: SIM905  (a long list)
}


@pytest.mark.parametrize("type_", sorted(ID_TEMPLATES.keys() & KINDS.keys()))
def test_known_id_equals_the_clouds_id(type_: str) -> None:
    assert known_id(type_, ALL_INPUTS) == rendered(KINDS[type_].id, ALL_INPUTS)


def test_known_id_of_a_kubernetes_object_is_its_name() -> None:
    inputs = {"metadata": {"namespace": "training", "name": "trainer"}}
    assert known_id("kubernetes:core/v1:ServiceAccount", inputs) == "training/trainer"


def operation(type_: str, **inputs: Any) -> dict[str, Any]:
    """Return a pending creation in the format of Pulumi's state."""
    return {"type": "creating", "resource": {"urn": f"urn:{type_}", "type": type_, "inputs": inputs}}


@dataclass
class Pulumi:
    """Simulated Pulumi CLI with a state. As in the real CLI, an import drops pending operations.

    The real CLI rejects unknown references, so an import asserts that parents exist. A refresh changes nothing, and
    fails if `is_broken` is true.
    """

    exported: dict[str, Any]
    is_broken: bool = False
    calls: list[tuple[str, ...]] = field(default_factory=list)

    def run(self, *words: str) -> bool:
        """Run a command. Return True if it succeeds."""
        self.calls.append(words)
        if words[:2] == ("stack", "import"):
            self.exported = json.loads(Path(words[3]).read_text(encoding="utf-8"))
            self.deployment["pending_operations"] = []
            urns = {each["urn"] for each in self.deployment["resources"]}
            assert {each["parent"] for each in self.deployment["resources"] if "parent" in each} <= urns
        return words[0] != "refresh" or not self.is_broken

    @property
    def deployment(self) -> dict[str, Any]:
        """Current state."""
        found: dict[str, Any] = self.exported["deployment"]
        return found


@pytest.fixture
def pulumi() -> Pulumi:
    """Return a Pulumi CLI with pending creations of a bucket, a component and a VPC, and a pending deletion."""
    bucket, vpc = operation("aws:s3/bucket:Bucket", bucket="b"), operation("aws:ec2/vpc:Vpc")
    component = operation("trainyard:aws:ServiceRole")
    component["resource"]["custom"] = False
    deleting = {"type": "deleting", "resource": {}}
    return Pulumi({"version": 3, "deployment": {"pending_operations": [bucket, component, vpc, deleting]}})


@pytest.fixture
def files(pulumi: Pulumi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Use the simulated Pulumi CLI in a project. Return the project's folder of saved pending creations."""

    def run(*words: str, quiet: bool = False) -> str:
        *command, _, _ = words
        assert quiet == (words[0] == "stack"), "`pulumi stack import` must be quiet: it prints only `Import complete.`"
        if words[1] != "export" and not pulumi.run(*command):
            raise PulumiFailed(f"`pulumi {words[0]}` failed")
        return json.dumps(pulumi.exported)

    monkeypatch.setattr(cloud_inventory, "PROJECT", tmp_path)
    monkeypatch.setattr(cloud_inventory, "STATE", tmp_path)
    monkeypatch.setattr(cloud_inventory, "pulumi", run)
    return tmp_path / "pending"


def test_adopt_adds_resources_with_an_id_and_returns_the_others(pulumi: Pulumi) -> None:
    assert adopt(pulumi.exported, pulumi.run) == ["urn:aws:ec2/vpc:Vpc"]
    assert [each["id"] for each in pulumi.deployment["resources"]] == ["b"]
    assert pulumi.calls[1][3:] == ("--target", "urn:aws:s3/bucket:Bucket")


def test_adopt_with_a_failed_refresh_names_the_refresh(pulumi: Pulumi) -> None:
    pulumi.is_broken = True
    with pytest.raises(CommandError, match=r"could not be added to the state: .*`refresh` failed"):
        adopt(pulumi.exported, pulumi.run)


def test_adopt_pending_after_a_failed_refresh_repeats_the_refresh_and_reports_the_same_resources(
    pulumi: Pulumi, files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pulumi.is_broken = True
    with pytest.raises(PulumiFailed, match="`pulumi refresh` failed"):
        cloud_inventory.adopt_pending("dev")
    assert pulumi.deployment["pending_operations"] == []
    pulumi.is_broken = False
    pulumi.calls.clear()
    cloud_inventory.adopt_pending("dev")
    assert "urn:aws:ec2/vpc:Vpc may exist in the cloud" in capsys.readouterr().err
    assert ("refresh", "--yes", "--skip-preview", "--target", "urn:aws:s3/bucket:Bucket") in pulumi.calls
    assert [each["id"] for each in pulumi.deployment["resources"]] == ["b"]
    assert list(files.iterdir()) == []
    pulumi.calls.clear()
    cloud_inventory.adopt_pending("dev")
    assert pulumi.calls == []


@pytest.mark.parametrize(
    "error",
    [FileNotFoundError(2, "No such file or directory", "aws"), subprocess.CalledProcessError(254, ["aws"])],
    ids=["aws is not installed", "aws is not logged in"],
)
def test_adopt_pending_without_a_listing_adopts_the_vpc_when_it_is_listed_again(
    error: Exception, pulumi: Pulumi, files: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_type: str, _inputs: Mapping[str, Any], _taken: frozenset[str]) -> str | None:
        raise error

    monkeypatch.setattr(cloud_inventory, "_stack_id_finder", lambda _file: fail)
    cloud_inventory.adopt_pending("dev")
    line = capsys.readouterr().err
    assert line.startswith("stack dev: the resources of the interrupted update cannot be listed: ")
    assert line.endswith("; the next `make up STACK=dev` or `make down STACK=dev` looks for them again\n")
    assert [each["id"] for each in pulumi.deployment["resources"]] == ["b"]
    monkeypatch.setattr(cloud_inventory, "_stack_id_finder", lambda _file: lambda *_words: "vpc-1")
    cloud_inventory.adopt_pending("dev")
    assert capsys.readouterr().err == ""
    assert [each["id"] for each in pulumi.deployment["resources"]] == ["b", "vpc-1"]
    assert list(files.iterdir()) == []


def test_adopt_pending_without_a_listing_of_any_resource_changes_nothing(
    pulumi: Pulumi, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_type: str, _inputs: Mapping[str, Any], _taken: frozenset[str]) -> str | None:
        raise FileNotFoundError(2, "No such file or directory", "aws")

    pulumi.deployment["pending_operations"] = [operation("aws:ec2/vpc:Vpc")]
    monkeypatch.setattr(cloud_inventory, "_stack_id_finder", lambda _file: fail)
    cloud_inventory.adopt_pending("dev")
    assert pulumi.calls == []
    assert [each["type"] for each in pulumi.deployment["pending_operations"]] == ["creating"]
    assert [each.name for each in files.iterdir()] == ["dev.json"]


def test_adopt_returns_a_replacement_if_the_old_resource_exists(pulumi: Pulumi) -> None:
    pulumi.deployment["resources"] = [{"urn": "urn:aws:s3/bucket:Bucket", "type": "aws:s3/bucket:Bucket", "id": "old"}]
    assert "urn:aws:s3/bucket:Bucket" in adopt(pulumi.exported, pulumi.run)
    assert [each["id"] for each in pulumi.deployment["resources"]] == ["old"]


@pytest.mark.parametrize(("listed", "unknown"), [({"new"}, []), ({"new", "lost"}, ["urn:aws:ec2/vpc:Vpc"])])
def test_adopt_returns_a_recreated_resource_only_if_the_lost_one_is_listed(
    listed: set[str], unknown: list[str], pulumi: Pulumi
) -> None:
    def find(_type: str, _inputs: Mapping[str, Any], taken: frozenset[str]) -> str | None:
        return next(iter(listed - taken), None)

    pulumi.deployment["resources"] = [{"urn": "urn:aws:ec2/vpc:Vpc", "type": "aws:ec2/vpc:Vpc", "id": "new"}]
    assert adopt(pulumi.exported, pulumi.run, find) == unknown
    assert [each["id"] for each in pulumi.deployment["resources"]] == ["new", "b"]


def test_adopt_after_destroy_returns_resources_whose_provider_or_parent_is_gone(pulumi: Pulumi) -> None:
    bucket, _component, vpc, _deleting = pulumi.deployment["pending_operations"]
    bucket["resource"]["parent"] = "urn:trainyard:aws:Storage"
    vpc["resource"]["provider"] = "urn:pulumi:providers:aws::old"
    pulumi.deployment["resources"] = [{"urn": "urn:pulumi:providers:aws", "type": "pulumi:providers:aws", "id": "new"}]
    found = adopt(pulumi.exported, pulumi.run, lambda *_words: "vpc-1")
    assert found == ["urn:aws:s3/bucket:Bucket", "urn:aws:ec2/vpc:Vpc"]
    assert [each["id"] for each in pulumi.deployment["resources"]] == ["new"]


def test_adopt_pending_lists_resources_that_the_user_must_look_for(
    pulumi: Pulumi, files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cloud_inventory.adopt_pending("dev")
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("stack dev: urn:aws:ec2/vpc:Vpc may exist in the cloud without being in the state; look for")
    assert [each["id"] for each in pulumi.deployment["resources"]] == ["b"]
    assert list(files.iterdir()) == []


def lister(*found: CloudResource) -> Lister:
    """Return a function that lists these resources by kind, as a cloud does."""
    return lambda listing: [each for each in found if each.kind == listing.kind]


def test_id_finder_finds_a_resource_by_its_tags() -> None:
    tags = {"Name": "dist", "trainyard-cluster": "dist.us-west-2"}
    other_region = CloudResource(
        kind="VPC", name="vpc-1", id="vpc-1", labels={**tags, "trainyard-cluster": "dist.eu-west-1"}
    )
    old, ours = (CloudResource(kind="VPC", name=id_, id=id_, labels=tags) for id_ in ("vpc-2", "vpc-3"))
    find = id_finder(CLOUD, lister(other_region, old, ours))
    wanted = {"cidrBlock": "10.0.0.0/16", "tags": {"Name": "dist"}}
    assert find("aws:ec2/vpc:Vpc", wanted, frozenset({"vpc-2"})) == "vpc-3"
    assert find("aws:ec2/vpc:Vpc", wanted, frozenset({"vpc-2", "vpc-3"})) is None
    assert find("aws:ec2/vpc:Vpc", {"tags": {"Name": "other"}}, frozenset()) is None
    with pytest.raises(LookupError):
        find("aws:ec2/flowLog:FlowLog", wanted, frozenset())


def test_id_finder_finds_a_resource_without_tags_by_the_ids_that_it_connects() -> None:
    rows = [{"RouteTableAssociationId": f"rtbassoc-{n}", "RouteTableId": f"rtb-{n}", "SubnetId": "s"} for n in (1, 2)]
    (listing, *_) = DEPENDENT_LISTINGS
    find = id_finder(CLOUD, lister(*resources_in(listing, rows)))
    wanted = {"routeTableId": "rtb-2", "subnetId": "s", "region": "us-west-2"}
    assert find("aws:ec2/routeTableAssociation:RouteTableAssociation", wanted, frozenset()) == "rtbassoc-2"
    assert find("aws:ec2/routeTableAssociation:RouteTableAssociation", {"region": "r"}, frozenset()) is None


def test_every_created_type_has_a_known_id_or_a_listing() -> None:
    looked_up_types = {each for listing in (*AMAZON, *DEPENDENT_LISTINGS) for each in listing.types}
    kinds = {each for each in KINDS if not each.startswith(REPEATABLE_TYPES) and each not in ID_TEMPLATES}
    missing = kinds - looked_up_types
    assert missing == set(), "add each to ID_TEMPLATES in infra/inventory.py, or to a listing in infra/aws/inventory.py"


def test_adopt_without_pending_operations_runs_nothing() -> None:
    pulumi = Pulumi({"deployment": {"pending_operations": []}})
    assert adopt(pulumi.exported, pulumi.run) == []
    assert pulumi.calls == []
