"""A real API server with the operators' real CRDs accepts every golden manifest and pod, without a warning."""

from __future__ import annotations

import copy
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from infra.local import lifecycle
from infra.local.settings import ClusterSettings
from infra.operator_releases import RELEASES, load_objects
from setup.operators import steps
from tests.components.rendered_jobs import pod_templates
from tests.golden.manifests import rendered
from tests.local.conftest import kubectl_of, run_kubectl, wait_for
from workloads.kinds import KINDS

GOLDENS = rendered()
Apply = Callable[[list[dict[str, Any]]], subprocess.CompletedProcess[str]]


def objects(name: str) -> list[dict[str, Any]]:
    """Return the objects of one example, each with a name like Pulumi's generated names."""
    found = copy.deepcopy(GOLDENS[name])
    for each in found:
        each["metadata"].setdefault("name", "made-by-pulumi")
    return found


@pytest.fixture(scope="module")
def dry_run(settings: ClusterSettings) -> Iterator[Apply]:
    """Yield a function that sends objects to the API server, which validates and does not store them.

    The namespace enforces the `restricted` Pod Security Standard, and the operators' CRDs exist.
    """
    lifecycle.start(settings, lambda _text: None)
    kubectl = kubectl_of(settings)
    for step in steps(RELEASES, cluster=False):
        if not step.is_done():
            step.do(lambda _text: None)
    definitions = [
        {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", **definition}
        for release in RELEASES.values()
        for definition in load_objects(release).definitions
    ]
    names = [each["metadata"]["name"] for each in definitions]
    namespace = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {
            "name": "training",
            "labels": {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn")},
        },
    }
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "trainer", "namespace": "training"}}
    priority = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "high"},
        "value": 1000,
    }
    created = {"apiVersion": "v1", "kind": "List", "items": [*definitions, namespace, account, priority]}
    kubectl("apply", "--server-side", "-f", "-", document=created)
    kubectl("wait", "--for=condition=Established", "--timeout=60s", *(f"crd/{name}" for name in names))

    def apply(items: list[dict[str, Any]]) -> subprocess.CompletedProcess[str]:
        words = ("apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", "-")
        document = {"apiVersion": "v1", "kind": "List", "items": items}
        return run_kubectl(settings.kubeconfig, *words, document=document)

    def are_listed() -> bool:
        return run_kubectl(settings.kubeconfig, "get", ",".join(names), "--all-namespaces").returncode == 0

    # The API server lists a kind some time after its definition is established.
    wait_for("every kind is listed", are_listed)
    yield apply
    kubectl("delete", "namespace/training", "priorityclass/high", "--wait=true")
    kubectl("delete", "--wait=true", *(f"crd/{each['metadata']['name']}" for each in definitions))


def test_api_server_accepts_golden_manifests(dry_run: Apply) -> None:
    items = [each for name in GOLDENS for each in objects(name)]
    done = dry_run(items)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) == len(items)


def test_api_server_admits_pods_to_restricted_namespace(dry_run: Apply) -> None:
    pods: list[dict[str, Any]] = []
    for name in GOLDENS:
        for template in pod_templates(objects(name)).values():
            spec = {"restartPolicy": "Never", **template["spec"]}
            metadata = {**template["metadata"], "name": f"pod-{len(pods)}", "namespace": "training"}
            pods.append({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    done = dry_run(pods)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) == len(pods) > len(GOLDENS)


@pytest.mark.parametrize("kind", [name for name, kind in KINDS.items() if kind.resource])
def test_api_server_rejects_unknown_field_of_kind(dry_run: Apply, kind: str) -> None:
    items = objects(f"script.{kind}")
    for each in items:
        if "spec" in each:
            each["spec"]["unknown"] = 1
    done = dry_run(items)
    assert done.returncode == 1
    assert "unknown field" in done.stderr


@pytest.mark.parametrize("kind", [name for name, kind in KINDS.items() if kind.resource])
def test_api_server_knows_the_field_that_suspends_a_job(dry_run: Apply, kind: str) -> None:
    resource = KINDS[kind].resource
    assert resource
    items = objects(f"script.{kind}")
    (job,) = [each for each in items if each["kind"] == resource.kind]
    *path, key = resource.suspend
    field = job["spec"]
    for name in path:
        field = field[name]
    field[key] = True
    done = dry_run(items)
    assert (done.returncode, done.stderr) == (0, "")


def test_api_server_rejects_unknown_field_of_queue(dry_run: Apply) -> None:
    for each in objects("queues"):
        each["spec"]["unknown"] = 1
        done = dry_run([each])
        assert done.returncode == 1
        assert "unknown field" in done.stderr


def test_api_server_warns_about_job_whose_pods_allow_privilege_escalation(dry_run: Apply) -> None:
    (job,) = [each for each in objects("digits.indexed-job") if each["kind"] == "Job"]
    job["spec"]["template"]["spec"]["containers"][0]["securityContext"]["allowPrivilegeEscalation"] = True
    assert "would violate PodSecurity" in dry_run([job]).stderr
