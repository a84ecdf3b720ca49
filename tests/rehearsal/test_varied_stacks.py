"""The simulated clouds accept many different stacks, and their nodes fit the pods of the jobs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from commands.review.recorded import Record as Registered
from commands.review.recorded import ensure_operator_objects, record_program
from infra.hardware.ec2 import EC2_MACHINES
from infra.hardware.gce import GCE_MACHINES
from infra.hardware.tpus import tpu_slice
from infra.naming import JOB_LABEL
from simulation.cloud import checking
from simulation.cloud.aws import NODE_GROUP
from simulation.cloud.gcp import NODE_POOL
from simulation.cloud.lifecycle import quota_used
from simulation.cloud.model import CloudState, SimulatedResource
from simulation.cluster.effects import nodes_of_group, nodes_of_pool
from simulation.placement import node_fits_pod
from stack.config import parse
from tests.recording import plain
from tests.rehearsal.varied_stacks import STACKS


def templates(value: Any) -> Iterator[dict[str, Any]]:
    """Yield every pod template in an object."""
    if isinstance(value, dict):
        if isinstance(value.get("spec"), dict) and "containers" in value["spec"]:
            yield value
        for each in value.values():
            yield from templates(each)
    elif isinstance(value, list):
        for each in value:
            yield from templates(each)


def as_gke_admits(pod: dict[str, Any]) -> dict[str, Any]:
    """Return a pod with the toleration that GKE adds for the accelerator that the pod requests."""
    limits = {name for each in pod["spec"]["containers"] for name in (each.get("resources") or {}).get("limits") or {}}
    added = [{"key": name, "operator": "Exists"} for name in limits if "/" in name]
    return {**pod, "spec": {**pod["spec"], "tolerations": [*(pod["spec"].get("tolerations") or []), *added]}}


def existing_resource(registered: Registered) -> SimulatedResource:
    """Return a resource of the program as it exists in the cloud, with the provider's default values."""
    inputs = checking.with_defaults(registered.type, registered.name, b"", {}, plain(registered.inputs), {})
    id_ = str(registered.outputs["id"])
    return SimulatedResource(id=id_, type=registered.type, urn=registered.name, inputs=inputs, outputs=inputs)


def test_stacks_have_every_machine_family_with_accelerators() -> None:
    machines = {**GCE_MACHINES, **EC2_MACHINES}
    pools = [pool for stack in STACKS.values() for pool in stack["platform"]["pools"]]
    used = {
        pool.get("machine_type") or tpu_slice(pool["accelerator"], pool.get("topology")).machine_type for pool in pools
    }
    expected = {machine.family for machine in machines.values() if machine.accelerators}
    missing = expected - {machines[name].family for name in used}
    assert missing == set(), "add a stack with the family to tests/rehearsal/varied_stacks.py"


@pytest.mark.parametrize("name", STACKS)
def test_stack_is_accepted_its_accelerator_quotas_are_predicted_and_its_pods_fit_nodes(name: str) -> None:
    config = parse(STACKS[name])
    ensure_operator_objects(config.operators)
    records = record_program(STACKS[name], [])
    clouds = {
        f"{each.type} {each.name}": existing_resource(each)
        for each in records
        if each.type.startswith(("gcp:", "aws:")) and "/" in each.type
    }
    assert [str(finding) for each in clouds.values() for finding in checking.problems(each.type, each.inputs)] == []
    state = CloudState(resources=clouds)
    counted = {name.partition("/")[2] for name in quota_used(state)}
    predicted = {each.name for each in config.cloud.quota()}
    assert {name for name in counted if "GPU" in name or "TPU" in name} <= predicted
    nodes = [node for each in state.of_type(NODE_POOL) for node in nodes_of_pool(state, each, 1)]
    nodes += [node for each in state.of_type(NODE_GROUP) for node in nodes_of_group(state, each)]
    jobs = {job.name for job in config.jobs}
    pods = [
        pod
        for each in records
        if each.type.startswith("kubernetes:") and (each.inputs["metadata"].get("labels") or {}).get(JOB_LABEL) in jobs
        for pod in templates(plain(each.inputs))
    ]
    assert len(pods) >= len(jobs)
    if state.of_type(NODE_POOL):
        pods = [as_gke_admits(pod) for pod in pods]
    for pod in pods:
        assert any(node_fits_pod(node, pod) for node in nodes), pod["spec"]
