"""Images of running nodes that were built here: find those that nodes lack, and load them."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from infra.image.builtin_images import BUILT_HERE
from infra.local import leftovers
from infra.local.components import in_node
from infra.local.image_store import run_with_archive
from infra.local.program_image import is_program, stored_writer
from infra.local.settings import ClusterSettings
from infra.make_command import make_command

Missing = list[tuple[int, str]]
"""Index of a node and reference of an image that it lacks, as pairs."""


def missing_images(settings: ClusterSettings, references: Sequence[str]) -> Missing:
    """Return the images among `references` that were built here and that nodes lack. A stopped node lacks all."""
    wanted = [reference for reference in references if reference.startswith(BUILT_HERE)]
    with ThreadPoolExecutor() as pool:
        present = pool.map(partial(_images, settings), range(settings.nodes))
    return [(index, reference) for index, there in enumerate(present) for reference in wanted if reference not in there]


def load_images(settings: ClusterSettings, references: Sequence[str], progress: Callable[[str], None]) -> None:
    """Load each image that was built here into each node that lacks it."""
    from infra.local.trainer_image import ensure_stored

    for index, reference in missing_images(settings, references):
        layers = partial(_layers, settings, index)
        write = stored_writer(reference) if is_program(reference) else ensure_stored(reference, progress, layers)
        progress(f"loading {reference} into {settings.node_names[index]}")
        run_with_archive([*_in_node(settings, index), "images", "import", "-"], reference, write)


def _images(settings: ClusterSettings, index: int) -> set[str]:
    if leftovers.node_process(settings.folder, index) is None:
        return set()
    command = [*_in_node(settings, index), "images", "list", "-q"]
    # A container runtime that does not answer prints an empty list, so its node counts as lacking all images.
    return set(subprocess.run(command, capture_output=True, text=True, check=False).stdout.split())


def _layers(settings: ClusterSettings, index: int) -> set[str]:
    """Return the chain ids (containerd's names) of the layers that a node has unpacked."""
    command = [*_in_node(settings, index), "snapshots", "list"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    return {words[0] for line in lines if (words := line.split())}


def _in_node(settings: ClusterSettings, index: int) -> list[str]:
    """Return the prefix of a command that talks to the node's container runtime."""
    process = leftovers.node_process(settings.folder, index)
    if process is None:
        raise RuntimeError(f"node {settings.node_names[index]} does not run: {make_command('up')} starts it")
    enter = ["nsenter", "--target", str(process), "--mount", "--pid"]
    return [*enter, in_node("ctr"), "--namespace", "k8s.io"]
