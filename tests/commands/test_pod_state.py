"""States, exit codes and reasons of pods and jobs, from objects of a real API server (1.34)."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from commands.monitor.job_state import job_state
from commands.monitor.pod_state import (
    NON_RETRYABLE_CODES,
    STUCK_REASONS,
    TRAINER_CODES,
    PodState,
    count_restarts,
    exit_codes_of_pods,
    explain_exit,
    latest_pods,
    pod_state,
    seconds_between,
)
from trainer import exit_codes
from workloads.objects import NON_RETRYABLE_EXIT_CODES

API: dict[str, Any] = json.loads((Path(__file__).parent / "api.json").read_text(encoding="utf-8"))
"""Objects of the API server, without the keys that the commands do not read."""


def pod(name: str) -> dict[str, Any]:
    """Return a copy of a pod's object in API."""
    return dict(copy.deepcopy(API["pods"][name][0]))


def state_of(**changes: Any) -> PodState:
    """Return the state of a running pod with changed fields."""
    return replace(pod_state(pod("running")), **{"runs_script": False, **changes})


def test_pod_state_running_pod_has_node_job_and_log() -> None:
    state = pod_state(pod("running"))
    assert (state.state, state.why, state.node, state.job) == ("running", "", "follow-0", "wait")
    assert state.has_log
    assert not state.is_over


def test_pod_state_unschedulable_pod_has_the_schedulers_reason() -> None:
    state = pod_state(pod("unschedulable"))
    assert (state.state, state.node, state.has_log) == ("pending", "", False)
    assert state.why.startswith("Unschedulable: 0/2 nodes are available: 2 Insufficient cpu")


def test_pod_state_missing_image_is_a_stuck_reason_with_image_name() -> None:
    state = pod_state(pod("no_image"))
    assert state.state == "pending"
    assert state.reason in STUCK_REASONS
    assert "trainyard.local/absent:1" in state.message


def pod_running_command(name: str, *words: str) -> dict[str, Any]:
    """Return a copy of a pod's object with another command."""
    found = pod(name)
    found["spec"]["containers"][0] |= {"command": [words[0]], "args": list(words[1:])}
    return found


def test_pod_state_exit_code_of_trainer_is_explained() -> None:
    state = pod_state(pod_running_command("failed", "python", "-m", "trainer.launch", "-m", "trainer", "digits"))
    assert (state.state, state.exit_code, state.is_over) == ("failed", 78, True)
    assert state.why == f"exit code 78: {TRAINER_CODES[78]}"


@pytest.mark.parametrize(
    ("code", "signal"), [(137, "SIGKILL"), (247, "SIGKILL"), (-9, "SIGKILL"), (139, "SIGSEGV"), (245, "SIGSEGV")]
)
def test_explain_exit_of_every_encoding_of_a_signal_names_the_signal(code: int, signal: str) -> None:
    assert explain_exit(code, state_of()).startswith(f"ended by {signal}")


@pytest.mark.parametrize(
    ("earlier", "seconds", "until"), [(0, 10, "00:00:10"), (2, 40, "00:00:40"), (9, 600, "00:10:00")]
)
def test_backoff_of_a_failed_indexed_pod_has_end_delay_and_failure_number(
    earlier: int, seconds: int, until: str
) -> None:
    failed = pod("failed")
    assert pod_state(failed).backoff(0) == "", "without a count of the host's failures, the delay is unknown"
    failed["metadata"].setdefault("annotations", {})["batch.kubernetes.io/job-index-failure-count"] = str(earlier)
    failed["status"]["containerStatuses"][0]["state"]["terminated"]["finishedAt"] = "2026-01-01T00:00:00Z"
    expected = f"Kubernetes replaces it at {until} UTC: {seconds} s after failure {earlier + 1} of this host"
    # The annotation counts all earlier failures. The argument 0 counts only the pods that still exist.
    assert pod_state(failed).backoff(0) == expected


def indexed_pod_failed(failures: int, code: int, *, is_disrupted: bool = False) -> dict[str, Any]:
    """Return a failed pod of an Indexed Job. Its host had this number of failures before."""
    failed = pod("failed")
    annotations = {"batch.kubernetes.io/job-index-failure-count": str(failures)}
    failed["metadata"].setdefault("annotations", {}).update(annotations)
    failed["status"]["containerStatuses"][0]["state"]["terminated"] |= {
        "finishedAt": "2026-01-01T00:00:00Z",
        "exitCode": code,
    }
    if is_disrupted:
        failed["status"]["conditions"] = [{"type": "DisruptionTarget", "status": "True", "reason": "EvictionByNode"}]
    return failed


def job_spec(restarts: int) -> dict[str, Any]:
    """Return the spec of a job whose launchers restart ranks in place, with this number of restarts for each host."""
    golden = Path(__file__).parents[1] / "golden" / "digits.indexed-job.yaml"
    jobs = [each for each in yaml.safe_load_all(golden.read_text(encoding="utf-8")) if each["kind"] == "Job"]
    return {**jobs[0]["spec"], "backoffLimitPerIndex": restarts, "backoffLimit": 2 * restarts}


@pytest.mark.parametrize(
    ("restarts", "failures", "code", "expected"),
    [
        (0, 0, 137, "Kubernetes does not replace it: the job has no restart left"),
        (0, 0, 1, "Kubernetes does not replace it: the job has no restart left"),
        (1, 1, 137, "Kubernetes does not replace it: the job has no restart left"),
        (1, 0, 1, "Kubernetes does not replace it after this exit code"),
        (1, 0, 137, "Kubernetes replaces it at 00:00:10 UTC: 10 s after failure 1 of this host"),
        (2, 0, 75, "Kubernetes replaces it at 00:00:10 UTC: 10 s after failure 1 of this host"),
    ],
)
def test_backoff_says_replaced_only_if_the_job_restarts(restarts: int, failures: int, code: int, expected: str) -> None:
    assert pod_state(indexed_pod_failed(failures, code), job_spec(restarts)).backoff(failures) == expected


def test_backoff_of_a_disrupted_pod_says_replaced_although_no_restart_is_left() -> None:
    state = pod_state(indexed_pod_failed(0, 1, is_disrupted=True), job_spec(0))
    assert state.backoff(0).startswith("Kubernetes replaces it")


def test_backoff_without_a_failure_policy_depends_on_the_limit() -> None:
    failed = indexed_pod_failed(1, 1)
    assert "Kubernetes replaces" in pod_state(failed, {"backoffLimit": 6, "backoffLimitPerIndex": 2}).backoff(1)
    assert "no restart left" in pod_state(failed, {"backoffLimit": 6, "backoffLimitPerIndex": 1}).backoff(1)
    launcher = replace(pod_state(failed, {"backoffLimit": 1}), role="launcher", failures=None)
    assert "no restart left" in launcher.backoff(1)
    assert launcher.backoff(0).startswith("Kubernetes replaces")


@pytest.mark.parametrize(
    ("restarts", "code", "expected"), [(0, 137, True), (2, 137, False), (2, 1, True), (2, 75, False)]
)
def test_ends_job_is_true_without_a_restart_and_after_a_non_retryable_code(
    restarts: int, code: int, expected: bool
) -> None:
    failed = pod_state(indexed_pod_failed(0, code), job_spec(restarts))
    assert failed.ends_job(0) == expected
    assert not replace(failed, state="running").ends_job(0)
    assert not replace(failed, is_deleted=True).ends_job(0)


def test_backoff_of_a_running_pod_is_empty() -> None:
    running = pod("running")
    running["metadata"].setdefault("annotations", {})["batch.kubernetes.io/job-index-failure-count"] = "1"
    assert pod_state(running).backoff(1) == ""


def test_explain_exit_of_a_user_script_does_not_use_the_trainers_codes() -> None:
    state = pod_state(pod_running_command("failed", "python", "-m", "trainer.launch", "/script/train.py"))
    assert state.why == "exit code 78: the script's own code; Kubernetes does not restart a job after it"
    assert explain_exit(3, state_of(runs_script=True)) == "the script's own code"
    assert explain_exit(78, state_of(runs_script=True, role="launcher")) == "the script's own code"
    assert explain_exit(1, state_of(runs_script=True)) == TRAINER_CODES[1]


def test_pod_state_oom_killed_names_limit_and_settings_key() -> None:
    state = pod_state(pod("out_of_memory"))
    assert state.exit_code == 137
    assert state.why == (
        "exit code 137: out of memory: the container reached its limit of 40Mi; "
        "raise `resources.memory` of job oom above 40Mi (OOMKilled)"
    )


def test_pod_state_sigkill_without_oom_kill_names_node_and_limit() -> None:
    killed = pod("out_of_memory")
    killed["status"]["containerStatuses"][0]["state"]["terminated"]["reason"] = "Error"
    state = pod_state(killed)
    assert state.why == (
        f"exit code 137: ended by SIGKILL: killed by hand, or {state.node} ran out of memory; "
        "the container did not reach its limit of 40Mi, as far as Kubernetes knows"
    )


def test_sigkill_of_a_stopped_pod_names_the_grace_period_and_no_replacement() -> None:
    stopped = indexed_pod_failed(0, 137)
    stopped["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    state = pod_state(stopped, job_spec(restarts=1))
    assert state.why == "exit code 137: ended by SIGKILL: it did not end within `grace_seconds` of the request to stop"
    assert state.backoff(0) == ""


def test_explain_exit_sigkill_in_running_container_names_limit() -> None:
    unknown = explain_exit(-9, state_of(job="digits", memory_limit="2Gi"))
    assert unknown == (
        "ended by SIGKILL: the container reached its limit of 2Gi "
        "(raise `resources.memory` of job digits above 2Gi), or it was killed by hand"
    )


@pytest.mark.parametrize("runs_script", [False, True])
def test_explain_exit_code_255_names_containerd_shim(runs_script: bool) -> None:
    text = explain_exit(255, state_of(node="local-1", runs_script=runs_script, reason="Error", exit_code=255))
    assert "the container's runtime process (containerd-shim) or all of local-1 died" in text
    assert ("the script's own code, or" in text) == runs_script


def test_explain_exit_trainer_code_plus_128_is_the_trainers_code() -> None:
    assert explain_exit(75 + 128, state_of()) == TRAINER_CODES[75]


def test_pod_state_evicted_pod_has_eviction_message_and_node() -> None:
    evicted = pod("failed")
    evicted["status"] |= {"reason": "Evicted", "message": "The node was low on resource: memory."}
    del evicted["status"]["containerStatuses"]
    evicted["spec"]["containers"][0]["resources"] = {"limits": {"memory": "2Gi"}}
    assert pod_state(evicted).why == (
        "Evicted: The node was low on resource: memory. The memory of follow-0 ran out; "
        "the container did not reach its limit of 2Gi"
    )


def test_pod_state_lost_node_is_ending_with_taint_manager_reason() -> None:
    lost = pod("running")
    lost["metadata"]["deletionTimestamp"] = "2026-11-21T09:10:09Z"
    target = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager"}
    lost["status"]["conditions"].append(target)
    state = pod_state(lost)
    assert (state.state, state.why) == ("ending", "Terminating: DeletionByTaintManager")


def test_pod_state_creating_container_has_no_reason() -> None:
    creating = pod("no_image")
    creating["status"]["containerStatuses"][0]["state"] = {"waiting": {"reason": "ContainerCreating"}}
    assert (pod_state(creating).state, pod_state(creating).why) == ("creating", "")
    del creating["status"]["containerStatuses"]
    assert pod_state(creating).state == "creating"


def test_pod_state_empty_status_is_pending() -> None:
    bare = pod("unschedulable")
    bare["status"] = {}
    assert (pod_state(bare).state, pod_state(bare).why) == ("pending", "")


def test_pod_state_host_with_four_processes_has_four_ranks() -> None:
    second = copy.deepcopy(API["pods"]["complete"][1])
    second["spec"]["containers"][0]["env"] = [{"name": "PET_NPROC_PER_NODE", "value": "4"}]
    assert list(pod_state(second).ranks) == [4, 5, 6, 7]


def test_count_restarts_of_replaced_pods_is_the_number_of_replacements() -> None:
    assert count_restarts([pod_state(each) for each in API["pods"]["restarted"]]) == 2
    assert count_restarts([]) == 0


def test_latest_pods_keeps_the_newest_pod() -> None:
    pods = [pod_state(each) for each in API["pods"]["restarted"]]
    (newest,) = latest_pods(pods)
    assert newest.created == max(each.created for each in pods)


@pytest.mark.parametrize(
    ("name", "state"),
    [("complete", "complete"), ("failed", "failed"), ("unschedulable", "pending"), ("running", "running")],
)
def test_job_state_matches_job_conditions(name: str, state: str) -> None:
    assert job_state(API["jobs"][name]).state == state


def test_job_state_of_a_job_whose_hosts_all_succeeded_is_running_until_its_controller_completes_it() -> None:
    job = copy.deepcopy(API["jobs"]["running"])
    hosts = job["spec"]["completions"]
    for succeeded, state in ((hosts - 1, "pending"), (hosts, "running")):
        job["status"] |= {"ready": 0, "succeeded": succeeded}
        assert job_state(job).state == state


def test_pod_state_of_a_pod_that_succeeded_after_an_oom_kill_of_a_process_has_no_reason() -> None:
    done = copy.deepcopy(API["pods"]["complete"][0])
    done["status"]["containerStatuses"][0]["state"]["terminated"]["reason"] = "OOMKilled"
    assert (pod_state(done).state, pod_state(done).reason) == ("succeeded", "")


def test_job_state_failed_job_has_reason_and_times() -> None:
    state = job_state(API["jobs"]["failed"])
    assert state.reason == "BackoffLimitExceeded: Job has reached the specified backoff limit"
    assert seconds_between(state.started, state.finished) == 4
    assert seconds_between(state.started, "") is None


def test_exit_code_tables_match_trainer_and_workloads() -> None:
    codes = {value for name, value in vars(exit_codes).items() if name.isupper() and isinstance(value, int)}
    assert codes <= TRAINER_CODES.keys()
    assert NON_RETRYABLE_CODES == NON_RETRYABLE_EXIT_CODES


def test_explain_exit_of_both_encodings_of_sigkill_is_equal() -> None:
    assert explain_exit(137, state_of()) == explain_exit(-9, state_of())


def test_explain_exit_of_sigterm_names_the_signal() -> None:
    assert "SIGTERM" in explain_exit(143, state_of())


def test_exit_codes_of_pods_are_the_last_codes_in_the_events_without_zeros() -> None:
    def event(message: str, time: str) -> dict[str, str]:
        return {"reason": "ExitedWithCode", "message": message, "lastTimestamp": time}

    events = [
        event("Pod: training.a-worker-0 exited with code 137", "2026-11-21T10:00:02Z"),
        event("Pod: training.a-worker-0 exited with code 75", "2026-11-21T10:00:01Z"),
        event("Pod: training.a-worker-1 exited with code 0", "2026-11-21T10:00:03Z"),
        event("Created pod: a-worker-0", "2026-11-21T10:00:04Z"),
    ]
    assert exit_codes_of_pods(events) == {"a-worker-0": 137}


@pytest.mark.parametrize(("hosts", "text"), [("1", "uncaught error; the log says which"), ("2", "another rank")])
def test_explain_exit_of_the_only_rank_names_no_other_rank(hosts: str, text: str) -> None:
    found = pod("running")
    environment = [{"name": "TRAINYARD_HOSTS", "value": hosts}, {"name": "PET_NPROC_PER_NODE", "value": "1"}]
    found["spec"]["containers"][0]["env"] = environment
    assert text in explain_exit(1, pod_state(found))
