"""Existing: the Cloud of an existing cluster in a kubeconfig. Imports Pulumi only to provision."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infra.cloud import Cloud
from infra.existing.config import KubeconfigConfig, UrlConfig
from infra.hardware import gpus
from infra.hardware.tpus import TpuSlice
from infra.image.builtin_images import JobLayer
from infra.kubeconfig import contexts, kubeconfig_files
from infra.naming import KUEUE
from infra.scheduling import Scheduling, tolerate, tpu_scheduling
from settings.problem import Problem
from settings.types import namespace_problem

if TYPE_CHECKING:
    from infra.platform import Platform


class Existing(Cloud):
    """Cluster that the stack neither creates nor deletes."""

    is_shared = True

    def __init__(self, config: KubeconfigConfig) -> None:
        self.config = config
        self.context, self.kubeconfig = config.context, config.kubeconfig
        self.scheme = config.bucket.url.partition("://")[0] if isinstance(config.bucket, UrlConfig) else ""

    def operators(self, required: frozenset[str]) -> frozenset[str]:
        # Do not install Kueue: the cluster's owner decides which part of the cluster the queues can use.
        return frozenset() if self.config.operators == "present" else required - {KUEUE}

    def problems(self) -> list[Problem]:
        namespace = self.config.namespace
        if self.config.create_namespace and (message := namespace_problem(namespace)):
            return [
                Problem(
                    "kubeconfig.namespace.reserved",
                    ("platform", "namespace"),
                    f"{message}, or add `create_namespace: false` if it already exists",
                    namespace,
                )
            ]
        return []

    def machine_problems(self) -> list[Problem]:
        """Return a problem if no kubeconfig has the context."""
        files = kubeconfig_files(self.config.kubeconfig)
        try:
            names = contexts(files)
        except ValueError as error:
            return [_problem("kubeconfig", str(error), self.config.kubeconfig or "")]
        if self.config.context in names:
            return []
        paths = ", ".join(map(str, files))
        if names:
            message = f"is not a context in {paths}; write one of {', '.join(names)}"
        else:
            message = f"is not a context in {paths}, which has no contexts; set platform.kubeconfig to the file with it"
        return [_problem("context", message, self.config.context)]

    def accelerator_scheduling(
        self, accelerator: str, tpu: TpuSlice | None, *, pool: str | None, gpus_per_host: int
    ) -> Scheduling:
        del accelerator, pool, gpus_per_host
        # Only GKE has TPUs, and it labels their nodes. For GPU nodes there is no standard label.
        if tpu is not None:
            return tpu_scheduling(tpu)
        return Scheduling(tolerations=(tolerate(gpus.RESOURCE),), accelerator_resource=gpus.RESOURCE)

    async def build(
        self, operators: frozenset[str], images: frozenset[str], layers: frozenset[JobLayer] = frozenset()
    ) -> Platform:
        del operators, images, layers
        from infra.existing.platform import use_existing_cluster

        return use_existing_cluster(self.config)


def _problem(key: str, message: str, value: str) -> Problem:
    return Problem("kubeconfig.context.unknown", ("platform", key), message, value)
