"""The manifests in a YAML text, as ConfigFile and ConfigGroup ask for them."""

from typing import Any

import yaml

from setup.stand_ins.kubernetes.discovery import Discovery
from setup.stand_ins.kubernetes.objects import Object, kind_of, metadata_of, set_metadata

BASE: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class ManifestLoader(BASE):  # type: ignore[misc]  # the C loader where PyYAML has it, which types cannot say
    """YAML as Kubernetes reads it: a date is a string."""


ManifestLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in BASE.yaml_implicit_resolvers.items()
}


def decode(text: str, default_namespace: str, discovery: Discovery) -> list[Object]:
    """Every manifest of the text; those of namespaced kinds that name no namespace get the default one.

    Raises yaml.YAMLError, or ValueError for a document that is no manifest.
    """
    manifests = []
    for document in yaml.load_all(text, Loader=ManifestLoader):
        if document is None:
            continue
        if not isinstance(document, dict):
            raise ValueError(f"expected a Kubernetes manifest, found {type(document).__name__}: {str(document)[:80]!r}")
        if not document.get("kind") or not document.get("apiVersion"):
            continue
        if (
            default_namespace
            and not metadata_of(document).get("namespace")
            and discovery.is_namespaced(kind_of(document))
        ):
            set_metadata(document, "namespace", default_namespace)
        manifests.append(document)
    return manifests
