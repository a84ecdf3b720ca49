"""The cluster behind a simulated GKE or EKS cluster: prepared before the run, started and ended by the cloud."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

from infra.local import lifecycle
from infra.local.api import apply, request
from infra.local.certificates import make_keys
from infra.local.settings import ClusterSettings
from rehearsal.cloud.state import Properties, changing

PROGRAM = "rehearsal.cluster.inside"
HOST = "127.0.0.1"


def settings_of(state_settings: Properties) -> ClusterSettings:
    """The settings of the rehearsal's cluster."""
    return ClusterSettings(**state_settings["cluster"])


def prepare(folder: Path, settings: ClusterSettings) -> Properties:
    """Make the keys of the cluster that is to come, and say what the cloud tells of it: address and certificate."""
    from base64 import b64encode

    lifecycle.stop(settings)
    settings.folder.mkdir(mode=0o700, parents=True)
    make_keys(settings)
    kept = folder / "keys"
    if kept.exists():
        shutil.rmtree(kept)
    shutil.copytree(settings.keys, kept)
    lifecycle.stop(settings)
    authority = (kept / "ca.crt").read_bytes()
    (folder / "authorities.pem").write_bytes(authority + _machines_authorities())
    cluster = {"name": settings.name, "nodes": 0, "port": settings.port, "owner": settings.owner}
    return {
        "endpoint": f"{HOST}:{settings.port}",
        "certificate": b64encode(authority).decode(),
        "cluster": cluster,
    }


def _machines_authorities() -> bytes:
    path = Path(os.environ.get("SSL_CERT_FILE") or "/etc/ssl/certs/ca-certificates.crt")
    return path.read_bytes() if path.is_file() else b""


def start(folder: Path, cloud: str, owner: str) -> None:
    """Start the cluster for the cloud's resource `owner`; a rehearsal has one at a time."""
    with changing(folder) as state:
        other = state.settings.get("cluster_of")
        if other in (None, owner):
            state.settings["cluster_of"] = owner
    if other not in (None, owner):
        raise RuntimeError(f"a rehearsal has one cluster, and {other} is it: rehearse a stack with one cluster")
    settings = settings_of(state.settings)
    if other == owner and lifecycle.is_running(settings):
        return
    settings.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not settings.keys.exists():
        shutil.copytree(folder / "keys", settings.keys)
    settings.save()
    (settings.folder / "cloud").write_text(cloud, encoding="ascii")
    uid = settings.folder / "uid"
    if not uid.exists():
        uid.write_text(os.urandom(16).hex(), encoding="ascii")
    lifecycle.start(settings, lambda _text: None, program=PROGRAM)
    for path, body in _clouds_own_objects(settings, cloud):
        apply(settings, path, body)


def delete(folder: Path) -> None:
    """End the cluster because the cloud's resource goes."""
    with changing(folder) as state:
        state.settings.pop("cluster_of", None)
    stop(settings_of(state.settings))


def stop(settings: ClusterSettings) -> None:
    """End the cluster and all that it has on this machine."""
    lifecycle.stop(settings)


def set_nodes(settings: ClusterSettings, label: str, pool: str, wanted: list[dict[str, Any]]) -> None:
    """Have just these nodes in the pool that the label's value names."""
    existing = request(settings, "GET", f"/api/v1/nodes?labelSelector={label}%3D{pool}")["items"]
    names = {node["metadata"]["name"] for node in wanted}
    for node in existing:
        if node["metadata"]["name"] not in names:
            request(settings, "DELETE", f"/api/v1/nodes/{node['metadata']['name']}")
    known = {node["metadata"]["name"] for node in existing}
    for node in wanted:
        path = f"/api/v1/nodes/{node['metadata']['name']}"
        plain = {key: value for key, value in node.items() if key != "status"}
        apply(settings, path, plain)
        if node["metadata"]["name"] not in known:
            status = {key: node[key] for key in ("apiVersion", "kind")}
            status |= {"metadata": {"name": node["metadata"]["name"]}, "status": node["status"]}
            apply(settings, f"{path}/status", status)


def _clouds_own_objects(settings: ClusterSettings, cloud: str) -> list[tuple[str, dict[str, Any]]]:
    if cloud != "gke":
        return []
    from rehearsal.cluster.gke_objects import objects

    return objects(settings)
