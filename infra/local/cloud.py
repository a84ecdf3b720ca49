"""Cluster on this machine: its settings and Cloud. Imports Pulumi only to provision."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import AfterValidator, Field

from infra.builtin_images import JobLayer
from infra.cloud import EVERY_IMAGE, Cloud, FirstPlatform
from infra.hardware import PodGroup, Scheduling
from infra.local.lifecycle import check_machine
from infra.local.settings import MAX_NAME_LENGTH, ClusterSettings, stack_cluster
from settings.kubernetes_values import check_label
from settings.types import NamespaceName, Section, with_code

if TYPE_CHECKING:
    from infra.platform import Platform

_cluster_name = with_code("cluster_name", partial(check_label, limit=MAX_NAME_LENGTH))


class LocalConfig(Section):
    """Kubernetes cluster on this machine, for this stack only."""

    kind: Literal["local"]
    """Cluster on this machine."""
    name: Annotated[str, Field(max_length=MAX_NAME_LENGTH), AfterValidator(_cluster_name)] | None = Field(
        None, examples=["dev"]
    )
    """Prefix of the nodes' names, by default the stack's name; kubeconfigs call the cluster `trainyard-NAME`."""
    nodes: Annotated[int, Field(ge=1, le=8)] = 2
    """Number of nodes; each has an equal share of this machine's CPUs and memory."""
    port: Annotated[int, Field(ge=1024, le=65535)] | None = None
    """Port of the API server on 127.0.0.1; by default a free port, which the cluster keeps unless another program
    uses it."""
    namespace: NamespaceName = "training"
    """Kubernetes namespace of the jobs, created and deleted by the stack."""


class Local(Cloud):
    """Cluster on this machine that the stack provisions."""

    first_platform = FirstPlatform(settings={"nodes": 2})
    cluster_component = "trainyard:local:LocalCluster"
    has_accelerators = False
    pulls_images = False

    def __init__(self, config: LocalConfig) -> None:
        self.config = config
        self.nodes_here = config.nodes

    @property
    def python_version(self) -> str | None:
        return "3.11"

    @property
    def built_images(self) -> frozenset[str]:
        return EVERY_IMAGE

    def cluster(self, checkout: str, stack: str) -> ClusterSettings:
        """Return the settings of the stack's cluster."""
        return stack_cluster(checkout, stack, name=self.config.name, nodes=self.config.nodes, port=self.config.port)

    def up_problems(self, checkout: str, stack: str, set_up_bytes: int = 0) -> list[str]:
        return check_machine(self.cluster(checkout, stack), set_up_bytes)

    def scheduling(self, hosts: PodGroup, pool: str | None = None) -> Scheduling:
        del pool
        if hosts.accelerator:
            raise ValueError("the cluster on this machine has only CPUs")
        return Scheduling()

    async def build(
        self, operators: frozenset[str], images: frozenset[str], layers: frozenset[JobLayer] = frozenset()
    ) -> Platform:
        import pulumi

        from infra.local.platform import build_local
        from infra.project import project_folder

        settings = self.cluster(str(project_folder()), pulumi.get_stack())
        return await build_local(self.config, settings, operators, images, layers)
