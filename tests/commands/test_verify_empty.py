"""`make verify-empty`: listings of every kind of resource, the owner of each resource, and the receipt."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from commands import cloud_inventory
from commands.cloud_inventory import main, simulated, verify
from commands.environment import STATE
from commands.review import recorded
from infra.aws.config import EksConfig
from infra.aws.inventory import LISTINGS as AMAZON
from infra.gcp.config import GkeConfig
from infra.gcp.inventory import LISTINGS as GOOGLE
from infra.inventory import CloudResource
from infra.naming import cloud_labels
from settings.problems import ConfigError
from simulation.cloud import checking
from simulation.cloud.checking import KINDS
from simulation.cloud.model import SimulatedResource, edit_state, new_state
from stack.config import load_file
from tests.commands.platforms import cloud, eks, gke, ownership_of

UNLISTED_TYPES = {
    "gcp:projects/service:Service": "stays enabled for others in the project",
    "gcp:storage/bucketIAMMember:BucketIAMMember": "bucket",
    "gcp:artifactregistry/repositoryIamMember:RepositoryIamMember": "image repository",
    "docker-build:index:Image": "image repository",
    "aws:iam/rolePolicy:RolePolicy": "role",
    "aws:iam/rolePolicyAttachment:RolePolicyAttachment": "role",
    "aws:eks/nodeGroup:NodeGroup": "cluster",
    "gcp:container/nodePool:NodePool": "cluster",
    "gcp:compute/routerNat:RouterNat": "router",
    "gcp:serviceaccount/iAMMember:IAMMember": "service account",
    "aws:ecr/lifecyclePolicy:LifecyclePolicy": "image repository",
    "aws:eks/accessEntry:AccessEntry": "cluster",
    "aws:eks/accessPolicyAssociation:AccessPolicyAssociation": "cluster",
    "aws:eks/addon:Addon": "cluster",
    "aws:eks/podIdentityAssociation:PodIdentityAssociation": "cluster",
    "aws:ec2/defaultSecurityGroup:DefaultSecurityGroup": "VPC",
    "aws:ec2/routeTableAssociation:RouteTableAssociation": "route table",
}
"""Type without a listing -> kind of resource with which it is deleted, or the reason why it stays."""
KIND_OF_TYPE = {type_: listing.kind for listing in (*GOOGLE, *AMAZON) for type_ in listing.types}
TYPES_OF_EVERY_STACK = {
    "gke": {
        "gcp:compute/network:Network",
        "gcp:compute/router:Router",
        "gcp:compute/subnetwork:Subnetwork",
        "gcp:container/cluster:Cluster",
        "gcp:projects/iAMMember:IAMMember",
        "gcp:serviceaccount/account:Account",
        "gcp:storage/bucket:Bucket",
    },
    "eks": {
        "aws:ec2/eip:Eip",
        "aws:ec2/internetGateway:InternetGateway",
        "aws:ec2/launchTemplate:LaunchTemplate",
        "aws:ec2/natGateway:NatGateway",
        "aws:ec2/routeTable:RouteTable",
        "aws:ec2/securityGroup:SecurityGroup",
        "aws:ec2/subnet:Subnet",
        "aws:ec2/vpc:Vpc",
        "aws:ec2/vpcEndpoint:VpcEndpoint",
        "aws:cloudwatch/logGroup:LogGroup",
        "aws:ecr/repository:Repository",
        "aws:eks/cluster:Cluster",
        "aws:iam/role:Role",
        "aws:kms/key:Key",
        "aws:s3/bucket:Bucket",
    },
}
"""Types that every stack creates, by platform."""


def test_inventory_lists_every_type_or_says_what_deletes_it() -> None:
    listed = {each for listing in (*GOOGLE, *AMAZON) for each in listing.types}
    missing = {each for each in KINDS if each not in listed and each not in UNLISTED_TYPES}
    # Types of S3 without a listing are properties of a bucket.
    assert {each for each in missing if not each.startswith("aws:s3/")} == set(), (
        "list these types in infra/gcp/inventory.py or infra/aws/inventory.py"
    )
    assert not listed & UNLISTED_TYPES.keys()


def add_records(folder: Path, platform: GkeConfig | EksConfig, records: Iterable[recorded.Record]) -> None:
    """Add resources of a platform's recording to the simulated cloud."""
    tags = cloud_labels(platform.cluster_label)  # only resources of AWS have default tags
    with edit_state(folder) as state:
        for each in records:
            places = {"region": platform.region}
            inputs = checking.with_defaults(each.type, f"::{each.name}", b"", {}, each.inputs, places, tags)
            if str(inputs.get("network")).endswith("-id"):
                inputs["network"] = f"projects/p-12345/global/networks/{platform.name}"
            email = f"{inputs.get('accountId')}@p-12345.iam.gserviceaccount.com"
            outputs = {**inputs, "email": email} if "accountId" in inputs else inputs
            record = SimulatedResource(
                id=f"{platform.name} {each.name}", type=each.type, urn="", inputs=inputs, outputs=outputs
            )
            state.resources[record.key] = record


P4D = {"name": "gpus", "machine_type": "p4d.24xlarge", "nodes": 2}
A3 = {"name": "gpus", "machine_type": "a3-highgpu-8g"}
V7X = {"name": "tpus", "accelerator": "v7x", "topology": "2x4x4"}


@pytest.mark.parametrize(
    ("make", "more", "types"),
    [
        (gke, {"pools": [{"name": "gpus"}]}, {"gcp:artifactregistry/repository:Repository"}),
        (gke, {"pools": [A3]}, {"gcp:compute/firewall:Firewall"}),
        (gke, {"pools": [V7X], "zone": "us-central1-c"}, {"gcp:compute/resourcePolicy:ResourcePolicy"}),
        (eks, {"pools": [P4D]}, {"aws:ec2/placementGroup:PlacementGroup"}),
    ],
)
def test_verify_reports_each_leak_but_no_resource_of_a_stack_with_longer_name(
    make: Callable[..., Any], more: dict[str, Any], types: set[str], tmp_path: Path
) -> None:
    first, second = (make(name, bucket={"keep": False}, **more) for name in ("a", "a-2"))
    found, others = (
        [each for each in recorded.run(cloud(platform).declare).records if each.type in KIND_OF_TYPE]
        for platform in (first, second)
    )
    assert {each.type for each in found} >= TYPES_OF_EVERY_STACK[first.kind] | types
    folder = tmp_path / "clouds"
    for each in found:
        new_state(folder)
        add_records(folder, second, others)
        assert verify("a", cloud(first), "simulated", simulated(folder), ownership_of(first)).left == ()
        add_records(folder, first, [each])
        (left,) = verify("a", cloud(first), "simulated", simulated(folder), ownership_of(first)).left
        assert left.startswith(f"{KIND_OF_TYPE[each.type]} "), each
    assert len(verify("a-2", cloud(second), "simulated", simulated(folder), ownership_of(second)).left) == len(others)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a project with a stack on Google Cloud and a simulated cloud without resources."""
    platform = {"kind": "gke", "project": "some-project", "name": "gke-dist", "pools": []}
    settings = {"trainyard:platform": platform, "trainyard:jobs": []}
    (tmp_path / "Pulumi.dev.yaml").write_text(json.dumps({"config": settings}), encoding="utf-8")
    monkeypatch.setattr(cloud_inventory, "PROJECT", tmp_path)
    monkeypatch.setattr(cloud_inventory, "STATE", tmp_path)
    new_state(tmp_path / "clouds")
    return tmp_path


def add_resource(project: Path, kind: str, name: str) -> None:
    """Add a resource to the simulated cloud."""
    record = SimulatedResource(id=name, type=kind, urn="urn", inputs={}, outputs={"name": name})
    with edit_state(project / "clouds") as state:
        state.resources[record.key] = record


def run(project: Path) -> tuple[int, dict[str, object]]:
    """Run `verify-empty` on the simulated cloud. Return its exit status and its receipt."""
    status = main("dev", simulation_folder=project / "clouds")
    return status, json.loads((project / "receipts" / "dev.json").read_text(encoding="utf-8"))


def test_verify_empty_kept_bucket_is_listed_and_passes(project: Path) -> None:
    add_resource(project, "gcp:storage/bucket:Bucket", "gke-dist-bucket-0a1b2c3")
    add_resource(project, "gcp:compute/network:Network", "default")
    status, receipt = run(project)
    assert (status, receipt["empty"], receipt["left"]) == (0, True, [])
    assert receipt["kept"] == ["bucket gke-dist-bucket-0a1b2c3"]
    assert receipt["source"] == "simulated"


def test_verify_empty_writes_receipt_below_state_folder(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert STATE.name == ".trainyard"
    monkeypatch.setattr(cloud_inventory, "STATE", project / ".trainyard")
    assert main("dev", simulation_folder=project / "clouds") == 0
    receipt = json.loads((project / ".trainyard" / "receipts" / "dev.json").read_text(encoding="utf-8"))
    assert (receipt["stack"], receipt["empty"]) == ("dev", True)


def test_verify_empty_leaked_router_fails(project: Path) -> None:
    add_resource(project, "gcp:compute/router:Router", "gke-dist")
    status, receipt = run(project)
    assert (status, receipt["empty"], receipt["left"]) == (1, False, ["router gke-dist"])


def test_verify_empty_of_a_version_without_support_lists_leftovers(project: Path) -> None:
    file = project / "Pulumi.dev.yaml"
    settings = json.loads(file.read_text(encoding="utf-8"))
    settings["config"]["trainyard:platform"]["kubernetes_version"] = "1.20"
    file.write_text(json.dumps(settings), encoding="utf-8")
    with pytest.raises(ConfigError, match="kubernetes_version"):
        load_file(file)
    add_resource(project, "gcp:compute/router:Router", "gke-dist")
    status, receipt = run(project)
    assert (status, receipt["left"]) == (1, ["router gke-dist"])


def test_verify_empty_without_gcloud_fails(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(project))
    assert main("dev") == 2
    assert capsys.readouterr().err == (
        "make verify-empty: gcloud is not installed, so the cloud cannot be queried; install it and log in\n"
    )


@pytest.mark.parametrize(
    ("kind", "name", "is_owned"),
    [
        ("cluster", "a", True),
        ("cluster", "a-2", False),
        ("network", "projects/p-12345/global/networks/a", True),
        ("network", "default", False),
        ("bucket", "a-bucket-0a1b2c3", True),
        ("bucket", "a-2-bucket-0a1b2c3", False),
        ("bucket", "a-bucket", False),
        ("instance group", "gke-a-gpus-3f2a91bc-grp", True),
        ("instance group", "gke-a-default-pool-3f2a91bc-grp", True),
        ("instance group", "gke-a-2-gpus-3f2a91bc-grp", False),
        ("instance", "gke-a-system-3f2a91bc-x2z9", True),
        ("service account", "a-nodes@p-12345.iam.gserviceaccount.com", True),
        ("service account", "a-2-nodes@p-12345.iam.gserviceaccount.com", False),
        ("binding", "serviceAccount:a-nodes@p-12345.iam.gserviceaccount.com", True),
        ("binding", "deleted:serviceAccount:a-nodes@p-12345.iam.gserviceaccount.com?uid=123", True),
        ("binding", "deleted:serviceAccount:a-2-nodes@p-12345.iam.gserviceaccount.com?uid=123", False),
        ("firewall rule", "gke-a-3f2a91bc-vms", True),
        ("firewall rule", "gke-a-2-3f2a91bc-vms", False),
        ("image repository", "a", False),
    ],
)
def test_gke_ownership_by_name_matches_only_the_stacks_names(kind: str, name: str, is_owned: bool) -> None:
    assert ownership_of(gke("a")).has(CloudResource(kind=kind, name=name, labels={}), ()) == is_owned


@pytest.mark.parametrize(
    ("labels", "is_owned"),
    [
        ({"trainyard-cluster": "a"}, True),
        ({"trainyard-cluster": "a-2"}, False),
        ({"goog-k8s-cluster-name": "a"}, True),
        ({"goog-k8s-cluster-name": "a-2"}, False),
        ({"part-of": "trainyard"}, False),
    ],
)
def test_gke_ownership_by_label_matches_only_the_stacks_labels(labels: dict[str, str], is_owned: bool) -> None:
    assert ownership_of(gke("a")).has(CloudResource(kind="disk", name="pvc-0f8d", labels=labels), ()) == is_owned


def test_gke_ownership_label_overrides_name() -> None:
    named = CloudResource(kind="cluster", name="a", labels={"trainyard-cluster": "a-2"})
    assert not ownership_of(gke("a")).has(named, ())


@pytest.mark.parametrize(("network", "is_owned"), [("a", True), ("a-2", False)])
def test_gke_ownership_by_network_matches_only_the_stacks_network(network: str, is_owned: bool) -> None:
    url = f"https://www.googleapis.com/compute/v1/projects/p-12345/global/networks/{network}"
    rule = CloudResource(kind="endpoint group", name="k8s1-5f3c", labels={}, facts={"network": url})
    assert ownership_of(gke("a")).has(rule, ()) == is_owned


def test_gke_ownership_matches_names_shortened_by_gke() -> None:
    group = CloudResource(kind="instance group", name="gke-training-of-the-larg-gpus-3f2a91bc-grp", labels={})
    assert ownership_of(gke("training-of-the-large-model")).has(group, ())
    assert not ownership_of(gke("training")).has(group, ())


@pytest.mark.parametrize(
    ("kind", "name", "labels", "is_owned"),
    [
        ("bucket", "a-bucket-0a1b2c3", {}, True),
        ("bucket", "a-2-bucket-0a1b2c3", {}, False),
        ("log group", "/aws/eks/a/cluster", {}, True),
        ("log group", "/aws/eks/a-2/cluster", {}, False),
        ("image repository", "a/sh22-dist-gpu", {}, True),
        ("image repository", "a-2/sh22-dist-gpu", {}, False),
        ("security group", "eks-cluster-sg-a-1234567", {}, True),
        ("security group", "eks-cluster-sg-a-2-1234567", {}, False),
        ("role", "nodes-role-0a1b2c3", {}, False),
        ("role", "nodes-role-0a1b2c3", {"trainyard-cluster": "a.us-west-2"}, True),
        ("role", "nodes-role-0a1b2c3", {"trainyard-cluster": "a.eu-west-1"}, False),
        ("volume", "vol-1", {"kubernetes.io/cluster/a": "owned"}, True),
        ("volume", "vol-1", {"kubernetes.io/cluster/a-2": "owned"}, False),
        (
            "instance group",
            "eks-gpus-0c2f",
            {"eks:cluster-name": "a", "k8s.io/cluster-autoscaler/enabled": "true"},
            True,
        ),
        ("instance group", "eks-gpus-0c2f", {"eks:cluster-name": "a-2"}, False),
        ("address", "eipalloc-1", {"Name": "a-nat"}, False),
    ],
)
def test_eks_ownership_by_name_and_label_matches_only_the_stacks_resources(
    kind: str, name: str, labels: dict[str, str], is_owned: bool
) -> None:
    assert ownership_of(eks("a")).has(CloudResource(kind=kind, name=name, labels=labels), ()) == is_owned


def test_verify_empty_without_credentials_prints_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*command: str) -> None:
        raise subprocess.CalledProcessError(1, command, stderr="ERROR: no active account\nPlease run:\n\n  $ login\n")

    monkeypatch.setattr(cloud_inventory, "run_json", fail)
    assert main("dev") == 2
    error = capsys.readouterr().err
    assert error.endswith(
        "failed: ERROR: no active account Please run: $ login; check your login and your permissions\n"
    )
    assert error.count("\n") == 1
