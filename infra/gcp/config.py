"""GkeConfig: the settings of a GKE platform."""

from __future__ import annotations

import re
from functools import cached_property
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from infra.cloud import ImageConfig, name_pattern
from infra.hardware.machines import ProvisioningModel
from infra.hardware.tpus import TpuSlice, is_tpu, tpu_slice
from settings.problem import Invalid
from settings.types import BUCKET_NAME_HINT, ONE_OR_MANY, Cidr, ClientCidr, NamespaceName, Section, match_pattern

CLUSTER_NAME_LIMIT = 40
"""Maximum length:
https://cloud.google.com/kubernetes-engine/docs/reference/rest/v1/projects.locations.clusters#Cluster"""
POOL_NAME_LIMIT = 40
"""Maximum length:
https://cloud.google.com/kubernetes-engine/docs/reference/rest/v1/projects.locations.clusters.nodePools"""
AUTH_PLUGIN = "gke-gcloud-auth-plugin"
"""Program that supplies Kubernetes clients with credentials for a GKE cluster."""
INSTALL_AUTH_PLUGIN = (
    f"install it with `gcloud components install {AUTH_PLUGIN}`, or as the package google-cloud-cli-{AUTH_PLUGIN}"
)
"""Remedy: https://cloud.google.com/kubernetes-engine/docs/how-to/cluster-access-for-kubectl#install_plugin"""
MIN_DISK_GB = 15
"""Minimum size of a boot disk, from the field diskSizeGb on this page. Only old versions of GKE allow less:
https://cloud.google.com/kubernetes-engine/docs/reference/rest/v1/NodeConfig"""

_PROJECT = re.compile(r"([a-z0-9.]+:)?[a-z][-a-z0-9]{4,28}[a-z0-9]")
_ZONE = re.compile(r"[a-z]+(-[a-z]+)+\d+-([a-z]|ai\d+[a-z]?)")
_RESERVATION = re.compile(
    r"reservation:(projects/[^/]+/reservations/)?[a-z]([-a-z0-9]{0,61}[a-z0-9])?"
    r"(/reservationBlocks/[-a-z0-9]+(/reservationSubBlocks/[-a-z0-9]+)?)?"
)
_BUCKET = re.compile(r"[a-z0-9][-_a-z0-9]{1,61}[a-z0-9]")
_DISK_IMAGE = re.compile(r"projects/[^/]+/global/images/[-a-z0-9]+")
_KMS_KEY = re.compile(r"projects/[^/]+/locations/[^/]+/keyRings/[^/]+/cryptoKeys/[^/]+")
_VERSION = re.compile(r"1\.\d+(\.\d+(-gke\.\d+)?)?")
_REGISTRY = re.compile(r"((us|eu|asia)\.)?gcr\.io|[a-z]+(-[a-z0-9]+)*-docker\.pkg\.dev")


def _project(value: object) -> object:
    """Reject a project number, which YAML parses as an integer."""
    if str(value).isdecimal():
        raise Invalid(
            "project_number",
            "is a project number; write the project's id, of 6 to 30 lower-case letters, digits and '-'; print it with "
            f"`gcloud projects describe {value} --format='value(projectId)'`",
        )
    return value


def _capacity(value: str) -> str:
    if "," in value:
        values = ", ".join(item.strip() for item in value.split(","))
        raise Invalid("capacities_in_one_text", f"must be a list for several values; write `capacity: [{values}]`")
    if value not in ("on-demand", "spot", "flex-start", "queued") and not _RESERVATION.fullmatch(value):
        raise Invalid(
            "gke_capacity",
            "must be one of on-demand, spot, flex-start, queued or 'reservation:NAME', where NAME "
            "can be 'projects/P/reservations/R/reservationBlocks/B/reservationSubBlocks/S'",
        )
    return value


Zone = Annotated[
    str, match_pattern("gcp_zone", _ZONE, "must be a zone of Google Cloud; write for example 'us-central1-a'")
]
"""Google Cloud zone."""
DiskImage = Annotated[
    str, match_pattern("disk_image", _DISK_IMAGE, "must have the form 'projects/P/global/images/NAME'")
]
"""Compute Engine disk image."""
KmsKey = Annotated[
    str, match_pattern("kms_key", _KMS_KEY, "must have the form 'projects/P/locations/L/keyRings/R/cryptoKeys/K'")
]
"""Cloud KMS key."""
ProjectId = Annotated[
    str,
    match_pattern(
        "project_id",
        _PROJECT,
        "must be the id of a project: 6 to 30 lower-case letters, digits and '-', starting with a letter, not ending "
        "with '-'; write for example 'team-ml'",
    ),
    BeforeValidator(_project),
]
"""Google Cloud project id."""
BucketName = Annotated[
    str,
    match_pattern(
        "gcs_bucket_name", _BUCKET, f"must be 3 to 63 lower-case letters, digits, '-' and '_', {BUCKET_NAME_HINT}"
    ),
]
"""Name of a Cloud Storage bucket."""
RegistryHost = Annotated[
    str,
    match_pattern(
        "registry_host", _REGISTRY, "must be gcr.io, us.gcr.io, eu.gcr.io, asia.gcr.io or LOCATION-docker.pkg.dev"
    ),
]
"""Host of Artifact Registry."""
GkeCapacity = Annotated[str, AfterValidator(_capacity)]
"""Provisioning model of nodes."""


class GkeNetworkConfig(Section):
    """Address ranges of the cluster's VPC, which must not overlap."""

    nodes: Cidr = "10.0.0.0/20"
    """Range of the nodes' subnet."""
    pods: Cidr = "10.64.0.0/14"
    """Range of the pods: 64 addresses for each node of a pool, 256 for each system node."""
    services: Cidr = "10.32.0.0/20"
    """Range of the Kubernetes Services."""
    control_plane: Cidr = "172.16.0.0/28"
    """Range of the control plane's private endpoint, a /28."""
    accelerators: Cidr = "192.168.0.0/16"
    """Range of the additional networks of A3 and A4 hosts, a /16; each additional network interface of a host uses a
    separate /20 of it."""


class SystemPoolConfig(Section):
    """Nodes for system pods, such as operators, DNS and metrics."""

    machine_type: str | None = None
    """Machine type; by default e2-standard-4, or n1-standard-8 in zones without E2."""
    nodes: Annotated[int, Field(ge=1, le=100)] = 1
    """Initial and minimum number of nodes, in one zone."""
    max_nodes: Annotated[int, Field(ge=1, le=100)] = 3
    """Maximum number of nodes; the autoscaler adds nodes up to this number."""


class GkePoolConfig(Section):
    """Pool of identical nodes for jobs."""

    name: Annotated[str, name_pattern("gke_name", POOL_NAME_LIMIT, "gpus")] = Field(examples=["gpus"])
    """Name of the pool, unique in the platform."""
    machine_type: str = "n1-standard-4"
    """Machine type of each node; for a TPU the slice determines it. If the type has no GPUs and `accelerator` is not
    set, the pool is for CPU jobs."""
    accelerator: str = "nvidia-tesla-t4"
    """GPU model, TPU type such as `v4-32`, or TPU generation with `topology`. If only `machine_type` is set, the pool
    has the GPUs of that type, or none."""
    accelerators_per_node: Annotated[int, Field(ge=1, le=16)] = 2
    """GPUs attached to each N1 node; other machine types have a fixed number."""
    topology: str | None = None
    """Chips of a TPU slice along each axis, such as `2x2x4`; by default the most compact topology of the TPU type."""
    slices: Annotated[int, Field(ge=1, le=1000)] = 1
    """Number of TPU slices; each multi-host slice is a separate GKE node pool."""
    nodes: Annotated[int, Field(ge=1, le=15_000)] = 2
    """Number of nodes, or the maximum if the pool scales; for a TPU the slice determines it."""
    min_nodes: Annotated[int, Field(ge=0, le=15_000)] | None = None
    """Minimum number of nodes of a pool that scales up to `nodes`. Without this key, the pool has a fixed size.
    Exceptions scale from 0: flex-start, queued, several capacities, and `compact` or multi-host TPU slices in several
    zones."""
    capacity: Annotated[tuple[GkeCapacity, ...], ONE_OR_MANY] = ("on-demand",)
    """Provisioning model: `on-demand`, `spot`, `reservation:NAME`, `flex-start` or `queued`; or a list of them in
    fallback order."""
    zones: Annotated[tuple[Zone, ...], ONE_OR_MANY] = ()
    """Zones of the nodes; by default the platform's zone."""
    check_zones: bool = True
    """Reject zones that lack the accelerator, or flex-start for a TPU, according to Trainyard's tables."""
    disk_size_gb: Annotated[int, Field(ge=MIN_DISK_GB, le=65_536)] = 100
    """Size of each node's boot disk in GB."""
    disk_type: Literal["pd-ssd", "pd-balanced", "pd-standard", "hyperdisk-balanced"] = "pd-ssd"
    """Type of each node's boot disk; by default hyperdisk-balanced on machine types that require it."""
    gpu_driver: Literal["default", "latest"] | None = None
    """NVIDIA driver version that GKE installs; by default `latest`, which CUDA 13 in the trainer image needs, or
    `default` for V100s, whose image has CUDA 12. A change replaces the pool."""
    compact: bool | None = None
    """Place nodes close to each other; by default true for two or more A2, A3 or A4 nodes in one zone from on-demand
    or spot capacity."""
    max_run_hours: Annotated[int, Field(ge=1, le=168)] | None = None
    """Hours after which GKE deletes a node; by default 168 for flex-start and queued nodes, else no limit."""
    preloaded_image_disk: DiskImage | None = None
    """Disk image with container images, attached as a secondary boot disk so that nodes need not pull them."""

    @cached_property
    def models(self) -> tuple[ProvisioningModel, ...]:
        """Provisioning models in fallback order."""
        return tuple(map(ProvisioningModel.parse, self.capacity))

    @cached_property
    def tpu(self) -> TpuSlice | None:
        """TPU slice of the pool, None without TPUs. Raises ValueError for an invalid slice."""
        if "accelerator" not in self.model_fields_set or not is_tpu(self.accelerator):
            return None
        return tpu_slice(self.accelerator, self.topology)


def _soft_delete_days(days: int) -> int:
    # https://cloud.google.com/storage/docs/soft-delete
    if 0 < days < 7:
        raise Invalid("soft_delete_days", "must be 0, or 7 to 90")
    return days


class GkeBucketConfig(Section):
    """Cloud Storage bucket of checkpoints, metrics and profiles."""

    name: BucketName | None = None
    """Name of the bucket; by default the cluster's name with a random suffix."""
    location: str | None = None
    """Location of the bucket; by default the cluster's region."""
    keep: bool = True
    """Keep the bucket and its objects when the stack is destroyed; `false` deletes them, including checkpoints."""
    profile_days: Annotated[int, Field(ge=1, le=3650)] = 30
    """Days after which Cloud Storage deletes profiles (`profiles/`)."""
    checkpoint_days: Annotated[int, Field(ge=1, le=3650)] | None = None
    """Days after which Cloud Storage deletes checkpoints (`checkpoints/`); by default never."""
    soft_delete_days: Annotated[int, Field(ge=0, le=90), AfterValidator(_soft_delete_days)] = 7
    """Days during which deleted objects can be restored, 7 to 90; 0 for never. Deleted checkpoints cost money for this
    time, and the trainer deletes all but the newest."""


class RegistryConfig(Section):
    """Artifact Registry repository of the trainer image. The stack creates and deletes it only if it has the cluster's
    name. Any other repository belongs to the project and must exist; Google can create `gcr.io` (docs/gke.md)."""

    host: RegistryHost | None = None
    """Registry: `LOCATION-docker.pkg.dev`, `gcr.io` or its regional names; by default `REGION-docker.pkg.dev` with the
    cluster's region."""
    repository: Annotated[str, name_pattern("gke_name", 63, "trainyard")] | None = None
    """Repository on `LOCATION-docker.pkg.dev`, by default the cluster's name; `gcr.io` has a fixed repository."""
    keep_images: Annotated[int, Field(ge=1, le=1000)] = 100
    """Number of newest images to keep in the stack's own repository; Artifact Registry deletes others 30 days after
    their upload, even those of running jobs. The default is high, because each edit of a job's requirements pushes an
    image. Images share most of their layers."""


Day = Literal["MO", "TU", "WE", "TH", "FR", "SA", "SU"]


class MaintenanceConfig(Section):
    """Maintenance windows of GKE. Until support of the cluster's minor version ends, GKE upgrades neither that version
    nor the nodes."""

    days: tuple[Day, ...] = ("SA", "SU")
    """Days of the week."""
    start_hour: Annotated[int, Field(ge=0, le=23)] = 2
    """Start hour of the windows, UTC."""
    hours: Annotated[int, Field(ge=4, le=24)] = 8
    """Length of each window in hours; GKE requires 48 hours in each 32 days."""


class GkeConfig(Section):
    """GKE cluster that the stack creates and deletes, with its network, node pools, bucket and registry. With
    `bucket.keep`, the bucket stays."""

    kind: Literal["gke"]
    """Google Kubernetes Engine."""
    project: ProjectId
    """Id of the Google Cloud project."""
    zone: Zone = "us-central1-a"
    """Zone of the nodes, and of the control plane unless `regional`."""
    regional: bool = False
    """Replicate the control plane in three zones of the region."""
    name: Annotated[str, name_pattern("gke_name", CLUSTER_NAME_LIMIT, "gke-dist")] = "gke-dist"
    """Name of the cluster and prefix of its resources' names."""
    namespace: NamespaceName = "training"
    """Kubernetes namespace of the jobs, created and deleted by the stack."""
    release_channel: Literal["RAPID", "REGULAR", "STABLE", "EXTENDED"] = "REGULAR"
    """GKE release channel."""
    kubernetes_version: (
        Annotated[str, match_pattern("gke_version", _VERSION, "must be a version such as '1.34' or '1.34.1-gke.100'")]
        | None
    ) = None
    """Minimum version of the control plane; by default the channel's default."""
    check_availability: bool = True
    """Reject versions, regions and zones that are not in Trainyard's tables of 2026-11."""
    network: GkeNetworkConfig = GkeNetworkConfig()
    """Address ranges."""
    secrets_key: KmsKey | None = None
    """Cloud KMS key that additionally encrypts Kubernetes Secrets; by default only Google's encryption at rest
    applies. GKE's service agent must have `roles/cloudkms.cryptoKeyEncrypterDecrypter` on the key (docs/gke.md)."""
    authorized_networks: tuple[ClientCidr, ...] = ()
    """Address ranges with access to the API server's public address; by default the API server has no public
    address, and clients use its DNS name with IAM."""
    deletion_protection: bool = False
    """Make Pulumi reject a deletion or replacement of the cluster; `make down` then fails until this is off. gcloud and
    the console can still delete the cluster."""
    system_pool: SystemPoolConfig = SystemPoolConfig()
    """Nodes for system pods."""
    pools: tuple[GkePoolConfig, ...] = (GkePoolConfig(name="gpus"),)
    """Node pools for jobs."""
    bucket: GkeBucketConfig = GkeBucketConfig()
    """Bucket of checkpoints, metrics and profiles."""
    registry: RegistryConfig = RegistryConfig()
    """Registry of the trainer image."""
    image: ImageConfig = ImageConfig()
    """Trainer image."""
    image_streaming: bool = True
    """Start containers while their image is still being pulled (image streaming)."""
    gcs_fuse: bool = True
    """Install the Cloud Storage FUSE driver, for pods that mount a bucket."""
    managed_prometheus: bool = True
    """Collect metrics, including GPU metrics (DCGM), with Google's managed Prometheus."""
    maintenance: MaintenanceConfig = MaintenanceConfig()
    """Maintenance windows."""

    @property
    def region(self) -> str:
        """Region of the zone."""
        return self.zone.rpartition("-")[0]

    @property
    def cluster_label(self) -> str:
        """Value of the label of the cluster's resources. It is unique in the project, because the VPC has this name."""
        return self.name

    @property
    def location(self) -> str:
        """Region or zone of the control plane."""
        return self.region if self.regional else self.zone

    @property
    def registry_host(self) -> str:
        """Registry of the trainer image."""
        return self.registry.host or f"{self.region}-docker.pkg.dev"

    @property
    def uses_gcr(self) -> bool:
        """True if the registry has one fixed repository for the whole project."""
        return self.registry_host.endswith("gcr.io")

    @property
    def has_prebuilt_in_project(self) -> bool:
        """True if the trainer image is prebuilt and in a registry of the platform's project."""
        registry, _, name = (self.image.prebuilt or "").partition("/")
        return registry.endswith(("-docker.pkg.dev", "gcr.io")) and name.startswith(f"{self.project}/")

    @property
    def repository(self) -> str:
        """Repository of the trainer image, except on gcr.io."""
        return self.registry.repository or self.name

    @property
    def owns_repository(self) -> bool:
        """True if the stack creates and deletes the repository of the trainer image."""
        return not self.uses_gcr and self.repository == self.name
