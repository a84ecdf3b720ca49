"""Rules of VPC networks: names, address ranges, NAT."""

from __future__ import annotations

import ipaddress
import re
from itertools import combinations
from typing import Any

from simulation.cloud.kind import Found, admission, at, rule
from simulation.cloud.state import CloudState, Properties

_NAME = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
_SMALLEST_SUBNET = 29
SUBNETWORK = "gcp:compute/subnetwork:Subnetwork"
CLUSTER = "gcp:container/cluster:Cluster"
Range = ipaddress.IPv4Network


def parsed(text: Any) -> Range | None:
    """Return the range; None if the text is not a range or not known yet."""
    try:
        return Range(text) if isinstance(text, str) and text else None
    except ValueError:
        return None


def gateway(found: Properties) -> str:
    """Return the first usable address of a subnet's primary range."""
    network = parsed(found.get("ipCidrRange"))
    return str(network[1]) if network else ""


def ranges_of(inputs: Properties) -> list[tuple[str, Any]]:
    """Return the property and the text of each range of a subnet, the primary and the secondary ones."""
    secondary = inputs.get("secondaryIpRanges") or []
    found = [("ipCidrRange", inputs.get("ipCidrRange"))]
    return found + [
        (f"secondaryIpRanges[{index}].ipCidrRange", each.get("ipCidrRange")) for index, each in enumerate(secondary)
    ]


@rule("https://cloud.google.com/compute/docs/naming-resources")
def compute_name(inputs: Properties) -> Found:
    """Require a name that RFC 1035 allows, as Compute Engine does."""
    name = inputs.get("name")
    if isinstance(name, str) and not _NAME.fullmatch(name):
        yield "name", f"{name!r} must be 1 to 63 lower-case letters, digits and '-', first a letter, last not '-'"


@rule("https://cloud.google.com/vpc/docs/mtu")
def network_mtu(inputs: Properties) -> Found:
    """Require a valid MTU."""
    mtu = inputs.get("mtu")
    if isinstance(mtu, int) and not 1300 <= mtu <= 8896:
        yield "mtu", f"{mtu} must be 1300 to 8896 bytes"


@rule("https://cloud.google.com/vpc/docs/subnets#valid-ranges")
def range_size(inputs: Properties) -> Found:
    """Require IPv4 networks of at least eight addresses."""
    for where, text in ranges_of(inputs):
        if not isinstance(text, str):
            continue
        network = parsed(text)
        if network is None:
            yield where, f"{text!r} is not an IPv4 network such as 10.0.0.0/20; host bits must be zero"
        elif network.prefixlen > _SMALLEST_SUBNET:
            yield where, f"{text} is too small; the smallest range is a /{_SMALLEST_SUBNET}"


@rule("https://cloud.google.com/vpc/docs/subnets#valid-ranges")
def ranges_of_subnet(inputs: Properties) -> Found:
    """Reject overlapping ranges in a subnet."""
    known = [(where, network) for where, text in ranges_of(inputs) if (network := parsed(text))]
    for (_, first), (where, second) in combinations(known, 2):
        if first.overlaps(second):
            yield where, f"{second} overlaps {first} of the same subnet"


@admission("https://cloud.google.com/vpc/docs/subnets#valid-ranges")
def ranges_of_network(inputs: Properties, state: CloudState) -> Found:
    """Reject ranges that overlap with another subnet of the same network."""
    for other in state.of_type(SUBNETWORK):
        same = other.inputs.get("network") == inputs.get("network")
        if not same or (other.inputs.get("name"), other.inputs.get("region")) == (inputs["name"], inputs["region"]):
            continue
        for where, text in ranges_of(inputs):
            for _, taken in ranges_of(other.inputs):
                ours, theirs = parsed(text), parsed(taken)
                if ours and theirs and ours.overlaps(theirs):
                    yield where, f"{ours} overlaps {theirs} of subnet {other.inputs['name']}"


@rule("https://cloud.google.com/nat/docs/ports-and-addresses#port-reservation-procedure")
def nat_ports(inputs: Properties) -> Found:
    """Require powers of two for dynamic ports, and no endpoint-independent mapping."""
    if not inputs.get("enableDynamicPortAllocation"):
        return
    if inputs.get("enableEndpointIndependentMapping"):
        yield "enableEndpointIndependentMapping", "cannot be on together with dynamic port allocation"
    low, high = inputs.get("minPortsPerVm"), inputs.get("maxPortsPerVm")
    for where, ports, least in (("minPortsPerVm", low, 32), ("maxPortsPerVm", high, 64)):
        if isinstance(ports, int) and (ports & (ports - 1) or not least <= ports <= 65536):
            yield where, f"{ports} must be a power of two from {least} to 65536"
    if isinstance(low, int) and isinstance(high, int) and low >= high:
        yield "maxPortsPerVm", f"{high} must be more than minPortsPerVm, {low}"


def subnet_range(state: CloudState, reference: Any, name: Any) -> Range | None:
    """Return the secondary range with this name in the subnet that `reference` names."""
    subnet = state.find(str(reference), SUBNETWORK)
    for each in (subnet.inputs.get("secondaryIpRanges") or []) if subnet else []:
        if each.get("rangeName") == name:
            return parsed(at(each, "ipCidrRange"))
    return None
