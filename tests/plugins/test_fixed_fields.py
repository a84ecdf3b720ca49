"""The Kubernetes plugin replaces an object if one of `FIXED_FIELDS` changes, as previews assume."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

from commands.review.plan import FIXED_FIELDS, IDENTITY
from commands.review.plugin import Plugin, Properties, started
from commands.review.recorded import Record
from setup.pulumi_cli import installed_kubernetes_plugin
from tests.plugins.api_server import ApiServer

VALUES: Mapping[str, Sequence[Any]] = {
    "binaryData": ({"a": "eA=="}, {"a": "eQ=="}),
    "data": ({"a": "eA=="}, {"a": "eQ=="}),
    "metadata.labels": ({"a": "x"}, {"a": "y"}),
    "metadata.name": ("one", "two"),
    "metadata.namespace": ("one", "two"),
    "parameters": ({"a": "x"}, {"a": "y"}),
    "provisioner": ("x", "y"),
    "roleRef": tuple({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name} for name in "xy"),
    "spec.accessModes": (["ReadWriteOnce"], ["ReadWriteMany"]),
    "spec.clusterIP": ("10.0.0.1", "10.0.0.2"),
    "spec.completions": (1, 2),
    "spec.csi": tuple({"driver": "d", "volumeHandle": name} for name in "xy"),
    "spec.fc": ({"wwids": ["x"]}, {"wwids": ["y"]}),
    "spec.hostPath": ({"path": "/x"}, {"path": "/y"}),
    "spec.iscsi": tuple({"targetPortal": "p", "iqn": name, "lun": 0} for name in "xy"),
    "spec.local": ({"path": "/x"}, {"path": "/y"}),
    "spec.nfs": tuple({"server": name, "path": "/"} for name in "xy"),
    "spec.parallelism": (1, 2),
    "spec.scopes": (["BestEffort"], ["NotBestEffort"]),
    "spec.selector": ({"matchLabels": {"a": "x"}}, {"matchLabels": {"a": "y"}}),
    "spec.storageClassName": ("x", "y"),
    "spec.template": tuple({"spec": {"containers": [{"name": "c", "image": name}]}} for name in "xy"),
    "spec.volumeName": ("x", "y"),
    "stringData": ({"a": "x"}, {"a": "y"}),
    "type": ("x", "y"),
}
"""Path of a field -> two different values."""
CLUSTER_SCOPED = ("ClusterRoleBinding", "PersistentVolume", "StorageClass")


@pytest.fixture(scope="module")
def plugin(api_server: ApiServer) -> Iterator[Plugin]:
    """Yield the plugin that stacks use, configured for the test's API server."""
    program = installed_kubernetes_plugin()
    assert program, "the Kubernetes plugin is missing; run `make setup`"
    with started(program) as found:
        found.configure("kubernetes", {"kubeconfig": str(api_server.kubeconfig)})
        yield found


def manifest(kind: tuple[str, str], path: str, value: Any) -> Properties:
    """Return an object with a name and one field."""
    found: Properties = {"apiVersion": kind[0], "kind": kind[1], "metadata": {"name": "one"}}
    section = found
    *parents, last = path.split(".")
    for each in parents:
        section = section.setdefault(each, {})
    section[last] = value
    return found


def is_replaced(plugin: Plugin, kind: tuple[str, str], path: str) -> bool:
    """Return True if the plugin replaces an object when this field changes."""
    before, after = (manifest(kind, path, value) for value in VALUES[path])
    group = kind[0] if "/" in kind[0] else f"core/{kind[0]}"
    record = Record(f"kubernetes:{group}:{kind[1]}", "x", after, outputs={"id": "one"})
    found = plugin.diff(record, {"__inputs": before, **before}, before, after)
    assert found.changes == found.DIFF_SOME, f"the plugin sees no change of {path}"
    return bool(found.replaces)


@pytest.mark.parametrize("kind", FIXED_FIELDS, ids=lambda kind: kind[1])
def test_fixed_field_replaces_the_object_and_a_label_does_not(plugin: Plugin, kind: tuple[str, str]) -> None:
    identity = IDENTITY[:1] if kind[1] in CLUSTER_SCOPED else IDENTITY
    kept = [path for path in (*identity, *FIXED_FIELDS[kind]) if not is_replaced(plugin, kind, path)]
    assert kept == []
    assert not is_replaced(plugin, kind, "metadata.labels")
