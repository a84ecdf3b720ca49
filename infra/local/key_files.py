"""Files in a cluster's `keys` folder: certificates, keys, and the kubeconfigs built from them.

Standard library only: each `make up` checks these files, and the certificate library is slow to import.
"""

from __future__ import annotations

import json
from base64 import b64encode
from pathlib import Path

from infra.kubeconfig import one_context
from infra.local.settings import API_PORT, CONTROL_PLANE_ADDRESS, ClusterSettings

CERTIFICATES = (
    "etcd",
    "apiserver-etcd-client",
    "apiserver",
    "apiserver-kubelet-client",
    "admin",
    "controller-manager",
    "scheduler",
    "coredns",
    "kube-proxy",
)
"""Names of the certificates that do not depend on the nodes."""
CONTROL_PLANE_URL = f"https://{CONTROL_PLANE_ADDRESS}:{API_PORT}"
"""Address of the API server in the cluster's own network."""


def has_keys(settings: ClusterSettings) -> bool:
    """Return True if the cluster has every certificate and key that its programs read."""
    kubelets = [f"kubelet-{index}{role}" for index in range(settings.nodes) for role in ("", "-server")]
    files = ["ca.crt", "etcd-ca.crt", "service-account.key", "service-account.pub"]
    files += [f"{name}.{end}" for name in (*CERTIFICATES, *kubelets) for end in ("crt", "key")]
    paths = [settings.keys / file for file in files]
    return all(path.is_file() and path.stat().st_size for path in paths)


def has_kubeconfigs(settings: ClusterSettings) -> bool:
    """Return True if each kubeconfig has the content that `write_kubeconfigs` writes."""
    return all(_has_content(path, text) for path, text in _kubeconfigs(settings).items())


def write_kubeconfigs(settings: ClusterSettings) -> None:
    """Write, with mode 0600, each kubeconfig that is missing or whose address or key has changed."""
    for path, text in _kubeconfigs(settings).items():
        if not _has_content(path, text):
            write_private(path, text.encode())


def write_private(path: Path, content: bytes) -> None:
    """Write a file that only its owner can read."""
    path.touch(mode=0o600)
    path.chmod(0o600)
    path.write_bytes(content)


def _kubeconfigs(settings: ClusterSettings) -> dict[Path, str]:
    servers = {"admin": f"https://127.0.0.1:{settings.api_port}"}
    servers |= dict.fromkeys(("controller-manager", "scheduler", "coredns", "kube-proxy"), CONTROL_PLANE_URL)
    servers |= {f"kubelet-{index}": CONTROL_PLANE_URL for index in range(settings.nodes)}
    folder, context = settings.keys, settings.context
    return {folder / f"{name}.kubeconfig": kubeconfig(folder, name, context, url) for name, url in servers.items()}


def kubeconfig(folder: Path, name: str, context: str, server: str) -> str:
    """Return a kubeconfig, as JSON, that embeds the certificate `name` and its key."""

    def embedded(file: str) -> str:
        return b64encode((folder / file).read_bytes()).decode()

    cluster = {"server": server, "certificate-authority-data": embedded("ca.crt")}
    user = {"client-certificate-data": embedded(f"{name}.crt"), "client-key-data": embedded(f"{name}.key")}
    return json.dumps(one_context(context, cluster, user), indent=1)


def _has_content(path: Path, text: str) -> bool:
    return path.is_file() and path.read_bytes() == text.encode()
