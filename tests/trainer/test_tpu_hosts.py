"""Rendezvous of TPU hosts: GKE's variables of a slice become torch.distributed's."""

from __future__ import annotations

from trainer.runtime.tpu_hosts import rendezvous_environment

HOSTS = {"TPU_WORKER_HOSTNAMES": "spmd-0.spmd,spmd-1.spmd,spmd-2.spmd,spmd-3.spmd", "TPU_WORKER_ID": "2"}


def test_single_tpu_host_needs_no_rendezvous() -> None:
    assert rendezvous_environment({}) == {}
    assert rendezvous_environment({"TPU_WORKER_HOSTNAMES": "localhost", "TPU_WORKER_ID": "0"}) == {}


def test_hosts_of_a_slice_meet_at_its_first_host() -> None:
    assert rendezvous_environment(HOSTS) == {
        "RANK": "2",
        "WORLD_SIZE": "4",
        "MASTER_ADDR": "spmd-0.spmd",
        "MASTER_PORT": "29500",
    }


def test_hosts_of_several_slices_are_numbered() -> None:
    slices = {"MEGASCALE_NUM_SLICES": "2", "MEGASCALE_SLICE_ID": "1", "MEGASCALE_COORDINATOR_ADDRESS": "a-0.a:8080"}
    found = rendezvous_environment({**HOSTS, **slices})
    assert (found["RANK"], found["WORLD_SIZE"], found["MASTER_ADDR"]) == ("6", "8", "a-0.a")
