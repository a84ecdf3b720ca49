"""Image builds with docker, podman or buildah, and OCI layouts of the built images (image-spec v1.1)."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import tarfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any

from infra.local.settings import cache_folder

INFO_SECONDS = 10
"""Seconds to wait for an answer from an engine's daemon."""
PULL_SECONDS = 600
LARGE_LAYER_BYTES = 50_000_000
"""Size above which `empty_large_layers` removes a layer that the image store has unpacked."""
PRIVATE_MOUNTS = ("unshare", "--mount", "--propagation", "private")
"""Command prefix that limits buildah's mounts to the lifetime of its process."""
LEFTOVER_SECONDS = 3600
"""Age in seconds after which a temporary file is a leftover of an interrupted build."""


@dataclass(frozen=True, kw_only=True)
class Build:
    """Image build."""

    reference: str
    """Name and tag of the image."""
    context: Path
    """Folder of the files for COPY."""
    dockerfile: Path
    arguments: Mapping[str, str]
    mounts: Mapping[Path, str]
    """Path on this machine -> mount point in RUN steps. The content does not become part of a layer."""


class EngineBuilder:
    """Builder for docker or podman, which accept the same commands."""

    inspect: tuple[str, ...] = ("image", "inspect")
    list_references: tuple[str, ...] = ("image", "ls", "--format", "{{.Repository}}:{{.Tag}}")
    remove_images: tuple[str, ...] = ("image", "rm")

    layers_folder: Path | None = None
    """Folder of the engine's unpacked layers, if it is on the same disk as Trainyard's image store (image_store.py) and
    only Trainyard uses it."""

    def __init__(self, *command: str) -> None:
        self.command = list(command)

    def build(self, build: Build, *options: str) -> None:
        """Build the image. Ignore `mounts`, because the engine has its own caches and certificates."""
        arguments = [word for key, value in build.arguments.items() for word in ("--build-arg", f"{key}={value}")]
        files = ["-t", build.reference, "-f", str(build.dockerfile), str(build.context)]
        _run([*self.command, "build", *options, *arguments, *files])

    def has(self, reference: str) -> bool:
        """Return True if the builder holds the image."""
        return _succeeds([*self.command, *self.inspect, reference])

    def pull(self, reference: str) -> bool:
        """Pull the image; return True on success."""
        return _succeeds([*self.command, "pull", "--quiet", reference], seconds=PULL_SECONDS)

    def images(self) -> list[str]:
        """Return the references of the images that the builder holds."""
        return _references([*self.command, *self.list_references])

    def remove(self, references: Sequence[str]) -> None:
        """Remove images, and the layers that no other image has."""
        _run([*self.command, *self.remove_images, *references])

    def write_archive(self, reference: str, target: IO[bytes]) -> None:
        """Write the image as an archive that containerd can import."""
        subprocess.run([*self.command, "save", reference], stdout=target, check=True)

    def omitted_chains(self, _reference: str) -> set[str]:
        """Return the chain ids (containerd's names) of the unpacked layers that the archive omits.

        A node needs these layers before it imports the archive. Archives of docker and podman are complete.
        """
        return set()

    def write_complete_archive(self, reference: str, target: IO[bytes]) -> None:
        """Write the image as an archive with every layer, for a node that lacks some of the omitted layers."""
        self.write_archive(reference, target)

    def forget_large_layers(self, _reference: str) -> list[str]:
        """Free the space of layers that the image store has unpacked. Return their digests.

        Docker and podman keep their layers.
        """
        return []


def layout_folder() -> Path:
    """Return the OCI layout of the images that buildah builds."""
    return cache_folder() / "images" / "layout"


class BuildahBuilder(EngineBuilder):
    """Builder for buildah, with a storage folder that only Trainyard uses."""

    inspect: tuple[str, ...] = ("inspect", "--type", "image")
    list_references: tuple[str, ...] = ("images", "--format", "{{.Name}}:{{.Tag}}")
    remove_images: tuple[str, ...] = ("rmi",)

    def __init__(self) -> None:
        images = cache_folder() / "images"
        self.layout = layout_folder()
        self.layers_folder = images / "buildah" / "overlay"
        storage = ["--root", str(images / "buildah"), "--runroot", str(images / "buildah-run")]
        # `build` removes old leftovers here. In buildah's default folder, /var/tmp, layers of several GB would stay.
        self.temporary = images / "buildah-tmp"
        environment = ["env", f"TMPDIR={self.temporary}"]
        super().__init__(*PRIVATE_MOUNTS, *environment, "buildah", "--storage-driver", "overlay", *storage)
        self.temporary.mkdir(parents=True, exist_ok=True)

    def build(self, build: Build, *options: str) -> None:
        """Build the image with cached layers. RUN steps run in a chroot, which needs no privileges beyond root."""
        mounts = [word for source, target in build.mounts.items() for word in ("--volume", f"{source}:{target}:rw")]
        # Remove the leftovers of an interrupted build. No other build uses this storage at the same time.
        _run([*self.command, "rm", "--all"])
        for leftover in self.temporary.iterdir():
            if leftover.stat().st_mtime < time.time() - LEFTOVER_SECONDS:
                shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink()
        super().build(build, "--isolation", "chroot", "--layers", *mounts, *options)

    def write_archive(self, reference: str, target: IO[bytes]) -> None:
        """Write the image as an archive, without the large layers that new nodes already have."""
        self._ensure_layout(reference)
        write_archive(self.layout, reference, target)

    def omitted_chains(self, reference: str) -> set[str]:
        self._ensure_layout(reference)
        return omitted_chains(self.layout, reference)

    def write_complete_archive(self, reference: str, target: IO[bytes]) -> None:
        with TemporaryDirectory(dir=self.layout.parent) as folder:
            self._push(reference, Path(folder))
            write_archive(Path(folder), reference, target)

    def forget_large_layers(self, reference: str) -> list[str]:
        return empty_large_layers(self.layout, reference)

    def _ensure_layout(self, reference: str) -> None:
        if not has_image(self.layout, reference):
            self._push(reference, self.layout)

    def _push(self, reference: str, layout: Path) -> None:
        compression = ["--compression-format", "zstd", "--compression-level", "1"]
        _run([*self.command, "push", "--quiet", *compression, reference, f"oci:{layout}:{reference}"])


def find_builder() -> EngineBuilder:
    """Return the first of docker, podman and buildah that works here.

    Raises RuntimeError, with all three names, if none works.
    """
    for program in ("docker", "podman"):
        if shutil.which(program) and _succeeds([program, "info"], seconds=INFO_SECONDS):
            return EngineBuilder(program)
    if shutil.which("buildah"):
        return BuildahBuilder()
    raise RuntimeError(
        "no tool can build images here; start Docker, or install podman or buildah (Debian package `buildah`)"
    )


def _run(command: list[str]) -> None:
    """Run a command. If the command fails, raises RuntimeError with the end of the command's output."""
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if result.returncode != 0:
        program = "buildah" if "buildah" in command else command[0]
        raise RuntimeError(f"{program} failed with {result.returncode}:\n{result.stdout[-3000:]}")


def _references(command: list[str]) -> list[str]:
    """Return the references in a listing of images, without unnamed images, which are intermediate build steps."""
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    return [line for line in result.stdout.split() if "<none>" not in line]


def _succeeds(command: list[str], *, seconds: float = 60) -> bool:
    """Return True if a command succeeds in time. Ignore its output."""
    try:
        result = subprocess.run(command, capture_output=True, check=False, timeout=seconds, env=os.environ)
    except (subprocess.TimeoutExpired, FileNotFoundError):
        return False
    return result.returncode == 0


def blob(layout: Path, digest: str) -> Path:
    """Return the path of the blob `digest` (`sha256:<hex>`)."""
    algorithm, _, value = digest.partition(":")
    return layout / "blobs" / algorithm / value


def manifest_of(layout: Path, reference: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the descriptor and manifest of the image `reference`. Raises KeyError if the layout lacks the image."""
    index = json.loads((layout / "index.json").read_text(encoding="utf-8"))
    for descriptor in index["manifests"]:
        if descriptor.get("annotations", {}).get("org.opencontainers.image.ref.name") == reference:
            manifest: dict[str, Any] = json.loads(blob(layout, descriptor["digest"]).read_text(encoding="utf-8"))
            return descriptor, manifest
    raise KeyError(f"no image {reference} in {layout}")


def _layers(layout: Path, reference: str) -> list[tuple[dict[str, Any], str]]:
    """Return the descriptor of each layer of an image, and the digest of its uncompressed content."""
    _, manifest = manifest_of(layout, reference)
    config = json.loads(blob(layout, manifest["config"]["digest"]).read_text(encoding="utf-8"))
    return list(zip(manifest["layers"], config["rootfs"]["diff_ids"], strict=True))


def has_image(layout: Path, reference: str) -> bool:
    """Return True if the layout has the image `reference`."""
    try:
        manifest_of(layout, reference)
    except (KeyError, FileNotFoundError):
        return False
    return True


def unpacked_layers(layout: Path) -> list[str]:
    """Return the digests of the large layers that the image store has unpacked. New nodes start with these layers."""
    try:
        return list(json.loads((layout / "unpacked.json").read_text(encoding="utf-8")))
    except FileNotFoundError:
        return []


def empty_large_layers(layout: Path, reference: str) -> list[str]:
    """Remove the image's large layers, which the image store must have unpacked. Return the newly removed digests.

    A sparse file of the same size, without content, replaces each layer. The file's name is the digest of the layer's
    uncompressed content. The tool that writes the layout (containers/image, `TryReusingBlob`) first looks for that
    name. If the file exists, the next image's manifest refers to it, and the tool does not write the layer again.
    """
    unpacked = unpacked_layers(layout)
    large = {
        layer["digest"]: (content, layer["size"])
        for layer, content in _layers(layout, reference)
        if layer["size"] > LARGE_LAYER_BYTES and layer["digest"] != content
    }
    now_unpacked = dict.fromkeys([*unpacked, *large, *(content for content, _ in large.values())])
    write_json(layout / "unpacked.json", list(now_unpacked))
    for digest, (content, size) in large.items():
        blob(layout, content).touch()
        os.truncate(blob(layout, content), size)
        blob(layout, digest).unlink(missing_ok=True)
    return [digest for digest in large if digest not in unpacked]


def prune_layout(layout: Path, stored: Iterable[str]) -> None:
    """Remove every image except `stored` from the layout, and the blobs that only removed images use.

    A removed image's large layers are empty files here, and the image store may also lack these layers. If the empty
    files stayed, a new build of the image would not write the layers again.
    """
    images = {reference: manifest_of(layout, reference) for reference in stored if has_image(layout, reference)}
    used = set()
    for reference, (descriptor, manifest) in images.items():
        used |= {descriptor["digest"], manifest["config"]["digest"]}
        used |= {digest for layer, content in _layers(layout, reference) for digest in (layer["digest"], content)}
    if (layout / "index.json").exists():
        index = json.loads((layout / "index.json").read_text(encoding="utf-8"))
        write_json(layout / "index.json", {**index, "manifests": [descriptor for descriptor, _ in images.values()]})
        write_json(layout / "unpacked.json", [digest for digest in unpacked_layers(layout) if digest in used])
    for path in layout.glob("blobs/*/*"):
        if f"{path.parent.name}:{path.name}" not in used:
            path.unlink()


def omitted_chains(layout: Path, reference: str) -> set[str]:
    """Return the chain ids (containerd's names) of the unpacked layers that the image's archive omits.

    Rule: https://github.com/opencontainers/image-spec/blob/v1.1.0/config.md#layer-chainid
    """
    unpacked = set(unpacked_layers(layout))
    chains, chain = set(), ""
    for layer, content in _layers(layout, reference):
        chain = f"sha256:{hashlib.sha256(f'{chain} {content}'.encode()).hexdigest()}" if chain else content
        if layer["digest"] in unpacked:
            chains.add(chain)
    return chains


def write_archive(layout: Path, reference: str, target: IO[bytes]) -> None:
    """Write the image as an OCI archive without the large layers that the image store has unpacked."""
    descriptor, manifest = manifest_of(layout, reference)
    digests = [descriptor["digest"], manifest["config"]["digest"], *(layer["digest"] for layer in manifest["layers"])]
    entry = {**descriptor, "annotations": {"io.containerd.image.name": reference}}
    index = {"schemaVersion": 2, "manifests": [entry]}
    unpacked = set(unpacked_layers(layout))
    with tarfile.open(fileobj=target, mode="w|") as archive:
        add_file(archive, "oci-layout", b'{"imageLayoutVersion": "1.0.0"}')
        add_file(archive, "index.json", json.dumps(index).encode())
        for digest in dict.fromkeys(digests):
            if digest not in unpacked:
                path = blob(layout, digest)
                archive.add(path, arcname=str(path.relative_to(layout)))


def write_json(path: Path, value: Any) -> None:
    """Write a file in one step, so that a full disk or a crash leaves the old content."""
    draft = path.with_suffix(".new")
    draft.write_text(json.dumps(value), encoding="utf-8")
    draft.replace(path)


def add_file(archive: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    """Add a file to an archive. Its entry depends only on the arguments."""
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    entry.mode = mode
    archive.addfile(entry, BytesIO(content))
