"""The cluster behind a simulated GKE or EKS cluster.

The rehearsal prepares it before `up`. The simulated cloud starts and stops it.
"""

from __future__ import annotations

import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from infra.local import lifecycle
from infra.local.api import FIELD_MANAGER, JSON, Client, apply
from infra.local.certificates import make_keys
from infra.local.settings import ClusterSettings
from simulation.cloud.state import Properties, changing

PROGRAM = "simulation.cluster.init"
HOST = "127.0.0.1"
NODES = "/api/v1/nodes"
REQUESTS_AT_ONCE = 16


def settings_of(state_settings: Properties) -> ClusterSettings:
    """Return the settings of the rehearsal's cluster."""
    return ClusterSettings(**state_settings["cluster"])


def prepare(folder: Path, settings: ClusterSettings) -> Properties:
    """Create the keys of the future cluster, and return the cloud settings with its address and certificate."""
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
    return {
        "endpoint": f"{HOST}:{settings.port}",
        "certificate": b64encode(authority).decode(),
        "cluster": asdict(settings),
    }


def _machines_authorities() -> bytes:
    path = Path(os.environ.get("SSL_CERT_FILE") or "/etc/ssl/certs/ca-certificates.crt")
    return path.read_bytes() if path.is_file() else b""


def start(folder: Path, cloud: str, owner: str) -> None:
    """Start the cluster for the cloud resource `owner`. A rehearsal has at most one cluster."""
    with changing(folder) as state:
        other = state.settings.get("cluster_of")
        if other in (None, owner):
            state.settings["cluster_of"] = owner
    if other not in (None, owner):
        raise RuntimeError(f"a rehearsal supports one cluster, and {other} exists: rehearse a stack with one cluster")
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
    """Stop the cluster when the cloud deletes its resource."""
    with changing(folder) as state:
        state.settings.pop("cluster_of", None)
    stop(settings_of(state.settings))


def stop(settings: ClusterSettings) -> None:
    """Stop the cluster and remove everything that it has on this machine."""
    lifecycle.stop(settings)


def set_nodes(settings: ClusterSettings, label: str, pool: str, wanted: list[dict[str, Any]]) -> None:
    """Create, update and delete nodes so that the pool has exactly the wanted nodes.

    The label's value names the pool. Several requests run at once, for large pools.
    """
    with closing(Client(settings)) as api:
        _set_nodes(api, label, pool, wanted)


def _set_nodes(api: Client, label: str, pool: str, wanted: list[dict[str, Any]]) -> None:
    existing = api.request("GET", f"{NODES}?{urlencode({'labelSelector': f'{label}={pool}'})}")["items"]
    known = {node["metadata"]["name"] for node in existing}
    names = {node["metadata"]["name"] for node in wanted}

    def bring(node: dict[str, Any]) -> None:
        if node["metadata"]["name"] not in known:
            api.request("POST", NODES, node, JSON)
            return
        plain = {key: value for key, value in node.items() if key != "status"}
        api.request("PATCH", f"{NODES}/{node['metadata']['name']}?fieldManager={FIELD_MANAGER}&force=true", plain)

    with ThreadPoolExecutor(max_workers=REQUESTS_AT_ONCE) as executor:
        list(executor.map(bring, wanted))
        list(executor.map(lambda name: api.request("DELETE", f"{NODES}/{name}"), sorted(known - names)))


def _clouds_own_objects(settings: ClusterSettings, cloud: str) -> list[tuple[str, dict[str, Any]]]:
    if cloud != "gke":
        return []
    from simulation.cluster.gke_objects import objects

    return objects(settings)
