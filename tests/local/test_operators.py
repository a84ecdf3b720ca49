"""Operators that Pulumi installs on the local cluster: webhooks, jobs, queues, permissions and removal."""

from __future__ import annotations

import copy
import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from commands.monitor.cluster import Cluster
from infra.builtin_images import TRAINER
from infra.local import lifecycle
from infra.local.image_store import program_reference
from infra.local.provider import load_images
from infra.local.settings import PAUSE_IMAGE, ClusterSettings
from infra.local.trainer_image import image_reference
from infra.operator_releases import RELEASES
from settings.types import OPERATORS_NAMESPACE
from setup import operators as operator_steps
from setup.progress import run_steps
from tests.local.conftest import run_kubectl, wait_for
from tests.local.operator_jobs import END_PROGRAM, PULUMI_PROGRAM, jobs
from tests.plugins.stack import ROOT, Stack

# The first run on a machine builds every operator. tests/end_to_end/test_ray_job.py has the tests of RayJobs.
pytestmark = [pytest.mark.cluster, pytest.mark.long, pytest.mark.timeout(2400)]

SUCCESS_CONDITIONS = {
    "PyTorchJob": "Succeeded",
    "MXJob": "Succeeded",
    "MPIJob": "Succeeded",
    "JobSet": "Completed",
    "TrainJob": "Complete",
}
"""Condition by which each kind reports success."""

WEBHOOK_ERRORS = {
    "PyTorchJob": 'admission webhook "validator.pytorchjob.training-operator.kubeflow.org" denied the request',
    "JobSet": "invalid replicatedJob name 'other' does not appear in .spec.ReplicatedJobs",
    "TrainJob": 'admission webhook "validator.trainjob.trainer.kubeflow.org" denied the request',
}
"""Kind -> error of its operator's webhook for `invalid_job`."""


@pytest.fixture(scope="module")
def stack(settings: ClusterSettings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Yield a stack with every operator and the jobs of operator_jobs.py, before its first update."""
    run_steps(operator_steps.steps(RELEASES, cluster=True))
    lifecycle.start(settings, print)
    trainer = image_reference(TRAINER)
    load_images(settings, [PAUSE_IMAGE, trainer, *(program_reference(name) for name in RELEASES)], print)
    created = Stack(tmp_path_factory.mktemp("operators"), settings.kubeconfig, namespace="kinds")
    created.write(PULUMI_PROGRAM.format(project=str(ROOT), image=trainer))
    created.run("stack", "init", "test")
    yield created
    created.run("destroy", "--yes", "--skip-preview")


def kubectl(stack: Stack, *words: str, document: dict[str, Any] | None = None) -> subprocess.CompletedProcess[str]:
    """Run kubectl on the stack's cluster and return its result."""
    return run_kubectl(stack.kubeconfig, *words, document=document)


def names(stack: Stack, *words: str) -> list[str]:
    """Return the names that `kubectl get` finds."""
    done = kubectl(stack, "get", *words, "-o", "name")
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def invalid_job(kind: str) -> dict[str, Any]:
    """Return a job that the CRD's schema allows and the operator's webhook rejects."""
    (found,) = [copy.deepcopy(each) for each in jobs("kinds", "image") if each["kind"] == kind]
    found["metadata"]["name"] = f"broken-{kind.lower()}"
    spec = found["spec"]
    if kind == "PyTorchJob":
        for replica in spec["pytorchReplicaSpecs"].values():
            replica["template"]["spec"]["containers"][0]["name"] = "other"
    elif kind == "JobSet":
        spec["successPolicy"] = {"operator": "All", "targetReplicatedJobs": ["other"]}
    else:
        spec["runtimeRef"]["name"] = "other"
    return found


def test_operator_webhooks_answer_after_update(stack: Stack) -> None:
    stack.up(jobs="none")
    for kind, error in WEBHOOK_ERRORS.items():
        done = kubectl(stack, "create", "--dry-run=server", "-f", "-", document=invalid_job(kind))
        assert done.returncode != 0, kind
        assert error in done.stderr, (kind, done.stderr)


def test_operator_jobs_complete_in_restricted_namespace(stack: Stack) -> None:
    stack.up()
    for kind, condition in SUCCESS_CONDITIONS.items():
        job = f"{kind.lower()}/{kind.lower()}"
        done = kubectl(stack, "-n", "kinds", "wait", job, f"--for=condition={condition}", "--timeout=240s")
        seen = kubectl(stack, "-n", "kinds", "get", "pods,events").stdout
        assert done.returncode == 0, (kind, done.stderr, seen)
    logs = kubectl(stack, "-n", "kinds", "logs", "pytorchjob-worker-0").stdout
    assert "rank=1/2" in logs
    (launcher,) = names(stack, "-n", "kinds", "pods", "-l", "training.kubeflow.org/job-role=launcher")
    hosts = kubectl(stack, "-n", "kinds", "logs", launcher).stdout
    assert "mpijob-worker-0.mpijob.kinds.svc" in hosts
    assert "mpijob-worker-1.mpijob.kinds.svc" in hosts


def test_preview_and_refresh_after_an_update_show_no_changes(stack: Stack) -> None:
    assert set(stack.preview_operations().values()) == {"same"}
    stack.run("refresh", "--yes", "--skip-preview", "--expect-no-changes")


def test_operator_pods_do_not_restart(stack: Stack) -> None:
    done = kubectl(stack, "-n", OPERATORS_NAMESPACE, "get", "pods", "-o", "json")
    found = {
        each["metadata"]["labels"]["app.kubernetes.io/name"]: each["status"]["containerStatuses"][0]["restartCount"]
        for each in json.loads(done.stdout)["items"]
    }
    assert found == dict.fromkeys(RELEASES, 0)


def test_operator_permissions_on_secrets_are_limited(stack: Stack) -> None:
    def may(name: str, *words: str) -> bool:
        account = f"system:serviceaccount:{OPERATORS_NAMESPACE}:{name}"
        return kubectl(stack, "auth", "can-i", *words, f"--as={account}").stdout.strip() == "yes"

    readers = {"kuberay-operator", "mpi-operator", "trainer"}
    assert {name for name in RELEASES if may(name, "list", "secrets", "-n", "kinds")} == readers
    secrets = {
        (name, release.webhooks.secret, other.webhooks.secret)
        for name, release in RELEASES.items()
        for other in RELEASES.values()
        if release.webhooks and other.webhooks and name != "trainer"
    }
    for name, own_secret, secret in secrets:
        can_update = may(name, "update", f"secrets/{secret}", "-n", OPERATORS_NAMESPACE)
        assert can_update == (secret == own_secret), (name, secret)


def test_deleted_role_binding_of_an_operator_is_recreated(stack: Stack) -> None:
    kubectl(stack, "delete", "clusterrolebinding", "trainyard:jobset")
    stack.run("refresh", "--yes", "--skip-preview")
    stack.up()
    assert "clusterrolebinding.rbac.authorization.k8s.io/trainyard:jobset" in names(stack, "clusterrolebindings")


def changes(stack: Stack, **edits: object) -> dict[str, Any]:
    """Return the changes of a preview: name of a resource -> its changed fields, or the operation."""
    plan = stack.plan(**edits).items()
    return {name: step.get("detailedDiff") or step["op"] for name, step in plan if step["op"] != "same"}


def test_queue_runs_one_of_two_jobs_at_a_time(stack: Stack) -> None:
    stack.up(jobs="two")
    batch = stack.batch()

    def states() -> dict[str, tuple[bool, int]]:
        """Return, for each job, True if it is suspended, and its number of ready pods."""
        found = batch.list_namespaced_job("kinds").items
        return {each.metadata.name: (bool(each.spec.suspend), each.status.ready or 0) for each in found}

    def end(job: str) -> None:
        """Make a job's pods exit."""
        for pod in names(stack, "-n", "kinds", "pods", "-l", f"job-name={job}"):
            done = kubectl(stack, "-n", "kinds", "exec", pod, "--", "python", "-c", END_PROGRAM)
            assert done.returncode == 0, done.stderr

    wait_for("one of two jobs runs", lambda: (False, 2) in (states()["first"], states()["second"]))
    running, waiting = sorted(("first", "second"), key=lambda name: states()[name])
    assert (states()[running], states()[waiting]) == ((False, 2), (True, 0))
    assert names(stack, "-n", "kinds", "pods", "-l", f"job-name={waiting}") == []
    assert changes(stack, jobs="two") == {}
    state = Cluster(str(stack.kubeconfig), "kinds").jobs([waiting])[waiting]
    assert state.state == "queued"
    assert state.reason.startswith("waits in queue research: couldn't assign flavors")
    assert "insufficient unused quota for cpu in flavor nodes, 100m more needed" in state.reason
    done = kubectl(stack, "-n", "kinds", "wait", "job/without-queue", "--for=condition=Complete", "--timeout=120s")
    assert done.returncode == 0, done.stderr
    end(running)
    wait_for("the other job runs", lambda: states()[waiting] == (False, 2))
    assert changes(stack, jobs="two") == {}
    end(waiting)
    done = kubectl(stack, "-n", "kinds", "wait", f"job/{waiting}", "--for=condition=Complete", "--timeout=120s")
    assert done.returncode == 0, done.stderr
    stack.run("refresh", "--yes", "--skip-preview", "--expect-no-changes", jobs="two")
    assert changes(stack, jobs="two") == {}


def test_queue_runs_every_kind_that_supports_queues(stack: Stack) -> None:
    # The jobs together exceed the queue's capacity. Without a queue, all jobs would run at once.
    stack.up(jobs="queued")
    kinds = {kind: condition for kind, condition in SUCCESS_CONDITIONS.items() if kind != "MXJob"} | {"Job": "Complete"}
    for kind, condition in kinds.items():
        job = f"{kind.lower()}/{kind.lower()}"
        done = kubectl(stack, "-n", "kinds", "wait", job, f"--for=condition={condition}", "--timeout=240s")
        seen = kubectl(stack, "-n", "kinds", "get", "workloads,pods,events").stdout
        assert done.returncode == 0, (kind, done.stderr, seen)
    assert changes(stack, jobs="queued") == {}
    assert Cluster(str(stack.kubeconfig), "kinds").jobs(["large"])["large"].state == "queued"


def test_operator_logs_have_no_forbidden_request(stack: Stack) -> None:
    # The tests above run all kinds except RayJob without a queue, and all kinds except RayJob and MXJob in a queue.
    for name in RELEASES:
        log = kubectl(stack, "-n", OPERATORS_NAMESPACE, "logs", f"deployment/{name}", "--tail=-1").stdout
        assert log, name
        forbidden = [line for line in log.splitlines() if "forbidden" in line]
        assert forbidden == [], name


def test_destroy_deletes_all_objects_of_the_operators(stack: Stack) -> None:
    # One job still waits in its queue.
    stack.run("destroy", "--yes", "--skip-preview")
    assert names(stack, "customresourcedefinitions") == []
    assert names(stack, "validatingwebhookconfigurations,mutatingwebhookconfigurations") == []
    ours = [each for each in names(stack, "clusterroles,clusterrolebindings") if "/trainyard:" in each]
    assert {each.rpartition("/")[2] for each in ours} == {"trainyard:coredns"}
    assert not {f"namespace/{OPERATORS_NAMESPACE}", "namespace/kinds"} & set(names(stack, "namespaces"))
