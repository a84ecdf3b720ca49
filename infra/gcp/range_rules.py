"""Validation of a GKE platform's address ranges, with sources. No Pulumi."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Network
from itertools import combinations

from infra.authorized_networks import open_to_all
from infra.gcp.config import GkeConfig
from infra.gcp.pools import num_nodes
from settings.problem import Problem

DOCKER_BRIDGE = IPv4Network("172.17.0.0/16")
ADDRESSES_OF_A_SYSTEM_NODE = 256
"""Pod addresses of a node with up to 110 pods."""
ADDRESSES_OF_A_NODE = 64
"""Pod addresses of a node with up to 32 pods:
https://cloud.google.com/kubernetes-engine/docs/how-to/flexible-pod-cidr"""


def range_problems(config: GkeConfig) -> Iterator[Problem]:
    """Check sizes and overlaps: https://cloud.google.com/kubernetes-engine/docs/concepts/alias-ips#cluster_sizing"""
    ranges = {key: IPv4Network(value) for key, value in config.network.model_dump().items()}
    for one, other in combinations(ranges, 2):
        if ranges[one].overlaps(ranges[other]):
            message = f"overlaps network.{one}, {ranges[one]}; write ranges that do not overlap"
            yield Problem("gke.network.overlap", ("platform", "network", other), message, str(ranges[other]))
    for key, network in ranges.items():
        if not network.is_private:
            message = "is not for private use (RFC 1918); write a range in 10.0.0.0/8, 172.16.0.0/12 or 192.168.0.0/16"
            yield Problem("gke.network.public", ("platform", "network", key), message, str(network))
    for key, length in (("control_plane", 28), ("accelerators", 16)):
        if ranges[key].prefixlen != length:
            yield Problem(
                "gke.network.fixed_size", ("platform", "network", key), f"must be a /{length}", str(ranges[key])
            )
    yield from _reserved(ranges)
    yield from _room(config, ranges)
    yield from open_to_all(config.authorized_networks)


def _reserved(ranges: dict[str, IPv4Network]) -> Iterator[Problem]:
    """Check ranges that GKE reserves.

    https://cloud.google.com/kubernetes-engine/docs/concepts/alias-ips#defaults_limits
    """
    for key, network in ranges.items():
        if network.overlaps(DOCKER_BRIDGE):
            message = f"overlaps {DOCKER_BRIDGE}, the container bridge of every node; write another range"
            yield Problem("gke.network.docker_bridge", ("platform", "network", key), message, str(network))
    for key, (shortest, longest) in {"services": (16, 27), "pods": (9, 24)}.items():
        if not shortest <= ranges[key].prefixlen <= longest:
            message = f"must be a /{shortest} to /{longest}"
            yield Problem("gke.network.size", ("platform", "network", key), message, str(ranges[key]))


def _room(config: GkeConfig, ranges: dict[str, IPv4Network]) -> Iterator[Problem]:
    """Check that the ranges fit all nodes: https://cloud.google.com/kubernetes-engine/docs/how-to/flexible-pod-cidr"""
    try:
        jobs = sum(num_nodes(pool) for pool in config.pools)
    except ValueError:
        return
    system = config.system_pool.max_nodes
    # Google reserves four addresses of each subnet.
    for key, room, wanted in (
        ("nodes", ranges["nodes"].num_addresses - 4, system + jobs),
        ("pods", ranges["pods"].num_addresses, system * ADDRESSES_OF_A_SYSTEM_NODE + jobs * ADDRESSES_OF_A_NODE),
    ):
        if wanted > room:
            message = f"has {room} addresses, and up to {system + jobs} nodes need {wanted}; write a larger range"
            yield Problem("gke.network.too_few_addresses", ("platform", "network", key), message, str(ranges[key]))
