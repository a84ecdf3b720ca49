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
CHANGED_IN_PLACE = ("nodes", "port")
"""Settings of which a change restarts the cluster with its data; a change of another one replaces it."""


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
        """Report changed inputs, a cluster that does not run, a lost kubeconfig and, as a replacement, lost data."""
        replaces = [key for key in SETTINGS if key not in CHANGED_IN_PLACE and olds[key] != news[key]]
        settings = settings_of(news)
        if not replaces and lifecycle.identity(settings) != olds["uid"]:
            replaces.append("uid")
        changed = any(olds[key] != news[key] for key in CHANGED_IN_PLACE)
        is_whole = lifecycle.is_running(settings) and has_kubeconfigs(settings)
        return dynamic.DiffResult(
            changes=bool(replaces) or changed or not is_whole,
            replaces=replaces,
            delete_before_replace=True,
        )

    def read(self, id_: str, props: Properties) -> dynamic.ReadResult:
        """Return the cluster as it is; one whose data is gone does not exist any more."""
        settings = settings_of(props)
        if lifecycle.identity(settings) != props.get("uid"):
            return dynamic.ReadResult("", {})
        return dynamic.ReadResult(id_, outputs(props, settings))

    def delete(self, _id: str, props: Properties) -> None:
        """Stop the cluster and remove everything of it."""
        lifecycle.stop(settings_of(props))

    def _bring_up(self, props: Properties) -> Properties:
        settings = settings_of(props)
        inputs = {key: props[key] for key in SETTINGS}
        lifecycle.start(settings, say, check=Engine().check)
        return outputs(inputs, settings)


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
