"""Parts of a local stack outside its Kubernetes API: the cluster with its nodes, and their images."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from infra.image.builtin_images import TRAINER
from infra.local import preflight
from infra.local.cluster import LocalCluster, LocalClusterArgs
from infra.local.program_image import program_reference
from infra.local.settings import PAUSE_IMAGE, ClusterSettings
from infra.local.trainer_image import own_image_reference, trainer_image_reference
from infra.operators.releases import needed_releases


@dataclass(frozen=True, kw_only=True)
class LocalMachine:
    """Cluster and images for the rest of the platform."""

    cluster: LocalCluster
    """Cluster with its nodes."""
    context: str
    """Name of the context in the cluster's kubeconfig."""
    image: str
    """Reference of the trainer image."""
    operator_images: Mapping[str, str]
    """References of the operators' images, by operator name."""
    own_images: Mapping[str, str]
    """References of the other builtin images, by their names in jobs."""


def build_machine(settings: ClusterSettings, operators: frozenset[str], images: frozenset[str]) -> LocalMachine:
    """Provision the cluster with the images of `operators` and the builtin images `images`.

    Raise ValueError, with one problem per line, if this machine cannot run the cluster.
    """
    if problems := preflight.check_machine(settings):
        raise ValueError("\n".join(problems))
    image = trainer_image_reference()
    operator_images = {release.name: program_reference(release.name) for release in needed_releases(operators)}
    own_images = {name: own_image_reference(name) for name in sorted(images - {TRAINER})}
    cluster = LocalCluster(
        "local",
        LocalClusterArgs(
            owner=settings.owner,
            stack=settings.stack,
            name=settings.name,
            nodes=settings.nodes,
            port=settings.port,
            images=[PAUSE_IMAGE, image, *operator_images.values(), *own_images.values()],
        ),
    )
    return LocalMachine(
        cluster=cluster,
        context=settings.context,
        image=image,
        operator_images=operator_images,
        own_images=own_images,
    )
