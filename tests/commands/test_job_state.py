"""States of jobs and labels of pods, from Kubernetes objects as the operators write them."""

from __future__ import annotations

from typing import Any

import pytest

from commands.monitor.job_state import CUSTOM_KINDS, job_state, why_queued
from commands.monitor.pod_state import latest_pods, pod_state
from infra.naming import QUEUE_LABEL
from tests.components.rendered_jobs import pod_templates
from tests.golden.manifests import examples, manifests

START, END = "2026-11-21T10:00:00Z", "2026-11-21T10:05:00Z"
EXAMPLES = {
    "pytorch-job": "digits.pytorch-job",
    "mpi-job": "digits.mpi-job",
    "mx-job": "script.mx-job",
    "jobset": "slices.jobset",
    "train-job": "digits.train-job",
    "ray-job": "script.ray-job",
}
"""Job kind -> golden example."""
HOSTS = {"pytorch-job": 2, "mpi-job": 2, "mx-job": 4, "jobset": 8, "train-job": 2, "ray-job": 4}
"""Job kind -> number of hosts in its example."""
RAY_STATES = {"Succeeded": "Complete", "Restarting": "Retrying"}
"""Condition -> the `jobDeploymentStatus` of a RayJob in this state, if the names differ."""


def job(kind: str, *conditions: tuple[str, str], **status: Any) -> dict[str, Any]:
    """Return the Kubernetes object of a job. `conditions` are pairs of type and status, oldest first."""
    resource, objects = CUSTOM_KINDS[kind], manifests(*examples()[EXAMPLES[kind]])
    api = (resource.api_version, resource.kind)
    found = next(each for each in objects if (each["apiVersion"], each["kind"]) == api)
    found["metadata"] |= {"uid": "u", "creationTimestamp": START}
    found["metadata"]["labels"].pop(QUEUE_LABEL, None)
    if kind in WITHOUT_CONDITIONS:
        found["status"] = {**WITHOUT_CONDITIONS[kind](*conditions), **status}
        return dict(found)
    found["status"] = {
        "conditions": [
            {"type": name, "status": value, "reason": f"Job{name}", "message": "why", "lastTransitionTime": END}
            for name, value in conditions
        ],
        **status,
    }
    return dict(found)


def ray_status(*conditions: tuple[str, str]) -> dict[str, Any]:
    """Return the status of a RayJob whose state matches the last true condition. Real RayJobs have no conditions."""
    true = [name for name, value in conditions if value == "True"]
    if not true:
        return {"jobDeploymentStatus": "Initializing"}
    return {
        "jobDeploymentStatus": RAY_STATES.get(true[-1], true[-1]),
        "jobStatus": "SUCCEEDED" if true[-1] == "Succeeded" else "FAILED",
        "reason": f"Job{true[-1]}",
        "message": "why, last available logs (truncated to 20,000 chars):\nTraceback",
        "endTime": END,
    }


WITHOUT_CONDITIONS = {"ray-job": ray_status}
"""Job kind without conditions -> function that converts conditions into the status that this kind has instead."""


def test_custom_kinds_all_have_an_example() -> None:
    assert set(CUSTOM_KINDS) == set(EXAMPLES), "add the kind, with a golden example, to EXAMPLES and HOSTS"


def test_job_of_an_unknown_api_group_has_kind_job() -> None:
    # Two API groups can have a kind of the same name: Volcano also has a Job.
    other = {**job("pytorch-job", ("Succeeded", "True")), "apiVersion": "example.com/v1"}
    assert job_state(other).kind == "job"


@pytest.mark.parametrize("kind", EXAMPLES)
def test_job_state_follows_its_conditions(kind: str) -> None:
    new = job_state(job(kind))
    assert (new.state, new.kind, new.hosts, new.started) == ("pending", kind, HOSTS[kind], START)
    done = job_state(job(kind, ("Running", "False"), (CUSTOM_KINDS[kind].complete, "True")))
    assert (done.state, done.finished) == ("complete", END)
    failed = job_state(job(kind, ("Restarting", "True"), ("Failed", "True")))
    assert (failed.state, failed.reason) == ("failed", "JobFailed: why")
    assert job_state(job(kind, ("Suspended", "True"))).state == "suspended"
    resumed = job_state(job(kind, ("Suspended", "False")))
    # The object of a kind without conditions does not show that the job was resumed.
    assert (resumed.state, resumed.is_resumed, new.is_resumed) == ("pending", kind not in WITHOUT_CONDITIONS, False)


@pytest.mark.parametrize("kind", [kind for kind in EXAMPLES if kind not in WITHOUT_CONDITIONS])
def test_resumed_job_without_a_start_time_starts_at_its_resume(kind: str) -> None:
    resumed = job(kind, ("Suspended", "False"))
    resumed["status"].pop("startTime", None)
    assert job_state(resumed).started == END


QUEUE_LABELS = {QUEUE_LABEL: "research"}


@pytest.mark.parametrize("kind", EXAMPLES)
def test_job_state_of_a_suspended_job_with_a_queue_is_queued(kind: str) -> None:
    waiting = job(kind, ("Suspended", "True"))
    waiting["metadata"]["labels"] |= QUEUE_LABELS
    found = job_state(waiting)
    assert (found.state, found.reason, found.is_over) == ("queued", "waits in queue research", False)
    over = job(kind, ("Suspended", "True"), (CUSTOM_KINDS[kind].complete, "True"))
    over["metadata"]["labels"] |= QUEUE_LABELS
    assert job_state(over).state == "complete"


def test_why_queued_returns_the_message_of_quota_or_admission_check() -> None:
    reserved = {"type": "QuotaReserved", "status": "False", "message": "insufficient quota for cpu\n in flavor nodes"}
    assert why_queued({"status": {"conditions": [reserved]}}) == "insufficient quota for cpu in flavor nodes"
    assert why_queued({}) == ""
    checks = [{"name": "nodes", "state": "Pending", "message": "asked for"}, {"name": "other", "state": "Ready"}]
    status = {"conditions": [{**reserved, "status": "True"}], "admissionChecks": checks}
    assert why_queued({"status": status}) == "nodes Pending: asked for"


@pytest.mark.parametrize("kind", ["pytorch-job", "mpi-job", "mx-job"])
def test_job_state_of_a_restarting_job_is_pending(kind: str) -> None:
    assert job_state(job(kind, ("Created", "True"), ("Running", "True"))).state == "running"
    restarting = job_state(job(kind, ("Running", "False"), ("Restarting", "True")))
    assert (restarting.state, restarting.reason) == ("pending", "JobRestarting: why")


def test_jobset_and_train_job_are_running_with_a_ready_child_job_and_pending_without_one() -> None:
    assert job_state(job("jobset", replicatedJobsStatus=[{"name": "worker", "ready": 1}])).state == "running"
    assert job_state(job("train-job", jobsStatus=[{"name": "node", "ready": 1}])).state == "running"
    # A child Job whose pods are all pending is active.
    assert job_state(job("train-job", jobsStatus=[{"name": "node", "ready": 0, "active": 1}])).state == "pending"


def test_ray_job_is_running_with_a_ready_host_and_pending_when_it_restarts() -> None:
    assert job_state(job("ray-job", rayClusterStatus={"readyWorkerReplicas": 1})).state == "running"
    restarting = job_state(job("ray-job", ("Restarting", "True")))
    assert (restarting.state, restarting.reason) == ("pending", "JobRestarting: why")


def test_job_state_of_an_interactive_ray_job_is_running_while_it_waits_for_a_driver() -> None:
    status = {"jobDeploymentStatus": "Waiting", "rayClusterStatus": {"desiredWorkerReplicas": 1}}
    assert job_state(job("ray-job", **status)).state == "running"


def test_job_state_of_a_ray_job_with_a_stopped_driver_is_failed() -> None:
    stopped = job_state(job("ray-job", jobDeploymentStatus="Complete", jobStatus="STOPPED", message="User stopped it."))
    assert (stopped.state, stopped.reason) == ("failed", "STOPPED: User stopped it.")


def pod(example: str, path: str, labels: dict[str, str], environment: dict[str, str]) -> dict[str, Any]:
    """Return a pod of a golden example, with the labels and variables that the job's operator adds.

    `path` is a part of the template's path in the job, such as `Worker`.
    """
    templates = pod_templates(manifests(*examples()[example]))
    template = next(each for template_path, each in templates.items() if path in template_path)
    template["metadata"] |= {"name": "p", "uid": str(labels), "creationTimestamp": START}
    template["metadata"]["labels"] |= labels
    template["spec"]["containers"][0]["env"] += [{"name": name, "value": text} for name, text in environment.items()]
    return {**template, "status": {}}


REPLICA_INDEX_LABEL = "training.kubeflow.org/replica-index"


def test_label_of_a_pytorch_job_pod_is_its_ranks() -> None:
    example = "script.pytorch-job"
    master = pod_state(pod(example, "Master", {REPLICA_INDEX_LABEL: "0"}, {"PET_NODE_RANK": "0"}))
    worker = pod_state(pod(example, "Worker", {REPLICA_INDEX_LABEL: "1"}, {"PET_NODE_RANK": "2"}))
    assert (master.label, worker.label, worker.role) == ("0-1", "4-5", "worker")


def test_latest_pods_sorts_pods_without_ranks_last() -> None:
    example = "script.mx-job"
    pods = [
        # `pod` takes the uid from the labels. The label `role` makes it unique.
        pod_state(pod(example, role.capitalize(), {REPLICA_INDEX_LABEL: index, "role": role}, {}))
        for role, index in (("server", "0"), ("scheduler", "0"), ("worker", "1"), ("worker", "0"))
    ]
    assert [each.label for each in latest_pods(pods)] == ["0", "1", "scheduler", "server-0"]


def test_label_of_an_mpi_launcher_pod_is_its_role() -> None:
    assert pod_state(pod("digits.mpi-job", "Launcher", {}, {})).label == "launcher"


def test_label_of_a_ray_job_pod_is_its_ranks_or_role() -> None:
    labels = {"ray.io/worker-group-replica-index": "3", "ray.io/group": "hosts"}
    assert pod_state(pod("script.ray-job", "workerGroupSpecs", labels, {})).label == "6-7"
    assert pod_state(pod("script.ray-job", "headGroupSpec", {}, {})).label == "head"


def test_submitter_pod_of_a_ray_job_is_replaced_after_a_backoff() -> None:
    assert pod_state(pod("script.ray-job", "submitterPodTemplate", {}, {})).has_backoff


def test_pod_index_continues_across_slices() -> None:
    labels = {"jobset.sigs.k8s.io/job-index": "1", "jobset.sigs.k8s.io/replicatedjob-replicas": "2"}
    index = {"batch.kubernetes.io/job-completion-index": "3"}
    assert pod_state(pod("slices.jobset", "JobSet", {**labels, **index}, {})).index == 7


def test_non_retryable_exit_code_of_a_job_is_reported_in_plain_words() -> None:
    message = (
        "Container trainer for pod training/train-0-abcde failed with exit code 3 matching FailJob rule at index 1"
    )
    condition = {"type": "Failed", "status": "True", "reason": "PodFailurePolicy", "message": message}
    found = job_state(
        {
            "metadata": {"name": "train", "uid": "u"},
            "spec": {"completionMode": "Indexed", "completions": 2},
            "status": {"conditions": [{**condition, "lastTransitionTime": END}]},
        }
    )
    assert (
        found.reason == "pod train-0-abcde failed with exit code 3; Kubernetes does not replace it after this exit code"
    )
