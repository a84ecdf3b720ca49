"""NodeGroup: managed nodes of an EKS cluster, with launch template, EFA interfaces and placement."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass

import pulumi
from pulumi_aws import ec2, eks

from infra.aws.config import EksConfig
from infra.aws.pools import DISK_IOPS, SYSTEM_DISK_GB, NodeGroupPlan
from infra.hardware import gpus
from infra.hardware.ec2 import EC2_FAMILIES, Ec2Machine
from infra.hardware.machines import ProvisioningModel
from infra.hardware.node_capacity import eks_pods
from infra.naming import ACCELERATOR_LABEL, POOL_LABEL, cloud_labels

SYSTEM_TIMEOUTS = pulumi.CustomTimeouts(create="30m", update="60m", delete="45m")
GPU_TIMEOUTS = pulumi.CustomTimeouts(create="90m", update="120m", delete="60m")


@dataclass(frozen=True, kw_only=True)
class NodeGroupArgs:
    """Inputs of `NodeGroup`."""

    cluster: pulumi.Input[str]
    """Name of the cluster. Pulumi knows it once nodes can join the cluster."""
    version: pulumi.Input[str]
    """Minor version of the control plane. Pulumi knows it once the control plane runs this version."""
    config: EksConfig
    machine: Ec2Machine
    nodes: int
    subnets: list[pulumi.Output[str]]
    """Private subnets of the nodes."""
    security_group: pulumi.Input[str]
    role: pulumi.Input[str]
    pool: str
    """Name of the pool."""
    plan: NodeGroupPlan | None = None
    """Plan of a pool for jobs, or None for the system pool."""
    after: pulumi.Resource | None = None
    """Resource that must exist before the nodes.

    The nodes refer to this resource only in `depends_on`. If an immutable input depended on the resource, Pulumi would
    replace the nodes whenever it replaces the resource:
    https://github.com/pulumi/pulumi/blob/v3.272.0/pkg/resource/deploy/step_generator.go, calculateDependentReplacements
    """


class NodeGroup(pulumi.ComponentResource):
    """Managed nodes on Amazon Linux 2023, with private addresses, encrypted disks and IMDSv2."""

    def __init__(self, name: str, args: NodeGroupArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("trainyard:aws:NodeGroup", name, None, opts)
        plan = args.plan
        template = ec2.LaunchTemplate(
            f"{name}-template",
            _template(args, self._placement_group(name, plan)),
            opts=pulumi.ResourceOptions(parent=self),
        )
        model = plan.model if plan else ProvisioningModel(kind="on-demand")
        gpu = args.machine.gpu
        labels = {POOL_LABEL: args.pool} | ({ACCELERATOR_LABEL: gpu} if gpu else {})
        eks.NodeGroup(
            f"{name}-nodes",
            cluster_name=args.cluster,
            # A change of `version` updates the nodes. Without `version`, nodes keep their version, and EKS rejects
            # the next upgrade of the cluster (hashicorp/terraform-provider-aws issue 19478).
            version=args.version,
            node_group_name=args.pool,
            node_role_arn=args.role,
            subnet_ids=args.subnets,
            ami_type="AL2023_x86_64_NVIDIA" if gpu else "AL2023_x86_64_STANDARD",
            capacity_type="SPOT" if model.is_spot else "CAPACITY_BLOCK" if model.is_capacity_block else "ON_DEMAND",
            # With a capacity block, only the launch template may set the instance type.
            instance_types=None if model.is_capacity_block else [args.machine.name],
            launch_template=eks.NodeGroupLaunchTemplateArgs(id=template.id, version=template.latest_version.apply(str)),
            scaling_config=eks.NodeGroupScalingConfigArgs(
                desired_size=args.nodes, min_size=args.nodes, max_size=args.nodes
            ),
            update_config=_update_config(plan),
            node_repair_config=eks.NodeGroupNodeRepairConfigArgs(enabled=True),
            labels=labels,
            taints=[eks.NodeGroupTaintArgs(key=gpus.RESOURCE, value="present", effect="NO_SCHEDULE")] if gpu else None,
            tags=cloud_labels(args.config.cluster_label),
            opts=pulumi.ResourceOptions(
                parent=self,
                depends_on=[args.after] if args.after else None,
                custom_timeouts=GPU_TIMEOUTS if gpu else SYSTEM_TIMEOUTS,
                delete_before_replace=True,
                replace_on_changes=_replace_on_changes(plan),
            ),
        )
        self.register_outputs({})

    def _placement_group(self, name: str, plan: NodeGroupPlan | None) -> pulumi.Output[str] | None:
        """Create the placement group of the plan, if it has one. Return its name."""
        if plan is None or not plan.placement_group:
            return None
        group = ec2.PlacementGroup(
            f"{name}-placement",
            strategy="cluster",
            opts=pulumi.ResourceOptions(parent=self),
        )
        return group.name


def _update_config(plan: NodeGroupPlan | None) -> eks.NodeGroupUpdateConfigArgs:
    """Return the settings by which EKS replaces nodes when their template or version changes.

    By default EKS first starts additional nodes, but a reservation or capacity block has no capacity for them. With
    MINIMAL, EKS removes a node before it starts another:
    https://docs.aws.amazon.com/eks/latest/userguide/managed-node-update-behavior.html
    """
    is_reserved = plan is not None and plan.model.reservation is not None
    return eks.NodeGroupUpdateConfigArgs(max_unavailable=1, update_strategy="MINIMAL" if is_reserved else None)


def _replace_on_changes(plan: NodeGroupPlan | None) -> list[str]:
    """Return the inputs whose change replaces the node group.

    EKS can update a node group on a capacity block only while it has no nodes:
    https://docs.aws.amazon.com/eks/latest/userguide/capacity-blocks-mng.html
    """
    return ["launchTemplate", "version"] if plan is not None and plan.model.is_capacity_block else []


def _template(args: NodeGroupArgs, placement_group: pulumi.Output[str] | None) -> ec2.LaunchTemplateArgs:
    """Return the launch template's inputs. EKS adds the machine image, and joins the nodes to the cluster."""
    plan = args.plan
    interfaces = efa_interfaces(args.machine, args.security_group) if plan and plan.efa else None
    is_capacity_block = plan is not None and plan.model.is_capacity_block
    return ec2.LaunchTemplateArgs(
        instance_type=args.machine.name if is_capacity_block else None,
        update_default_version=True,
        user_data=node_config(args.machine),
        metadata_options=ec2.LaunchTemplateMetadataOptionsArgs(
            http_tokens="required", http_put_response_hop_limit=1, http_endpoint="enabled"
        ),
        block_device_mappings=[
            ec2.LaunchTemplateBlockDeviceMappingArgs(
                device_name="/dev/xvda",
                ebs=ec2.LaunchTemplateBlockDeviceMappingEbsArgs(
                    volume_size=plan.pool.disk_size_gb if plan else SYSTEM_DISK_GB,
                    volume_type=plan.pool.disk_type if plan else "gp3",
                    iops=DISK_IOPS,
                    encrypted="true",
                    delete_on_termination="true",
                ),
            )
        ],
        network_interfaces=interfaces,
        vpc_security_group_ids=None if interfaces else [args.security_group],
        placement=ec2.LaunchTemplatePlacementArgs(group_name=placement_group) if placement_group else None,
        instance_market_options=ec2.LaunchTemplateInstanceMarketOptionsArgs(market_type="capacity-block")
        if is_capacity_block
        else None,
        capacity_reservation_specification=_reservation(plan.model.reservation if plan else None),
        tags=_name_tag(args),
        tag_specifications=[
            ec2.LaunchTemplateTagSpecificationArgs(
                resource_type=kind, tags={**cloud_labels(args.config.cluster_label), **_name_tag(args)}
            )
            for kind in ("instance", "volume", "network-interface")
        ],
    )


def _name_tag(args: NodeGroupArgs) -> dict[str, str]:
    """Return the name tag, which AWS's console shows."""
    return {"Name": f"{args.config.name}-{args.pool}"}


def efa_interfaces(
    machine: Ec2Machine, security_group: pulumi.Input[str]
) -> list[ec2.LaunchTemplateNetworkInterfaceArgs]:
    """Return a network interface for each network card that the nodes use. Only the first has an IP address.

    https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/efa-acc-inst-types.html
    """
    first_card = EC2_FAMILIES[machine.family].first_efa_card
    ip_interface = [(0, 0, "interface")] if first_card else []
    efa_cards = [
        (card, 0 if first_card else min(card, 1), "efa-only" if card else "efa")
        for card in range(first_card, first_card + machine.efa_interfaces)
    ]
    return [
        ec2.LaunchTemplateNetworkInterfaceArgs(
            network_card_index=card,
            device_index=device,
            interface_type=kind,
            security_groups=[security_group],
            delete_on_termination="true",
        )
        for card, device, kind in [*ip_interface, *efa_cards]
    ]


def _reservation(reservation_id: str | None) -> ec2.LaunchTemplateCapacityReservationSpecificationArgs | None:
    if reservation_id is None:
        return None
    target = ec2.LaunchTemplateCapacityReservationSpecificationCapacityReservationTargetArgs(
        capacity_reservation_id=reservation_id
    )
    return ec2.LaunchTemplateCapacityReservationSpecificationArgs(capacity_reservation_target=target)


def node_config(machine: Ec2Machine) -> str:
    """Return the nodes' user data: the kubelet's pod limit, and a RAID 0 of the local disks.

    https://awslabs.github.io/amazon-eks-ami/nodeadm/doc/api/
    """
    settings = {
        "apiVersion": "node.eks.aws/v1alpha1",
        "kind": "NodeConfig",
        "spec": {
            "kubelet": {"config": {"maxPods": eks_pods(machine)}},
            "instance": {"localStorage": {"strategy": "RAID0"}},
        },
    }
    boundary = "trainyard"
    lines = [
        "MIME-Version: 1.0",
        f'Content-Type: multipart/mixed; boundary="{boundary}"',
        "",
        f"--{boundary}",
        "Content-Type: application/node.eks.aws",
        "",
        json.dumps(settings, indent=2),
        f"--{boundary}--",
        "",
    ]
    return base64.b64encode("\n".join(lines).encode()).decode()
