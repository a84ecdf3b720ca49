"""Validation of `authorized_networks` for every cloud. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from ipaddress import IPv4Network, collapse_addresses

from settings.problem import Problem

DOCUMENTATION_RANGES = tuple(map(IPv4Network, ("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24")))
"""Address ranges for documentation, which no machine has: https://www.rfc-editor.org/rfc/rfc5737"""


def open_to_internet_problems(networks: Sequence[str]) -> Iterator[Problem]:
    """Yield a problem if the ranges together cover the whole internet."""
    ranges = [IPv4Network(text) for text in networks]
    if any(range_.prefixlen == 0 for range_ in collapse_addresses(ranges)):
        widest = min(range(len(ranges)), key=lambda index: ranges[index].prefixlen)
        others = "" if ranges[widest].prefixlen == 0 else ", together with the other ranges"
        message = f"covers the whole internet{others}; write only the ranges of your clients, or remove it"
        yield Problem(
            "cloud.authorized_networks.open_to_all",
            ("platform", "authorized_networks", widest),
            message,
            networks[widest],
        )


def documentation_ranges(networks: Sequence[str]) -> list[str]:
    """Return the ranges that are only for documentation."""
    return [text for text in networks if any(IPv4Network(text).subnet_of(range_) for range_ in DOCUMENTATION_RANGES)]
