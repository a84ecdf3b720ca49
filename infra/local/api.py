"""Requests to the local cluster's API server, and the objects that every local cluster has from its start."""

from __future__ import annotations

import json
import ssl
import threading
from http import HTTPStatus
from http.client import HTTPException, HTTPSConnection
from typing import Any
from urllib.parse import urlsplit

from infra.local.settings import CONTROL_PLANE_ADDRESS, DNS_SERVICE_ADDRESS, ClusterSettings

ANSWER_SECONDS = 10
"""Seconds to wait for an answer from the server."""
FIELD_MANAGER = "trainyard-local"
APPLY_PATCH, MERGE_PATCH = "application/apply-patch+yaml", "application/merge-patch+json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"
JSON = "application/json"


class ApiUnavailable(RuntimeError):
    """The API server does not answer, or answers with an error."""


class NotFound(ApiUnavailable):
    """The object does not exist."""


class Client:
    """API client with one connection per thread. The constructor reads the administrator's certificate and key."""

    def __init__(self, settings: ClusterSettings, *, server: str = "") -> None:
        """Configure connections to the URL `server`, by default the cluster's port on this machine."""
        self._address = urlsplit(server or f"https://127.0.0.1:{settings.api_port}").netloc
        self._context = ssl.create_default_context(cafile=str(settings.keys / "ca.crt"))
        self._context.load_cert_chain(settings.keys / "admin.crt", settings.keys / "admin.key")
        self._thread = threading.local()
        self._opened: list[HTTPSConnection] = []

    def request(
        self, method: str, path: str, body: dict[str, Any] | None = None, content_type: str = APPLY_PATCH
    ) -> Any:
        """Send one request and return the decoded response.

        Raises ApiUnavailable if the server reports an error or does not answer, and NotFound for status 404.
        """
        text = json.dumps(body).encode() if body is not None else None
        headers = {"Accept": JSON} | ({"Content-Type": content_type} if text else {})
        was_open = hasattr(self._thread, "connection")
        try:
            try:
                status, answer = self._send(method, path, text, headers)
            except ConnectionError:
                # The server closes idle connections, so try once more with a new connection.
                if not was_open:
                    raise
                status, answer = self._send(method, path, text, headers)
        except (HTTPException, OSError) as error:
            raise ApiUnavailable(f"{method} {path}: {error}") from error
        if status >= HTTPStatus.BAD_REQUEST:
            kind = NotFound if status == HTTPStatus.NOT_FOUND else ApiUnavailable
            raise kind(f"{method} {path}: {status} {answer.decode(errors='replace')[:300]}")
        return json.loads(answer) if answer.startswith(b"{") else answer.decode()

    def _send(self, method: str, path: str, text: bytes | None, headers: dict[str, str]) -> tuple[int, bytes]:
        if not hasattr(self._thread, "connection"):
            connection = HTTPSConnection(self._address, timeout=ANSWER_SECONDS, context=self._context)
            self._thread.connection = connection
            self._opened.append(connection)
        try:
            self._thread.connection.request(method, path, text, headers)
            with self._thread.connection.getresponse() as reply:
                return reply.status, reply.read()
        except BaseException:
            # Close the connection so that the next request opens a new one.
            self._thread.connection.close()
            raise

    def close(self) -> None:
        """Close the connections of all threads."""
        for connection in self._opened:
            connection.close()


def request(
    settings: ClusterSettings,
    method: str,
    path: str,
    body: dict[str, Any] | None = None,
    content_type: str = APPLY_PATCH,
    *,
    server: str = "",
) -> Any:
    """Send one request over a separate connection; see `Client`."""
    client = Client(settings, server=server)
    try:
        return client.request(method, path, body, content_type)
    finally:
        client.close()


def apply(settings: ClusterSettings, path: str, body: dict[str, Any]) -> None:
    """Create or update the object at `path` by server-side apply."""
    request(settings, "PATCH", f"{path}?fieldManager={FIELD_MANAGER}&force=true", body)


def annotate(settings: ClusterSettings, path: str, annotations: dict[str, str]) -> None:
    """Annotate the object at `path`. Raises NotFound for a missing object, which `apply` would try to create."""
    request(settings, "PATCH", path, {"metadata": {"annotations": annotations}}, MERGE_PATCH)


def ready_nodes(settings: ClusterSettings) -> set[str]:
    """Return the names of the nodes whose Ready condition is true."""
    nodes = request(settings, "GET", "/api/v1/nodes")["items"]
    return {
        node["metadata"]["name"]
        for node in nodes
        for condition in node["status"].get("conditions", [])
        if condition["type"] == "Ready" and condition["status"] == "True"
    }


Objects = list[tuple[str, dict[str, Any]]]


def base_objects() -> Objects:
    """Return the path and the body of each object that a cluster needs from its start."""
    return [*_dns_permissions(), *_dns_service()]


def _dns_permissions() -> Objects:
    name = "trainyard:coredns"
    group = "rbac.authorization.k8s.io"
    version = f"{group}/v1"
    watch = ["list", "watch"]
    role = {
        "apiVersion": version,
        "kind": "ClusterRole",
        "metadata": {"name": name},
        "rules": [
            {"apiGroups": [""], "resources": ["services", "namespaces"], "verbs": watch},
            {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": watch},
        ],
    }
    binding = {
        "apiVersion": version,
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": name},
        "subjects": [{"apiGroup": group, "kind": "User", "name": name}],
    }
    return [(f"/apis/{version}/clusterroles/{name}", role), (f"/apis/{version}/clusterrolebindings/{name}", binding)]


def _dns_service() -> Objects:
    metadata = {"name": "kube-dns", "namespace": "kube-system", "labels": {"k8s-app": "kube-dns"}}
    ports = [("dns", "UDP"), ("dns-tcp", "TCP")]
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata,
        "spec": {
            "clusterIP": DNS_SERVICE_ADDRESS,
            "ports": [{"name": name, "port": 53, "protocol": protocol} for name, protocol in ports],
        },
    }
    endpoints = {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": "kube-dns",
            "namespace": "kube-system",
            "labels": {"kubernetes.io/service-name": "kube-dns"},
        },
        "addressType": "IPv4",
        "endpoints": [{"addresses": [CONTROL_PLANE_ADDRESS], "conditions": {"ready": True}}],
        "ports": [{"name": name, "port": 53, "protocol": protocol} for name, protocol in ports],
    }
    return [
        ("/api/v1/namespaces/kube-system/services/kube-dns", service),
        ("/apis/discovery.k8s.io/v1/namespaces/kube-system/endpointslices/kube-dns", endpoints),
    ]
