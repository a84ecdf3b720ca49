"""GkeCluster: control plane. NodeIdentity and WorkloadIdentity: service accounts of its nodes and jobs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pulumi
import pulumi_gcp as gcp
from pulumi_gcp import container

from infra.gcp.config import AUTH_PLUGIN, INSTALL_AUTH_PLUGIN, GkeConfig, MaintenanceConfig
from infra.gcp.network import PODS, SERVICES
from infra.gcp.pools import default_pool_machine
from infra.gcp.storage import READER_ROLE
from infra.kubeconfig import one_context
from infra.naming import cloud_labels, fit_name

TIMEOUTS = pulumi.CustomTimeouts(create="60m", update="120m", delete="60m")
"""Timeouts of the control plane. GKE may take half an hour to create a regional control plane. An update first waits
until GKE has finished earlier operations, such as an upgrade of the nodes."""
WINDOW_ORIGIN = "2026-01-01"
"""Start date of the maintenance windows, in the past."""
ACCOUNT_LIMIT = 30
"""Maximum length of a service account id: https://cloud.google.com/iam/docs/service-accounts-create"""
NODE_ROLE = "roles/container.defaultNodeServiceAccount"
"""Minimum role of nodes, to write logs and metrics:
https://cloud.google.com/kubernetes-engine/docs/how-to/hardening-your-cluster"""
STREAMING_ROLE = "roles/serviceusage.serviceUsageConsumer"
"""Role that nodes need for image streaming. NODE_ROLE lacks its permission, and pods then fail to start:
https://cloud.google.com/kubernetes-engine/docs/how-to/image-streaming#requirements,
https://github.com/terraform-google-modules/terraform-google-kubernetes-engine/issues/2251"""


@dataclass(frozen=True, kw_only=True)
class GkeClusterArgs:
    """Inputs of `GkeCluster`."""

    project: pulumi.Input[str]
    config: GkeConfig
    network: pulumi.Input[str]
    subnetwork: pulumi.Input[str]
    node_service_account: pulumi.Input[str]
    """E-mail address of the service account of the nodes."""
    multi_networking: bool
    """True if pods may have several network interfaces, as on A3 and A4 hosts."""


class GkeCluster(pulumi.ComponentResource):
    """GKE cluster with private nodes. The provider creates it with a default node pool and then removes that pool."""

    name: pulumi.Output[str]
    kubeconfig: pulumi.Output[str]
    """Kubeconfig without credentials. `gke-gcloud-auth-plugin` supplies them."""
    workload_pool: pulumi.Output[str]
    """Workload identity pool of the cluster's pods."""
    control_plane: container.Cluster
    """Control plane resource. Its deletion deletes all Kubernetes objects in the cluster."""

    def __init__(self, name: str, args: GkeClusterArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("trainyard:gcp:GkeCluster", name, None, opts)
        config = args.config
        cluster = container.Cluster(
            f"{name}-control-plane",
            _cluster_args(args),
            opts=pulumi.ResourceOptions(parent=self, custom_timeouts=TIMEOUTS, ignore_changes=_ignored_changes(args)),
        )
        self.control_plane = cluster
        self.name = cluster.name
        self.workload_pool = cluster.workload_identity_config.apply(lambda identity: str(identity.workload_pool))
        self.kubeconfig = pulumi.Output.json_dumps(_kubeconfig(config, cluster))
        self.register_outputs({"name": self.name, "kubeconfig": self.kubeconfig, "workload_pool": self.workload_pool})


def context_name(config: GkeConfig) -> str:
    """Return the kubeconfig context's name, in gcloud's format."""
    return f"gke_{config.project}_{config.location}_{config.name}"


def _cluster_args(args: GkeClusterArgs) -> container.ClusterArgs:
    """Return the control plane's inputs. Inputs that are not set here keep GKE's defaults."""
    config = args.config
    return container.ClusterArgs(
        name=config.name,
        project=args.project,
        location=config.location,
        node_locations=[config.zone] if config.regional else None,
        deletion_protection=config.deletion_protection,
        resource_labels=cloud_labels(config.cluster_label),
        min_master_version=config.kubernetes_version,
        release_channel=container.ClusterReleaseChannelArgs(channel=config.release_channel),
        maintenance_policy=_maintenance(config.maintenance),
        network=args.network,
        subnetwork=args.subnetwork,
        networking_mode="VPC_NATIVE",
        datapath_provider="ADVANCED_DATAPATH",
        enable_multi_networking=True if args.multi_networking else None,
        ip_allocation_policy=container.ClusterIpAllocationPolicyArgs(
            cluster_secondary_range_name=PODS, services_secondary_range_name=SERVICES
        ),
        private_cluster_config=container.ClusterPrivateClusterConfigArgs(
            enable_private_nodes=True,
            enable_private_endpoint=not config.authorized_networks,
            master_ipv4_cidr_block=config.network.control_plane,
        ),
        control_plane_endpoints_config=_dns_endpoint(config),
        master_authorized_networks_config=_authorized_networks(config),
        master_auth=container.ClusterMasterAuthArgs(
            client_certificate_config=container.ClusterMasterAuthClientCertificateConfigArgs(
                issue_client_certificate=False
            )
        ),
        enable_legacy_abac=False,
        rbac_binding_config=container.ClusterRbacBindingConfigArgs(
            enable_insecure_binding_system_authenticated=False, enable_insecure_binding_system_unauthenticated=False
        ),
        workload_identity_config=container.ClusterWorkloadIdentityConfigArgs(
            workload_pool=f"{config.project}.svc.id.goog"
        ),
        enable_shielded_nodes=True,
        security_posture_config=container.ClusterSecurityPostureConfigArgs(mode="BASIC"),
        database_encryption=_encryption(config),
        logging_config=container.ClusterLoggingConfigArgs(enable_components=["SYSTEM_COMPONENTS", "WORKLOADS"]),
        monitoring_config=_monitoring(config),
        addons_config=_addons(config),
        remove_default_node_pool=True,
        initial_node_count=1,
        node_config=_default_pool_node(args),
    )


def _ignored_changes(args: GkeClusterArgs) -> list[str]:
    """Return the inputs whose changes Pulumi ignores after creation.

    `nodeConfig` belongs to the default pool, which the provider removes immediately. So does `nodeLocations`, because
    every other pool sets its own zones. An update would move all pools to the cluster's new zones:
    https://cloud.google.com/kubernetes-engine/docs/reference/rest/v1/ClusterUpdate

    Trainyard can enable multi-networking later but never disables it. Pulumi updates the cluster before it deletes
    pools with additional networks, so Google may reject an update that disables it.
    """
    locations = ["nodeLocations"] if args.config.regional else []
    return ["nodeConfig", *locations, *([] if args.multi_networking else ["enableMultiNetworking"])]


def _dns_endpoint(config: GkeConfig) -> container.ClusterControlPlaneEndpointsConfigArgs:
    """Return the DNS endpoint, which is open to external traffic unless the settings authorize networks."""
    return container.ClusterControlPlaneEndpointsConfigArgs(
        dns_endpoint_config=container.ClusterControlPlaneEndpointsConfigDnsEndpointConfigArgs(
            allow_external_traffic=not config.authorized_networks
        )
    )


def _authorized_networks(config: GkeConfig) -> container.ClusterMasterAuthorizedNetworksConfigArgs:
    return container.ClusterMasterAuthorizedNetworksConfigArgs(
        cidr_blocks=[
            container.ClusterMasterAuthorizedNetworksConfigCidrBlockArgs(cidr_block=network)
            for network in config.authorized_networks
        ],
        gcp_public_cidrs_access_enabled=False,
    )


def _encryption(config: GkeConfig) -> container.ClusterDatabaseEncryptionArgs:
    """Return the encryption of Secrets.

    Without a key, set the state explicitly. The provider ignores a removal of the Optional and Computed block
    (google-beta/services/container/resource_container_cluster.go:2520 of terraform-provider-google-beta).
    """
    if config.secrets_key is None:
        return container.ClusterDatabaseEncryptionArgs(state="DECRYPTED")
    return container.ClusterDatabaseEncryptionArgs(state="ENCRYPTED", key_name=config.secrets_key)


def _monitoring(config: GkeConfig) -> container.ClusterMonitoringConfigArgs:
    return container.ClusterMonitoringConfigArgs(
        enable_components=["SYSTEM_COMPONENTS", *(["DCGM", "JOBSET"] if config.managed_prometheus else [])],
        managed_prometheus=container.ClusterMonitoringConfigManagedPrometheusArgs(enabled=config.managed_prometheus),
    )


def _addons(config: GkeConfig) -> container.ClusterAddonsConfigArgs:
    return container.ClusterAddonsConfigArgs(
        gcs_fuse_csi_driver_config=container.ClusterAddonsConfigGcsFuseCsiDriverConfigArgs(enabled=config.gcs_fuse),
        gce_persistent_disk_csi_driver_config=container.ClusterAddonsConfigGcePersistentDiskCsiDriverConfigArgs(
            enabled=True
        ),
    )


def _default_pool_node(args: GkeClusterArgs) -> container.ClusterNodeConfigArgs:
    """Return the configuration of the default pool's node. The provider removes the default pool immediately."""
    return container.ClusterNodeConfigArgs(
        machine_type=default_pool_machine(args.config),
        disk_size_gb=20,
        disk_type="pd-standard",
        service_account=args.node_service_account,
        shielded_instance_config=container.ClusterNodeConfigShieldedInstanceConfigArgs(
            enable_secure_boot=True, enable_integrity_monitoring=True
        ),
    )


def _maintenance(config: MaintenanceConfig) -> container.ClusterMaintenancePolicyArgs:
    """Return the maintenance windows, and an exclusion of node and minor version upgrades.

    https://cloud.google.com/kubernetes-engine/docs/concepts/maintenance-windows-and-exclusions
    """
    days, end_hour = divmod(config.start_hour + config.hours, 24)
    end_date = f"{WINDOW_ORIGIN[:-2]}{int(WINDOW_ORIGIN[-2:]) + days:02}"
    return container.ClusterMaintenancePolicyArgs(
        recurring_window=container.ClusterMaintenancePolicyRecurringWindowArgs(
            start_time=f"{WINDOW_ORIGIN}T{config.start_hour:02}:00:00Z",
            end_time=f"{end_date}T{end_hour:02}:00:00Z",
            recurrence=f"FREQ=WEEKLY;BYDAY={','.join(config.days)}",
        ),
        maintenance_exclusions=[
            container.ClusterMaintenancePolicyMaintenanceExclusionArgs(
                exclusion_name="no-upgrades-under-jobs",
                start_time=f"{WINDOW_ORIGIN}T00:00:00Z",
                exclusion_options=container.ClusterMaintenancePolicyMaintenanceExclusionExclusionOptionsArgs(
                    scope="NO_MINOR_OR_NODE_UPGRADES", end_time_behavior="UNTIL_END_OF_SUPPORT"
                ),
            )
        ],
    )


def _kubeconfig(config: GkeConfig, cluster: container.Cluster) -> dict[str, Any]:
    """Return a kubeconfig with the IP endpoint and the cluster's CA, or with the DNS endpoint.

    A public CA signs the certificate of the DNS endpoint.

    https://cloud.google.com/kubernetes-engine/docs/how-to/latest/network-isolation

    `--use_application_default_credentials` makes the plugin use Pulumi's credentials instead of gcloud's:
    https://github.com/kubernetes/cloud-provider-gcp/blob/4e24531247d7/cmd/gke-gcloud-auth-plugin/cred.go#L116
    """
    if config.authorized_networks:
        access = {
            "server": pulumi.Output.concat("https://", cluster.endpoint),
            "certificate-authority-data": cluster.master_auth.apply(lambda auth: auth.cluster_ca_certificate),
        }
    else:
        dns_name = cluster.control_plane_endpoints_config.apply(_dns_name)
        access = {"server": pulumi.Output.concat("https://", dns_name)}
    plugin = {
        "apiVersion": "client.authentication.k8s.io/v1beta1",
        "command": AUTH_PLUGIN,
        "args": ["--use_application_default_credentials"],
        "installHint": INSTALL_AUTH_PLUGIN,
        "interactiveMode": "IfAvailable",
        "provideClusterInfo": True,
    }
    return one_context(context_name(config), access, {"exec": plugin})


def _dns_name(endpoints: Any) -> str:
    return str(endpoints.dns_endpoint_config.endpoint)


class NodeIdentity(pulumi.ComponentResource):
    """Service account of the nodes, instead of the project's default account."""

    email: pulumi.Output[str]
    """E-mail address of the account, known after its main role is granted.

    The output does not wait for other roles. A preview does not know the id of a new grant, so it would
    otherwise show that all nodes are replaced.
    """

    def __init__(
        self, name: str, *, project: pulumi.Input[str], config: GkeConfig, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("trainyard:gcp:NodeIdentity", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        account = gcp.serviceaccount.Account(
            f"{name}-account",
            project=project,
            account_id=fit_name(config.name, "nodes", ACCOUNT_LIMIT),
            display_name=f"Nodes of the GKE cluster {config.name}",
            opts=child,
        )
        roles = {
            "role": NODE_ROLE,
            **({"image-streaming": STREAMING_ROLE} if config.image_streaming else {}),
            # NODE_ROLE does not include READER_ROLE.
            **({"images": READER_ROLE} if config.has_prebuilt_in_project else {}),
        }
        main, *_ = [
            gcp.projects.IAMMember(f"{name}-{suffix}", project=project, role=role, member=account.member, opts=child)
            for suffix, role in roles.items()
        ]
        self.email = pulumi.Output.all(account.email, main.id).apply(lambda values: values[0])
        self.register_outputs({"email": self.email})


class WorkloadIdentity(pulumi.ComponentResource):
    """Google Cloud service account of the jobs. It has roles only on single resources, such as the bucket.

    https://cloud.google.com/kubernetes-engine/docs/how-to/workload-identity
    """

    email: pulumi.Output[str]
    """E-mail address, the value of the annotation `iam.gke.io/gcp-service-account`."""
    member: pulumi.Output[str]
    """The account as an IAM policy member."""

    def __init__(
        self,
        name: str,
        *,
        project: pulumi.Input[str],
        cluster: str,
        workload_pool: pulumi.Input[str],
        namespace: str,
        service_account: str,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__("trainyard:gcp:WorkloadIdentity", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        account = gcp.serviceaccount.Account(
            f"{name}-account",
            project=project,
            account_id=fit_name(cluster, "jobs", ACCOUNT_LIMIT),
            display_name=f"Training jobs of the GKE cluster {cluster}",
            opts=child,
        )
        gcp.serviceaccount.IAMMember(
            f"{name}-user",
            service_account_id=account.name,
            role="roles/iam.workloadIdentityUser",
            member=pulumi.Output.format("serviceAccount:{0}[{1}/{2}]", workload_pool, namespace, service_account),
            opts=child,
        )
        self.email = account.email
        self.member = account.member
        self.register_outputs({"email": self.email, "member": self.member})
