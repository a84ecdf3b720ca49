"""Cloud: interface of a stack's platform. Each kind of platform has one implementation. No Pulumi."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from infra.capacity.offers import Offer
from infra.cost.cost_estimate import CostEstimate, Line
from infra.hardware.tpus import TpuSlice
from infra.image.builtin_images import OWN_IMAGES, TRAINER, built_everywhere
from infra.inventory import Ask, Lister, Listing, Ownership, PlannedResource
from infra.quota import Quota
from infra.scheduling import Scheduling, in_pool
from settings.problem import Problem

if TYPE_CHECKING:
    from infra.platform import Platform

EVERY_IMAGE = frozenset({TRAINER, *OWN_IMAGES})


class Cloud(ABC):
    """Platform of a stack, built from its settings. The defaults are those of a cluster without a cloud."""

    scheme = ""
    """Scheme of the bucket's URL; empty if the bucket is a volume in the cluster."""
    nodes_here = 0
    """Number of nodes on this machine; 0 if the cluster is elsewhere."""
    has_accelerators = True
    """False if no node can have GPUs or TPUs."""
    context = ""
    """Context of an existing cluster in its kubeconfig."""
    kubeconfig: str | None = None
    """Kubeconfig of an existing cluster; None for kubectl's default."""
    is_shared = False
    """True if the cluster may have objects that do not belong to the stack."""
    pulls_images = True
    """True if nodes can pull images from registries."""
    cluster_name = ""
    """Name of the cluster in the cloud; empty without a cloud."""
    label = ""
    """Value of the label of the stack's cloud resources; empty without a cloud."""
    is_protected = False
    """True if the settings protect the cluster against deletion."""
    keeps_bucket = False
    """True if the bucket stays after the stack is destroyed."""
    command = ""
    """Command-line tool of the cloud, such as `gcloud`; empty without a cloud."""
    listings: tuple[Listing, ...] = ()
    """Kinds of cloud resources that a stack could leave behind."""
    lookups: tuple[Listing, ...] = ()
    """Kinds of cloud resources whose ids do not follow from their names."""

    @property
    def is_provisioned(self) -> bool:
        """True if the stack provisions its cluster in a cloud."""
        return bool(self.command)

    @property
    def built_images(self) -> frozenset[str]:
        """Names of the builtin images that the stack can build."""
        return frozenset()

    def operators(self, needed: frozenset[str]) -> frozenset[str]:
        """Return the operators to install for jobs that need `needed`."""
        return needed

    def problems(self) -> list[Problem]:
        """Return the problems between the platform's settings."""
        return []

    def missing_here(self) -> list[Problem]:
        """Return the problems of the settings on this machine."""
        return []

    def up_problems(self, checkout: str, stack: str) -> list[str]:
        """Return the reasons for which `make up` of the stack would fail although the settings are valid."""
        del checkout, stack
        return []

    def refused_in_state(self, deployment: Mapping[str, Any]) -> list[Problem]:
        """Return the settings that the cloud rejects for the cluster in a deployment of `pulumi stack export`."""
        del deployment
        return []

    def refused_after(self, before: Cloud) -> list[Problem]:
        """Return the settings that the cloud rejects for a cluster with the settings of `before`."""
        del before
        return []

    def offers(self) -> list[Offer]:
        """Return the nodes of each pool, with the system pool last; none if the pools are unknown."""
        return []

    def quota(self) -> tuple[Quota, ...]:
        """Return the cloud quota that the platform needs."""
        return ()

    def quota_left(self, ask: Ask) -> Mapping[tuple[str, str], int]:
        """Return quota name and location -> remaining quota of the account."""
        del ask
        return {}

    def price_lines(self) -> Iterable[Line]:
        """Return the price lines of the platform."""
        return ()

    def cost_estimate(self) -> CostEstimate:
        """Return the cost of the platform; without lines for a cluster without a cloud."""
        return CostEstimate(lines=tuple(self.price_lines()))

    def scheduling(
        self, accelerator: str | None, tpu: TpuSlice | None = None, *, pool: str | None = None, gpus_per_host: int = 0
    ) -> Scheduling:
        """Return what a job's pods need to get onto nodes with its accelerators; `tpu` is the slice of a TPU.

        Name the pool if it is known: a host that fits in several pools could take a node that another job needs whole.
        Without `gpus_per_host` a host gets all GPUs of a node. Raises ValueError if the platform does not have the
        accelerator.
        """
        if accelerator is None:
            return Scheduling(node_selector=in_pool(pool))
        return self.accelerator_scheduling(accelerator, tpu, pool=pool, gpus_per_host=gpus_per_host)

    @abstractmethod
    def accelerator_scheduling(
        self, accelerator: str, tpu: TpuSlice | None, *, pool: str | None, gpus_per_host: int
    ) -> Scheduling:
        """Return the scheduling constraints of a job's pods for an accelerator; `tpu` is its slice if it is a TPU."""

    def lister(self, ownership: Ownership, ask: Ask) -> Lister:
        """Return a client that lists the cloud's resources with its command-line tool."""
        raise NotImplementedError

    def generated_names(self, planned: Iterable[PlannedResource]) -> Mapping[str, str]:
        """Return kind -> pattern of the names that the cloud generates for the cluster's parts."""
        raise NotImplementedError

    def permissions(self, planned: Iterable[PlannedResource]) -> dict[str, Any]:
        """Return the minimum permissions to preview, create, destroy and list the planned resources."""
        raise NotImplementedError

    def declare(self) -> None:
        """Declare the platform's cloud resources, without those inside its cluster."""
        raise NotImplementedError

    @abstractmethod
    async def build(self, operators: frozenset[str], images: frozenset[str]) -> Platform:
        """Provision the platform for jobs that need `operators` and `images`.

        Raises ValueError, with one problem per line, if this machine cannot run it.
        """


def cloud_images(prebuilt: str | None) -> frozenset[str]:
    """Return the images that a cloud platform can build; none with a prebuilt trainer image."""
    return frozenset() if prebuilt else built_everywhere(EVERY_IMAGE)
