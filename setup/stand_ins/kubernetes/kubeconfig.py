"""A kubeconfig, given as text or path or found where kubectl finds it, and the cluster and user it makes active."""

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml


class KubeconfigError(Exception):
    """The kubeconfig cannot be used; the message says what is wrong with it."""


@dataclass(frozen=True)
class Access:
    """One way into one cluster: the entries of a kubeconfig as they stand there, files resolved to full paths."""

    cluster: dict[str, Any]
    user: dict[str, Any] = field(repr=False)
    namespace: str


def parse(path_or_text: str) -> dict[str, Any]:
    """Read a kubeconfig from the path, if it is one, or from the text itself (YAML or JSON)."""
    path = Path(path_or_text).expanduser()
    folder = Path()
    text = path_or_text
    if len(path_or_text) < 4096 and "\n" not in path_or_text and path.is_file():  # a longer text is no path
        text, folder = path.read_text(), path.parent
    try:
        config = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError as error:
        raise KubeconfigError(f"it is neither a file nor YAML: {error}") from error
    if not isinstance(config, dict):
        raise KubeconfigError("it is neither a file nor the content of a kubeconfig")
    return _resolve_files(config, folder)


def ambient() -> dict[str, Any]:
    """Merge the files of $KUBECONFIG, or read ~/.kube/config; of two entries with one name the first counts."""
    names = [name for name in os.environ.get("KUBECONFIG", "").split(os.pathsep) if name]
    paths = [Path(name) for name in names] or [Path.home() / ".kube" / "config"]
    merged: dict[str, Any] = {"clusters": [], "users": [], "contexts": []}
    for path in paths:
        if not path.is_file():
            continue
        config = parse(str(path))
        merged.setdefault("current-context", config.get("current-context") or None)
        if merged["current-context"] is None:
            del merged["current-context"]
        for section in ("clusters", "users", "contexts"):
            merged[section] += config.get(section) or []
    return merged


def active(config: dict[str, Any], *, context: str = "", cluster: str = "") -> Access:
    """The cluster and user of the named context, or of the current one; `cluster` overrides the context's."""
    context = context or config.get("current-context") or ""
    chosen = _entry(config, "contexts", "context", context)
    if not context or chosen is None:
        known = ", ".join(sorted(entry["name"] for entry in config.get("contexts") or [])) or "none"
        raise KubeconfigError(f"context {context!r} does not exist; it has: {known}")
    cluster_name = cluster or chosen.get("cluster", "")
    found = _entry(config, "clusters", "cluster", cluster_name)
    if found is None or not found.get("server"):
        raise KubeconfigError(f"cluster {cluster_name!r} of context {context!r} has no server")
    user = _entry(config, "users", "user", chosen.get("user", "")) or {}
    return Access(cluster=found, user=user, namespace=chosen.get("namespace") or "default")


def _entry(config: dict[str, Any], section: str, key: str, name: str) -> dict[str, Any] | None:
    for entry in config.get(section) or []:
        if entry.get("name") == name:
            return entry.get(key) or {}
    return None


def _resolve_files(config: dict[str, Any], folder: Path) -> dict[str, Any]:
    for section, key in (("clusters", "cluster"), ("users", "user")):
        for entry in config.get(section) or []:
            values = entry.get(key) or {}
            for name in ("certificate-authority", "client-certificate", "client-key", "tokenFile"):
                if values.get(name):
                    values[name] = str(folder / values[name])
    return config
