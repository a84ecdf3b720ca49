"""Quantities of CPUs and memory as in Kubernetes, and packing of pods on nodes."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kubernetes.utils.quantity import parse_quantity

from infra.hardware import Capacity, PodGroup, first_that_does_not_fit, hosts_that_fit, node_share
from settings.kubernetes_values import format_cpu, format_memory, parse_cpu, parse_memory

GIB = 2**30


def kubernetes_reads(text: str) -> Decimal:
    """Return the number that the official Kubernetes client reads from a quantity."""
    return Decimal(parse_quantity(text))  # type: ignore[no-untyped-call]  # the client has no types


@given(st.integers(min_value=1, max_value=10**7))
def test_format_cpu_round_trips(millicores: int) -> None:
    text = format_cpu(millicores)
    assert parse_cpu(text) == millicores
    assert kubernetes_reads(text) * 1000 == millicores


@given(st.integers(min_value=1, max_value=10**6), st.sampled_from(["Mi", "Gi", "M", "G"]))
def test_parse_memory_equals_kubernetes_quantity(number: int, unit: str) -> None:
    size = parse_memory(f"{number}{unit}")
    assert size == kubernetes_reads(f"{number}{unit}")
    assert parse_memory(format_memory(size)) == size


@pytest.mark.parametrize(
    ("text", "millicores"), [("2", 2000), ("0.5", 500), ("500m", 500), ("1.25", 1250), ("1.0", 1000)]
)
def test_parse_cpu_equals_kubernetes_quantity(text: str, millicores: int) -> None:
    assert parse_cpu(text) == millicores
    assert kubernetes_reads(text) == Decimal(millicores) / 1000


@pytest.mark.parametrize("text", ["0", "-1", "0.5m", "1e3", "", "nan", "9" * 20])
def test_parse_cpu_rejects_invalid_text(text: str) -> None:
    with pytest.raises(ValueError, match="number of CPUs"):
        parse_cpu(text)


@pytest.mark.parametrize("text", ["0Gi", "2", "1.5Gi", "2GB", "2gi", "", "9999999999Ti"])
def test_parse_memory_rejects_invalid_text(text: str) -> None:
    with pytest.raises(ValueError, match="with a unit"):
        parse_memory(text)


def test_node_share_is_equal_and_reserves_memory_for_kubelet() -> None:
    share = node_share(Capacity(millicores=2000, memory=8 * GIB), 2)
    assert share == Capacity(millicores=1000, memory=4 * GIB - 100 * 2**20)


def test_hosts_that_fit_is_limited_by_scarcer_resource() -> None:
    node = Capacity(millicores=4000, memory=4 * GIB)
    assert hosts_that_fit(Capacity(millicores=1000, memory=GIB), node) == 4
    assert hosts_that_fit(Capacity(millicores=1000, memory=3 * GIB), node) == 1
    assert hosts_that_fit(Capacity(millicores=5000, memory=1), node) == 0


@given(
    st.integers(min_value=1, max_value=8),
    st.integers(min_value=1, max_value=30),
    st.integers(min_value=100, max_value=4000),
)
def test_first_that_does_not_fit_one_group_agrees_with_hosts_that_fit(
    num_nodes: int, num_hosts: int, millicores: int
) -> None:
    node = Capacity(millicores=4000, memory=4 * GIB)
    group = PodGroup(count=num_hosts, per_pod=Capacity(millicores=millicores, memory=1))
    fits = num_hosts <= hosts_that_fit(group.per_pod, node) * num_nodes
    assert (first_that_does_not_fit([group], node, num_nodes) is None) == fits


def test_first_that_does_not_fit_several_groups_share_nodes() -> None:
    node = Capacity(millicores=1000, memory=4 * GIB)
    half = PodGroup(count=2, per_pod=Capacity(millicores=500, memory=GIB))
    assert first_that_does_not_fit([half, half], node, 2) is None
    assert first_that_does_not_fit([half, half, half], node, 2) == 2
