"""Kubernetes objects that every local cluster starts with: its DNS service and the DNS server's permissions."""

from __future__ import annotations

from typing import Any

from infra.local.settings import CONTROL_PLANE_ADDRESS, DNS_SERVICE_ADDRESS

Objects = list[tuple[str, dict[str, Any]]]


def base_objects() -> Objects:
    """Return the path and body of each object."""
    return [*_dns_rights(), *_dns_service()]


def _dns_rights() -> Objects:
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    name = "trainyard:coredns"
    version = "rbac.authorization.k8s.io/v1"
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
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name}],
    }
    return [(f"{rbac}/clusterroles/{name}", role), (f"{rbac}/clusterrolebindings/{name}", binding)]


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
