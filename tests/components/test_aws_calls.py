"""Calls to AWS that create EKS stacks: botocore and moto accept them in order, and the permissions allow them.

moto 5.2.5 does not implement the calls in `NOT_IN_MOTO`. For these, only botocore checks the parameters.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.aws.inventory import ACTIONS, IAM_ACTIONS, IAM_SERVICES
from simulation.object_store import s3_server
from tests.components.aws_calls import CREATION_CALLS, Call, calls_of, upgrade
from tests.components.cloud_program import graph
from tests.components.test_eks import P5, eks
from tests.recording import Record

PROJECT = Path(__file__).resolve().parents[2]
MAKE_CALLS = Path(__file__).with_name("make_calls.py")
NOT_IN_MOTO = [
    "ec2.create_placement_group",
    "eks.associate_access_policy",
    "eks.create_access_entry",
    "eks.create_addon",
    "eks.create_pod_identity_association",
    "eks.update_cluster_version",
    "eks.update_nodegroup_version",
]
S3_ACTIONS = {
    "put_bucket_encryption": "PutEncryptionConfiguration",
    "put_bucket_lifecycle_configuration": "PutLifecycleConfiguration",
    "put_public_access_block": "PutBucketPublicAccessBlock",
}
"""S3 call -> its IAM action, if the action has another name:
https://docs.aws.amazon.com/AmazonS3/latest/userguide/using-with-s3-policy-actions.html
"""
RESERVED = {**P5, "zones": "us-west-2b"}
STACKS: dict[str, dict[str, Any]] = {
    "Pulumi.eks.yaml": yaml.safe_load((PROJECT / "Pulumi.eks.yaml").read_text(encoding="utf-8"))["config"][
        "trainyard:platform"
    ],
    "every capacity": eks(
        P5,
        {"machine_type": "g5.xlarge", "capacity": "spot"},
        {**RESERVED, "capacity": "capacity-block:cr-0123456789abcdef0"},
        {**RESERVED, "capacity": "reservation:cr-0123456789abcdef0"},
    ),
    "every setting of the platform": eks(
        {"machine_type": "m7i.2xlarge", "disk_type": "io2", "disk_size_gb": 500},
        admins=["arn:aws:iam::123456789012:role/team"],
        authorized_networks=["198.51.100.0/24"],
        network={"nat_per_zone": True, "services": "10.100.0.0/16", "vpc": "192.168.0.0/16"},
        bucket={"name": "our-checkpoints", "checkpoint_days": 9},
        addon_versions={"coredns": "v1.12.3-eksbuild.1"},
        deletion_protection=True,
    ),
}


def call_results(*stacks: list[Call]) -> list[dict[str, Any]]:
    """Return the results of each stack's calls."""
    python = s3_server().with_name("python")
    text = json.dumps(stacks)
    done = subprocess.run([python, MAKE_CALLS], input=text, capture_output=True, text=True, check=True)
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def records(name: str) -> list[Record]:
    """Return a stack's AWS resources."""
    return [each for each in graph(STACKS[name])[0].records if each.type.startswith("aws:")]


def invalid_call(operation: str, **changes: Any) -> Call:
    """Return a call of the stack `every capacity` with changed parameters."""
    calls = calls_of(records("every capacity"))
    call = next(each for each in calls if each["operation"] == operation)
    return {**call, "parameters": {**call["parameters"], **changes}, "response_paths": {}}


INVALID_CALLS: dict[str, tuple[str, dict[str, Any]]] = {
    "amiType": ("create_nodegroup", {"amiType": "AL2023_NVIDIA"}),
    "desiredSize": ("create_nodegroup", {"scalingConfig": {"minSize": 1, "maxSize": 2, "desiredSize": "2"}}),
    "addonName": ("create_addon", {"addonName": None}),
    "CIDR": ("create_subnet", {"CidrBlock": "172.31.0.0/18"}),
}
"""Word in the rejection -> operation, and its invalid parameters."""


@pytest.fixture(scope="module")
def results() -> list[tuple[list[Call], dict[str, Any]]]:
    """Return the calls of each stack with their results.

    The calls of the first stack end with an upgrade. The calls of the second stack end with invalid calls.
    """
    stacks = [calls_of(records(name)) for name in STACKS]
    stacks[0] += upgrade("eks-dist", ["system", "t4", "cpu"], "1.37")
    stacks[1] += [invalid_call(operation, **changes) for operation, changes in INVALID_CALLS.values()]
    return list(zip(stacks, call_results(*stacks), strict=True))


def test_aws_calls_are_accepted_by_botocore_and_moto(results: list[tuple[list[Call], dict[str, Any]]]) -> None:
    for index, (calls, found) in enumerate(results):
        num_invalid = len(INVALID_CALLS) if index == 1 else 0
        valid = calls[: len(calls) - num_invalid]
        assert len(found["rejected"]) == num_invalid, found["rejected"]
        num_unimplemented = sum(f"{call['service']}.{call['operation']}" in NOT_IN_MOTO for call in valid)
        assert found["accepted"] == len(valid) - num_unimplemented
    assert sorted({name for _calls, found in results for name in found["missing"]}) == NOT_IN_MOTO


def test_aws_calls_with_invalid_parameters_are_rejected(results: list[tuple[list[Call], dict[str, Any]]]) -> None:
    _calls, found = results[1]
    for name, line in zip(INVALID_CALLS, found["rejected"], strict=True):
        assert name in line


@pytest.mark.parametrize("name", STACKS)
def test_aws_permissions_allow_every_creating_call(name: str) -> None:
    for record in records(name):
        for call in CREATION_CALLS[record.type](record, record.inputs):
            words = S3_ACTIONS.get(call["operation"], "".join(map(str.capitalize, call["operation"].split("_"))))
            action = f"{IAM_SERVICES.get(call['service'], call['service'])}:{words}"
            assert IAM_ACTIONS.get(action, action) in ACTIONS[record.type], record.type


def test_aws_calls_exist_for_every_type_with_permissions() -> None:
    assert set(CREATION_CALLS) == set(ACTIONS)
