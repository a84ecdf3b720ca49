"""TrainerImage: the trainer image, built with buildx and pushed to a cloud. LayerImage: an image with a job's layer."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import pulumi
import pulumi_docker_build as docker

from infra.builtin_images import BUILTIN_IMAGES, TRAINER, JobLayer
from infra.cloud import ImageConfig, ImagePlatform
from infra.local.trainer_image import copy_data, trainer_sources, write_context
from infra.project import CHECKOUT, project_folder

CONTEXT = CHECKOUT / ".trainyard" / "image"
"""Build context. It contains only the trainer's sources and the data."""
LAYER_CONTEXTS = CHECKOUT / ".trainyard" / "layers"
"""Folder of the build contexts of the images with jobs' layers."""

X86_64_ONLY: tuple[ImagePlatform, ...] = ("linux/amd64",)


@dataclass(frozen=True, kw_only=True)
class TrainerImageArgs:
    """Inputs of `TrainerImage`."""

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
        tag = _tag(config, args.variant)
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


@dataclass(frozen=True, kw_only=True)
class LayerImageArgs:
    """Inputs of `LayerImage`."""

    name: pulumi.Input[str]
    """Name of the image with its registry, without a tag."""
    config: ImageConfig
    """Settings."""
    layer: JobLayer
    """Packages and source files, and the image below them."""
    base: pulumi.Input[str]
    """Reference of the image below."""


class LayerImage(pulumi.ComponentResource):
    """Image with a job's layer, referenced by its digest. Its tag has the digests of the layer's content."""

    reference: pulumi.Output[str]
    """Name, tag and digest, known after the push."""

    def __init__(self, name: str, args: LayerImageArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("trainyard:infra:LayerImage", name, None, opts)
        context = LAYER_CONTEXTS / args.layer.name
        write_context(args.layer, context)
        platforms = args.config.platforms if args.layer.base == TRAINER else X86_64_ONLY
        image = docker.Image(
            f"{name}-build",
            tags=[pulumi.Output.concat(args.name, f":{_tag(args.config, args.layer.name)}")],
            context=docker.BuildContextArgs(location=_location(context)),
            dockerfile=docker.DockerfileArgs(location=_location(context / "Dockerfile")),
            build_args={"BASE_IMAGE": args.base},
            platforms=[docker.Platform(platform) for platform in platforms],
            push=True,
            build_on_preview=False,
            opts=pulumi.ResourceOptions(parent=self, custom_timeouts=pulumi.CustomTimeouts(create="60m", update="60m")),
        )
        self.reference = image.ref
        self.register_outputs({"reference": self.reference})


def _tag(config: ImageConfig, variant: str) -> str:
    return "-".join(filter(None, (config.git_branch.replace("/", "-"), variant)))


def _location(path: Path) -> str:
    """Return a path for the builder, relative to the checkout if the program runs there.

    Pulumi's state then does not contain this machine's paths.
    """
    return str(path.relative_to(CHECKOUT) if project_folder() == CHECKOUT else path)


def trainer_images(
    name: pulumi.Input[str],
    config: ImageConfig,
    variants: frozenset[str],
    layers: frozenset[JobLayer] = frozenset(),
) -> tuple[pulumi.Output[str], dict[str, pulumi.Input[str]]]:
    """Return the reference of the trainer image, empty if `variants` lacks it, and of the other images by name."""
    trainer: pulumi.Output[str] = pulumi.Output.from_input("")
    if TRAINER in variants:
        trainer = TrainerImage("image", TrainerImageArgs(name=name, config=config)).reference
    others: dict[str, pulumi.Input[str]] = {
        variant: TrainerImage(f"image-{variant}", TrainerImageArgs(name=name, config=config, variant=variant)).reference
        for variant in sorted(variants - {TRAINER})
        if BUILTIN_IMAGES[variant].is_built_in_clouds
    }
    for layer in sorted(layers, key=lambda layer: layer.name):
        base = trainer if layer.base == TRAINER else others[layer.base]
        args = LayerImageArgs(name=name, config=config, layer=layer, base=base)
        others[layer.name] = LayerImage(f"image-{layer.name}", args).reference
    return trainer, others


def prepare_context() -> None:
    """Copy the current sources to the build context. Raises RuntimeError if set-up has not run."""
    shutil.rmtree(CONTEXT, ignore_errors=True)
    for path in trainer_sources():
        target = CONTEXT / path.relative_to(CHECKOUT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    copy_data(CONTEXT)
