"""Locations, in the providers' sources, of the resource types that Trainyard creates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Provider:
    """The source of a Terraform provider."""

    package: str
    """Pulumi's package, which is also the folder of the tables."""
    repository: str
    """GitHub repository."""
    root: str
    """Folder, in the repository, of the source's packages."""
    services: str
    """Folder below the root to which the tables' lines are relative."""
    resources: Mapping[str, tuple[str, str]]
    """Type token -> folder below the root and the function that returns the resource."""
    constants: Mapping[str, int] = field(default_factory=dict)
    """Constants of other modules that the schemas use."""
    common: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Input that the provider adds to each resource -> folder and function.

    Its change replaces the resource.
    """


_COMPUTE = {
    f"gcp:compute/{name[0].lower()}{name[1:]}:{name}": ("services/compute", f"ResourceCompute{name}")
    for name in ("Network", "Subnetwork", "Router", "RouterNat", "Firewall", "ResourcePolicy")
}
GOOGLE = Provider(
    package="gcp",
    repository="hashicorp/terraform-provider-google-beta",
    root="google-beta",
    services="services",
    resources={
        **_COMPUTE,
        "gcp:container/cluster:Cluster": ("services/container", "ResourceContainerCluster"),
        "gcp:container/nodePool:NodePool": ("services/container", "ResourceContainerNodePool"),
        "gcp:serviceaccount/account:Account": ("services/resourcemanager", "ResourceGoogleServiceAccount"),
        "gcp:serviceaccount/iAMMember:IAMMember": ("services/resourcemanager", "ServiceAccountIamMemberResource"),
        "gcp:projects/iAMMember:IAMMember": ("services/resourcemanager", "ProjectIamMemberResource"),
        "gcp:projects/service:Service": ("services/resourcemanager", "ResourceGoogleProjectService"),
        "gcp:storage/bucket:Bucket": ("services/storage", "ResourceStorageBucket"),
        "gcp:storage/bucketIAMMember:BucketIAMMember": ("services/storage", "ResourceIamMember StorageBucketIamSchema"),
        "gcp:artifactregistry/repository:Repository": (
            "services/artifactregistry",
            "ResourceArtifactRegistryRepository",
        ),
        "gcp:artifactregistry/repositoryIamMember:RepositoryIamMember": (
            "services/artifactregistry",
            "ResourceIamMember ArtifactRegistryRepositoryIamSchema",
        ),
    },
)
"""`ResourceIamMember X`: the schema of every IAM member, and X."""


def _amazon(service: str, function: str) -> tuple[str, str]:
    return f"internal/service/{service}", function


AMAZON = Provider(
    package="aws",
    repository="hashicorp/terraform-provider-aws",
    root=".",
    services="internal",
    # https://pkg.go.dev/github.com/hashicorp/terraform-plugin-sdk/v2/helper/id#UniqueIDSuffixLength
    constants={"id.UniqueIDSuffixLength": 26, "sdkid.UniqueIDSuffixLength": 26},
    # forceNewIfRegionChanges in internal/provider/sdkv2/region.go
    common={"region": ("internal/provider/sdkv2/internal/attribute", "Region")},
    resources={
        "aws:eks/cluster:Cluster": _amazon("eks", "resourceCluster"),
        "aws:eks/nodeGroup:NodeGroup": _amazon("eks", "resourceNodeGroup"),
        "aws:eks/addon:Addon": _amazon("eks", "resourceAddon"),
        "aws:eks/accessEntry:AccessEntry": _amazon("eks", "resourceAccessEntry"),
        "aws:eks/accessPolicyAssociation:AccessPolicyAssociation": _amazon("eks", "resourceAccessPolicyAssociation"),
        "aws:ec2/vpc:Vpc": _amazon("ec2", "resourceVPC"),
        "aws:ec2/subnet:Subnet": _amazon("ec2", "resourceSubnet"),
        "aws:ec2/internetGateway:InternetGateway": _amazon("ec2", "resourceInternetGateway"),
        "aws:ec2/eip:Eip": _amazon("ec2", "resourceEIP"),
        "aws:ec2/natGateway:NatGateway": _amazon("ec2", "resourceNATGateway"),
        "aws:ec2/routeTable:RouteTable": _amazon("ec2", "resourceRouteTable"),
        "aws:ec2/routeTableAssociation:RouteTableAssociation": _amazon("ec2", "resourceRouteTableAssociation"),
        "aws:ec2/securityGroup:SecurityGroup": _amazon("ec2", "resourceSecurityGroup"),
        "aws:ec2/defaultSecurityGroup:DefaultSecurityGroup": _amazon("ec2", "resourceDefaultSecurityGroup"),
        "aws:ec2/vpcEndpoint:VpcEndpoint": _amazon("ec2", "resourceVPCEndpoint"),
        "aws:ec2/placementGroup:PlacementGroup": _amazon("ec2", "resourcePlacementGroup"),
        "aws:ec2/launchTemplate:LaunchTemplate": _amazon("ec2", "resourceLaunchTemplate"),
        "aws:iam/role:Role": _amazon("iam", "resourceRole"),
        "aws:iam/rolePolicy:RolePolicy": _amazon("iam", "resourceRolePolicy"),
        "aws:iam/rolePolicyAttachment:RolePolicyAttachment": _amazon("iam", "resourceRolePolicyAttachment"),
        "aws:kms/key:Key": _amazon("kms", "resourceKey"),
        "aws:cloudwatch/logGroup:LogGroup": _amazon("logs", "resourceGroup"),
        "aws:ecr/repository:Repository": _amazon("ecr", "resourceRepository"),
        "aws:ecr/lifecyclePolicy:LifecyclePolicy": _amazon("ecr", "resourceLifecyclePolicy"),
        "aws:s3/bucket:Bucket": _amazon("s3", "resourceBucket"),
        "aws:s3/bucketPolicy:BucketPolicy": _amazon("s3", "resourceBucketPolicy"),
        "aws:s3/bucketVersioning:BucketVersioning": _amazon("s3", "resourceBucketVersioning"),
        "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock": _amazon("s3", "resourceBucketPublicAccessBlock"),
        "aws:s3/bucketOwnershipControls:BucketOwnershipControls": _amazon("s3", "resourceBucketOwnershipControls"),
        "aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration": _amazon(
            "s3", "resourceBucketServerSideEncryptionConfiguration"
        ),
        "aws:eks/podIdentityAssociation:PodIdentityAssociation": _amazon(
            "eks", "podIdentityAssociationResource.Schema"
        ),
        "aws:s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration": _amazon(
            "s3", "bucketLifecycleConfigurationResource.Schema"
        ),
    },
)
"""`X.Schema`: the schema that this method of the framework's resource X assigns."""
PROVIDERS = (GOOGLE, AMAZON)
