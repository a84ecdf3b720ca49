"""Variables of the process group: set by the launcher, or derived from those of GKE's TPU pods."""

from __future__ import annotations

import pytest

from tests.trainer.processes import run_python
from trainer.distributed import rendezvous_environment
from trainer.exit_codes import BAD_CONFIGURATION

THIRD_OF_FOUR_HOSTS = {"TPU_WORKER_HOSTNAMES": "spmd-0.spmd,spmd-1.spmd,spmd-2.spmd,spmd-3.spmd", "TPU_WORKER_ID": "2"}
"""Variables that GKE sets in the third of four TPU pods."""


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"RANK": "abc"}, "$RANK = 'abc': must be a number from 0 to 0"),
        ({"WORLD_SIZE": "2", "RANK": "2"}, "$RANK = '2': must be a number from 0 to 1"),
        ({"WORLD_SIZE": "0"}, "$WORLD_SIZE = '0': must be a number from 1 on"),
        ({"WORLD_SIZE": "2", "RANK": "0"}, "$MASTER_ADDR = '': must be the address of rank 0"),
        ({"WORLD_SIZE": "2", "MASTER_ADDR": "localhost"}, "$MASTER_PORT = ''"),
        ({"WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "http"}, "$MASTER_PORT = 'http'"),
    ],
    ids=["not a rank", "rank too high", "no ranks", "no address", "no port", "not a port"],
)
def test_missing_or_invalid_launcher_variables_are_rejected(variables: dict[str, str], message: str) -> None:
    result = run_python("-m", "trainer", "digits", "--device=cpu", **variables)
    assert result.returncode == BAD_CONFIGURATION, result.stderr
    assert message in result.stderr
    assert "Traceback" not in result.stderr


def test_single_tpu_host_needs_no_rendezvous() -> None:
    assert rendezvous_environment({}) == {}
    assert rendezvous_environment({"TPU_WORKER_HOSTNAMES": "localhost", "TPU_WORKER_ID": "0"}) == {}


def test_hosts_of_a_slice_rendezvous_at_its_first_host() -> None:
    assert rendezvous_environment(THIRD_OF_FOUR_HOSTS) == {
        "RANK": "2",
        "WORLD_SIZE": "4",
        "MASTER_ADDR": "spmd-0.spmd",
        "MASTER_PORT": "29500",
    }


def test_hosts_of_several_slices_have_consecutive_ranks() -> None:
    slices = {"MEGASCALE_NUM_SLICES": "2", "MEGASCALE_SLICE_ID": "1", "MEGASCALE_COORDINATOR_ADDRESS": "a-0.a:8080"}
    found = rendezvous_environment({**THIRD_OF_FOUR_HOSTS, **slices})
    assert (found["RANK"], found["WORLD_SIZE"], found["MASTER_ADDR"]) == ("6", "8", "a-0.a")
