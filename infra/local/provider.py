"""The local cluster as two dynamic Pulumi resources: its processes, and the images that its nodes have.

A resource that changes has no known outputs in a preview. Were the images an input of the processes, every edit of the
trainer would preview as a new cluster with everything in it.

The providers keep no state of its own: everything it must remember is in the inputs and outputs that the engine keeps.
"""

from __future__ import annotations

from typing import Any

from pulumi import dynamic

from infra.local import lifecycle
from infra.local.node_images import load_images, missing_images
from infra.local.settings import ClusterSettings

Properties = dict[str, Any]

CREDENTIAL_KEYS = ("nodes", "port")
"""A change of these makes new certificates, hence a new kubeconfig."""


def settings_of(properties: Properties) -> ClusterSettings:
    """The settings in a resource's inputs (numbers arrive as floats)."""
    return ClusterSettings(
        name=properties["name"],
        nodes=int(properties["nodes"]),
        port=int(properties["port"]),
        owner=properties["owner"],
    )


def outputs(properties: Properties, settings: ClusterSettings) -> Properties:
    """The resource's outputs while the cluster runs."""
    return {
        **properties,
        "uid": lifecycle.identity(settings) or "",
        "kubeconfig": settings.kubeconfig.read_text(encoding="utf-8"),
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
        """Start the cluster, or adopt the one that an interrupted `up` left running."""
        return dynamic.CreateResult(f"local/{props['name']}", self._bring_up(props))

    def update(self, _id: str, _olds: Properties, news: Properties) -> dynamic.UpdateResult:
        """Restart what died, or restart the cluster with other nodes or another port; its data is kept."""
        return dynamic.UpdateResult(self._bring_up(news))

    def diff(self, _id: str, olds: Properties, news: Properties) -> dynamic.DiffResult:
        """Besides changed inputs, a cluster that does not run is a change, and lost data is a replacement."""
        replaces = [key for key in ("name", "owner") if olds[key] != news[key]]
        settings = settings_of(news)
        if not replaces and lifecycle.identity(settings) != olds["uid"]:
            replaces.append("uid")
        changed = any(olds[key] != news[key] for key in CREDENTIAL_KEYS)
        return dynamic.DiffResult(
            changes=bool(replaces) or changed or not lifecycle.is_running(settings),
            replaces=replaces,
            delete_before_replace=True,
        )

    def read(self, id_: str, props: Properties) -> dynamic.ReadResult:
        """The cluster as it is; one whose data is gone does not exist any more."""
        settings = settings_of(props)
        if lifecycle.identity(settings) != props.get("uid"):
            return dynamic.ReadResult("", {})
        return dynamic.ReadResult(id_, outputs(props, settings))

    def delete(self, _id: str, props: Properties) -> None:
        """Stop the cluster and remove everything of it."""
        lifecycle.stop(settings_of(props))

    def _bring_up(self, props: Properties) -> Properties:
        settings = settings_of(props)
        inputs = {key: props[key] for key in ("name", "nodes", "port", "owner")}
        lifecycle.start(settings, say)
        return outputs(inputs, settings)


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
        inputs = ("name", "nodes", "port", "owner", "images")
        changed = any(olds[key] != news[key] for key in inputs)
        return dynamic.DiffResult(changes=changed or bool(missing_images(settings_of(news), news["images"])))

    def _load(self, props: Properties) -> Properties:
        load_images(settings_of(props), props["images"], say)
        return props
