"""Makes sure that every running node has the images its pods ask for."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence

from infra.local import traces
from infra.local.image_store import RUNTIME_SOCKET, run_with_archive
from infra.local.program_image import is_program, stored_writer
from infra.local.settings import ClusterSettings

OURS = "trainyard.local/"
"""Images that are built here; all others are the runtime's to pull."""


def load_images(settings: ClusterSettings, references: Sequence[str], progress: Callable[[str], None]) -> None:
    """Load each image that was built here into each node that lacks it."""
    from infra.local.trainer_image import ensure_stored

    for reference in references:
        if not reference.startswith(OURS):
            continue
        write = stored_writer(reference) if is_program(reference) else ensure_stored(reference, progress)
        for index, node in enumerate(settings.node_names):
            command = _in_node(settings, index)
            listed = subprocess.run([*command, "images", "list", "-q"], capture_output=True, text=True, check=True)
            if reference in listed.stdout.split():
                continue
            progress(f"loading {reference} into {node}")
            run_with_archive([*command, "images", "import", "-"], reference, write)


def _in_node(settings: ClusterSettings, index: int) -> list[str]:
    """The start of a command that speaks to the node's container runtime."""
    process = traces.node_process(settings.folder, index)
    if process is None:
        raise RuntimeError(f"node {settings.node_names[index]} does not run: `make up` starts it")
    enter = ["nsenter", "--target", str(process), "--mount", "--pid"]
    return [*enter, "ctr", "--address", RUNTIME_SOCKET, "--namespace", "k8s.io"]
