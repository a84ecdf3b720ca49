"""RayJob: its head, its workers, and the launcher that submits the script."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from infra.gcp.pools import GIB_PLUGIN
from tests.components.rendered_jobs import main_object, spec, workers
from tests.golden.manifests import GPU, ON_CLAIM, ON_GPUS, SCRIPT, engine
from workloads.kinds.ray_job import HEAD, KEEP_COMMAND
from workloads.objects import Placement

RAY_JOB = {**SCRIPT, "kind": "ray-job", "queue": None}


def container(template: dict[str, Any]) -> dict[str, Any]:
    """Return the only container of a pod template."""
    (found,) = template["spec"]["containers"]
    return dict(found)


def job(placement: Placement = ON_CLAIM, **changes: Any) -> dict[str, Any]:
    """Return the RayJob of `RAY_JOB` with changes."""
    return main_object({**RAY_JOB, **changes}, placement)


def test_launcher_submits_the_script_with_its_arguments() -> None:
    launcher = container(job()["spec"]["submitterPodTemplate"])
    assert launcher["command"] == ["sh"]
    assert launcher["args"][2:] == ["sh", "python", "/opt/team/train.py", "--epochs", "3", "$$HOME"]


def test_head_offers_no_cpus_to_ray_and_has_no_accelerator() -> None:
    head = job(ON_GPUS, **{**GPU, "kind": "ray-job", "queue": None})["spec"]["rayClusterSpec"]["headGroupSpec"]
    assert head["rayStartParams"]["num-cpus"] == "0"
    assert "nodeSelector" not in head["template"]["spec"]
    assert container(head["template"])["resources"]["limits"] == {"cpu": "500m", "memory": f"{HEAD.memory >> 30}Gi"}


def test_ray_workers_equal_indexed_workers_except_for_their_program() -> None:
    (ray,) = workers(RAY_JOB)
    (indexed,) = workers({**RAY_JOB, "kind": "indexed-job", "torchrun": False, "processes_per_host": 1})
    ray_names, indexed_names = ({each["name"] for each in container(host)["env"]} for host in (ray, indexed))
    assert {name.partition("_")[0] for name in ray_names - indexed_names} == {"RAY"}
    for pod in (ray["spec"], indexed["spec"]):
        pod.pop("subdomain", None)
        pod.pop("restartPolicy", None)
        (worker,) = pod["containers"]
        for key in ("command", "args", "env"):
            del worker[key]
    assert ray["spec"] == indexed["spec"]


def test_ray_worker_offers_a_cpu_to_each_of_its_ranks() -> None:
    def params(**changes: Any) -> dict[str, str]:
        (group,) = job(**changes)["spec"]["rayClusterSpec"]["workerGroupSpecs"]
        return dict(group["rayStartParams"])

    assert params(processes_per_host=2, resources={"cpu": "500m", "memory": "24Gi"})["num-cpus"] == "2"
    assert params(processes_per_host=2, resources={"cpu": "7500m", "memory": "24Gi"})["num-cpus"] == "8"
    assert params(shared_memory="8Gi")["object-store-memory"] == str(4 * 2**30), "half of the shared memory"


def test_ray_hosts_source_the_nccl_environment_script() -> None:
    nodes = replace(ON_GPUS, scheduling=replace(ON_GPUS.scheduling, nccl_environment=GIB_PLUGIN))
    (host,) = workers({**GPU, "kind": "ray-job", "queue": None}, nodes)
    assert container(host)["command"] == ["bash"]
    assert container(host)["args"][1].startswith(f". {GIB_PLUGIN.script} ")


def test_environment_of_the_user_overrides_ray_variables() -> None:
    found = container(job(environment={"RAY_DEDUP_LOGS": "1"})["spec"]["submitterPodTemplate"])["env"]
    assert [each["value"] for each in found if each["name"] == "RAY_DEDUP_LOGS"] == ["1"]


@pytest.mark.parametrize(("grace_seconds", "drain_seconds"), [(120, "115"), (3, "0")])
def test_ray_drains_within_the_grace_period(grace_seconds: int, drain_seconds: str) -> None:
    found = container(job(grace_seconds=grace_seconds)["spec"]["submitterPodTemplate"])["env"]
    assert {"name": "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S", "value": drain_seconds} in found


def test_interactive_job_has_no_launcher() -> None:
    spec = job(interactive=True)["spec"]
    assert (spec["submissionMode"], spec["backoffLimit"]) == ("InteractiveMode", 0)
    assert "submitterPodTemplate" not in spec


def test_interactive_job_is_replaced_when_it_is_suspended() -> None:
    # The operator does not suspend a job while its hosts wait for a user.
    idle, busy = (
        engine(spec(RAY_JOB, interactive=interactive, suspend=True), ON_CLAIM).requests["resnet-job"]
        for interactive in (True, False)
    )
    assert "spec.suspend" in idle.replaceOnChanges
    assert "spec.suspend" not in busy.replaceOnChanges


def test_interactive_job_ends_at_its_deadline() -> None:
    # The operator checks only this deadline while the hosts wait for a user.
    idle, busy = (job(interactive=interactive, deadline_seconds=600)["spec"] for interactive in (True, False))
    assert idle["preRunningDeadlineSeconds"] == 600
    assert busy["activeDeadlineSeconds"] == 600
    assert "preRunningDeadlineSeconds" not in busy


def test_operator_keeps_the_commands_of_the_pods() -> None:
    assert KEEP_COMMAND.items() <= job()["metadata"]["annotations"].items()
