"""AWS calls that the provider makes to create each resource of a recorded EKS stack.

The calls for a resource type follow its create function in hashicorp/terraform-provider-aws internal/service. Calls
refer to other resources by ids of the recording. `make_calls.py` replaces these ids with the ids in moto's responses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from tests.recording import Record

Inputs = dict[str, Any]
Call = dict[str, Any]
"""Call with the keys `service`, `operation`, `parameters` and `response_paths`.

`response_paths` maps values of the recording to paths in the response. The response's values replace the recorded ones.
"""


def call(service: str, operation: str, response_paths: Mapping[str, str] | None = None, **parameters: Any) -> Call:
    """Return a call without the parameters that are not set."""
    given = {key: value for key, value in parameters.items() if value is not None}
    return {
        "service": service,
        "operation": operation,
        "parameters": given,
        "response_paths": dict(response_paths or {}),
    }


def calls_of(records: Iterable[Record]) -> list[Call]:
    """Return the calls that create the resources, in the order of the recording."""
    found: list[Call] = []
    for record in records:
        if record.type.startswith("aws:"):
            found += CREATION_CALLS[record.type](record, with_integers(record.inputs))
    return found


def pascal_case(value: Any) -> Any:
    """Return a value with its keys as EC2 and S3 spell them: `volumeSize` becomes `VolumeSize`."""
    if isinstance(value, dict):
        return {key[0].upper() + key[1:]: pascal_case(each) for key, each in value.items()}
    return [pascal_case(each) for each in value] if isinstance(value, list) else value


def with_integers(value: Any) -> Any:
    """Return a value with its whole numbers as integers. Pulumi's wire format, and so a recording, has only floats."""
    if isinstance(value, dict):
        return {key: with_integers(each) for key, each in value.items()}
    if isinstance(value, list):
        return [with_integers(each) for each in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _id(record: Record) -> str:
    return f"{record.name}-id"


def _tags(kind: str, inputs: Inputs) -> list[Any] | None:
    tags = [{"Key": key, "Value": value} for key, value in (inputs.get("tags") or {}).items()]
    return [{"ResourceType": kind, "Tags": tags}] if tags else None


def _pick(inputs: Inputs, *keys: str) -> dict[str, Any]:
    """Return the inputs of these keys, with None for an unset input."""
    return {key: inputs.get(key) for key in keys}


def _ec2_call(record: Record, inputs: Inputs, operation: str, kind: str, result: str, *keys: str) -> Call:
    """Return the call that creates a tagged resource of EC2 from the inputs of these keys."""
    parameters = pascal_case(_pick(inputs, *keys))
    return call("ec2", operation, {_id(record): result}, **parameters, TagSpecifications=_tags(kind, inputs))


def _ec2_creation(operation: str, kind: str, result: str, *keys: str) -> Callable[[Record, Inputs], Iterator[Call]]:
    """Return a function that yields one call to EC2, with the inputs of these keys."""

    def calls(record: Record, inputs: Inputs) -> Iterator[Call]:
        yield _ec2_call(record, inputs, operation, kind, result, *keys)

    return calls


def _vpc(record: Record, inputs: Inputs) -> Iterator[Call]:
    yield _ec2_call(record, inputs, "create_vpc", "vpc", "Vpc.VpcId", "cidrBlock")
    for attribute in ("EnableDnsHostnames", "EnableDnsSupport"):
        yield call("ec2", "modify_vpc_attribute", None, VpcId=_id(record), **{attribute: {"Value": True}})


def _default_group(record: Record, inputs: Inputs) -> Iterator[Call]:
    filters = [{"Name": "group-name", "Values": ["default"]}, {"Name": "vpc-id", "Values": [inputs["vpcId"]]}]
    yield call("ec2", "describe_security_groups", {_id(record): "SecurityGroups.0.GroupId"}, Filters=filters)
    by_group = [{"Name": "group-id", "Values": [_id(record)]}]
    yield call("ec2", "describe_security_group_rules", Filters=by_group)
    everything = [{"IpProtocol": "-1", "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}]
    yield call("ec2", "revoke_security_group_egress", GroupId=_id(record), IpPermissions=everything)


def _gateway(record: Record, inputs: Inputs) -> Iterator[Call]:
    result = "InternetGateway.InternetGatewayId"
    yield _ec2_call(record, inputs, "create_internet_gateway", "internet-gateway", result)
    yield call("ec2", "attach_internet_gateway", InternetGatewayId=_id(record), VpcId=inputs["vpcId"])


def _nat(record: Record, inputs: Inputs) -> Iterator[Call]:
    # The recording has no allocation id. Use the id of the address that the preceding call created.
    address = inputs.get("allocationId") or _id(record).replace("-nat-", "-nat-address-")
    result, keys = "NatGateway.NatGatewayId", ("subnetId", "allocationId")
    yield _ec2_call(record, {**inputs, "allocationId": address}, "create_nat_gateway", "natgateway", result, *keys)


def _table(record: Record, inputs: Inputs) -> Iterator[Call]:
    yield _ec2_call(record, inputs, "create_route_table", "route-table", "RouteTable.RouteTableId", "vpcId")
    for route in inputs["routes"]:
        target = pascal_case(_pick(route, "gatewayId", "natGatewayId"))
        yield call("ec2", "create_route", RouteTableId=_id(record), DestinationCidrBlock=route["cidrBlock"], **target)


def _association(record: Record, inputs: Inputs) -> Iterator[Call]:
    yield call("ec2", "associate_route_table", {_id(record): "AssociationId"}, **pascal_case(inputs))


def _group(record: Record, inputs: Inputs) -> Iterator[Call]:
    named = {**inputs, "groupName": f"{record.name}-0123456"}
    keys = ("groupName", "description", "vpcId")
    yield _ec2_call(record, named, "create_security_group", "security-group", "GroupId", *keys)
    everything = [{"IpProtocol": "-1", "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}]
    yield call("ec2", "revoke_security_group_egress", GroupId=_id(record), IpPermissions=everything)
    rules = [
        {
            "IpProtocol": rule["protocol"],
            **pascal_case(_pick(rule, "fromPort", "toPort")),
            "IpRanges": [{"CidrIp": network} for network in rule["cidrBlocks"]],
        }
        for rule in inputs["ingress"]
    ]
    yield call("ec2", "authorize_security_group_ingress", GroupId=_id(record), IpPermissions=rules)


def _placement(record: Record, inputs: Inputs) -> Iterator[Call]:
    yield call("ec2", "create_placement_group", GroupName=f"{record.name}-0123456", Strategy=inputs["strategy"])


def _template(record: Record, inputs: Inputs) -> Iterator[Call]:
    others = ("tags", "updateDefaultVersion", "tagSpecifications")
    content = pascal_case({key: value for key, value in inputs.items() if key not in others})
    content["TagSpecifications"] = [
        each for tagged in inputs["tagSpecifications"] for each in _tags(tagged["resourceType"], tagged) or []
    ]
    for mapping in content["BlockDeviceMappings"]:
        mapping["Ebs"] |= {key: mapping["Ebs"][key] == "true" for key in ("Encrypted", "DeleteOnTermination")}
    for interface in content.get("NetworkInterfaces") or []:
        interface["Groups"] = interface.pop("SecurityGroups")
        interface["DeleteOnTermination"] = interface["DeleteOnTermination"] == "true"
    if "VpcSecurityGroupIds" in content:
        content["SecurityGroupIds"] = content.pop("VpcSecurityGroupIds")
    yield call(
        "ec2",
        "create_launch_template",
        {_id(record): "LaunchTemplate.LaunchTemplateId"},
        LaunchTemplateName=f"{record.name}-0123456",
        LaunchTemplateData=content,
        TagSpecifications=_tags("launch-template", inputs),
    )


def _role(record: Record, inputs: Inputs) -> Iterator[Call]:
    name = f"{record.name}-0123456"
    response_paths = {f"arn:aws:iam::123456789012:role/{name}": "Role.Arn"}
    yield call("iam", "create_role", response_paths, RoleName=name, AssumeRolePolicyDocument=inputs["assumeRolePolicy"])


def _attachment(_record: Record, inputs: Inputs) -> Iterator[Call]:
    yield call("iam", "attach_role_policy", RoleName=inputs["role"], PolicyArn=inputs["policyArn"])


def _policy(record: Record, inputs: Inputs) -> Iterator[Call]:
    policy = inputs["policy"]
    yield call("iam", "put_role_policy", RoleName=inputs["role"], PolicyName=record.name, PolicyDocument=policy)


def _key(record: Record, inputs: Inputs) -> Iterator[Call]:
    tags = [{"TagKey": key, "TagValue": value} for key, value in inputs["tags"].items()]
    response_paths = {_id(record): "KeyMetadata.KeyId", f"arn:aws:mock:{record.name}": "KeyMetadata.Arn"}
    yield call("kms", "create_key", response_paths, Description=inputs["description"], Tags=tags)
    yield call("kms", "enable_key_rotation", KeyId=_id(record))


def _log_group(_record: Record, inputs: Inputs) -> Iterator[Call]:
    yield call("logs", "create_log_group", logGroupName=inputs["name"])
    yield call("logs", "put_retention_policy", logGroupName=inputs["name"], retentionInDays=inputs["retentionInDays"])


def _cluster(record: Record, inputs: Inputs) -> Iterator[Call]:
    same = ("name", "roleArn", "version", "deletionProtection", "upgradePolicy", "bootstrapSelfManagedAddons")
    yield call(
        "eks",
        "create_cluster",
        {_id(record): "cluster.name"},
        **_pick(inputs, *same, "accessConfig", "kubernetesNetworkConfig"),
        encryptionConfig=[inputs["encryptionConfig"]],
        logging={"clusterLogging": [{"types": inputs["enabledClusterLogTypes"], "enabled": True}]},
        resourcesVpcConfig=inputs["vpcConfig"],
    )


def _node_group(_record: Record, inputs: Inputs) -> Iterator[Call]:
    same = ("clusterName", "version", "amiType", "capacityType", "instanceTypes", "labels", "taints", "tags")
    yield call(
        "eks",
        "create_nodegroup",
        **_pick(inputs, *same, "scalingConfig", "updateConfig", "nodeRepairConfig"),
        nodegroupName=inputs["nodeGroupName"],
        nodeRole=inputs["nodeRoleArn"],
        subnets=inputs["subnetIds"],
        launchTemplate={**inputs["launchTemplate"], "version": "1"},
    )


def _addon(_record: Record, inputs: Inputs) -> Iterator[Call]:
    same = _pick(inputs, "clusterName", "addonName", "addonVersion", "configurationValues", "podIdentityAssociations")
    yield call("eks", "create_addon", **same, resolveConflicts=inputs["resolveConflictsOnCreate"])


def _same_inputs(service: str, operation: str) -> Callable[[Record, Inputs], Iterator[Call]]:
    """Return a function that yields one call, with the inputs as parameters."""

    def calls(_record: Record, inputs: Inputs) -> Iterator[Call]:
        yield call(service, operation, **inputs)

    return calls


def _bucket(record: Record, inputs: Inputs) -> Iterator[Call]:
    name = inputs.get("bucket") or f"{record.name}-0123456"
    yield call("s3", "create_bucket", Bucket=name, CreateBucketConfiguration={"LocationConstraint": "us-west-2"})


def _lifecycle(_record: Record, inputs: Inputs) -> Iterator[Call]:
    rules = [pascal_case(rule) for rule in inputs["rules"]]
    for rule in rules:
        rule["ID"] = rule.pop("Id")
    configuration = {"Rules": rules}
    yield call(
        "s3", "put_bucket_lifecycle_configuration", Bucket=inputs["bucket"], LifecycleConfiguration=configuration
    )


def _encryption(_record: Record, inputs: Inputs) -> Iterator[Call]:
    algorithms = [rule["applyServerSideEncryptionByDefault"]["sseAlgorithm"] for rule in inputs["rules"]]
    configuration = {"Rules": [{"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": each}} for each in algorithms]}
    yield call("s3", "put_bucket_encryption", Bucket=inputs["bucket"], ServerSideEncryptionConfiguration=configuration)


def _bucket_part(operation: str, parameter: str, key: str = "") -> Callable[[Record, Inputs], Iterator[Call]]:
    """Return a function that yields one call, which sets one property of a bucket."""

    def calls(_record: Record, inputs: Inputs) -> Iterator[Call]:
        value = inputs[key] if key else {name: each for name, each in inputs.items() if name != "bucket"}
        yield call(
            "s3", operation, Bucket=inputs["bucket"], **{parameter: value if key == "policy" else pascal_case(value)}
        )

    return calls


def _ownership(_record: Record, inputs: Inputs) -> Iterator[Call]:
    controls = {"Rules": [pascal_case(inputs["rule"])]}
    yield call("s3", "put_bucket_ownership_controls", Bucket=inputs["bucket"], OwnershipControls=controls)


def _repository(_record: Record, inputs: Inputs) -> Iterator[Call]:
    (encryption,) = inputs["encryptionConfigurations"]
    same = _pick(inputs, "imageTagMutability", "imageScanningConfiguration")
    yield call("ecr", "create_repository", repositoryName=inputs["name"], encryptionConfiguration=encryption, **same)


def _lifecycle_policy(_record: Record, inputs: Inputs) -> Iterator[Call]:
    yield call("ecr", "put_lifecycle_policy", repositoryName=inputs["repository"], lifecyclePolicyText=inputs["policy"])


CREATION_CALLS: Mapping[str, Callable[[Record, Inputs], Iterator[Call]]] = {
    "aws:ec2/vpc:Vpc": _vpc,
    "aws:ec2/defaultSecurityGroup:DefaultSecurityGroup": _default_group,
    "aws:ec2/internetGateway:InternetGateway": _gateway,
    "aws:ec2/subnet:Subnet": _ec2_creation(
        "create_subnet", "subnet", "Subnet.SubnetId", "vpcId", "cidrBlock", "availabilityZone"
    ),
    "aws:ec2/eip:Eip": _ec2_creation("allocate_address", "elastic-ip", "AllocationId", "domain"),
    "aws:ec2/natGateway:NatGateway": _nat,
    "aws:ec2/routeTable:RouteTable": _table,
    "aws:ec2/routeTableAssociation:RouteTableAssociation": _association,
    "aws:ec2/securityGroup:SecurityGroup": _group,
    "aws:ec2/vpcEndpoint:VpcEndpoint": _ec2_creation(
        *("create_vpc_endpoint", "vpc-endpoint", "VpcEndpoint.VpcEndpointId"),
        *("vpcId", "serviceName", "vpcEndpointType", "routeTableIds"),
        *("subnetIds", "securityGroupIds", "privateDnsEnabled"),
    ),
    "aws:ec2/placementGroup:PlacementGroup": _placement,
    "aws:ec2/launchTemplate:LaunchTemplate": _template,
    "aws:iam/role:Role": _role,
    "aws:iam/rolePolicyAttachment:RolePolicyAttachment": _attachment,
    "aws:iam/rolePolicy:RolePolicy": _policy,
    "aws:kms/key:Key": _key,
    "aws:cloudwatch/logGroup:LogGroup": _log_group,
    "aws:eks/cluster:Cluster": _cluster,
    "aws:eks/nodeGroup:NodeGroup": _node_group,
    "aws:eks/addon:Addon": _addon,
    "aws:eks/accessEntry:AccessEntry": _same_inputs("eks", "create_access_entry"),
    "aws:eks/accessPolicyAssociation:AccessPolicyAssociation": _same_inputs("eks", "associate_access_policy"),
    "aws:eks/podIdentityAssociation:PodIdentityAssociation": _same_inputs("eks", "create_pod_identity_association"),
    "aws:s3/bucket:Bucket": _bucket,
    "aws:s3/bucketVersioning:BucketVersioning": _bucket_part(
        "put_bucket_versioning", "VersioningConfiguration", "versioningConfiguration"
    ),
    "aws:s3/bucketOwnershipControls:BucketOwnershipControls": _ownership,
    "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock": _bucket_part(
        "put_public_access_block", "PublicAccessBlockConfiguration"
    ),
    "aws:s3/bucketPolicy:BucketPolicy": _bucket_part("put_bucket_policy", "Policy", "policy"),
    "aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration": _encryption,
    "aws:s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration": _lifecycle,
    "aws:ecr/repository:Repository": _repository,
    "aws:ecr/lifecyclePolicy:LifecyclePolicy": _lifecycle_policy,
}
"""Type -> function that yields the calls that create a resource."""


def upgrade(cluster: str, groups: Iterable[str], version: str) -> list[Call]:
    """Return the calls of an upgrade by one minor version: the control plane, then each node group."""
    found = [call("eks", "update_cluster_version", name=cluster, version=version)]
    return found + [
        call("eks", "update_nodegroup_version", clusterName=cluster, nodegroupName=group, version=version, force=False)
        for group in groups
    ]
