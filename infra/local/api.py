"""Requests to the local cluster's API server with the administrator's certificate; just what starting it needs."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from http import HTTPStatus
from typing import Any

from infra.local.settings import ClusterSettings

FIELD_MANAGER = "trainyard-local"
APPLY, MERGE = "application/apply-patch+yaml", "application/merge-patch+json"
STRATEGIC_MERGE = "application/strategic-merge-patch+json"


class ApiUnavailable(RuntimeError):
    """The API server does not answer (yet), or answers that it cannot serve."""


class NotFound(ApiUnavailable):
    """There is no such object (any more)."""


def request(
    settings: ClusterSettings,
    method: str,
    path: str,
    body: dict[str, Any] | None = None,
    content: str = APPLY,
    *,
    server: str = "",
) -> Any:
    """The decoded answer to one request; raises ApiUnavailable where there is none, and for any refusal.

    `server` is where the API server answers inside the cluster's network, for who asks from there.
    """
    context = ssl.create_default_context(cafile=str(settings.keys / "ca.crt"))
    context.load_cert_chain(settings.keys / "admin.crt", settings.keys / "admin.key")
    call = urllib.request.Request(
        f"{server or f'https://127.0.0.1:{settings.open_port}'}{path}",
        method=method,
        data=json.dumps(body).encode() if body is not None else None,
        headers={"Content-Type": content, "Accept": "application/json"},
    )
    try:
        with urllib.request.urlopen(call, timeout=10, context=context) as reply:
            text = reply.read()
    except urllib.error.HTTPError as error:
        kind = NotFound if error.code == HTTPStatus.NOT_FOUND else ApiUnavailable
        raise kind(f"{method} {path}: {error.code} {error.read().decode(errors='replace')[:300]}") from error
    except (urllib.error.URLError, OSError) as error:
        raise ApiUnavailable(f"{method} {path}: {error}") from error
    return json.loads(text) if text.startswith(b"{") else text.decode()


def apply(settings: ClusterSettings, path: str, body: dict[str, Any]) -> None:
    """Create or correct one object by server-side apply; `path` is its address."""
    request(settings, "PATCH", f"{path}?fieldManager={FIELD_MANAGER}&force=true", body)


def annotate(settings: ClusterSettings, path: str, annotations: dict[str, str]) -> None:
    """Annotate the object at `path`; raises NotFound where there is none, which an `apply` would try to create."""
    request(settings, "PATCH", path, {"metadata": {"annotations": annotations}}, MERGE)


def ready_nodes(settings: ClusterSettings) -> set[str]:
    """Names of the nodes whose Ready condition is true."""
    nodes = request(settings, "GET", "/api/v1/nodes")["items"]
    return {
        node["metadata"]["name"]
        for node in nodes
        for condition in node["status"].get("conditions", [])
        if condition["type"] == "Ready" and condition["status"] == "True"
    }
