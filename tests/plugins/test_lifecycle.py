"""Pulumi commands on real objects: update, import, wait, deletion, drift and conflicts."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from infra.local.settings import TAKE_OVER_VARIABLE
from tests.plugins.stack import Stack

NewStack = Callable[[str], Stack]
"""Type of fixture `new_stack`: a function that creates a stack with a program."""
SERVICE = """
k8s.core.v1.Service("service", opts=on_cluster, metadata=meta("digits", labels={"stage": edit("stage", "one")}, **(
    {"annotations": {"pulumi.com/patchForce": "true"}} if edit("force", "") else {})),
    spec={"cluster_ip": "None", "ports": [{"port": edit("port", 80)}]})
"""


def apply_labels_as_other_manager(stack: Stack, **labels: str) -> None:
    """Apply labels as another field manager that takes over all conflicting fields."""
    body = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "digits", "labels": labels}}
    api = stack.core()
    api.api_client.set_default_header("Content-Type", "application/apply-patch+yaml")
    api.patch_namespaced_service("digits", stack.namespace, body, field_manager="other", force=True)


def test_update_changes_the_object_in_place(new_stack: NewStack) -> None:
    stack = new_stack(SERVICE)
    stack.up()
    before = stack.core().read_namespaced_service("digits", stack.namespace)
    stack.up(stage="two")
    after = stack.core().read_namespaced_service("digits", stack.namespace)
    assert after.metadata.uid == before.metadata.uid
    assert after.metadata.labels == {"stage": "two"}
    manager = stack.state()["service"]["outputs"]["__fieldManager"]
    for each in (before, after):
        assert [(entry.manager, entry.operation) for entry in each.metadata.managed_fields] == [(manager, "Apply")]


def test_drift_by_kubectl_is_a_conflict_in_the_preview_and_ends_with_the_update(new_stack: NewStack) -> None:
    stack = new_stack(SERVICE)
    stack.up()
    drift = {"metadata": {"labels": {"stage": "drifted"}}}
    stack.core().patch_namespaced_service("digits", stack.namespace, drift, field_manager="kubectl-edit")
    stack.run("refresh", "--yes", "--skip-preview")
    assert stack.state()["service"]["outputs"]["metadata"]["labels"] == {"stage": "drifted"}
    assert 'conflict with "kubectl-edit" using v1: .metadata.labels.stage' in stack.run("preview", fails=True)
    # The provider takes over fields that kubectl has written (its function fixCSAFieldManagers).
    stack.up()
    assert stack.core().read_namespaced_service("digits", stack.namespace).metadata.labels == {"stage": "one"}


def test_refresh_removes_a_deleted_object_from_the_state(new_stack: NewStack) -> None:
    stack = new_stack(SERVICE)
    stack.up()
    stack.core().delete_namespaced_service("digits", stack.namespace)
    stack.run("refresh", "--yes", "--skip-preview")
    assert "service" not in stack.state()


def test_field_of_another_manager_is_a_conflict_until_it_is_taken_over(new_stack: NewStack) -> None:
    stack = new_stack(SERVICE)
    stack.up()
    apply_labels_as_other_manager(stack, stage="theirs")
    output = stack.up(fails=True, stage="ours")
    assert "Server-Side Apply field conflict detected" in output
    assert 'conflict with "other": .metadata.labels.stage' in output
    stack.up(stage="ours", force="yes")
    assert stack.core().read_namespaced_service("digits", stack.namespace).metadata.labels == {"stage": "ours"}


def test_provider_of_the_local_cluster_takes_fields_over(new_stack: NewStack) -> None:
    stack = new_stack(
        'taking = k8s.Provider("taking", kubeconfig=os.environ["TEST_KUBECONFIG"], opts=pulumi.ResourceOptions('
        f'env_var_mappings={{"{TAKE_OVER_VARIABLE}": "PULUMI_K8S_ENABLE_PATCH_FORCE"}}))\n'
        + SERVICE.replace("opts=on_cluster", "opts=pulumi.ResourceOptions(provider=taking)")
    )
    stack.up()
    apply_labels_as_other_manager(stack, stage="theirs")
    stack.up(stage="ours")
    assert stack.core().read_namespaced_service("digits", stack.namespace).metadata.labels == {"stage": "ours"}


def test_provider_writes_its_files_to_the_mapped_folder(new_stack: NewStack) -> None:
    stack = new_stack(SERVICE)
    stack.up()
    stack.run("destroy", "--yes", "--skip-preview")
    assert list((stack.folder / "provider").glob("kubeconfig*"))
    assert not list((stack.folder / "tmp").glob("kubeconfig*"))


def test_existing_object_is_taken_over_and_deleted_with_the_stack(new_stack: NewStack) -> None:
    # `make up` rejects existing objects before Pulumi takes them over: commands/existing_objects.py.
    stack = new_stack(SERVICE.replace('"cluster_ip": "None", ', ""))
    theirs = {"metadata": {"name": "digits"}, "spec": {"ports": [{"port": 80}]}}
    made = stack.core().create_namespaced_service(stack.namespace, theirs)
    stack.up()
    found = stack.core().read_namespaced_service("digits", stack.namespace)
    assert (found.metadata.uid, found.metadata.labels) == (made.metadata.uid, {"stage": "one"})
    stack.run("destroy", "--yes", "--skip-preview")
    assert stack.core().list_namespaced_service(stack.namespace).items == []


def test_import_takes_over_an_object_that_the_program_describes(new_stack: NewStack) -> None:
    stack = new_stack("""
k8s.core.v1.ConfigMap("settings", metadata=meta("made-by-hand"), data={"lr": "0.1"},
    opts=pulumi.ResourceOptions(provider=cluster, import_=f"{namespace}/made-by-hand"))
""")
    stack.core().create_namespaced_config_map(
        stack.namespace, {"metadata": {"name": "made-by-hand"}, "data": {"lr": "0.1"}}
    )
    assert stack.preview_operations() == {"settings": "import"}
    stack.up()
    assert stack.preview_operations() == {"settings": "same"}


@contextmanager
def simulated_kubelet(stack: Stack, **status: object) -> Iterator[None]:
    """Simulate the kubelet: give each pending pod this status."""
    stop = threading.Event()

    def set_status() -> None:
        api = stack.core()
        while not stop.wait(0.2):
            for pod in api.list_namespaced_pod(stack.namespace).items:
                if pod.status.phase == "Pending":
                    api.patch_namespaced_pod_status(pod.metadata.name, stack.namespace, {"status": status})

    kubelet = threading.Thread(target=set_status)
    kubelet.start()
    try:
        yield
    finally:
        stop.set()
        kubelet.join()


JOB = """
k8s.batch.v1.Job("job", metadata=meta("job", annotations={annotations}), opts=on_cluster, spec={{"backoff_limit": 0,
    "template": {{"spec": {{"restart_policy": "Never", "containers": [
        {{"name": "c", "image": edit("image", "i")}}]}}}}}})
"""


def job(**annotations: str) -> str:
    """Return a program with one Job that has these annotations of Pulumi."""
    return JOB.format(annotations={f"pulumi.com/{key}": value for key, value in annotations.items()})


def test_job_is_awaited_until_it_completes(new_stack: NewStack) -> None:
    stack = new_stack(job())
    with simulated_kubelet(stack, phase="Succeeded"):
        stack.up()
    outputs = stack.state()["job"]["outputs"]
    assert outputs["status"]["succeeded"] == 1


def test_failed_job_fails_the_update_with_its_reason_and_stays_in_the_state(new_stack: NewStack) -> None:
    stack = new_stack(job())
    with simulated_kubelet(stack, phase="Failed"):
        output = stack.up(fails=True)
    assert "[BackoffLimitExceeded] Job has reached the specified backoff limit" in output
    assert "failed to fully initialize or become live" in output
    assert stack.state()["job"]["id"] == f"{stack.namespace}/job"
    assert stack.state()["job"]["initErrors"]


def test_job_beyond_its_timeout_fails_the_update(new_stack: NewStack) -> None:
    output = new_stack(job(timeoutSeconds="1")).up(fails=True)
    assert "'job' timed out waiting to be Ready" in output


def test_wait_for_annotation_sets_the_condition(new_stack: NewStack) -> None:
    stack = new_stack(job(waitFor=json.dumps(["jsonpath={.status.active}=1", "jsonpath={.status.startTime}"])))
    stack.up()
    assert stack.state()["job"]["outputs"]["status"]["active"] == 1


DEFINITION = """
schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": {"size": {"type": "integer"}}}}}
definition = k8s.apiextensions.v1.CustomResourceDefinition(
    "definition", metadata={"name": "widgets.test.dev"}, opts=on_cluster, spec={
        "group": "test.dev", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
        "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"open_apiv3_schema": schema}}]})
space = k8s.core.v1.Namespace("space", metadata={"name": namespace + "-b"}, opts=on_cluster)
k8s.apiextensions.CustomResource(
    "custom", api_version="test.dev/v1", kind="Widget", opts=on_cluster,
    metadata={"name": "one", "namespace": space.metadata.name}, spec={"size": edit("size", 3)})
"""


def test_definition_namespace_and_custom_resource_are_created_and_deleted_together(new_stack: NewStack) -> None:
    stack = new_stack(DEFINITION)
    stack.up()
    assert set(stack.preview_operations().values()) == {"same"}
    stack.up(size=4)
    found: Any = stack.custom().get_namespaced_custom_object("test.dev", "v1", f"{stack.namespace}-b", "widgets", "one")
    assert found["spec"] == {"size": 4}
    stack.run("destroy", "--yes", "--skip-preview")
    assert f"{stack.namespace}-b" not in [item.metadata.name for item in stack.core().list_namespace().items]


def test_deletion_waits_for_finalizers_and_names_them_at_its_timeout(new_stack: NewStack) -> None:
    stack = new_stack("""
k8s.core.v1.ConfigMap("held", metadata=meta("held", finalizers=["test.dev/hold"], annotations={
    "pulumi.com/timeoutSeconds": "1"}), opts=on_cluster)
""")
    stack.up()
    output = stack.run("destroy", "--yes", "--skip-preview", fails=True)
    assert "finalizers might be preventing deletion (test.dev/hold)" in output
    assert "timed out waiting for the condition" in output
    assert "held" in stack.state()
    stack.core().patch_namespaced_config_map("held", stack.namespace, {"metadata": {"finalizers": None}})
    stack.run("destroy", "--yes", "--skip-preview")
    assert "held" not in stack.state()


def test_config_group_creates_the_objects_of_its_yaml(new_stack: NewStack) -> None:
    stack = new_stack("""
k8s.yaml.ConfigGroup("group", yaml=['''
apiVersion: v1
kind: ConfigMap
metadata: {name: first}
data: {since: 2026-01-01}
---
---
apiVersion: v1
kind: ConfigMap
metadata: {name: second}
'''], opts=pulumi.ResourceOptions(providers=[k8s.Provider(
    "here", kubeconfig=os.environ["TEST_KUBECONFIG"], namespace=namespace)]))
""")
    stack.up()
    found = {item.metadata.name: item.data for item in stack.core().list_namespaced_config_map(stack.namespace).items}
    assert found["first"] == {"since": "2026-01-01"}
    assert "second" in found


WORKLOADS = """
labels = {"app": "web"}
# The API server rejects addresses of pods without a node. Without `node_name`, the Service would get no endpoint.
containers = [{"name": "c", "image": "i"}]
pods = {"metadata": {"labels": labels}, "spec": {"node_name": "simulated", "containers": containers}}
spec = {"replicas": 1, "selector": {"match_labels": labels}, "template": pods}
k8s.apps.v1.Deployment("deployment", metadata=meta("web"), spec=spec, opts=on_cluster)
k8s.apps.v1.StatefulSet("set", metadata=meta("web"), spec={**spec, "service_name": "web"}, opts=on_cluster)
k8s.apps.v1.DaemonSet(
    "daemons", metadata=meta("web"), spec={"selector": {"match_labels": labels}, "template": pods}, opts=on_cluster)
k8s.core.v1.Service(
    "service", metadata=meta("web"), spec={"selector": labels, "ports": [{"port": 80}]}, opts=on_cluster)
k8s.core.v1.Pod("pod", metadata=meta("web"), spec=pods["spec"], opts=on_cluster)
k8s.core.v1.ResourceQuota("quota", metadata=meta("quota"), spec={"hard": {"services": "5"}}, opts=on_cluster)
size = {"storage": "1Gi"}
volume = k8s.core.v1.PersistentVolume("volume", metadata={"name": namespace}, opts=on_cluster, spec={
    "capacity": size, "access_modes": ["ReadWriteOnce"], "storage_class_name": "by-hand",
    "host_path": {"path": "/nowhere"}})
k8s.core.v1.PersistentVolumeClaim("claim", metadata=meta("claim"), opts=on_cluster, spec={
    "access_modes": ["ReadWriteOnce"], "storage_class_name": "by-hand", "volume_name": volume.metadata.name,
    "resources": {"requests": size}})
"""


def test_workloads_services_and_volumes_are_awaited(new_stack: NewStack) -> None:
    stack = new_stack(WORKLOADS)
    conditions = [{"type": kind, "status": "True"} for kind in ("PodScheduled", "Initialized", "Ready")]
    with simulated_kubelet(stack, phase="Running", podIP="10.1.0.1", conditions=conditions):
        stack.up()
    outputs = {name: resource.get("outputs", {}) for name, resource in stack.state().items()}
    assert outputs["deployment"]["status"]["availableReplicas"] == 1
    assert outputs["set"]["status"]["readyReplicas"] == 1
    assert outputs["claim"]["status"]["phase"] == "Bound"
    assert outputs["quota"]["status"]["hard"] == {"services": "5"}
    stack.run("refresh", "--yes", "--skip-preview")
    assert set(stack.preview_operations().values()) == {"same"}


def test_job_that_is_ready_when_created_is_deleted_before_its_replacement_is_created(new_stack: NewStack) -> None:
    stack = new_stack(job(waitFor="jsonpath={.metadata.uid}"))
    stack.up()
    first = stack.batch().read_namespaced_job("job", stack.namespace)
    stack.up(image="other")
    second = stack.batch().read_namespaced_job("job", stack.namespace)
    assert second.metadata.uid != first.metadata.uid
    assert second.metadata.deletion_timestamp is None
    assert second.spec.template.spec.containers[0].image == "other"


def test_job_with_rejected_pods_shows_the_reason(new_stack: NewStack) -> None:
    stack = new_stack(job(timeoutSeconds="10"))
    label = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
    stack.core().patch_namespace(stack.namespace, label)
    output = stack.up(fails=True)
    assert "'job' timed out waiting to be Ready" in output
    assert 'violates PodSecurity "restricted' in output
