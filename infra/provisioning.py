"""Provisions the platform that a configuration names, and the operators that its jobs need."""

from __future__ import annotations

import asyncio
from importlib import import_module

import pulumi

from infra.aws.config import EksConfig
from infra.config import LocalConfig, PlatformConfig
from infra.gcp.config import GkeConfig
from infra.image.own_images import built_everywhere
from infra.platform import PROJECT, Platform


async def build_platform(
    config: PlatformConfig, operators: frozenset[str] = frozenset(), images: frozenset[str] = frozenset()
) -> Platform:
    """Provision the platform for jobs that need `operators`, and of the images that are built here `images`.

    Raises ValueError, one problem a line, when this machine cannot run it.
    """
    # Each platform needs what no other does, and the clouds' SDKs are slow to import.
    if isinstance(config, LocalConfig):
        from infra.local.machine import build_machine
        from infra.local.settings import stack_cluster

        name, nodes, port = config.name, config.nodes, config.port
        settings = stack_cluster(str(PROJECT), pulumi.get_stack(), name=name, nodes=nodes, port=port)
        machine = build_machine(settings, operators, images)
        await _kubernetes_types()
        from infra.local.platform import build_local

        return build_local(config, machine)
    if isinstance(config, GkeConfig):
        from infra.gcp.platform import build_gke

        return build_gke(config, built_everywhere(images))
    if isinstance(config, EksConfig):
        from infra.aws.platform import build_eks

        return build_eks(config, built_everywhere(images))
    from infra.existing_cluster import use_existing_cluster

    return use_existing_cluster(config)


async def _kubernetes_types() -> None:
    """Import the types of Kubernetes' resources in a thread, while what is declared so far goes to the engine.

    They take longer than all other imports together; meanwhile the cluster's provider starts on another core.
    """
    await asyncio.to_thread(import_module, "pulumi_kubernetes.core.v1")


def install_operators(names: frozenset[str], platform: Platform) -> list[pulumi.Resource]:
    """Install operators on the platform; returns what jobs that need them come after. Raises ValueError without set-up.

    Empty where none is needed.
    """
    if not names:
        return []
    # Not needed by most stacks, and slow to import.
    from infra.operators.operators import Operators, OperatorsArgs

    args = OperatorsArgs(needed=names, images=platform.operator_images, after=platform.before_pods())
    return [Operators("operators", args, platform.resource_options())]
