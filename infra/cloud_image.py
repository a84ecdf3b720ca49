"""Images of a cloud: TrainerImage and LayerImage are built with buildx and pushed. CloudImages: those that jobs use."""

from __future__ import annotations

from pathlib import Path

import pulumi
import pulumi_docker_build as docker

from infra.builtin_images import BUILTIN_IMAGES, TRAINER, JobLayer
from infra.cloud import ImageConfig, ImagePlatform
from infra.local.trainer_image import trainer_sources, write_context, write_image_context
from infra.project import CHECKOUT, project_folder

CONTEXT = CHECKOUT / ".trainyard" / "image"
"""Build context. It contains only the trainer's sources and the data."""
LAYER_CONTEXTS = CHECKOUT / ".trainyard" / "layers"
"""Folder of the build contexts of the images with jobs' layers."""

X86_64_ONLY: tuple[ImagePlatform, ...] = ("linux/amd64",)


class TrainerImage(pulumi.ComponentResource):
    """Trainer image for every architecture in the settings, referenced by its digest.

    If `variant` is the name of another builtin image, build that image for x86-64 only, with a separate tag.
    The push uses Docker's credentials on this machine. The stack's state contains no credentials.
    """

    reference: pulumi.Output[str]
    """Name, tag and digest, known after the push."""

    def __init__(
        self,
        name: str,
        *,
        repository: pulumi.Input[str],
        config: ImageConfig,
        variant: str = "",
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__("trainyard:infra:TrainerImage", name, None, opts)
        builtin = BUILTIN_IMAGES.get(variant)
        dockerfile = CONTEXT / (builtin.dockerfile if builtin else "trainer/Dockerfile")
        # All machine types in Trainyard's tables are x86-64, and PyTorch/XLA has packages only for x86-64.
        platforms = X86_64_ONLY if builtin else config.platforms
        prepare_context()
        image = docker.Image(
            f"{name}-build",
            tags=[pulumi.Output.concat(repository, f":{config.tag}-{variant}" if variant else f":{config.tag}")],
            context=docker.BuildContextArgs(location=_location(CONTEXT)),
            dockerfile=docker.DockerfileArgs(location=_location(dockerfile)),
            build_args={
                "BASE_IMAGE": f"docker.io/library/python:{config.python_version}-slim-bookworm",
                **(builtin.arguments if builtin else {}),
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


class LayerImage(pulumi.ComponentResource):
    """Image with a job's layer, referenced by the image's digest. The tag has the digests of the layer's content."""

    reference: pulumi.Output[str]
    """Name, tag and digest, known after the push."""

    def __init__(
        self,
        name: str,
        *,
        repository: pulumi.Input[str],
        config: ImageConfig,
        layer: JobLayer,
        base: pulumi.Input[str],
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__("trainyard:infra:LayerImage", name, None, opts)
        context = LAYER_CONTEXTS / layer.name
        write_context(layer, context)
        platforms = config.platforms if layer.base == TRAINER else X86_64_ONLY
        image = docker.Image(
            f"{name}-build",
            tags=[pulumi.Output.concat(repository, f":{config.tag}-{layer.name}")],
            context=docker.BuildContextArgs(location=_location(context)),
            dockerfile=docker.DockerfileArgs(location=_location(context / "Dockerfile")),
            build_args={"BASE_IMAGE": base},
            platforms=[docker.Platform(platform) for platform in platforms],
            push=True,
            build_on_preview=False,
            opts=pulumi.ResourceOptions(parent=self, custom_timeouts=pulumi.CustomTimeouts(create="60m", update="60m")),
        )
        self.reference = image.ref
        self.register_outputs({"reference": self.reference})


def _location(path: Path) -> str:
    """Return a path for the builder, relative to the checkout if the program runs there.

    Pulumi's state then does not contain this machine's paths.
    """
    return str(path.relative_to(CHECKOUT) if project_folder() == CHECKOUT else path)


class CloudImages:
    """Images of a stack's jobs: the prebuilt image, or images that the stack builds and pushes to the repository."""

    def __init__(self, repository: pulumi.Input[str], config: ImageConfig) -> None:
        self._repository = repository
        self._config = config
        self._references: dict[str | JobLayer, pulumi.Output[str]] = {}

    def reference(self, image: str | JobLayer) -> pulumi.Input[str]:
        """Return the reference of a builtin image, or of the image with a job's layer.

        The first call for an image declares its build.
        """
        if self._config.prebuilt:
            return self._config.prebuilt
        if image in self._references:
            return self._references[image]
        built: TrainerImage | LayerImage
        if isinstance(image, JobLayer):
            base = self.reference(image.base)
            name = f"image-{image.name}"
            built = LayerImage(name, repository=self._repository, config=self._config, layer=image, base=base)
        else:
            variant = "" if image == TRAINER else image
            name = f"image-{variant}" if variant else "image"
            built = TrainerImage(name, repository=self._repository, config=self._config, variant=variant)
        self._references[image] = built.reference
        return built.reference


def prepare_context() -> None:
    """Write the build context. Raises RuntimeError if set-up has not run."""
    write_image_context(trainer_sources(), CONTEXT)
