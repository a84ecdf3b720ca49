"""The local cluster as two dynamic Pulumi resources: its processes, and the images that its nodes have.

A resource that changes has no known outputs in a preview. Were the images an input of the processes, every edit of the
trainer would preview as a new cluster with everything in it.

The providers keep no state of its own: everything it must remember is in the inputs and outputs that the engine keeps.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from pulumi import dynamic

from infra.local import lifecycle
from infra.local.key_files import has_kubeconfigs
from infra.local.node_images import load_images, missing_images
from infra.local.settings import ClusterSettings

Properties = dict[str, Any]

SETTINGS = ("owner", "stack", "name", "nodes", "port")
"""Inputs that are the cluster's settings."""
CHANGED_IN_PLACE = ("name", "nodes", "port")
"""Settings of which a change restarts the cluster with its data."""


def settings_of(properties: Properties) -> ClusterSettings:
    """Return the settings in a resource's inputs (numbers arrive as floats)."""
    return ClusterSettings(
        owner=properties["owner"],
        stack=properties["stack"],
        name=properties["name"],
        nodes=int(properties["nodes"]),
        port=int(properties["port"]),
    )


def outputs(properties: Properties, settings: ClusterSettings) -> Properties:
    """Return the resource's outputs; a kubeconfig that is missing is in them as it was last known."""
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


def say(text: str) -> None:
    """Show one line of progress: the engine shows what a provider prints."""
    print(f"local cluster: {text}", flush=True)


class LocalClusterProvider(dynamic.ResourceProvider):
    """Brings a cluster on this machine to what its inputs say."""

    def create(self, props: Properties) -> dynamic.CreateResult:
        """Start the cluster, or keep the one that an interrupted `up` left running."""
        return dynamic.CreateResult(f"local/{props['name']}", self._bring_up(props))

    def update(self, _id: str, _olds: Properties, news: Properties) -> dynamic.UpdateResult:
        """Restart what died, or restart the cluster with other nodes or another port; its data is kept."""
        return dynamic.UpdateResult(self._bring_up(news))

    def diff(self, _id: str, olds: Properties, news: Properties) -> dynamic.DiffResult:
        """Report changed inputs, a cluster that does not run and a lost kubeconfig.

        Raises RuntimeError for a cluster that is not this stack's or has lost its data. The engine cannot replace it:
        it closes the Kubernetes provider before the deletions that need it (https://github.com/pulumi/pulumi/issues/14650).
        """
        settings = settings_of(news)
        if problem := lost_cluster(settings, olds):
            raise RuntimeError(problem)
        changed = any(olds[key] != news[key] for key in CHANGED_IN_PLACE)
        is_whole = lifecycle.is_running(settings) and has_kubeconfigs(settings)
        return dynamic.DiffResult(changes=changed or not is_whole, replaces=[], delete_before_replace=True)

    def read(self, id_: str, props: Properties) -> dynamic.ReadResult:
        """Return the cluster as it is; one whose data is gone does not exist any more."""
        settings = settings_of(props)
        if lifecycle.identity(settings) != props.get("uid"):
            return dynamic.ReadResult("", {})
        return dynamic.ReadResult(id_, outputs(props, settings))

    def delete(self, _id: str, props: Properties) -> None:
        """Stop the cluster and remove everything of it; the cluster of another checkout that exists is left alone."""
        if props["owner"] == str(lifecycle.PROJECT) or not Path(props["owner"]).is_dir():
            lifecycle.stop(settings_of(props))

    def _bring_up(self, props: Properties) -> Properties:
        settings = settings_of(props)
        inputs = {key: props[key] for key in SETTINGS}
        lifecycle.start(settings, say, check=Engine().check)
        return outputs(inputs, settings)


def lost_cluster(settings: ClusterSettings, known: Properties) -> str:
    """Return why the cluster that a state knows cannot be brought up again, and what to do; empty if it can."""
    owner, stack = known["owner"], known["stack"]
    if (owner, stack) != (settings.owner, settings.stack):
        return (
            f"the state of stack {settings.stack} has the cluster of stack {stack} in {owner}: move the checkout back "
            f"there, or run `make down STACK={settings.stack}` here, which removes it from this state"
        )
    if lifecycle.identity(settings) != known["uid"]:
        return (
            f"the data of the cluster of stack {stack} is gone from {settings.folder}: "
            f"`make up STACK={stack}` removes what the state has of it and starts a new one"
        )
    return ""


class Engine:
    """The `pulumi` that this provider works for."""

    def __init__(self) -> None:
        self._pid = engine_above(os.getpid())

    def check(self) -> None:
        """Raise RuntimeError if the engine ended: no later command would know of what starts now."""
        if self._pid is None or engine_above(os.getpid()) != self._pid:
            raise RuntimeError("the `pulumi` that asked for this cluster has ended; nothing more is started")


def engine_above(pid: int) -> int | None:
    """Return the id of the nearest `pulumi` above a process; None if it was started by none, or that ended."""
    while pid > 1:
        try:
            name, _, rest = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").partition("(")[2].rpartition(")")
        except OSError:
            return None
        if name == "pulumi":
            return pid
        pid = int(rest.split()[1])
    return None


class NodeImagesProvider(dynamic.ResourceProvider):
    """Loads images that were built here into every node of a running cluster; they go with the cluster."""

    def create(self, props: Properties) -> dynamic.CreateResult:
        """Load what nodes lack."""
        return dynamic.CreateResult(f"local/{props['name']}/images", self._load(props))

    def update(self, _id: str, _olds: Properties, news: Properties) -> dynamic.UpdateResult:
        """Load what nodes lack."""
        return dynamic.UpdateResult(self._load(news))

    def diff(self, _id: str, olds: Properties, news: Properties) -> dynamic.DiffResult:
        """Besides other references, an image that a node lacks is a change."""
        changed = any(olds[key] != news[key] for key in (*SETTINGS, "images"))
        return dynamic.DiffResult(changes=changed or bool(missing_images(settings_of(news), news["images"])))

    def _load(self, props: Properties) -> Properties:
        load_images(settings_of(props), props["images"], say)
        return props
