"""`python -m simulation.facts CHECKOUT`: print the differences between a Terraform provider's source and the tables.

CHECKOUT is a checkout of hashicorp/terraform-provider-google-beta or hashicorp/terraform-provider-aws. `--write`
rewrites the tables and keeps their hand-written rules. `--commit` names the commit of a checkout without git.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from simulation.cloud import fact_check
from simulation.cloud.fact_table import FOLDER, file_name, parts
from simulation.cloud.schema import arguments_class
from simulation.facts import terraform
from simulation.facts.go_source import GoSource, Literal
from simulation.facts.terraform import ANONYMOUS_FUNCTION, BotocoreEnums, SdkClass


@dataclass(frozen=True, kw_only=True)
class Provider:
    """Source of a Terraform provider."""

    package: str
    """Name of Pulumi's package for this provider."""
    repository: str
    root: str
    """Folder of the Go packages in the repository."""
    services: str
    """Folder below the root. The file in the `line` of a fact is relative to this folder."""
    resources: Mapping[str, tuple[str, str]]
    """Type token -> folder below the root and the function that returns the resource."""
    constants: Mapping[str, int] = field(default_factory=dict)
    """Constants of other Go modules that the schemas use."""
    common: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Input that the provider adds to every resource -> folder and function. A changed value replaces the resource."""


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
"""Google's provider. `ResourceIamMember X` means the schema that all IAM members share, merged with the schema X."""


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
"""AWS's provider. `X.Schema` means the schema that the method `Schema` of the plugin framework's resource X assigns."""
PROVIDERS = (GOOGLE, AMAZON)

botocore_enums = cache(BotocoreEnums)
Table = dict[str, Any]
"""Facts of a resource type, as in its JSON file."""
HAND_WRITTEN_KEYS = ("rules", "delete_before_replace")
"""Keys of a table whose values people write."""


def main(arguments: list[str]) -> int:
    """Print the differences between source and tables.

    Return 1 if there are differences and `--write` is not set. Return 2 if CHECKOUT is not the checkout of a known
    provider.
    """
    parser = argparse.ArgumentParser(prog="python -m simulation.facts", description=__doc__)
    parser.add_argument("checkout", type=Path, help="folder of the checkout")
    parser.add_argument("--write", action="store_true", help="rewrite the tables")
    parser.add_argument("--commit", help="commit of a checkout without git")
    options = parser.parse_args(arguments)
    provider = provider_of(options.checkout)
    if provider is None:
        names = " or ".join(each.repository for each in PROVIDERS)
        print(f"{options.checkout}: is not a checkout of {names}; name the folder of one", file=sys.stderr)
        return 2
    git = ["git", "-C", str(options.checkout), "rev-parse", "HEAD"]
    commit = options.commit or subprocess.run(git, capture_output=True, text=True, check=True).stdout.strip()
    has_changes = False
    for token in provider.resources:
        old = read_table(token)
        new, unnamed = read(options.checkout, provider, token, commit)
        for line in changes(old, new):
            has_changes = True
            print(line)
        if unnamed:
            print(f"{token}: Pulumi's SDK does not have these inputs: {', '.join(unnamed)}", file=sys.stderr)
        if options.write:
            write_table(updated(old, new))
    return int(has_changes and not options.write)


def provider_of(checkout: Path) -> Provider | None:
    """Return the provider of a checkout; None if it is unknown."""
    for each in PROVIDERS:
        folder, _ = next(iter(each.resources.values()))
        if (checkout / each.root / folder).is_dir():
            return each
    return None


def read(checkout: Path, provider: Provider, token: str, commit: str) -> tuple[Table, list[str]]:
    """Read a resource type from the source. Return its table, and the inputs that Pulumi's SDK does not have."""
    source = GoSource(checkout / provider.root, provider.constants, fact_check.CHECKS)
    folder, function = provider.resources[token]
    resource = _resource(source, folder, function)
    for name, place in provider.common.items():
        common = source.value(*place).call()
        common.fields["ForceNew"] = True
        schema = resource.fields["Schema"]
        resource.fields["Schema"] = Literal(
            {**schema.fields, name: common}, {**schema.lines, name: source.line(*place)}
        )
    reader = terraform.Reader(source, f"{provider.services}/", botocore_enums(folder.rpartition("/")[2]))
    reader.read(resource, SdkClass(arguments_class(token)))
    table: Table = {
        "type": token,
        "provider": provider.repository,
        "commit": commit,
        "folder": f"{provider.root}/{provider.services}".removeprefix("./"),
        "inputs": dict(sorted(reader.inputs.items())),
        "plan_functions": terraform.plan_functions(resource),
    }
    keep_names(read_table(token), table)
    table["inputs"] |= newer_inputs(read_table(token), table, reader.outputs)
    return table, reader.unnamed


def _resource(source: GoSource, folder: str, function: str) -> Literal:
    if function.startswith("ResourceIamMember "):
        found = source.iam_member_of(source.value(folder, function.partition(" ")[2]))
    elif "." in function:
        receiver, _, method = function.partition(".")
        found = terraform.as_plugin_sdk(source.assigned(folder, receiver, method, "Schema"))
    else:
        found = source.function(folder, function)
    assert isinstance(found, Literal), f"{folder}: {function} returns no schema"
    return found


def read_table(token: str, folder: Path = FOLDER) -> Table:
    """Read the table of a resource type from its file. Return an empty table if there is no file."""
    file = folder / file_name(token)
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}


def write_table(table: Table, folder: Path = FOLDER) -> None:
    """Write a table to its file."""
    file = folder / file_name(table["type"])
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(formatted(table), encoding="utf-8")


def formatted(table: Table) -> str:
    """Return a table as JSON, with each input and each rule on its own line."""
    lines = []
    for key, value in table.items():
        if isinstance(value, dict):
            inner = [f"  {json.dumps(name)}: {json.dumps(each)}" for name, each in value.items()]
            lines.append(f'"{key}": {{\n' + ",\n".join(inner) + "\n}")
        elif isinstance(value, list):
            inner = [f"  {json.dumps(each)}" for each in value]
            lines.append(f'"{key}": [\n' + ",\n".join(inner) + "\n]")
        else:
            lines.append(f'"{key}": {json.dumps(value)}')
    return "{\n" + ",\n".join(lines) + "\n}\n"


def updated(old: Table, new: Table) -> Table:
    """Return the new table with the hand-written values of the old table."""
    return {**new, **{key: old[key] for key in HAND_WRITTEN_KEYS if key in old}}


def keep_names(old: Table, new: Table) -> None:
    """Give anonymous functions in the new table the names that people wrote into the old table."""
    for path, fact in new["inputs"].items():
        for key in ("suppress", "check"):
            if fact.get(key) == ANONYMOUS_FUNCTION and (name := old.get("inputs", {}).get(path, {}).get(key)):
                fact[key] = name


def newer_inputs(old: Table, new: Table, outputs: Collection[str]) -> Table:
    """Return the inputs of the old table that Pulumi's SDK has and this older source of the provider lacks.

    Their `line` begins with `pulumi-`. The table has only their types.
    """
    found: Table = {}
    for path, fact in old.get("inputs", {}).items():
        parent = path.rpartition(".")[0]
        owner = {**new["inputs"], **found}.get(parent, {"type": ""})
        is_in_block = not parent or parts(owner["type"])[1] == "block"
        if fact["line"].startswith("pulumi-") and path not in new["inputs"] and path not in outputs and is_in_block:
            found[path] = fact
    return found


def changes(old: Table, new: Table) -> Iterator[str]:
    """Yield a line of text for each fact that differs between the tables."""
    before, after = old.get("inputs", {}), new["inputs"]
    for name in sorted({*before, *after}):
        if name not in after:
            yield f"{new['type']} {name}: removed"
        elif name not in before:
            fact = {key: value for key, value in after[name].items() if key != "line"}
            yield f"{new['type']} {name}: added, {json.dumps(fact)}"
        else:
            for key in sorted(({*before[name], *after[name]}) - {"line", "replace_line"}):
                was, now = before[name].get(key), after[name].get(key)
                if was != now:
                    yield f"{new['type']} {name}.{key}: {was!r} -> {now!r}, {after[name]['line']}"
    if old and old.get("plan_functions") != new.get("plan_functions"):
        yield f"{new['type']} plan_functions: {old.get('plan_functions')} -> {new.get('plan_functions')}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
