"""Cloud: interface of a stack's platform. Quota, address ranges and ImageConfig: shared by platforms."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Network, collapse_addresses
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator

from infra.builtin_images import EVERY_IMAGE, JobLayer, cloud_images
from infra.capacity import SYSTEM, PoolNodes
from infra.cost import CostEstimate, Line
from infra.hardware import PodGroup, Scheduling
from infra.inventory import Lister, Listing, Ownership, PlannedResource, RunCommand
from settings.problem import Invalid, Problem
from settings.types import ONE_OR_MANY, Image, Section, match_pattern

if TYPE_CHECKING:
    from infra.platform import Platform


@dataclass(frozen=True, kw_only=True)
class Quota:
    """Amount of a cloud quota that a platform needs."""

    name: str
    """Name of the quota in the cloud, with its code or dimensions if it has any."""
    location: str
    """Region of the quota; `global` for all regions."""
    amount: int
    """Maximum amount that the platform needs."""
    source: str
    """Page of the cloud that documents the quota."""


QuotaNeeds = Counter[tuple[str, str, str]]
"""Amount by name, scope (`global` or empty) and source."""


def quotas(needs: QuotaNeeds, region: str) -> tuple[Quota, ...]:
    """Return the quotas of a region and the global quotas, sorted by name."""
    return tuple(
        Quota(name=name, location=scope or region, amount=amount, source=source)
        for (name, scope, source), amount in sorted(needs.items())
    )


@dataclass(frozen=True, kw_only=True)
class FirstPlatform:
    """Platform in the settings that `trainyard init` writes."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings other than the account, the name and the pools."""
    account_key: str = ""
    """Key of the account, which the user must give; empty for platform `local`."""
    account_title: str = ""
    """Title of that key in a question."""
    pools: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Accelerator -> settings of a pool with one GPU a node. Empty for platform `local`."""


class Cloud(ABC):
    """Platform of a stack: in a cloud account, on this machine, or an existing cluster. Defaults fit the last two."""

    first_platform: ClassVar[FirstPlatform | None] = None
    """Platform that `trainyard init` offers; None if it does not offer this kind."""
    cluster_component = ""
    """Type of the component with the cluster that the stack creates; empty for an existing cluster."""
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
    is_protected = False
    """True if the settings protect the cluster against deletion."""
    keeps_bucket = False
    """True if the bucket stays after the stack is destroyed."""

    @abstractmethod
    def __init__(self, config: Any) -> None:
        """Store the settings of the platform. Each class takes the settings of its kind of platform."""

    @property
    def provisioned(self) -> ProvisionedCloud | None:
        """This cloud if the stack provisions the cluster in a cloud account, else None."""
        return None

    @property
    def python_version(self) -> str | None:
        """Python version of the builtin images; None if the platform builds no image."""
        return None

    @property
    def built_images(self) -> frozenset[str]:
        """Names of the images that the platform can build, including the trainer image."""
        return frozenset()

    def operators(self, required: frozenset[str]) -> frozenset[str]:
        """Return the operators that the stack installs for jobs that require the operators `required`."""
        return required

    def problems(self) -> list[Problem]:
        """Return the problems of the platform's settings."""
        return []

    def machine_problems(self) -> list[Problem]:
        """Return a problem for each setting whose requirements this machine does not meet."""
        return []

    def up_problems(self, checkout: str, stack: str, set_up_bytes: int = 0) -> list[str]:
        """Return the reasons why `make up` of the stack would fail although the settings are valid.

        `set_up_bytes` is the free disk space that set-up needs for nodes on this machine.
        """
        del checkout, stack, set_up_bytes
        return []

    def stale_resources(self, deployment: Mapping[str, Any]) -> list[str]:
        """Return the URNs of resources that may have changed in the cloud since a `pulumi stack export`.

        `make up` refreshes them before it checks the settings against the state.
        """
        del deployment
        return []

    def failed_resources(self, deployment: Mapping[str, Any]) -> list[str]:
        """Return the URNs of resources that the cloud could not create completely and can only replace."""
        del deployment
        return []

    def problems_in_state(self, deployment: Mapping[str, Any]) -> list[Problem]:
        """Return a problem for each setting that the cloud rejects for the cluster in a `pulumi stack export`."""
        del deployment
        return []

    def problems_after(self, before: Cloud) -> list[Problem]:
        """Return a problem for each change of a setting, from the settings of `before`, that the cloud rejects."""
        del before
        return []

    def pool_nodes(self) -> list[PoolNodes]:
        """Return the nodes of each pool, with the system pool last; an empty list if the pools are unknown."""
        return []

    def quota(self) -> tuple[Quota, ...]:
        """Return the cloud quota that the platform needs."""
        return ()

    def remaining_quota(self, run_json: RunCommand) -> Mapping[tuple[str, str], int]:
        """Return quota name and location -> remaining quota of the account."""
        del run_json
        return {}

    def price_lines(self) -> Iterable[Line]:
        """Return the price lines of the platform."""
        return ()

    def cost_estimate(self) -> CostEstimate:
        """Return the cost of the platform, without lines for a cluster outside a cloud account."""
        return CostEstimate(lines=tuple(self.price_lines()))

    @abstractmethod
    def scheduling(self, hosts: PodGroup, pool: str | None = None) -> Scheduling:
        """Return the scheduling fields of a job's hosts.

        Pass the pool if it is known. Otherwise a host that fits in several pools could use part of a node that another
        job needs completely. Raises ValueError if the platform does not have the accelerator.
        """

    @abstractmethod
    async def build(self, operators: frozenset[str], images: frozenset[str], layers: frozenset[JobLayer]) -> Platform:
        """Provision the platform for jobs that need `operators`, the builtin `images` and the jobs' `layers`.

        Platform `local` also builds the images. A cloud builds an image when a job first uses it (`Platform.image`).

        Raises ValueError, with one problem per line, if this machine cannot run the platform.
        """


class ProvisionedCloud(Cloud):
    """Platform whose cluster the stack provisions in a cloud account."""

    command: ClassVar[str]
    """Command-line tool of the cloud, such as `gcloud`."""
    listings: ClassVar[tuple[Listing, ...]]
    """Listings of the resource kinds that a stack could leave behind."""
    lookups: ClassVar[tuple[Listing, ...]] = ()
    """Listings that find the ids of an interrupted update's resources, if an id is not derived from the name."""
    cluster_name: str
    label: str
    """Value of the label of the stack's cloud resources."""
    image: ImageConfig

    @property
    def provisioned(self) -> ProvisionedCloud:
        return self

    @property
    def python_version(self) -> str | None:
        return None if self.image.prebuilt else self.image.python_version

    @property
    def built_images(self) -> frozenset[str]:
        return frozenset() if self.image.prebuilt else cloud_images(EVERY_IMAGE)

    def problems(self) -> list[Problem]:
        return list(image_problems(self.image))

    def problems_in_cloud(self, deployment: Mapping[str, Any], run_json: RunCommand) -> list[Problem]:
        """Return a problem for each setting that the account would reject only after `make up` has created resources.

        `deployment` is the state of a `pulumi stack export`. May raise CalledProcessError if the cloud's command
        fails, and FileNotFoundError if the command is missing.
        """
        del deployment, run_json
        return []

    @abstractmethod
    def lister(self, ownership: Ownership, run_json: RunCommand) -> Lister:
        """Return a function that lists the cloud's resources with its command-line tool."""

    @abstractmethod
    def generated_names(self, planned: Iterable[PlannedResource]) -> Mapping[str, str]:
        """Return kind -> pattern of the names that the cloud generates for the cluster's resources."""

    @abstractmethod
    def permissions(self, planned: Iterable[PlannedResource]) -> dict[str, Any]:
        """Return the minimum permissions to preview, create, destroy and list the planned resources."""

    @abstractmethod
    def declare(self) -> None:
        """Declare the platform's cloud resources, without the objects inside its cluster."""


def pool_problem(code: str, pool: Section, key: str, message: str) -> Problem:
    """Return a problem of one key of a pool. Its path is relative to the pool."""
    value = getattr(pool, key)
    return Problem(code, (key,), message, list(value) if isinstance(value, tuple) else value)


def platform_problem(code: str, config: Section, key: str, message: str) -> Problem:
    """Return a problem of a key of the platform, such as `network.vpc`, with the key's value."""
    value = attrgetter(key)(config)
    return Problem(code, ("platform", *key.split(".")), message, list(value) if isinstance(value, tuple) else value)


def pool_name_problems(code: str, names: Sequence[str]) -> Iterator[Problem]:
    """Yield a problem for each pool with the name of an earlier pool or of the system pool."""
    for index, name in enumerate(names):
        if name == SYSTEM or name in names[:index]:
            other = "the system pool" if name == SYSTEM else f"pools[{names.index(name)}]"
            message = f"is also the name of {other}; names must be unique; rename this pool"
            yield Problem(code, ("platform", "pools", index, "name"), message, name)


DOCUMENTATION_RANGES = tuple(map(IPv4Network, ("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24")))
"""Address ranges for documentation, which no machine has: https://www.rfc-editor.org/rfc/rfc5737"""


def open_to_internet_problems(networks: Sequence[str]) -> Iterator[Problem]:
    """Yield a problem if the ranges together cover the whole internet."""
    ranges = [IPv4Network(text) for text in networks]
    if any(range_.prefixlen == 0 for range_ in collapse_addresses(ranges)):
        widest = min(range(len(ranges)), key=lambda index: ranges[index].prefixlen)
        others = "" if ranges[widest].prefixlen == 0 else ", together with the other ranges"
        message = f"covers the whole internet{others}; write only the ranges of your clients, or remove this range"
        path = ("platform", "authorized_networks", widest)
        yield Problem("cloud.authorized_networks.open_to_all", path, message, networks[widest])


def documentation_ranges(networks: Sequence[str]) -> list[str]:
    """Return the ranges that RFC 5737 reserves for documentation."""
    return [text for text in networks if any(IPv4Network(text).subnet_of(range_) for range_ in DOCUMENTATION_RANGES)]


ImagePlatform = Literal["linux/amd64", "linux/arm64"]
_name = match_pattern(
    "image_name",
    re.compile(r"[a-z0-9]+([._-][a-z0-9]+)*"),
    "must be an image name without registry and tag: lower-case letters and digits, joined by '.', '_' or '-'; write "
    "for example 'sh22-dist-gpu'",
)
_branch = match_pattern(
    "git_branch",
    re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./-]{0,127}"),
    "must be the name of a Git branch, of at most 128 letters, digits, '.', '_', '-' and '/', starting with a letter, "
    "digit or '_'; write for example 'main'",
)


def _prebuilt(value: str) -> str:
    if "@sha256:" not in value:
        raise Invalid("image_digest", "must have a digest; write for example 'example.com/team/trainer@sha256:...'")
    return value


def _architectures(value: tuple[ImagePlatform, ...]) -> tuple[ImagePlatform, ...]:
    if not value or len(set(value)) != len(value):
        raise Invalid("image_platforms", "must be one or more different architectures; write for example 'linux/amd64'")
    return value


def name_pattern(code: str, limit: int, example: str) -> AfterValidator:
    """Return a validator of a cloud resource's name with at most `limit` characters."""
    message = (
        f"must have 1 to {limit} lower-case letters, digits and '-', starting with a letter, not ending with '-'; "
        f"write for example '{example}'"
    )
    return match_pattern(code, re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?"), message, limit)


ImagePlatforms = Annotated[tuple[ImagePlatform, ...], AfterValidator(_architectures), ONE_OR_MANY]
"""Processor architectures of an image."""


class ImageConfig(Section):
    """Trainer image: built with buildx from this checkout and pushed, or prebuilt."""

    name: Annotated[str, _name] = "sh22-dist-gpu"
    """Name of the image in the registry."""
    git_branch: Annotated[str, _branch] = "main"
    """Git branch whose name, with `-` for `/`, becomes the image's tag; the image contains the checkout's current
    files."""
    python_version: Literal["3.11", "3.12", "3.13"] = "3.11"
    """Python version in the image."""
    platforms: ImagePlatforms = ("linux/amd64", "linux/arm64")
    """Processor architectures of the image."""
    prebuilt: Annotated[Image, AfterValidator(_prebuilt)] | None = None
    """Prebuilt trainer image with its digest, instead of a build; jobs on XLA must then set `image`."""

    @property
    def tag(self) -> str:
        """Tag of the trainer image."""
        return self.git_branch.replace("/", "-")


BUILD_KEYS = ("name", "git_branch", "python_version", "platforms")


def image_problems(image: ImageConfig) -> Iterator[Problem]:
    """Yield a problem for build keys together with `prebuilt`, and for an image that no node can run."""
    if image.prebuilt:
        for key in BUILD_KEYS:
            if key in image.model_fields_set:
                message = "has no effect with `prebuilt`, which disables the build; remove one of the two"
                yield pool_problem("image.prebuilt.with_build_key", image, key, message).below("platform", "image")
    elif "linux/amd64" not in image.platforms:
        message = "must include linux/amd64, because all machine types in Trainyard's tables are x86-64; add it"
        yield Problem("image.platforms.no_amd64", ("platform", "image", "platforms"), message, list(image.platforms))
