"""Hardware tables and arithmetic: capacities, GPUs, TPUs and machine types."""

from infra.hardware.capacity import (
    KUBELET_EVICTION_BYTES,
    MEBIBYTE,
    Capacity,
    PodGroup,
    PoolCapacity,
    first_that_does_not_fit,
    hosts_that_fit,
    node_share,
    reserved_for_other_nodes,
    this_machine,
)

__all__ = [
    "KUBELET_EVICTION_BYTES",
    "MEBIBYTE",
    "Capacity",
    "PodGroup",
    "PoolCapacity",
    "first_that_does_not_fit",
    "hosts_that_fit",
    "node_share",
    "reserved_for_other_nodes",
    "this_machine",
]
