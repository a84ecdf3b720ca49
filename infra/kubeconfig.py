"""Kubeconfigs: their content, files and contexts, and the temporary folder of Pulumi's Kubernetes provider."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

PROVIDER_TMPDIR = "TRAINYARD_PROVIDER_TMPDIR"
"""Environment variable with the folder for temporary files of Pulumi's Kubernetes provider.

The provider writes the kubeconfig of each cluster into a temporary file and does not remove it.
"""
PROVIDER_ENVIRONMENT = {PROVIDER_TMPDIR: "TMPDIR"}
"""`env_var_mappings` of each Kubernetes provider. Other processes of an update keep their own TMPDIR."""


def one_context(name: str, cluster: dict[str, Any], user: dict[str, Any]) -> dict[str, Any]:
    """Return a kubeconfig with one cluster, one user and one context, all with the same name."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [{"name": name, "user": user}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "current-context": name,
    }


def kubeconfig_files(path: str | None) -> list[Path]:
    """Return the files that kubectl reads: `path` if given, else the files in `$KUBECONFIG`, else `~/.kube/config`.

    Rule: https://kubernetes.io/docs/concepts/configuration/organize-cluster-access-kubeconfig/
    """
    names = [path] if path else (os.environ.get("KUBECONFIG") or "~/.kube/config").split(os.pathsep)
    return [Path(name).expanduser() for name in names if name]


def contexts(files: list[Path]) -> list[str]:
    """Return the contexts of the existing files. Raises ValueError if a file is unreadable or not a kubeconfig."""
    # Import here: only existing clusters need it.
    import yaml

    names: list[str] = []
    for file in files:
        if not file.is_file():
            continue
        try:
            content = yaml.safe_load(file.read_text(encoding="utf-8"))
            names += [str(context["name"]) for context in content["contexts"] or ()]
        except OSError as error:
            remedy = "let this user read it, or set platform.kubeconfig to another file"
            raise ValueError(f"{file} cannot be read ({error.strerror}); {remedy}") from error
        except (yaml.YAMLError, TypeError, KeyError, UnicodeDecodeError) as error:
            raise ValueError(
                f"{file} is not a kubeconfig; repair it, or set platform.kubeconfig to another file"
            ) from error
    return names
