"""cgroups of nodes on this machine: a node that starts again empties its own and kills the processes in it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from infra.local.cgroups import cgroup_folders, empty_cgroups, end_cgroups, make_cgroup

CLUSTER = "/trainyard/tests-cgroups"


@pytest.fixture
def cluster() -> Iterator[str]:
    """Yield the cgroup of a cluster of two nodes, with one pod's cgroup in each."""
    for node in (0, 1):
        make_cgroup(f"{CLUSTER}/node-{node}/pods/one")
    yield CLUSTER
    end_cgroups(CLUSTER)
    assert cgroup_folders(CLUSTER) == []


def test_empty_cgroups_kills_processes_of_its_node_only(cluster: str) -> None:
    with subprocess.Popen(["sleep", "600"]) as left:
        for folder in cgroup_folders(f"{cluster}/node-0"):
            if folder.name == "one":
                (folder / "cgroup.procs").write_text(str(left.pid), encoding="ascii")
        empty_cgroups(f"{cluster}/node-0")
        assert left.wait(timeout=10) == -9
    assert cgroup_folders(f"{cluster}/node-0") == []
    assert cgroup_folders(f"{cluster}/node-1")
    make_cgroup(f"{cluster}/node-0")
    assert cgroup_folders(f"{cluster}/node-0")
