"""TrainerImage: the trainer image, built with buildx and pushed to a cloud's registry."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import pulumi
import pulumi_docker_build as docker

from infra.image.builtin_images import BUILTIN_IMAGES, TRAINER
from infra.image.config import ImageConfig, ImagePlatform
from infra.local.trainer_image import copy_data, trainer_sources
from infra.project import project_folder

PROJECT = Path(__file__).resolve().parents[2]
CONTEXT = PROJECT / ".trainyard" / "image"
"""Build context. It contains only the trainer's sources and the data."""

X86_64_ONLY: tuple[ImagePlatform, ...] = ("linux/amd64",)


@dataclass(frozen=True, kw_only=True)
class TrainerImageArgs:
    """Arguments of the trainer image."""

    name: pulumi.Input[str]
    """Name of the image with its registry, without a tag."""
    config: ImageConfig
    """Settings."""
    variant: str = ""
    """Name of the builtin image to build with a separate tag. Empty for the trainer image."""


class TrainerImage(pulumi.ComponentResource):
    """Trainer image for every architecture in the settings, referenced by its digest.

    The push uses Docker's credentials on this machine. The stack's state contains no credentials.
    """

    reference: pulumi.Output[str]
    """Name, tag and digest, known after the push."""

    def __init__(self, name: str, args: TrainerImageArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("trainyard:infra:TrainerImage", name, None, opts)
        config = args.config
        tag = "-".join(filter(None, (config.git_branch.replace("/", "-"), args.variant)))
        variant = BUILTIN_IMAGES.get(args.variant)
        dockerfile = CONTEXT / (variant.dockerfile if variant else "trainer/Dockerfile")
        # The PyTorch/XLA project publishes only x86-64 packages, and only x86-64 machines have GPUs without CUDA 13.
        platforms = X86_64_ONLY if variant else config.platforms
        prepare_context()
        image = docker.Image(
            f"{name}-build",
            tags=[pulumi.Output.concat(args.name, f":{tag}")],
            context=docker.BuildContextArgs(location=_location(CONTEXT)),
            dockerfile=docker.DockerfileArgs(location=_location(dockerfile)),
            build_args={
                "BASE_IMAGE": f"docker.io/library/python:{config.python_version}-slim-bookworm",
                **(variant.arguments if variant else {}),
            },
            platforms=[docker.Platform(platform) for platform in platforms],
            push=True,
            # Without this, a preview would need Docker and a registry.
            build_on_preview=False,
            opts=pulumi.ResourceOptions(
                parent=self, custom_timeouts=pulumi.CustomTimeouts(create="120m", update="120m")
            ),
        )
        self.reference = image.ref
        self.register_outputs({"reference": self.reference})


def _location(path: Path) -> str:
    """Return a path for the builder: relative to the program's folder, so that the state holds no path of a machine.

    The program of a project outside of the checkout runs in another folder.
    """
    return str(path.relative_to(PROJECT) if project_folder() == PROJECT else path)


def trainer_images(
    name: pulumi.Input[str], config: ImageConfig, variants: frozenset[str]
) -> tuple[pulumi.Output[str], dict[str, pulumi.Input[str]]]:
    """Return the reference of the trainer image, empty if `variants` lacks it, and of the other builtin images."""
    trainer: pulumi.Output[str] = pulumi.Output.from_input("")
    if TRAINER in variants:
        trainer = TrainerImage("image", TrainerImageArgs(name=name, config=config)).reference
    others: dict[str, pulumi.Input[str]] = {
        variant: TrainerImage(f"image-{variant}", TrainerImageArgs(name=name, config=config, variant=variant)).reference
        for variant in sorted(variants - {TRAINER})
        if BUILTIN_IMAGES[variant].is_built_in_clouds
    }
    return trainer, others


def prepare_context() -> None:
    """Copy the current sources to the build context. Raises RuntimeError if set-up has not run."""
    shutil.rmtree(CONTEXT, ignore_errors=True)
    for path in trainer_sources():
        target = CONTEXT / path.relative_to(PROJECT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    copy_data(CONTEXT)
