"""Ids of cloud resources that follow from their names. An interrupted update can then find what it created. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_COMPUTE = {
    "gcp:compute/network:Network": "global/networks",
    "gcp:compute/subnetwork:Subnetwork": "regions/{region}/subnetworks",
    "gcp:compute/firewall:Firewall": "global/firewalls",
    "gcp:compute/router:Router": "regions/{region}/routers",
    "gcp:compute/resourcePolicy:ResourcePolicy": "regions/{region}/resourcePolicies",
}
_IN_CLUSTER = "projects/{project}/locations/{location}/clusters"
_ACCOUNT = "{accountId}@{project}.iam.gserviceaccount.com"
_OF_BUCKETS = (
    *("PublicAccessBlock", "OwnershipControls", "ServerSideEncryptionConfiguration", "Policy", "Versioning"),
    "LifecycleConfiguration",
)
TEMPLATES: Mapping[str, str] = {
    **{type_: f"projects/{{project}}/{path}/{{name}}" for type_, path in _COMPUTE.items()},
    "gcp:compute/routerNat:RouterNat": "{project}/{region}/{router}/{name}",
    "gcp:container/cluster:Cluster": f"{_IN_CLUSTER}/{{name}}",
    "gcp:container/nodePool:NodePool": f"{_IN_CLUSTER}/{{cluster}}/nodePools/{{name}}",
    "gcp:serviceaccount/account:Account": f"projects/{{project}}/serviceAccounts/{_ACCOUNT}",
    "gcp:serviceaccount/iAMMember:IAMMember": "{serviceAccountId}/{role}/{member}",
    "gcp:projects/iAMMember:IAMMember": "{project}/{role}/{member}",
    "gcp:projects/service:Service": "{project}/{service}",
    "gcp:storage/bucket:Bucket": "{name}",
    "gcp:storage/bucketIAMMember:BucketIAMMember": "b/{bucket}/{role}/{member}",
    "gcp:artifactregistry/repository:Repository": "projects/{project}/locations/{location}/repositories/{repositoryId}",
    "gcp:artifactregistry/repositoryIamMember:RepositoryIamMember": (
        "projects/{project}/locations/{location}/repositories/{repository}/{role}/{member}"
    ),
    "aws:eks/cluster:Cluster": "{name}",
    "aws:eks/nodeGroup:NodeGroup": "{clusterName}:{nodeGroupName}",
    "aws:eks/addon:Addon": "{clusterName}:{addonName}",
    "aws:eks/accessEntry:AccessEntry": "{clusterName}:{principalArn}",
    "aws:eks/accessPolicyAssociation:AccessPolicyAssociation": "{clusterName}#{principalArn}#{policyArn}",
    "aws:kms/alias:Alias": "{name}",
    "aws:iam/role:Role": "{name}",
    "aws:iam/rolePolicy:RolePolicy": "{role}:{name}",
    "aws:iam/rolePolicyAttachment:RolePolicyAttachment": "{role}/{policyArn}",
    "aws:cloudwatch/logGroup:LogGroup": "{name}",
    "aws:s3/bucket:Bucket": "{bucket}",
    **{f"aws:s3/bucket{part}:Bucket{part}": "{bucket}" for part in _OF_BUCKETS},
    "aws:ec2/placementGroup:PlacementGroup": "{name}",
    "aws:ecr/repository:Repository": "{name}",
    "aws:ecr/lifecyclePolicy:LifecyclePolicy": "{repository}",
}
"""Template of each type's id, from the import section of the provider's page:
https://www.pulumi.com/registry/packages"""


def known_id(type_: str, inputs: Mapping[str, Any]) -> str | None:
    """Return the id that follows from a resource's inputs, or None if the cloud generates it."""
    if type_.startswith("kubernetes:"):
        metadata = inputs.get("metadata") or {}
        names = [metadata.get("namespace"), metadata.get("name")]
        return "/".join(name for name in names if name) if metadata.get("name") else None
    template = TEMPLATES.get(type_)
    try:
        return template.format_map(inputs) if template else None
    except KeyError:
        return None
