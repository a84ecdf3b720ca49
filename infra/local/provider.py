"""LocalCluster component, and its dynamic resources: the cluster's processes, and the images on its nodes.

The images are a separate resource, because the outputs of a changed resource are unknown in a preview. If images were
inputs of the processes, a preview of new images would show a new cluster with new objects.

The providers have no state. The engine stores their inputs and outputs.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, fields
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pulumi
from pulumi import dynamic

from infra.builtin_images import LOCAL_PREFIX
from infra.local import leftovers, lifecycle
from infra.local.components import in_node
from infra.local.image_store import is_program, run_with_archive, stored_writer
from infra.local.key_files import has_kubeconfigs
from infra.local.settings import ClusterSettings
from infra.make_command import make_command
from infra.project import project_folder

NodeImage = tuple[int, str]
"""Index of a node, and reference of an image."""
Properties = dict[str, Any]
"""Inputs or outputs of a resource."""

SETTINGS = tuple(each.name for each in fields(ClusterSettings))
"""Names of the inputs that contain the cluster's settings."""
CHANGED_IN_PLACE = ("name", "nodes", "port")
"""Settings whose change restarts the cluster and keeps its data."""


def settings_of(properties: Properties) -> ClusterSettings:
    """Return the settings in a resource's inputs. Pulumi passes all numbers as floats."""
    numbers = {key: int(properties[key]) for key in ("nodes", "port")}
    return ClusterSettings(**{key: properties[key] for key in SETTINGS} | numbers)


def outputs(properties: Properties, settings: ClusterSettings) -> Properties:
    """Return the resource's outputs. If the kubeconfig file is missing, use the text in the state."""
    kubeconfig = properties.get("kubeconfig", "")
    if settings.kubeconfig.exists():
        kubeconfig = settings.kubeconfig.read_text(encoding="utf-8")
    return {
        **properties,
        "uid": lifecycle.identity(settings) or "",
        "kubeconfig": kubeconfig,
        "kubeconfig_path": str(settings.kubeconfig),
        "bucket_path": str(settings.bucket),
        "node_names": list(settings.node_names),
    }


def print_progress(text: str) -> None:
    """Print one line of progress. The engine shows a provider's output."""
    print(f"local cluster: {text}", flush=True)


class LocalClusterProvider(dynamic.ResourceProvider):
    """Dynamic provider that makes a cluster on this machine match its inputs."""

    def create(self, props: Properties) -> dynamic.CreateResult:
        """Start the cluster, or keep a cluster that an interrupted `up` left running."""
        return dynamic.CreateResult(f"local/{props['name']}", self._start(props))

    def update(self, _id: str, _olds: Properties, news: Properties) -> dynamic.UpdateResult:
        """Restart a cluster with dead parts or changed settings. Keep its data."""
        return dynamic.UpdateResult(self._start(news))

    def diff(self, _id: str, olds: Properties, news: Properties) -> dynamic.DiffResult:
        """Report a change if inputs changed, the cluster does not run, or a kubeconfig is missing or outdated.

        Raises RuntimeError for a cluster that another stack owns or that has lost its data. The engine cannot replace
        such a cluster, because the engine closes the Kubernetes provider before it deletes the provider's objects
        (https://github.com/pulumi/pulumi/issues/14650).
        """
        settings = settings_of(news)
        if problem := lost_cluster(settings, olds):
            raise RuntimeError(problem)
        changed = any(olds[key] != news[key] for key in CHANGED_IN_PLACE)
        is_complete = lifecycle.is_running(settings) and has_kubeconfigs(settings)
        return dynamic.DiffResult(changes=changed or not is_complete, replaces=[], delete_before_replace=True)

    def read(self, id_: str, props: Properties) -> dynamic.ReadResult:
        """Return the current cluster. A cluster that lost its data no longer exists.

        Raises RuntimeError if the cluster is in another cache folder.
        """
        settings = settings_of(props)
        if problem := lifecycle.other_cache_problem(settings, props):
            raise RuntimeError(problem)
        if lifecycle.identity(settings) != props.get("uid"):
            return dynamic.ReadResult("", {})
        return dynamic.ReadResult(id_, outputs(props, settings))

    def delete(self, _id: str, props: Properties) -> None:
        """Stop the cluster and remove its data. Keep the cluster if another existing project folder owns it.

        Raises RuntimeError if the cluster is in another cache folder.
        """
        settings = settings_of(props)
        if problem := lifecycle.other_cache_problem(settings, props):
            raise RuntimeError(problem)
        if settings.owner == str(project_folder()) or not Path(settings.owner).is_dir():
            lifecycle.stop(settings)

    def _start(self, props: Properties) -> Properties:
        settings = settings_of(props)
        inputs = {key: props[key] for key in SETTINGS}
        lifecycle.start(settings, print_progress, check=Engine().check)
        return outputs(inputs, settings)


def lost_cluster(settings: ClusterSettings, state: Properties) -> str:
    """Return an error with a remedy if the cluster in a stack's state cannot start again, else an empty string."""
    owner, stack = state["owner"], state["stack"]
    if (owner, stack) != (settings.owner, settings.stack):
        is_copy = Path(owner).is_dir()
        effect = "removes that cluster from this state" if is_copy else "deletes that cluster with its checkpoints"
        return (
            f"the state of stack {settings.stack} contains the cluster of stack {stack} in {owner}; move this folder "
            f"back there, or run {make_command('down', STACK=settings.stack)} here, which {effect}"
        )
    if problem := lifecycle.other_cache_problem(settings, state):
        return problem
    if lifecycle.identity(settings) != state["uid"]:
        up = make_command("up", STACK=stack)
        return (
            f"the data of the cluster of stack {stack} is gone from {settings.folder}; run {up}, "
            "which removes the cluster from the state and starts a new one"
        )
    return ""


class Engine:
    """Nearest ancestor process of this provider that is named `pulumi`."""

    def __init__(self) -> None:
        self._pid = engine_above(os.getpid())

    def check(self) -> None:
        """Raise RuntimeError if the engine has ended, because its state would lack processes that start now."""
        if self._pid is None or engine_above(os.getpid()) != self._pid:
            raise RuntimeError("the `pulumi` process of this cluster has ended; no further process was started")


def engine_above(pid: int) -> int | None:
    """Return the id of the nearest process named `pulumi` among `pid` and its ancestors, or None."""
    while pid > 1:
        try:
            name, _, rest = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").partition("(")[2].rpartition(")")
        except OSError:
            return None
        if name == "pulumi":
            return pid
        pid = int(rest.split()[1])
    return None


def missing_images(settings: ClusterSettings, references: Sequence[str]) -> list[NodeImage]:
    """Return the locally built images among `references` that nodes lack. A stopped node lacks all.

    The result is ordered by image, because the store keeps only a few job layers. In the order of nodes,
    `load_images` could build each layer once per node.
    """
    local_references = [reference for reference in references if reference.startswith(LOCAL_PREFIX)]
    with ThreadPoolExecutor() as pool:
        images_of_nodes = list(pool.map(partial(_images_of_node, settings), range(settings.nodes)))
    return [
        (index, reference)
        for reference in local_references
        for index, images in enumerate(images_of_nodes)
        if reference not in images
    ]


def load_images(
    settings: ClusterSettings,
    references: Sequence[str],
    progress: Callable[[str], None],
    job_layers: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
) -> None:
    """Load each locally built image into each node that lacks it.

    `job_layers` maps the reference of an image with a job's layer to the inputs of that layer.
    """
    from infra.local.trainer_image import build_layer, ensure_stored, layer_of_inputs

    for index, reference in missing_images(settings, references):
        layers = partial(_layers_of_node, settings, index)
        build = partial(build_layer, layer_of_inputs(job_layers[reference])) if reference in job_layers else None
        write = stored_writer(reference) if is_program(reference) else ensure_stored(reference, progress, layers, build)
        progress(f"loading {reference} into {settings.node_names[index]}")
        run_with_archive([*_in_node(settings, index), "images", "import", "-"], reference, write)


def remove_images(settings: ClusterSettings, references: Collection[str]) -> None:
    """Remove images from the nodes. Running containers continue, because each has its own snapshot."""
    for index in range(settings.nodes):
        if found := sorted(_images_of_node(settings, index) & {*references}):
            subprocess.run([*_in_node(settings, index), "images", "remove", *found], capture_output=True, check=True)


def _images_of_node(settings: ClusterSettings, index: int) -> set[str]:
    """Return the references of a node's images. A node that does not run has none."""
    if leftovers.node_process(settings.folder, index) is None:
        return set()
    command = [*_in_node(settings, index), "images", "list", "-q"]
    # If the container runtime does not answer, the output is empty, so the node counts as lacking all images.
    return set(subprocess.run(command, capture_output=True, text=True, check=False).stdout.split())


def _layers_of_node(settings: ClusterSettings, index: int) -> set[str]:
    """Return the chain ids (containerd's names) of the layers that a node has unpacked."""
    command = [*_in_node(settings, index), "snapshots", "list"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    return {words[0] for line in lines if (words := line.split())}


def _in_node(settings: ClusterSettings, index: int) -> list[str]:
    """Return the beginning of a `ctr` command in the node."""
    process = leftovers.node_process(settings.folder, index)
    if process is None:
        raise RuntimeError(f"node {settings.node_names[index]} does not run; run {make_command('up')}")
    enter = ["nsenter", "--target", str(process), "--mount", "--pid"]
    return [*enter, in_node("ctr"), "--namespace", "k8s.io"]


class NodeImagesProvider(dynamic.ResourceProvider):
    """Dynamic provider that loads locally built images into every node of a running cluster."""

    def create(self, props: Properties) -> dynamic.CreateResult:
        """Load the images that nodes lack."""
        return dynamic.CreateResult(f"local/{props['name']}/images", self._load(props))

    def update(self, _id: str, olds: Properties, news: Properties) -> dynamic.UpdateResult:
        """Load the images that nodes lack. Remove earlier images of jobs to free their disk space."""
        from infra.local.trainer_image import LAYER_REPOSITORY

        loaded = self._load(news)
        if old := [each for each in {*olds["images"]} - {*news["images"]} if each.startswith(f"{LAYER_REPOSITORY}:")]:
            remove_images(settings_of(news), old)
        return dynamic.UpdateResult(loaded)

    def diff(self, _id: str, olds: Properties, news: Properties) -> dynamic.DiffResult:
        """Report changed references, and images that a node lacks."""
        changed = any(olds[key] != news[key] for key in (*SETTINGS, "images"))
        return dynamic.DiffResult(changes=changed or bool(missing_images(settings_of(news), news["images"])))

    def _load(self, props: Properties) -> Properties:
        from infra.local.trainer_image import LayerError

        try:
            load_images(settings_of(props), props["images"], print_progress, props.get("layers", {}))
        except LayerError as error:
            # Without this, Pulumi prints a traceback, which hides the one-sentence message for the user.
            sys.tracebacklimit = 0
            raise RuntimeError(str(error)) from None
        return props


OUTPUTS = ("kubeconfig", "kubeconfig_path", "uid", "bucket_path", "node_names")


class _ClusterProcesses(dynamic.Resource):
    """Processes of the cluster, started and stopped by LocalClusterProvider."""

    uid: pulumi.Output[str]
    kubeconfig: pulumi.Output[str]
    kubeconfig_path: pulumi.Output[str]
    bucket_path: pulumi.Output[str]
    node_names: pulumi.Output[list[str]]

    def __init__(self, name: str, props: dict[str, Any], opts: pulumi.ResourceOptions) -> None:
        super().__init__(LocalClusterProvider(), name, {**props, **dict.fromkeys(OUTPUTS)}, opts)


class _NodeImages(dynamic.Resource):
    """Images of the nodes, loaded by NodeImagesProvider."""

    def __init__(self, name: str, props: dict[str, Any], opts: pulumi.ResourceOptions) -> None:
        super().__init__(NodeImagesProvider(), name, props, opts)


class LocalCluster(pulumi.ComponentResource):
    """Kubernetes cluster on this machine. Each node has its own network namespace, kubelet and containerd."""

    kubeconfig: pulumi.Output[str]
    """Kubeconfig of the administrator (secret)."""
    kubeconfig_path: pulumi.Output[str]
    """Path of the same kubeconfig on this machine, readable only by its owner."""
    uid: pulumi.Output[str]
    """Id of the cluster's data. It changes only after a loss of all data."""
    bucket_path: pulumi.Output[str]
    """Folder of this machine that pods mount as their bucket."""
    node_names: pulumi.Output[list[str]]
    """Names of the nodes in order."""
    processes: dynamic.Resource
    """Resource whose deletion ends everything in the cluster. Pass it as `deleted_with`."""
    images: dynamic.Resource
    """Resource that exists once every node has its images. Resources that start pods depend on it."""

    def __init__(
        self,
        name: str,
        *,
        settings: ClusterSettings,
        images: pulumi.Input[Sequence[str]] = (),
        layers: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        """Start the cluster, and load `images` into every node.

        `layers` maps the reference of an image with a job's layer to the inputs of that layer, from `layer_inputs`.
        """
        super().__init__("trainyard:local:LocalCluster", name, None, opts)
        processes = _ClusterProcesses(
            f"{name}-processes",
            asdict(settings),
            pulumi.ResourceOptions(
                parent=self,
                additional_secret_outputs=["kubeconfig"],
                custom_timeouts=pulumi.CustomTimeouts(create="15m", update="15m", delete="5m"),
            ),
        )
        self.processes = processes
        self.images = _NodeImages(
            f"{name}-images",
            {**asdict(settings), "images": images, **({"layers": layers} if layers else {})},
            pulumi.ResourceOptions(
                parent=self,
                depends_on=[processes],
                deleted_with=processes,
                custom_timeouts=pulumi.CustomTimeouts(create="15m", update="15m"),
            ),
        )
        self.kubeconfig = processes.kubeconfig
        self.kubeconfig_path = processes.kubeconfig_path
        self.uid = processes.uid
        self.bucket_path = processes.bucket_path
        self.node_names = processes.node_names
        self.register_outputs({key: getattr(self, key) for key in OUTPUTS})
