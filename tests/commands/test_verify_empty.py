"""What a destroyed stack has left: read from the clouds' listings, told from what is others', and in a receipt."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from commands import verify_empty
from commands.listings import AMAZON, GOOGLE, Found, Listing, read
from commands.verify_empty import belongs, main
from rehearsal.cloud.kinds import KINDS
from rehearsal.cloud.state import Record, changing, new_state

WITH_THEIR_OWNERS = {
    "gcp:projects/service:Service": "stays enabled for others in the project",
    "gcp:storage/bucketIAMMember:BucketIAMMember": "bucket",
    "gcp:artifactregistry/repositoryIamMember:RepositoryIamMember": "image repository",
    "docker-build:index:Image": "image repository",
    "aws:iam/rolePolicy:RolePolicy": "role",
    "aws:iam/rolePolicyAttachment:RolePolicyAttachment": "role",
    "aws:kms/key:Key": "its alias",
    "aws:ecr/lifecyclePolicy:LifecyclePolicy": "image repository",
    "aws:eks/accessEntry:AccessEntry": "cluster",
    "aws:eks/accessPolicyAssociation:AccessPolicyAssociation": "cluster",
    "aws:eks/addon:Addon": "cluster",
    "aws:eks/podIdentityAssociation:PodIdentityAssociation": "cluster",
    "aws:ec2/defaultSecurityGroup:DefaultSecurityGroup": "VPC",
    "aws:ec2/routeTableAssociation:RouteTableAssociation": "route table",
}
"""Types that are not listed by themselves: what they go with."""


def test_every_kind_that_a_stack_makes_is_listed_or_goes_with_another() -> None:
    listed = {each for listing in (*GOOGLE, *AMAZON) for each in listing.types}
    missing = {each for each in KINDS if each not in listed and each not in WITH_THEIR_OWNERS}
    assert {each for each in missing if not each.startswith("aws:s3/")} == set(), "list it in commands/listings.py"
    assert not listed & WITH_THEIR_OWNERS.keys()


def listing(kind: str, table: tuple[Listing, ...]) -> Listing:
    return next(each for each in table if each.kind == kind)


def test_the_answers_of_gcloud_and_aws_are_read() -> None:
    answer = [{"name": "gke-dist-1", "labels": {"goog-k8s-cluster-name": "gke-dist"}}]
    assert list(read(listing("disk", GOOGLE), answer)) == [
        Found(kind="disk", name="gke-dist-1", labels={"goog-k8s-cluster-name": "gke-dist"})
    ]
    assert list(read(listing("disk", GOOGLE), None)) == []
    tagged = {"Volumes": [{"VolumeId": "vol-1", "Tags": [{"Key": "kubernetes.io/cluster/eks-dist", "Value": "owned"}]}]}
    (volume,) = read(listing("volume", AMAZON), tagged)
    assert (volume.name, belongs(volume, "eks-dist")) == ("vol-1", True)
    gone = {"NatGateways": [{"NatGatewayId": "nat-1", "State": "deleted"}]}
    assert list(read(listing("NAT gateway", AMAZON), gone)) == []
    assert [each.name for each in read(listing("cluster", AMAZON), {"clusters": ["eks-dist"]})] == ["eks-dist"]


@pytest.mark.parametrize(
    ("name", "mine"),
    [
        ("gke-dist", True),
        ("gke-dist-bucket-0a1b2c3", True),
        ("gke-gke-dist-gpus-3f2a", True),
        ("gke-dist-nodes@p.iam.gserviceaccount.com", True),
        ("serviceAccount:gke-dist-nodes@p.iam.gserviceaccount.com", True),
        ("deleted:serviceAccount:gke-dist-nodes@p.iam.gserviceaccount.com?uid=1", True),
        ("/aws/eks/gke-dist/cluster", True),
        ("alias/gke-dist-secrets", True),
        ("gke-distant", False),
        ("other-gke-dist", False),
        ("default", False),
    ],
)
def test_what_is_the_stacks_is_known_by_its_name(name: str, mine: bool) -> None:
    assert belongs(Found(kind="any", name=name, labels={}), "gke-dist") == mine


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    platform = {"kind": "gke", "project": "some-project", "name": "gke-dist", "pools": []}
    settings = {"trainyard:platform": platform, "trainyard:jobs": []}
    (tmp_path / "Pulumi.dev.yaml").write_text(json.dumps({"config": settings}), encoding="utf-8")
    monkeypatch.setattr(verify_empty, "PROJECT", tmp_path)
    new_state(tmp_path / "clouds")
    return tmp_path


def exists(project: Path, kind: str, name: str) -> None:
    record = Record(id=name, type=kind, urn="urn", inputs={}, outputs={"name": name})
    with changing(project / "clouds") as state:
        state.resources[record.key] = record


def run(project: Path) -> tuple[int, dict[str, object]]:
    status = main(["--stack", "dev", "--simulated", str(project / "clouds"), "--output", str(project / "receipt.json")])
    return status, json.loads((project / "receipt.json").read_text(encoding="utf-8"))


def test_a_kept_bucket_is_named_and_does_not_count(project: Path) -> None:
    exists(project, "gcp:storage/bucket:Bucket", "gke-dist-bucket-0a1b2c3")
    exists(project, "gcp:compute/network:Network", "default")
    status, receipt = run(project)
    assert (status, receipt["empty"], receipt["left"]) == (0, True, [])
    assert receipt["kept"] == ["bucket gke-dist-bucket-0a1b2c3"]
    assert receipt["source"] == "simulated"


def test_one_leaked_resource_fails(project: Path) -> None:
    exists(project, "gcp:compute/router:Router", "gke-dist")
    status, receipt = run(project)
    assert (status, receipt["empty"], receipt["left"]) == (1, False, ["router gke-dist"])


def test_a_cloud_that_cannot_be_asked_is_not_called_empty(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(project))
    assert main(["--stack", "dev"]) == 2
    assert "gcloud is not installed" in capsys.readouterr().err
