"""GkeConfig: the typed settings of a GKE platform, as the stack's YAML gives them. No Pulumi."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from infra.hardware.provisioning_model import ProvisioningModel
from infra.image.config import ImageConfig
from infra.settings.types import BARE_BUCKET, ONE_OR_MANY, Cidr, NamespaceName, ReachingCidr, Section, matched

CLUSTER_NAME_LIMIT = 40
"""https://cloud.google.com/kubernetes-engine/docs/reference/rest/v1/projects.locations.clusters#Cluster"""
POOL_NAME_LIMIT = 40
"""https://cloud.google.com/kubernetes-engine/docs/reference/rest/v1/projects.locations.clusters.nodePools"""
LEAST_DISK_GB = 15
"""https://cloud.google.com/kubernetes-engine/docs/reference/rest/v1/NodeConfig, diskSizeGb, of the newest versions."""

_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
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


def _name(limit: int, example: str) -> AfterValidator:
    message = (
        f"must have 1 to {limit} lower-case letters, digits and '-', first a letter, last no '-'; "
        f"write for example '{example}'"
    )
    return matched(_NAME, message, limit)


def _project(value: object) -> object:
    """Refuse the number of a project, which YAML reads as an integer."""
    if str(value).isdecimal():
        raise ValueError(
            "is the number of a project; write its id, of 6 to 30 lower-case letters, digits and '-', which "
            f"`gcloud projects describe {value} --format='value(projectId)'` prints"
        )
    return value


def _capacity(value: str) -> str:
    if "," in value:
        several = ", ".join(each.strip() for each in value.split(","))
        raise ValueError(f"is several in one text, and a list is allowed; write `capacity: [{several}]`")
    if value not in ("on-demand", "spot", "flex-start", "queued") and not _RESERVATION.fullmatch(value):
        raise ValueError(
            "is no way to get capacity; write on-demand, spot, flex-start, queued or 'reservation:NAME', where NAME "
            "may be 'projects/P/reservations/R/reservationBlocks/B/reservationSubBlocks/S'"
        )
    return value


Zone = Annotated[str, matched(_ZONE, "must be a zone of Google Cloud; write for example 'us-central1-a'")]
"""A zone of Google Cloud."""
DiskImage = Annotated[str, matched(_DISK_IMAGE, "must be like 'projects/P/global/images/NAME'")]
"""A disk image of Compute Engine."""
KmsKey = Annotated[str, matched(_KMS_KEY, "must be like 'projects/P/locations/L/keyRings/R/cryptoKeys/K'")]
"""A Cloud KMS key."""
ProjectId = Annotated[
    str,
    matched(_PROJECT, "must be the id of a project, of 6 to 30 lower-case letters, digits and '-'"),
    BeforeValidator(_project),
]
"""A Google Cloud project."""
BucketName = Annotated[str, matched(_BUCKET, f"must be 3 to 63 lower-case letters, digits, '-' and '_', {BARE_BUCKET}")]
"""A bucket of Cloud Storage."""
GkeCapacity = Annotated[str, AfterValidator(_capacity)]
"""A way to get nodes."""


class GkeNetworkConfig(Section):
    """Address ranges of the cluster's own VPC; none may overlap another."""

    nodes: Cidr = "10.0.0.0/20"
    """Range of the nodes: the subnet itself."""
    pods: Cidr = "10.64.0.0/14"
    """Range of the pods: 64 addresses for each node of a pool, 256 for each of the system."""
    services: Cidr = "10.32.0.0/20"
    """Range of the Kubernetes services."""
    control_plane: Cidr = "172.16.0.0/28"
    """Range of the control plane's private endpoint: a /28."""
    accelerators: Cidr = "192.168.0.0/16"
    """Range that the subnets of further networks are cut from, /20 each, where A3 and A4 hosts need some: a /16."""


class SystemPoolConfig(Section):
    """The nodes that run what is not training: operators, DNS, metrics."""

    machine_type: str | None = None
    """Machine type; by default e2-standard-4, or n1-standard-8 where the zone has no E2."""
    nodes: Annotated[int, Field(ge=1, le=100)] = 1
    """Number of nodes at the start, in one zone."""
    max_nodes: Annotated[int, Field(ge=1, le=100)] = 3
    """Most nodes that the autoscaler makes."""


class GkePoolConfig(Section):
    """Nodes of one kind for the jobs."""

    name: Annotated[str, _name(POOL_NAME_LIMIT, "gpus")] = Field(examples=["gpus"])
    """Name of the pool, unique in the platform."""
    machine_type: str = "n1-standard-4"
    """Machine type of each node; for a TPU it follows from the slice. Written without `accelerator`, a type that \
carries no GPU gives nodes for jobs on CPU."""
    accelerator: str = "nvidia-tesla-t4"
    """GPU model, TPU type such as `v4-32`, or TPU generation with `topology`; by default the machine type's own if \
one is written."""
    accelerators_per_node: Annotated[int, Field(ge=1, le=16)] = 2
    """GPUs attached to each N1 node; other machine types carry a number of their own."""
    topology: str | None = None
    """Chips of a TPU slice along each axis, such as `2x2x4`; by default the most compact one of the TPU type."""
    slices: Annotated[int, Field(ge=1, le=1000)] = 1
    """Number of TPU slices; each is a GKE node pool of its own if it has several hosts."""
    nodes: Annotated[int, Field(ge=1, le=15_000)] = 2
    """Number of nodes, the most where the pool scales; for a TPU it follows from the slice."""
    min_nodes: Annotated[int, Field(ge=0, le=15_000)] | None = None
    """Least nodes of a pool that scales with the jobs; by default `nodes` are there all the time, but with \
flex-start, queued or several capacities the pool scales from 0."""
    capacity: Annotated[tuple[GkeCapacity, ...], ONE_OR_MANY] = ("on-demand",)
    """Where nodes come from: `on-demand`, `spot`, `reservation:NAME`, `flex-start` or `queued`; several are tried in \
their order."""
    zones: Annotated[tuple[Zone, ...], ONE_OR_MANY] = ()
    """Zones of the nodes; by default the platform's zone."""
    check_zones: bool = True
    """Whether a zone that is not known to have the accelerator is refused."""
    disk_size_gb: Annotated[int, Field(ge=LEAST_DISK_GB, le=65_536)] = 100
    """Size of each node's boot disk in GB."""
    disk_type: Literal["pd-ssd", "pd-balanced", "pd-standard", "hyperdisk-balanced"] = "pd-ssd"
    """Type of each node's boot disk; hyperdisk-balanced by default where a machine type takes no other."""
    gpu_driver: Literal["default", "latest"] | None = None
    """NVIDIA driver that GKE installs, its version's default or latest: by default the latest, which CUDA 13 of the \
trainer's image needs, and for V100s, whose image has CUDA 12, the default. A change replaces the pool."""
    compact: bool | None = None
    """Whether nodes are placed close to each other; by default they are for two or more nodes of A2, A3 or A4 from \
on-demand or spot capacity in one zone."""
    max_run_hours: Annotated[int, Field(ge=1, le=168)] | None = None
    """Hours after which GKE removes a node; flex-start and queued nodes live 168 hours at most."""
    preloaded_image_disk: DiskImage | None = None
    """Disk image with container images in it, attached as secondary boot disk so that nodes need not pull them."""

    @property
    def models(self) -> tuple[ProvisioningModel, ...]:
        """Provisioning models in the order in which they are tried."""
        return tuple(map(ProvisioningModel.parse, self.capacity))


class GkeBucketConfig(Section):
    """The Cloud Storage bucket of checkpoints, metrics and profiles."""

    name: BucketName | None = None
    """Name of the bucket; by default the cluster's name with a random suffix."""
    location: str | None = None
    """Location of the bucket; by default the cluster's region."""
    keep: bool = True
    """Whether the bucket and all that is in it outlive the stack; with false they go with it, checkpoints too."""
    profile_days: Annotated[int, Field(ge=1, le=3650)] = 30
    """Days after which profiles (`profiles/`) are deleted."""
    checkpoint_days: Annotated[int, Field(ge=1, le=3650)] | None = None
    """Days after which checkpoints (`checkpoints/`) are deleted; by default never."""
    soft_delete_days: Annotated[int, Field(ge=7, le=90)] = 7
    """Days in which what was deleted can be restored."""


class RegistryConfig(Section):
    """The Artifact Registry repository that the trainer image is pushed to."""

    host: Annotated[
        str, matched(_REGISTRY, "must be gcr.io, us.gcr.io, eu.gcr.io, asia.gcr.io or LOCATION-docker.pkg.dev")
    ] = "gcr.io"
    """Registry: `gcr.io` and its regional names, or `LOCATION-docker.pkg.dev`."""
    repository: Annotated[str, _name(63, "trainyard")] = "trainyard"
    """Repository on `LOCATION-docker.pkg.dev`; on `gcr.io` it is the registry's own."""
    keep_images: Annotated[int, Field(ge=1, le=1000)] = 10
    """Newest images that clean-up keeps; others go when they are 30 days old."""


Day = Literal["MO", "TU", "WE", "TH", "FR", "SA", "SU"]


class MaintenanceConfig(Section):
    """When GKE may do its maintenance; between, it upgrades no node and no minor version by itself."""

    days: tuple[Day, ...] = ("SA", "SU")
    """Days of the week."""
    start_hour: Annotated[int, Field(ge=0, le=23)] = 2
    """Hour of the day, UTC."""
    hours: Annotated[int, Field(ge=4, le=24)] = 8
    """Length in hours; GKE asks for 48 hours in each 32 days."""


class GkeConfig(Section):
    """A GKE cluster with its network, node pools, bucket and registry, made and removed by the stack."""

    kind: Literal["gke"]
    """Google Kubernetes Engine."""
    project: ProjectId
    """Id of the Google Cloud project that everything is made in."""
    zone: Zone = "us-central1-a"
    """Zone of the nodes, and of the control plane too unless `regional`."""
    regional: bool = False
    """Whether the control plane is in three zones of the region."""
    name: Annotated[str, _name(CLUSTER_NAME_LIMIT, "gke-dist")] = "gke-dist"
    """Name of the cluster and prefix of what is made for it."""
    namespace: NamespaceName = "training"
    """Kubernetes namespace of the jobs, made and removed by the stack."""
    release_channel: Literal["RAPID", "REGULAR", "STABLE", "EXTENDED"] = "REGULAR"
    """GKE release channel."""
    kubernetes_version: Annotated[str, matched(_VERSION, "must be like 1.34 or '1.34.1-gke.100'")] | None = None
    """Least version of the control plane; by default the channel's own."""
    check_availability: bool = True
    """Whether versions, regions and zones that Trainyard does not know of (those of 2026-11) are refused."""
    network: GkeNetworkConfig = GkeNetworkConfig()
    """Address ranges."""
    secrets_key: KmsKey | None = None
    """Cloud KMS key that encrypts Kubernetes secrets once more; by default Google's own encrypts them at rest."""
    authorized_networks: tuple[ReachingCidr, ...] = ()
    """Address ranges that may reach the API server by its public address; by default there is none, and it is reached \
by its DNS name with IAM alone."""
    deletion_protection: bool = False
    """Guard of Pulumi's provider, which then refuses to delete or replace the cluster; `make down` fails until it is \
off. Google does not know this setting: gcloud and the console still delete the cluster."""
    system_pool: SystemPoolConfig = SystemPoolConfig()
    """Nodes for what is not training."""
    pools: tuple[GkePoolConfig, ...] = (GkePoolConfig(name="gpus"),)
    """Nodes for the jobs."""
    bucket: GkeBucketConfig = GkeBucketConfig()
    """Where jobs keep checkpoints and metrics."""
    registry: RegistryConfig = RegistryConfig()
    """Where the trainer image is pushed to."""
    image: ImageConfig = ImageConfig()
    """The trainer image."""
    image_streaming: bool = True
    """Whether nodes start containers while their image is still being pulled."""
    gcs_fuse: bool = True
    """Whether the Cloud Storage FUSE driver is there, for pods that mount a bucket."""
    managed_prometheus: bool = True
    """Whether Google's managed Prometheus collects metrics, of GPUs (DCGM) too."""
    maintenance: MaintenanceConfig = MaintenanceConfig()
    """When GKE may do its maintenance."""

    @property
    def region(self) -> str:
        """Region of the zone."""
        return self.zone.rpartition("-")[0]

    @property
    def cluster_label(self) -> str:
        """Label of what is made for the cluster; networks have its name, so no other in the project has it."""
        return self.name

    @property
    def location(self) -> str:
        """Where the control plane is: region or zone."""
        return self.region if self.regional else self.zone
