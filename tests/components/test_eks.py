"""Graph of an EKS platform and its jobs: permissions, networks, bucket, node groups, order, devices."""

from __future__ import annotations

import base64
import json
from ipaddress import IPv4Network
from itertools import combinations
from typing import Any

import pytest
import yaml

from tests.components.cloud_program import graph
from tests.recording import RecordingEngine

P5 = {"machine_type": "p5.48xlarge"}
JOB = {"name": "a", "recipe": "digits", "hosts": 2, "accelerator": "nvidia-h100-80gb", "accelerators_per_host": 8}


def eks(*pools: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """Return an EKS platform with its pools."""
    named = [{"name": f"pool-{index}", **pool} for index, pool in enumerate(pools)]
    return {"kind": "eks", **({"pools": named} if pools else {}), **changes}


def one(engine: RecordingEngine, suffix: str, prefix: str = "") -> dict[str, Any]:
    """Return the inputs of the only resource whose type ends in `suffix` and whose name begins with `prefix`."""
    (found,) = (record for record in engine.of_type(suffix) if record.name.startswith(prefix))
    return found.inputs


def node_group(**keys: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the node group and the launch template of a platform's only pool."""
    engine, _ = graph(eks(keys))
    return one(engine, "nodeGroup:NodeGroup", "pool-0"), one(engine, "LaunchTemplate", "pool-0")


@pytest.fixture(scope="module")
def engine() -> RecordingEngine:
    """Return the graph of the default settings."""
    return graph(eks())[0]


def test_eks_control_plane_is_private_encrypted_and_logged(engine: RecordingEngine) -> None:
    found = one(engine, "eks/cluster:Cluster")
    assert found["accessConfig"]["authenticationMode"] == "API"
    assert found["encryptionConfig"]["resources"] == ["secrets"]
    assert found["encryptionConfig"]["provider"]["keyArn"] == "arn:aws:mock:cluster-secrets"
    assert one(engine, "kms/key:Key")["enableKeyRotation"] is True
    assert set(found["enabledClusterLogTypes"]) == {"api", "audit", "authenticator", "controllerManager", "scheduler"}
    assert found["vpcConfig"]["endpointPrivateAccess"] is True
    assert found["vpcConfig"]["endpointPublicAccess"] is False
    assert found["version"] == "1.36"
    assert "cluster-logs" in engine.dependencies("cluster-eks")


def test_eks_public_endpoint_is_limited_to_authorized_networks() -> None:
    found = one(graph(eks(authorized_networks=["198.51.100.0/24"]))[0], "eks/cluster:Cluster")["vpcConfig"]
    assert (found["endpointPublicAccess"], found["publicAccessCidrs"]) == (True, ["198.51.100.0/24"])


def test_eks_nodes_have_no_public_address(engine: RecordingEngine) -> None:
    subnets = {record.name: record.inputs for record in engine.of_type("subnet:Subnet")}
    assert all(inputs["mapPublicIpOnLaunch"] is False for inputs in subnets.values())
    for record in engine.of_type("nodeGroup:NodeGroup"):
        assert all(subnet.startswith("network-private-") for subnet in record.inputs["subnetIds"])


def test_eks_default_security_group_has_no_ingress(engine: RecordingEngine) -> None:
    assert one(engine, "DefaultSecurityGroup")["ingress"] == []


def test_eks_subnets_are_inside_vpc_and_disjoint(engine: RecordingEngine) -> None:
    ranges = [IPv4Network(record.inputs["cidrBlock"]) for record in engine.of_type("subnet:Subnet")]
    assert len(ranges) == 4
    assert all(each.subnet_of(IPv4Network("10.0.0.0/16")) for each in ranges)
    assert not any(first.overlaps(second) for first, second in combinations(ranges, 2))


@pytest.mark.parametrize(("nat_per_zone", "count"), [(False, 1), (True, 3)])
def test_eks_network_has_one_nat_gateway_or_one_per_zone(nat_per_zone: bool, count: int) -> None:
    engine, _ = graph(eks(network={"nat_per_zone": nat_per_zone}))
    assert len(engine.of_type("NatGateway")) == count


def test_eks_repository_by_default_keeps_100_images(engine: RecordingEngine) -> None:
    (rule,) = json.loads(one(engine, "ecr/lifecyclePolicy:LifecyclePolicy")["policy"])["rules"]
    assert (rule["selection"]["countType"], rule["selection"]["countNumber"]) == ("imageCountMoreThan", 100)


def test_eks_endpoints_of_s3_and_ecr_are_in_vpc(engine: RecordingEngine) -> None:
    services = {record.inputs["serviceName"]: record.inputs for record in engine.of_type("VpcEndpoint")}
    assert set(services) == {f"com.amazonaws.us-west-2.{name}" for name in ("s3", "ecr.api", "ecr.dkr")}
    assert len(services["com.amazonaws.us-west-2.s3"]["routeTableIds"]) == 3


def test_eks_nodes_require_metadata_tokens_and_encrypted_disks(engine: RecordingEngine) -> None:
    for record in engine.of_type("LaunchTemplate"):
        assert record.inputs["metadataOptions"]["httpTokens"] == "required"
        assert record.inputs["metadataOptions"]["httpPutResponseHopLimit"] == 1
        (disk,) = record.inputs["blockDeviceMappings"]
        assert disk["ebs"]["encrypted"] == "true"


@pytest.mark.parametrize(("machine", "pods"), [("m7i.large", 29), ("m7i.4xlarge", 110), ("p5.48xlarge", 100)])
def test_eks_nodes_max_pods_is_number_of_addresses_up_to_110(machine: str, pods: int) -> None:
    _, template = node_group(machine_type=machine)
    text = base64.b64decode(template["userData"]).decode()
    settings = json.loads(text.partition("application/node.eks.aws")[2].partition("--trainyard--")[0])
    assert settings["spec"]["kubelet"]["config"]["maxPods"] == pods


def test_eks_bucket_is_private_tls_only_and_retained(engine: RecordingEngine) -> None:
    found = one(engine, "BucketPublicAccessBlock")
    assert {key: value for key, value in found.items() if key != "bucket"} == dict.fromkeys(
        ("blockPublicAcls", "blockPublicPolicy", "ignorePublicAcls", "restrictPublicBuckets"), True
    )
    statement = json.loads(one(engine, "BucketPolicy")["policy"])["Statement"][0]
    assert (statement["Effect"], statement["Condition"]) == ("Deny", {"Bool": {"aws:SecureTransport": "false"}})
    names = [record.name for record in engine.records if record.type.startswith("aws:s3/")]
    assert len(names) == 7
    assert all(engine.requests[name].retainOnDelete for name in names)
    deleting = graph(eks(bucket={"keep": False}))[0]
    assert one(deleting, "s3/bucket:Bucket")["forceDestroy"] is True
    assert not any(deleting.requests[name].retainOnDelete for name in names)


def test_eks_job_role_is_limited_to_bucket_prefix(engine: RecordingEngine) -> None:
    objects, listing = json.loads(one(engine, "rolePolicy:RolePolicy")["policy"])["Statement"]
    assert objects["Resource"] == "arn:aws:s3:::eks-dist-bucket-0123456/jobs/*"
    assert listing["Condition"] == {"StringLike": {"s3:prefix": ["jobs", "jobs/*"]}}
    actions = ("AbortMultipartUpload", "DeleteObject", "GetObject", "PutObject")
    assert sorted(objects["Action"]) == [f"s3:{action}" for action in actions]
    association = one(engine, "PodIdentityAssociation")
    assert (association["namespace"], association["serviceAccount"]) == ("training", "trainer")
    trusted = json.loads(one(engine, "role:Role", "jobs")["assumeRolePolicy"])["Statement"][0]
    assert trusted["Principal"] == {"Service": "pods.eks.amazonaws.com"}


def test_eks_roles_have_minimal_policies(engine: RecordingEngine) -> None:
    # https://docs.aws.amazon.com/aws-managed-policy/latest/reference/policy-list.html
    arns = [record.inputs["policyArn"] for record in engine.of_type("RolePolicyAttachment")]
    assert {arn.removeprefix("arn:aws:iam::aws:policy/") for arn in arns} == {
        "AmazonEKSClusterPolicy",
        "AmazonEKSWorkerNodePolicy",
        "AmazonEC2ContainerRegistryPullOnly",
        "AmazonEKS_CNI_Policy",
        "service-role/AmazonEBSCSIDriverPolicy",
    }
    nodes = {record.name for record in engine.of_type("RolePolicyAttachment") if record.name.startswith("nodes-")}
    assert len(nodes) == 2


def test_eks_addons_have_names_and_service_accounts_of_aws(engine: RecordingEngine) -> None:
    # https://docs.aws.amazon.com/eks/latest/userguide/workloads-add-ons-available-eks.html
    addons = {record.inputs["addonName"]: record.inputs for record in engine.of_type("addon:Addon")}
    identities = {name: inputs.get("podIdentityAssociations") or [] for name, inputs in addons.items()}
    assert {name: [each["serviceAccount"] for each in found] for name, found in identities.items()} == {
        "vpc-cni": ["aws-node"],
        "kube-proxy": [],
        "eks-pod-identity-agent": [],
        "coredns": [],
        "eks-node-monitoring-agent": [],
        "aws-ebs-csi-driver": ["ebs-csi-controller-sa"],
    }


def test_eks_resources_are_created_and_deleted_in_order(engine: RecordingEngine) -> None:
    # The nodes are deleted before the add-on vpc-cni, because vpc-cni removes their network interfaces.
    assert "cluster-addon-vpc-cni" in engine.dependencies("system-nodes")
    assert "system-nodes" in engine.dependencies("gpus-nodes")
    assert "system-nodes" in engine.dependencies("cluster-addon-coredns")
    first_zone = {"network-private-us-west-2a", "network-private-association-us-west-2a"}
    assert first_zone <= engine.dependencies("cluster-eks")
    assert engine.requests["network-private-us-west-2a"].customTimeouts.delete == "40m"


def test_eks_objects_are_deleted_with_cluster(engine: RecordingEngine) -> None:
    for name in ("kubernetes", "training", "device-plugins"):
        assert "cluster-eks" in engine.requests[name].deletedWith


def test_eks_fabric_node_has_all_adapters() -> None:
    found, template = node_group(**P5)
    assert found["amiType"] == "AL2023_x86_64_NVIDIA"
    assert found["taints"] == [{"key": "nvidia.com/gpu", "value": "present", "effect": "NO_SCHEDULE"}]
    assert found["labels"]["trainyard.dev/accelerator"] == "nvidia-h100-80gb"
    assert found["subnetIds"] == ["network-private-us-west-2a-id"]
    interfaces = template["networkInterfaces"]
    assert [each["networkCardIndex"] for each in interfaces] == list(range(32))
    assert [each["deviceIndex"] for each in interfaces] == [0, *[1] * 31]
    assert interfaces[0]["interfaceType"] == "efa"
    assert {each["interfaceType"] for each in interfaces[1:]} == {"efa-only"}
    assert template["placement"] == {"groupName": "pool-0-placement-0123456"}
    assert "vpcSecurityGroupIds" not in template


def test_eks_fabric_node_p6_b300_uses_first_card_for_ip_traffic() -> None:
    _, template = node_group(machine_type="p6-b300.48xlarge")
    interfaces = template["networkInterfaces"]
    assert [each["networkCardIndex"] for each in interfaces] == list(range(17))
    assert {each["deviceIndex"] for each in interfaces} == {0}
    assert [each["interfaceType"] for each in interfaces] == ["interface", *["efa-only"] * 16]


def test_eks_capacity_block_node_group_names_its_reservation() -> None:
    found, template = node_group(**P5, capacity="capacity-block:cr-0123456789abcdef0", zones="us-west-2b")
    assert found["capacityType"] == "CAPACITY_BLOCK"
    assert "instanceTypes" not in found
    assert template["instanceType"] == "p5.48xlarge"
    assert template["instanceMarketOptions"] == {"marketType": "capacity-block"}
    target = template["capacityReservationSpecification"]["capacityReservationTarget"]
    assert target == {"capacityReservationId": "cr-0123456789abcdef0"}
    assert "placement" not in template
    assert found["subnetIds"] == ["network-private-us-west-2b-id"]


def test_eks_reserved_nodes_have_no_placement_group_and_are_updated_without_extra_nodes() -> None:
    reserved, template = node_group(**P5, capacity="reservation:cr-0123456789abcdef0", zones="us-west-2b")
    assert reserved["updateConfig"] == {"maxUnavailable": 1, "updateStrategy": "MINIMAL"}
    assert node_group(**P5)[0]["updateConfig"] == {"maxUnavailable": 1}
    assert "placement" not in template
    assert template["networkInterfaces"]


def test_eks_capacity_block_node_group_is_replaced_on_update() -> None:
    engine, _ = graph(eks({**P5, "capacity": "capacity-block:cr-0123456789abcdef0", "zones": "us-west-2b"}))
    assert list(engine.requests["pool-0-nodes"].replaceOnChanges) == ["launchTemplate", "version"]
    assert list(engine.requests["system-nodes"].replaceOnChanges) == []


def test_eks_node_groups_have_the_version_of_the_control_plane() -> None:
    engine, _ = graph(eks({"machine_type": "g5.xlarge"}, kubernetes_version="1.35", check_availability=False))
    for record in engine.of_type("nodeGroup:NodeGroup"):
        assert record.inputs["version"] == "1.35"
        assert "cluster-eks" in engine.dependencies(record.name)
    assert "system-nodes" in engine.dependencies("pool-0-nodes")


@pytest.mark.parametrize(
    "change",
    [{"disk_size_gb": 200}, {"efa": False}, {"placement_group": False}, {"capacity": "reservation:cr-012345678"}],
)
def test_eks_launch_template_change_updates_node_group(change: dict[str, Any]) -> None:
    before, _ = node_group(**P5, zones="us-west-2a")
    after, _ = node_group(**P5, zones="us-west-2a", **change)
    assert before["launchTemplate"]["version"] != after["launchTemplate"]["version"]


def test_eks_spot_node_group_spans_all_zones() -> None:
    found, template = node_group(machine_type="g5.xlarge", capacity="spot")
    assert (found["capacityType"], found["instanceTypes"]) == ("SPOT", ["g5.xlarge"])
    assert len(found["subnetIds"]) == 3
    assert "networkInterfaces" not in template
    assert len(template["vpcSecurityGroupIds"]) == 1


def test_eks_device_plugins_match_the_machine_types_of_pools() -> None:
    def daemons(*pools: dict[str, Any]) -> set[str]:
        return {record.inputs["metadata"]["name"] for record in graph(eks(*pools))[0].of_type("DaemonSet")}

    assert daemons(P5) == {"nvidia-device-plugin", "efa-device-plugin"}
    assert daemons({"machine_type": "g5.xlarge"}) == {"nvidia-device-plugin"}
    assert daemons({"machine_type": "m7i.2xlarge"}) == set()


def test_eks_efa_plugin_is_privileged_and_runs_only_on_efa_nodes() -> None:
    # A pool of one node has no EFA interfaces by default.
    engine, _ = graph(eks({**P5, "name": "fabric"}, {**P5, "name": "alone", "nodes": 1}))
    (plugin,) = (each.inputs["spec"] for each in engine.of_type("DaemonSet") if "efa" in each.name)
    pod = plugin["template"]["spec"]
    (container,) = pod["containers"]
    folders = {"/var/lib/kubelet/device-plugins", "/dev/infiniband"}
    assert {each["hostPath"]["path"] for each in pod["volumes"]} == folders
    assert {each["mountPath"] for each in container["volumeMounts"]} == folders
    assert container["securityContext"] == {"privileged": True, "runAsUser": 0}
    assert container["image"].endswith(":v0.5.20")
    affinity = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    (expression,) = affinity["nodeSelectorTerms"][0]["matchExpressions"]
    assert (expression["key"], expression["values"]) == ("trainyard.dev/pool", ["fabric"])


def test_eks_monitoring_agent_tolerates_taints(engine: RecordingEngine) -> None:
    values = json.loads(one(engine, "addon:Addon", "cluster-addon-eks-node-monitoring-agent")["configurationValues"])
    assert values == {"dcgmAgent": {"tolerations": [{"operator": "Exists"}]}}


def test_eks_job_requests_gpus_and_adapters() -> None:
    engine, exported = graph(eks(P5), [JOB])
    pod = engine.job_pod()
    assert pod["nodeSelector"] == {"trainyard.dev/accelerator": "nvidia-h100-80gb", "trainyard.dev/pool": "pool-0"}
    limits = pod["containers"][0]["resources"]["limits"]
    assert (limits["nvidia.com/gpu"], limits["vpc.amazonaws.com/efa"]) == ("8", "32")
    assert exported["bucket_url"] == "s3://eks-dist-bucket-0123456/jobs"
    assert exported["get_kubeconfig"] == "aws eks update-kubeconfig --region us-west-2 --name eks-dist"


def test_eks_kubeconfig_has_no_credentials(engine: RecordingEngine) -> None:
    found = yaml.safe_load(one(engine, "providers:kubernetes")["kubeconfig"])
    assert found["users"][0]["user"]["exec"]["command"] == "aws"
    assert found["clusters"][0]["cluster"]["certificate-authority-data"] == "Q0E="


def test_eks_removal_of_an_admin_keeps_the_access_entries_of_others() -> None:
    arns = [f"arn:aws:iam::123456789012:role/{name}" for name in ("first", "second")]

    def entries(admins: list[str]) -> dict[str, str]:
        found, _ = graph(eks(admins=admins))
        for policy in found.of_type("AccessPolicyAssociation"):
            # https://docs.aws.amazon.com/eks/latest/userguide/access-policy-permissions.html
            assert policy.inputs["policyArn"] == "arn:aws:eks::aws:cluster-access-policy/AmazonEKSClusterAdminPolicy"
        return {each.name: each.inputs["principalArn"] for each in found.of_type("AccessEntry")}

    both, second = entries(arns), entries(arns[1:])
    assert sorted(both.values()) == arns
    assert second.items() <= both.items()


def test_eks_account_limits_provider() -> None:
    engine, _ = graph(eks(account="123456789012"))
    assert json.loads(one(engine, "providers:aws")["allowedAccountIds"]) == ["123456789012"]
