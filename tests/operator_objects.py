"""Objects of operators in the format that set-up writes, so that tests need no downloaded release."""

from __future__ import annotations

from infra.operator_releases import RELEASES, OperatorObjects, Release, save_objects


def save_operator_objects() -> None:
    """Write objects of every operator to the cache folder. The test must have set its own cache folder."""
    for release in RELEASES.values():
        save_objects(release, objects_of(release))


def objects_of(release: Release) -> OperatorObjects:
    """Return one custom resource definition, one RBAC rule and the webhooks of an operator."""
    plural = min(release.webhooks.conversions if release.webhooks else (), default=f"{release.name}s")
    definition = {
        "metadata": {"name": f"{plural}.example.com", "annotations": {"made-by": "generator"}},
        "spec": {"group": "example.com", "names": {"plural": plural, "kind": "A"}, "scope": "Namespaced"},
    }
    webhook = {"name": "a.example.com", "clientConfig": {"service": {"name": "x", "namespace": "y", "path": "/z"}}}
    configurations = release.webhooks.configurations if release.webhooks else ()
    return OperatorObjects(
        definitions=[definition],
        rules=[{"apiGroups": ["example.com"], "resources": [plural], "verbs": ["get"]}],
        webhooks={name: [webhook] for _, name in configurations},
    )
