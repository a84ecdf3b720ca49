"""Distinction of a stack's resources from others', by label, network and name, in both directions."""

from __future__ import annotations

import pytest

from infra.inventory import CloudResource
from tests.commands.platforms import eks, gke, known


@pytest.mark.parametrize(
    ("kind", "name", "mine"),
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
        ("image repository", "gcr.io", False),
    ],
)
def test_a_name_is_held_to_those_that_the_stack_makes(kind: str, name: str, mine: bool) -> None:
    assert known(gke("a")).has(CloudResource(kind=kind, name=name, labels={}), ()) == mine


@pytest.mark.parametrize(
    ("labels", "mine"),
    [
        ({"trainyard-cluster": "a"}, True),
        ({"trainyard-cluster": "a-2"}, False),
        ({"goog-k8s-cluster-name": "a"}, True),
        ({"goog-k8s-cluster-name": "a-2"}, False),
        ({"part-of": "trainyard"}, False),
    ],
)
def test_a_label_decides_before_a_name(labels: dict[str, str], mine: bool) -> None:
    assert known(gke("a")).has(CloudResource(kind="disk", name="pvc-0f8d", labels=labels), ()) == mine
    named = CloudResource(kind="cluster", name="a", labels={"trainyard-cluster": "a-2"})
    assert not known(gke("a")).has(named, ())


@pytest.mark.parametrize(("network", "mine"), [("a", True), ("a-2", False)])
def test_what_is_in_the_stacks_network_is_the_stacks(network: str, mine: bool) -> None:
    url = f"https://www.googleapis.com/compute/v1/projects/p-12345/global/networks/{network}"
    rule = CloudResource(kind="endpoint group", name="k8s1-5f3c", labels={}, facts={"network": url})
    assert known(gke("a")).has(rule, ()) == mine


def test_names_that_gke_cuts() -> None:
    long = "training-of-the-large-model"
    assert known(gke(long)).has(
        CloudResource(kind="instance group", name="gke-training-of-the-larg-gpus-3f2a91bc-grp", labels={}), ()
    )
    assert not known(gke("training")).has(
        CloudResource(kind="instance group", name="gke-training-of-the-larg-gpus-3f2a91bc-grp", labels={}), ()
    )


@pytest.mark.parametrize(
    ("kind", "name", "labels", "mine"),
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
def test_what_is_the_stacks_in_aws(kind: str, name: str, labels: dict[str, str], mine: bool) -> None:
    assert known(eks("a")).has(CloudResource(kind=kind, name=name, labels=labels), ()) == mine
